"""Whole batches cut out of what a Fetch brought, and proof that they are the ones that were asked for. No I/O."""

import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec.columns import scan
from muster.errors import Malformed
from muster.live.fetch import Fetched

_ROWS = 16_384
_LENGTH_PREFIX = 12

Table = NDArray[np.int64]


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
