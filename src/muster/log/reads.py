"""Reading a log: by offset, by time, and all of it.

Only what is written can be read; what is staged is not there yet. Batches are handed out whole and as they lie in the
file: a read is one `pread`, and what it returns is a view of it. How much it would return can be known without it: an
`Extent` says where the batches lie, by the index and a short walk over headers.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from muster.codec.batches import ReadBatch, computed_crc, decode_records, iter_times, unpacked_body
from muster.codec.error_codes import ErrorCode
from muster.codec.records import LOG_APPEND_TIME, BatchHeader, Record
from muster.errors import CodecError, LogDamaged, Malformed, MusterError
from muster.log.segment import LOG, Segment
from muster.log.validation import COMPILED_WALK
from muster.segments.batches import walk_batches
from muster.segments.files import Files
from muster.segments.indexes import AbortedTransaction, overlapping

LOAD_BUFFER_BYTES = 5 * 1024 * 1024
"""Kafka's `offsets.load.buffer.size`."""

Progress = Callable[[int], None]
NOTHING = memoryview(b"")


class ReadRefused(MusterError):
    """The log has nothing at that offset, and never will or no longer has; `error` is Kafka's name for it."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(f"read refused: {error.name}: {reason}")
        self.error = error
        self.reason = reason


class FoundOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Extent(NamedTuple):
    """Whole batches that follow each other in a segment. To be read before the log changes."""

    segment: Segment
    start: int
    end: int
    readable_end: int
    """Where all ends that readers may see of this segment, whatever limit the batches were found by."""
    is_followed: bool = False
    """Whether readers may see records of later segments, too."""

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def read(self) -> memoryview:
        """`LogDamaged` if the disk fails."""
        try:
            return self.segment.read(self.start, self.end)
        except OSError as error:
            name = self.segment.directory.name
            raise LogDamaged(f"{name} cannot be read at byte {self.start} of {self.segment}: {error}") from error


class SegmentRow:
    """The segments of a log in order; the last one is being written to."""

    def __init__(self, segments: list[Segment]) -> None:
        self.set(segments)

    def set(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]

    def floor(self, offset: int) -> int:
        """The number of the last segment that begins at or before an offset."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def places(self, segments: Sequence[Segment]) -> tuple[int, int]:
        """Which segments of the log these are: the number of the first and of the last."""
        places = [self.segments.index(segment) for segment in segments]
        assert places == list(range(places[0], places[-1] + 1)), "segments that are replaced follow each other"
        return places[0], places[-1]


class ReadableLog(Protocol):
    """What a reader asks of a log, each time anew: the log grows, is cut, and has its segments replaced."""

    files: Files
    directory: Path
    row: SegmentRow
    start_offset: int
    written_offset: int

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...


class LogReader:
    """Reads the segments of a log as one log."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log

    def read(self, from_offset: int, max_bytes: int, up_to: int | None = None) -> memoryview:
        """The batches that `find` finds. An empty answer means that there is nothing yet."""
        found = self.find(from_offset, max_bytes, up_to)
        return NOTHING if found is None else found.read()

    def find(self, from_offset: int, max_bytes: int, up_to: int | None = None) -> Extent | None:
        """Whole batches from the one that holds an offset on, below `up_to` (the high watermark unless said).

        At most `max_bytes`, but at least one batch if there is any. The first one may begin before `from_offset`.
        `ReadRefused` outside the log, `LogDamaged` if the disk fails.
        """
        log = self._log
        if not log.start_offset <= from_offset <= log.end_offset:
            raise ReadRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.directory.name} holds offsets {log.start_offset} to {log.end_offset}, not {from_offset}",
            )
        limit = log.high_watermark if up_to is None else min(up_to, log.written_offset)
        if from_offset >= limit:
            return None
        try:
            return self._find(from_offset, max_bytes, limit)
        except OSError as error:
            raise LogDamaged(f"{log.directory.name} cannot be read at offset {from_offset}: {error}") from error

    def _find(self, from_offset: int, max_bytes: int, limit: int) -> Extent | None:
        row = self._log.row
        for number in range(row.floor(from_offset), len(row.segments)):
            segment = row.segments[number]
            found = segment.batch_at(from_offset)
            if found is None:
                continue
            start = found[0]
            end = segment.end_of_read(start, max_bytes)
            following = (
                self._log.row.bases[number + 1] if number + 1 < len(self._log.row.bases) else self._log.written_offset
            )
            beyond = segment.batch_at(limit) if limit < following else None
            readable_end = segment.size_bytes if beyond is None else beyond[0]
            end = min(end, readable_end)
            return Extent(segment, start, end, readable_end, following < limit) if end > start else None
        return None

    def batches(
        self,
        from_offset: int | None = None,
        buffer_bytes: int = LOAD_BUFFER_BYTES,
        progress: Progress | None = None,
    ) -> Iterator[ReadBatch]:
        """Every batch with its records, row by row, up to what is written by the time the reader gets there.

        A batch that cannot be trusted comes with its `problem` and without records. Where the row of batches breaks
        off, `LogDamaged`. `progress` is told of every so many bytes.
        """
        next_offset = self._log.start_offset if from_offset is None else from_offset
        while next_offset < self._log.written_offset:
            segment = self._log.row.segments[self._log.row.floor(next_offset)]
            before = next_offset
            for batch in self._segment_batches(segment, next_offset, buffer_bytes, progress):
                next_offset = batch.header.last_offset + 1
                yield batch
            following = self._log.row.bases[bisect_right(self._log.row.bases, segment.base_offset) :]
            if following:
                next_offset = max(next_offset, following[0])
            elif next_offset == before:
                return  # compaction may leave nothing up to the end

    def _segment_batches(
        self, segment: Segment, from_offset: int, buffer_bytes: int, progress: Progress | None
    ) -> Iterator[ReadBatch]:
        try:
            found = segment.batch_at(from_offset)
            if found is None:
                return
            file = self._log.files.open(segment.path(LOG))  # its own: the segment may be rolled or replaced meanwhile
            try:
                for position, header, data in walk_batches(file, found[0], segment.size_bytes, buffer_bytes):
                    yield _read_batch(position, header, data)
                    if progress is not None:
                        progress(header.size_bytes)
            finally:
                file.close()
        except (OSError, CodecError) as error:
            raise LogDamaged(f"{self._log.directory.name}/{segment.path(LOG).name}: {error}") from error

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record below the high watermark with at least this timestamp; None where all are older."""
        try:
            for segment in self._log.row.segments:
                if segment.largest_timestamp.timestamp_ms >= timestamp_ms:
                    start = segment.start_of_timestamp(timestamp_ms)
                    found = self._first_since(segment, start, timestamp_ms)
                    if found is not None:
                        return found if found.offset < self._log.high_watermark else None
        except (OSError, CodecError) as error:
            raise LogDamaged(f"{self._log.directory.name} cannot be searched by time: {error}") from error
        return None

    def offset_of_largest_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp of all."""
        try:
            largest = max((segment.largest_timestamp.timestamp_ms for segment in self._log.row.segments), default=-1)
        except OSError as error:
            raise LogDamaged(f"{self._log.directory.name} cannot be searched by time: {error}") from error
        return None if largest < 0 else self.offset_for_timestamp(largest)

    def _first_since(self, segment: Segment, start: int, timestamp_ms: int) -> FoundOffset | None:
        with segment.opened() as log:
            for _, header, data in walk_batches(log, start, segment.size_bytes, 64 * 1024):
                if header.max_timestamp_ms < timestamp_ms or header.last_offset < self._log.start_offset:
                    continue
                found = _first_in_batch(header, data, timestamp_ms, self._log.start_offset)
                if found is not None:
                    return found
        return None

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in a range: a reader under read_committed steps over those records."""
        found: list[AbortedTransaction] = []
        for segment in self._log.row.segments[self._log.row.floor(from_offset) :]:
            try:
                some, complete = overlapping(segment.aborted_transactions(), from_offset, to_offset)
            except OSError as error:
                raise LogDamaged(f"{self._log.directory.name} lost a transaction index: {error}") from error
            found += some
            if complete:
                break
        return found


def _first_in_batch(header: BatchHeader, data: memoryview, timestamp_ms: int, start_offset: int) -> FoundOffset | None:
    search = COMPILED_WALK.first_since(header.record_count)
    if search is not None and header.magic == 2 and not header.attributes & LOG_APPEND_TIME:
        delta, record_ms = search(
            unpacked_body(data, 0, header), header.record_count, header.base_timestamp_ms, timestamp_ms,
            max(start_offset - header.base_offset, 0),
        )  # fmt: skip
        if delta >= NOT_THERE:
            return (
                None if delta == NOT_THERE else FoundOffset(header.base_offset + delta, record_ms, header.leader_epoch)
            )
    for offset, record_ms in iter_times(data, 0, header):
        if record_ms >= timestamp_ms and offset >= start_offset:
            return FoundOffset(offset, record_ms, header.leader_epoch)
    return None


NOT_THERE = -1
"""Less says that a record is not whole; row by row the words for it are found."""


def _read_batch(position: int, header: BatchHeader, data: memoryview) -> ReadBatch:
    crc = computed_crc(data, 0, header)
    if crc != header.crc:
        return ReadBatch(position, header, [], Malformed(f"says CRC {header.crc:08x}, its bytes give {crc:08x}"))
    records: list[Record] = []
    try:
        records = decode_records(data, 0, header)
    except CodecError as error:
        return ReadBatch(position, header, records, error)
    return ReadBatch(position, header, records, None)
