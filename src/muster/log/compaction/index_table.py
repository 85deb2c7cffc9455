"""The index entries of many batches at once, as columns."""

import numpy as np

from muster.codec.columns.chunks import Longs
from muster.codec.columns.compaction import W_LAST_OFFSET, W_MAX_TIMESTAMP, W_SIZE
from muster.segments.indexes import OffsetEntry, TimeEntry


def index_entries(
    batches: Longs, position: int, bytes_since_entry: int, interval_bytes: int, largest: TimeEntry
) -> tuple[list[OffsetEntry], list[TimeEntry], int, TimeEntry]:
    """What `WritableSegment.append` adds to its indexes for a table of (size, last offset, largest timestamp).

    Also how many bytes there are then since the last entry, and the largest timestamp so far.
    """
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


def _largest_at(place: int, so_far: Longs, holders: Longs, last_offsets: Longs, before: TimeEntry) -> TimeEntry:
    if holders[place] < 0:
        return before
    return TimeEntry(int(so_far[place]), int(last_offsets[holders[place]]))
