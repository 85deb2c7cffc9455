"""A real broker for the tests of this folder, and muster beside it with the same settings.

    judge    Kafka's own message definitions
    pair     both, asked the same; `tests.server.cluster.pair` tells how

One broker for the whole folder, with settings of its own: topics are made by being asked for, and some defaults of
topics are not Kafka's.
"""

from collections.abc import Iterator

import pytest

from muster.server.settings import settings_from
from tests.kit.kafka import BROKER_DEFAULTS, KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.cluster.pair import Pair

SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "log.retention.hours": "5",
    "log.roll.ms": "7200000",
    "log.roll.hours": "3",
    "log.cleanup.policy": "compact,delete",
    "log.segment.bytes": "20000000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "message.max.bytes": "2000000",
    "max.request.partition.size.limit": "7",
}


@pytest.fixture(scope="session")
def judge() -> Messages:
    return Messages(require_kafka())


@pytest.fixture(scope="package")
def pair(judge: Messages) -> Iterator[Pair]:
    with KafkaBroker(require_kafka(), settings=SETTINGS) as broker:
        settings = settings_from(BROKER_DEFAULTS | SETTINGS | {"muster.max.partitions": "1000000"})
        both = Pair(broker, judge, settings.broker, settings.groups)
        yield both
        both.kafka.close()
