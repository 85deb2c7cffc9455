"""Partitions of the offsets topic unload and load again under clients that stay connected."""

import io
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from muster.broker import Broker
from muster.codec import partition_for
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, commit_body, fetch_offsets

WAIT_S = 30.0
NOT_COORDINATOR, LOADING = 16, 14


def in_loop(broker: Broker, work: Callable[[Any], None]) -> None:
    """Do something with the server in its own thread."""
    assert broker._loop is not None
    done: list[bool] = []
    broker._loop.call_soon_threadsafe(lambda: (work(broker._server), done.append(True)))
    deadline = time.monotonic() + WAIT_S
    while not done:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_consumer_carries_on_over_twenty_moves() -> None:
    with Broker(log=io.StringIO()) as broker:
        broker.create_topic("orders", 4)
        partition = partition_for("moving", 8)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "moving",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 10,  # who coordinates is asked behind a fetch, on the same connection
            }
        )
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + WAIT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        led = broker._server.parts.led_partitions.by_number[partition]  # type: ignore[union-attr]
        assert led.coordinator is not None
        generation = led.coordinator.groups["moving"].seats.generation
        acknowledged, refusals = -1, 0
        for number in range(200):
            if number % 10 == 0:
                in_loop(broker, lambda server: server.parts.leadership.resign(partition))
            if number % 10 == 1:
                in_loop(broker, lambda server: server.parts.leadership.elect(partition))
            try:
                consumer.commit(offsets=[TopicPartition("orders", 0, number)], asynchronous=False)
                acknowledged = number
            except KafkaException:
                refusals += 1
            consumer.poll(0.01)
            assert time.monotonic() < deadline + WAIT_S
        in_loop(broker, lambda server: server.parts.leadership.elect(partition))
        assert consumer.committed([TopicPartition("orders", 0)], timeout=10)[0].offset >= acknowledged > 100
        assert led.epoch > 20
        assert led.coordinator is not None
        assert led.coordinator.groups["moving"].seats.generation == generation, "no member had to rebalance"
        consumer.close()


def test_what_a_client_hears_while_a_partition_moves() -> None:
    with Broker(log=io.StringIO()) as broker:
        broker.create_topic("orders", 4)
        partition = partition_for("raw", 8)
        with Raw((broker.host, broker.port)) as raw:
            assert commit(raw, 1) == 0
            in_loop(broker, lambda server: server.parts.leadership.resign(partition))
            assert commit(raw, 2) == NOT_COORDINATOR
            assert fetch_offsets(raw, "raw")[0] == NOT_COORDINATOR
            in_loop(
                broker, lambda server: server.parts.led_partitions.router.elect(partition, 99)
            )  # elected, and the load takes its time
            assert commit(raw, 3) == LOADING
            assert fetch_offsets(raw, "raw")[0] == LOADING
            in_loop(broker, lambda server: setattr(server.parts.led_partitions.by_number[partition], "epoch", 99))
            in_loop(broker, lambda server: server.parts.leadership.elect(partition))
            deadline = time.monotonic() + WAIT_S
            while (found := fetch_offsets(raw, "raw"))[0] == LOADING:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert found == (0, {("orders", 0): 1})
            assert commit(raw, 4) == 0


def commit(raw: Raw, offset: int) -> int:
    answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("raw", "orders", {0: offset}))
    error: int = answer["topics"][0]["partitions"][0]["errorCode"]
    return error
