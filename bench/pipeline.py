"""The pipeline on Spark, end to end: `python -m bench pipeline`, and `python -m bench.pipeline profile DIR`.

Each run is a process of its own with a Spark of its own. Its seconds begin when Spark is up; how long that took is a
line of its own. Processor time is that of everything after it, JVM and workers included.
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

NEW_SHARE = 0.01
AIMS = {"state": 5.0, "history": 2.0}
"""Millions of records a second: 20 M in 4 s for state alone."""
TABLE_AIM_S = 1.0
TOP_LINES = 15


class Run(NamedTuple):
    """One run of the job."""

    work: str
    records: int
    seconds: float
    spark_s: float
    cpu_s: float
    peak_rss_mb: dict[str, float]

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us_a_record(self) -> float:
        return self.cpu_s / self.records * 1e6


def child(kind: str, source: str, tables: str) -> None:
    """What the measured process does; two lines on stdout."""
    from muster.pipeline.engine import SparkEngine
    from muster.pipeline.job import Request, run
    from muster.pipeline.session import spark_session

    began = time.perf_counter()
    spark = spark_session()
    spark.range(1).mapInArrow(lambda batches: batches, "id long").toArrow()  # Spark SQL and a worker are up, too
    print(json.dumps({"spark_s": time.perf_counter() - began}), flush=True)
    sys.stdin.readline()
    summary = run(SparkEngine(spark), Request([source], tables, history=kind != "state"))
    print(json.dumps({"records": summary.records, "seconds": summary.seconds}), flush=True)
    sys.stdin.readline()
    spark.stop()


def measured(work: str, kind: str, source: Path, tables: Path) -> Run:
    command = [sys.executable, "-m", "bench.pipeline", "run", kind, str(source), str(tables)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        family = Family(process.pid)
        up = _told(process.stdout.readline(), command)
        family.look()
        before = family.cpu_s()
        with family.watched():
            print(file=process.stdin, flush=True)
            done = _told(process.stdout.readline(), command)
        family.look()
        print(file=process.stdin, flush=True)
    return Run(
        work, done["records"], done["seconds"], up["spark_s"], family.cpu_s() - before, family.peak_rss_mb()
    )  # fmt: skip


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


def runs(folder: Path, work: Path, records: int) -> Iterator[Run]:
    """State alone, all of history, and history again when one record in a hundred is new."""
    size = f"{records / 1e6:g} M"
    yield measured(f"{size}: state alone", "state", folder, work / "state")
    yield measured(f"{size}: full history", "history", folder, work / "history")
    earlier, tables = work / "earlier", work / "tables"
    without_the_newest(folder, earlier, NEW_SHARE)
    measured("", "history", earlier, tables)
    shutil.rmtree(earlier)
    yield measured(f"{size}: 1 % is new", "history", folder, tables)


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
    table_s = 0.0
    for records in sizes:
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="pipeline-") as work:
            found += runs(dump.topic(records), Path(work), records)
            table_s = table_seconds(Path(work) / "tables")
    kafka = kafka or dump.kafka(dump.topic(5_000_000), 5_000_000)
    report(found, kafka)
    for line in growth(found):
        print(line)
    print(f"muster table offsets: {table_s:.2f} s (aim {TABLE_AIM_S:.1f} s)")
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
        case ["run", kind, source, tables]:
            child(kind, source, tables)
        case ["profile", source, *kinds]:
            profile(source, *kinds)
        case _:
            sys.exit("python -m bench.pipeline profile DIR [state|history]")
