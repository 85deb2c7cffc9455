"""A partition's log in memory: the same methods as the one on disk, and faults on request.

What a shell needs of a log is little: append (which may be refused before a byte is written), flush, read from the
start, and the offsets in between. Records are kept as real batches, so that whatever is read back has gone through the
same bytes as on disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from muster.codec.batches import ReadBatch, encode_batch, encode_marker, iter_batches
from muster.codec.error_codes import ErrorCode
from muster.codec.records import TRANSACTIONAL, Record
from muster.errors import LogDamaged, MusterError

NO_PRODUCER = -1
COORDINATOR_BASE_SEQUENCE = 0
"""What Kafka's coordinators write on every batch but markers, with or without a producer."""


class AppendRefused(MusterError):
    """The log did not take a batch, and not a byte of it was written; `error` is what Kafka would call the reason."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"append refused: {error.name}")
        self.error = error


class PartitionLog(Protocol):
    """One partition of the offsets topic, as a coordinator's shell sees it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int: ...

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        wall_ms: int,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> int:
        """Take these records as one batch; returns the offset of the first. Raises `AppendRefused` or `LogDamaged`."""

    def append_marker(self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool) -> int:
        """End a producer's transaction."""

    def flush(self) -> None:
        """Make everything appended so far durable."""

    def read(self) -> Iterator[ReadBatch]:
        """Everything from the start."""


@dataclass(slots=True)
class MemoryLog:
    """No disk. `refuse_next`, `break_next` and `crash` are for tests."""

    max_batch_bytes: int = 1_048_588
    leader_epoch: int = 0
    codec: int = 0
    refuse_next: ErrorCode | None = None
    break_next: bool = False
    _batches: list[bytes] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _flushed: int = 0

    @property
    def end_offset(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def flushed_offset(self) -> int:
        return self._ends[self._flushed - 1] if self._flushed else 0

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
        batch = encode_batch(
            [Record(base_offset + number, wall_ms, key, value) for number, (key, value) in enumerate(records)],
            leader_epoch=self.leader_epoch,
            codec=self.codec,
            attributes=TRANSACTIONAL if producer_id != NO_PRODUCER else 0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=COORDINATOR_BASE_SEQUENCE,
        )
        self._take(batch, base_offset + len(records))
        return base_offset

    def append_marker(self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool) -> int:
        base_offset = self.end_offset
        marker = encode_marker(
            base_offset, wall_ms, producer_id, producer_epoch,
            commit=commit, coordinator_epoch=0, leader_epoch=self.leader_epoch,
        )  # fmt: skip
        self._take(marker, base_offset + 1)
        return base_offset

    def _take(self, batch: bytes, end_offset: int) -> None:
        if self.break_next:
            self.break_next = False
            raise LogDamaged("the disk failed in the middle of an append; what was flushed is whole")
        error, self.refuse_next = self.refuse_next, None
        if error is None and len(batch) > self.max_batch_bytes:
            error = ErrorCode.RECORD_LIST_TOO_LARGE
        if error is not None:
            raise AppendRefused(error)
        self._batches.append(batch)
        self._ends.append(end_offset)

    def flush(self) -> None:
        self._flushed = len(self._batches)

    def read(self) -> Iterator[ReadBatch]:
        return iter_batches(b"".join(self._batches))

    def crash(self, kept_batches: int = 0) -> None:
        """Lose what was never flushed, but for as many batches as happened to reach the disk."""
        whole = min(self._flushed + kept_batches, len(self._batches))
        del self._batches[whole:]
        del self._ends[whole:]
        self._flushed = whole
