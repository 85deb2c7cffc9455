"""`python -m bench answers [full]`: how long pages and questions take over tables of a large cluster.

    answers          1,000 groups × 10 partitions × 2 days of history, an interval every 10 minutes: 3 M rows
    answers full     10,000 groups × 10 partitions × 7 days: 100 M rows, and a report of 1,000 groups of 7 days

Pages are asked over HTTP, each of another group or another moment, so nothing is answered from what was kept. Questions
are processes of their own, from the command line to its end.
"""

import http.client
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.answers_tables import NOW_MS, World, make
from bench.dump import CACHE
from muster.pages.port import PagesPort
from muster.pages.runs import Runs

ROUNDS = int(os.environ.get("ROUNDS", "40"))
SEED = 17
HISTORY_TIMEOUT_S = 900.0
QUESTIONS = (
    ("status",),
    ("status", "{group}"),
    ("findings",),
    ("expiring",),
    ("why", "{group}"),
    ("lag",),
    ("lag", "{group}"),
    ("history", "{group}"),
    ("sql", "SELECT count(*) FROM groups"),
)


def tables_of(world: World) -> Path:
    """Made once, and kept."""
    folder = CACHE / f"answers-{world.groups}-{world.partitions}-{world.days}"
    if not (folder / "made").exists():
        begun_s = time.perf_counter()
        make(folder / "tables", world)
        (folder / "made").touch()
        print(f"made {folder} in {time.perf_counter() - begun_s:.0f} s", flush=True)
    return folder / "tables"


def main(arguments: list[str]) -> int:
    is_full = arguments == ["full"]
    world = World(10_000, 10, 7) if is_full else World()
    folder = tables_of(world)
    rows = world.groups * world.partitions * world.days * 144
    print(f"{world.groups:,} groups, {rows / 1e6:.1f} M rows of lag_history, {os.cpu_count()} cores", flush=True)
    print(f"{'':42}{'p50 ms':>9}{'p95 ms':>9}{'CPU ms':>9}", flush=True)
    for line in _pages(folder, world):
        _show(line)
    for line in _questions(folder, world):
        _show(line)
    of_report = World(1000, 10, 7) if is_full else world
    _show(_report(tables_of(of_report), of_report))
    return 0


def _show(line: "Line") -> None:
    what, median, p95, cpu, note = line
    print(f"{what:42}{median:>9}{p95:>9}{cpu:>9}  {note}", flush=True)


Line = tuple[str, str, str, str, str]


def _pages(folder: Path, world: World) -> Iterator[Line]:
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    runs = Runs(str(folder), {}, print)
    port = PagesPort("127.0.0.1", 0, runs)
    try:
        yield _line("overview of now, the first time", [_timed(lambda: _get(port.url, "/overview.json"))], "")
        assert runs.wait_for_history(HISTORY_TIMEOUT_S), "history was not added up in time"
        added_up = Spent(time.perf_counter() - begun_s, time.process_time() - cpu_s)
        yield _line("history added up", [added_up], "in the background, once")
        for name, target in _targets(world).items():
            sizes: list[int] = []
            yield _line(
                name, [_asked(port.url, target, sizes) for _ in range(ROUNDS)], f"{max(sizes) / 1e3:,.0f} KB packed"
            )
    finally:
        port.close()
        runs.close()


def _targets(world: World) -> dict[str, Callable[[], str]]:
    """Pages by name, each time another one."""
    chance = random.Random(SEED)
    span_ms = world.days * 86_400_000 - 7_200_000

    def at() -> str:
        return f"at={NOW_MS - chance.randrange(span_ms)}"

    def group() -> str:
        return world.group(chance.randrange(world.groups))

    def topic() -> str:
        return world.topic(chance.randrange(world.groups))

    return {
        "overview, now": lambda: "/overview.json",
        "overview, as of a moment": lambda: f"/overview.json?{at()}",
        "a group, now": lambda: f"/group.json?id={group()}",
        "a group, a week up to now": lambda: f"/group.json?id={group()}&range=7d",
        "a group, as of a moment": lambda: f"/group.json?id={group()}&{at()}",
        "a topic, now": lambda: f"/topic.json?name={topic()}",
        "a topic, as of a moment": lambda: f"/topic.json?name={topic()}&{at()}",
        "findings": lambda: "/findings.json",
    }


def _asked(url: str, target: Callable[[], str], sizes: list[int]) -> "Spent":
    return _timed(lambda: sizes.append(_get(url, target())))


def _get(url: str, target: str) -> int:
    """How many bytes came."""
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=60)
    connection.request("GET", target, headers={"Accept-Encoding": "gzip"})
    reply = connection.getresponse()
    body = reply.read()
    assert reply.status == 200, (target, reply.status, body[:200])
    connection.close()
    return len(body)


def _questions(folder: Path, world: World) -> Iterator[Line]:
    for words in QUESTIONS:
        asked = [word.format(group=world.group(7)) for word in words]
        command = [sys.executable, "-m", "muster", *asked, "--tables", str(folder)]
        if subprocess.run([*command[:4], "--help"], capture_output=True).returncode:
            continue  # not to be asked yet
        codes: list[int] = []
        yield _line(f"muster {' '.join(words)}", [_run(command, codes) for _ in range(3)], f"exit code {codes[-1]}")


def _report(folder: Path, world: World) -> Line:
    file, codes = CACHE / "answers-report.html", list[int]()
    command = [sys.executable, "-m", "muster", "report", "--tables", str(folder), "--html", str(file), "--force"]
    spent = _run(command, codes)
    assert codes == [0]
    return _line(
        f"report of {world.groups:,} groups, {world.days} days", [spent], f"{file.stat().st_size / 1e6:.1f} MB"
    )


class Spent(NamedTuple):
    seconds: float
    cpu_s: float
    """Of this process and of those it waited for: other work on the machine does not count."""


def _run(command: list[str], codes: list[int]) -> Spent:
    return _timed(lambda: codes.append(subprocess.run(command, capture_output=True).returncode))


def _timed(work: Callable[[], object]) -> Spent:
    begun_s, cpu_s = time.perf_counter(), _cpu_s()
    work()
    return Spent(time.perf_counter() - begun_s, _cpu_s() - cpu_s)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _line(what: str, spent: list[Spent], note: str) -> Line:
    times = sorted(each.seconds for each in spent)
    p95 = times[min(round(len(times) * 0.95), len(times) - 1)]
    cpu_s = statistics.median(each.cpu_s for each in spent)
    return what, f"{statistics.median(times) * 1000:,.0f}", f"{p95 * 1000:,.0f}", f"{cpu_s * 1000:,.0f}", note
