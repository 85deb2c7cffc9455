"""A stretch of a live partition into a directory of segments, byte for byte as its leader has it.

The files are what the pipeline reads anyway: whole batches in the order of the log, in files named by the offset they
begin at. Nothing is decoded. A failed download leaves whole batches behind, and may be begun again from any offset.

Where the log ends. Without `to_offset` it is the high watermark of the first answer: a busy partition would otherwise
never be done. With one, a leader that has not got so far (it was elected a moment ago) is waited for, a little.
"""

import contextlib
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec.columns import scan
from muster.codec.error_codes import ErrorCode
from muster.errors import ClusterError, Malformed
from muster.live.cluster import Cluster, Patience
from muster.live.requests import NO_EPOCH, Fetched, FetchFrom, nothing_handed_out, partition_problem, shown

FETCH_BYTES = 16 * 1024 * 1024
LARGEST_SEGMENT_BYTES = 1024 * 1024 * 1024
MOST_OFFSETS_IN_SEGMENT = (1 << 31) - 1
"""Offsets in a segment are kept as an int32 from its name on."""
CATCHING_UP_S = 5.0
MOST_MOVES = 20
"""How often the start of a log may run away from us before we have read a single batch."""
_ROWS = 16_384
_LENGTH_PREFIX = 12

Progress = Callable[[int], None]
Table = NDArray[np.int64]


def download(
    config: Mapping[str, str],
    topic: str,
    partition: int,
    from_offset: int,
    to_offset: int | None,
    directory: Path,
    progress: Progress | None = None,
) -> int:
    """Write the batches of [from_offset, to_offset) as segments into `directory`; returns the next offset to read.

    Batches are taken whole: the first may begin before `from_offset`, the last may end behind `to_offset`, and then so
    does the offset returned. Where the log has meanwhile been cut at its start, the files begin later than
    `from_offset`: the gap is for the caller to see. An offset below `to_offset` is returned where the log ends earlier.
    """
    with Cluster(config) as cluster:
        return download_from(cluster, topic, partition, from_offset, to_offset, directory, progress)


def download_from(
    cluster: Cluster,
    topic: str,
    partition: int,
    from_offset: int,
    to_offset: int | None,
    directory: Path,
    progress: Progress | None = None,
) -> int:
    """The same over connections that are there already, for one partition after the other."""
    directory.mkdir(parents=True, exist_ok=True)
    work = _Download(cluster, (topic, partition), from_offset, to_offset)
    with contextlib.closing(_Segments(directory)) as segments:
        while (piece := work.next_piece()) is not None:
            fetched, cut = piece
            segments.write(fetched.frame[cut.start : cut.end], cut)
            if progress is not None:
                progress(cut.end - cut.start)
    return work.offset


# --- batches of an answer: whole, checked, in order ---


class Cut(NamedTuple):
    """Batches in `frame[start:end]`, checked; `start == end` where there is no whole one."""

    start: int
    end: int
    first_offset: int
    """Where a segment that begins with them begins."""
    next_offset: int
    """Behind the last of them; what was asked for where there are none."""
    wanted_bytes: int
    """What the batch has that was cut off; 0 if none was."""
    reached_end: bool
    """A batch was met that begins at `to_offset` or later."""
    last_epoch: int
    """Leader epoch of the last of them; -1 where there is none."""


def whole_batches(fetched: Fetched, offset: int, to_offset: int | None) -> Cut:
    """The batches that begin before `to_offset`, of a partition that was fetched at `offset`.

    The first may begin before `offset`: brokers hand out whole batches. `Malformed` where a batch's checksum is wrong,
    where offsets do not rise, or where something is no batch at all.
    """
    whole = fetched.frame.obj
    assert isinstance(whole, bytearray), "with spare bytes at its end, which the kernel needs"
    buffer = np.frombuffer(whole, np.uint8)
    table = np.empty((_ROWS, scan.BATCH_COLUMNS), np.int64)
    position, next_offset, first_offset, epoch = fetched.start, offset, offset, -1
    while True:
        begun = position
        count, position, why = scan.scan_batches(buffer, begun, fetched.end, table, scan.ANY_NUMBER, True)
        rows = table[:count]
        inside = count
        if count:
            _check(rows, buffer, next_offset, begun == fetched.start)
            if to_offset is not None:
                inside = int(np.searchsorted(rows[:, scan.B_BASE_OFFSET], to_offset))
        if begun == fetched.start and inside:
            first_offset = _first_offset(rows[0], offset)
        if inside:
            next_offset = int(rows[inside - 1, scan.B_LAST_OFFSET]) + 1
            epoch = int(rows[inside - 1, scan.B_LEADER_EPOCH])
        if inside < count:
            return Cut(fetched.start, int(rows[inside, scan.B_POSITION]), first_offset, next_offset, 0, True, epoch)
        if why in (scan.SCAN_BAD_LENGTH, scan.SCAN_BAD_MAGIC):
            raise Malformed(f"behind offset {next_offset - 1} comes something that is no batch")
        if why != scan.SCAN_FULL:
            wanted = _size_of_next(fetched.frame, position, fetched.end)
            return Cut(fetched.start, position, first_offset, next_offset, wanted, False, epoch)


def _check(rows: Table, buffer: NDArray[np.uint8], expected: int, is_first: bool) -> None:
    base, last = rows[:, scan.B_BASE_OFFSET], rows[:, scan.B_LAST_OFFSET]
    bad = np.flatnonzero(rows[:, scan.B_STATE] == scan.BAD_CRC)
    if len(bad):
        raise Malformed(f"the batch at offset {base[bad[0]]} has a checksum that does not fit its bytes")
    for row in rows[rows[:, scan.B_MAGIC] < 2]:
        start, end = int(row[scan.B_POSITION]), int(row[scan.B_BODY_END])
        if zlib.crc32(buffer[start + 16 : end].data) != row[scan.B_CRC]:
            raise Malformed(f"the message at offset {row[scan.B_BASE_OFFSET]} has a checksum that does not fit")
    if last[0] < expected:
        raise Malformed(f"a batch that ends at offset {last[0]} in an answer about offset {expected}")
    if base[0] < (0 if is_first else expected) or np.any(last < base) or np.any(base[1:] <= last[:-1]):
        raise Malformed(f"offsets that do not rise, behind offset {base[0]}")


def _first_offset(row: Table, offset: int) -> int:
    # A wrapper of the old formats goes by the offset of its last message.
    base = int(row[scan.B_BASE_OFFSET])
    return base if row[scan.B_MAGIC] == 2 else min(base, offset)


def _size_of_next(frame: memoryview, position: int, end: int) -> int:
    if end == position:
        return 0
    if end - position < _LENGTH_PREFIX:
        return _LENGTH_PREFIX
    (length,) = struct.unpack_from(">i", frame, position + 8)
    return int(length) + _LENGTH_PREFIX


# --- the walk through the log, and the files it fills ---


class _Download:
    """Where we are in the log, and what to ask for next."""

    def __init__(self, cluster: Cluster, where: tuple[str, int], offset: int, to_offset: int | None) -> None:
        self._cluster = cluster
        self._where = where
        self._to_offset = to_offset
        self._max_bytes = FETCH_BYTES
        self._patience = Patience(CATCHING_UP_S)
        self._last_epoch = NO_EPOCH
        self._moves = 0
        self.offset = offset

    @property
    def _is_done(self) -> bool:
        return self._to_offset is not None and self.offset >= self._to_offset

    def next_piece(self) -> tuple[Fetched, Cut] | None:
        """The next batches, or None at the end."""
        while not self._is_done:
            fetched = self._fetched()
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._find_way_back()
                continue
            if fetched.error:
                raise partition_problem(self._where, fetched.error)
            if fetched.diverging_offset is not None:
                raise self._truncated(fetched.diverging_offset)
            if self._to_offset is None:
                self._to_offset = fetched.high_watermark
                if self._is_done:
                    return None
            cut = self._cut(fetched)
            if cut.end > cut.start:
                self.offset = cut.next_offset
                self._max_bytes = FETCH_BYTES
                self._last_epoch = max(cut.last_epoch, NO_EPOCH)
                self._moves = 0
                self._patience.renew()
                return fetched, cut
            if cut.reached_end:  # the last offsets before the end have been cleaned away
                self.offset = self._to_offset
            elif cut.wanted_bytes:
                self._ask_for_more(cut.wanted_bytes)
            elif not self._patience.wait():
                self._check_end(fetched)
                return None
        return None

    def _fetched(self) -> Fetched:
        wanted = {self._where: FetchFrom(self.offset, self._max_bytes, self._last_epoch)}
        asked = self._cluster.fetch(wanted, self._max_bytes)
        if self._where not in asked.answers:
            raise asked.problems[self._where]
        return asked.answers[self._where]

    def _cut(self, fetched: Fetched) -> Cut:
        try:
            return whole_batches(fetched, self.offset, self._to_offset)
        except Malformed as problem:
            raise ClusterError(
                f"{shown(self._where)} cannot be read behind offset {self.offset}: {problem}. The leader's copy may be "
                "damaged; reading a broker's log directory instead steps over such places."
            ) from None

    def _find_way_back(self) -> None:
        """Our offset is not in the log: its start has moved past us, or its end is before us."""
        ends = self._cluster.log_ends([self._where])[self._where]
        if ends.log_start_offset is None or ends.high_watermark is None:
            raise ends.problem or ClusterError(f"where {shown(self._where)} begins and ends cannot be found out.")
        if self.offset < ends.log_start_offset and self._moves < MOST_MOVES:
            self.offset, self._last_epoch = ends.log_start_offset, NO_EPOCH
            self._moves += 1
        elif not self._patience.wait():
            raise self._truncated(ends.high_watermark)

    def _truncated(self, end: int) -> ClusterError:
        return ClusterError(
            f"{shown(self._where)} ends at offset {end}, as far as it is the log we know, and offset {self.offset} was "
            "to be read next: it has been truncated, or the topic was made anew. Read it again, from its start if that "
            "does not help."
        )

    def _ask_for_more(self, wanted_bytes: int) -> None:
        """A batch that is larger than what we asked for; brokers send it all the same, but they need not."""
        largest = self._cluster.largest_fetch_bytes
        if wanted_bytes <= self._max_bytes or wanted_bytes > largest:
            raise ClusterError(
                f"{shown(self._where)} has a batch of {wanted_bytes} bytes behind offset {self.offset}, which did not "
                f"come whole in an answer of at most {max(largest, self._max_bytes)}. If that size is right, set "
                "receive.message.max.bytes higher."
            )
        self._max_bytes = wanted_bytes

    def _check_end(self, fetched: Fetched) -> None:
        if fetched.high_watermark > self.offset:
            raise nothing_handed_out(self._where, self.offset, fetched.high_watermark)


class _Segments:
    """The files that are written, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._first_offset = 0
        self._size_bytes = 0

    def write(self, data: memoryview, cut: Cut) -> None:
        is_full = self._size_bytes + len(data) > LARGEST_SEGMENT_BYTES
        if self._file is None or is_full or cut.next_offset - self._first_offset > MOST_OFFSETS_IN_SEGMENT:
            self.close()
            self._file = (self._directory / f"{cut.first_offset:020}.log").open("wb")
            self._first_offset, self._size_bytes = cut.first_offset, 0
        self._file.write(data)
        self._size_bytes += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
