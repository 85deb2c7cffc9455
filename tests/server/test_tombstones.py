"""Deletions that are larger than a batch of the log may be, over the wire, on a real log."""

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.codec.partitioning import partition_for
from muster.protocol.apis import ApiKey
from muster.server.control import ask
from tests.server.raw import Raw, commit_body, fetch_offsets, wait_until_loaded

TOPIC = "t" * 240
PARTITIONS = 60


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def broker(log: io.StringIO, tmp_path: Path) -> Iterator[Broker]:
    """Its batches hold a few tombstones each."""
    settings = {"message.max.bytes": 2_000, "log.cleaner.backoff.ms": 10_000}
    with Broker(data=tmp_path / "data", log=log, settings=settings) as running:
        running.create_topic(TOPIC, PARTITIONS)
        yield running


def committed(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    with Raw((broker.host, broker.port)) as raw:
        for partition in range(PARTITIONS):
            answer = raw.ask(ApiKey.OFFSET_COMMIT, 9, **commit_body(group, TOPIC, {partition: partition}))
            assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
        error, offsets = fetch_offsets(raw, group)
    assert not error
    assert len(offsets) == PARTITIONS
    return offsets


def test_a_group_is_deleted_with_all_its_offsets_and_stays_deleted(
    broker: Broker, log: io.StringIO, tmp_path: Path
) -> None:
    committed(broker, "large")
    with Raw((broker.host, broker.port)) as raw:
        deleted = raw.ask(ApiKey.DELETE_GROUPS, 2, groupsNames=["large"])
        assert deleted["results"][0]["errorCode"] == 0
        assert fetch_offsets(raw, "large") == (0, {})
        assert raw.ask(ApiKey.LIST_GROUPS, 2)["groups"] == []
    broker.stop()
    assert "group large: removed" in log.getvalue()
    with Broker(data=tmp_path / "data") as again, Raw((again.host, again.port)) as raw:
        assert fetch_offsets(raw, "large") == (0, {})
        assert raw.ask(ApiKey.LIST_GROUPS, 2)["groups"] == []


def test_the_offsets_of_a_deleted_topic_are_gone(broker: Broker) -> None:
    committed(broker, "large")
    with Raw((broker.host, broker.port)) as raw:
        topics = [{"name": TOPIC, "topicId": bytes(16)}]
        deleted = raw.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeoutMs=20_000)
        assert deleted["responses"][0]["errorCode"] == 0
        assert fetch_offsets(raw, "large") == (0, {})


def test_the_offsets_of_a_topic_that_is_deleted_while_their_partition_is_unloaded_are_gone_when_it_is_loaded(
    broker: Broker, tmp_path: Path
) -> None:
    """And those of a new topic of that name are not."""
    committed(broker, "large")
    data, address = tmp_path / "data", (broker.host, broker.port)
    partition = partition_for("large", broker._server.parts.led_partitions.router.partitions)  # type: ignore[union-attr]
    assert asyncio.run(ask(data, {"do": "unload", "partition": partition}))["offsets"] == PARTITIONS
    with Raw(address) as raw:
        topics = [{"name": TOPIC, "topicId": bytes(16)}]
        deleted = raw.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeoutMs=20_000)
        assert deleted["responses"][0]["errorCode"] == 0
        broker.create_topic(TOPIC, 2)
        asyncio.run(ask(data, {"do": "load", "partition": partition}))
        assert wait_until_loaded(address, "large") == {}
        raw.ask(ApiKey.OFFSET_COMMIT, 9, **commit_body("large", TOPIC, {1: 5}))
        for what in ("unload", "load"):
            asyncio.run(ask(data, {"do": what, "partition": partition}))
        assert wait_until_loaded(address, "large") == {(TOPIC, 1): 5}
    broker.stop()
    with Broker(data=data) as again:
        assert wait_until_loaded((again.host, again.port), "large") == {(TOPIC, 1): 5}
