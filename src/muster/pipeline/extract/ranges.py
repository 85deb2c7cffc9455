"""A partition's log from one offset to another, read from a directory in which a broker may be at work.

Two passes, as everywhere: headers first (`survey`), for the markers that say how transactions ended and for where the
range ends; then the records (`RangeReader`). Between and during the two a broker may append, roll, and replace segments
by compacted ones. So a range is followed by offset, never by file: when a listed segment is gone, the directory is
listed again and reading goes on with the next offset. Nothing comes twice, because what is below that offset is dropped
wherever it stands; and what a compaction took in between shows as a gap, as it does when it was there before us.

A range may be a piece of a larger one. Then it is records that are cut, and not batches: the piece has the records that
are in it, of every batch of the larger range. Transactions go on behind a piece, so headers are read on from its end
(`ended_behind`), but only until the last transaction that is open there has ended.

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
from muster.codec.transaction_outcomes import OPEN, Markers
from muster.errors import LogDamaged
from muster.pipeline.sources.replicas import Lineage, agreeing, lineage_of
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
    open_producers: frozenset[int] = frozenset()
    """Of a piece: those whose transaction is open at its end."""


def survey(
    directory: Path,
    from_offset: int,
    to_offset: int | None,
    lineage: Lineage = (),
    range_end: int | None = None,
) -> Survey:
    """The first pass: markers of the range, its end, and the leader epochs in it.

    Batches that a lineage (if given) contradicts do not count. Checksums are left to the second pass, but for those of
    the markers. A range that is a piece of a larger one has `range_end`, the end of that.
    """
    end = NO_END if to_offset is None else to_offset
    headers = _Headers(directory, from_offset, end, lineage, end if range_end is None else range_end)
    last_of: dict[int, int] = {}
    for batches in headers.read():
        if range_end is not None:
            last_of |= _in_transactions(batches)
    rows = headers.markers()
    markers = Markers.of(rows[rows[:, 1] >= from_offset])
    still_open = {producer for producer, last in last_of.items() if markers.outcome(producer, last) == OPEN}
    return Survey(markers, headers.next_offset, lineage_of(headers.epochs), frozenset(still_open))


def ended_behind(directory: Path, first: Survey, from_offset: int, range_end: int) -> Survey:
    """The survey of a piece, with markers that stand behind it in a directory: the first of each producer whose
    transaction was open. Reading ends as soon as none is.
    """
    waiting = set(first.open_producers)
    headers = _Headers(directory, from_offset, range_end, (), range_end)
    for _ in headers.read():
        waiting -= {producer for producer, *_ in headers.newest_markers}
        if not waiting:
            break
    rows = np.stack(first.markers, 1)
    markers = Markers.of(np.concatenate([rows, headers.markers()]))
    return first._replace(markers=markers, open_producers=frozenset(waiting))


def _in_transactions(batches: Longs) -> dict[int, int]:
    """The producers that write in transactions, each with the last offset of its newest batch."""
    kinds = batches[:, scan.B_ATTRIBUTES] & (scan.TRANSACTIONAL_BIT | scan.CONTROL_BIT)
    written = batches[(kinds == scan.TRANSACTIONAL_BIT) & (batches[:, scan.B_MAGIC] == 2)]
    return dict(written[:, [scan.B_PRODUCER_ID, scan.B_LAST_OFFSET]].tolist())


class _Headers:
    """The headers of a range: `read`, once, gives batches that are in it, and notes what they say."""

    def __init__(self, directory: Path, from_offset: int, to_offset: int, lineage: Lineage, range_end: int) -> None:
        self._directory, self._lineage = directory, lineage
        self._to_offset, self._range_end = to_offset, range_end
        self._room = np.empty((HEADER_ROOM, MARKER_COLUMNS), np.int64)
        self._markers: list[Longs] = []
        self.next_offset = from_offset
        self.epochs: list[Longs] = []

    def markers(self) -> Longs:
        """Rows of (producer id, offset, commit)."""
        return np.concatenate(self._markers) if self._markers else np.empty((0, MARKER_COLUMNS), np.int64)

    @property
    def newest_markers(self) -> list[list[int]]:
        """Those of the last batches given."""
        found: list[list[int]] = self._markers[-1].tolist() if self._markers else []
        return found

    def read(self) -> Iterator[Longs]:
        return follow(self._directory, lambda: self.next_offset, self._to_offset, self._read)

    def _read(self, placed: PlacedSegment) -> Iterator[Longs]:
        for buffer, batches in read_headers(placed.segment, self.next_offset, may_grow=placed.is_last):
            last = batches[:, scan.B_LAST_OFFSET]
            wanted = placed.believable(batches) & (last >= self.next_offset) & (last < self._range_end)
            wanted &= agreeing(self._lineage, batches[:, scan.B_BASE_OFFSET], batches[:, scan.B_LEADER_EPOCH])
            if self._to_offset < self._range_end:
                wanted &= _reaching_into(batches, wanted, self.next_offset, self._to_offset)
            chosen = batches if wanted.all() else np.ascontiguousarray(batches[wanted])
            if not len(chosen):
                continue
            self.next_offset = min(int(chosen[:, scan.B_LAST_OFFSET].max()) + 1, self._to_offset)
            markers = find_markers(buffer, chosen, len(chosen), self._room)
            if markers:
                self._markers.append(self._room[:markers].copy())
            changes = np.flatnonzero(np.diff(chosen[:, scan.B_LEADER_EPOCH], prepend=-2))
            self.epochs.append(chosen[changes][:, [scan.B_LEADER_EPOCH, scan.B_BASE_OFFSET]])
            yield chosen
            if self.next_offset >= self._to_offset:
                return


def _reaching_into(batches: Longs, wanted: Flags, next_offset: int, to_offset: int) -> Flags:
    """Which of these batches may have records before an offset: those before which the log has not come so far.

    A batch of the old formats goes by the offset of its last message, so its own base does not tell.
    """
    behind = np.maximum.accumulate(np.where(wanted, batches[:, scan.B_LAST_OFFSET] + 1, next_offset))
    before: Longs = np.concatenate([[next_offset], behind[:-1]])
    flags: Flags = before < to_offset
    return flags


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
        self,
        directory: Path,
        from_offset: int,
        to_offset: int,
        scratch: Scratch,
        progress: Progress | None = None,
        range_end: int | None = None,
    ) -> None:
        self._directory = directory
        self._from_offset = from_offset
        self._to_offset = to_offset
        self._range_end = to_offset if range_end is None else range_end
        self._is_piece = range_end is not None
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
            if self._is_piece and self.next_offset >= self._to_offset:
                return
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
        seen = good & believable & (last < self._range_end)
        if self._is_piece:
            seen &= _reaching_into(batches, seen, self.next_offset, self._to_offset)
        if seen.any():
            self.leader_epoch = int(batches[np.flatnonzero(seen)[-1], scan.B_LEADER_EPOCH])
        new = seen & (last >= self.next_offset)
        self._drop_repeated(batches, new, placed)
        offsets = np.ascontiguousarray(chunk.records[:, R_OFFSET])
        rows = np.arange(len(offsets))
        end = min(int(last[-1]), self._to_offset - 1) if len(last) else NO_END
        if not new.all() or (len(offsets) and (offsets[0] < self.next_offset or offsets[-1] > end)):
            of_batch = chunk.records[:, R_BATCH]
            ours = (offsets >= self.next_offset) & (offsets <= last[of_batch]) & (offsets < self._to_offset)
            rows = np.flatnonzero(new[of_batch] & ours)
            offsets = offsets[rows]
        falls = offsets[1:] <= offsets[:-1]
        if falls.any():
            rising = self._rising(offsets, placed)
            rows, offsets = rows[rising], offsets[rising]
        if new.any():
            self.next_offset = min(int(last[new].max()) + 1, self._to_offset)
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
