"""The compiled walk over a client's records and the plain one find the same."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.codec.batches import HEADER_SIZE, encode_batch, iter_records, iter_times, read_header
from muster.codec.columns.walk import FINE, first_since, walk
from muster.codec.primitives import varint
from muster.codec.records import Record
from muster.errors import CodecError
from muster.log.validation import AppendRefused, _walk_records

NOW_MS = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)
lists_of_records = st.lists(st.tuples(st.integers(-(10**6), 10**6), blobs, blobs, headers), min_size=1, max_size=20)
damage = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)


def compare(body: bytes, count: int, need_keys: bool, base_ms: int = NOW_MS) -> bool:
    """Whether the walk finds fault; asserts that the plain one does too, or finds the same times."""
    header = read_header(encode_batch([Record(0, NOW_MS, None, None)]))
    header = header._replace(record_count=count, base_timestamp_ms=base_ms)
    found, smallest_ms, largest_ms = walk(np.frombuffer(body, np.uint8), len(body), count, base_ms, need_keys)
    try:
        times = _walk_records(header, body, need_keys)
    except (CodecError, AppendRefused):
        assert found != FINE
        return True
    assert (found, smallest_ms, largest_ms) == (FINE, *times)
    list(iter_records(header, body))  # what is taken can be read
    return False


def body_of(records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]) -> bytes:
    made = [Record(number, NOW_MS + delta, *rest) for number, (delta, *rest) in enumerate(records)]
    return encode_batch(made, base_timestamp_ms=NOW_MS)[HEADER_SIZE:]


@given(lists_of_records, st.booleans())
def test_records_as_clients_make_them(records, need_keys: bool) -> None:  # type: ignore[no-untyped-def]
    is_keyless = need_keys and any(key is None for _, key, _, _ in records)
    assert compare(body_of(records), len(records), need_keys) is is_keyless


def test_numbers_that_take_more_bytes_than_readers_allow() -> None:
    plain = body_of([(0, b"k", b"v", ())])
    padded = (
        bytes([plain[0] + 12]) + plain[1:3] + b"\x80\x80\x80\x80\x80\x80\x00" + plain[4:]
    )  # offset 0 in seven bytes
    assert not compare(plain, 1, False)
    assert compare(padded, 1, False)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
@example((1 << 63) - 1, 1)
@example((1 << 63) - 1, 1 << 62)
@example(-(1 << 63), -1)
@example(-(1 << 63), -(1 << 63))
@example(-1, -(1 << 63))
@example(0, -(1 << 63))
def test_times_that_go_round(base_ms: int, delta_ms: int) -> None:
    plain = body_of([(0, b"k", b"v", ())])
    delta = varint(delta_ms)
    body = varint(plain[0] // 2 - 1 + len(delta)) + plain[1:2] + delta + plain[3:]
    is_a_time = -(1 << 63) <= base_ms + delta_ms < 1 << 63
    assert compare(body, 1, False, base_ms) is not is_a_time


def test_a_time_of_65_bits() -> None:
    plain = body_of([(0, b"k", b"v", ())])
    for last, is_refused in ((1, False), (2, True)):
        delta = b"\x80" * 9 + bytes([last])
        body = varint(plain[0] // 2 - 1 + len(delta)) + plain[1:2] + delta + plain[3:]
        assert compare(body, 1, False, base_ms=0) is is_refused


@settings(max_examples=300)
@given(lists_of_records, damage, st.integers(-2, 2), st.integers(0, 5))
@example([(0, b"k", b"v", ())], [], 0, 3)
@example([(0, b"k", b"v", ())], [(0, 0x80)], 0, 0)
def test_damaged_records(records, changes, more: int, cut: int) -> None:  # type: ignore[no-untyped-def]
    body = bytearray(body_of(records))
    for place, byte in changes:
        body[place % len(body)] = byte
    compare(bytes(body[: len(body) - cut]), max(len(records) + more, 0), False)


def searched_row_by_row(data: bytes, since_ms: int, from_offset: int) -> tuple[int, int]:
    try:
        for offset, time_ms in iter_times(data, 0, read_header(data)):
            if time_ms >= since_ms and offset >= from_offset:
                return offset, time_ms
    except CodecError:
        return -2, 0
    return -1, 0


@given(lists_of_records, st.integers(-(10**6), 10**6), st.integers(0, 20), st.none() | st.integers(0, 10**6))
def test_the_first_record_since(records, since: int, from_offset: int, cut: int | None) -> None:  # type: ignore[no-untyped-def]
    made = [Record(number, NOW_MS + delta, *rest) for number, (delta, *rest) in enumerate(records)]
    data = encode_batch(made, base_timestamp_ms=NOW_MS)
    if cut is not None:
        data = data[: HEADER_SIZE + cut % (len(data) - HEADER_SIZE)]
        data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    body = np.frombuffer(data[HEADER_SIZE:], np.uint8)
    found = first_since(body, len(body), len(made), NOW_MS, NOW_MS + since, from_offset)
    assert found == searched_row_by_row(data, NOW_MS + since, from_offset)
