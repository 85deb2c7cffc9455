"""Records on their way to the log: encoded once, gathered into batches, not yet in any file.

This is the busiest code of the server. All batches of a turn grow in one buffer, one behind the other; plain records
of a turn share a batch (a new one begins when it would become larger than allowed), whose 61 bytes of header are left
free until it is sealed. A record costs one join and two appends, and no object of its own.

`Appends` is what a log has of this: it gives records their offsets, and knows the producers as of the last of them.
`RollPlan` decides when a new segment begins. It decides when a batch is staged and not when it is written: a segment
begins with a snapshot of the producers as they were before its first batch, and by the time of the write they have
moved on.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from muster.codec import compression
from muster.codec.batches import HEADER, HEADER_SIZE, NO_PRODUCER_ID, encode_marker
from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer, varint
from muster.codec.records import TRANSACTIONAL, BatchHeader
from muster.log.config import LogConfig
from muster.log.packing import is_repacked, repacked
from muster.log.producers import ProducerStates
from muster.log.segment import WritableSegment, WrittenBatch
from muster.log.validation import AppendRefused, ClientBatch, UnpackBudget, assigned, checked_client_batch
from muster.segments.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, AbortedTransaction

COORDINATOR_BASE_SEQUENCE = 0
"""What Kafka's coordinators write on every batch but markers, with or without a producer."""

_NULL = b"\x01"


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

    def add_batch(self, parts: Iterable[Buffer], batch: WrittenBatch) -> None:
        """Put a whole batch behind the others."""
        self.seal()
        for part in parts:
            self.buffer += part
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


Roll = tuple[int, bytes]
"""The number of a staged batch that begins a segment, and the snapshot of the producers before it."""


class RollPlan:
    """The active segment as it will be when everything staged is written, and the segments that begin until then."""

    __slots__ = ("_base_offset", "_first_ms", "_looked_at", "_rolls", "_size_bytes", "config", "is_full")

    def __init__(self, config: LogConfig, active: WritableSegment) -> None:
        self.config = config
        self._looked_at = 0  # how many staged batches
        self._rolls: list[Roll] = []
        self._base_offset = active.base_offset
        self._size_bytes = active.size_bytes
        self._first_ms = active.first_timestamp_ms
        self.is_full = active.is_full
        """Whether an index has no room left; to be looked at after every write."""

    def look_at(self, batches: Sequence[WrittenBatch], producers: ProducerStates) -> None:
        """Look at the batches that were sealed since; `producers` are as of before the next one."""
        for number in range(self._looked_at, len(batches)):
            if self._begins_segment(batches[number]):
                self._rolls.append((number, producers.snapshot()))
        self._looked_at = len(batches)

    def take(self, batches: Sequence[WrittenBatch], producers: ProducerStates) -> list[Roll]:
        """Where segments begin in all that is staged, which is about to be written."""
        self.look_at(batches, producers)
        taken = self._rolls
        self.drop()
        return taken

    def drop(self) -> None:
        """Nothing is staged any more."""
        self._rolls, self._looked_at = [], 0

    def _begins_segment(self, batch: WrittenBatch) -> bool:
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


def _largest_batch(config: LogConfig) -> int:
    return min(config.max_message_bytes, config.segment_bytes)


class Appended(NamedTuple):
    """Where a client's batch is, and the time that it was given; of one that was here before, the time it has."""

    base_offset: int
    append_time_ms: int


class Appends:
    """Appends to a log, up to where they are written: records get offsets, and wait in memory.

    A log that has failed (`failure`) refuses everything.
    """

    __slots__ = ("aborted", "config", "end_offset", "failure", "plan", "producers", "staging")

    def __init__(
        self, config: LogConfig, active: WritableSegment, end_offset: int, leader_epoch: int, producers: ProducerStates
    ) -> None:
        self.config = config
        self.end_offset = end_offset
        """The offset that the next record gets."""
        self.producers = producers
        """As of `end_offset`."""
        self.staging = Staging(_largest_batch(config), leader_epoch, config.codec)
        self.plan = RollPlan(config, active)
        self.aborted: list[AbortedTransaction] = []
        """Transactions whose ABORT marker is staged."""
        self.failure: str | None = None

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        wall_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Stage records; returns the offset of the first. `AppendRefused` leaves nothing behind.

        Plain records of one turn share a batch; those of a transaction (with a producer id) have one of their own.
        """
        if self.failure is not None:
            self._refuse_all()
        offset = self.end_offset
        if not records:
            return offset
        if producer_id != NO_PRODUCER_ID:
            return self._append_transactional(records, wall_ms, producer_id, producer_epoch)
        too_large = self.staging.add(records, offset, wall_ms)
        if too_large:
            self._refuse_size(too_large)
        self.end_offset = offset + len(records)
        return offset

    def _append_transactional(
        self, records: Sequence[tuple[bytes, bytes | None]], wall_ms: int, producer_id: int, producer_epoch: int
    ) -> int:
        self.producers.check_epoch(producer_id, producer_epoch)
        offset = self.end_offset
        self.staging.seal()
        too_large = self.staging.add(records, offset, wall_ms)
        if too_large:
            self._refuse_size(too_large)
        self.staging.seal(TRANSACTIONAL, producer_id, producer_epoch, COORDINATOR_BASE_SEQUENCE)
        self.end_offset = end_offset = offset + len(records)
        self.plan_rolls()
        self.producers.append_data(
            BatchHeader(
                offset, 0, 0, 2, 0, TRANSACTIONAL, end_offset - 1, wall_ms, wall_ms,
                producer_id, producer_epoch, COORDINATOR_BASE_SEQUENCE, len(records),
            )
        )  # fmt: skip
        return offset

    def append_marker(
        self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> int:
        """End a producer's transaction; returns the marker's offset."""
        if self.failure is not None:
            self._refuse_all()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        offset = self.end_offset
        marker = encode_marker(
            offset, wall_ms, producer_id, producer_epoch,
            commit=commit, coordinator_epoch=coordinator_epoch, leader_epoch=self.staging.leader_epoch,
        )  # fmt: skip
        self._stage_batch((marker,), WrittenBatch(len(marker), offset, offset, wall_ms))
        aborted = self.producers.append_marker(
            producer_id, producer_epoch, coordinator_epoch, offset, wall_ms, commit=commit
        )
        if aborted is not None:
            self.aborted.append(aborted)
        return offset

    def reconfigure(self, config: LogConfig) -> None:
        self.staging.seal()
        self.config = self.plan.config = config
        self.staging.max_batch_bytes, self.staging.codec = _largest_batch(config), config.codec

    def append_batch(
        self, data: bytes | bytearray | memoryview, wall_ms: int, budget: UnpackBudget | None = None
    ) -> Appended:
        """Stage a batch that a client made; if it was here before, that one is what is told.

        `AppendRefused` with Kafka's error where something is wrong with it, or with its place in the producer's row.
        """
        budget = budget or UnpackBudget()
        batch = self.check_batch(data, wall_ms, budget)
        if isinstance(batch, Appended):
            return batch
        if is_repacked(batch.data, self.config):
            batch = repacked(batch, self.config, budget)
        return self._stage_client_batch(batch, wall_ms)

    def check_batch(
        self, data: bytes | bytearray | memoryview, wall_ms: int, budget: UnpackBudget
    ) -> ClientBatch | Appended:
        """Half of `append_batch`, for a batch that is packed before `append_packed`; nothing is staged."""
        if self.failure is not None:
            self._refuse_all()
        batch = checked_client_batch(data, self.config, wall_ms, budget)
        return self._placed(batch.header) or batch

    def append_packed(self, batch: ClientBatch, wall_ms: int) -> Appended:
        """The other half. The log and its producers may have moved on since, so the place is looked at again."""
        if self.failure is not None:
            self._refuse_all()
        return self._placed(batch.header) or self._stage_client_batch(batch, wall_ms)

    def _placed(self, header: BatchHeader) -> Appended | None:
        """Where a producer's batch is already, if it is; refused where it is not the next of its row."""
        if header.producer_id < 0:
            return None
        duplicate = self.producers.duplicate_of(header)
        if duplicate is not None:
            return Appended(duplicate.base_offset, duplicate.timestamp_ms)
        self.producers.check_data(header, from_client=True)
        return None

    def _stage_client_batch(self, batch: ClientBatch, wall_ms: int) -> Appended:
        header, size_bytes = batch.header, len(batch.data)
        if size_bytes > min(self.config.max_message_bytes, self.config.segment_bytes):
            self._refuse_size(size_bytes)
        offset = self.end_offset
        time_ms = wall_ms if self.config.log_append_time else batch.max_timestamp_ms
        kept = assigned(batch, offset, self.staging.leader_epoch, wall_ms if self.config.log_append_time else None)
        last_offset = offset + header.last_offset
        self._stage_batch(kept, WrittenBatch(size_bytes, offset, last_offset, time_ms))
        if header.producer_id >= 0:
            self.producers.append_data(
                header._replace(base_offset=offset, last_offset=last_offset, max_timestamp_ms=time_ms)
            )
        return Appended(offset, time_ms if self.config.log_append_time else NO_TIMESTAMP)

    def _stage_batch(self, parts: Iterable[Buffer], batch: WrittenBatch) -> None:
        self.staging.add_batch(parts, batch)
        self.end_offset = batch.last_offset + 1
        self.plan_rolls()

    def plan_rolls(self) -> None:
        """Look at what was sealed since, before a producer's state moves on."""
        self.plan.look_at(self.staging.batches, self.producers)

    def _refuse_all(self) -> NoReturn:
        raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self.failure or "")

    def _refuse_size(self, size_bytes: int) -> NoReturn:
        if size_bytes > self.config.max_message_bytes:
            limit = f"max.message.bytes is {self.config.max_message_bytes}"
            raise AppendRefused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes; {limit}")
        limit = f"segment.bytes is {self.config.segment_bytes}"
        raise AppendRefused(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size_bytes} bytes; {limit}")

    def take(self) -> tuple[bytearray, list[WrittenBatch], list[Roll]]:
        """Everything staged, and where new segments begin in it; nothing is staged afterwards."""
        data, batches = self.staging.take()
        return data, batches, self.plan.take(batches, self.producers)

    def drop(self, end_offset: int) -> None:
        """Forget everything staged; the log ends here."""
        self.staging.drop()
        self.plan.drop()
        self.aborted = []
        self.end_offset = end_offset
