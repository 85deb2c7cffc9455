"""Records on their way to the log: encoded once, gathered into batches, not yet in any file.

This is the busiest code of the server. All batches of a turn grow in one buffer, one behind the other; plain records
of a turn share a batch (a new one begins when it would become larger than allowed), whose 61 bytes of header are left
free until it is sealed. A record costs one join and two appends, and no object of its own.

`RollPlan` decides when a new segment begins. It decides when a batch is staged and not when it is written: a segment
begins with a snapshot of the producers as they were before its first batch, and by the time of the write they have
moved on.
"""

import struct
from collections.abc import Sequence

from crc32c import crc32c

from muster.codec import compression
from muster.codec.batches import HEADER, HEADER_SIZE
from muster.log.config import LogConfig
from muster.log.segment import WritableSegment, WrittenBatch
from muster.segments.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP

COORDINATOR_BASE_SEQUENCE = 0
"""What Kafka's coordinators write on every batch but markers, with or without a producer."""

_NULL = b"\x01"


def varint(number: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


VARINTS = [varint(number) for number in range(8192)]
"""The lengths and deltas that occur; all of one or two bytes."""


class Staging:
    """Batches to be written next, in `buffer`, described by `batches`; the last one may still be open."""

    __slots__ = (
        "_base_ms",
        "_base_offset",
        "_count",
        "_max_ms",
        "_start",
        "batches",
        "buffer",
        "codec",
        "leader_epoch",
        "max_batch_bytes",
    )

    def __init__(self, max_batch_bytes: int, leader_epoch: int, codec: int) -> None:
        self.max_batch_bytes = max_batch_bytes
        self.leader_epoch = leader_epoch
        self.codec = codec
        self.buffer = bytearray()
        self.batches: list[WrittenBatch] = []
        self._start = -1  # where the open batch begins in the buffer
        self._base_offset = 0
        self._base_ms = 0
        self._max_ms = 0
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.buffer)

    def add(self, records: Sequence[tuple[bytes, bytes | None]], offset: int, wall_ms: int) -> int:
        """Put records into the open batch, or a new one; the size of the batch if it has become too large, else 0.

        Where it is too large the records are not there, and the batch is as it was before.
        """
        if self._start < 0:
            self._open(offset, wall_ms)
        buffer, before = self.buffer, len(self.buffer)
        numbers, number = VARINTS, self._count
        head = b"\0\0" if wall_ms == self._base_ms else b"\0" + varint(wall_ms - self._base_ms)
        try:
            for key, value in records:
                try:
                    if value is None:
                        record = b"".join((head, numbers[number], numbers[len(key)], key, b"\x01\0"))
                    else:
                        record = b"".join(
                            (head, numbers[number], numbers[len(key)], key, numbers[len(value)], value, b"\0")
                        )
                    buffer += numbers[len(record)]
                except (IndexError, TypeError):  # a long one, or one without a key
                    record = _encoded(head, number, key, value)
                    buffer += varint(len(record))
                buffer += record
                number += 1
        except BaseException:
            self._undo(before)
            raise
        size = len(buffer) - self._start
        if size <= self.max_batch_bytes:
            self._count = number
            if wall_ms > self._max_ms:
                self._max_ms = wall_ms
            return 0
        self._undo(before)
        if self._start < 0:
            return size
        self.seal()
        return self.add(records, offset, wall_ms)

    def _undo(self, before: int) -> None:
        """Take back records that were just encoded, and the batch too if it was opened for them."""
        if self._count:
            del self.buffer[before:]
        else:
            del self.buffer[self._start :]
            self._start = -1

    def _open(self, offset: int, wall_ms: int) -> None:
        self._start = len(self.buffer)
        self.buffer += bytes(HEADER_SIZE)
        self._base_offset, self._base_ms, self._max_ms, self._count = offset, wall_ms, wall_ms, 0

    def seal(
        self, attributes: int = 0, producer_id: int = -1, producer_epoch: int = -1,
        base_sequence: int = COORDINATOR_BASE_SEQUENCE,
    ) -> None:  # fmt: skip
        """Close the open batch, if there is one: its header, its checksum. One that cannot be compressed stays open."""
        start = self._start
        if start < 0:
            return
        buffer = self.buffer
        if self.codec:
            buffer[start + HEADER_SIZE :] = compression.compress(self.codec, bytes(buffer[start + HEADER_SIZE :]))
            attributes |= self.codec
        self._start = -1
        size = len(buffer) - start
        last_delta = self._count - 1
        HEADER.pack_into(
            buffer, start, self._base_offset, size - 12, self.leader_epoch, 2, 0, attributes, last_delta,
            self._base_ms, self._max_ms, producer_id, producer_epoch, base_sequence, self._count,
        )  # fmt: skip
        with memoryview(buffer) as view:
            crc = crc32c(view[start + 21 :])
        _CRC.pack_into(buffer, start + 17, crc)
        self.batches.append(WrittenBatch(size, self._base_offset, self._base_offset + last_delta, self._max_ms))

    def add_batch(self, data: bytes | bytearray | memoryview, batch: WrittenBatch) -> None:
        """Put a whole batch behind the others."""
        self.seal()
        self.buffer += data
        self.batches.append(batch)

    def take(self) -> tuple[bytearray, list[WrittenBatch]]:
        """Everything staged, sealed; the staging is empty afterwards."""
        self.seal()
        taken = self.buffer, self.batches
        self.buffer, self.batches = bytearray(), []
        return taken

    def drop(self) -> None:
        """Forget everything staged, in whatever state it is."""
        self.buffer, self.batches, self._start = bytearray(), [], -1


_CRC = struct.Struct(">I")


def _encoded(head: bytes, delta: int, key: bytes | None, value: bytes | None) -> bytes:
    parts = [head, varint(delta)]
    for part in (key, value):
        parts += [_NULL] if part is None else [varint(len(part)), part]
    return b"".join((*parts, b"\0"))


class RollPlan:
    """The active segment as it will be when everything staged is written."""

    __slots__ = ("_base_offset", "_first_ms", "_size_bytes", "config", "is_full")

    def __init__(self, config: LogConfig, active: WritableSegment) -> None:
        self.config = config
        self._base_offset = active.base_offset
        self._size_bytes = active.size_bytes
        self._first_ms = active.first_timestamp_ms
        self.is_full = active.is_full
        """Whether an index has no room left; to be looked at after every write."""

    def begins_segment(self, batch: WrittenBatch) -> bool:
        """Whether this batch, the next one, is the first of a new segment."""
        begins = self._size_bytes > 0 and (
            self._size_bytes + batch.size_bytes > self.config.segment_bytes
            or self.is_full
            or batch.last_offset - self._base_offset > MAX_RELATIVE_OFFSET
            or (self._first_ms != NO_TIMESTAMP and batch.max_timestamp_ms - self._first_ms > self.config.segment_ms)
        )
        if begins:
            self._base_offset, self._size_bytes, self.is_full = batch.base_offset, 0, False
        if self._size_bytes == 0:
            self._first_ms = batch.max_timestamp_ms
        self._size_bytes += batch.size_bytes
        return begins
