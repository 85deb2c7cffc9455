"""The log of one partition of data, as a broker (perhaps a running one, perhaps a dead one) has it on disk. Read only.

Indexes are used where they can be believed: an entry counts if the batch it points to is the one it speaks of. Those of
a segment that is being written are allocated ahead, so they end in zeros, which are looked past. Without a usable index
a segment is walked from its beginning, header by header.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muster.codec.batches import computed_crc, decode_records, read_header
from muster.codec.columns import scan
from muster.codec.records import BatchHeader, Record
from muster.errors import CodecError, LogDamaged, Malformed
from muster.log.producers import newest_snapshot
from muster.log.segment import INDEX, LOG, TIMEINDEX, Segment, offset_in_name
from muster.segments.batches import checked_batches, walk_headers
from muster.segments.files import File, Files
from muster.segments.indexes import NO_TIMESTAMP, OFFSET, POSITION, OffsetEntry, OffsetIndex, TimeIndex

TAIL_BUFFER_BYTES = 256 * 1024
WINDOW_BYTES, BATCHES_AT_ONCE = 1024 * 1024, 16 * 1024
LARGEST_DECODED_BYTES = 128 * 1024 * 1024
"""A batch above this is not opened to look for a timestamp."""

Problems = list[str]


class Tail(NamedTuple):
    """The end of a log, behind its last whole batch."""

    end_offset: int
    data_end_offset: int | None
    """None: no data at all in what was looked at."""
    newest_timestamp_ms: int
    start: int
    """The byte of the last segment where the look began; before it there is nothing it knows of."""


class DataLog:
    """One replica of a partition. Raises `OSError` where a file cannot be read (a broker may just have deleted it)."""

    def __init__(self, files: Files, directory: Path, checkpointed_start: int | None) -> None:
        self.files = files
        self.directory = directory
        self.segments = [
            Segment(files, directory, base_offset, entry.size_bytes)
            for entry in files.entries(directory)
            if (base_offset := offset_in_name(entry.name, LOG)) is not None and not entry.is_directory
        ]
        self.segments.sort(key=lambda segment: segment.base_offset)
        first = self.segments[0].base_offset if self.segments else 0
        self.start_offset = first if checkpointed_start is None else max(first, checkpointed_start)

    # Places.

    def _place(self, segment: Segment, find: Callable[[OffsetIndex], OffsetEntry]) -> int:
        """The byte of an index entry; 0 if there is no index, or the entry cannot be right."""
        if not self.files.exists(segment.path(INDEX)):
            return 0
        with segment.opened(INDEX) as file:
            entry = find(OffsetIndex(file, segment.base_offset, allocated_ahead=True))
        return segment.trusted(entry)

    def _place_of(self, segment: Segment, offset: int) -> int:
        return self._place(segment, lambda index: index.floor(OFFSET, offset))

    def _place_before(self, segment: Segment, position: int, entries: int) -> int:
        """So many entries before a byte of the log."""
        return self._place(segment, lambda index: index.floor(POSITION, position - 1, back=entries - 1))

    # The end.

    def tail(self, problems: Problems) -> Tail:
        """Look at what lies behind the last index entry, checksums included."""
        last = self.segments[-1]
        start = self._place(last, lambda index: index.last)
        tail, problem = self._tail_from(last, start)
        entries = 1
        while problem is not None and start > 0 and tail.end_offset == last.base_offset:
            start, entries = (
                self._place_before(last, start, entries),
                entries * 2,
            )  # the indexed batch is damaged itself
            tail, problem = self._tail_from(last, start)
        if problem is not None:
            problems.append(f"{self._name(last)}: {problem}. Taken to end at offset {tail.end_offset}.")
        return tail

    def _tail_from(self, last: Segment, start: int) -> tuple[Tail, CodecError | None]:
        end_offset, data_end, newest_ms, problem = last.base_offset, None, NO_TIMESTAMP, None
        with last.opened() as log:
            try:
                for _, header, _ in checked_batches(log, start, last.size_bytes, TAIL_BUFFER_BYTES):
                    end_offset = header.last_offset + 1
                    data_end = end_offset if _has_data(header) else data_end
                    newest_ms = max(newest_ms, header.max_timestamp_ms)
            except CodecError as error:
                problem = error
        return Tail(end_offset, data_end, newest_ms, start), problem

    def data_end_offset(self, tail: Tail) -> int:
        """Behind the last record that is no transaction marker; the log's start where there is none."""
        found = tail.data_end_offset
        for segment in reversed(self.segments):
            if found is not None:
                break
            found = self._last_data_before(segment, tail.start if segment is self.segments[-1] else segment.size_bytes)
        return max(self.start_offset, found or 0)

    def _last_data_before(self, segment: Segment, until: int) -> int | None:
        """Walk back in growing stretches until one has data."""
        entries = 1
        while until > 0:
            start, found = self._place_before(segment, until, entries), None
            for _, header in self._headers(segment, start, until):
                found = header.last_offset + 1 if _has_data(header) else found
            if found is not None:
                return found
            until, entries = start, entries * 2
        return None

    def _headers(self, segment: Segment, start: int, until: int) -> Iterator[tuple[int, BatchHeader]]:
        """Up to where the row of batches breaks off."""
        with segment.opened() as log:
            try:
                for position, header in walk_headers(log, start, segment.size_bytes):
                    if position >= until:
                        return
                    yield position, header
            except CodecError:
                return

    def newest_timestamp_ms(self, tail: Tail) -> int | None:
        """The largest timestamp of all, markers included, as a broker's ListOffsets has it."""
        indexed = [self._largest_timestamp_ms(segment, tail.end_offset) for segment in self.segments]
        newest = max([tail.newest_timestamp_ms, *indexed])
        return None if newest < 0 else newest

    def _largest_timestamp_ms(self, segment: Segment, end_offset: int) -> int:
        """As the time index has it, if the batch says so too; of a segment being written, as far as it is indexed."""
        if self.files.exists(segment.path(TIMEINDEX)):
            with segment.opened(TIMEINDEX) as file:
                index = TimeIndex(file, segment.base_offset, allocated_ahead=True)
                number = index.count_below(end_offset) - 1
                entry = index.entry(number) if number >= 0 else None
            if entry is not None:
                start = self._place_of(segment, entry.offset)
                for _, header in self._headers(segment, start, segment.size_bytes):
                    if header.last_offset >= entry.offset:
                        if header.max_timestamp_ms == entry.timestamp_ms:
                            return entry.timestamp_ms
                        break
        largest = NO_TIMESTAMP
        for _, header in self._headers(segment, 0, segment.size_bytes):
            if header.last_offset < end_offset:
                largest = max(largest, header.max_timestamp_ms)
        return largest

    def last_stable_offset(self, end_offset: int) -> int:
        """The first offset of the oldest open transaction, or the end: the newest snapshot, and headers since."""
        producers = newest_snapshot(self.files, self.directory, end_offset)
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else end_offset
            if following <= producers.end_offset:
                continue
            start = self._place_of(segment, producers.end_offset)
            with segment.opened() as log:
                for position, header in _of_transactions(log, start, segment.size_bytes):
                    if header.last_offset >= end_offset:
                        break
                    if header.last_offset >= producers.end_offset:
                        producers.replay(header, _whole(log, position, header) if header.is_control else b"")
        first = producers.first_undecided_offset()
        return end_offset if first is None else min(max(first, self.start_offset), end_offset)

    # Records.

    def data_from(self, offset: int) -> Iterator[list[Record]]:
        """The records of each batch of data, from the one that holds an offset on. `LogDamaged` where one is broken."""
        bases = [segment.base_offset for segment in self.segments]
        for segment in self.segments[max(bisect_right(bases, offset) - 1, 0) :]:
            with segment.opened() as log:
                try:
                    for position, header in walk_headers(log, self._place_of(segment, offset), segment.size_bytes):
                        if header.last_offset >= offset and _has_data(header):
                            yield _decoded(_whole(log, position, header), header)
                except CodecError as error:
                    raise LogDamaged(f"{self._name(segment)}: {error}") from error

    def _name(self, segment: Segment) -> str:
        return f"{self.directory.name}/{segment.path(LOG).name}"


def _of_transactions(log: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches of transactions and their markers, up to where the row of batches breaks off.

    They are found by kernels: there may be a gigabyte since the last snapshot, and it is walked over by every run.
    """
    table = np.empty((BATCHES_AT_ONCE, scan.BATCH_COLUMNS), np.int64)
    while position < end:
        window = np.frombuffer(bytearray(log.pread(min(WINDOW_BYTES, end - position), position)), np.uint8)
        count, reached, stop = scan.scan_batches(window, 0, len(window), table, scan.ANY_NUMBER, False)
        batches = table[:count]
        wanted = batches[:, scan.B_ATTRIBUTES] & (scan.TRANSACTIONAL_BIT | scan.CONTROL_BIT)
        for place in batches[(wanted != 0) & (batches[:, scan.B_MAGIC] == 2), scan.B_POSITION].tolist():
            yield (
                position + place,
                read_header(window[place : place + scan.HEADER_SIZE].tobytes(), 0, end - position - place),
            )
        if stop not in (scan.SCAN_MORE, scan.SCAN_FULL):
            return
        if not count:  # one that is larger than a window
            try:
                header = read_header(window[: scan.HEADER_SIZE].tobytes(), 0, end - position)
            except CodecError:
                return
            yield position, header
            reached = header.size_bytes
        position += reached


def _has_data(header: BatchHeader) -> bool:
    return not header.is_control and header.record_count != 0


def _whole(log: File, position: int, header: BatchHeader) -> bytes:
    if header.size_bytes > LARGEST_DECODED_BYTES:
        raise Malformed(f"a batch of {header.size_bytes} bytes at offset {header.base_offset}, too large to be opened")
    return log.pread(header.size_bytes, position)


def _decoded(data: bytes, header: BatchHeader) -> list[Record]:
    if len(data) < header.size_bytes or computed_crc(data, 0, header) != header.crc:
        raise Malformed(f"the batch at offset {header.base_offset} is not what its checksum says")
    return decode_records(data, 0, header)
