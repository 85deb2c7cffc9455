"""Both faces of muster in one terminal: `make demo`.

A coordinator with three kinds of clients that come, go, are killed and come back; the pipeline over its log while it
runs, twice; and the pipeline over a log that a real Kafka 4.3.0 left behind. Ends with 0 only if the tables are what
an admin client is told by the running server, and what the real broker's Admin API said just before it stopped.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from demo_tables import (
    Disagreement,
    Story,
    Told,
    check_bundled,
    check_causes,
    check_moment,
    check_now,
    committed,
    console,
    heading,
    rows,
    show_lag,
    show_moment,
    show_rebalances,
    tick,
)
from rich.markup import escape

from muster.broker import Broker
from muster.errors import MusterError
from muster.pipeline.engine import SparkEngine
from muster.pipeline.job import Request, Summary, run
from muster.pipeline.spark.session import spark_session
from muster.tables.reading import open_tables

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "corpus" / "k43-all"
ARCHIVE = CORPUS / "k43-all.tar.zst"
GROUP, TOPIC, PARTITIONS = "tills", "orders", 6
PATIENCE_S = 90.0

began = time.monotonic()


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind then either
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-demo-")))
        spark = Spark(folder)
        stack.callback(spark.stop)
        broker = stack.enter_context(
            Broker(data=folder / "muster-data", settings={"group.initial.rebalance.delay.ms": 1500})
        )
        group = Group(broker, folder)
        stack.callback(group.end)
        try:
            show(story(group, spark, folder), spark, folder)
        except (Disagreement, MusterError) as problem:
            console.print(f"\n[red]✗[/] {escape(str(problem))}", soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


@dataclass(slots=True)
class Group:
    """The consumers, each a process, and an admin client that asks the server about them."""

    broker: Broker
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    def start(self, client: str, instance: str | None = None) -> None:
        command = [sys.executable, str(Path(__file__).with_name("demo_member.py")), client]
        command += [self.broker.bootstrap_servers, GROUP, TOPIC, *([instance] if instance else [])]
        with (self.folder / f"{client}.log").open("ab") as log:
            self.processes[client] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *clients: str) -> None:
        for client in clients:
            self.processes[client].kill()
        for client in clients:
            self.processes.pop(client).wait()

    def hold_still(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self) -> Told:
        described = self.admin.describe_consumer_groups([GROUP])[GROUP].result()
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
        offsets = asked[GROUP].result().topic_partitions
        return Told(
            described.state.name.title(),
            described.partition_assignor,
            {(each.topic, each.partition): each.offset for each in offsets},
            {
                each.member_id: (
                    each.group_instance_id or None,
                    each.client_id,
                    each.host,
                    tuple(sorted((one.topic, one.partition) for one in each.assignment.topic_partitions)),
                )
                for each in described.members
            },
        )

    def until(self, what: str, is_so: Callable[[Told], bool]) -> Told:
        """Ask until it is so: what the processes do takes as long as the machine makes it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(told := self.ask()):
            ended = [client for client, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"{ended[0]} has ended" if ended else f"not within {PATIENCE_S:.0f} s"
                logs = {log.name: log.read_text(errors="replace")[-300:] for log in self.folder.glob("*.log")}
                raise Disagreement(f"{what}: {why}. The server says {told}, the consumers said {logs}.")
            time.sleep(0.2)
        return told

    def until_there(self, members: int) -> Told:
        return self.until(
            f"{members} members of the group",
            lambda told: told.state == "Stable" and len(told.members) == members and len(told.committed) == PARTITIONS,
        )


class Spark:
    """Spark starts, and reads the bundled log, while the consumers are at work."""

    def __init__(self, folder: Path) -> None:
        self.tables = folder / "kafka-tables"
        self._pool = ThreadPoolExecutor(1)
        self._session: Future[Any] = self._pool.submit(spark_session)
        self._bundled = self._pool.submit(self.run, ARCHIVE, self.tables)

    def run(self, source: Path, tables: Path) -> Summary:
        return run(SparkEngine(self._session.result()), Request([str(source)], str(tables)))

    def bundled(self) -> Summary:
        return self._bundled.result()

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._session.done() and not self._session.cancelled() and self._session.exception() is None:
            self._session.result().stop()


def story(group: Group, spark: Spark, folder: Path) -> Story:
    data, tables = folder / "muster-data", folder / "tables"
    group.broker.create_topic(TOPIC, PARTITIONS)
    heading("muster serve --data muster-data", "Kafka's clients come and go; the group's log is kept in Kafka's files.")
    group.start("confluent-kafka", "till-1")
    group.start("aiokafka", "till-2")
    group.until_there(2)
    say("till-1 (confluent-kafka) and till-2 (aiokafka) have joined as static members, and commit")
    time.sleep(2)
    group.start("kafka-python")
    group.until_there(3)
    say("a kafka-python consumer has joined without a name of its own")
    time.sleep(2)
    say_run("the pipeline has read the log for the first time", spark.run(data, tables))
    time.sleep(2)
    asked_ms, before_kill, kill_ms = now_ms(), group.ask(), now_ms()
    group.kill("confluent-kafka", "aiokafka")
    say("[red]kill -9[/] of till-1 and till-2")
    time.sleep(1)
    group.start("confluent-kafka", "till-1")
    group.start("aiokafka", "till-2")
    group.until("two static members back", lambda told: told.state == "Stable" and returned(before_kill, told))
    say("both are back under new member ids; nothing stopped for it")
    time.sleep(2)
    group.kill("kafka-python")
    say("[red]kill -9[/] of the kafka-python consumer")
    group.until_there(2)
    say("its session has run out, and the two others have its partitions")
    time.sleep(2)
    group.start("kafka-python")
    group.until_there(3)
    time.sleep(2)
    say("it is back, as a new member; now all hold still")
    group.hold_still()
    return Story(asked_ms, before_kill, kill_ms, settled(group, lambda: spark.run(data, tables)))


def returned(before: Told, now: Told) -> bool:
    ids = [{one[0]: member for member, one in told.members.items()} for told in (before, now)]
    return all(ids[1].get(name) not in (None, ids[0][name]) for name in ("till-1", "till-2"))


def settled(group: Group, read: Callable[[], Summary]) -> Told:
    """Run the pipeline while the server's answer stays the same: before it, and after it."""
    deadline = time.monotonic() + PATIENCE_S
    records = 0
    while True:
        told = group.until_there(3)
        time.sleep(1)
        if group.ask() == told:
            summary = read()
            records += summary.records
            if group.ask() == told:
                summary.records = records
                say_run("the pipeline has read on from where it was", summary)
                return told
        if time.monotonic() > deadline:
            raise Disagreement("the consumers were told to hold still, and the group keeps changing.")


def show(told: Story, spark: Spark, folder: Path) -> None:
    bundled = spark.bundled()
    heading(
        f"muster pipeline run --source {ARCHIVE.relative_to(ROOT)} --out kafka-tables",
        "A log that a real Kafka 4.3.0 left behind; read while the consumers were at work.",
    )
    kept = {**bundled.new_rows, **bundled.rows}
    counts = ", ".join(f"{kept[name]:,} {name}" for name in ("commits", "offsets", "groups", "members"))
    console.print(f"  {bundled.records:,} records: {counts}")
    with open_tables(spark.tables) as tables:
        show_lag(rows(tables, "lag"))
        offsets, groups, members = (rows(tables, name) for name in ("offsets", "groups", "members"))
        answered = check_bundled(CORPUS / "expected" / "groups.json", offsets, groups, members)
    with open_tables(folder / "tables") as tables:
        rebalances = rows(tables, "rebalances")
        now = {name: rows(tables, name) for name in ("offsets", "members", "groups")}
        earlier = committed(rows(tables, "offsets", told.asked_ms - 1))
        then = {name: rows(tables, name, told.kill_ms) for name in ("offsets", "members", "groups")}
    show_rebalances(rebalances)
    show_moment(told, then, now)
    console.print()
    check_now(told.in_the_end, now)
    check_moment(told, earlier, then)
    check_causes(rebalances)
    tick(answered)
    console.print()


def say(line: str) -> None:
    console.print(f"  [dim]{time.monotonic() - began:5.1f} s[/]  {line}")


def say_run(what: str, summary: Summary) -> None:
    say(f"[cyan]{what}[/]: {summary.records:,} new records, in {summary.seconds:.1f} s")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
