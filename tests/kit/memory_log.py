"""A partition's log in memory for tests: the same methods as the one on disk, and faults on request.

Records are kept as real batches, so that whatever is read back has gone through the same bytes as on disk. Everything
appended can be read at once; `crash` takes back what was not flushed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster.codec.batches import ReadBatch, encode_batch, encode_marker, iter_batches, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import TRANSACTIONAL, BatchHeader, Record
from muster.errors import LogDamaged
from muster.log.config import LogConfig
from muster.log.producers import ProducerStates
from muster.log.reads import LOAD_BUFFER_BYTES, FoundOffset, Progress, ReadRefused
from muster.log.staging import COORDINATOR_BASE_SEQUENCE, Appended
from muster.log.validation import AppendRefused, assigned, checked_client_batch
from muster.segments.indexes import NO_TIMESTAMP, AbortedTransaction, overlapping

NO_PRODUCER = -1


class PartitionLog(Protocol):
    """What the log on disk and the one in memory have in common."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets; what is staged counts."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable."""

    @property
    def high_watermark(self) -> int:
        """Everything below may be shown to readers."""

    @property
    def last_stable_offset(self) -> int:
        """Everything below may be shown to readers under read_committed."""

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        wall_ms: int,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> int:
        """Take these records; returns the offset of the first. Raises `AppendRefused`, and nothing was taken then."""

    def append_marker(
        self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> int:
        """End a producer's transaction."""

    def append_batch(self, data: bytes | bytearray | memoryview, wall_ms: int) -> Appended:
        """Take a batch that a client made, or tell of the same one from before."""

    def write(self) -> None:
        """Hand everything appended so far to the operating system. Raises `LogDamaged`."""

    def flush(self) -> None:
        """Make everything appended so far durable. Raises `LogDamaged`."""

    def read(self, from_offset: int, max_bytes: int, up_to: int | None = None) -> memoryview:
        """Whole batches from the one with an offset on. Raises `ReadRefused`."""

    def batches(
        self, from_offset: int | None = None, buffer_bytes: int = ..., progress: Progress | None = None
    ) -> Iterator[ReadBatch]:
        """Every batch with its records, from the start unless said."""

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None: ...

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]: ...

    def truncate_to(self, offset: int) -> None: ...

    def close(self) -> bool: ...


@dataclass(slots=True)
class MemoryLog:
    """No disk. `refuse_next`, `break_next` and `crash` are for tests."""

    max_batch_bytes: int = 1_048_588
    leader_epoch: int = 0
    codec: int = 0
    refuse_next: ErrorCode | None = None
    break_next: bool = False
    config: LogConfig = field(default_factory=LogConfig)
    """What batches of clients are checked against."""
    _batches: list[bytes] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _flushed: int = 0
    _producers: ProducerStates = field(default_factory=ProducerStates)
    _aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def end_offset(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def flushed_offset(self) -> int:
        return self._ends[self._flushed - 1] if self._flushed else 0

    @property
    def high_watermark(self) -> int:
        return self.end_offset

    @property
    def last_stable_offset(self) -> int:
        undecided = self._producers.first_undecided_offset()
        return self.end_offset if undecided is None else undecided

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self._batches))

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        wall_ms: int,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> int:
        base_offset = self.end_offset
        if not records:
            return base_offset
        batch = encode_batch(
            [Record(base_offset + number, wall_ms, key, value) for number, (key, value) in enumerate(records)],
            leader_epoch=self.leader_epoch,
            codec=self.codec,
            attributes=TRANSACTIONAL if producer_id != NO_PRODUCER else 0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=COORDINATOR_BASE_SEQUENCE,
        )
        if producer_id != NO_PRODUCER:
            self._producers.check_epoch(producer_id, producer_epoch)
        self._take(batch)
        return base_offset

    def append_marker(
        self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> int:
        base_offset = self.end_offset
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = encode_marker(
            base_offset, wall_ms, producer_id, producer_epoch,
            commit=commit, coordinator_epoch=coordinator_epoch, leader_epoch=self.leader_epoch,
        )  # fmt: skip
        self._take(marker)
        return base_offset

    def append_batch(self, data: bytes | bytearray | memoryview, wall_ms: int) -> Appended:
        batch = checked_client_batch(data, self.config, wall_ms)
        if batch.header.producer_id >= 0:
            duplicate = self._producers.duplicate_of(batch.header)
            if duplicate is not None:
                return Appended(duplicate.base_offset, duplicate.timestamp_ms)
            self._producers.check_data(batch.header, from_client=True)
        base_offset = self.end_offset
        append_time_ms = wall_ms if self.config.log_append_time else None
        self._take(b"".join(assigned(batch, base_offset, self.leader_epoch, append_time_ms)))
        return Appended(base_offset, NO_TIMESTAMP if append_time_ms is None else append_time_ms)

    def _take(self, batch: bytes) -> None:
        if self.break_next:
            self.break_next = False
            raise LogDamaged("the disk failed in the middle of an append; what was flushed is whole")
        error, self.refuse_next = self.refuse_next, None
        if error is None and len(batch) > self.max_batch_bytes:
            error = ErrorCode.RECORD_LIST_TOO_LARGE
        if error is not None:
            raise AppendRefused(error)
        self._keep(batch, read_header(batch))

    def _keep(self, batch: bytes, header: BatchHeader) -> None:
        self._batches.append(batch)
        self._ends.append(header.last_offset + 1)
        aborted = self._producers.replay(header, batch)
        if aborted is not None:
            self._aborted.append(aborted)

    def write(self) -> None:
        pass

    def flush(self) -> None:
        self._flushed = len(self._batches)

    def read(self, from_offset: int, max_bytes: int, up_to: int | None = None) -> memoryview:
        if not 0 <= from_offset <= self.end_offset:
            raise ReadRefused(ErrorCode.OFFSET_OUT_OF_RANGE, f"0 to {self.end_offset} is here, not {from_offset}")
        limit = self.end_offset if up_to is None else min(up_to, self.end_offset)
        first = last = bisect_right(self._ends, from_offset)
        size = 0
        while last < len(self._batches) and self._ends[last] <= limit:
            size += len(self._batches[last])
            if size > max_bytes and last > first:
                break
            last += 1
        return memoryview(b"".join(self._batches[first:last]))

    def batches(
        self,
        from_offset: int | None = None,
        buffer_bytes: int = LOAD_BUFFER_BYTES,
        progress: Progress | None = None,
    ) -> Iterator[ReadBatch]:
        first = bisect_right(self._ends, from_offset or 0)
        for batch in iter_batches(b"".join(self._batches[first:])):
            yield batch
            if progress is not None:
                progress(batch.header.size_bytes)

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        for batch in self.batches():
            for record in batch.records:
                if record.timestamp_ms >= timestamp_ms:
                    return FoundOffset(record.offset, record.timestamp_ms, batch.header.leader_epoch)
        return None

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        return overlapping(self._aborted, from_offset, to_offset)[0]

    def truncate_to(self, offset: int) -> None:
        self._cut(bisect_right(self._ends, offset))

    def close(self) -> bool:
        return True

    def crash(self, kept_batches: int = 0) -> None:
        """Lose what was never flushed, but for as many batches as happened to reach the disk."""
        self._cut(min(self._flushed + kept_batches, len(self._batches)))
        self._flushed = len(self._batches)

    def _cut(self, whole: int) -> None:
        kept = self._batches[:whole]
        self._batches, self._ends, self._aborted, self._producers = [], [], [], ProducerStates()
        self._flushed = min(self._flushed, whole)
        for batch in kept:
            self._keep(batch, read_header(batch))
