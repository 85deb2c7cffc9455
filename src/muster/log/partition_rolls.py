"""When a new segment begins.

Decided when a batch is staged, not when it is written: a segment begins with a snapshot of the producers exactly as
they were before its first batch, and by the time of the write they have moved on.
"""

from muster.log.config import LogConfig
from muster.log.segment import WritableSegment, WrittenBatch
from muster.segments.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP


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
