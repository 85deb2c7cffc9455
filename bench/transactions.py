"""Transactions beside a real Kafka, in one run: `python -m bench transactions`, `BENCH=full` for longer rounds.

A transaction is ten records of 100 bytes over three partitions; the next begins when it is committed. The commit is
measured from the moment the records are acknowledged. Rounds alternate, muster Kafka muster Kafka, with the other
server up and idle. *Page cache* is Kafka's default and `muster.flush=os`; `muster.flush=always`, where every step of a
transaction is on the disk before the next, has rows of its own beside the same Kafka.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from tests.kit.java.compiled import compiled
from tests.kit.kafka import Kafka, KafkaUnavailable, resolve

from bench.coordinator_cells import P50, P99, RATE, Cell, Result
from bench.coordinator_report import QUIET_CORES
from bench.coordinator_servers import KafkaNode, Muster, Process, ServerFailed, ending, scratch
from bench.dump import CACHE
from bench.records import ClientFailed, Compared, Side, compared_table, output_of

RECORDS, SIZE, PARTITIONS = 10, 100, 3
FOLDER = Path(__file__).parent
CLIENTS = ("confluent-kafka", "Java")


class Plan(NamedTuple):
    name: str
    rounds: int
    warmup_s: float
    seconds: float


QUICK = Plan("quick", 3, 3.0, 5.0)
FULL = Plan("full", 5, 5.0, 20.0)


def by_confluent(server: Process, topic: str, plan: Plan) -> Result:
    about = {
        "bootstrap": server.bootstrap, "topic": topic, "records": RECORDS, "size": SIZE, "partitions": PARTITIONS,
        "warmup_s": plan.warmup_s, "seconds": plan.seconds,
    }  # fmt: skip
    return _result([sys.executable, "-m", "bench.transactions_client", json.dumps(about)])


def by_java(release: Kafka, classes: Path, server: Process, topic: str, plan: Plan) -> Result:
    path = f"{release.libs}/*:{classes}"
    flags = ("-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    numbers = [str(each) for each in (RECORDS, SIZE, PARTITIONS, plan.warmup_s, plan.seconds)]
    return _result([str(release.java), *flags, "-cp", path, "Transactions", server.bootstrap, topic, *numbers])


def _result(command: Sequence[str]) -> Result:
    result: Result = json.loads(output_of(command).splitlines()[-1])
    if result["failed"]:
        raise ClientFailed(f"{' '.join(command)[-300:]}: {result['failed'][0]}")
    return result


def beside_kafka(folder: Path, plan: Plan, release: Kafka) -> Iterator[Cell]:
    java = partial(by_java, release, compiled(release, "Transactions", FOLDER))
    works: dict[str, Callable[[Process, str, Plan], Result]] = dict(zip(CLIENTS, (by_confluent, java), strict=True))
    kafka = KafkaNode(folder / "kafka", release)
    cached = Muster(folder / "cached", {"muster.flush": "os"})
    durable = Muster(folder / "durable", {"muster.flush": "always"})
    with ending(cached, durable, kafka):
        for server in (cached, durable, kafka):
            server.start()
            server.wait_until_ready()
        theirs = Side(kafka, lambda cell: cell.kafka)
        for ours, how in ((cached, "page cache"), (durable, "muster.flush=always")):
            for client, work in works.items():
                cell = Compared(f"transactions, {client}, {how}", (RATE, P50, P99))
                for _ in range(plan.rounds):
                    for side in (Side(ours, lambda cell: cell.muster), theirs):
                        with side.topics.made(partitions=PARTITIONS) as topic:
                            side.keep(0, cell, partial(work, side.server, topic, plan))
                yield cell


def main() -> int:
    """0 when everything could be measured."""
    plan = FULL if os.environ.get("BENCH") == "full" else QUICK
    begun, load_before = time.monotonic(), os.getloadavg()[0]
    try:
        release = resolve()
    except KafkaUnavailable as missing:
        print(f"Transactions beside Kafka were not measured: {missing}")
        return 1
    cells: list[Compared] = []
    problem = ""
    with scratch(CACHE / "transactions", "run") as folder:
        try:
            for cell in beside_kafka(folder, plan, release):
                cells.append(cell)  # type: ignore[arg-type]  # noqa: PERF402
        except (ClientFailed, ServerFailed, subprocess.TimeoutExpired) as failure:
            problem = f"The rest was not measured: {failure}"
    run: Result = {
        "plan": plan._asdict(), "kafka": release.version, "python": platform.python_version(),
        "cores": os.cpu_count(), "load_before": load_before, "minutes": (time.monotonic() - begun) / 60,
        "problem": problem,
    }  # fmt: skip
    _print(cells, run)
    print(problem)
    found = run | {"cells": [cell.as_json() for cell in cells]}
    (CACHE / "transactions.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if problem else 0


def _print(cells: Sequence[Compared], run: Result) -> None:
    console = Console(width=150 if not sys.stdout.isatty() else None)
    console.print(
        f"transactions: muster beside Kafka {run['kafka']}, {run['cores']} cores, {run['plan']['name']}, "
        f"{run['minutes']:.1f} min, load average before {run['load_before']:.1f}"
    )
    if cells:
        console.print(compared_table(cells))
    busiest = max((cell.other_cores or 0.0 for cell in cells), default=0.0)
    if busiest > QUIET_CORES:
        console.print(f"The machine was busy: other work up to {busiest:.1f} cores. Repeat it on a quiet one.")


if __name__ == "__main__":
    sys.exit(main())
