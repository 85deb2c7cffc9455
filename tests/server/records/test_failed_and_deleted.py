"""Logs whose disk fails are opened again, beside topics that are deleted and made anew."""

import io
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.batches import read_header
from muster.codec.error_codes import ErrorCode
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from muster.server.records import data_partitions
from tests.server.raw import Raw
from tests.server.records.talking import LATEST, LIST_OFFSETS, all_values, batch, fetch, produce

KEY = TopicPartition("orders", 0)
LONG_ENOUGH_S = 30


class World:
    """A broker with one topic, whose disk can be broken."""

    def __init__(self, broker: Broker, raw: Raw) -> None:
        self.broker, self.raw = broker, raw
        assert broker._server is not None
        self.parts = broker._server.parts
        self.directory: LogDirectory = self.parts.directory
        self.opened_again = self.directory.open_again

    @property
    def log(self) -> DiskLog:
        return self.directory.logs[KEY]

    def fill_the_disk(self) -> None:
        """The next write fails, and is answered so."""

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.log._active.append = full  # type: ignore[method-assign, assignment]
        assert self.produced("lost") == ErrorCode.KAFKA_STORAGE_ERROR

    def produced(self, value: str) -> int:
        return produce(self.raw, KEY.topic, KEY.partition, batch(value))[0]

    def values(self) -> list[str]:
        return all_values(self.raw, KEY.topic, KEY.partition)

    def asks_to_delete(self) -> None:
        self.raw.send(ApiKey.DELETE_TOPICS, 5, topicNames=[KEY.topic], timeoutMs=10_000)

    def hears_of_it(self) -> None:
        assert self.raw.hear(ApiKey.DELETE_TOPICS, 5)[1]["responses"][0]["errorCode"] == 0

    def made_anew(self) -> None:
        self.asks_to_delete()
        self.hears_of_it()
        self.broker.create_topic(KEY.topic)

    def nothing_is_being_opened(self) -> bool:
        return not self.parts.data_partitions._openings


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_ENOUGH_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def world(said: io.StringIO) -> Iterator[World]:
    with Broker(log=said) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(KEY.topic)
        world = World(broker, raw)
        assert world.produced("old") == 0
        yield world


def test_opening_is_tried_until_it_works(world: World, said: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_partitions, "FIRST_PAUSE_S", 0.01)
    tries = []

    def open_again(key: TopicPartition) -> DiskLog:
        tries.append(key)
        if len(tries) < 3:
            raise OSError(24, "Too many open files")
        return world.opened_again(key)

    monkeypatch.setattr(world.directory, "open_again", open_again)
    world.fill_the_disk()
    until(world.nothing_is_being_opened)
    assert world.produced("new") == 0
    assert world.values() == ["old", "new"]
    assert len(tries) == 3
    assert said.getvalue().count("Too many open files") == 1


def test_a_topic_made_anew_keeps_its_own_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one's disk failed, and its log was still to be opened again."""
    monkeypatch.setattr(data_partitions, "FIRST_PAUSE_S", 0.4)
    world.fill_the_disk()
    world.made_anew()
    healthy = world.log
    assert world.produced("new-0") == 0
    until(world.nothing_is_being_opened)
    assert world.log is healthy
    assert world.produced("new-1") == 0
    assert world.values() == ["new-0", "new-1"]


def test_a_topic_is_not_deleted_under_a_log_that_is_being_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_partitions, "FIRST_PAUSE_S", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    def slow(key: TopicPartition) -> DiskLog:
        log = world.opened_again(key)
        begun.set()
        assert go_on.wait(LONG_ENOUGH_S)
        return log

    monkeypatch.setattr(world.directory, "open_again", slow)
    world.fill_the_disk()
    assert begun.wait(LONG_ENOUGH_S)
    world.asks_to_delete()
    assert not select([world.raw.socket], [], [], 0.3)[0], "it waits"
    go_on.set()
    world.hears_of_it()
    world.broker.create_topic(KEY.topic)
    assert [world.produced(f"new-{number}") for number in range(3)] == [0, 0, 0]
    assert world.values() == ["new-0", "new-1", "new-2"]
    assert world.log.directory.exists()


def test_a_topic_that_is_being_deleted_has_no_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who heard OFFSET_OUT_OF_RANGE instead would begin anew, and a lag would be measured to offset 0."""
    go_on = threading.Event()
    removed = world.directory.remove_topics

    def slow(*arguments: Any) -> Any:
        assert go_on.wait(LONG_ENOUGH_S)
        return removed(*arguments)

    monkeypatch.setattr(world.directory, "remove_topics", slow)
    world.asks_to_delete()
    until(lambda: KEY not in world.directory.logs)
    with Raw((world.broker.host, world.broker.port)) as other:
        assert fetch(other, KEY.topic, KEY.partition, 1)["errorCode"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert latest(other)["errorCode"] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produce(other, KEY.topic, KEY.partition, batch("late"))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        go_on.set()
        world.hears_of_it()
        assert latest(other)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def latest(raw: Raw) -> Any:
    partition = {"partitionIndex": KEY.partition, "currentLeaderEpoch": -1, "timestamp": LATEST}
    asked = [{"name": KEY.topic, "partitions": [partition]}]
    answer = raw.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS, replicaId=-1, isolationLevel=0, topics=asked)
    return answer["topics"][0]["partitions"][0]


def test_a_producer_waits_no_longer_than_it_wants_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(muster_flush="always") as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(KEY.topic)
        world = World(broker, raw)
        with monkeypatch.context() as stuck:
            stuck.setattr(world.parts.flusher, "flush_each", lambda logs: None)
            heard = produce(raw, KEY.topic, KEY.partition, batch("a"), timeout_ms=1)
            assert heard == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert world.produced("b") == 0
        assert world.values() == ["a", "b"]


def test_readers_notice_that_a_log_was_cut_behind_them(tmp_path: Path) -> None:
    """A power cut takes a record that a reader has, and others come in its place: the epoch is another one then."""
    before, after = tmp_path / "before", tmp_path / "after"
    with Broker(data=before) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(KEY.topic)
        world = World(broker, raw)
        assert [world.produced(value) for value in ("a", "b")] == [0, 0]
        shutil.copytree(before, after)
    path = after / str(KEY) / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[: read_header(data).size_bytes])
    for epoch in (1, 1):  # stopped cleanly in between
        with Broker(data=after) as broker, Raw((broker.host, broker.port)) as raw:
            assert latest(raw)["leaderEpoch"] == epoch
            assert produce(raw, KEY.topic, KEY.partition, batch("c"))[0] == 0
            partition = {"partition": 0, "fetchOffset": 2, "lastFetchedEpoch": 0, "partitionMaxBytes": 1 << 20}
            told = fetch(raw, KEY.topic, 0, 2, topics=[{"topic": KEY.topic, "partitions": [partition]}])
            assert told["divergingEpoch"] == {"epoch": 0, "endOffset": 1}
            assert not told["records"]
