"""Batches that are packed again in a thread: in order, and nobody else waits for them."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.batches import iter_batches
from muster.codec.error_codes import ErrorCode
from muster.log import packing as log_packing
from muster.log.config import LogConfig
from muster.log.packing import takes_long
from muster.log.partition import DiskLog
from muster.log.validation import AppendRefused, ClientBatch, UnpackBudget
from muster.protocol.apis import ApiKey
from muster.server.records import data_partitions, packing
from tests.server.raw import Raw
from tests.server.records.talking import PRODUCE, all_values, batch, fetch, produce, produce_body

ZSTD = 4
PACKED = {"compression.type": "zstd", "compression.zstd.level": "19"}
LARGE = "x" * 20_000
"""Of which a batch is packed in a thread."""
TIMEOUT_S = 60


class SlowCodec:
    """Stands before the codec: batches are packed when `go_on` lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.began = threading.Semaphore(0)
        monkeypatch.setattr(data_partitions, "repacked", self._repacked)

    def _repacked(self, *given: Any) -> Any:
        self.began.release()
        assert self.go_on.wait(TIMEOUT_S)
        return log_packing.repacked(*given)

    def wait_for_one(self) -> None:
        assert self.began.acquire(timeout=TIMEOUT_S)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCodec]:
    codec = SlowCodec(monkeypatch)
    yield codec
    codec.go_on.set()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("packed", partitions=2, configs=PACKED)
        broker.create_topic("plain")
        yield broker


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


def send(raw: Raw, records: bytes, partition: int = 0, **more: Any) -> int:
    return raw.send(ApiKey.PRODUCE, PRODUCE, **produce_body("packed", {partition: records}, **more))


def heard(raw: Raw) -> tuple[int, int]:
    (told,) = raw.hear(ApiKey.PRODUCE, PRODUCE)[1]["responses"][0]["partitionResponses"]
    return told["errorCode"], told["baseOffset"]


def numbered(sequence: int, text: str) -> bytes:
    return batch(text, producer_id=7, producer_epoch=0, base_sequence=sequence)


def codecs(raw: Raw, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [read.header.codec for read in iter_batches(fetch(raw, "packed", 0, len(found))["records"])]
    return found


def test_others_are_served_while_a_batch_is_packed(broker: Broker, raw: Raw, slow: SlowCodec) -> None:
    send(raw, batch(LARGE))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as other:
        assert produce(other, "plain", 0, batch("a")) == (0, 0)
        assert all_values(other, "plain", 0) == ["a"]
        assert fetch(other, "packed", 0, 0)["highWatermark"] == 0, "nothing of it is in the log yet"
        slow.go_on.set()
        assert heard(raw) == (0, 0)
        assert all_values(other, "packed", 0) == [LARGE]
        assert codecs(other, 1) == [ZSTD]


def test_batches_of_a_log_keep_their_order_whoever_sends_them(broker: Broker, raw: Raw, slow: SlowCodec) -> None:
    """Those that need no packing too: one is packed already, one is small."""
    send(raw, batch("1" + LARGE))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as other:
        numbers = [
            send(other, batch("2" + LARGE, codec=ZSTD)),
            send(other, batch("3")),
            send(other, batch("4" + LARGE)),
        ]
        other.send(ApiKey.API_VERSIONS, 0)
        slow.go_on.set()
        assert heard(raw) == (0, 0)
        answers = [other.hear(ApiKey.PRODUCE, PRODUCE) for _ in numbers]
        assert [number for number, _ in answers] == numbers
        offsets = [answer["responses"][0]["partitionResponses"][0]["baseOffset"] for _, answer in answers]
        assert offsets == [1, 2, 3]
        other.hear(ApiKey.API_VERSIONS, 0)
    assert [value[0] for value in all_values(raw, "packed", 0)] == ["1", "2", "3", "4"]


def test_sequences_are_those_of_the_log_when_a_batch_is_appended(broker: Broker, raw: Raw, slow: SlowCodec) -> None:
    send(raw, numbered(0, LARGE))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as again:
        for sequence, text in ((0, LARGE), (1, "next"), (3, "gap"), (2, LARGE)):
            send(again, numbered(sequence, text))
        slow.go_on.set()
        assert heard(raw) == (0, 0)
        told = [heard(again) for _ in range(4)]
    assert told == [(0, 0), (0, 1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 2)]
    assert all_values(raw, "packed", 0) == [LARGE, "next", LARGE]


def test_a_log_does_not_wait_for_another_ones_batches(monkeypatch: pytest.MonkeyPatch, slow: SlowCodec) -> None:
    monkeypatch.setattr(packing.os, "cpu_count", lambda: 3)
    with Broker() as broker, Raw((broker.host, broker.port)) as raw, Raw((broker.host, broker.port)) as other:
        broker.create_topic("packed", partitions=2, configs=PACKED)
        for _ in range(3):
            send(raw, batch(LARGE), 0)
        send(other, batch(LARGE), 1)
        slow.wait_for_one()
        slow.wait_for_one()
        assert not slow.began.acquire(blocking=False), "of each log one at a time"
        slow.go_on.set()
        assert [heard(raw) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        assert heard(other) == (0, 0)


def test_a_producer_of_a_topic_that_is_deleted_meanwhile_is_told(broker: Broker, raw: Raw, slow: SlowCodec) -> None:
    send(raw, batch(LARGE))
    send(raw, batch("behind"))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as admin:
        admin.ask(ApiKey.DELETE_TOPICS, 5, topicNames=["packed"], timeoutMs=10_000)
        assert [heard(raw)[0] for _ in range(2)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        broker.create_topic("packed", configs=PACKED)
        slow.go_on.set()
        assert produce(admin, "packed", 0, batch("new")) == (0, 0)
        assert all_values(admin, "packed", 0) == ["new"]


def test_one_who_wants_no_answer_is_sent_away_when_its_batch_is_refused_in_the_end(
    broker: Broker, raw: Raw, slow: SlowCodec
) -> None:
    send(raw, batch(LARGE))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as careless:
        send(careless, numbered(0, "taken"), acks=0)
        send(careless, numbered(5, "gap"), acks=0)
        slow.go_on.set()
        with pytest.raises(EOFError):
            careless.frame()
    assert heard(raw) == (0, 0)
    assert all_values(raw, "packed", 0) == [LARGE, "taken"]
    assert "was refused with OUT_OF_ORDER_SEQUENCE_NUMBER" in broker.log_text


def test_where_too_much_waits_requests_stay_with_their_connections(
    broker: Broker, raw: Raw, slow: SlowCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_WAITING_BYTES", 30_000)
    assert broker._server is not None
    waiting = broker._server.parts.data_partitions.packing
    for _ in range(10):
        send(raw, batch(LARGE))
    slow.wait_for_one()
    with Raw((broker.host, broker.port)) as other:
        send(other, batch("small"))
        with Raw((broker.host, broker.port)) as third:
            assert produce(third, "plain", 0, batch("a")) == (0, 0)
            assert len(waiting) <= 3
        slow.go_on.set()
        assert [heard(raw)[0] for _ in range(10)] == [0] * 10
        assert heard(other)[0] == 0
    assert sorted(all_values(raw, "packed", 0)) == ["small", *[LARGE] * 10]
    assert (len(waiting), waiting._waiting_bytes) == (0, 0)


def test_a_codec_that_fails_is_that_batchs_error(broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise ValueError("a mistake of ours")

    with monkeypatch.context() as broken:
        broken.setattr(data_partitions, "repacked", mistaken)
        assert produce(raw, "packed", 0, batch(LARGE)) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert produce(raw, "packed", 0, batch(LARGE)) == (0, 0)
    assert "a mistake of ours" in broker.log_text


def test_a_server_that_stops_does_not_wait_for_long(tmp_path: Path, slow: SlowCodec) -> None:
    """What was not answered may be lost; what was is there."""
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("packed", configs=PACKED)
        assert produce(raw, "packed", 0, batch("small")) == (0, 0)
        send(raw, batch(LARGE))
        slow.wait_for_one()
    slow.go_on.set()
    with Broker(data=tmp_path / "data") as broker, Raw((broker.host, broker.port)) as raw:
        assert all_values(raw, "packed", 0) == ["small"]


def test_the_place_of_a_batch_is_looked_at_again_when_it_is_packed(tmp_path: Path) -> None:
    """A producer with a newer epoch may have come meanwhile, or the same batch in another way."""
    log = DiskLog.open(tmp_path / "orders-0", LogConfig(recompress_to=ZSTD))
    budget, now_ms = UnpackBudget(), int(time.time() * 1000)
    first, second = (log.check_batch(numbered(sequence, "text"), now_ms, budget) for sequence in (0, 0))
    assert isinstance(first, ClientBatch)
    assert isinstance(second, ClientBatch)
    assert log.append_packed(first, now_ms).base_offset == 0
    assert log.append_packed(second, now_ms).base_offset == 0, "it is there already"
    late = log.check_batch(numbered(1, "late"), now_ms, budget)
    assert isinstance(late, ClientBatch)
    log.append_batch(batch("newer", producer_id=7, producer_epoch=1, base_sequence=0), now_ms)
    with pytest.raises(AppendRefused) as refused:
        log.append_packed(late, now_ms)
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 2
    log.close()


@pytest.mark.parametrize(
    ("codec", "level", "size_bytes", "is_long"),
    [
        (None, None, 10 << 20, False), (0, None, 10 << 20, False), (ZSTD, 19, 1_000, False), (ZSTD, 19, 20_000, True),
        (ZSTD, 3, 100_000, False), (ZSTD, 3, 1 << 20, True), (2, None, 500_000, False), (1, 1, 500_000, True),
        (3, 1, 400_000, False), (3, 9, 400_000, True),
    ],
)  # fmt: skip
def test_what_takes_long(codec: int | None, level: int | None, size_bytes: int, is_long: bool) -> None:
    config = LogConfig(recompress_to=codec, compression_level=level)
    assert takes_long(memoryview(batch("x" * size_bytes)), config) is is_long
    if codec is not None:
        assert not takes_long(memoryview(batch("x" * size_bytes, codec=codec)), config)
