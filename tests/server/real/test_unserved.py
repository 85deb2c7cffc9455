"""Clients that want what muster does not serve hear so at once, and so does whoever reads the server's log."""

import io
import time
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from muster.server.cluster_requests import MOST_REMEMBERED, UnservedClients
from muster.server.server_log import RateLimitedLog
from tests.server.raw import Raw

SOON_S = 60
"""Far below librdkafka's own patience, which is five minutes for a message and has no end for a group."""


def lines_of(server_log: io.StringIO, client_id: str) -> list[str]:
    return [line for line in server_log.getvalue().splitlines() if f"client {client_id!r}" in line]


def test_a_producer(broker: Broker, server_log: io.StringIO) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "my-producer"})
    for _ in range(3):
        producer.produce("orders", b"a record", on_delivery=lambda error, message: errors.append(error.code()))
    assert producer.flush(SOON_S) == 0, "it still waits"
    assert errors == [KafkaError.POLICY_VIOLATION] * 3
    (line,) = lines_of(server_log, "my-producer")
    assert "is a producer, and muster keeps no records yet: Produce is refused with POLICY_VIOLATION(44)" in line


def test_a_producer_that_wants_no_answer(broker: Broker, server_log: io.StringIO) -> None:
    with Raw((broker.host, broker.port)) as raw:
        raw.send(ApiKey.PRODUCE, 9, acks=0, timeoutMs=1_000, topicData=[])
        with pytest.raises(EOFError):
            raw.frame()
    assert "muster keeps no records" in lines_of(server_log, "raw")[0]


@pytest.mark.parametrize("version", [3, 7, 8, 12])
def test_every_partition_is_refused(broker: Broker, version: int) -> None:
    topic = {"name": "orders", "partitionData": [{"index": 0, "records": b"?"}, {"index": 7, "records": None}]}
    with Raw((broker.host, broker.port)) as raw:
        answer = raw.ask(ApiKey.PRODUCE, version, acks=-1, timeoutMs=1_000, topicData=[topic])
    (told,) = answer["responses"]
    assert [(one["index"], one["errorCode"], one["baseOffset"]) for one in told["partitionResponses"]] == [
        (0, 44, -1), (7, 44, -1),
    ]  # fmt: skip
    message = told["partitionResponses"][0]["errorMessage"]
    assert message == (
        "muster keeps no records yet: it serves consumer groups and their offsets." if version >= 8 else None
    )


def test_a_consumer_of_the_newer_group_protocol(broker: Broker, server_log: io.StringIO) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "my-consumer",
            "group.id": "newer",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + SOON_S
    error = None
    while error is None:
        assert time.monotonic() < deadline, "it waits without a word"
        try:
            message = consumer.poll(0.1)
        except KafkaException as raised:
            error = raised.args[0]
        else:
            error = None if message is None else message.error()
    assert error.code() == KafkaError._FATAL
    assert "not supported" in error.str()
    consumer.close()
    (line,) = lines_of(server_log, "my-consumer")
    assert "joins group 'newer' with group.protocol=consumer, and muster serves classic groups" in line
    assert line.endswith("Set group.protocol=classic.")


def test_many_client_ids_are_not_remembered_for_ever() -> None:
    said: list[str] = []

    class Remarks:
        def say(self, text: str, **fields: Any) -> None:
            said.append(text)

    unserved = UnservedClients(cast(RateLimitedLog, Remarks()))
    for number in range(3 * MOST_REMEMBERED):
        unserved.producer(f"client-{number}" + "x" * 1_000, "1.2.3.4:5")
        unserved.producer(f"client-{number}" + "x" * 1_000, "1.2.3.4:6")
    assert len(said) == 3 * MOST_REMEMBERED
    assert max(map(len, said)) < 600
    assert len(unserved._told) == MOST_REMEMBERED
