"""The sparse indexes of a segment, by offset and by time, and the index of aborted transactions.

`.index` holds pairs of int32: a batch's last offset, counted from the segment's base, and the byte where that batch
begins. `.timeindex` holds an int64 timestamp, the largest so far, and as int32 the last offset of the batch it came
from. An entry is added behind every `index.interval.bytes` of log, so finding an offset is a search here and a short
walk over batches there.

Such an index is a hint, never the truth. It may miss entries (a crash before a sync), end in zeros (Kafka allocates
10 MB ahead), or be wrong; every user of an entry compares it with the batch it points to. Nothing is kept in memory but
the last entry.

`.txnindex` has one entry of 34 bytes for each ABORT marker in the segment whose transaction wrote something: int16
version 0, then int64 producer id, first offset of the transaction, offset of the marker, and the last stable offset
when the marker was written. A consumer under read_committed needs it to step over aborted records. The file exists only
where there is such a transaction.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from muster.segments.files import File

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
MAX_RELATIVE_OFFSET = (1 << 31) - 1
NO_TIMESTAMP = -1


class OffsetEntry(NamedTuple):
    """The batch that ends with `offset` begins at `position`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No batch up to the one that ends with `offset` has a larger timestamp."""

    timestamp_ms: int
    offset: int


OFFSET, POSITION = range(2)
"""The fields of an `OffsetEntry` by which it is looked up."""


def _how_many(count: int, holds: Callable[[int], bool]) -> int:
    """How many of `count` entries, from the first on, something holds for; it holds for none behind those."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low


class OffsetIndex:
    """`.index` of one segment, in an open file.

    `allocated_ahead` says that it may be one that a broker is writing: the zeros at its end are no entries.
    """

    __slots__ = ("_file", "base_offset", "count", "last")

    def __init__(self, file: File, base_offset: int, *, allocated_ahead: bool = False) -> None:
        self._file = file
        self.base_offset = base_offset
        self.count = file.size() // OFFSET_ENTRY.size
        if allocated_ahead:
            self.count = _how_many(self.count, lambda number: self.entry(number).position > 0)
        self.last = self.entry(self.count - 1)

    def entry(self, number: int) -> OffsetEntry:
        """The segment's beginning for a number below 0, and where the file was cut short meanwhile."""
        data = self._file.pread(OFFSET_ENTRY.size, number * OFFSET_ENTRY.size) if number >= 0 else b""
        if len(data) < OFFSET_ENTRY.size:
            return OffsetEntry(self.base_offset, 0)
        relative, position = OFFSET_ENTRY.unpack(data)
        return OffsetEntry(self.base_offset + relative, position)

    def floor(self, field: int, target: int, back: int = 0) -> OffsetEntry:
        """The last entry whose offset, or position, is at most the target, or so many entries before that one.

        The segment's beginning where there is none.
        """
        if target >= self.last[field] and not back:
            return self.last
        return self.entry(_how_many(self.count, lambda number: self.entry(number)[field] <= target) - 1 - back)

    def append(self, entries: list[OffsetEntry]) -> None:
        data = b"".join([OFFSET_ENTRY.pack(offset - self.base_offset, position) for offset, position in entries])
        self._file.pwrite(data, self.count * OFFSET_ENTRY.size)
        self.count += len(entries)
        self.last = entries[-1]

    def truncate(self, count: int) -> None:
        self._file.truncate(count * OFFSET_ENTRY.size)
        self.count = count
        self.last = self.entry(count - 1)

    def count_below(self, offset: int) -> int:
        """How many entries speak of batches that end before an offset."""
        return _how_many(self.count, lambda number: self.entry(number).offset < offset)


class TimeIndex:
    """`.timeindex` of one segment, in an open file; `allocated_ahead` as in `OffsetIndex`."""

    __slots__ = ("_file", "base_offset", "count", "last")

    def __init__(self, file: File, base_offset: int, *, allocated_ahead: bool = False) -> None:
        self._file = file
        self.base_offset = base_offset
        self.count = file.size() // TIME_ENTRY.size
        if allocated_ahead:
            self.count = _how_many(self.count, lambda number: self.entry(number).timestamp_ms > 0)
        self.last = self.entry(self.count - 1)

    def entry(self, number: int) -> TimeEntry:
        """(-1, base offset) for a number below 0, and where the file was cut short meanwhile."""
        data = self._file.pread(TIME_ENTRY.size, number * TIME_ENTRY.size) if number >= 0 else b""
        if len(data) < TIME_ENTRY.size:
            return TimeEntry(NO_TIMESTAMP, self.base_offset)
        timestamp_ms, relative = TIME_ENTRY.unpack(data)
        return TimeEntry(timestamp_ms, self.base_offset + relative)

    def floor(self, timestamp_ms: int) -> TimeEntry:
        """The last entry whose timestamp is at most this one; (-1, base offset) where there is none."""
        return self.entry(_how_many(self.count, lambda number: self.entry(number).timestamp_ms <= timestamp_ms) - 1)

    def append(self, entries: list[TimeEntry]) -> None:
        """Entries that do not raise the timestamp are left out, as in Kafka."""
        last, data = self.last, bytearray()
        for entry in entries:
            if entry.timestamp_ms > last.timestamp_ms:
                data += TIME_ENTRY.pack(entry.timestamp_ms, entry.offset - self.base_offset)
                last = entry
        if data:
            self._file.pwrite(data, self.count * TIME_ENTRY.size)
            self.count += len(data) // TIME_ENTRY.size
            self.last = last

    def truncate(self, count: int) -> None:
        self._file.truncate(count * TIME_ENTRY.size)
        self.count = count
        self.last = self.entry(count - 1)

    def count_below(self, offset: int) -> int:
        return _how_many(self.count, lambda number: self.entry(number).offset < offset)


class IndexBuilder:
    """Which batches of a segment get entries: the next one behind every `index.interval.bytes`.

    The same whether the batches are being appended or read back, so a rebuilt index is the one that was lost.
    """

    __slots__ = ("_interval_bytes", "bytes_since_entry", "largest", "offset_entries", "time_entries")

    def __init__(self, interval_bytes: int, bytes_since_entry: int, largest: TimeEntry) -> None:
        self._interval_bytes = interval_bytes
        self.bytes_since_entry = bytes_since_entry
        self.largest = largest
        self.offset_entries: list[OffsetEntry] = []
        self.time_entries: list[TimeEntry] = []

    def add(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """The batch at a position of the log."""
        if max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimeEntry(max_timestamp_ms, last_offset)
        if self.bytes_since_entry > self._interval_bytes:
            self.offset_entries.append(OffsetEntry(last_offset, position))
            self.time_entries.append(self.largest)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size_bytes

    def save(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Append the entries gathered so far."""
        if self.offset_entries:
            offset_index.append(self.offset_entries)
            time_index.append(self.time_entries)
            self.offset_entries, self.time_entries = [], []


def valid_offset_entries(data: bytes, log_bytes: int) -> int:
    """How many entries at the front of an index file can be right: both numbers rise, and lie within the log."""
    valid, last_offset, last_position = 0, -1, -1
    whole = len(data) - len(data) % OFFSET_ENTRY.size
    for relative, position in OFFSET_ENTRY.iter_unpack(data[:whole]):
        if relative <= last_offset or position <= last_position or position >= log_bytes:
            break
        valid, last_offset, last_position = valid + 1, relative, position
    return valid


def valid_time_entries(data: bytes) -> int:
    """How many entries at the front of a time index can be right: both numbers rise."""
    valid, last_timestamp_ms, last_offset = 0, NO_TIMESTAMP, -1
    whole = len(data) - len(data) % TIME_ENTRY.size
    for timestamp_ms, relative in TIME_ENTRY.iter_unpack(data[:whole]):
        if timestamp_ms <= last_timestamp_ms or relative <= last_offset:
            break
        valid, last_timestamp_ms, last_offset = valid + 1, timestamp_ms, relative
    return valid


# Aborted transactions.


TXN_ENTRY = struct.Struct(">hqqqq")
TXN_VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` to the marker at `last_offset` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    return TXN_ENTRY.pack(TXN_VERSION, *transaction)


def decode_aborted(data: bytes, base_offset: int) -> list[AbortedTransaction] | None:
    """All entries of a file; None where they cannot be right: cut short, out of order, or of another version."""
    if len(data) % TXN_ENTRY.size:
        return None
    found: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in TXN_ENTRY.iter_unpack(data):
        transaction = AbortedTransaction(*fields)
        if version != TXN_VERSION or transaction.last_offset <= last_offset:
            return None
        if not 0 <= transaction.first_offset <= transaction.last_offset:
            return None
        last_offset = transaction.last_offset
        found.append(transaction)
    return found


def overlapping(
    transactions: list[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Those with records in a range (its end excluded), and whether later segments can have no more of them."""
    found: list[AbortedTransaction] = []
    for transaction in transactions:
        if transaction.last_offset >= from_offset and transaction.first_offset < to_offset:
            found.append(transaction)
        if transaction.last_stable_offset >= to_offset:
            return found, True
    return found, False
