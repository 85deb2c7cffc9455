"""Clients that want what muster does not serve hear so at once, and so does whoever reads the server's log."""

import io
import time
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException

from muster.broker import Broker
from muster.server.cluster_requests import MOST_REMEMBERED, UnservedClients
from muster.server.server_log import RateLimitedLog

SOON_S = 60
"""Far below librdkafka's own patience, which is five minutes for a message and has no end for a group."""


def lines_of(server_log: io.StringIO, client_id: str) -> list[str]:
    return [line for line in server_log.getvalue().splitlines() if f"client {client_id!r}" in line]


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
        unserved.newer_consumer(f"client-{number}" + "x" * 1_000, "1.2.3.4:5", "group")
        unserved.newer_consumer(f"client-{number}" + "x" * 1_000, "1.2.3.4:6", "group")
    assert len(said) == 3 * MOST_REMEMBERED
    assert max(map(len, said)) < 600
    assert len(unserved._told) == MOST_REMEMBERED
