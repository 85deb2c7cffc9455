"""A broker for the clients of other people."""

import io
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from muster.broker import Broker


@pytest.fixture(scope="module")
def server_log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(scope="module")
def broker(server_log: io.StringIO) -> Iterator[Broker]:
    with Broker(log=server_log) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic("orders", 6), NewTopic("payments", 3)]).values():
            future.result(10)
        yield running
