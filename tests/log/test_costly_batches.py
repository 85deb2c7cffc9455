"""Batches of a client that are small as they come, and much work: bounded, and whatever is taken can be read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec import compression
from muster.codec.batches import assembled, decode_records, encode_batch, encode_records, iter_records, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import varint
from muster.codec.records import Record
from muster.log import validation
from muster.log.config import LogConfig
from muster.log.packing import repacked
from muster.log.validation import TooCostly, UnpackBudget, checked_client_batch

T = 1_800_000_000_000
GZIP, ZSTD = 1, 4
deltas = st.integers(-(10**12), 10**12)


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = validation._CompiledWalk()
    monkeypatch.setattr(walk, "load", lambda: None)
    monkeypatch.setattr(validation, "COMPILED_WALK", walk)


def repacked_records(data: bytes, budget: UnpackBudget, **config: Any) -> tuple[int, list[Record]]:
    """The base timestamp of the batch packed again, and what a reader finds in it."""
    batch = checked_client_batch(data, LogConfig(**config), T, budget)
    packed = repacked(batch, LogConfig(recompress_to=GZIP), budget)
    header = read_header(packed.data)
    assert header.codec == GZIP
    return header.base_timestamp_ms, decode_records(packed.data, 0, header)


@given(deltas, st.lists(st.tuples(deltas, st.none() | st.binary(max_size=200)), min_size=1, max_size=5))
def test_times_are_counted_from_the_first_record(base: int, rows: list[tuple[int, bytes | None]]) -> None:
    records = [Record(n, T + d, b"k", v, (("h", v),)) for n, (d, v) in enumerate(rows)]
    data = encode_batch(records, base_timestamp_ms=T + base)
    config = LogConfig(timestamp_after_max_ms=10**13)
    packed = repacked(checked_client_batch(data, config, T), LogConfig(recompress_to=ZSTD), UnpackBudget())
    assert packed.header.base_timestamp_ms == records[0].timestamp_ms
    assert bytes(packed.body) == encode_records(records, 0, records[0].timestamp_ms)
    assert list(iter_records(packed.header, packed.body)) == records


def test_headers_are_not_looked_at_to_count_times_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(0, T, b"k", b"v", (("", b""),) * 1_000), Record(1, T, b"k", b"v")]
    data = encode_batch(records, base_timestamp_ms=T - 1, codec=ZSTD)
    monkeypatch.setattr(validation, "iter_records", lambda *_: pytest.fail("records were decoded"))
    assert repacked_records(data, UnpackBudget()) == (T, records)


def test_of_very_many_records_times_stay_as_the_client_counted_them() -> None:
    records = [Record(number, T, b"k", b"v") for number in range(50)]
    data = encode_batch(records, base_timestamp_ms=T - 1)
    batch, budget = checked_client_batch(data, LogConfig(), T), UnpackBudget()
    budget.rows_left = 120
    found = [repacked(batch, LogConfig(recompress_to=GZIP), budget).header.base_timestamp_ms for _ in range(3)]
    assert found == [T, T, T - 1], "the batches of a request share what may be done"
    budget.rows_left = 0
    assert (
        list(iter_records((last := repacked(batch, LogConfig(recompress_to=GZIP), budget)).header, last.body))
        == records
    )


@pytest.mark.parametrize(
    ("base", "first", "second"), [(0, -(1 << 62) - 5, (1 << 62) + 5), (-1, 1 - (1 << 63), 1 << 62)]
)
def test_times_too_far_apart_for_64_bits(base: int, first: int, second: int) -> None:
    records = [b"\0" + varint(delta) + varint(n) + b"\x01\x01\x00" for n, delta in enumerate((first, second))]
    header = read_header(encode_batch([Record(0, T, None, None), Record(1, T, None, None)]))
    data = assembled(header, 0, base, base, 2, b"".join(varint(len(one)) + one for one in records))
    base_ms, found = repacked_records(data, UnpackBudget(), log_append_time=True)
    assert (base_ms, [one.timestamp_ms for one in found]) == (base, [base + first, base + second])


@pytest.mark.usefixtures("without_numba")
def test_without_numba_a_batch_of_very_many_headers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MOST_ROW_BY_ROW", 500)
    data = encode_batch([Record(0, T, b"k", b"v", (("", b""),) * 300)], codec=ZSTD)
    budget = UnpackBudget()
    checked_client_batch(data, LogConfig(), T, budget)
    with pytest.raises(TooCostly, match=r"muster\[columns\]") as refused:
        checked_client_batch(data, LogConfig(), T, budget)
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.usefixtures("without_numba")
def test_without_numba_a_megabyte_of_small_records_is_taken() -> None:
    body = b"".join(
        varint(len(one)) + one for one in (b"\0\0" + varint(n) + b"\x01" + varint(4) + b"abcd\0" for n in range(60_000))
    )
    header = read_header(encode_batch([Record(0, T, None, None)]))._replace(last_offset=59_999)
    budget = UnpackBudget()
    for _ in range(3):
        checked_client_batch(assembled(header, 0, T, T, 60_000, body), LogConfig(), T, budget)


def test_what_readers_would_not_unpack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "DEFAULT_LIMIT", 10_000)
    large = [Record(0, T, b"k", bytes(10_001))]
    with pytest.raises(TooCostly, match="unpacks to more than 10000 bytes"):
        checked_client_batch(encode_batch(large, codec=ZSTD), LogConfig(), T)
    plain = checked_client_batch(encode_batch(large), LogConfig(), T)
    with pytest.raises(TooCostly, match="to be packed"):
        repacked(plain, LogConfig(recompress_to=ZSTD), UnpackBudget())


def test_only_what_is_unpacked_makes_room_for_more() -> None:
    budget = UnpackBudget()
    checked_client_batch(encode_batch([Record(0, T, b"k", bytes(500_000))]), LogConfig(), T, budget)
    assert budget.bytes_left == validation.UNPACKED_BYTES
    data = encode_batch([Record(0, T, b"k", bytes(40 << 20))], codec=ZSTD)
    with pytest.raises(TooCostly):
        checked_client_batch(data, LogConfig(), T, budget)
    assert budget.bytes_left == validation.UNPACKED_BYTES
