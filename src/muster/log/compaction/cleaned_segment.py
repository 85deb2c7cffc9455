"""The segment that a round of compaction writes, under the suffix `.cleaned`, until it is whole and on the disk."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.log.config import LogConfig
from muster.log.segment import CLEANED, Segment, WritableSegment, WrittenBatch
from muster.segments.files import Files
from muster.segments.indexes import AbortedTransaction

if TYPE_CHECKING:
    from muster.codec.columns.chunks import Longs


class _IndexedSegment(WritableSegment):
    """A writable segment that also takes a table of batches, and does not look at each of them."""

    def append_table(self, pieces: Sequence[bytes], batches: "Longs") -> None:
        from muster.codec.columns.compaction import W_MAX_TIMESTAMP
        from muster.log.compaction.index_table import index_entries

        position = self.size_bytes
        for piece in pieces:
            self.log.pwrite(piece, position)
            position += len(piece)
        if self.size_bytes == 0:
            self._first_timestamp_ms = int(batches[0, W_MAX_TIMESTAMP])
        offset_entries, time_entries, self._bytes_since_entry, self._largest = index_entries(
            batches, self.size_bytes, self._bytes_since_entry, self._interval_bytes, self.largest_timestamp
        )
        self.size_bytes = position
        if offset_entries:
            self.offset_index.append(offset_entries)
            self.time_index.append(time_entries)


class CleanedSegment:
    """Takes the batches that stay (`rules.CleanedBatches`), and tells `spend` of the bytes it has written."""

    def __init__(
        self, files: Files, directory: Path, base_offset: int, config: LogConfig, spend: Callable[[int], None]
    ) -> None:
        Segment(files, directory, base_offset, 0, CLEANED).delete()  # of a round that was ended by force
        # A `.cleaned` file tells recovery that `.swap` files behind it are not whole. Those of the last swap are, until
        # their last renaming is durable.
        files.sync_directory(directory, "cleaned.settled")
        self._segment = _IndexedSegment(
            files,
            directory,
            base_offset,
            CLEANED,
            index_interval_bytes=config.index_interval_bytes,
            max_index_bytes=config.segment_index_bytes,
        )
        self._spend = spend

    def add(self, data: bytes, batch: WrittenBatch) -> None:
        self._segment.append(data, [batch])
        self._spend(len(data))

    def add_table(self, pieces: Sequence[bytes], batches: "Longs") -> None:
        if len(batches):
            self._segment.append_table(pieces, batches)
            self._spend(sum(map(len, pieces)))

    def finish(self, aborted: Sequence[AbortedTransaction]) -> Segment:
        """Everything written and synced; the segment as it may now be swapped in.

        Its names are synced too: were only some of them there after a power cut, and those already renamed to `.swap`,
        recovery would take them for a whole segment that is to be finished.
        """
        for transaction in aborted:
            self._segment.append_aborted(transaction)
        self._segment.seal()
        for kind, file in self._segment.open_files():
            file.sync(f"cleaned{kind}")
        self._segment.files.sync_directory(self._segment.directory, "cleaned.directory")
        self._segment.close()
        return self._segment.closed()

    def abandon(self) -> None:
        """Remove what has been written."""
        self._segment.close()
        self._segment.delete()
