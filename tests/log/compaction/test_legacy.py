"""Message sets of magic 0 and 1, which compaction meets in logs that old brokers wrote."""

import struct
import zlib

import pytest

from muster.codec import compression
from muster.codec.batches import iter_batches, read_header
from muster.codec.compression import CODEC_NAMES, GZIP, LZ4
from muster.codec.records import LOG_APPEND_TIME, Record
from muster.log.compaction.rules import CleaningRules
from tests.log.compaction import COMPACTORS, DAY_MS, START_MS, MakeCompactor, Round, compacted

RULES = CleaningRules(START_MS, DAY_MS, 0, 100)


@pytest.fixture(params=list(COMPACTORS))
def make(request: pytest.FixtureRequest) -> MakeCompactor:
    return COMPACTORS[request.param]


def message(magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0, ms: int = 0) -> bytes:
    """Laid out by hand, from the description of the format."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", ms) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qi", offset, len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, first: int, *contents: tuple[bytes, bytes | None], attributes: int = 0) -> bytes:
    """A compressed set of messages; timestamps are START_MS plus the offset."""
    inner = b"".join(
        message(magic, number if magic else first + number, key, value, ms=START_MS + first + number)
        for number, (key, value) in enumerate(contents)
    )
    packed = compression.compress(codec, inner)
    if codec == LZ4 and magic == 0:  # with the checksum that was usual: over the magic number too
        end = 6 + (8 if packed[4] & 0x08 else 0)
        packed = packed[:end] + bytes([compression._xxh32(packed[:end]) >> 8 & 0xFF]) + packed[end + 1 :]
    last = first + len(contents) - 1
    return message(magic, last, None, packed, codec | attributes, START_MS + last)


def done(make: MakeCompactor, *entries: bytes) -> Round:
    return compacted(entries, RULES, make=make)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_stay_or_go_as_they_are(make: MakeCompactor, magic: int) -> None:
    entries = [message(magic, number, key, b"v", ms=START_MS) for number, key in enumerate((b"a", b"b", b"a", None))]
    after = done(make, *entries)
    assert after.data == entries[1] + entries[2]


@pytest.mark.parametrize("magic", [0, 1])
def test_tombstones_stay_for_good(make: MakeCompactor, magic: int) -> None:
    entries = [message(magic, 0, b"a", b"1"), message(magic, 1, b"a", None)]
    assert done(make, *entries).data == entries[1]
    rules = CleaningRules(START_MS + 100 * DAY_MS, DAY_MS, 2, 100)
    assert compacted(entries[1:], rules, make=make).data == entries[1]


@pytest.mark.parametrize("codec", range(1, 4), ids=CODEC_NAMES[1:4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_loses_messages_and_stays_a_wrapper(make: MakeCompactor, magic: int, codec: int) -> None:
    before = wrapper(magic, codec, 10, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    newer = wrapper(magic, codec, 14, (b"a", b"2"), (b"d", b"2"))
    after = done(make, before, newer)
    assert after.values == [(11, b"b", b"1"), (12, b"c", b"1"), (14, b"a", b"2"), (15, b"d", b"2")]
    if magic == 1:
        assert [record.timestamp_ms for record in after.records] == [START_MS + offset for offset in (11, 12, 14, 15)]
    header = read_header(after.data)
    assert (header.magic, header.last_offset) == (magic, 11 if (magic, codec) == (0, LZ4) else 12)
    assert header.codec == (0 if (magic, codec) == (0, LZ4) else codec)
    assert after.data.endswith(newer)


def test_a_wrapper_with_a_hole_keeps_its_offsets(make: MakeCompactor) -> None:
    before = wrapper(1, 1, 10, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    after = done(make, before, message(1, 14, b"b", b"2"))
    assert [record.offset for record in after.records] == [10, 12, 13, 14]
    again = done(make, *[after.data[: read_header(after.data).size_bytes]], message(1, 15, b"a", b"2"))
    assert [record.offset for record in again.records] == [12, 13, 15]


@pytest.mark.parametrize(("magic", "inside"), [(0, [11, 13]), (1, [0, 2])])
def test_offsets_inside_a_wrapper_are_those_of_its_format(make: MakeCompactor, magic: int, inside: list[int]) -> None:
    """Absolute in magic 0, counted from the first in magic 1."""
    before = wrapper(magic, GZIP, 10, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    after = done(make, before, message(magic, 14, b"a", b"2"), message(magic, 15, b"c", b"2")).data
    packed = after[26 + 8 * magic : read_header(after).size_bytes]  # behind the lengths of a null key and the value
    inner = compression.decompress(GZIP, packed)
    size = 12 + int.from_bytes(inner[8:12], "big")
    assert [int.from_bytes(inner[place : place + 8], "big") for place in (0, size)] == inside


def test_a_wrapper_that_the_broker_stamped_keeps_its_stamp(make: MakeCompactor) -> None:
    before = wrapper(1, 1, 10, (b"a", b"1"), (b"b", b"1"), attributes=LOG_APPEND_TIME)
    after = done(make, before, message(1, 12, b"a", b"2"))
    (first, _) = after.batches
    assert first.header.attributes & LOG_APPEND_TIME
    assert first.records == [Record(11, START_MS + 11, b"b", b"1")]


def test_an_old_batch_at_the_end_of_a_round_goes_when_nothing_of_it_is_left(make: MakeCompactor) -> None:
    """The old formats cannot express an empty batch."""
    entries = [message(1, 98, b"a", b"1"), message(1, 99, None, b"?")]
    after = compacted(entries, RULES, make=make)
    assert after.data == entries[0]


def test_old_and_new_batches_share_a_log(make: MakeCompactor) -> None:
    from muster.codec.batches import encode_batch

    newer = encode_batch([Record(3, START_MS, b"a", None), Record(4, START_MS, b"c", b"1")])
    after = done(make, wrapper(0, 1, 0, (b"a", b"1"), (b"b", b"1")), message(1, 2, b"c", b"0"), newer)
    assert after.values == [(1, b"b", b"1"), (3, b"a", None), (4, b"c", b"1")]
    assert [batch.header.magic for batch in iter_batches(after.data)] == [0, 2]
    assert after.facts == [
        (batch.header.size_bytes, batch.header.last_offset, batch.header.max_timestamp_ms) for batch in after.batches
    ]


def test_both_ways_write_the_same() -> None:
    entries = [
        wrapper(
            magic, codec, 10 * magic + 3 * codec, (b"a", b"%d" % codec), (b"b%d" % magic, b"1"), (b"c", b"%d" % codec)
        )
        for magic in (0, 1)
        for codec in (1, 2, 3)
    ]
    by_rows, by_columns = (done(make, *entries) for make in COMPACTORS.values())
    assert by_columns.data == by_rows.data
    assert by_columns.facts == by_rows.facts
