"""A partition's log from one offset to another, read from a directory in which a broker may be at work.

Two passes, as everywhere: headers first (`survey`), for the markers that say how transactions ended and for where the
range ends; then the records (`RangeReader`). Between and during the two a broker may append, roll, and replace segments
by compacted ones. So a range is followed by offset, never by file: when a listed segment is gone, the directory is
listed again and reading goes on with the next offset. Nothing comes twice, because what is below that offset is dropped
wherever it stands; and what a compaction took in between shows as a gap, as it does when it was there before us.

An offset is believed only where it can be: not below its segment's name, nor in or behind the next segment. A checksum
does not cover a batch's own offset, and one wild offset believed would hide everything behind it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.codec.columns import scan
from muster.codec.columns.chunks import Chunk, Longs, Scratch
from muster.codec.columns.scan import MARKER_COLUMNS, R_BATCH, R_OFFSET, find_markers
from muster.codec.columns.transactions import Markers
from muster.errors import LogDamaged
from muster.pipeline.replicas import Lineage, agreeing, lineage_of
from muster.segments.reader import HEADER_ROOM, Damage, Progress, read_headers, read_segment
from muster.segments.sources import SegmentFile, segments_of

NO_END = (1 << 63) - 1
LARGEST_RELATIVE_OFFSET = (1 << 31) - 1
MOST_LISTINGS = 1000
"""A directory whose segments vanish, so many times, before they can be opened is no log."""

Flags = NDArray[np.bool_]
Read = TypeVar("Read")


class PlacedSegment(NamedTuple):
    """A segment, and before which offset its last batch must end."""

    segment: SegmentFile
    limit: int
    is_last: bool

    def believable(self, batches: Longs) -> Flags:
        """Which batches have offsets that can be theirs."""
        base, last = batches[:, scan.B_BASE_OFFSET], batches[:, scan.B_LAST_OFFSET]
        flags: Flags = (last >= self.segment.base_offset) & (last >= base) & (last < self.limit)
        return flags


def segments_from(directory: Path, offset: int) -> list[PlacedSegment]:
    """The segments that may have something at or behind an offset, as the directory is now."""
    segments = segments_of(directory)
    ends = [*(segment.base_offset for segment in segments[1:]), NO_END]
    return [
        PlacedSegment(segment, min(end, segment.base_offset + LARGEST_RELATIVE_OFFSET + 1), end == NO_END)
        for segment, end in zip(segments, ends, strict=False)  # without segments there is nothing to end
        if end > offset
    ]


def follow(
    directory: Path, position: Callable[[], int], to_offset: int, read: Callable[[PlacedSegment], Iterator[Read]]
) -> Iterator[Read]:
    """Read segments in log order, from where `position` says we are; `read` moves that on.

    `FileNotFoundError` out of `read` means that a segment has been replaced, and the directory is listed again.
    """
    for _ in range(MOST_LISTINGS):
        for placed in segments_from(directory, position()):
            if placed.segment.base_offset >= to_offset:
                return
            try:
                yield from read(placed)
            except FileNotFoundError:
                break
        else:
            return
    raise LogDamaged(f"segments of {directory} are gone whenever they are to be opened. Is somebody deleting the log?")


class Survey(NamedTuple):
    """What the headers of a range say."""

    markers: Markers
    next_offset: int
    """Behind the last whole batch, or the beginning of the range where nothing is in it."""
    lineage: Lineage
    """The leader epochs met, each with the first offset under it."""


def survey(directory: Path, from_offset: int, to_offset: int | None, lineage: Lineage = ()) -> Survey:
    """The first pass: markers of the range, its end, and the leader epochs in it.

    Batches that a lineage (if given) contradicts do not count. Checksums are left to the second pass, but for those of
    the markers.
    """
    end = NO_END if to_offset is None else to_offset
    found = np.empty((HEADER_ROOM, MARKER_COLUMNS), np.int64)
    kept: list[Longs] = []
    epochs: list[Longs] = []
    next_offset = from_offset

    def read(placed: PlacedSegment) -> Iterator[None]:
        nonlocal next_offset
        for buffer, batches in read_headers(placed.segment, next_offset, may_grow=placed.is_last):
            last = batches[:, scan.B_LAST_OFFSET]
            wanted = placed.believable(batches) & (last >= next_offset) & (last < end)
            wanted &= agreeing(lineage, batches[:, scan.B_BASE_OFFSET], batches[:, scan.B_LEADER_EPOCH])
            chosen = batches if wanted.all() else np.ascontiguousarray(batches[wanted])
            if not len(chosen):
                continue
            next_offset = int(chosen[:, scan.B_LAST_OFFSET].max()) + 1
            markers = find_markers(buffer, chosen, len(chosen), found)
            if markers:
                kept.append(found[:markers].copy())
            changes = np.flatnonzero(np.diff(chosen[:, scan.B_LEADER_EPOCH], prepend=-2))
            epochs.append(chosen[changes][:, [scan.B_LEADER_EPOCH, scan.B_BASE_OFFSET]])
        yield None

    for _ in follow(directory, lambda: next_offset, end, read):
        pass
    rows = np.concatenate(kept) if kept else np.empty((0, MARKER_COLUMNS), np.int64)
    rows = rows[rows[:, 1] >= from_offset]
    return Survey(Markers.of(rows), next_offset, lineage_of(epochs))


def joined(*markers: Markers) -> Markers:
    """The markers of several replicas, each once."""
    rows = np.concatenate([np.stack(some, 1) for some in markers])
    return Markers.of(np.unique(rows, axis=0))


class RangeChunk(NamedTuple):
    """A chunk, and the numbers of those of its records that are in the range and come for the first time."""

    chunk: Chunk
    rows: Longs
    offsets: Longs
    """Of those records."""
    is_whole: bool
    """All of the chunk's records are."""


class RangeReader:
    """The second pass: `chunks`, once; the rest says how far it has come and what it has met."""

    def __init__(
        self, directory: Path, from_offset: int, to_offset: int, scratch: Scratch, progress: Progress | None = None
    ) -> None:
        self._directory = directory
        self._from_offset = from_offset
        self._to_offset = to_offset
        self._scratch = scratch
        self._progress = progress
        self.next_offset = from_offset
        self.leader_epoch: int | None = None
        """Of the last batch seen, perhaps one before the range; None where no batch was."""
        self.damage: list[str] = []
        self._told: set[Damage] = set()  # a segment that is read again has its damage again

    def chunks(self, markers: Markers) -> Iterator[RangeChunk]:
        return follow(
            self._directory, lambda: self.next_offset, self._to_offset, lambda placed: self._read(placed, markers)
        )

    def _read(self, placed: PlacedSegment, markers: Markers) -> Iterator[RangeChunk]:
        met: list[Damage] = []
        first_new = self.next_offset
        pieces = read_segment(
            placed.segment, self._scratch, met, markers,
            progress=self._progress, from_offset=self.next_offset, may_grow=placed.is_last, must_exist=True,
        )  # fmt: skip
        for piece in pieces:
            chosen = self._choose(piece.chunk, placed)
            if len(chosen.rows):
                yield chosen
            self._tell(met, first_new)
        self._tell(met, first_new)

    def _tell(self, met: list[Damage], first_new: int) -> None:
        """Pass on what is damaged; what is before the range has been told by those who read that."""
        for one in met:
            if (one.base_offset is None or one.base_offset >= first_new) and one not in self._told:
                self._told.add(one)
                self.damage.append(str(one))
        met.clear()

    def _choose(self, chunk: Chunk, placed: PlacedSegment) -> RangeChunk:
        batches = chunk.batches
        last = batches[:, scan.B_LAST_OFFSET]
        good = batches[:, scan.B_STATE] == scan.GOOD
        believable = placed.believable(batches)
        if not (good <= believable).all():
            self._tell_unbelievable(batches[good & ~believable], placed)
        seen = good & believable & (last < self._to_offset)
        if seen.any():
            self.leader_epoch = int(batches[np.flatnonzero(seen)[-1], scan.B_LEADER_EPOCH])
        new = seen & (last >= self.next_offset)
        self._drop_repeated(batches, new, placed)
        offsets = np.ascontiguousarray(chunk.records[:, R_OFFSET])
        rows = np.arange(len(offsets))
        if not new.all() or (len(offsets) and (offsets[0] < self.next_offset or offsets[-1] > last[-1])):
            of_batch = chunk.records[:, R_BATCH]
            rows = np.flatnonzero(new[of_batch] & (offsets >= self.next_offset) & (offsets <= last[of_batch]))
            offsets = offsets[rows]
        falls = offsets[1:] <= offsets[:-1]
        if falls.any():
            rising = self._rising(offsets, placed)
            rows, offsets = rows[rising], offsets[rising]
        if new.any():
            self.next_offset = int(last[new].max()) + 1
        return RangeChunk(chunk, rows, offsets, len(rows) == len(chunk.records))

    def _drop_repeated(self, batches: Longs, new: Flags, placed: PlacedSegment) -> None:
        """Of batches that go back behind an earlier one, the earlier one counts."""
        numbers = np.flatnonzero(new)
        last = np.maximum.accumulate(batches[numbers, scan.B_LAST_OFFSET])
        back = numbers[1:][batches[numbers[1:], scan.B_BASE_OFFSET] <= last[:-1]]
        if len(back):
            new[back] = False
            offset = int(batches[back[0], scan.B_BASE_OFFSET])
            self.damage.append(
                f"{placed.segment.name}: {len(back)} batches, the first at offset {offset}, stand behind later ones. "
                "They are left out; what stands before them is read."
            )

    def _rising(self, offsets: Longs, placed: PlacedSegment) -> Flags:
        rising: Flags = np.concatenate([[True], offsets[1:] > np.maximum.accumulate(offsets)[:-1]])
        self.damage.append(
            f"{placed.segment.name}: {int((~rising).sum())} records behind offset {int(offsets[0])} do not rise within "
            "their batch. They are left out; the others are read."
        )
        return rising

    def _tell_unbelievable(self, batches: Longs, placed: PlacedSegment) -> None:
        offset = int(batches[0, scan.B_BASE_OFFSET])
        self.damage.append(
            f"{placed.segment.name}: {len(batches)} batches have offsets that this segment cannot have, the first "
            f"{offset}. They are left out; the batches around them are read."
        )
