"""The pipeline on Spark, end to end: `python -m bench pipeline`, and three more.

    python -m bench.pipeline versus FOLDER [--rounds 3] [--records 5000000]    beside an older checkout
                                           [--only state,history]              a run of each, and nothing else
    python -m bench.pipeline skewed                                            one partition with all records
    python -m bench.pipeline profile DIR                                       in one process, where the time goes

Each run is a process of its own with a Spark of its own, unless it says "again". Its seconds begin when Spark is up;
how long that took is a line of its own. Nothing has warmed up Spark SQL before: whatever a run needs of it belongs to
the run. Processor time is that of everything after the start, JVM and workers included; on a machine with other work
it is the figure to compare.
"""

import cProfile
import json
import os
import pstats
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import dump, measure
from bench.dump import CACHE, ROOT, Line
from bench.processes import KINDS, Family
from bench.versus import Figures, say

NEW_SHARE = 0.01
AIMS = {"state": 5.0, "history": 2.0}
"""Millions of records a second: 20 M in 4 s for state alone."""
TABLE_AIM_S, MOMENT_AIM_S = 1.0, 0.3
TOP_LINES = 15
A_GROUP, THE_MIDDLE_MS = "ads-replicator-43", 1_760_302_400_000


class Run(NamedTuple):
    """One run of the job."""

    work: str
    records: int
    seconds: float
    spark_s: float
    cpu_s: float
    cpu_with_start_s: float
    """From the start of the process; of a session's first run, what a user pays for a command."""
    peak_rss_mb: dict[str, float]

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us_a_record(self) -> float:
        return self.cpu_s / self.records * 1e6


class Session:
    """A measured process: Spark of one checkout, for one run or several."""

    def __init__(self, root: Path = ROOT) -> None:
        self._command = [sys.executable, str(ROOT / "bench" / "pipeline_run.py")]
        environment = os.environ | {"PYTHONPATH": str(root / "src")}
        self._process = subprocess.Popen(
            self._command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._family = Family(self._process.pid)
        self.spark_s = float(self._told()["spark_s"])

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, work: str, kind: str, source: Path, tables: Path) -> Run:
        """`kind`: state, history, or analytics, which is history with the tables by interval."""
        asked = {"sources": [str(source)], "tables": str(tables), "history": kind != "state"}
        self._family.look()
        before = self._family.cpu_s()
        with self._family.watched():
            print(json.dumps(asked | {"analytics": kind == "analytics"}), file=self._process.stdin, flush=True)
            done = self._told()
        self._family.look()
        so_far, peaks = self._family.cpu_s(), self._family.peak_rss_mb()
        return Run(work, done["records"], done["seconds"], self.spark_s, so_far - before, so_far, peaks)

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return _told(self._process.stdout.readline(), self._command)


def measured(work: str, kind: str, source: Path, tables: Path, root: Path = ROOT) -> Run:
    with Session(root) as session:
        return session.run(work, kind, source, tables)


def _told(line: str, command: Sequence[str]) -> dict[str, Any]:
    if not line:
        sys.exit(f"{' '.join(command)} ended before it was done")
    told: dict[str, Any] = json.loads(line)
    return told


def without_the_newest(source: Path, target: Path, share: float) -> None:
    """The same log as it was a little earlier: of each partition this share of its bytes is not there yet."""
    for folder in sorted(source.glob("__consumer_offsets-*")):
        (target / folder.name).mkdir(parents=True)
        segments = sorted(folder.glob("*.log"))
        left = int(sum(segment.stat().st_size for segment in segments) * (1 - share))
        for segment in segments:
            size = segment.stat().st_size
            copy = target / folder.name / segment.name
            if left >= size:
                copy.symlink_to(segment)
            elif left > 0:
                copy.write_bytes(segment.read_bytes()[: last_end(segment, left)])
            left -= size


def last_end(segment: Path, limit: int) -> int:
    """Where the last batch ends that is whole within so many bytes."""
    position = 0
    with segment.open("rb") as file:
        while True:
            file.seek(position)
            head = file.read(12)
            end = position + 12 + struct.unpack_from(">i", head, 8)[0] if len(head) == 12 else limit + 1
            if end > limit:
                return position
            position = end


def runs(folder: Path, work: Path, records: int, root: Path = ROOT) -> Iterator[Run]:
    """State alone; history, and the same again with nothing new; with analytics; and when 1 % of that is new."""
    size = f"{records / 1e6:g} M"
    yield measured(f"{size}: state alone", "state", folder, work / "state", root)
    with Session(root) as session:
        yield session.run(f"{size}: full history", "history", folder, work / "history")
        yield session.run(f"{size}: again, nothing new", "history", folder, work / "history")
    earlier, tables = work / "earlier", work / "tables"
    without_the_newest(folder, earlier, NEW_SHARE)
    yield measured(f"{size}: history and analytics", "analytics", earlier, tables, root)
    shutil.rmtree(earlier)
    yield measured(f"{size}: 1 % is new", "analytics", folder, tables, root)


def some_runs(folder: Path, work: Path, records: int, kinds: Sequence[str], root: Path = ROOT) -> Iterator[Run]:
    """A run of each kind, from the beginning."""
    for kind in kinds:
        yield measured(f"{records / 1e6:g} M: {kind}", kind, folder, work / kind, root)


def moment_seconds(tables: Path, root: Path = ROOT) -> measure.Cost:
    """`muster table offsets` of one group, as of the middle of the log; the process as a user starts it."""
    script = [sys.executable, "-m", "muster", "table", "offsets", "--tables", str(tables), "--group", A_GROUP]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(root / "src")
    try:
        return measure.run([*script, "--as-of", str(THE_MIDDLE_MS), "--json"], repeat=3)
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def skewed_topic(records: int) -> Path:
    """All records in one partition, in segments as large as those of the even topic."""
    folder = CACHE / f"{records}-one-partition"
    if not (folder / "expected.json").exists():
        words = ["--records", records, "--value-version", 4, "--seed", 1, "--out", folder, "--partitions", "1"]
        subprocess.run([sys.executable, ROOT / "bench" / "make_large.py", *map(str, words)], check=True)
    return folder


def skewed(records: int = 5_000_000, rounds: int = 3) -> None:
    """An even topic and one whose records are all in one partition, in turns."""
    figures = Figures()
    for _ in range(rounds):
        for name, folder in {"before": dump.topic(records), "after": skewed_topic(records)}.items():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as work:
                add(figures, name, measured(f"{records / 1e6:g} M: history", "history", folder, Path(work) / "tables"))
    print("before: an even topic; after: one partition")
    Console(width=130).print(figures.table())


def add(figures: Figures, side: str, run: Run) -> None:
    figures.add(side, f"{run.work}: s", run.seconds, more_is_better=False)
    figures.add(side, f"{run.work}: CPU s", run.cpu_s, more_is_better=False)
    if "again" not in run.work:
        figures.add(side, f"{run.work}, with Spark's start: s", run.spark_s + run.seconds, more_is_better=False)
        figures.add(side, f"{run.work}, with Spark's start: CPU s", run.cpu_with_start_s, more_is_better=False)
    figures.add(side, f"{run.work}: driver MB", run.peak_rss_mb["driver"], more_is_better=False)
    figures.add(side, "Spark up: s", run.spark_s, more_is_better=False)


def versus(before: Path, rounds: int, records: int, only: Sequence[str] = ()) -> None:
    """This checkout beside an older one, in turns. What the older one has no analytics for, it does without."""
    figures = Figures()
    folder = dump.topic(records)
    try:
        for number in range(rounds):
            for side, root in {"before": before, "after": ROOT}.items():
                say(f"{side}, round {number + 1} of {rounds}")
                with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as work:
                    wanted = some_runs(folder, Path(work), records, only, root) if only else None
                    for run in runs(folder, Path(work), records, root) if wanted is None else wanted:
                        add(figures, side, run)
                        say(f"{run.work}: {run.seconds:.1f} s, {run.cpu_s:.1f} CPU s")
                    if only:
                        continue
                    cost = moment_seconds(Path(work) / "tables", root)
                    figures.add(side, "one group as of a moment: s", cost.wall_s, more_is_better=False)
                    figures.add(side, "one group as of a moment: CPU s", cost.cpu_s, more_is_better=False)
    finally:
        print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f} at the end; medians; better than 1 is better")
        Console(width=130).print(figures.table())
        path = CACHE / "pipeline-versus.json"
        path.write_text(json.dumps({name: each.values for name, each in figures.by_name.items()}, indent=1) + "\n")


def table_seconds(tables: Path) -> float:
    """`muster table offsets`, the process as a user starts it."""
    command = [sys.executable, "-m", "muster", "table", "offsets", "--tables", str(tables), "--json", "--limit", "0"]
    return measure.run(command, repeat=3).wall_s


def report(found: Sequence[Run], kafka: Line) -> None:
    table = Table(title=f"the pipeline on Spark, local[*], {os.cpu_count()} cores", title_justify="left")
    table.add_column("work")
    for heading in ("seconds", "M records/s", "aim", "CPU µs/record", "× kafka-dump-log", *KINDS, "Spark up"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in found:
        aim = next((aim for kind, aim in AIMS.items() if kind in run.work), None)
        table.add_row(
            run.work,
            f"{run.seconds:.2f}",
            f"{run.records_per_s / 1e6:.{2 if run.records_per_s > 1e5 else 4}f}",
            "" if aim is None else f"{aim:.1f}",
            f"{run.cpu_us_a_record:.2f}",
            f"{run.records_per_s / kafka.records_per_s:.1f}",
            *(f"{run.peak_rss_mb[kind]:.0f} MB" for kind in KINDS),
            f"{run.spark_s:.1f} s",
        )
    table.add_row(kafka.work, f"{kafka.seconds:.2f}", f"{kafka.records_per_s / 1e6:.2f}", "", "", "1.0")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


def growth(found: Sequence[Run]) -> Iterator[str]:
    """How the cost of one record changes when there are ten times as many."""
    by_kind: dict[str, list[Run]] = {}
    for run in found:
        by_kind.setdefault(run.work.split(": ")[1], []).append(run)
    for kind, some in by_kind.items():
        for small, large in pairwise(some):
            yield (
                f"{kind}: {large.records / small.records:.0f} times the records, "
                f"{large.cpu_us_a_record / small.cpu_us_a_record:.2f} times the CPU a record, "
                f"{small.records_per_s / large.records_per_s:.2f} times the seconds a record"
            )


def main(kafka: Line | None = None) -> None:
    """`kafka` is how kafka-dump-log did on 5 M records, where that has been measured already."""
    sizes = [500_000, 5_000_000, *([50_000_000] if os.environ.get("BENCH") == "full" else [])]
    found: list[Run] = []
    table_s, moment = 0.0, None
    for records in sizes:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as work:
            found += runs(dump.topic(records), Path(work), records)
            table_s, moment = table_seconds(Path(work) / "tables"), moment_seconds(Path(work) / "tables")
    kafka = kafka or dump.kafka(dump.topic(5_000_000), 5_000_000)
    report(found, kafka)
    for line in growth(found):
        print(line)
    print(f"muster table offsets: {table_s:.2f} s (aim {TABLE_AIM_S:.1f} s)")
    if moment is not None:
        print(f"one group as of a moment: {moment.wall_s:.2f} s, {moment.cpu_s:.2f} CPU s (aim {MOMENT_AIM_S:.1f} s)")
    results = {"runs": [run._asdict() for run in found], "table_s": table_s, "kafka": kafka._asdict()}
    (CACHE / "pipeline.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


class Profiled:
    """An engine that says where the time of its tasks goes."""

    is_local = True

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.task_memory_mb = engine.task_memory_mb

    def read(self, task: Any, works: Sequence[Any]) -> Any:
        return self._profiled("read", len(works), lambda: self._engine.read(task, works))

    def merge(self, task: Any, works: Sequence[Any], readings: Sequence[Any]) -> Any:
        return self._profiled("merge", len(works), lambda: self._engine.merge(task, works, readings))

    def each(self, step: str, task: Any, works: Sequence[Any]) -> Any:
        return self._profiled(step, len(works), lambda: self._engine.each(step, task, works))

    def forget(self) -> None:
        self._engine.forget()

    def _profiled(self, step: str, tasks: int, work: Callable[[], Any]) -> Any:
        profile = cProfile.Profile()
        began = time.perf_counter()
        with profile:
            answer = work()
        print(f"\n{step}: {tasks} tasks, {time.perf_counter() - began:.2f} s under the profiler", flush=True)
        if tasks:
            pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(TOP_LINES)
        return answer


def profile(source: str, *kinds: str) -> None:
    from muster.pipeline.engine import LocalEngine
    from muster.pipeline.job import Request, run

    for kind in kinds or ("state", "history"):
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as work:
            summary = run(Profiled(LocalEngine()), Request([source], f"{work}/tables", history=kind != "state"))
            print(f"{kind}: {summary.records:,} records in {summary.seconds:.1f} s, all in one process")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["versus", folder, *words]:
            given = dict(zip(words[::2], words[1::2], strict=True))
            kinds = [kind for kind in given.get("--only", "").split(",") if kind]
            versus(Path(folder).resolve(), int(given.get("--rounds", 3)), int(given.get("--records", 5_000_000)), kinds)
        case ["skewed"]:
            skewed()
        case ["profile", source, *kinds]:
            profile(source, *kinds)
        case _:
            sys.exit("python -m bench.pipeline profile DIR [state|history] | versus FOLDER [--rounds 3] | skewed")
