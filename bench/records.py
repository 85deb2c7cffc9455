"""Records beside a real Kafka, in one run: `python -m bench records`, `BENCH=full` for longer rounds and 10 GB.

Words behind it pick stages: `python -m bench records produce latency`.

Records have 1,000 bytes and go into one partition. Rounds alternate, muster Kafka muster Kafka; the server that is not
measured is up and idle. *Page cache* is Kafka's default and `muster.flush=os`; *fsync* is muster's default, and
`flush.messages=1` for Kafka's topic. The clients are Kafka's own perf tools in a JVM, with their batches of 16 KB and
with larger ones, and confluent-kafka with its defaults. They share the machine with the servers: on two cores MB/s tell
of the three together, so the server's own CPU seconds stand beside them.

Aims are told, not punished; memory that grows is an error.
"""

import contextlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from tests.kit.kafka import Kafka, KafkaUnavailable, resolve

from bench.coordinator_cells import Cell, Figure, Result
from bench.coordinator_report import QUIET_CORES
from bench.coordinator_servers import KafkaNode, Muster, Process, ServerFailed, ending, rss_mb, scratch
from bench.dump import CACHE
from bench.processes import TICKS

RECORD_BYTES = 1_000
RATE = 1_000
ALL_STAGES = ("produce", "fsync", "latency", "memory", "first")
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
CLIENT_TIMEOUT_S = 1_800
GROWTH_ALLOWED_MB = 50.0
SETTLED_MB = 200
"""Have passed when memory is looked at for the first time: by then everything that comes once has come."""
SMALL_LOG = {"retention.bytes": str(400 << 20), "segment.bytes": str(64 << 20)}
FIRST_MS, NEXT_MS = 1_000.0, 300.0

MB_S = Figure("mb_s", "MB/s", more_is_better=True)
RECORDS_S = Figure("records_s", "/s", more_is_better=True)
CPU_MS = Figure("cpu_ms_per_mb", "ms CPU/MB")
P50, P99 = Figure("p50_us", "µs"), Figure("p99_us", "µs")


class Plan(NamedTuple):
    name: str
    rounds: int
    megabytes: int
    fsync_megabytes: int
    latency_s: float
    through_megabytes: int
    brokers: int


QUICK = Plan("quick", 3, 150, 50, 5.0, 1_000, 4)
FULL = Plan("full", 5, 1_000, 200, 20.0, 10_000, 11)


class ClientFailed(Exception):
    """A client did not do its work; the text has what it said."""


@dataclass(slots=True)
class Compared(Cell):
    """A cell whose aims are shares of what Kafka reaches in the same run, by key of a figure."""

    shares: dict[str, float] = field(default_factory=dict)

    def share(self, figure: Figure) -> float:
        ours, theirs = self.medians(figure)
        return ours / theirs

    def is_reached(self, figure: Figure) -> bool | None:
        wanted = self.shares.get(figure.key)
        if wanted is None:
            return None
        return self.share(figure) >= wanted if figure.more_is_better else self.share(figure) <= wanted


# Clients.


def own_client(work: str, **arguments: Any) -> Result:
    """One work of `records_client.py`, in a process of its own."""
    command = [sys.executable, "-m", "bench.records_client", work, json.dumps(arguments)]
    result: Result = json.loads(output_of(command).splitlines()[-1])
    if result["failed"]:
        raise ClientFailed(f"{work} {arguments}: {result['failed'][0]}")
    return result


def output_of(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise ClientFailed(
            f"{' '.join(command)[-300:]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def perf_tool(release: Kafka, name: str, *arguments: str) -> str:
    """Kafka's own, in the JVM that its script gives it."""
    flags = ("-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    return output_of(
        [str(release.java), *flags, "-cp", f"{release.libs}/*", f"org.apache.kafka.tools.{name}", *arguments]
    )


SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\).* 99th", re.MULTILINE)
MEBI = (1 << 20) / 1e6


def produced_by_java(release: Kafka, server: Process, topic: str, records: int, batch_bytes: int) -> Result:
    said = perf_tool(
        release, "ProducerPerformance", "--bootstrap-server", server.bootstrap, "--topic", topic,
        "--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1",
        "--command-property", f"batch.size={batch_bytes}",
    )  # fmt: skip
    sent = SENT.findall(said)
    if not sent or int(sent[-1][0]) != records:
        raise ClientFailed(f"ProducerPerformance against {server.name} said:\n{said[-1000:]}")
    return {"mb_s": float(sent[-1][2]) * MEBI, "records_s": float(sent[-1][1])}


def consumed_by_java(release: Kafka, server: Process, topic: str, records: int) -> Result:
    """`fetch.*` of what the tool prints: joining its group is not in it."""
    said = perf_tool(
        release, "ConsumerPerformance", "--bootstrap-server", server.bootstrap, "--topic", topic,
        "--num-records", str(records), "--hide-header", "--timeout", "30000",
    )  # fmt: skip
    figures = said.strip().splitlines()[-1].split(", ") if said.strip() else []
    if len(figures) < 10 or int(figures[4]) < records:
        raise ClientFailed(f"ConsumerPerformance against {server.name} said:\n{said[-1000:]}")
    return {"mb_s": float(figures[8]) * MEBI, "records_s": float(figures[9])}


# What a piece of work costs.


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def _machine_cpu_s() -> float:
    user, nice, system, _idle, _wait, irq, soft = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8])
    return (user + nice + system + irq + soft) / TICKS


def measured(server: Process, work: Callable[[], Result], megabytes: float = 0.0) -> Result:
    """The result of a work, with the server's CPU and what else the machine did meanwhile."""
    begun, children, machine, ours = time.perf_counter(), os.times(), _machine_cpu_s(), cpu_s(server.pid)
    result = work()
    seconds, after = time.perf_counter() - begun, os.times()
    server_cpu_s = cpu_s(server.pid) - ours
    clients = sum(after[:4]) - sum(children[:4])
    result["server_cpu_s"] = server_cpu_s
    result["other_cores"] = max(_machine_cpu_s() - machine - server_cpu_s - clients, 0.0) / seconds
    if megabytes:
        result["cpu_ms_per_mb"] = server_cpu_s * 1000 / megabytes
    return result


# Topics.


class Topics:
    """Made and deleted on one server; every round has one of its own, or the disk would fill."""

    def __init__(self, server: Process) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})  # servers end before it
        self._made = 0

    def make(self, partitions: int = 1, **configs: str) -> str:
        from confluent_kafka.admin import NewTopic

        self._made += 1
        name = f"bench-{self._made}"
        self._admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(30)
        return name

    @contextlib.contextmanager
    def made(self, partitions: int = 1, **configs: str) -> Iterator[str]:
        name = self.make(partitions, **configs)
        yield name
        self._admin.delete_topics([name])[name].result(30)


class Side:
    """One of the servers, with its topics, and where its results go."""

    def __init__(self, server: Process, results: Callable[[Cell], list[Result]]) -> None:
        self.server = server
        self.topics = Topics(server)
        self._results = results

    def keep(self, megabytes: float, cell: Cell, work: Callable[[], Result]) -> None:
        result = measured(self.server, work, megabytes)
        self._results(cell).append(result)
        told = ", ".join(f"{result[figure.key]:,.1f} {figure.unit}" for figure in cell.figures)
        print(f"  {self.server.name}, {cell.work}: {told}", file=sys.stderr, flush=True)


# Stages.


BATCHES = {"16 KB": 16_384, "256 KB": 262_144}


def produce_and_consume(sides: Sequence[Side], plan: Plan, release: Kafka) -> Iterator[Cell]:
    """A round: every producer fills a topic on one server and then on the other; consumers read the last one."""
    records = plan.megabytes * 1_000_000 // RECORD_BYTES
    shares = {"mb_s": 0.5}
    writes = {name: _cell(f"produce, Java, batches of {name}", shares) for name in BATCHES}
    by_confluent = _cell("produce, confluent-kafka", shares)
    reads = {name: _cell(f"consume, {name}", {"mb_s": 0.8}) for name in ("Java", "confluent-kafka")}

    def one_round(side: Side, keep: Callable[[Cell, Callable[[], Result]], None]) -> None:
        server = side.server
        for name, cell in writes.items():
            with side.topics.made() as topic:
                keep(cell, partial(produced_by_java, release, server, topic, records, BATCHES[name]))
        with side.topics.made() as topic:
            what = _what(server, topic, records)
            keep(by_confluent, partial(own_client, "produce", **what))
            keep(reads["Java"], partial(consumed_by_java, release, server, topic, records))
            keep(reads["confluent-kafka"], partial(own_client, "consume", **what))

    for side in sides:  # the JIT, and what muster loads when the first large batch comes
        one_round(side, lambda _cell, work: work() and None)
    for _ in range(plan.rounds):
        for side in sides:
            one_round(side, partial(side.keep, plan.megabytes))
    yield from (*writes.values(), by_confluent, *reads.values())


def _what(server: Process, topic: str, records: int) -> dict[str, Any]:
    return {"bootstrap": server.bootstrap, "topic": topic, "records": records, "size": RECORD_BYTES}


def _cell(work: str, shares: dict[str, float]) -> Compared:
    return Compared(work, (MB_S, RECORDS_S, CPU_MS), shares=shares)


def with_fsync(sides: Sequence[Side], plan: Plan, release: Kafka) -> Iterator[Cell]:
    records = plan.fsync_megabytes * 1_000_000 // RECORD_BYTES
    cell = _cell("produce, Java, batches of 256 KB, fsync", {"mb_s": 0.5})
    for number in range(plan.rounds + 1):
        for side in sides:
            configs = {"flush.messages": "1"} if isinstance(side.server, KafkaNode) else {}
            with side.topics.made(**configs) as topic:
                work = partial(produced_by_java, release, side.server, topic, records, BATCHES["256 KB"])
                if number == 0:
                    work()  # warms up
                else:
                    side.keep(plan.fsync_megabytes, cell, work)
    yield cell


def latencies(sides: Sequence[Side], plan: Plan) -> Iterator[Cell]:
    cell = Compared(f"end to end at {RATE:,} records/s", (P50, P99), shares={"p50_us": 1.0, "p99_us": 1.0})
    for _ in range(plan.rounds):
        for side in sides:
            with side.topics.made() as topic:
                how = {"rate": RATE, "seconds": plan.latency_s, "warmup": 2.0, "size": RECORD_BYTES}
                side.keep(0, cell, partial(own_client, "latency", bootstrap=side.server.bootstrap, topic=topic, **how))
    yield cell


class Memory(NamedTuple):
    megabytes: int
    idle_mb: float
    settled_mb: float
    peak_mb: float
    disk_mb: float
    """The largest the log was."""

    @property
    def is_flat(self) -> bool:
        return self.peak_mb - self.settled_mb <= GROWTH_ALLOWED_MB

    def told(self) -> str:
        verdict = "flat" if self.is_flat else f"NOT FLAT, {GROWTH_ALLOWED_MB:.0f} MB are allowed"
        return (
            f"memory while {self.megabytes / 1000:.0f} GB pass: {self.idle_mb:.0f} MB idle, {self.settled_mb:.0f} MB "
            f"after {SETTLED_MB} MB, at most {self.peak_mb:.0f} MB from there on: "
            f"{self.peak_mb - self.settled_mb:+.0f} MB, {verdict}; the log had {self.disk_mb:.0f} MB at most"
        )


def memory(folder: Path, plan: Plan) -> Memory:
    """Records in, records out, and retention behind them."""
    server = Muster(folder / "passing", {"muster.flush": "os", "log.retention.check.interval.ms": "1000"})
    with ending(server):
        server.start()
        server.wait_until_ready()
        topic = Topics(server).make(**SMALL_LOG)
        idle = rss_mb(server.pid)
        what = _what(server, topic, SETTLED_MB * 1_000_000 // RECORD_BYTES)
        own_client("through", **what)
        settled = peak = rss_mb(server.pid)
        disk = 0.0
        what["records"] = plan.through_megabytes * 1_000_000 // RECORD_BYTES
        command = [sys.executable, "-m", "bench.records_client", "through", json.dumps(what)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            while client.poll() is None:
                peak = max(peak, rss_mb(server.pid))
                disk = max(disk, _log_mb(server.data_dir / f"{topic}-0"))
                time.sleep(0.2)
            said = client.stdout.read()
        if client.returncode != 0 or json.loads(said)["failed"]:
            raise ClientFailed(f"the client that lets records pass ended with {client.returncode}: {said[-500:]}")
        server.stop()
    return Memory(plan.through_megabytes, idle, settled, peak, disk)


def _log_mb(folder: Path) -> float:
    total = 0
    for path in folder.glob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # retention was quicker
            continue
    return total / 1e6


class FirstRecord(NamedTuple):
    client: str
    fresh_ms: float
    next_ms: float


def first_records(plan: Plan) -> Iterator[FirstRecord]:
    for client in CLIENTS:
        took = [own_client("first_record", client=client, brokers=plan.brokers)["took_ms"] for _ in range(plan.rounds)]
        fresh, following = [each[0] for each in took], [one for each in took for one in each[1:]]
        yield FirstRecord(client, statistics.median(fresh), statistics.median(following))


# The run.


def beside_kafka(folder: Path, plan: Plan, stages: frozenset[str], release: Kafka) -> Iterator[Cell]:
    kafka = KafkaNode(folder / "kafka", release)
    cached = Muster(folder / "cached", {"muster.flush": "os"})
    durable = Muster(folder / "durable", {"muster.flush": "always"})
    with ending(cached, durable, kafka):
        for server in (cached, durable, kafka):
            server.start()
            server.wait_until_ready()
        theirs = Side(kafka, lambda cell: cell.kafka)
        ours, safe = (Side(one, lambda cell: cell.muster) for one in (cached, durable))
        if "produce" in stages:
            yield from produce_and_consume((ours, theirs), plan, release)
        if "fsync" in stages:
            yield from with_fsync((safe, theirs), plan, release)
        if "latency" in stages:
            yield from latencies((ours, theirs), plan)


def print_all(cells: Sequence[Compared], passed: Memory | None, first: Sequence[FirstRecord], run: Result) -> None:
    console = Console(width=150 if not sys.stdout.isatty() else None)
    console.print(
        f"records: muster beside Kafka {run['kafka']}, {run['cores']} cores, {run['plan']['name']}, "
        f"{run['minutes']:.1f} min, load average before {run['load_before']:.1f}"
    )
    if cells:
        console.print(compared_table(cells))
    if passed is not None:
        console.print(passed.told())
    for one in first:
        console.print(
            f"with Broker() to the first record, {one.client}: {one.fresh_ms:.0f} ms in a fresh process (aim "
            f"≤ {FIRST_MS:.0f}), {one.next_ms:.0f} ms for the next (aim ≤ {NEXT_MS:.0f})"
        )
    busiest = max((cell.other_cores or 0.0 for cell in cells), default=0.0)
    if busiest > QUIET_CORES:
        console.print(f"The machine was busy: other work up to {busiest:.1f} cores. Repeat it on a quiet one.")


def compared_table(cells: Sequence[Compared]) -> Table:
    table = Table()
    table.add_column("work")
    for heading in ("muster", "Kafka", "of Kafka's", "aim", "reached", "other cores"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        for number, figure in enumerate(cell.figures):
            ours, theirs = cell.medians(figure)
            wanted = cell.shares.get(figure.key)
            sign = "≥" if figure.more_is_better else "≤"
            table.add_row(
                cell.work if number == 0 else "",
                f"{ours:,.{_digits(ours)}f} {figure.unit}",
                f"{theirs:,.{_digits(theirs)}f} {figure.unit}",
                f"{cell.share(figure):.0%}",
                "" if wanted is None else f"{sign} {wanted:.0%}",
                {True: "yes", False: "no", None: ""}[cell.is_reached(figure)],
                f"{cell.other_cores or 0.0:.1f}" if number == 0 else "",
            )
    return table


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


def main(words: Sequence[str] = ()) -> int:
    """0 when everything could be measured and memory stayed flat."""
    stages = frozenset(words or ALL_STAGES)
    if unknown := stages - set(ALL_STAGES):
        print(f"no stage called {', '.join(sorted(unknown))}; there are {', '.join(ALL_STAGES)}", file=sys.stderr)
        return 2
    plan = FULL if os.environ.get("BENCH") == "full" else QUICK
    begun, load_before = time.monotonic(), os.getloadavg()[0]
    try:
        release = resolve()
    except KafkaUnavailable as missing:
        print(f"Records beside Kafka were not measured: {missing}")
        return 1
    cells: list[Any] = []
    first: list[FirstRecord] = []
    passed, problem = None, ""
    with scratch(CACHE / "records", "run") as folder:
        try:
            if stages & {"produce", "fsync", "latency"}:
                for cell in beside_kafka(folder, plan, stages, release):
                    cells.append(cell)  # one by one: what was measured before a failure is told  # noqa: PERF402
            if "memory" in stages:
                passed = memory(folder, plan)
            if "first" in stages:
                first.extend(first_records(plan))
        except (ClientFailed, ServerFailed, subprocess.TimeoutExpired) as failure:
            problem = f"The rest was not measured: {failure}"
    run: Result = {
        "plan": plan._asdict(), "kafka": release.version, "python": platform.python_version(),
        "cores": os.cpu_count(), "load_before": load_before, "minutes": (time.monotonic() - begun) / 60,
        "problem": problem,
    }  # fmt: skip
    print_all(cells, passed, first, run)
    print(problem)
    found = run | {
        "cells": [cell.as_json() for cell in cells],
        "memory": None if passed is None else passed._asdict(),
        "first": [one._asdict() for one in first],
    }
    (CACHE / "records.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if problem or (passed is not None and not passed.is_flat) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
