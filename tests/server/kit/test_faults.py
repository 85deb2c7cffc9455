"""Faults by order, as clients meet them; and a server without orders, which has nothing before its handlers."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from muster.broker import Broker
from muster.errors import ConfigError
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.reset()
    assert shared.do("faults") == []
    assert shared._kit is not None
    assert shared._kit._parts.connections.handle is shared._kit.faults._plain


def producer(broker: Broker) -> Producer:
    return Producer({
        "bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "retry.backoff.ms": 10, "log_level": 0,
        "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50,
    })  # fmt: skip


def outsider(broker: Broker, group: str) -> Consumer:
    """One that commits without being a member."""
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})


def test_commits_of_one_group_are_refused_twice(broker: Broker) -> None:
    broker.create_topic("orders")
    fault = broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=2, group="app")
    app, other = outsider(broker, "app"), outsider(broker, "other")
    for _ in range(2):
        with pytest.raises(KafkaException) as refused:
            app.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        other.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    assert fault.met == 2
    assert broker.committed("app") == {}
    app.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    assert (broker.committed("app"), broker.committed("other")) == ({("orders", 0): 5}, {("orders", 0): 7})
    app.close(), other.close()


def test_a_client_tries_again_after_an_error_that_passes(broker: Broker) -> None:
    """kafka-python looks for the coordinator anew, and the first of them does not answer."""
    broker.create_topic("orders")
    moved = broker.faults.error("OffsetCommit", 16, times=1, client="mover")
    lost = broker.faults.drop_connection("FindCoordinator", times=1, client="mover", skip=1)
    one = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="app", client_id="mover", enable_auto_commit=False,
        reconnect_backoff_ms=10, retry_backoff_ms=10,
    )  # fmt: skip
    one.assign([KafkaPythonPartition("orders", 0)])
    one.seek(KafkaPythonPartition("orders", 0), 3)
    one.commit()
    one.close()
    assert (moved.met, lost.met) == (1, 1)
    assert broker.committed("app") == {("orders", 0): 3}


def test_a_request_of_one_topic_is_late_and_others_are_not(broker: Broker) -> None:
    broker.create_topic("slow")
    broker.create_topic("quick")

    async def produced() -> list[str]:
        order: list[str] = []

        async def send(topic: str) -> None:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as one:
                await one.send_and_wait(topic, b"x")
            order.append(topic)

        with broker.faults.delay("Produce", 0.4, topic="slow"):
            slow = asyncio.create_task(send("slow"))
            while broker.do("faults")[0]["met"] == 0:
                await asyncio.sleep(0.01)
            await send("quick")
            await slow
        return order

    assert asyncio.run(produced()) == ["quick", "slow"]


def test_an_answer_that_is_lost_makes_a_record_twice_but_not_from_an_idempotent_producer(broker: Broker) -> None:
    """The request was handled: who cannot say that it sent it before, sends it again."""
    for topic, is_idempotent in (("plain", False), ("idempotent", True)):
        broker.create_topic(topic)
        one = Producer({
            "bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": is_idempotent, "log_level": 0,
            "retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50,
        })  # fmt: skip
        lost = broker.faults.drop_connection("Produce", after=True, topic=topic)
        one.produce(topic, b"x")
        assert one.flush(10) == 0
        assert lost.met == 1
    assert [len(broker.records(topic)) for topic in ("plain", "idempotent")] == [2, 1]


def test_a_fetch_by_topic_is_met_in_its_session(broker: Broker) -> None:
    """A client with a session (kafka-python) does not name its topics again."""
    broker.seed_records("orders", "one")
    worker = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=50, retry_backoff_ms=10)
    worker.assign([KafkaPythonPartition("orders", 0)])
    worker.seek_to_beginning()
    assert next(worker).value == b"one"
    passed = broker.faults.delay("Fetch", 0.001, times=4)  # the first of these may tell a session of the new position
    while passed.met < 4:
        worker.poll(10)
    refused = broker.faults.error("Fetch", "UNKNOWN_LEADER_EPOCH", topic="orders")
    elsewhere = broker.faults.error("Fetch", "UNKNOWN_LEADER_EPOCH", topic="other")
    for _ in range(100):
        worker.poll(10)
        if refused.met:
            break
    assert (refused.met, elsewhere.met) == (1, 0)
    broker.seed_records("orders", "two")
    assert next(worker).value == b"two"
    worker.close()


def test_what_comes_behind_a_late_request_waits_for_it(broker: Broker) -> None:
    with Raw((broker.host, broker.port)) as raw:
        broker.faults.delay("ListGroups", 0.05)
        first, second = raw.send(ApiKey.LIST_GROUPS, 4), raw.send(ApiKey.DESCRIBE_CLUSTER, 0)
        assert raw.hear(ApiKey.LIST_GROUPS, 4)[0] == first
        assert raw.hear(ApiKey.DESCRIBE_CLUSTER, 0)[0] == second


def test_a_partition_that_is_let_go_is_served_again_when_that_is_undone(broker: Broker) -> None:
    broker.create_topic("orders")
    broker.seed_commits("app", {("orders", 0): 1})
    with broker.faults.unload(group="app"):
        assert broker.committed("app") == {}
        with pytest.raises(ConfigError, match=r"NOT_COORDINATOR\(16\)"):
            broker.seed_commits("app", {("orders", 0): 2})
    assert broker.committed("app") == {("orders", 0): 1}
    broker.faults.unload(group="app")
    broker.reset()
    broker.create_topic("orders")
    broker.seed_commits("app", {("orders", 0): 9})


def test_a_full_disk_takes_nothing_until_there_is_room_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.server.records.data_partitions.FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr("muster.server.leadership.FIRST_PAUSE_S", 60.0)
    broker.create_topic("orders")
    one = producer(broker)
    one.produce("orders", b"before")
    assert one.flush(10) == 0
    full = broker.faults.full_disk()
    with pytest.raises(ConfigError, match="KAFKA_STORAGE_ERROR"):
        broker.seed_records("orders", "while")
    with pytest.raises(ConfigError, match="offsets of group app cannot be seeded: NOT_COORDINATOR"):
        broker.seed_commits("app", {("orders", 0): 1})
    one.produce("orders", b"after")
    assert one.flush(0.3) == 1
    full.undo()  # without a wait for the pauses after a failure, which are long here
    assert one.flush(10) == 0
    assert [record.value for record in broker.records("orders")] == [b"before", b"after"]
    broker.seed_commits("app", {("orders", 0): 2})


def test_orders_that_cannot_be_are_refused(broker: Broker) -> None:
    for order, said in (
        (lambda: broker.faults.error("Commit", 16), "there is no API 'Commit'; there are AddOffsetsToTxn"),
        (lambda: broker.faults.error("OffsetCommit", "NOT_COORDINTOR"), "there is no error 'NOT_COORDINTOR'"),
        (lambda: broker.faults.error("OffsetCommit", 16, times=0), "met 0 times is none"),
        (lambda: broker.faults.error("OffsetCommit", 16, grup="app"), "unexpected keyword argument 'grup'"),
        (lambda: broker.faults.delay("OffsetCommit", 0), "a delay of 0 seconds"),
        (lambda: broker.faults.delay("Fetch", "soon"), "fault: seconds is 'soon'; it should be a number"),
        (lambda: broker.faults.error("Fetch", 999), "999 is not the number of an error; Kafka's are -1 and 1 to 133"),
        (lambda: broker.faults.error("Fetch", 0), "0 is not the number of an error"),
        (lambda: broker.faults.error("Metadata", 5, group="x"), "for Metadata of group 'x' would never be met"),
        (lambda: broker.faults.error("Heartbeat", 5, topic="x"), "for Heartbeat of topic 'x' would never be met"),
        (lambda: broker.faults.unload(99), "there is no partition 99; there are 0 to 7"),
    ):
        with pytest.raises(ConfigError, match=said):
            order()


def test_a_late_request_that_cannot_be_handled_ends_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*request: object) -> None:
        raise KeyError("a mistake")

    assert broker._kit is not None
    with broker.faults.delay("FindCoordinator", 0.01), Raw((broker.host, broker.port), 5) as raw:
        monkeypatch.setattr(broker._kit.faults, "_handled", broken)
        with pytest.raises(EOFError):
            raw.ask(ApiKey.FIND_COORDINATOR, 3, key="app", keyType=0)
        monkeypatch.undo()
    assert "was sent away: its request could not be handled (KeyError: 'a mistake')" in broker.log_text


def test_the_log_says_what_was_ordered(broker: Broker) -> None:
    before = len(broker.log_text)
    with broker.faults.full_disk(), broker.faults.unload(3):
        broker.clock.advance("2 s")
    said = broker.log_text[before:]
    assert "the disk is full from now on, as a fault that was ordered" in said
    assert "partition 3 of the offsets topic is let go, as a fault that was ordered" in said
    assert "the clock is advanced by 2 s, as ordered" in said
