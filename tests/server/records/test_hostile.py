"""Producers and consumers that mean no good, or have a bug."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.codec import batches, compression
from muster.codec.batches import encode_batch
from muster.codec.error_codes import ErrorCode
from muster.codec.records import Record
from muster.errors import LogDamaged, TooLarge
from muster.log import reads
from muster.log.validation import COMPILED_WALK
from muster.protocol.apis import ApiKey
from muster.server.records.fetch import FetchAnswer, FetchRequest, PartitionAsked
from muster.server.records.fetch_sessions import FetchSessions, Visit
from tests.server.raw import Raw
from tests.server.records.talking import LIST_OFFSETS, PRODUCE, all_values, batch, fetch, produce, produce_body

ZSTD = 4
OLD_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        yield broker


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


def test_a_few_bytes_do_not_become_many(raw: Raw) -> None:
    bomb = batch("x" * (60 << 20), codec=ZSTD)
    assert len(bomb) < 10_000
    assert produce(raw, "orders", 0, bomb)[0] != 0
    assert produce(raw, "orders", 0, batch("x" * (1 << 20), codec=ZSTD))[0] == 0


def test_the_server_log_tells_of_a_batch_that_kafka_would_take(broker: Broker, raw: Raw) -> None:
    assert produce(raw, "orders", 0, batch("x" * (60 << 20), codec=ZSTD))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert "orders-0: a batch was refused with MESSAGE_TOO_LARGE: a batch of " in broker.log_text


def test_records_of_a_batch_that_cannot_be_read_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> bytes:
        raise TooLarge("zstd data unpacks to more than 5 bytes")

    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        assert produce(raw, "orders", 0, batch("plain"))[0] == 0
        assert produce(raw, "orders", 0, batch("packed", codec=ZSTD))[0] == 0
        assert len(broker.records("orders")) == 2
        monkeypatch.setattr(compression, "decompress", unreadable)
        with pytest.raises(LogDamaged, match="orders-0: the batch at offset 1 cannot be read: zstd data unpacks"):
            broker.records("orders")


def test_a_large_batch_is_searched_by_time_in_compiled_code(
    broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COMPILED_WALK.wait() is not None
    broker.create_topic("searched")
    data = encode_batch([Record(n, OLD_MS - 100_000 + n, b"k", b"v") for n in range(2_000)], codec=ZSTD)
    error, base_offset = produce(raw, "searched", 0, data)
    assert error == 0
    asked = [{"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": OLD_MS - 100_000 + 1_500}]
    body = {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "searched", "partitions": asked}]}
    monkeypatch.setattr(reads, "iter_times", lambda *_: pytest.fail("searched row by row"))
    (told,) = raw.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS, **body)["topics"][0]["partitions"]
    assert (told["errorCode"], told["offset"], told["timestamp"]) == (0, base_offset + 1_500, OLD_MS - 98_500)


def test_all_batches_of_a_request_share_what_they_may_become(raw: Raw) -> None:
    large = batch("x" * (12 << 20), codec=ZSTD)
    answer = raw.ask(ApiKey.PRODUCE, PRODUCE, **produce_body("orders", dict.fromkeys(range(4), large)))
    errors = [one["errorCode"] for one in answer["responses"][0]["partitionResponses"]]
    assert errors[:2] == [0, 0]
    assert 0 not in errors[2:]


def test_of_two_batches_for_one_partition_the_last_counts(raw: Raw) -> None:
    before = len(all_values(raw, "orders", 3))
    data = [{"index": 3, "records": batch("first")}, {"index": 3, "records": batch("last")}]
    body = {"acks": -1, "timeoutMs": 10_000, "topicData": [{"name": "orders", "partitionData": data}]}
    (told,) = raw.ask(ApiKey.PRODUCE, PRODUCE, **body)["responses"][0]["partitionResponses"]
    assert told["errorCode"] == 0
    assert all_values(raw, "orders", 3)[before:] == ["last"]


def test_any_number_may_be_a_producers_and_ids_go_on(raw: Raw) -> None:
    huge = batch("a", producer_id=2**63 - 1, producer_epoch=0, base_sequence=0)
    assert produce(raw, "orders", 1, huge)[0] == 0
    answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 4, transactionalId=None, transactionTimeoutMs=1_000)
    assert (answer["errorCode"], answer["producerId"]) == (0, 0)


def test_ids_go_on_when_such_a_producers_topic_is_gone(tmp_path: Path) -> None:
    def new_id(raw: Raw) -> tuple[int, int]:
        answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 4, transactionalId=None, transactionTimeoutMs=1_000)
        return answer["errorCode"], answer["producerId"]

    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        assert produce(raw, "orders", 0, batch("a", producer_id=2**63 - 1, producer_epoch=0, base_sequence=0))[0] == 0
        assert new_id(raw) == (0, 0)
        raw.ask(ApiKey.DELETE_TOPICS, 5, topicNames=["orders"], timeoutMs=10_000)
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        assert new_id(raw) == (0, 1000)


def test_producers_that_are_asked_for_again_and_again_fill_no_more_than_an_answer() -> None:
    with Broker(muster_max_response_bytes=65_536) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        for number in range(10):
            data = batch("a", producer_id=number, producer_epoch=0, base_sequence=0)
            assert produce(raw, "orders", 0, data)[0] == 0
        answer = raw.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "orders", "partitionIndexes": [0] * 1_000}])
        told = answer["topics"][0]["partitions"]
        assert [one["producerId"] for one in told[0]["activeProducers"]] == list(range(10))
        assert [one["errorCode"] for one in told] == [0] * 149 + [ErrorCode.POLICY_VIOLATION] * 851


def test_a_long_name_and_many_partitions_do_not_become_an_answer_of_gigabytes(raw: Raw) -> None:
    name, many = "x" * 30_000, 20_000
    partitions = [{"partitionIndex": number, "replicas": None} for number in range(many)]
    moved = raw.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": name, "partitions": partitions}])
    (topic,) = moved["responses"]
    assert {one["errorCode"] for one in topic["partitions"]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert sum(len(one["errorMessage"] or "") for one in topic["partitions"]) < 4 << 20
    raw.send(ApiKey.ELECT_LEADERS, 2, topicPartitions=[{"topic": name, "partitions": list(range(many))}])
    assert len(raw.frame()) < 8 << 20


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(1_000, 25, lambda: 0)

    def visit(session_id: int, epoch: int, numbers: range) -> Visit | ErrorCode:
        asked = tuple(PartitionAsked("made-up", bytes(16), number, 0) for number in numbers)
        return sessions.visit(FetchRequest(12, asked, session_id=session_id, session_epoch=epoch))

    def opened(numbers: range) -> int:
        found = visit(0, 0, numbers)
        assert isinstance(found, Visit)
        return found.answer(FetchAnswer(())).session_id

    first, second = opened(range(10)), opened(range(10))
    assert first
    assert second
    assert opened(range(10)) == 0
    assert visit(first, 1, range(10, 30)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it would be too large"
    assert opened(range(10)) != 0, "its room is free again"


def test_a_session_that_nobody_uses_makes_room_for_others() -> None:
    now_ms = 0
    sessions = FetchSessions(1_000, 25, lambda: now_ms)

    def opened(count: int) -> int:
        asked = tuple(PartitionAsked("orders", bytes(16), number, 0) for number in range(count))
        visit = sessions.visit(FetchRequest(12, asked, session_epoch=0))
        assert isinstance(visit, Visit)
        return visit.answer(FetchAnswer(())).session_id

    assert opened(25)
    assert not opened(1)
    now_ms = 3_600_000
    assert opened(1)


def test_a_record_of_a_million_headers_is_found_by_its_time_without_looking_at_them(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = OLD_MS
    bomb = encode_batch([Record(0, now_ms, b"key", b"value", (("", b""),) * 1_000_000)], codec=ZSTD)
    assert produce(raw, "orders", 2, bomb)[0] == 0
    asked = [{"partitionIndex": 2, "currentLeaderEpoch": -1, "timestamp": now_ms}]
    body = {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "orders", "partitions": asked}]}
    monkeypatch.setattr(batches, "_headers", lambda _: pytest.fail("headers were looked at"))
    (told,) = raw.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS, **body)["topics"][0]["partitions"]
    assert (told["errorCode"], told["timestamp"]) == (0, now_ms)


def test_one_partition_that_cannot_be_read_is_that_partitions_error(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders", partitions=2, configs={"segment.ms": "1"})
        for partition in (0, 1):
            for number in range(3):
                assert produce(raw, "orders", partition, batch("x", timestamp_ms=OLD_MS + 100 * number))[0] == 0
        os.truncate(tmp_path / "data" / "orders-0" / f"{0:020}.log", 30)
        asked = [{"partitionIndex": n, "currentLeaderEpoch": -1, "timestamp": OLD_MS} for n in (0, 1)]
        body = {"replicaId": -1, "isolationLevel": 0, "topics": [{"name": "orders", "partitions": asked}]}
        answer = raw.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS, **body)
        errors = [one["errorCode"] for one in answer["topics"][0]["partitions"]]
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert fetch(raw, "orders", 0, 0)["errorCode"] == ErrorCode.KAFKA_STORAGE_ERROR
        assert all_values(raw, "orders", 1) == ["x"] * 3


def test_directories_beside_a_topic_that_were_left_alone_outlive_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data=data) as broker:
        broker.create_topic("orders")
    (data / "orders-7").mkdir()
    (data / "orders-7" / "mine").write_text("somebody's copy")
    with Broker(data=data) as broker, Raw((broker.host, broker.port)) as raw:
        raw.ask(ApiKey.DELETE_TOPICS, 5, topicNames=["orders"], timeoutMs=10_000)
    assert sorted(path.name for path in data.glob("orders-*")) == ["orders-7"]
