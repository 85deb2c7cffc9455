"""The whole of muster alive in one terminal: `make demo` (DURATION=60 is about how long the story takes, in seconds).

A muster broker; a producer; real consumers of three kinds that consume, commit, rebalance, are killed and come back,
run transactions, get stuck and rewind; the pipeline on Spark beside them, as it would follow any cluster. Then the
questions people ask, answered by the commands that answer them. Ends with 0 only if the tables are what an admin client
is told by the running server, and those of a bundled log what its real Kafka said just before it stopped.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from demo_member import INVOICES
from demo_tables import (
    Disagreement,
    Story,
    Told,
    check_bundled,
    check_causes,
    check_invoices,
    check_moment,
    check_now,
    check_verdicts,
    committed,
    console,
    heading,
    rows,
    tick,
    verdicts,
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
LEDGER, REPORTS, SEARCH = "ledger", "reports", "search"
PATIENCE_S = 120.0
USUAL_DURATION_S = 60.0
RECORDS_A_SECOND = 200
REPORT = Path("muster-demo-report.html")
TABLES = Path("muster-demo-tables")
INTERVAL_MS = 5_000
"""Of the plots: the usual five minutes are longer than all that happens here."""
EXIT_WARNINGS, EXIT_ERRORS = 10, 11
"""What `muster status` and `muster findings` exit with where something is not well, as here on purpose."""

began = time.monotonic()
pace = float(os.environ.get("DURATION", USUAL_DURATION_S)) / USUAL_DURATION_S


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind then either
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-demo-")))
            settings = {"group.initial.rebalance.delay.ms": 1500}
            broker = stack.enter_context(Broker(data=folder / "muster-data", settings=settings))
            forget_last_time()
            spark = Spark(folder, broker.bootstrap_servers)
            stack.callback(spark.stop)
            cast = Cast(broker, folder)
            stack.callback(cast.end)
            told = story(cast, spark)
            questions(told, spark.tables)
            check(told, cast, spark)
            tell_what_is_left()
            if stays():
                linger(serve_pages(spark.tables, folder, stack))
        except (Disagreement, MusterError) as problem:
            console.print(f"\n[red]✗[/] {escape(str(problem))}", soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            console.print("\n  stopping: the consumers, Spark, the broker …")
            code = 130
        else:
            code = 0
    if code:
        console.print(f"  stopped; of this run there is at most [bold]{TABLES}[/] left")
    return code


@dataclass(slots=True)
class Cast:
    """Who plays: a producer, consumers, each a process, and an admin client that asks the server about them."""

    broker: Broker
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    produced: int = 0
    admin: AdminClient = field(init=False)
    _is_producing: threading.Event = field(default_factory=threading.Event)
    _producer: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    def produce(self) -> None:
        self._is_producing.set()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._producer.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 20, "log_level": 0})
        while self._is_producing.is_set():
            for number in range(RECORDS_A_SECOND // 10):
                producer.produce(TOPIC, value=f"order {number}", partition=self.produced % PARTITIONS)
                self.produced += 1
            producer.poll(0)
            time.sleep(0.1)
        producer.flush(30)

    def stop_producing(self) -> None:
        self._is_producing.clear()
        if self._producer is not None:
            self._producer.join(30)

    def start(self, name: str, client: str, group: str, instance: str | None = None) -> None:
        command = [sys.executable, str(Path(__file__).with_name("demo_member.py")), client]
        command += [self.broker.bootstrap_servers, group, TOPIC, *([instance] if instance else [])]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, *names: str) -> None:
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes.pop(name).wait()

    def tell(self, order: signal.Signals, *names: str) -> None:
        for name in names:
            self.processes[name].send_signal(order)

    def end(self) -> None:
        self._is_producing.clear()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, group: str = GROUP) -> Told:
        described = self.admin.describe_consumer_groups([group])[group].result()
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = asked[group].result().topic_partitions
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

    def until(self, what: str, is_so: Callable[[Told], bool], group: str = GROUP) -> Told:
        """Ask until it is so: what the processes do takes as long as the machine makes it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(told := self.ask(group)):
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"{ended[0]} has ended" if ended else f"not within {PATIENCE_S:.0f} s"
                logs = {log.name: log.read_text(errors="replace")[-300:] for log in self.folder.glob("*.log")}
                raise Disagreement(f"{what}: {why}. The server says {told}, the consumers said {logs}.")
            time.sleep(0.2)
        return told

    def until_there(self, members: int, group: str = GROUP) -> Told:
        return self.until(
            f"{members} members of {group}",
            lambda told: told.state == "Stable" and len(told.members) == members and len(told.committed) == PARTITIONS,
            group,
        )

    def until_read(self, group: str) -> Told:
        """Everything that was produced is committed."""
        return self.until(
            f"{group} at the end of {TOPIC}", lambda told: sum(told.committed.values()) == self.produced, group
        )

    def invoices(self) -> list[str]:
        """Keys of the invoices that a reader of committed records gets."""
        settings = {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "demo-check", "log_level": 0}
        reader = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
        partitions = reader.list_topics(INVOICES).topics[INVOICES].partitions
        ends = {each: reader.get_watermark_offsets(TopicPartition(INVOICES, each))[1] for each in partitions}
        reader.assign([TopicPartition(INVOICES, each, 0) for each in ends])
        keys: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while any(at.offset < ends[at.partition] for at in reader.position(reader.assignment())):
            keys += [one.key().decode() for one in reader.consume(5000, 0.5) if one.error() is None]
            if time.monotonic() > deadline:
                raise Disagreement(f"only {len(keys)} invoices could be read.")
        reader.close()
        return keys


class Spark:
    """Spark starts, and reads the bundled log, while the consumers are at work; then it follows the broker."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.bundled_tables, self.tables = folder / "kafka-tables", TABLES
        self._source = f"kafka://{servers}"
        self._pool = ThreadPoolExecutor(1)
        self._session: Future[Any] = self._pool.submit(spark_session)
        self._bundled = self._pool.submit(self._run, str(ARCHIVE), self.bundled_tables)

    def look(self) -> Summary:
        """Bring the tables up to what the broker has now."""
        return self._pool.submit(self._run, self._source, self.tables).result()

    def _run(self, source: str, tables: Path) -> Summary:
        return run(SparkEngine(self._session.result()), Request([source], str(tables), interval_ms=INTERVAL_MS))

    def bundled(self) -> Summary:
        return self._bundled.result()

    def until(self, what: str, is_so: Callable[[], bool]) -> Summary:
        """Look until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        summary = self.look()
        while not is_so():
            if time.monotonic() > deadline:
                raise Disagreement(f"{what}: not within {PATIENCE_S:.0f} s. The tables say {verdicts(self.tables)}.")
            time.sleep(1)
            summary = self.look()
        return summary

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._session.done() and not self._session.cancelled() and self._session.exception() is None:
            self._session.result().stop()


def story(cast: Cast, spark: Spark) -> Story:
    cast.broker.create_topic(TOPIC, PARTITIONS)
    cast.broker.create_topic(INVOICES, 2)
    heading(
        "muster serve", "A broker for groups, records and transactions, in this process; clients that know Kafka only."
    )
    cast.produce()
    say(f"a producer writes {RECORDS_A_SECOND} orders a second")
    cast.start("till-1", "confluent-kafka", GROUP, "till-1")
    cast.start("till-2", "aiokafka", GROUP, "till-2")
    cast.start("ledger", "transactions", LEDGER)
    cast.start("reports", "kafka-python", REPORTS)
    cast.start("search", "aiokafka", SEARCH)
    cast.until_there(2)
    say(f"[bold]{GROUP}[/]: till-1 (confluent-kafka) and till-2 (aiokafka) have joined as static members, and commit")
    for group in (LEDGER, REPORTS, SEARCH):
        cast.until_there(1, group)
    say(f"[bold]{LEDGER}[/] writes an invoice for each order, in transactions")
    say(f"[bold]{REPORTS}[/] (kafka-python) and [bold]{SEARCH}[/] (aiokafka) read along")
    pause(2)
    say_run("the pipeline has looked for the first time", spark.look())
    cast.start("till-3", "kafka-python", GROUP)
    cast.until_there(3)
    say(f"a kafka-python consumer has joined [bold]{GROUP}[/] without a name of its own")
    pause(2)
    say_run("the pipeline has looked again; it reads what is new", spark.look())
    pause(1)
    asked_ms, before_kill, kill_ms = now_ms(), cast.ask(), now_ms()
    cast.kill("till-1", "till-2", "ledger")
    say(f"[red]kill -9[/] of till-1, till-2 and the {LEDGER}, in the middle of a transaction")
    pause(1)
    cast.start("till-1", "confluent-kafka", GROUP, "till-1")
    cast.start("till-2", "aiokafka", GROUP, "till-2")
    cast.start("ledger", "transactions", LEDGER)
    cast.until("two static members back", lambda told: told.state == "Stable" and returned(before_kill, told))
    say("both tills are back under new member ids, without a rebalance: they are static members")
    cast.tell(signal.SIGUSR2, "reports")
    say(f"[bold]{REPORTS}[/] has met an order that it cannot process, and tries again and again")
    cast.kill("till-3")
    say("[red]kill -9[/] of the kafka-python consumer")
    cast.until_there(2)
    say("its session has run out, and the two others have its partitions")
    cast.until_there(1, LEDGER)
    cast.start("till-3", "kafka-python", GROUP)
    cast.until_there(3)
    say("it is back, as a new member: one more rebalance")
    pause(2)
    cast.tell(signal.SIGHUP, "search")
    say(f"[bold]{SEARCH}[/] was sent back to the first order")
    said = {REPORTS: "STALLED", SEARCH: "REWIND"}
    seen = spark.until("verdicts on those two", lambda: said.items() <= verdicts(spark.tables).items())
    say_run("the pipeline has seen both", seen)
    cast.stop_producing()
    for group in (GROUP, LEDGER):
        cast.until_read(group)
    cast.tell(signal.SIGUSR1, "till-1", "till-2", "till-3", "ledger")
    say(f"the producer has stopped after {cast.produced:,} orders; {GROUP} and {LEDGER} have read all, and hold still")
    return Story(asked_ms, before_kill, kill_ms, settled(cast, spark.look))


def returned(before: Told, now: Told) -> bool:
    ids = [{one[0]: member for member, one in told.members.items()} for told in (before, now)]
    return all(ids[1].get(name) not in (None, ids[0][name]) for name in ("till-1", "till-2"))


def settled(cast: Cast, look: Callable[[], Summary]) -> Told:
    """Run the pipeline while the server's answer stays the same: before it, and after it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        told = cast.until_there(3)
        if cast.ask() == told:
            summary = look()
            if cast.ask() == told:
                say_run("the pipeline has looked a last time", summary)
                return told
        if time.monotonic() > deadline:
            raise Disagreement("the consumers were told to hold still, and the group keeps changing.")


def questions(told: Story, tables: Path) -> None:
    """What people ask, and the commands that answer; each is run as it is shown."""
    show = partial(show_answer, tables)
    show("Who is well, and who is not?", "status", exits_with=(EXIT_ERRORS,))
    show("What happened to this group?", "why", GROUP)
    show("Why did it rebalance?", "table", "rebalances", "--group", GROUP)
    moment = datetime.fromtimestamp(told.kill_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    show("What was committed just before the crash?", "table", "offsets", "--group", GROUP, "--as-of", moment)
    show(
        f"What should be looked at? ({REPORTS} is STALLED as status says; it is a finding after a minute of that.)",
        "findings",
        exits_with=(0, EXIT_WARNINGS, EXIT_ERRORS),
    )
    if REPORT.exists():
        REPORT.unlink()
    show("All of it, as pages in one file", "report", "--html", str(REPORT))


def show_answer(tables: Path, question: str, *command: str, exits_with: tuple[int, ...] = (0,)) -> None:
    heading(" ".join(["muster", *command]), question)
    console.file.flush()
    done = subprocess.run(muster(*command), env=asking(tables), check=False)
    if done.returncode not in exits_with:
        raise Disagreement(f"muster {' '.join(command)} ended with {done.returncode}.")


def muster(*command: str) -> list[str]:
    return [sys.executable, "-m", "muster", *command]


def asking(tables: Path) -> dict[str, str]:
    """The environment of a command that asks these tables."""
    return os.environ | {"MUSTER_TABLES": str(tables)}


def check(told: Story, cast: Cast, spark: Spark) -> None:
    spark.bundled()
    with open_tables(spark.bundled_tables) as tables:
        offsets, groups, members = (rows(tables, name) for name in ("offsets", "groups", "members"))
        answered = check_bundled(CORPUS / "expected" / "groups.json", offsets, groups, members)
    with open_tables(spark.tables) as tables:
        rebalances = [row for row in rows(tables, "rebalances") if row["group_id"] == GROUP]
        names = ("offsets", "members", "groups")
        now = {name: of_group(rows(tables, name)) for name in names}
        earlier = committed(of_group(rows(tables, "offsets", told.asked_ms - 1)))
        then = {name: of_group(rows(tables, name, told.kill_ms)) for name in names}
    console.print()
    check_now(told.in_the_end, now)
    check_moment(told, earlier, then)
    check_causes(rebalances)
    check_verdicts(spark.tables, {GROUP: "OK", LEDGER: "OK", REPORTS: "STALLED"}, {SEARCH: "REWIND"})
    check_invoices(cast.invoices(), cast.produced)
    tick(answered)


def of_group(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["group_id"] == GROUP]


def serve_pages(tables: Path, folder: Path, stack: ExitStack) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "dashboard.log").open("wb") as log:
        command = muster("dashboard", "--port", str(port))
        pages = subprocess.Popen(command, stdout=log, stderr=log, env=asking(tables))
    stack.callback(pages.wait)
    stack.callback(pages.terminate)
    return f"http://127.0.0.1:{port}/"


def forget_last_time() -> None:
    """Tables are of one broker: those of an earlier demo are not gone on with."""
    if (TABLES / "_manifest").is_dir():
        shutil.rmtree(TABLES)
    elif TABLES.exists():
        raise Disagreement(f"{TABLES} is there, and no demo has made it. Move it away, or start elsewhere.")


def tell_what_is_left() -> None:
    console.print(f"\n  all of this as pages in one file: [bold]{REPORT}[/]; and the tables: [bold]{TABLES}[/]. Try")
    command = Path(sys.executable).with_name("muster")
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    for line in (
        f"export MUSTER_TABLES={TABLES}",
        f"{shown} why {REPORTS}",
        f"{shown} lag {SEARCH} --since 1h",
        f"{shown} dashboard",
    ):
        console.print(f"    [bold]{escape(line)}[/]", soft_wrap=True)


def stays() -> bool:
    """On a terminal the pages are served for a while, for whoever wants to look."""
    return sys.stdout.isatty() and pace >= 1


def linger(address: str) -> None:
    console.print(f"\n  The dashboard is at [bold]{address}[/] for two minutes; [dim]Ctrl-C ends it now[/]")
    try:
        time.sleep(120)
    except KeyboardInterrupt:
        console.print("\n  stopping …")


def pause(seconds: float) -> None:
    time.sleep(seconds * pace)


def say(line: str) -> None:
    console.print(f"  [dim]{time.monotonic() - began:5.1f} s[/]  {line}")


def say_run(what: str, summary: Summary) -> None:
    say(f"[cyan]{what}[/]: {summary.records:,} new records, in {summary.seconds:.1f} s")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
