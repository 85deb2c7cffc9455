"""Record batches, row by row: the readable codec, and the oracle of the columnar one.

A segment file, and what a Fetch returns, is a row of batches. Magic 2 is today's format, written and read here; the
message sets of magic 0 and 1 are read only (`legacy.py`). Reading is in two steps, because a reader often wants only
one of them: `read_header` looks at the 61 bytes that say everything about a batch but its records, `decode_records`
opens it.

Offsets deserve a warning. Compaction removes records but never renumbers them: the next offset after a batch is
`last_offset + 1`, whatever its last record's offset is, and `count` may be 0.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from muster.codec import compression, legacy
from muster.codec.primitives import Reader, Writer
from muster.codec.records import (
    ABORT,
    COMMIT,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    ControlRecord,
    Record,
)
from muster.errors import CodecError, Malformed, Truncated

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
LENGTH_PREFIX = 12  # base offset and length: what a batch's length does not count
SMALLEST_LENGTH = 14  # of any magic
NO_PRODUCER_ID = -1


def read_header(data: bytes | memoryview, position: int = 0, left_bytes: int | None = None) -> BatchHeader:
    """The header of the batch at a position.

    `Truncated` when the bytes end before the batch does (normal at the end of a fetch), `Malformed` when no batch can
    begin like this. Checksums and records are not looked at. With `left_bytes` the data is a window on a file that has
    so many bytes from here on: the header must be in the window, the rest of the batch in the file.
    """
    held = len(data) - position
    left = held if left_bytes is None else left_bytes
    if left < 17 or held < 17:
        raise Truncated(f"a batch begins {left} bytes before the end of the data; its shortest header has 17")
    base_offset, length = struct.unpack_from(">qi", data, position)
    if length < SMALLEST_LENGTH:
        raise Malformed(f"a batch of length {length}; the smallest has {SMALLEST_LENGTH}")
    magic = data[position + 16]
    if magic > 2:
        raise Malformed(f"a batch of magic {magic}; 0, 1 and 2 exist")
    size = length + LENGTH_PREFIX
    if magic == 2 and size < HEADER_SIZE:
        raise Malformed(f"a batch of {size} bytes; its header alone has {HEADER_SIZE}")
    if size > left:
        raise Truncated(f"a batch of {size} bytes begins {left} bytes before the end of the data")
    if magic < 2:
        return legacy.read_entry_header(data, position, size)
    fields = HEADER.unpack_from(data, position)
    _, _, leader_epoch, _, crc, attributes, last_delta, base_ms, max_ms, producer, epoch, sequence, count = fields
    return BatchHeader(
        base_offset, size, leader_epoch, 2, crc, attributes, base_offset + last_delta,
        base_ms, max_ms, producer, epoch, sequence, count,
    )  # fmt: skip


def computed_crc(data: bytes | memoryview, position: int, header: BatchHeader) -> int:
    """What the checksum should be, given the bytes."""
    if header.magic < 2:
        return legacy.computed_crc(data, position, header)
    return crc32c(memoryview(data)[position + 21 : position + header.size_bytes])


def decode_records(data: bytes | memoryview, position: int, header: BatchHeader) -> list[Record]:
    """All records of a batch, unpacked; the checksum is the caller's business."""
    if header.magic < 2:
        return legacy.decode_entry(data, position, header)
    return list(iter_records(header, unpacked_body(data, position, header)))


def unpacked_body(data: bytes | memoryview, position: int, header: BatchHeader) -> bytes | memoryview:
    """The records of a batch of magic 2, as bytes."""
    body = memoryview(data)[position + HEADER_SIZE : position + header.size_bytes]
    # An emptied batch has no payload to unpack, whatever its codec bits say.
    if header.codec == compression.NONE or header.record_count == 0:
        return body
    return compression.decompress(header.codec, body)


def iter_records(header: BatchHeader, body: bytes | memoryview) -> Iterator[Record]:
    """The records in an unpacked body, one by one; raises where the first bad one is."""
    reader = Reader(body)
    if header.record_count < 0 or header.record_count > len(body):
        raise Malformed(f"a batch that counts {header.record_count} records in {len(body)} bytes")
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    for _ in range(header.record_count):
        length = reader.varint()
        if length < 0:
            raise Malformed(f"a record of length {length}")
        end = reader.position + length
        if end > len(body):
            raise Truncated(f"a record of {length} bytes, {reader.remaining} before the end of its batch")
        reader.raw(1)  # attributes: unused
        timestamp_ms = header.base_timestamp_ms + reader.varlong()
        offset = header.base_offset + reader.varint()
        key = _nullable(reader)
        value = _nullable(reader)
        headers = _headers(reader)
        if reader.position != end:
            raise Malformed(f"a record of {length} bytes whose fields take {reader.position - end + length}")
        yield Record(offset, timestamp_ms if append_time_ms is None else append_time_ms, key, value, headers)
    if reader.remaining:
        raise Malformed(f"{reader.remaining} bytes behind the last record of a batch")


def iter_times(data: bytes | memoryview, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch; what else is in a record is stepped over, however much it is."""
    if header.magic < 2:
        yield from ((record.offset, record.timestamp_ms) for record in legacy.decode_entry(data, position, header))
        return
    body = memoryview(unpacked_body(data, position, header))
    reader = Reader(body)
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    for _ in range(header.record_count):
        length = reader.varint()
        end = reader.position + length
        reader.raw(1)  # attributes: unused
        timestamp_ms = header.base_timestamp_ms + reader.varlong()
        offset = header.base_offset + reader.varint()
        if not reader.position <= end <= len(body):
            raise Malformed(f"a record of {length} bytes, of which {end - reader.position} are left")
        reader.raw(end - reader.position)
        yield offset, timestamp_ms if append_time_ms is None else append_time_ms


def _nullable(reader: Reader) -> bytes | None:
    length = reader.varint()
    if length < -1:
        raise Malformed(f"a field of length {length}")
    return None if length < 0 else bytes(reader.raw(length))


def _headers(reader: Reader) -> tuple[tuple[str, bytes | None], ...]:
    count = reader.varint()
    if count < 0 or count > reader.remaining:
        raise Malformed(f"a record that counts {count} headers in {reader.remaining} bytes")
    headers = []
    for _ in range(count):
        key = _nullable(reader)
        if key is None:
            raise Malformed("a record header without a key")
        headers.append((key.decode("utf-8", "surrogateescape"), _nullable(reader)))
    return tuple(headers)


def decode_control(record: Record) -> ControlRecord:
    """What a control record says. A higher key version is read as version 0, as Kafka does."""
    key = record.key or b""
    if len(key) < 4:
        raise Malformed(f"a control record with a key of {len(key)} bytes")
    version, kind = struct.unpack_from(">hh", key)
    if version < 0:
        raise Malformed(f"a control record of key version {version}")
    epoch = None
    if kind in (ABORT, COMMIT) and record.value is not None and len(record.value) >= 6:
        (epoch,) = struct.unpack_from(">i", record.value, 2)
    return ControlRecord(kind, version, epoch)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    codec: int = compression.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_timestamp_ms: int | None = None,
) -> bytes:
    """A magic-2 batch of these records, checksum included.

    The coordinator writes `base_sequence` 0 on its commits even without a producer.
    """
    base_offset = records[0].offset if base_offset is None else base_offset
    last_offset = records[-1].offset if last_offset is None else last_offset
    base_ms = base_timestamp_ms if base_timestamp_ms is not None else (records[0].timestamp_ms if records else -1)
    max_ms = max((record.timestamp_ms for record in records), default=-1)
    body = encode_records(records, base_offset, base_ms)
    if records:
        body = compression.compress(codec, body)
        attributes |= codec
    covered = struct.pack(
        ">hiqqqhii", attributes, last_offset - base_offset, base_ms, max_ms,
        producer_id, producer_epoch, base_sequence, len(records),
    ) + body  # fmt: skip
    crc = crc32c(covered)
    return struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc) + covered


def assembled(
    header: BatchHeader, attributes: int, base_timestamp_ms: int, max_timestamp_ms: int, count: int, body: bytes
) -> bytes:
    """A batch with everything that is not given as it was, checksum included."""
    covered = struct.pack(
        ">hiqqqhii", attributes, header.last_offset - header.base_offset, base_timestamp_ms, max_timestamp_ms,
        header.producer_id, header.producer_epoch, header.base_sequence, count,
    ) + body  # fmt: skip
    return (
        struct.pack(">qiibI", header.base_offset, len(covered) + 9, header.leader_epoch, 2, crc32c(covered)) + covered
    )


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp_ms: int) -> bytes:
    """The body of a batch, before it is packed."""
    return b"".join(_encode_record(record, base_offset, base_timestamp_ms) for record in records)


def _encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    body = Writer()
    body.int8(0)
    body.varlong(record.timestamp_ms - base_timestamp_ms)
    body.varint(record.offset - base_offset)
    for field in (record.key, record.value):
        body.varint(-1 if field is None else len(field))
        if field is not None:
            body.raw(field)
    body.varint(len(record.headers))
    for name, value in record.headers:
        encoded = name.encode("utf-8", "surrogateescape")
        body.varint(len(encoded))
        body.raw(encoded)
        body.varint(-1 if value is None else len(value))
        if value is not None:
            body.raw(value)
    encoded_body = body.finish()
    prefix = Writer()
    prefix.varint(len(encoded_body))
    return prefix.finish() + encoded_body


def encode_marker(
    offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, COMMIT if commit else ABORT)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return encode_batch(
        [Record(offset, timestamp_ms, key, value)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
    )


class ReadBatch(NamedTuple):
    """A batch as `iter_batches` met it: `problem` is set, and `records` empty, where it could not be trusted."""

    position: int
    header: BatchHeader
    records: list[Record]
    problem: CodecError | None


def iter_batches(data: bytes | memoryview) -> Iterator[ReadBatch]:
    """Every batch of these bytes. A batch with a bad checksum or bad records is reported and stepped over.

    Raises `Truncated` or `Malformed` where the row of batches itself breaks off: no later batch can be found then.
    """
    position = 0
    while position < len(data):
        header = read_header(data, position)
        problem: CodecError | None = None
        records: list[Record] = []
        crc = computed_crc(data, position, header)
        if crc != header.crc:
            problem = Malformed(f"says CRC {header.crc:08x}, its bytes give {crc:08x}")
        else:
            try:
                records = decode_records(data, position, header)
            except CodecError as error:
                problem = error
        yield ReadBatch(position, header, records, problem)
        position += header.size_bytes
