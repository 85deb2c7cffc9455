"""A broker for the clients of other people; and for Java's a Kafka beside it, one pair for all files."""

import io
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from muster.broker import Broker
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.real.java_groups import Pair, pair_of

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
}


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


@pytest.fixture(scope="package")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    kafka = require_kafka()
    data = tmp_path_factory.mktemp("java") / "data"
    with KafkaBroker(kafka, SETTINGS) as theirs, Broker(data=data, settings=SETTINGS) as ours:
        yield pair_of(kafka, theirs, ours, Messages(kafka))
