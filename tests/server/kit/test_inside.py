"""Looking inside a broker and putting things into it, without a client and beside one."""

import time
from collections.abc import Iterator

import pytest

from muster.broker import Broker
from muster.errors import ConfigError, NotInTime
from muster.server.kit.inside import murmur2
from tests.server.kit.consumers import consumer, values


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.reset()


def test_a_consumer_reads_what_was_seeded_and_its_commit_is_seen(broker: Broker) -> None:
    broker.seed_records("orders", "one", ("42", "two"), {"key": "42", "value": b"\xff\x00", "headers": {"h": "x"}})
    with consumer(broker, "app", "orders", client_id="worker") as worker:
        assert sorted(values(worker, 3)) == [b"one", b"two", b"\xff\x00"]
        worker.commit(asynchronous=False)
        group = broker.wait_for_members("app", 1)
        assert (group.state, group.protocol, group.members[0].client_id) == ("Stable", "range", "worker")
        assert group.members[0].subscribed == ("orders",)
        assert group.assigned == {("orders", 0): "worker"}
        assert broker.groups() == {"app": group}
    assert broker.wait_for_members("app", 0).state == "Empty"
    assert broker.committed("app") == {("orders", 0): 3}
    assert broker.commits("app")[0].time_ms > 0
    assert [(record.key, record.value) for record in broker.records("orders")] == [
        (None, b"one"), (b"42", b"two"), (b"42", b"\xff\x00"),
    ]  # fmt: skip
    assert broker.records("orders")[2].headers == (("h", b"x"),)
    assert broker.topics()["orders"].ends == [3]


def test_a_consumer_begins_at_the_commit_that_was_seeded(broker: Broker) -> None:
    broker.seed_records("orders", "one", "two", "three")
    broker.seed_commits("app", {("orders", 0): 2})
    with consumer(broker, "app", "orders") as worker:
        assert values(worker, 1) == [b"three"]
        broker.wait_until_stable("app")
        with pytest.raises(
            NotInTime, match=r"group app is Stable with 1 member .rdkafka .*to be Stable with 2 members"
        ):
            broker.wait_for_members("app", 2, within=0.01)
        with pytest.raises(ConfigError, match="only they may commit"):
            broker.seed_commits("app", {("orders", 0): 0})


def test_an_expelled_member_comes_back_in_another_generation(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    with consumer(broker, "app", "orders", client_id="a") as a, consumer(broker, "app", "orders", client_id="b") as b:
        while len(broker.groups().get("app", ((),) * 7)[6]) < 2:
            a.poll(0.02), b.poll(0.02)
        before = _polled(broker, a, b)
        broker.expel("app", "b")
        after = _polled(broker, a, b, later_than=before.generation)
    ids = [{one.client_id: one.member_id for one in group.members} for group in (before, after)]
    assert ids[0]["a"] == ids[1]["a"]
    assert ids[0]["b"] != ids[1]["b"]
    with pytest.raises(ConfigError, match="no member is called that: group app is Empty with 0 members"):
        broker.expel("app", "c")


def _polled(broker: Broker, *consumers, later_than: int = -1):  # type: ignore[no-untyped-def]
    """The group when all are in it and it is Stable; clients take part in a rebalance while they poll."""
    for _ in range(500):
        for one in consumers:
            one.poll(0.01)
        group = broker.groups()["app"]
        if (group.state, len(group.members)) == ("Stable", len(consumers)) and group.generation > later_than:
            return group
    raise AssertionError(broker.groups())


def test_seeds_go_where_a_producer_would_send_them(broker: Broker) -> None:
    # Of org.apache.kafka.common.utils.UtilsTest.
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    broker.create_topic("wide", 3, configs={"retention.ms": 1000})
    assert broker.topics()["wide"].configs == {"retention.ms": "1000"}
    of_key = (murmur2(b"foobar") & 0x7FFFFFFF) % 3
    assert broker.seed_records("wide", ("foobar", "x"), ("foobar", None)) == [(of_key, 0), (of_key, 1)]
    assert broker.seed_records("wide", "x", partition=(of_key + 1) % 3) == [((of_key + 1) % 3, 0)]
    assert [record.value for record in broker.records("wide", of_key)] == [b"x", None]


def test_what_cannot_be_is_told(broker: Broker) -> None:
    broker.create_topic("orders")
    with pytest.raises(ConfigError, match=r"there is no topic nosuch .there is orders.; create_topic or seed_records"):
        broker.records("nosuch")
    with pytest.raises(ConfigError, match="orders has partitions 0 to 0, and no 7"):
        broker.seed_records("orders", "x", partition=7)
    with pytest.raises(
        NotInTime, match=r"there is no group app .there is none at all. after 0.01 s; it was to be Stable"
    ):
        broker.wait_for_members("app", 2, within=0.01)
    with pytest.raises(ConfigError, match="there is no verb 'nonsense'; there are advance, clock, commits"):
        broker.do("nonsense")
    with pytest.raises(ConfigError, match="commits: missing a required argument: 'group'"):
        broker.do("commits")


def test_reset_leaves_nothing_and_takes_milliseconds(broker: Broker) -> None:
    for number in range(5):
        broker.seed_records(f"topic-{number}", "x")
        broker.seed_commits(f"group-{number}", {(f"topic-{number}", 0): 1})
    with consumer(broker, "app", "topic-0") as worker:
        assert values(worker, 1) == [b"x"]
        started = time.process_time()
        broker.reset()
        assert time.process_time() - started < 0.1
        assert "topic-0" not in broker.topics()
        assert [name for name in broker.groups() if name.startswith("group-")] == []
    broker.reset()
    assert (broker.topics(), broker.groups()) == ({}, {})
