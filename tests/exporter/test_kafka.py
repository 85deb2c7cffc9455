"""The page beside kafka-consumer-groups, on a real Kafka: under load, stalled, rewound, stopped, losing records."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.exporter.page import Page
from muster.exporter.poll import Plan, Poller
from tests.exporter.pages import read, value
from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import RESTARTS_QUICKLY, KafkaBroker, require_kafka
from tests.real.drive import QUIET, SETTINGS, WAIT_S, check, consumer, names, poll_until

pytestmark = pytest.mark.kafka

TOPIC, PARTITIONS = "exporter-orders", 2
LIVE, LOADED = "exporter-live", "exporter-loaded"
Row = tuple[int, int, int, str]
"""Committed offset, log end offset, lag, consumer id."""


class Stage:
    def __init__(self, kafka: KafkaBroker, tool: ConsumerGroups) -> None:
        self.kafka, self.tool = kafka, tool
        self.producer = Producer(QUIET | {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        self.page = Page("test")
        plan = Plan({"bootstrap.servers": kafka.bootstrap}, groups=("exporter-*",))
        self.poller = Poller(plan, self.page, pytest.fail)

    def write(self, count: int) -> None:
        for number in range(count):
            self.producer.produce(TOPIC, b"x", partition=number % PARTITIONS)
        assert self.producer.flush(WAIT_S) == 0

    def round(self) -> bytes:
        self.poller.round()
        return self.page.text()

    def kafkas(self, group: str) -> dict[int, Row]:
        """What Kafka's own tool prints of a group, by partition."""
        rows = {}
        for line in self.tool.ask("--describe", "--group", group).splitlines():
            cells = line.split()
            if cells[:2] == [group, TOPIC] and cells[3] != "-":
                owner = "" if cells[6] == "-" else cells[6]
                rows[int(cells[2])] = (int(cells[3]), int(cells[4]), int(cells[5]), owner)
        return rows

    def agrees(self, group: str, page: bytes) -> dict[int, Row]:
        """Kafka's rows, after the page was found to have the same."""
        ours: dict[int, Row] = {}
        found = read(page)
        for labels, lag in found["kafka_consumergroup_group_lag"].items():
            names_of = dict(labels)
            if names_of["group"] == group:
                where = {"topic": TOPIC, "partition": names_of["partition"]}
                offset = value(page, "kafka_consumergroup_group_offset", group=group, **where)
                end = value(page, "kafka_partition_latest_offset", **where)
                assert offset is not None
                assert end is not None
                ours[int(where["partition"])] = (int(offset), int(end), int(lag), names_of["consumer_id"])
        theirs = self.kafkas(group)
        assert ours == theirs
        return theirs


@pytest.fixture(scope="module")
def stage(kafka: KafkaBroker) -> Iterator[Stage]:
    admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result(WAIT_S)
    with ConsumerGroups(kafka.kafka, kafka.bootstrap) as tool:
        stage = Stage(kafka, tool)
        yield stage
        stage.poller.close()


def verdict(page: bytes, group: str, partition: int = 0) -> str:
    lines = read(page)["muster_group_partition_verdict"]
    (found,) = (
        dict(labels)["verdict"] for labels in lines if {("group", group), ("partition", str(partition))} <= labels
    )
    return found


def test_a_life_of_a_group(stage: Stage) -> None:
    """Well, stalled, rewound, stopped and losing, each beside what Kafka's tool says at that moment."""
    stage.write(20)
    with consumer(stage.kafka, LIVE, **{"client.id": "me", "session.timeout.ms": 60_000}) as member:
        member.subscribe([TOPIC])
        poll_until(lambda: len(member.assignment()) == PARTITIONS, member)

        def commit(first: int, second: int) -> None:
            offsets = [Offset(TOPIC, 0, first), Offset(TOPIC, 1, second)]
            check(member.commit(offsets=offsets, asynchronous=False))

        commit(10, 8)
        page = stage.round()
        assert [row[2] for row in stage.agrees(LIVE, page).values()] == [0, 2]
        assert verdict(page, LIVE) == "OK"
        assert value(page, "muster_group_members", group=LIVE) == 1
        assert value(page, "muster_group_state", group=LIVE, state="Stable", type="classic") == 1
        assert value(page, "kafka_consumergroup_group_lag", group=LIVE, partition="1", client_id="me") == 2

        stage.write(40)
        page = stage.round()  # the end is known from here on
        for _ in range(10):
            commit(10, 12)
        page = stage.round()
        assert [row[2] for row in stage.agrees(LIVE, page).values()] == [20, 18]
        assert verdict(page, LIVE) == "STALLED"
        assert value(page, "muster_group_verdict", group=LIVE, verdict="ERR") == 1
        assert value(page, "kafka_consumergroup_group_sum_lag", group=LIVE) == 38
        # The ends that were seen tell since when the next record waits.
        assert (value(page, "muster_exporter_lag_seconds_values", method="interpolated") or 0) >= 1

        commit(3, 14)
        page = stage.round()
        assert [row[0] for row in stage.agrees(LIVE, page).values()] == [3, 14]
        assert verdict(page, LIVE) == "REWIND"
        assert value(page, "burrow_kafka_topic_partition_status", consumer_group=LIVE, partition="0") == 6
    page = stage.round()
    assert value(page, "muster_group_state", group=LIVE, state="Empty") == 1
    assert value(page, "muster_group_members", group=LIVE) == 0
    assert value(page, "muster_group_rebalances_total", group=LIVE, cause="group emptied") == 1
    assert [row[3] for row in stage.agrees(LIVE, page).values()] == ["", ""]
    deadline = time.monotonic() + 60  # silent for longer than the last ten commits took
    while verdict(page, LIVE) != "STOPPED":
        assert time.monotonic() < deadline
        page = stage.round()
    stage.agrees(LIVE, page)

    admin = AdminClient(QUIET | {"bootstrap.servers": stage.kafka.bootstrap})
    for deleted in admin.delete_records([Offset(TOPIC, 0, 25)]).values():
        deleted.result(WAIT_S)
    page = stage.round()
    assert [row[2] for row in stage.agrees(LIVE, page).values()] == [27, 16]
    assert verdict(page, LIVE) == "LOSING"
    assert value(page, "kafka_partition_earliest_offset", topic=TOPIC, partition="0") == 25


def test_under_load(stage: Stage) -> None:
    """The page is made between two answers of the tool, and lies between them; at rest it is the same again."""
    done = threading.Event()

    def work() -> None:
        settings = SETTINGS | names(stage.kafka, LOADED) | {"group.protocol": "consumer", "client.id": "newer"}
        with closing(Consumer(settings)) as member:
            member.subscribe([TOPIC])
            while not done.is_set():
                stage.producer.produce(TOPIC, b"y", partition=0)
                stage.producer.poll(0)
                if member.poll(0.01) is not None:
                    member.commit(asynchronous=False)
            settled.wait(120)

    settled = threading.Event()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        deadline = time.monotonic() + 60
        while not (before := stage.kafkas(LOADED)):
            assert time.monotonic() < deadline
        rounds = 0
        while rounds < 3:
            page = stage.round()
            after = stage.kafkas(LOADED)
            for partition, row in before.items():
                offset = value(page, "kafka_consumergroup_group_offset", group=LOADED, partition=str(partition))
                lag = value(page, "kafka_consumergroup_group_lag", group=LOADED, partition=str(partition))
                assert offset is not None
                assert lag is not None
                assert row[0] <= offset <= after[partition][0]
                assert row[1] - after[partition][0] <= lag <= after[partition][1] - row[0]
            rounds += after != before
            before = after
        done.set()
        assert stage.producer.flush(WAIT_S) == 0
        page = stage.round()
        while stage.kafkas(LOADED) != (last := stage.kafkas(LOADED)):  # the last commit may be on its way
            page = stage.round()
        page = stage.round()
        assert stage.agrees(LOADED, page) == last
        assert all(row[3] for row in last.values())  # a member of the newer protocol owns them
        assert value(page, "muster_group_state", group=LOADED, type="consumer", state="Stable") == 1
    finally:
        done.set()
        settled.set()
        worker.join()


@pytest.mark.matrix
def test_a_broker_that_is_killed_and_comes_back() -> None:
    with KafkaBroker(require_kafka(), RESTARTS_QUICKLY) as kafka:
        admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result(WAIT_S)
        page = Page("test")
        poller = Poller(Plan({"bootstrap.servers": kafka.bootstrap}), page, print)
        try:
            _commit(kafka, 3)
            poller.round()
            kafka.kill()
            poller.round()
            assert value(page.text(), "muster_exporter_up") == 0
            assert value(page.text(), "kafka_consumergroup_group_offset", group=LIVE) == 3
            kafka.start()
            _commit(kafka, 7)
            deadline = time.monotonic() + 60
            while value(page.text(), "muster_exporter_up") == 0:
                assert time.monotonic() < deadline
                poller.round()
            poller.round()
            assert value(page.text(), "kafka_consumergroup_group_offset", group=LIVE) == 7
            assert value(page.text(), "kafka_consumergroup_group_lag", group=LIVE) == -7  # nobody ever wrote
        finally:
            poller.close()


def _commit(kafka: KafkaBroker, offset: int) -> None:
    with consumer(kafka, LIVE) as simple:
        check(simple.commit(offsets=[Offset(TOPIC, 0, offset)], asynchronous=False))
