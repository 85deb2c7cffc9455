"""A chunk: a stretch of whole batches, scanned, unpacked and classified.

Everything columnar starts from a chunk: Arrow columns, lines of a dump, newest-per-key, tally, activity. A chunk
lives in scratch memory that the next one overwrites, which is what keeps a reader of any number of gigabytes at a
constant size; everything made from a chunk is copied out of it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec import batches as rowwise
from muster.codec import compression, legacy
from muster.codec.columns import commits, groups, scan
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_BODY,
    B_BODY_END,
    B_COUNT,
    B_FIRST_RECORD,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_POSITION,
    B_RECORDS,
    B_SIZE,
    B_STATE,
    BAD_COMPRESSION,
    BAD_CRC,
    BAD_RECORDS,
    GOOD,
    SMALLEST_RECORD,
    resolve_outcomes,
)
from muster.codec.records import Record
from muster.codec.transaction_outcomes import Markers
from muster.errors import CodecError

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

UNPACKED_ROOM = 32 * 1024 * 1024
"""How much a chunk unpacks before the rest is left to the next one."""
RECORD_ROOM = 1 << 17
BATCH_ROOM = 1 << 15


class BatchProblem(NamedTuple):
    """A batch that could not be trusted: where it is in the buffer, and what is wrong with it."""

    batch: int
    reason: str


@dataclass(slots=True)
class Chunk:
    """Whole batches and their records. Valid until the next chunk is decoded with the same `Scratch`."""

    buffer: Bytes
    batches: Longs  # the batch table: columns scan.B_*
    records: Longs  # the record table: columns scan.R_*
    classes: Longs  # what each record is: columns commits.C_*
    totals: Longs  # commits.T_*
    next_position: int  # where in the buffer the next chunk begins
    stop: int  # scan.SCAN_*: why the scan ended there
    problems: list[BatchProblem] = field(default_factory=list)


@dataclass(slots=True)
class Scratch:
    """The memory that chunks are decoded in; make one per reader and keep it."""

    batches: Longs = field(default_factory=lambda: np.empty((BATCH_ROOM, scan.BATCH_COLUMNS), np.int64))
    records: Longs = field(default_factory=lambda: np.empty((RECORD_ROOM, scan.RECORD_COLUMNS), np.int64))
    classes: Longs = field(default_factory=lambda: np.empty((RECORD_ROOM, commits.CLASS_COLUMNS), np.int64))
    group: Longs = field(default_factory=lambda: np.empty((2, groups.MEMBER_COLUMNS), np.int64))
    unpacked: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def for_bytes(cls, size: int) -> "Scratch":
        """As much as so many bytes can need, for those who decode a little now and then."""
        batches = min(BATCH_ROOM, size // scan.SMALLEST_ENTRY + 1)
        records = min(RECORD_ROOM, size // SMALLEST_RECORD + 1)
        return cls(
            np.empty((batches, scan.BATCH_COLUMNS), np.int64),
            np.empty((records, scan.RECORD_COLUMNS), np.int64),
            np.empty((records, commits.CLASS_COLUMNS), np.int64),
        )

    def make_room(self, records: int) -> None:
        if records > len(self.records):
            self.records = np.empty((records, scan.RECORD_COLUMNS), np.int64)
            self.classes = np.empty((records, commits.CLASS_COLUMNS), np.int64)


def with_slack(data: bytes | memoryview) -> Bytes:
    """A buffer that kernels may read: the bytes, and the spare ones behind them."""
    buffer = np.empty(len(data) + SLACK, np.uint8)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    buffer[len(data) :] = 0
    return buffer


def decode_chunk(
    buffer: Bytes,
    start: int,
    end: int,
    scratch: Scratch,
    markers: Markers | None = None,
    *,
    forgiving: bool = False,
) -> Chunk:
    """Decode whole batches of buffer[start:end], as many as the scratch memory takes.

    The buffer must have `SLACK` bytes behind `end`. `forgiving` reads on in batches with a bad checksum, as
    kafka-dump-log does; otherwise such a batch contributes no records. Markers give transactional batches their
    outcome; without them those stay open.
    """
    count, position, stop = scan.scan_batches(buffer, start, end, scratch.batches, RECORD_ROOM, True)
    table = scratch.batches[:count]
    problems: list[BatchProblem] = []
    unpacked = _Unpacked(end + SLACK)
    # Only packed batches and those of the old formats need Python's attention one by one.
    special = (table[:, B_MAGIC] < 2) | ((table[:, B_ATTRIBUTES] & scan.CODEC_MASK) != 0)
    old_rows: dict[int, list[list[int]]] = {}
    for number in np.flatnonzero(special).tolist():
        if len(unpacked.data) >= UNPACKED_ROOM:
            table = table[:number]
            break
        row = table[number]
        data = buffer.data[int(row[B_POSITION]) : int(row[B_POSITION] + row[B_SIZE])]
        if row[B_MAGIC] < 2:
            old_rows[number] = _read_old_entry(data, row, number, unpacked, problems, forgiving)
        else:
            _unpack(data, row, number, unpacked, problems, forgiving)
    if len(table) < count:
        position, stop = int(scratch.batches[len(table), B_POSITION]), scan.SCAN_FULL
    if unpacked.data:
        buffer = _joined(buffer, end, unpacked, scratch)
    filled = _parse(buffer, table, old_rows, scratch, forgiving)
    _report_bad_batches(buffer, table, problems)
    resolve_outcomes(table, 0, len(table), *(markers or Markers.none()))
    totals = np.zeros(commits.TOTALS, np.int64)
    commits.classify(buffer, table, scratch.records, 0, filled, scratch.classes, totals, scratch.group)
    return Chunk(buffer, table, scratch.records[:filled], scratch.classes[:filled], totals, position, stop, problems)


class _Unpacked:
    """Bytes that will follow the raw ones in the buffer, and where each piece will be."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()

    def add(self, piece: bytes) -> int:
        self.data += piece
        return self.start + len(self.data) - len(piece)


def _read_old_entry(
    data: memoryview, row: Longs, number: int, unpacked: _Unpacked, problems: list[BatchProblem], forgiving: bool
) -> list[list[int]]:
    """Record-table rows of one entry of magic 0 or 1; completes its batch row."""
    try:
        header = rowwise.read_header(data)
        row[B_BASE_TIMESTAMP] = row[B_MAX_TIMESTAMP] = header.max_timestamp_ms
        crc = legacy.computed_crc(data, 0, header)
        if crc != header.crc:
            row[B_STATE] = BAD_CRC
            problems.append(BatchProblem(number, crc_sentence(header.crc, crc)))
            if not forgiving:
                return []
        records = legacy.decode_entry(data, 0, header)
    except CodecError as error:
        if row[B_STATE] == GOOD:
            row[B_STATE] = BAD_RECORDS
            problems.append(BatchProblem(number, str(error)))
        return []
    row[B_BASE_OFFSET] = records[0].offset
    return [_old_row(record, number, unpacked) for record in records]


def _old_row(record: Record, number: int, unpacked: _Unpacked) -> list[int]:
    key, value = record.key, record.value
    return [
        record.offset,
        record.timestamp_ms,
        unpacked.add(key or b""),
        -1 if key is None else len(key),
        unpacked.add(value or b""),
        -1 if value is None else len(value),
        number,
        0,
    ]


def _unpack(
    data: memoryview, row: Longs, number: int, unpacked: _Unpacked, problems: list[BatchProblem], forgiving: bool
) -> None:
    """Decompress one batch of magic 2 and point its row there."""
    if row[B_COUNT] == 0 or (row[B_STATE] != GOOD and not forgiving):
        return
    codec = int(row[B_ATTRIBUTES]) & scan.CODEC_MASK
    try:
        body = compression.decompress(codec, data[scan.HEADER_SIZE :])
    except CodecError as error:
        if row[B_STATE] == GOOD:
            problems.append(BatchProblem(number, str(error)))
        row[B_STATE] = BAD_COMPRESSION
        return
    row[B_BODY] = unpacked.add(body)
    row[B_BODY_END] = row[B_BODY] + len(body)
    if not 0 <= row[B_COUNT] <= len(body) // SMALLEST_RECORD and row[B_STATE] == GOOD:
        row[B_STATE] = BAD_RECORDS


def _joined(buffer: Bytes, end: int, unpacked: _Unpacked, scratch: Scratch) -> Bytes:
    size = unpacked.start + len(unpacked.data)
    if len(scratch.unpacked) < size + SLACK:
        scratch.unpacked = np.empty(size + size // 4 + SLACK, np.uint8)
    joined = scratch.unpacked
    joined[:end] = buffer[:end]
    joined[unpacked.start : size] = np.frombuffer(unpacked.data, np.uint8)
    return joined


def _parse(buffer: Bytes, table: Longs, old_rows: dict[int, list[list[int]]], scratch: Scratch, forgiving: bool) -> int:
    """Fill the record table in log order; returns how many records there are."""
    bytes_allow = np.maximum(table[:, B_BODY_END] - table[:, B_BODY], 0) // SMALLEST_RECORD
    claimed = np.clip(table[:, B_COUNT], 0, bytes_allow).sum()
    scratch.make_room(int(claimed) + sum(map(len, old_rows.values())))
    filled, first = 0, 0
    for number, rows in [*old_rows.items(), (len(table), [])]:
        filled = scan.parse_batches(buffer, table, first, number, scratch.records, filled, forgiving)
        first = number + 1
        if rows:
            scratch.records[filled : filled + len(rows)] = rows
        if number < len(table):
            table[number, B_FIRST_RECORD], table[number, B_RECORDS] = filled, len(rows)
        filled += len(rows)
    return filled


def crc_sentence(stored: int, computed: int) -> str:
    """How a wrong checksum is told."""
    return f"says CRC {stored:08x}, its bytes give {computed:08x}"


def _report_bad_batches(buffer: Bytes, table: Longs, problems: list[BatchProblem]) -> None:
    """Say of each bad batch what is wrong; the row-wise codec finds the words."""
    told = {problem.batch for problem in problems}
    for number in np.flatnonzero(table[:, B_STATE] != GOOD).tolist():
        if number in told:
            continue
        start = int(table[number, B_POSITION])
        data = buffer.data[start : start + int(table[number, B_SIZE])]
        problems.append(BatchProblem(number, _reason(data)))
    problems.sort()


def _reason(data: memoryview) -> str:
    header = rowwise.read_header(data)
    crc = rowwise.computed_crc(data, 0, header)
    if crc != header.crc:
        return crc_sentence(header.crc, crc)
    try:
        rowwise.decode_records(data, 0, header)
    except CodecError as error:
        return str(error)
    raise AssertionError("the two codecs disagree about a batch")
