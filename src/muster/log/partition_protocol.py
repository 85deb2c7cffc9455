"""`PartitionLog`: what a server knows of a partition's log, on disk or in memory."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from muster.codec.batches import ReadBatch
from muster.log.reads import FoundOffset, Progress
from muster.segments.txn_index import AbortedTransaction

NO_PRODUCER = -1


class PartitionLog(Protocol):
    """One partition. `docs/storage.md` tells what its offsets promise."""

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

    def append_batches(self, data: bytes | bytearray | memoryview, wall_ms: int) -> int:
        """Take a batch that a client made; returns its base offset."""

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
