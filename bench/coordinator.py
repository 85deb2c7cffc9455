"""The coordinator beside a real Kafka, in one run: `python -m bench coordinator`, `BENCH=full` for every cell.

Words behind it pick stages: `python -m bench coordinator start restart`.

Both servers keep 50 partitions of the offsets topic on the same disk, and everything else at its default but the wait
of a new group for more members. Repetitions alternate, A B A B A B; the one that is not measured is up and idle. The
same durability on both sides: *page cache* is Kafka's default and `muster.flush=os`; *fsync* is muster's default, and
`flush.messages=1` on Kafka's offsets topic. The JVM is warmed up before its first number.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kit.kafka import Kafka, KafkaUnavailable, resolve

from bench import coordinator_tool
from bench.coordinator_cells import (
    ALONE,
    BUSY,
    Cell,
    Result,
    Shape,
    idle_cells,
    load_cell,
    rebalance_cell,
    restart_cell,
    shown,
    start_cell,
    unreached,
)
from bench.coordinator_report import print_cells
from bench.coordinator_servers import (
    KafkaNode,
    Muster,
    Process,
    ServerFailed,
    allow_open_files,
    ending,
    rss_mb,
    scratch,
)
from bench.coordinator_tool import ToolFailed, ToolUnavailable
from bench.dump import CACHE

PAGE_CACHE = {"muster.flush": "os"}
ON_DISK = {"muster.flush": "always"}
GROUPS, PARTITIONS = 10_000, 100  # a million distinct offsets
IDLE_CONNS = 5_000
SPARE_FILES = 1_000
ALL_STAGES = ("start", "load", "rebalance", "idle", "fsync", "restart")
Stages = frozenset[str]


class Plan(NamedTuple):
    """How much of it, and how long."""

    name: str
    repetitions: int
    seconds: float
    warmup: float
    jvm_warmup_s: float
    shapes: tuple[Shape, ...]
    rounds: int  # times each of the million offsets is committed before a restart
    slow_repetitions: int  # of what takes Kafka half a minute


QUICK = Plan("quick", 3, 1.0, 0.3, 16, (ALONE, BUSY, Shape(64, 1)), 1, 1)
FULL = Plan("full", 3, 4.0, 1.0, 25, tuple(Shape(conns, depth) for conns in (1, 16, 64) for depth in (1, 32)), 6, 3)


class Pair(NamedTuple):
    """The two servers of one cell."""

    muster: Process
    kafka: Process

    def alternate(self, cell: Cell, repetitions: int, work: Callable[[Process], Result]) -> None:
        """A B A B A B."""
        for _ in range(repetitions):
            cell.muster.append(work(self.muster))
            cell.kafka.append(work(self.kafka))


def measured(server: Process, name: str, **flags: object) -> Result:
    """One repetition of the generator against one server."""
    return coordinator_tool.run(name, bootstrap=server.bootstrap, server_pid=server.pid, repeat=1, **flags)[-1]


# Starting.


def started(server: Process, **flags: object) -> Result:
    """Start it, and time from there what the generator's `restart` times."""
    at_ns = time.time_ns()
    server.start()
    return measured(server, "restart", started_unix_ns=at_ns, **flags)


def starts(pair: Pair, plan: Plan) -> Iterator[Cell]:
    """One server at a time: nothing else is running."""

    def start_and_stop(server: Process) -> Result:
        result = started(server, groups=0)
        server.wait_until_ready()
        time.sleep(1)
        result["rss_mb"] = rss_mb(server.pid)
        server.stop()
        return result

    cell = start_cell()
    pair.alternate(cell, plan.repetitions, start_and_stop)
    yield cell


# Load.


def warm_up(server: Process, seconds: float) -> None:
    """Until the JIT has seen every request that will be measured."""
    for api, share in (("commit", 0.5), ("heartbeat", 0.25), ("fetch", 0.25)):
        measured(server, api, conns=BUSY.conns, depth=BUSY.depth, seconds=0.1, warmup=seconds * share)


def loads(pair: Pair, plan: Plan, api: str, durability: str, fdatasync_us: float) -> Iterator[Cell]:
    for shape in plan.shapes:
        cell = load_cell(api, shape, durability, fdatasync_us)
        pair.alternate(
            cell,
            plan.repetitions,
            lambda server, shape=shape: measured(  # type: ignore[misc]
                server, api, conns=shape.conns, depth=shape.depth, seconds=plan.seconds, warmup=plan.warmup
            ),
        )
        yield cell


def rebalances(pair: Pair, plan: Plan) -> Iterator[Cell]:
    for members in (10, 100, 1_000):
        cell = rebalance_cell(members)
        pair.alternate(cell, plan.repetitions, lambda server, members=members: joins(server, members))  # type: ignore[misc]
        yield cell


def joins(server: Process, members: int) -> Result:
    """A group made anew, and three newcomers one after another: the middle one."""
    results = coordinator_tool.run(
        "rebalance", bootstrap=server.bootstrap, server_pid=server.pid, members=members, repeat=3
    )
    return sorted(results, key=lambda result: result["join_ms"])[1]


def idle(pair: Pair, plan: Plan, conns: int) -> Iterator[Cell]:
    """Connections that say nothing, and what the one that works feels of them."""
    cells = idle_cells(conns)

    def hold(server: Process) -> tuple[Result, Result]:
        hold_s = plan.seconds + plan.warmup + 3
        command = coordinator_tool.command(
            "idle", bootstrap=server.bootstrap, server_pid=server.pid, conns=conns, hold=hold_s
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()  # they are open
            busy = measured(server, "commit", conns=1, depth=1, seconds=plan.seconds, warmup=plan.warmup)
            line = holder.stdout.readline()
        if holder.returncode != 0 or not line:
            raise ToolFailed(f"idle connections to {server.name} ended with {holder.returncode}")
        return json.loads(line), busy

    for _ in range(plan.slow_repetitions):
        for server, lists in ((pair.muster, [c.muster for c in cells]), (pair.kafka, [c.kafka for c in cells])):
            for results, result in zip(lists, hold(server), strict=True):
                results.append(result)
    yield from cells


# Restarting with a million offsets.


def restarts(pair: Pair, plan: Plan) -> Iterator[Cell]:
    what = {"groups": GROUPS, "partitions": PARTITIONS, "rounds": plan.rounds, "topic": "fill"}
    for server in pair:
        server.start()
        server.wait_until_ready()
        coordinator_tool.run("fill", bootstrap=server.bootstrap, conns=8, depth=16, **what)
    for how, end in (("a clean stop", Process.stop), ("kill -9", Process.kill)):
        cell = restart_cell(how, GROUPS * PARTITIONS, plan.rounds)

        def again(server: Process, end: Callable[[Process], None] = end) -> Result:
            end(server)
            return started(server, **what)

        pair.alternate(cell, plan.slow_repetitions, again)
        yield cell


# The run.


def fdatasync_p50_us(folder: Path, seconds: float = 1.0) -> float:
    """What the disk itself takes for a small append that is durable; the floor of a commit with fsync."""
    descriptor = os.open(folder / "fdatasync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    took, until = [], time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        os.write(descriptor, b"x" * 100)
        os.fdatasync(descriptor)
        took.append(time.perf_counter() - begun)
    os.close(descriptor)
    return statistics.median(took) * 1e6


def under_load(folder: Path, kafka: KafkaNode, plan: Plan, stages: Stages, fdatasync_us: float) -> Iterator[Cell]:
    """The stages that need both servers warm, in an order that lets one Kafka serve them all."""
    cached, durable = Muster(folder / "cached", PAGE_CACHE), Muster(folder / "durable", ON_DISK)
    pair = Pair(cached, kafka)
    with ending(cached, durable, kafka):
        for server in (cached, durable, kafka):
            server.start()
            server.wait_until_ready()
        for server, seconds in ((cached, 1.5), (durable, 1.5), (kafka, plan.jvm_warmup_s)):
            warm_up(server, seconds)
        if "load" in stages:
            yield from loads(pair, plan, "commit", "page cache", fdatasync_us)
            yield from loads(pair, plan, "heartbeat", "", fdatasync_us)
            yield from loads(pair, plan, "fetch", "", fdatasync_us)
        if "rebalance" in stages:
            yield from rebalances(pair, plan)
        if "idle" in stages:
            cached.stop()  # memory that a load left behind would hide what a connection takes
            cached.start()
            cached.wait_until_ready()
            yield from idle(pair, plan, allowed_conns())
        if "fsync" in stages:
            flush_every_message(kafka)
            yield from loads(Pair(durable, kafka), plan, "commit", "fsync", fdatasync_us)


def flush_every_message(kafka: KafkaNode) -> None:
    coordinator_tool.run(
        "topic-config", bootstrap=kafka.bootstrap, topic="__consumer_offsets", config="flush.messages=1"
    )


def allowed_conns() -> int:
    """5,000, or as many as the system lets one process have."""
    return min(IDLE_CONNS, allow_open_files(IDLE_CONNS + SPARE_FILES) - SPARE_FILES)


def measure(folder: Path, plan: Plan, stages: Stages, release: Kafka, fdatasync_us: float) -> Iterator[Cell]:
    """Every cell of the plan, each as soon as it is there."""
    kafka = KafkaNode(folder / "kafka", release)
    if "start" in stages:
        first = Muster(folder / "first", ON_DISK)
        with ending(first, kafka):
            yield from starts(Pair(first, kafka), plan)
    if stages & {"load", "rebalance", "idle", "fsync"}:
        yield from under_load(folder, kafka, plan, stages, fdatasync_us)
    if "restart" in stages:
        filled, kafka_filled = Muster(folder / "filled", PAGE_CACHE), KafkaNode(folder / "kafka-filled", release)
        with ending(filled, kafka_filled):
            yield from restarts(Pair(filled, kafka_filled), plan)


def shown_as_they_come(cells: Iterable[Cell], begun: float) -> Iterator[Cell]:
    for cell in cells:
        figure = cell.figures[0]
        ours, theirs = (shown(figure, value) for value in cell.medians(figure))
        minutes = (time.monotonic() - begun) / 60
        print(f"  {minutes:5.1f} min  {cell.work}: {ours} beside {theirs}", file=sys.stderr, flush=True)
        yield cell


def main(words: Sequence[str] = ()) -> int:
    """0 when everything could be measured, whatever came out; an aim that is missed is told, not punished.

    `words` choose among the stages; none means all.
    """
    stages = Stages(words or ALL_STAGES)
    if unknown := stages - set(ALL_STAGES):
        print(f"no stage called {', '.join(sorted(unknown))}; there are {', '.join(ALL_STAGES)}", file=sys.stderr)
        return 2
    plan = FULL if os.environ.get("BENCH") == "full" else QUICK
    allow_open_files(IDLE_CONNS + SPARE_FILES)
    begun, load_before = time.monotonic(), os.getloadavg()[0]
    cells: list[Cell] = []
    problem = ""
    try:
        coordinator_tool.tool()
        release = resolve()
    except (ToolUnavailable, KafkaUnavailable) as missing:
        print(f"The coordinator beside Kafka was not measured: {missing}")
        return 1
    with scratch(CACHE / "coordinator", "run") as folder:
        fdatasync_us = fdatasync_p50_us(folder)
        try:
            for cell in shown_as_they_come(measure(folder, plan, stages, release, fdatasync_us), begun):
                cells.append(cell)  # one by one: what was measured before a failure is told  # noqa: PERF402
        except (ToolFailed, ServerFailed) as failure:
            problem = f"The rest was not measured: {failure}"
    run = {
        "plan": plan._asdict(),
        "kafka": release.version,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "fdatasync_p50_us": fdatasync_us,
        "load_before": load_before,
        "minutes": (time.monotonic() - begun) / 60,
        "problem": problem,
    }
    if cells:
        print_cells(cells, run)
    print(problem)
    found = run | {"unreached": unreached(cells), "cells": [cell.as_json() for cell in cells]}
    (CACHE / "coordinator.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
