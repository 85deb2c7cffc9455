"""Where logs began and ended whenever they were looked at, and from that when an offset was written. No I/O.

Lag in time by interpolation: between two looks at a log its end has moved steadily, for all we know. A record stands
between the last look that found the log to end at or before it, and the next one.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from muster.verdicts import DEFAULT_RULES

TopicPartition = tuple[str, int]

MOST_POINTS = 120
"""Looks at a log that are kept, each as two numbers."""


class LogEnd:
    """One log. Offsets are those of the newest look."""

    __slots__ = ("_ends", "_times_ms", "at_ms", "last_ends", "start")

    def __init__(self) -> None:
        self.start: int | None = None
        self.at_ms = 0
        self.last_ends: tuple[int, ...] = ()
        """As many as a verdict looks at, the newest last."""
        self._ends, self._times_ms = array("q"), array("q")

    @property
    def end(self) -> int:
        return self.last_ends[-1]

    def look(self, start: int, end: int, at_ms: int) -> None:
        if self.last_ends and end < self.end:  # made anew, or truncated: what was known is of another log
            self.last_ends, self._ends, self._times_ms = (), array("q"), array("q")
        self.start, self.at_ms = start, at_ms
        self.last_ends = (*self.last_ends, end)[-DEFAULT_RULES.intervals :]
        if len(self._ends) > 1 and self._ends[-2] == self._ends[-1] == end:
            self._times_ms[-1] = at_ms  # a quiet log takes two points, however long it is quiet
            return
        self._ends.append(end)
        self._times_ms.append(at_ms)
        if len(self._ends) > MOST_POINTS:
            self._thin_out()

    def _thin_out(self) -> None:
        """Every second point of the older half goes: what is long ago need not be known to the second."""
        half = len(self._ends) // 2
        for points in (self._ends, self._times_ms):
            points[:half] = points[:half:2]

    def end_at(self, at_ms: int) -> int | None:
        """Where the log ended at a moment; None before the first look, and behind the last one."""
        right = bisect_right(self._times_ms, at_ms)
        if right == 0 or right == len(self._times_ms):
            return None
        left_end, right_end = self._ends[right - 1], self._ends[right]
        left_ms, right_ms = self._times_ms[right - 1], self._times_ms[right]
        return left_end + (right_end - left_end) * (at_ms - left_ms) // (right_ms - left_ms)

    def written_at_ms(self, offset: int) -> float | None:
        """When the record at an offset was written; None if that was before the first look, or is still to come."""
        right = bisect_right(self._ends, offset)
        if right == 0 or right == len(self._ends):
            return None
        left_end, right_end = self._ends[right - 1], self._ends[right]
        left_ms, right_ms = self._times_ms[right - 1], self._times_ms[right]
        return right_ms - (right_end - offset) * (right_ms - left_ms) / (right_end - left_end)


class LogEnds:
    """All logs that groups read. What was once known stays until the log is gone, with its age."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, LogEnd] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, where: TopicPartition) -> LogEnd | None:
        return self._known.get(where)

    def end_of(self, where: TopicPartition) -> int | None:
        known = self._known.get(where)
        return None if known is None else known.end

    def look(self, offsets: Mapping[TopicPartition, tuple[int, int]], at_ms: int) -> None:
        """Start and end of logs, as their leaders told them at that time."""
        for where, (start, end) in offsets.items():
            self._known.setdefault(where, LogEnd()).look(start, end, at_ms)

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        for where in gone:
            self._known.pop(where, None)

    def keep_only(self, wanted: Iterable[TopicPartition]) -> None:
        self.forget(self._known.keys() - set(wanted))

    def items(self) -> Iterable[tuple[TopicPartition, LogEnd]]:
        return self._known.items()
