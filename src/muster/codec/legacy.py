"""Message sets of magic 0 and 1 (Kafka 0.8 to 0.10).

One entry is one message, or a compressed wrapper around a message set. Inside a wrapper of magic 0 the offsets are
absolute; of magic 1 they count from 0 and the wrapper carries the absolute offset of the *last* one.
"""

import struct
import zlib
from collections.abc import Sequence

from muster.codec import compression
from muster.codec.records import LOG_APPEND_TIME, BatchHeader, Record
from muster.errors import Malformed, Truncated

OVERHEAD = 12  # offset and size
MAGIC_POSITION = 16


def read_entry_header(data: bytes | memoryview, position: int, size: int) -> BatchHeader:
    """The header of the entry at a position, whose size is known to be in bounds."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbB", data, position)
    timestamp_ms = -1
    if magic == 1:
        if size < 34:
            raise Malformed(f"a message of magic 1 in {size} bytes")
        (timestamp_ms,) = struct.unpack_from(">q", data, position + 18)
    return BatchHeader(
        offset, size, -1, magic, crc, attributes, offset, timestamp_ms, timestamp_ms, -1, -1, -1, -1
    )  # fmt: skip


def computed_crc(data: bytes | memoryview, position: int, header: BatchHeader) -> int:
    """Plain CRC-32 of everything from the magic byte on."""
    return zlib.crc32(memoryview(data)[position + MAGIC_POSITION : position + header.size_bytes])


def decode_entry(data: bytes | memoryview, position: int, header: BatchHeader) -> list[Record]:
    """The message, or all messages of a compressed wrapper, with absolute offsets."""
    key, value = _key_and_value(data, position, header)
    if not header.codec:
        return [Record(header.base_offset, header.max_timestamp_ms, key, value)]
    if value is None:
        raise Malformed("a compressed message without a value")
    if header.codec == compression.LZ4 and header.magic == 0:
        value = compression.repair_lz4_header(value)
    return _inner_records(compression.decompress(header.codec, value), header)


def _inner_records(messages: bytes, wrapper: BatchHeader) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position < len(messages):
        if len(messages) - position < OVERHEAD + 14:
            raise Truncated(f"a compressed message set ends {len(messages) - position} bytes into a message")
        (size,) = struct.unpack_from(">i", messages, position + 8)
        if size < 14:
            raise Malformed(f"a message of length {size} inside a wrapper")
        if size > len(messages) - position - OVERHEAD:
            raise Truncated(f"a message of {size} bytes, past the end of its wrapper")
        header = read_entry_header(messages, position, size + OVERHEAD)
        if header.magic != wrapper.magic or header.codec:
            raise Malformed("a wrapper around another wrapper, or around another magic")
        key, value = _key_and_value(messages, position, header)
        # A wrapper stamped by the broker speaks for its messages too.
        stamped = wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME
        records.append(
            Record(header.base_offset, wrapper.max_timestamp_ms if stamped else header.max_timestamp_ms, key, value)
        )
        position += header.size_bytes
    if not records:
        raise Malformed("a compressed wrapper around nothing")
    if wrapper.magic == 1:
        base = wrapper.last_offset - records[-1].offset
        records = [record._replace(offset=base + record.offset) for record in records]
    return records


def inner_crcs(data: bytes | memoryview, position: int, header: BatchHeader) -> list[tuple[int, bool]]:
    """The stored checksum of each message and whether it is right, as kafka-dump-log prints them."""
    if not header.codec:
        return [(header.crc, computed_crc(data, position, header) == header.crc)]
    _, value = _key_and_value(data, position, header)
    packed = value or b""
    if header.codec == compression.LZ4 and header.magic == 0:
        packed = compression.repair_lz4_header(packed)
    messages = compression.decompress(header.codec, packed)
    crcs = []
    place = 0
    while place + OVERHEAD + 14 <= len(messages):
        (size,) = struct.unpack_from(">i", messages, place + 8)
        if not 14 <= size <= len(messages) - place - OVERHEAD:
            break
        inner = read_entry_header(messages, place, size + OVERHEAD)
        crcs.append((inner.crc, computed_crc(messages, place, inner) == inner.crc))
        place += size + OVERHEAD
    return crcs


def _key_and_value(data: bytes | memoryview, position: int, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    end = position + header.size_bytes
    place = position + (18 if header.magic == 0 else 26)
    fields: list[bytes | None] = []
    for _ in range(2):
        if end - place < 4:
            raise Truncated("a message ends before its key or value")
        (length,) = struct.unpack_from(">i", data, place)
        place += 4
        if length > end - place:
            raise Truncated(f"a message field of {length} bytes, {end - place} before its end")
        fields.append(None if length < 0 else bytes(data[place : place + length]))
        place += max(length, 0)
    return fields[0], fields[1]


def encode_entry(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """The entry with only these records, of which there is at least one: what compaction leaves of a wrapper.

    It has the same codec and format. Only lz4 in magic 0, whose frames have a wrong checksum by design, becomes a row
    of plain messages.
    """
    stamp = header.attributes & LOG_APPEND_TIME
    if header.codec == compression.LZ4 and header.magic == 0:
        return b"".join(_message(record, record.offset, header.magic, stamp) for record in records)
    # Offsets inside a wrapper are absolute in magic 0; in magic 1 they count from the first, gaps included.
    first = 0 if header.magic == 0 else records[0].offset
    inner = b"".join(_message(record, record.offset - first, header.magic, stamp) for record in records)
    newest_ms = max(record.timestamp_ms for record in records)
    packed = Record(records[-1].offset, newest_ms, None, compression.compress(header.codec, inner))
    return _message(packed, packed.offset, header.magic, stamp | header.codec)


def _message(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    covered = struct.pack(">bB", magic, attributes)
    if magic == 1:
        covered += struct.pack(">q", record.timestamp_ms)
    for part in (record.key, record.value):
        covered += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered
