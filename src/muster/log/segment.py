"""One segment: a `.log` file of batches, named by its first offset, and the indexes beside it.

`Segment` reads. Its files are opened for a read and closed behind it, so that any number of closed segments costs
nothing. `WritableSegment` is the one at the end of a log (or a new one that compaction writes, under another suffix):
it keeps its files open, appends whole batches in one write, and adds to the indexes behind every
`index.interval.bytes`.

Nothing here syncs, decides when to roll, or knows of other segments.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from muster.codec.records import BatchHeader
from muster.errors import CodecError, LogDamaged
from muster.segments.batches import walk_headers
from muster.segments.files import Buffer, File, Files, read_file
from muster.segments.indexes import (
    NO_TIMESTAMP,
    OFFSET,
    POSITION,
    TXN_ENTRY,
    AbortedTransaction,
    IndexBuilder,
    OffsetEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
    decode_aborted,
    encode_aborted,
)

LOG, INDEX, TIMEINDEX, TXNINDEX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIMEINDEX, TXNINDEX)
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"

DEFAULT_INDEX_INTERVAL_BYTES = 4096
DEFAULT_INDEX_BYTES = 10 * 1024 * 1024


def offset_in_name(name: str, kind: str) -> int | None:
    """The offset in a file's name, if it is of this kind: twenty digits and the kind."""
    digits = name.removesuffix(kind)
    return int(digits) if digits != name and len(digits) == 20 and digits.isdecimal() and digits.isascii() else None


class WrittenBatch(NamedTuple):
    """What the indexes need to know of a batch that is being appended."""

    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class Segment:
    """A segment for reading. `suffix` is behind all its names: "" but for `.cleaned`, `.swap` and `.deleted` ones."""

    def __init__(self, files: Files, directory: Path, base_offset: int, size_bytes: int, suffix: str = "") -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.suffix = suffix
        self._largest: TimeEntry | None = None
        self._first_timestamp_ms: int | None = None
        self._index_sizes: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path(LOG)}, {self.size_bytes} bytes)"

    def path(self, kind: str) -> Path:
        return self.directory / f"{self.base_offset:020}{kind}{self.suffix}"

    @contextmanager
    def opened(self, kind: str = LOG) -> Iterator[File]:
        file = self.files.open(self.path(kind))
        try:
            yield file
        finally:
            file.close()

    @contextmanager
    def _offset_index(self) -> Iterator[OffsetIndex]:
        with self.opened(INDEX) as file:
            yield OffsetIndex(file, self.base_offset)

    @contextmanager
    def _time_index(self) -> Iterator[TimeIndex]:
        with self.opened(TIMEINDEX) as file:
            yield TimeIndex(file, self.base_offset)

    def start_of(self, offset: int) -> int:
        """Where to begin a walk that looks for an offset: at, or shortly before, the batch that holds it."""
        with self._offset_index() as index:
            return self.trusted(index.floor(OFFSET, offset))

    def trusted(self, entry: OffsetEntry) -> int:
        """The position of an index entry, if the batch there is the one it speaks of; else the segment's start."""
        if 0 < entry.position < self.size_bytes:
            with self.opened() as log:
                try:
                    _, header = next(walk_headers(log, entry.position, self.size_bytes, window_bytes=64))
                except CodecError:
                    return 0
            if header.last_offset == entry.offset:
                return entry.position
        return 0

    def batch_at(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at an offset or behind it, and where it begins; None behind the last one."""
        start = self.start_of(offset)
        with self.opened() as log:
            for position, header in self._walk(log, start):
                if header.last_offset >= offset:
                    return position, header
        return None

    def _walk(self, log: File, start: int) -> Iterator[tuple[int, BatchHeader]]:
        try:
            yield from walk_headers(log, start, self.size_bytes)
        except CodecError as error:
            raise LogDamaged(f"{self.directory.name}/{self.path(LOG).name} behind byte {start}: {error}") from error

    def end_of_read(self, start: int, max_bytes: int) -> int:
        """The last end of a batch within `max_bytes` of a start, or of the one batch at the start if that is larger."""
        limit = start + max_bytes
        if limit >= self.size_bytes:
            return self.size_bytes
        with self._offset_index() as index:
            end = max(self.trusted(index.floor(POSITION, limit)), start)
        with self.opened() as log:
            for position, header in self._walk(log, end):
                if position + header.size_bytes > limit and position > start:
                    break
                end = position + header.size_bytes
        return end

    def read(self, position: int, end: int) -> memoryview:
        with self.opened() as log:
            return memoryview(log.pread(end - position, position))

    @property
    def largest_timestamp(self) -> TimeEntry:
        """The largest timestamp, and the last offset of the first batch that has it; -1 where nothing has any.

        In a segment that was sealed (or closed cleanly) it is the last entry of the time index.
        """
        if self._largest is None:
            with self._time_index() as index:
                self._largest = index.last
        return self._largest

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch: a segment's age is counted from it. -1 while it is empty."""
        if self._first_timestamp_ms is None:
            with self.opened() as log:
                first = next(self._walk(log, 0), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp_ms = first[1].max_timestamp_ms
        return self._first_timestamp_ms

    def index_sizes(self) -> tuple[int, int]:
        """Bytes of the offset index and of the time index, looked at once: a closed segment does not change."""
        if self._index_sizes is None:
            with self.opened(INDEX) as index, self.opened(TIMEINDEX) as time_index:
                self._index_sizes = index.size(), time_index.size()
        return self._index_sizes

    def start_of_timestamp(self, timestamp_ms: int) -> int:
        """Where to begin a walk that looks for the first record with at least this timestamp."""
        with self._time_index() as index:
            entry = index.floor(timestamp_ms)
        return self.start_of(entry.offset)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        if not self.files.exists(self.path(TXNINDEX)):
            return []
        found = decode_aborted(read_file(self.files, self.path(TXNINDEX)), self.base_offset)
        if found is None:
            raise LogDamaged(f"{self.directory.name}/{self.path(TXNINDEX).name} is not a transaction index")
        return found

    def next_offset(self) -> int:
        """One behind the last batch. Walks from the last index entry on."""
        with self._offset_index() as index:
            start = self.trusted(index.last)
        end = self.base_offset
        with self.opened() as log:
            for _, header in self._walk(log, start):
                end = header.last_offset + 1
        return end

    def rename(self, suffix: str) -> None:
        """Give all its files another suffix, the indexes before the log: a log with the new name has its indexes."""
        for kind in (TXNINDEX, TIMEINDEX, INDEX, LOG):
            source = self.path(kind)
            if self.files.exists(source):
                self.files.rename(source, self.directory / f"{self.base_offset:020}{kind}{suffix}")
        self.suffix = suffix

    def delete(self) -> None:
        """Remove all its files, the log first: recovery removes an index without a log, and opens a log without one."""
        for kind in SEGMENT_SUFFIXES:
            self.files.unlink(self.path(kind))


class WritableSegment(Segment):
    """A segment that is appended to. Opening it makes what files are missing; the indexes must fit the log."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        suffix: str = "",
        *,
        index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES,
        max_index_bytes: int = DEFAULT_INDEX_BYTES,
    ) -> None:
        super().__init__(files, directory, base_offset, 0, suffix)
        self._interval_bytes = index_interval_bytes
        self.txn_index_file: File | None = None
        with ExitStack() as until_open:  # of files of which one cannot be opened none stays open
            self.log, self.index_file, self.time_index_file = (
                until_open.enter_context(closing(files.open(self.path(kind), create=True)))
                for kind in (LOG, INDEX, TIMEINDEX)
            )
            self.size_bytes = self.log.size()
            self.offset_index = OffsetIndex(self.index_file, base_offset)
            self.time_index = TimeIndex(self.time_index_file, base_offset)
            until_open.pop_all()
        self._bytes_since_entry = self.size_bytes - self.offset_index.last.position
        self._most_offset_entries = max_index_bytes // 8
        self._most_time_entries = max_index_bytes // 12 - 1  # one is kept for the end of the segment
        if self.size_bytes == 0:
            self._largest = TimeEntry(NO_TIMESTAMP, base_offset)

    @contextmanager
    def opened(self, kind: str = LOG) -> Iterator[File]:
        open_already = {LOG: self.log, INDEX: self.index_file, TIMEINDEX: self.time_index_file}.get(kind)
        if open_already is not None:
            yield open_already
            return
        with super().opened(kind) as file:
            yield file

    @contextmanager
    def _offset_index(self) -> Iterator[OffsetIndex]:
        yield self.offset_index

    @contextmanager
    def _time_index(self) -> Iterator[TimeIndex]:
        yield self.time_index

    def index_sizes(self) -> tuple[int, int]:
        return self.index_file.size(), self.time_index_file.size()

    @property
    def is_full(self) -> bool:
        """Whether an index has no room left."""
        return self.offset_index.count >= self._most_offset_entries or self.time_index.count >= self._most_time_entries

    def append(self, data: Buffer, batches: Sequence[WrittenBatch]) -> None:
        """Write whole batches in one go; `batches` describes them in order.

        Raises `OSError` where that fails; the log may then hold part of them, behind `size_bytes`.
        """
        self.log.pwrite(data, self.size_bytes)
        if self.size_bytes == 0:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        builder = IndexBuilder(self._interval_bytes, self._bytes_since_entry, self.largest_timestamp)
        position = self.size_bytes
        for size_bytes, _, last_offset, max_timestamp_ms in batches:
            builder.add(position, size_bytes, last_offset, max_timestamp_ms)
            position += size_bytes
        self.continue_from(builder)
        self.size_bytes = position  # last: an append that failed anywhere is an append that did not happen

    def index_builder(self, bytes_since_entry: int, largest: TimeEntry) -> IndexBuilder:
        """To index batches that are in the log already; `continue_from` saves the entries."""
        return IndexBuilder(self._interval_bytes, bytes_since_entry, largest)

    def continue_from(self, builder: IndexBuilder) -> None:
        builder.save(self.offset_index, self.time_index)
        self._bytes_since_entry, self._largest = builder.bytes_since_entry, builder.largest

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        if self.txn_index_file is None:
            self.txn_index_file = self.files.open(self.path(TXNINDEX), create=True)
        size = self.txn_index_file.size()
        self.txn_index_file.pwrite(encode_aborted(transaction), size - size % TXN_ENTRY.size)

    def seal(self) -> None:
        """Note the largest timestamp in the time index: a closed segment is found and aged by it."""
        if self.largest_timestamp.timestamp_ms > self.time_index.last.timestamp_ms:
            self.time_index.append([self.largest_timestamp])

    def undo_append(self) -> None:
        """Cut off what a failed append may have left behind `size_bytes`."""
        if self.log.size() > self.size_bytes:
            self.log.truncate(self.size_bytes)

    def truncate(self, position: int, offset: int) -> None:
        """Cut the log at a position where the batch with this offset begins, and what the indexes say of it."""
        self.log.truncate(position)
        self.size_bytes = position
        self.offset_index.truncate(self.offset_index.count_below(offset))
        self.time_index.truncate(self.time_index.count_below(offset))
        self._bytes_since_entry = position - self.offset_index.last.position
        kept = [one for one in self.aborted_transactions() if one.last_offset < offset]
        self.rewrite_aborted(kept)
        self._largest = self._scanned_largest()
        self._first_timestamp_ms = None

    def _scanned_largest(self) -> TimeEntry:
        largest = self.time_index.last
        for _, header in self._walk(self.log, self.start_of(largest.offset)):
            if header.max_timestamp_ms > largest.timestamp_ms:
                largest = TimeEntry(header.max_timestamp_ms, header.last_offset)
        return largest

    def rewrite_aborted(self, transactions: list[AbortedTransaction]) -> None:
        """Make these the transaction index."""
        if self.txn_index_file is None and not transactions and not self.files.exists(self.path(TXNINDEX)):
            return
        if self.txn_index_file is None:
            self.txn_index_file = self.files.open(self.path(TXNINDEX), create=True)
        self.txn_index_file.truncate(0)
        if transactions:
            self.txn_index_file.pwrite(b"".join(map(encode_aborted, transactions)), 0)

    def open_files(self) -> list[tuple[str, File]]:
        """Its open files by kind, the log first."""
        found = [(LOG, self.log), (INDEX, self.index_file), (TIMEINDEX, self.time_index_file)]
        return found if self.txn_index_file is None else [*found, (TXNINDEX, self.txn_index_file)]

    def close(self) -> None:
        for _, file in self.open_files():
            file.close()

    def closed(self) -> Segment:
        """The same segment, for reading only."""
        segment = Segment(self.files, self.directory, self.base_offset, self.size_bytes, self.suffix)
        segment._largest, segment._first_timestamp_ms = self.largest_timestamp, self._first_timestamp_ms
        return segment
