"""Segments read in bounded chunks, with a note of everything that was damaged.

Nothing here stops at damage. A batch that cannot be trusted is stepped over; where the row of batches itself breaks off
(a torn tail, a wild length) the rest of that segment is given up and the next segment is read, as a broker's own tools
do. Every such place becomes a `Damage` with file, byte, batch and what still holds.

`record_batches` is the whole of it for programs: every record under some paths, as Arrow record batches.
"""

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec.columns import scan
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.scan import MARKER_COLUMNS, find_markers
from muster.codec.transaction_outcomes import Markers
from muster.segments.sources import SegmentFile, SourcePartition, Sources

CHUNK_BYTES = 8 * 1024 * 1024
LARGEST_BATCH_BYTES = 1024 * 1024 * 1024
"""A length above this is taken for damage even where the file is long enough for it."""

HEADER_ROOM = 1 << 15

Progress = Callable[[int], None]
Bytes = NDArray[np.uint8]


class Damage(NamedTuple):
    """One place that could not be read: `what` is wrong there, and what `holds` all the same.

    Batches of a segment are counted from 1; number 0 means the segment as a whole, and -1 a batch of a segment that was
    not read from its beginning.
    """

    segment: str
    byte_position: int
    base_offset: int | None
    batch_number: int
    skipped_bytes: int
    what: str
    holds: str

    def __str__(self) -> str:
        if self.batch_number == 0:
            return f"{self.segment} {self.what}. {self.holds}"
        offset = "" if self.base_offset is None else f" (base offset {self.base_offset})"
        batch = "a batch" if self.batch_number < 0 else f"batch {self.batch_number}"
        return f"{self.segment} at byte {self.byte_position}: {batch}{offset} {self.what}. {self.holds}"


class SegmentChunk(NamedTuple):
    """A chunk and where in which file it begins: byte p of its buffer is byte `file_position + p` of the segment."""

    segment: SegmentFile
    chunk: Chunk
    file_position: int
    is_first: bool


class _Window:
    """A stretch of a file in memory: what is left of the last read, and what follows it."""

    def __init__(self, path: Path, chunk_bytes: int) -> None:
        self._file = path.open("rb", buffering=0)
        self.limit = os.fstat(self._file.fileno()).st_size
        self.buffer: Bytes = np.empty(min(chunk_bytes, max(self.limit, 1)) + SLACK, np.uint8)
        self.file_position = 0  # of buffer[0]
        self.start = 0
        self.end = 0

    def close(self) -> None:
        self._file.close()

    def begin_at(self, byte_position: int) -> None:
        """Skip what is before a byte; to be called before the first `refill`."""
        self._file.seek(byte_position)
        self.file_position = byte_position

    def peek(self, size: int, byte_position: int) -> bytes:
        return os.pread(self._file.fileno(), size, byte_position)

    @property
    def left_in_file(self) -> int:
        return self.limit - self.file_position - self.end

    def refill(self, wanted: int = 0) -> bool:
        """Move the rest to the front and read on; True if anything came. `wanted` makes room for a large batch."""
        rest = self.end - self.start
        size = max(len(self.buffer), wanted + SLACK)
        if size > len(self.buffer):
            larger = np.empty(size, np.uint8)
            larger[:rest] = self.buffer[self.start : self.end]
            self.buffer = larger
        else:
            self.buffer[:rest] = self.buffer[self.start : self.end].copy()
        self.file_position += self.start
        self.start, self.end = 0, rest
        room = min(len(self.buffer) - SLACK - rest, self.left_in_file)
        while room > 0:
            read = self._file.readinto(self.buffer.data[self.end : self.end + room])
            if not read:
                self.limit = self.file_position + self.end  # the file has been cut while we read
                break
            self.end += read
            room -= read
        self.buffer[self.end : self.end + SLACK] = 0
        return self.end > rest

    def has_grown(self, wanted: int) -> bool:
        """Whether a writer has meanwhile completed the batch at the end; its few bytes are then let in."""
        complete = self.file_position + self.start + wanted
        for pause in (0, 0.02, 0.05):
            time.sleep(pause)
            if os.fstat(self._file.fileno()).st_size >= complete:
                self.limit = max(self.limit, complete)
                return True
        return False


def read_segment(
    segment: SegmentFile,
    scratch: Scratch,
    damage: list[Damage],
    markers: Markers | None = None,
    *,
    forgiving: bool = False,
    progress: Progress | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    from_offset: int = 0,
    may_grow: bool = False,
    must_exist: bool = False,
) -> Iterator[SegmentChunk]:
    """Decode one segment chunk by chunk; whatever is wrong is appended to `damage`.

    With `from_offset`, batches that end before it may be left out, as far as the segment's index tells where to begin.
    Of a segment that `may_grow` an unfinished end is no damage: a broker is writing there, or was. With
    `must_exist` a segment that is gone is the caller's to deal with (`FileNotFoundError`).
    """
    try:
        window = _Window(segment.path, chunk_bytes)
    except FileNotFoundError:
        if must_exist:
            raise
        damage.append(Damage(segment.name, 0, None, 0, segment.size_bytes, "is gone", "A broker may have replaced it."))
        return
    try:
        window.begin_at(_start_of(window, segment, from_offset))
        yield from _read_window(window, segment, scratch, damage, markers, forgiving, progress, may_grow)
    finally:
        window.close()


_INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("byte_position", ">i4")])
_BATCH_START = struct.Struct(">qi4xb")  # base offset, length, magic
_LAST_OFFSET_DELTA = 23


def _start_of(window: _Window, segment: SegmentFile, offset: int) -> int:
    """Where to begin in order to miss nothing from an offset on: a batch found by the index, or the first byte.

    An index is a hint. It may be missing, end in zeros, or belong to another file than the one we have open, so the
    batch that it points to is compared with it.
    """
    if offset <= segment.base_offset:
        return 0
    try:
        entries = np.fromfile(segment.path.with_suffix(".index"), _INDEX_ENTRY)
    except OSError:
        return 0
    offsets, positions = entries["relative_offset"].astype(np.int64), entries["byte_position"].astype(np.int64)
    falls = np.flatnonzero((np.diff(offsets) <= 0) | (np.diff(positions) <= 0))
    rising = int(falls[0]) + 1 if len(falls) else len(entries)
    number = int(np.searchsorted(offsets[:rising], offset - segment.base_offset, "right")) - 1
    if number < 0:
        return 0
    position = int(positions[number])
    return position if _batch_ends_with(window, position) == segment.base_offset + int(offsets[number]) else 0


def _batch_ends_with(window: _Window, byte_position: int) -> int | None:
    """The last offset of the batch that seems to begin at a byte."""
    if not 0 <= byte_position < window.limit:
        return None
    start = window.peek(_LAST_OFFSET_DELTA + 4, byte_position)
    if len(start) < _LAST_OFFSET_DELTA + 4:
        return None
    base_offset, length, magic = _BATCH_START.unpack_from(start)
    if length < scan.LEGACY_MIN_SIZE or not 0 <= magic <= 2:
        return None
    delta = int.from_bytes(start[_LAST_OFFSET_DELTA:], "big", signed=True) if magic == 2 else 0
    return int(base_offset) + delta


def _read_window(
    window: _Window,
    segment: SegmentFile,
    scratch: Scratch,
    damage: list[Damage],
    markers: Markers | None,
    forgiving: bool,
    progress: Progress | None,
    may_grow: bool,
) -> Iterator[SegmentChunk]:
    from_the_start = window.file_position == 0
    batches_before = 0
    last_offset: int | None = None
    first = True
    window.refill()
    while True:
        chunk = decode_chunk(window.buffer, window.start, window.end, scratch, markers, forgiving=forgiving)
        for problem in chunk.problems:
            row = chunk.batches[problem.batch]
            damage.append(
                Damage(
                    segment.name,
                    window.file_position + int(row[scan.B_POSITION]),
                    int(row[scan.B_BASE_OFFSET]),
                    batches_before + problem.batch + 1 if from_the_start else -1,
                    int(row[scan.B_SIZE]),
                    problem.reason,
                    "The batches before and after it are whole.",
                )
            )
        if progress is not None:
            progress(chunk.next_position - window.start)
        if len(chunk.batches):
            last_offset = int(chunk.batches[-1, scan.B_LAST_OFFSET])
        batches_before += len(chunk.batches)
        if len(chunk.batches) or first:
            yield SegmentChunk(segment, chunk, window.file_position, first)
            first = False
        window.start = chunk.next_position
        if chunk.stop == scan.SCAN_FULL:
            continue
        if chunk.stop != scan.SCAN_MORE or not _read_on(window, waiting=not may_grow):
            break
    left = window.end - window.start + window.left_in_file
    if left > 0:
        if not (may_grow and _is_unfinished(window, chunk.stop, left)):
            number = batches_before + 1 if from_the_start else -1
            damage.append(_broken_off(window, segment, chunk.stop, number, last_offset, left))
        if progress is not None:
            progress(left)


def _read_on(window: _Window, waiting: bool = True) -> bool:
    """Get more bytes, making room for a batch larger than the window; False at the end or at a wild length."""
    wanted = _wanted_bytes(window)
    if wanted > LARGEST_BATCH_BYTES:
        return False
    complete = wanted <= window.end - window.start + window.left_in_file
    if not complete and (not waiting or window.end == window.start or not window.has_grown(wanted)):
        return False
    return window.refill(wanted)


def _is_unfinished(window: _Window, stop: int, left: int) -> bool:
    """Whether the end of a segment looks like a batch that is still being written, or room allocated ahead."""
    if stop == scan.SCAN_MORE:
        return left < _wanted_bytes(window) <= LARGEST_BATCH_BYTES
    return stop == scan.SCAN_BAD_LENGTH and not window.buffer[window.start : window.end].any()


def _wanted_bytes(window: _Window) -> int:
    if window.end - window.start < 12:
        return 17 if window.end > window.start else 0
    length = int.from_bytes(window.buffer[window.start + 8 : window.start + 12].tobytes(), "big", signed=True)
    return length + 12


def _broken_off(
    window: _Window, segment: SegmentFile, stop: int, batch_number: int, last_offset: int | None, left: int
) -> Damage:
    """Say why no further batch can be found in this segment."""
    available = window.end - window.start
    position = window.file_position + window.start
    base_offset = None
    if available >= 8:
        base_offset = int.from_bytes(window.buffer[window.start : window.start + 8].tobytes(), "big", signed=True)
    if stop == scan.SCAN_BAD_MAGIC:
        what = f"has magic {window.buffer[window.start + 16]}, and 0, 1 and 2 exist"
    elif stop == scan.SCAN_BAD_LENGTH:
        what = f"has length {_wanted_bytes(window) - 12}, which no batch can have"
        if not window.buffer[window.start : window.end].any():
            what = f"is missing: {left} zero bytes to the end (allocated ahead, or lost in a crash)"
            base_offset = None
    elif available < 17:
        what = f"breaks off after {left} bytes"
    elif LARGEST_BATCH_BYTES < _wanted_bytes(window) <= left:
        what = f"says it has {_wanted_bytes(window)} bytes, more than any batch may have"
    else:
        what = f"says it has {_wanted_bytes(window)} bytes, and the file ends after {left}"
    holds = "Nothing before it." if last_offset is None else f"Whole up to offset {last_offset}."
    return Damage(segment.name, position, base_offset, batch_number, left, what, holds)


def read_partition(
    partition: SourcePartition,
    scratch: Scratch,
    damage: list[Damage],
    markers: Markers | None = None,
    *,
    forgiving: bool = False,
    progress: Progress | None = None,
    must_exist: bool = False,
) -> Iterator[SegmentChunk]:
    """All segments of a partition in log order, transactions resolved. `must_exist` as in `read_segment`."""
    if markers is None:
        markers = read_markers(partition.segments, must_exist=must_exist)
    for segment in partition.segments:
        yield from read_segment(
            segment, scratch, damage, markers, forgiving=forgiving, progress=progress, must_exist=must_exist
        )


def read_markers(segments: Iterable[SegmentFile], *, must_exist: bool = False) -> Markers:
    """The header-only pass: the transaction markers of a partition. Damage is left to the second pass to report."""
    found = np.empty((HEADER_ROOM, MARKER_COLUMNS), np.int64)
    kept: list[NDArray[np.int64]] = []
    for segment in segments:
        try:
            for buffer, batches in read_headers(segment):
                markers = find_markers(buffer, batches, len(batches), found)
                if markers:
                    kept.append(found[:markers].copy())
        except FileNotFoundError:
            if must_exist:
                raise
    return Markers.of(np.concatenate(kept)) if kept else Markers.none()


def read_headers(
    segment: SegmentFile, from_offset: int = 0, *, may_grow: bool = False
) -> Iterator[tuple[Bytes, NDArray[np.int64]]]:
    """The batch headers of a segment, many at a time: a buffer, and the batch table that points into it.

    No checksum is looked at, and both are overwritten by the next. `from_offset` and `may_grow` as in `read_segment`.
    """
    table = np.empty((HEADER_ROOM, scan.BATCH_COLUMNS), np.int64)
    window = _Window(segment.path, 4 * 1024 * 1024)
    try:
        window.begin_at(_start_of(window, segment, from_offset))
        window.refill()
        while True:
            count, position, stop = scan.scan_batches(
                window.buffer, window.start, window.end, table, scan.ANY_NUMBER, False
            )
            yield window.buffer, table[:count]
            window.start = position
            if stop == scan.SCAN_FULL:
                continue
            if stop != scan.SCAN_MORE or not _read_on(window, waiting=not may_grow):
                return
    finally:
        window.close()


def record_batches(
    *paths: str | Path, latest: bool = False, damage: list[Damage] | None = None
) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """Every record under these paths, partition by partition in log order, in batches of bounded size.

    `latest` keeps only the newest record of each key, and all transactional ones with their outcome. What cannot be
    read is appended to `damage`, if given, and left out.
    """
    from muster.codec.columns.arrow import to_arrow

    if latest:
        from muster.codec.columns.latest import LatestTable
    notes = [] if damage is None else damage
    with Sources([Path(path) for path in paths]) as sources:
        scratch = Scratch()
        for partition in sources.partitions:
            table = LatestTable() if latest else None
            for piece in read_partition(partition, scratch, notes):
                if table is None:
                    yield to_arrow(piece.chunk, partition.partition)
                else:
                    table.update(piece.chunk)
            if table is not None:
                for chunk in table.survivors():
                    yield to_arrow(chunk, partition.partition)
