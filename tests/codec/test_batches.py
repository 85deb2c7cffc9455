"""Record batches of magic 2, row by row."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec import batches, compression
from muster.codec.batches import (
    computed_crc,
    decode_control,
    decode_records,
    encode_batch,
    encode_marker,
    iter_batches,
    read_header,
)
from muster.codec.records import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Record
from muster.errors import CodecError, Malformed, Truncated
from tests.codec.golden_bytes import golden
from tests.codec.strategies import BLOB, bounded

GOLDEN = golden("batches.hex")
T = 1600000000000
KEY = bytes.fromhex("0001000267310002743100000003")
VALUE = bytes.fromhex("0003000000000000002a0000000700016d00000174876e8000")

WRITTEN = {
    "offset commit v3, base 10, base sequence -1": lambda: encode_batch([Record(10, T, KEY, VALUE)]),
    "offset commit v3, base 10, base sequence 0": lambda: encode_batch([Record(10, T, KEY, VALUE)], base_sequence=0),
    "tombstone, base 11": lambda: encode_batch([Record(11, T, KEY, None)]),
    "transactional commit, base 11, producer 1000 epoch 2": lambda: encode_batch(
        [Record(11, T, KEY, VALUE)], attributes=TRANSACTIONAL, producer_id=1000, producer_epoch=2, base_sequence=0
    ),
    "commit marker, base 12, producer 1000 epoch 2, coordinator epoch 9": lambda: encode_marker(
        12, T, 1000, 2, commit=True, coordinator_epoch=9
    ),
}


def test_every_golden_batch_has_a_writer() -> None:
    assert WRITTEN.keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_batches_are_written_back(name: str) -> None:
    assert WRITTEN[name]() == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_batches_are_read(name: str) -> None:
    data = GOLDEN[name]
    header = read_header(data)
    assert computed_crc(data, 0, header) == header.crc
    assert header.record_count == len(decode_records(data, 0, header)) == 1
    assert header.size_bytes == len(data)
    assert header.is_transactional == ("producer" in name)
    assert header.is_control == ("marker" in name)


def test_what_a_golden_batch_says() -> None:
    data = GOLDEN["transactional commit, base 11, producer 1000 epoch 2"]
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch) == (11, 11, 1000, 2)
    assert decode_records(data, 0, header) == [Record(11, T, KEY, VALUE)]


def test_a_marker_is_decoded() -> None:
    data = GOLDEN["commit marker, base 12, producer 1000 epoch 2, coordinator epoch 9"]
    (record,) = decode_records(data, 0, read_header(data))
    control = decode_control(record)
    assert (control.name, control.coordinator_epoch) == ("COMMIT", 9)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b"\0\0\0\0", "ABORT"),
        (b"\0\x01\0\x01", "COMMIT"),
        (b"\0\0\0\x02", "LEADER_CHANGE"),
        (b"\0\0\x7f\xff", "UNKNOWN"),
    ],
)
def test_control_types(key: bytes, name: str) -> None:
    assert decode_control(Record(0, T, key, bytes(6))).name == name


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_control_records_that_cannot_be_read(key: bytes | None) -> None:
    with pytest.raises(Malformed):
        decode_control(Record(0, T, key, None))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_batch_cut_short_at_every_byte(name: str) -> None:
    data = GOLDEN[name]
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            read_header(data[:cut])


def test_records_cut_short_at_every_byte() -> None:
    records = [Record(10 + n, T + n, KEY, VALUE, (("h", b"x"), ("n", None))) for n in range(3)]
    data = encode_batch(records)
    header = read_header(data)
    assert decode_records(data, 0, header) == records
    body = data[batches.HEADER_SIZE :]
    for cut in range(len(body)):
        with pytest.raises(CodecError):
            list(batches.iter_records(header, body[:cut]))


def test_every_flipped_bit_is_noticed() -> None:
    data = GOLDEN["offset commit v3, base 10, base sequence 0"]
    for position in range(21, len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            (batch,) = iter_batches(bytes(broken))
            assert batch.problem is not None
            assert batch.records == []


def test_what_compaction_leaves_of_a_batch_is_read() -> None:
    emptied = encode_batch([], base_offset=20, last_offset=24, attributes=TRANSACTIONAL, producer_id=7, base_sequence=0)
    header = read_header(emptied)
    assert (header.record_count, header.base_timestamp_ms, header.last_offset) == (0, -1, 24)
    assert decode_records(emptied, 0, header) == []

    # The codec bits of an emptied batch mean nothing: there is nothing to unpack.
    thinned = encode_batch([Record(31, T, KEY, None), Record(34, T, KEY, VALUE)], base_offset=30, last_offset=39)
    header = read_header(thinned)
    assert (header.base_offset, header.last_offset) == (30, 39)
    assert [record.offset for record in decode_records(thinned, 0, header)] == [31, 34]


def test_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    horizon_ms = T + 86_400_000
    data = encode_batch([Record(5, T, KEY, None)], attributes=DELETE_HORIZON, base_timestamp_ms=horizon_ms)
    header = read_header(data)
    assert header.delete_horizon_ms == horizon_ms
    assert decode_records(data, 0, header)[0].timestamp_ms == T  # its delta is negative
    assert read_header(GOLDEN["tombstone, base 11"]).delete_horizon_ms is None


def test_log_append_time_counts_for_every_record() -> None:
    data = encode_batch([Record(1, T, KEY, None), Record(2, T + 5, KEY, None)], attributes=LOG_APPEND_TIME)
    header = read_header(data)
    assert header.timestamp_type == "LogAppendTime"
    assert [record.timestamp_ms for record in decode_records(data, 0, header)] == [T + 5, T + 5]


def test_sequences_wrap() -> None:
    data = encode_batch([Record(n, T, KEY, None) for n in range(3)], producer_id=1, base_sequence=0x7FFFFFFE)
    assert read_header(data).last_sequence == 0


@pytest.mark.parametrize("length", [-1, 0, 13, 48])
def test_lengths_that_no_batch_can_have(length: int) -> None:
    data = bytearray(GOLDEN["tombstone, base 11"])
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(Malformed, match="batch of"):
        read_header(bytes(data))


def test_unknown_magic() -> None:
    data = bytearray(GOLDEN["tombstone, base 11"])
    data[16] = 3
    with pytest.raises(Malformed, match="magic 3"):
        read_header(bytes(data))


def test_a_length_of_two_gigabytes_allocates_nothing() -> None:
    data = bytearray(GOLDEN["tombstone, base 11"])
    struct.pack_into(">i", data, 8, 0x7FFFFFFF)
    tracemalloc.start()
    try:
        with pytest.raises(Truncated):
            read_header(bytes(data))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [-1, 2, 3, 0x7FFFFFFF])
def test_a_count_that_is_not_true(count: int) -> None:
    data = GOLDEN["tombstone, base 11"]
    header = read_header(data)._replace(record_count=count)
    with pytest.raises(CodecError):
        decode_records(data, 0, header)
    with pytest.raises(Malformed, match="behind the last record"):
        decode_records(data, 0, header._replace(record_count=0))


@pytest.mark.parametrize("codec", range(5))
def test_compressions_round_trip(codec: int) -> None:
    records = [Record(100 + n, T + n, KEY, VALUE) for n in range(50)]
    data = encode_batch(records, codec=codec)
    header = read_header(data)
    assert header.codec == codec
    assert decode_records(data, 0, header) == records


@pytest.mark.parametrize("codec", range(1, 5))
def test_damaged_compressed_data(codec: int) -> None:
    packed = compression.compress(codec, b"group" * 100)
    for cut in range(len(packed)):
        try:
            unpacked = compression.decompress(codec, packed[:cut])
        except Malformed:
            continue
        assert len(unpacked) < 500  # a cut between two blocks of snappy looks like an end
    with pytest.raises(Malformed):
        compression.decompress(codec, b"\x82SNAPPY\x00 no" if codec == compression.SNAPPY else b"not packed at all")


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_bomb_stops_at_the_limit(codec: int) -> None:
    packed = compression.compress(codec, bytes(64 * 1024 * 1024))
    assert len(packed) < 4_000_000
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 1000000 bytes"):
            compression.decompress(codec, packed, limit=1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_an_unknown_codec() -> None:
    with pytest.raises(Malformed, match="codec 5"):
        compression.decompress(5, b"")


@bounded
@given(BLOB, st.integers(0, 7), st.integers(0, 3))
def test_the_oldest_lz4_header_is_repaired(data: bytes, wrong: int, extra: int) -> None:
    good = compression.compress(compression.LZ4, data * 50)
    end = 6 + (8 if good[4] & 0x08 else 0)
    broken = good[:end] + bytes([good[end] ^ (1 << wrong)]) + good[end + 1 :]
    with pytest.raises(Malformed):
        compression.decompress(compression.LZ4, broken)
    assert compression.decompress(compression.LZ4, compression.repair_lz4_header(broken)) == data * 50


RECORDS = st.lists(
    st.builds(
        Record,
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**42),
        st.none() | BLOB,
        st.none() | BLOB,
        st.lists(st.tuples(st.text(max_size=3), st.none() | BLOB), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@bounded
@given(RECORDS, st.integers(0, 4), st.integers(-1, 2**40), st.integers(-1, 2**15 - 1))
def test_what_is_written_is_read(records: list[Record], codec: int, producer_id: int, epoch: int) -> None:
    data = encode_batch(records, base_offset=0, last_offset=2**31 - 1, codec=codec, producer_id=producer_id,
                        producer_epoch=epoch)  # fmt: skip
    (batch,) = iter_batches(data)
    assert batch.problem is None
    assert batch.records == records
    assert batch.header.producer_id == producer_id


@bounded
@given(st.binary(max_size=200))
def test_any_bytes_give_batches_or_an_error_of_the_family(data: bytes) -> None:
    with contextlib.suppress(CodecError):
        list(iter_batches(data))
