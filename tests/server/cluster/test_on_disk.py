"""Requests about the cluster to a server with a disk."""

from collections.abc import Iterator

import pytest

import muster
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw


@pytest.fixture(scope="module")
def broker() -> Iterator[muster.Broker]:
    with muster.Broker() as broker:
        broker.create_topic("a")
        yield broker


@pytest.fixture
def raw(broker: muster.Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


@pytest.mark.parametrize(("epoch", "expected"), [(-1, (-1, -1)), (0, (0, 0)), (1, (-1, -1))])
def test_where_an_epoch_of_a_log_on_disk_ends(raw: Raw, epoch: int, expected: tuple[int, int]) -> None:
    """As Kafka answers, `test_kafka_offsets.py` shows: no epoch has no end."""
    asked = {"topic": "a", "partitions": [{"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": epoch}]}
    answer = raw.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replicaId=-1, topics=[asked])
    (one,) = answer["topics"][0]["partitions"]
    assert (one["errorCode"], one["leaderEpoch"], one["endOffset"]) == (0, *expected)
