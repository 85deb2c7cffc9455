"""This source beside an older one, and beside Kafka: `python -m bench versus FOLDER [--rounds 5] [STAGE …]`.

FOLDER is a checkout of the older source (`git worktree add ../before COMMIT`). Every round measures one side after the
other, so that a busy minute meets both. Each side runs its own code and its own benchmarks, with this interpreter. A
figure counts as slower when its median is below 0.95 of the older one's *and* the two ranges do not overlap.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.kit.kafka import KafkaUnavailable, resolve

from bench import coordinator, dump
from bench.compaction import CASES, log_of
from bench.coordinator_cells import ALONE, BUSY, Shape
from bench.coordinator_servers import KafkaNode, Muster, Process, allow_open_files, ending, scratch
from bench.dump import CACHE, ROOT

SLOWER = 0.95
SHAPES = (ALONE, BUSY, Shape(64, 1))
STAGES = ("core", "columns", "dump", "load", "disk", "compaction", "start", "servers", "restart")
RECORDS = 5_000_000
SECONDS, WARMUP_S, JVM_WARMUP_S = 1.5, 0.3, 20.0


class Side(Muster):
    """A server of one source."""

    def __init__(self, root: Path, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings, name=root.name)
        self._root = root

    def start(self) -> None:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self._root / "src")
        try:
            super().start()
        finally:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before


@dataclass(slots=True)
class Figure:
    """One number on each side, once a round."""

    name: str
    more_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, ours: str, other: str) -> float | None:
        """How many times better `ours` is."""
        if not self.values.get(ours) or not self.values.get(other):
            return None
        mine, theirs = statistics.median(self.values[ours]), statistics.median(self.values[other])
        above, below = (mine, theirs) if self.more_is_better else (theirs, mine)
        return above / below if below else None

    @property
    def is_slower(self) -> bool:
        ratio = self.ratio("after", "before")
        if ratio is None or ratio >= SLOWER:
            return False
        after, before = self.values["after"], self.values["before"]
        return max(after) < min(before) if self.more_is_better else min(after) > max(before)


class Figures:
    """All of them, in the order in which they came."""

    def __init__(self) -> None:
        self.by_name: dict[str, Figure] = {}

    def add(self, side: str, name: str, value: float, *, more_is_better: bool) -> None:
        figure = self.by_name.setdefault(name, Figure(name, more_is_better))
        figure.values.setdefault(side, []).append(value)

    def table(self) -> Table:
        table = Table("", "before", "after", "Kafka", "after : before", "after : Kafka", "")
        for figure in self.by_name.values():
            medians = (
                f"{statistics.median(found):,.2f}" if (found := figure.values.get(side)) else "" for side in SIDES
            )
            ratios = (figure.ratio("after", other) for other in ("before", "Kafka"))
            table.add_row(
                figure.name,
                *medians,
                *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                "slower" if figure.is_slower else "",
            )
        return table


SIDES = ("before", "after", "Kafka")


# Commands: each side runs its own.


def run(root: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{root.name}: {' '.join(words)} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def figures_of(text: str) -> Iterator[tuple[str, float, bool]]:
    """The numbers of JSON lines; those a second are better when there are more of them."""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        result = json.loads(line)
        what = f"{result.pop('what')}: " if "what" in result else ""
        for name, value in result.items():
            if isinstance(value, int | float) and name not in ("records", "offsets", "rounds"):
                yield f"{what}{name}", float(value), "/s" in name or "per sync" in name


def columns(root: Path, folder: Path) -> Iterator[tuple[str, float, bool]]:
    for work in ("decode", "read", "latest"):
        result = json.loads(run(root, "bench.columnar", work, str(folder)))
        yield f"columns, {work}: M records/s", result["records"] / result["median_s"] / 1e6, True


def dumps(root: Path, folder: Path) -> Iterator[tuple[str, float, bool]]:
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    for words in (["--summary"], ["--format", "text"], ["--format", "json"]):
        command = [sys.executable, "-m", "muster", "dump", str(folder), "--no-progress", *words]
        began = time.perf_counter()
        subprocess.run(command, cwd=root, env=environment, stdout=subprocess.DEVNULL, check=True)
        yield f"dump {' '.join(words)}: M records/s", RECORDS / (time.perf_counter() - began) / 1e6, True


def compactions(root: Path) -> Iterator[tuple[str, float, bool]]:
    for name, (arguments, how) in CASES.items():
        if how:  # plain Python, which only tests run
            continue
        result = json.loads(run(root, "bench.compaction", str(log_of(arguments))))
        yield f"compaction, {name}: M records/s", result["M records/s"], True


def disk(root: Path) -> Iterator[tuple[str, float, bool]]:
    script = "import json; from bench import disk\nfor each in disk.appends(): print(json.dumps(each), flush=True)"
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    text = subprocess.check_output([sys.executable, "-c", script], cwd=root, env=environment, text=True)
    yield from (each for each in figures_of(text) if "the disk's own" not in each[0] and "MB/s" not in each[0])


COMMANDS: dict[str, Callable[[Path], Iterator[tuple[str, float, bool]]]] = {
    "core": lambda root: figures_of(run(root, "bench.core")),
    "columns": lambda root: columns(root, dump.topic(RECORDS)),
    "dump": lambda root: dumps(root, dump.topic(RECORDS)),
    "load": lambda root: figures_of(run(root, "bench.load")),
    "disk": disk,
    "compaction": compactions,
}


# Servers.


def measured_starts(sides: Mapping[str, Process], figures: Figures) -> None:
    for name, server in sides.items():
        result = coordinator.started(server, groups=0)
        server.wait_until_ready()
        server.stop()
        figures.add(name, "start to first answer: ms", result["api_ms"], more_is_better=False)


def measured_loads(sides: Mapping[str, Process], figures: Figures, note: str, apis: Sequence[str]) -> None:
    for api in apis:
        for shape in SHAPES:
            for name, server in sides.items():
                result = coordinator.measured(
                    server, api, conns=shape.conns, depth=shape.depth, seconds=SECONDS, warmup=WARMUP_S
                )
                figures.add(name, f"{api} {shape}{note}: /s", result["rate"], more_is_better=True)
                if result.get("server_cpu_s"):
                    cost_us = result["server_cpu_s"] / result["requests"] * 1e6
                    figures.add(name, f"{api} {shape}{note}: server CPU µs", cost_us, more_is_better=False)


def measured_joins(sides: Mapping[str, Process], figures: Figures) -> None:
    for members in (10, 100, 1_000):
        for name, server in sides.items():
            result = coordinator.joins(server, members)
            figures.add(name, f"one more of {members:,} members: ms", result["join_ms"], more_is_better=False)


def servers(folder: Path, before: Path, rounds: int, figures: Figures, kafka: KafkaNode | None) -> None:
    cached: dict[str, Process] = {
        "before": Side(before, folder / "before", coordinator.PAGE_CACHE),
        "after": Side(ROOT, folder / "after", coordinator.PAGE_CACHE),
    }
    durable: dict[str, Process] = {
        "before": Side(before, folder / "before-durable", coordinator.ON_DISK),
        "after": Side(ROOT, folder / "after-durable", coordinator.ON_DISK),
    }
    if kafka is not None:
        cached["Kafka"] = kafka
    with ending(*cached.values(), *durable.values()):
        for server in (*cached.values(), *durable.values()):
            server.start()
            server.wait_until_ready()
        for server in (*cached.values(), *durable.values()):
            coordinator.warm_up(server, JVM_WARMUP_S if server is kafka else 1.5)
        for number in range(rounds):
            say(f"servers, round {number + 1} of {rounds}")
            measured_loads(cached, figures, "", ("commit", "heartbeat", "fetch"))
            measured_joins(cached, figures)
            measured_loads(durable, figures, ", fsync", ("commit",))


def restarts(folder: Path, before: Path, rounds: int, figures: Figures) -> None:
    what = {"groups": coordinator.GROUPS, "partitions": coordinator.PARTITIONS, "rounds": 1, "topic": "fill"}
    sides = {
        "before": Side(before, folder / "before-filled", coordinator.PAGE_CACHE),
        "after": Side(ROOT, folder / "after-filled", coordinator.PAGE_CACHE),
    }
    with ending(*sides.values()):
        for server in sides.values():
            server.start()
            server.wait_until_ready()
            coordinator.coordinator_tool.run("fill", bootstrap=server.bootstrap, conns=8, depth=16, **what)
            server.stop()
        for number in range(rounds):
            say(f"restarts, round {number + 1} of {rounds}")
            for name, server in sides.items():
                result = coordinator.started(server, **what)
                server.stop()
                figures.add(name, "restart with 1 M offsets: ms", result["all_groups_ms"], more_is_better=False)
                figures.add(name, "restart with 1 M offsets: MB", result["rss_loaded_mb"], more_is_better=False)


def say(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def share_the_cache(before: Path) -> None:
    """Generated topics are large, and the same for both."""
    theirs = before / ".cache" / "bench"
    theirs.parent.mkdir(exist_ok=True)
    if not theirs.exists():
        theirs.symlink_to(CACHE, target_is_directory=True)


def main(words: Sequence[str]) -> int:
    rounds, stages = 5, []
    before = Path(words[0]).resolve()
    if not (before / "src" / "muster").is_dir():
        print(f"{words[0]} is no checkout of muster: it has no src/muster", file=sys.stderr)
        return 2
    left = list(words[1:])
    while left:
        word = left.pop(0)
        if word == "--rounds" and left:
            rounds = int(left.pop(0))
        elif word in STAGES:
            stages.append(word)
        else:
            print(f"no stage called {word}; there are {', '.join(STAGES)}", file=sys.stderr)
            return 2
    chosen = stages or list(STAGES)
    share_the_cache(before)
    allow_open_files(4_096)
    figures = Figures()
    try:
        measure(before, rounds, chosen, figures)
    finally:
        print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f} at the end; medians; better than 1 is better")
        Console(width=150).print(figures.table())
        path = CACHE / "versus.json"
        path.write_text(json.dumps({name: each.values for name, each in figures.by_name.items()}, indent=1) + "\n")
    return 0


def measure(before: Path, rounds: int, stages: Sequence[str], figures: Figures) -> None:
    roots = {"before": before, "after": ROOT}
    for stage in stages:
        if stage not in COMMANDS:
            continue
        for number in range(rounds):
            say(f"{stage}, round {number + 1} of {rounds}")
            for side, root in roots.items():
                for name, value, more_is_better in COMMANDS[stage](root):
                    figures.add(side, name, value, more_is_better=more_is_better)
    with scratch(CACHE / "versus", "run") as folder:
        try:
            kafka = KafkaNode(folder / "kafka", resolve()) if {"start", "servers"} & set(stages) else None
        except KafkaUnavailable as missing:
            kafka = None
            say(f"without Kafka: {missing}")
        if "start" in stages:
            settings = coordinator.ON_DISK
            sides: dict[str, Process] = {
                side: Side(root, folder / f"{side}-first", settings) for side, root in roots.items()
            }
            with ending(*sides.values()):
                for _ in range(rounds):
                    measured_starts(sides, figures)
        if "servers" in stages:
            servers(folder, before, rounds, figures, kafka)
        if "restart" in stages:
            restarts(folder, before, rounds, figures)
