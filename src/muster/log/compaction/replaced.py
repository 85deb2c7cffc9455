"""Segments that compaction has replaced: named `.deleted`, and removed a while later (`file.delete.delay.ms`).

Until then a reader that found them by name can still open them. Nobody has to remember them for longer than the process
lives: recovery removes `.deleted` files when it opens a log.
"""

from collections.abc import Callable

from muster.log.segment import Segment
from muster.segments.checkpoints import TopicPartition


class ReplacedSegments:
    """Those that are to be removed, and when; `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[tuple[TopicPartition, int], tuple[float, Segment]] = {}

    def add(self, key: TopicPartition, segment: Segment, delay_s: float) -> None:
        """An earlier one of the same name is gone already: the file has been renamed over it."""
        self._waiting[key, segment.base_offset] = self._clock() + delay_s, segment

    def take_due(self, *, everything: bool = False) -> list[Segment]:
        """Those whose time has come, which the caller removes."""
        now = self._clock()
        due = {place: one for place, (time, one) in self._waiting.items() if everything or time <= now}
        for place in due:
            del self._waiting[place]
        return list(due.values())

    def topic_deleted(self, name: str) -> None:
        self._waiting = {place: one for place, one in self._waiting.items() if place[0].topic != name}
