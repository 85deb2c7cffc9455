"""Looking inside a broker and putting things into it, without a client and beside one."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import pytest

from muster.broker import Broker
from muster.errors import ConfigError, NotInTime
from muster.server.cluster.create_topics import CreatePartitionsRequest, MorePartitions, plan_create_partitions
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


def test_reset_deletes_a_topic_with_the_partitions_that_it_gets_meanwhile(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    assert broker._server is not None
    assert broker._kit is not None
    assert broker._loop is not None
    parts, kit = broker._server.parts, broker._kit
    more = CreatePartitionsRequest((MorePartitions("orders", 4),))

    async def grow_and_reset() -> None:
        grown = parts.topic_changes.carry_out(partial(plan_create_partitions, more, parts.cluster))
        await asyncio.gather(grown, kit.reset())

    asyncio.run_coroutine_threadsafe(grow_and_reset(), broker._loop).result(20)
    assert [entry.name for entry in parts.directory.path.iterdir() if entry.name.startswith("orders-")] == []
    broker.create_topic("orders", 4)


def test_reset_deletes_every_topic_that_is_not_internal(broker: Broker) -> None:
    broker.create_topic("__mine")
    assert list(broker.topics()) == ["__mine"]
    broker.reset()
    assert broker.topics() == {}


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"vaule": "x"}, "a record to be seeded has no 'vaule'. Did you mean 'value'?"),
        ({"timestamp": 5, "value": b"\xff"}, "a record to be seeded has no 'timestamp'. Did you mean 'timestamp_ms'?"),
        (
            {"offset": 5},
            "a record to be seeded has no 'offset'. There are: key, value, headers, partition, timestamp_ms.",
        ),
    ],
)
def test_a_record_with_a_key_that_nobody_knows_is_refused(
    broker: Broker, record: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError) as told:
        broker.seed_records("orders", record)
    assert str(told.value) == sentence
    assert "orders" not in broker.topics()
    with pytest.raises(ConfigError, match="to be seeded has no"):  # as other languages ask
        broker.do("seed_records", topic="orders", records=[dict.fromkeys(record, "x")])


def test_values_of_another_kind_are_refused_in_a_sentence(broker: Broker) -> None:
    broker.create_topic("there", 2)
    for asked, sentence in (
        ({"do": "create_topic", "topic": "x", "partitions": "3"}, "partitions is '3'; it should be a whole number."),
        ({"do": "create_topic", "topic": "x", "partitions": True}, "partitions is True; it should be a whole number."),
        ({"do": "create_topic", "topic": "x", "configs": []}, "configs is []; it should be an object or null."),
        ({"do": "advance", "duration": None}, "advance: duration is None; it should be a number or text."),
        ({"do": "seed_records", "topic": "x", "records": "abc"}, "records is 'abc'; it should be a list."),
        ({"do": "seed_records", "topic": "x", "records": ["abc"]}, "seeded is 'abc'; it should be an object of key, "),
        ({"do": "seed_records", "topic": "x", "records": [{"partition": "1"}]}, "is '1'; it should be a whole number"),
        ({"do": "seed_records", "topic": "x", "records": [{"timestamp_ms": "now"}]}, "is 'now'; it should be a whole"),
        ({"do": "seed_records", "topic": "x", "records": [{"headers": ["h"]}]}, "'h' is no header; headers are"),
        ({"do": "seed_records", "topic": "x", "records": [{"headers": 5}]}, "5 is no header; headers are written"),
        ({"do": "commits", "group": 5}, "commits: group is 5; it should be text."),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as told:
            broker.do(asked.pop("do"), **asked)
        assert sentence in str(told.value)
    with pytest.raises(ConfigError, match="is no record: a tuple is a key and a value"):
        broker.seed_records("x", ("key", "value", "more"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'h' is no header"):
        broker.seed_records("x", {"headers": "h"})
    for place, offset, sentence in (
        (("nosuch", 0), 1, "there is no topic nosuch (there is there); create_topic or seed_records makes one."),
        (("there", 2), 1, "topic there has partitions 0 to 1, and no 2."),
        (("there", -1), 1, "topic there has partitions 0 to 1, and no -1."),
        (("there", 1), -1, "the offset of there-1 is -1; it should be a whole number from 0 on."),
    ):
        with pytest.raises(ConfigError) as told:
            broker.seed_commits("app", {place: offset})
        assert str(told.value) == sentence
    assert (list(broker.topics()), broker.groups()) == (["there"], {})
    broker.seed_commits("app", {("there", 1): 1000})  # beyond the end, where a log may be some day
    assert broker.committed("app") == {("there", 1): 1000}


def test_offsets_by_something_else_than_topic_and_partition_are_refused(broker: Broker) -> None:
    for offsets, sentence in (
        ({"orders": 1}, "'orders' is no topic and partition; offsets to be seeded are written {('orders', 0): 42}."),
        ({("orders", 0, 1): 1}, "('orders', 0, 1) is no topic and partition; offsets to be seeded are written"),
        ({("orders", "0"): 1}, "('orders', '0') is no topic and partition;"),
        ({("orders", 0): "one"}, "'one' is no offset; offsets to be seeded are written {('orders', 0): 42}."),
    ):
        with pytest.raises(ConfigError) as told:
            broker.seed_commits("app", offsets)  # type: ignore[arg-type]
        assert str(told.value).startswith(sentence)
    for commit, sentence in (
        ({"topic": "orders", "partiton": 0, "offset": 1}, "has no 'partiton'. Did you mean 'partition'?"),
        ({"topic": "orders", "partition": 0}, "a commit to be seeded has no 'offset', and needs one"),
    ):
        with pytest.raises(ConfigError) as told:
            broker.do("seed_commits", group="app", commits=[commit])
        assert sentence in str(told.value)
    assert broker.groups() == {}
