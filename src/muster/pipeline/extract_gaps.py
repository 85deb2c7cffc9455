"""The offsets of a range that no record has, counted while records stream by, and filled by what others have."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
NO_TIME = -1


@dataclass(slots=True)
class Gaps:
    """Which offsets from `from_offset` on are missing. Records come in order; then `finish`, and only then `fill`."""

    from_offset: int
    keeps_all: bool = False
    """Keep where every gap is, sixteen bytes each and its time, because another replica may fill them."""
    missing: int = 0
    since_offset: int = field(init=False)
    """From here on nothing is missing."""
    since_ms: int | None = None
    """Timestamp of the first record there."""
    starts: Longs = field(init=False)
    ends: Longs = field(init=False)
    _times: Longs = field(init=False)  # of the record behind each gap
    _expected: int = field(init=False)
    _pieces: list[tuple[Longs, Longs, Longs]] = field(default_factory=list)
    _first: tuple[int, int] | None = None  # offset and timestamp of the first record

    def __post_init__(self) -> None:
        self.since_offset = self._expected = self.from_offset
        self.starts = self.ends = self._times = np.empty(0, np.int64)

    def take(self, offsets: Longs, timestamps_ms: Longs) -> None:
        """The next records; offsets rise, and are in the range."""
        if not len(offsets):
            return
        before = np.concatenate([[self._expected], offsets[:-1] + 1])
        jumps = np.flatnonzero(offsets > before)
        if len(jumps):
            self.missing += int((offsets[jumps] - before[jumps]).sum())
            self._begin_at(int(offsets[jumps[-1]]), int(timestamps_ms[jumps[-1]]))
            if self.keeps_all:
                self._pieces.append((before[jumps], offsets[jumps], timestamps_ms[jumps]))
        elif self._first is None:
            self._begin_at(self.from_offset, int(timestamps_ms[0]))
        if self._first is None:
            self._first = int(offsets[0]), int(timestamps_ms[0])
        self._expected = int(offsets[-1]) + 1

    def _begin_at(self, offset: int, timestamp_ms: int) -> None:
        self.since_offset = offset
        self.since_ms = timestamp_ms if timestamp_ms >= 0 else None

    def finish(self, next_offset: int) -> None:
        """The range ends here; behind the last record there may be offsets whose records are gone."""
        if next_offset > self._expected:
            self.missing += next_offset - self._expected
            self._begin_at(next_offset, NO_TIME)
            end = np.array([next_offset])
            self._pieces.append((np.array([self._expected]), end, np.array([NO_TIME])))
        if self.keeps_all and self._pieces:
            self.starts, self.ends, self._times = (np.concatenate(some) for some in zip(*self._pieces, strict=True))

    def has(self, offsets: Longs) -> NDArray[np.bool_]:
        """Which of these offsets are missing."""
        if not len(self.starts):
            return np.zeros(len(offsets), np.bool_)
        places = np.searchsorted(self.starts, offsets, "right") - 1
        return (places >= 0) & (offsets < self.ends[np.maximum(places, 0)])

    def fill(self, offsets: Longs, timestamps_ms: Longs) -> None:
        """Records of another replica at offsets that were missing, each once, in any order."""
        if not len(offsets):
            return
        # A record cuts its gap in two. Sorted each for itself, starts and ends of what is left pair up again.
        starts, ends = np.concatenate([self.starts, offsets + 1]), np.concatenate([self.ends, offsets])
        times = np.concatenate([self._times, timestamps_ms])
        order = np.argsort(ends, kind="stable")
        starts, ends, times = np.sort(starts), ends[order], times[order]
        lowest = int(np.argmin(offsets))
        first = int(offsets[lowest]), int(timestamps_ms[lowest])
        self._first = first if self._first is None else min(self._first, first)
        left = starts < ends
        self.starts, self.ends, self._times = starts[left], ends[left], times[left]
        self.missing = int((self.ends - self.starts).sum())
        if left.any():
            self._begin_at(int(self.ends[-1]), int(self._times[-1]))
        else:
            self._begin_at(self.from_offset, self._first[1])
