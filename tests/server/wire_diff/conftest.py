"""A real broker and a muster server side by side, one pair for the folder: `both`, as `talk` describes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.broker import Broker
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.wire_diff.talk import Both

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TOPICS = {"orders": 3, "payments": 2}


@pytest.fixture(scope="package")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    data: Path = tmp_path_factory.mktemp("wire_diff") / "data"
    kafka = require_kafka()
    with KafkaBroker(kafka, SETTINGS) as theirs, Broker(data=data, settings=SETTINGS) as ours:
        host, port = theirs.bootstrap.rsplit(":", 1)
        yield Both(Messages(kafka), (host, int(port)), (ours.host, ours.port), TOPICS)
