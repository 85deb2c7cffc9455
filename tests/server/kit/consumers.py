"""Consumers of the tests: confluent-kafka's, with the settings that make them quick."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer

from muster.broker import Broker


@contextmanager
def consumer(broker: Broker, group: str, *topics: str, **settings: Any) -> Iterator[Consumer]:
    made = Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 100,
        "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    })  # fmt: skip
    made.subscribe(list(topics))
    try:
        yield made
    finally:
        made.close()


def values(one: Consumer, count: int, polls: int = 200) -> list[bytes]:
    """The values of the next records, or of fewer if they do not come."""
    got: list[bytes] = []
    for _ in range(polls):
        message = one.poll(0.1)
        if message is not None and message.error() is None:
            got.append(message.value())
            if len(got) == count:
                break
    return got
