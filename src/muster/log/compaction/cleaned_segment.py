"""The segment that a round of compaction writes, under the suffix `.cleaned`, until it is whole and on the disk."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from muster.log.config import LogConfig
from muster.log.segment import CLEANED, Segment, WritableSegment, WrittenBatch
from muster.segments.files import Files
from muster.segments.indexes import AbortedTransaction, OffsetEntry, TimeEntry

if TYPE_CHECKING:
    from muster.codec.columns.chunks import Longs


class _IndexedSegment(WritableSegment):
    """A writable segment that also takes a table of batches, and does not look at each of them."""

    def append_table(self, pieces: Sequence[bytes], batches: "Longs") -> None:
        from muster.codec.columns.compaction import W_MAX_TIMESTAMP

        position = self.size_bytes
        for piece in pieces:
            self.log.pwrite(piece, position)
            position += len(piece)
        if self.size_bytes == 0:
            self._first_timestamp_ms = int(batches[0, W_MAX_TIMESTAMP])
        offset_entries, time_entries, self._bytes_since_entry, self._largest = _index_entries(
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


def _index_entries(
    batches: "Longs", position: int, bytes_since_entry: int, interval_bytes: int, largest: TimeEntry
) -> tuple[list[OffsetEntry], list[TimeEntry], int, TimeEntry]:
    """What `WritableSegment.append` adds to its indexes for a table of (size, last offset, largest timestamp).

    Also how many bytes there are then since the last entry, and the largest timestamp so far.
    """
    import numpy as np

    from muster.codec.columns.compaction import W_LAST_OFFSET, W_MAX_TIMESTAMP, W_SIZE

    sizes, last_offsets, times = batches[:, W_SIZE], batches[:, W_LAST_OFFSET], batches[:, W_MAX_TIMESTAMP]
    starts = position + np.cumsum(sizes) - sizes
    end = int(starts[-1] + sizes[-1])
    so_far = np.maximum.accumulate(np.maximum(times, largest.timestamp_ms))
    is_larger = np.diff(so_far, prepend=largest.timestamp_ms) > 0
    holders = np.maximum.accumulate(np.where(is_larger, np.arange(len(times)), -1))
    offset_entries: list[OffsetEntry] = []
    time_entries: list[TimeEntry] = []
    last_entry = position - bytes_since_entry
    while (place := int(np.searchsorted(starts, last_entry + interval_bytes, "right"))) < len(starts):
        last_entry = int(starts[place])
        offset_entries.append(OffsetEntry(int(last_offsets[place]), last_entry))
        time_entries.append(_largest_at(place, so_far, holders, last_offsets, largest))
    return offset_entries, time_entries, end - last_entry, _largest_at(-1, so_far, holders, last_offsets, largest)


def _largest_at(place: int, so_far: "Longs", holders: "Longs", last_offsets: "Longs", before: TimeEntry) -> TimeEntry:
    if holders[place] < 0:
        return before
    return TimeEntry(int(so_far[place]), int(last_offsets[holders[place]]))
