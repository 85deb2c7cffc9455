"""`muster lag` and `muster status` beside kafka-consumer-groups, on a real Kafka under load.

Six groups do on purpose what groups do by accident. While they are at work Kafka's tool is asked before a run and after
it: offsets only rise here, so what the tables say must lie between. At rest both must say the same, and the verdicts
are what was done to the groups.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.cli.main import main
from muster.cli.status import Status
from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import KafkaBroker
from tests.pipeline.world import run_here
from tests.real.drive import QUIET, SETTINGS, WAIT_S, check, consumer, names

pytestmark = pytest.mark.kafka

ORDERS, LOST = "answers-orders", "answers-lost"
PARTITIONS = 2
WELL, STALLED, REWOUND, STOPPED, LOSING, SLOW = (
    f"answers-{name}" for name in ("well", "stalled", "rewound", "stopped", "losing", "slow")
)
VERDICTS = {WELL: "OK", STALLED: "STALLED", REWOUND: "REWIND", STOPPED: "STOPPED", LOSING: "LOSING", SLOW: "WARN"}
TICK_S = 0.5
"""How often groups commit: ten commits span far more than what passes between the last one and a look."""
Place = tuple[str, str, int]


class Said(NamedTuple):
    """Of one partition of a group."""

    committed: int
    end: int
    lag: int


class Cluster:
    """Topics that are written to all the time, and groups at work on them."""

    def __init__(self, kafka: KafkaBroker, tool: ConsumerGroups) -> None:
        self.kafka, self.tool = kafka, tool
        self.admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
        topics = [NewTopic(ORDERS, PARTITIONS, 1), NewTopic(LOST, 1, 1)]
        for created in self.admin.create_topics(topics).values():
            created.result(WAIT_S)
        self._producer = Producer(QUIET | {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        self._consumers: dict[str, Consumer] = {}
        self._at_work, self._over = threading.Lock(), threading.Event()
        self.failure: BaseException | None = None
        self.ticks = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with ExitStack() as stack:
            for group in (STALLED, REWOUND, STOPPED, LOSING, SLOW):
                self._consumers[group] = stack.enter_context(consumer(self.kafka, group))
            self._write()
            self.commit(STOPPED, 1, 2)
            self.commit(SLOW, 19, 19)
            threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._tick, self._keep_up)]
            stack.callback(self._end, threads)
            for thread in threads:
                thread.start()
            yield

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as failure:
            self.failure = failure

    def _end(self, threads: list[threading.Thread]) -> None:
        self._over.set()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Everybody has finished what they were at."""
        with self._at_work:
            yield

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            with self._at_work:
                self._write()
                self.ticks += 1
                self.commit(STALLED, 5, 5)
                self.commit(REWOUND, 10 + self.ticks, 10 + self.ticks)
                check(self._consumers[LOSING].commit(offsets=[Offset(LOST, 0, self.ticks)], asynchronous=False))

    def _write(self) -> None:
        for number in range(100):
            self._producer.produce(ORDERS, b"x", partition=number % PARTITIONS)
            self._producer.produce(LOST, b"x", partition=0)
        assert self._producer.flush(WAIT_S) == 0

    def _keep_up(self) -> None:
        """A member of the newer protocol that reads all there is."""
        settings = SETTINGS | names(self.kafka, WELL) | {"group.protocol": "consumer"}
        member = Consumer(settings)
        try:
            member.subscribe([ORDERS])
            while not self._over.is_set():
                if member.consume(500, 0.05):
                    with self._at_work:
                        check(member.commit(asynchronous=False))
        finally:
            member.close()

    def commit(self, group: str, *offsets: int) -> None:
        places = [Offset(ORDERS, partition, offset) for partition, offset in enumerate(offsets)]
        check(self._consumers[group].commit(offsets=places, asynchronous=False))

    def told(self) -> dict[Place, Said]:
        """What Kafka's own tool prints."""
        asked = [word for group in VERDICTS for word in ("--group", group)]
        rows = [line.split() for line in self.tool.ask("--describe", *asked).splitlines()]
        return {
            (row[0], row[1], int(row[2])): Said(*map(int, row[3:6]))
            for row in rows
            if len(row) > 5 and row[0] in VERDICTS and row[3] != "-"
        }


@pytest.fixture(scope="module")
def cluster(kafka: KafkaBroker) -> Iterator[Cluster]:
    with ConsumerGroups(kafka.kafka, kafka.bootstrap) as tool:
        cluster = Cluster(kafka, tool)
        with cluster.at_work():
            yield cluster


class Answers:
    """Tables of that cluster, and what is said when they are asked."""

    def __init__(self, cluster: Cluster, tables: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._tables, self._capfd = cluster, tables, capfd

    def run(self) -> dict[Place, Said]:
        run_here(self._tables, f"kafka://{self._cluster.kafka.bootstrap}", analytics=True)
        return self.lags()

    def ask(self, *question: str) -> tuple[int, list[dict[str, Any]]]:
        self._capfd.readouterr()
        status = main([*question, "answers-*", "--tables", str(self._tables), "--json"])
        return status, [json.loads(line) for line in self._capfd.readouterr().out.splitlines()]

    def lags(self) -> dict[Place, Said]:
        """Kafka counts records that are gone as if they could be read."""
        _, rows = self.ask("lag", "--partitions")
        return {
            _place(row): Said(row["committed_offset"], row["log_end_offset"], row["lag"] + row["lost_records"])
            for row in rows
            if row["committed_offset"] is not None
        }


def _place(row: dict[str, Any]) -> Place:
    return row["group_id"], row["topic"], row["partition"]


def check_between(before: dict[Place, Said], found: dict[Place, Said], after: dict[Place, Said]) -> None:
    assert before.keys() <= found.keys() <= after.keys()
    for place, first in before.items():
        ours, last = found[place], after[place]
        assert first.committed <= ours.committed <= last.committed, place
        assert first.end <= ours.end <= last.end, place
        assert ours.lag == ours.end - ours.committed, place


def test_lag_and_status_are_what_kafkas_tool_says(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = Answers(cluster, tmp_path / "tables", capfd)
    deadline = time.monotonic() + 20
    before = cluster.told()
    while {group for group, _, _ in before} != VERDICTS.keys():
        assert time.monotonic() < deadline, before
        before = cluster.told()

    for offset in (20, 21):
        cluster.commit(SLOW, offset, offset)
        found = answers.run()
        after = cluster.told()
        check_between(before, found, after)
        before = after
    assert found[WELL, ORDERS, 0].committed > found[STALLED, ORDERS, 0].committed

    with cluster.at_rest():
        told = cluster.told()
        cluster.tool.ask("--reset-offsets", "--group", REWOUND, "--topic", ORDERS, "--to-offset", "3", "--execute")
        lost = told[LOSING, LOST, 0]
        for deleted in cluster.admin.delete_records([Offset(LOST, 0, lost.committed + 40)]).values():
            deleted.result(WAIT_S)
        cluster.commit(SLOW, 22, 22)
        found, told = answers.run(), cluster.told()
        assert found == told
    assert found[REWOUND, ORDERS, 1].committed == 3

    status, groups = answers.ask("status")
    assert status == Status.ERROR
    assert {row["group_id"]: row["verdict"] for row in groups} == VERDICTS
    assert {row["group_id"]: row["lag"] for row in groups} == _lag_by_group(answers.ask("lag")[1])
    _, partitions = answers.ask("status", "--partitions")
    assert {_place(row): row["verdict"] for row in partitions} == {place: VERDICTS[place[0]] for place in found}
    assert {_place(row): (row["committed_offset"], row["log_end_offset"]) for row in partitions} == {
        place: said[:2] for place, said in told.items()
    }
    (losing,) = (row for row in partitions if row["group_id"] == LOSING)
    assert (losing["lost_records"], losing["lag"]) == (40, told[LOSING, LOST, 0].lag - 40)


def _lag_by_group(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["group_id"]: row["lag"] for row in rows}
