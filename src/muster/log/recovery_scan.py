"""One segment, read batch by batch after a crash, its indexes built anew on the way; and the report of what was found.

The recovery point of a log is written down only when everything below it is on the disk. A crash, a kill or a power cut
therefore never leaves a log that ends before its recovery point. A log that does has lost a file, or part of one, to
something else: a disk that is not mounted, a backup put back in part, a file removed by hand. Such a `Loss` is
reported, or refused (`LossRefused`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.codec.records import BatchHeader
from muster.errors import CodecError, DataLost, Malformed
from muster.log.producers import ProducerStates, newest_snapshot, replay
from muster.log.segment import INDEX, LOG, TIMEINDEX, TXNINDEX, Segment, WritableSegment
from muster.segments.batches import checked_batches, walk_headers
from muster.segments.checkpoints import LeaderEpochs
from muster.segments.files import File, Files, read_file
from muster.segments.indexes import (
    MAX_RELATIVE_OFFSET,
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    TimeEntry,
    TimeIndex,
    decode_aborted,
    valid_offset_entries,
    valid_time_entries,
)

LOST = "DATA LOST: "
"""Begins every note of a loss that was accepted."""
MOST_NAMED = 20


class Loss(NamedTuple):
    """What one partition has lost."""

    partition: str
    durable_up_to: int
    """The end that was written down; 0 where nothing was."""
    found_up_to: int | None
    """The end that was found; None where the whole directory is missing."""

    def __str__(self) -> str:
        if self.found_up_to is None and not self.durable_up_to:
            return f"{self.partition}: its directory is missing, and how much was in it is not known"
        found = "its directory is missing" if self.found_up_to is None else f"found up to {self.found_up_to}"
        return (
            f"{self.partition}: durable up to {self.durable_up_to}, {found}, so offsets {self.found_up_to or 0} to "
            f"{self.durable_up_to - 1} are lost"
        )


class LossRefused(DataLost):
    """Losses that were not accepted. Nothing was changed."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        named = "; ".join(map(str, losses[:MOST_NAMED]))
        more = f"; and {len(losses) - MOST_NAMED} more" if len(losses) > MOST_NAMED else ""
        super().__init__(f"{named}{more}.")
        self.losses = list(losses)


BUFFER_BYTES = 1024 * 1024


@dataclass(slots=True)
class RecoveryReport:
    """What opening a partition found and did. `notes` are sentences; after a clean stop there are none."""

    partition: str
    clean: bool
    checked_bytes: int = 0
    """Read and compared with their checksums."""
    replayed_bytes: int = 0
    """Looked at below that, for the producers' sake."""
    truncated_bytes: int = 0
    loss: Loss | None = None
    """Records that were durable and are gone."""
    notes: list[str] = field(default_factory=list)

    def note(self, segment: Segment, what: str) -> None:
        self.notes.append(f"{self.partition}/{segment.path(LOG).name}: {what}")


class Place(NamedTuple):
    """Where a scan may begin: behind the batch of an index entry that lies below the recovery point."""

    next_position: int
    next_offset: int
    offset_entries: int
    time_entries: int
    bytes_since_entry: int


class Scan:
    """Checks a segment. `producers` and `end_offset` are as of the place reached."""

    def __init__(
        self, segment: WritableSegment, report: RecoveryReport, epochs: LeaderEpochs, producers: ProducerStates
    ) -> None:
        self.segment = segment
        self.report = report
        self.epochs = epochs
        self.producers = producers
        self.end_offset = segment.base_offset
        self._position = 0
        self._place: Place | None = None
        self._aborted: list[AbortedTransaction] = []

    def start(self, segments: Sequence[Segment], recovery_point: int) -> None:
        """Begin not at the front but near the recovery point, with the producers as of there.

        `segments` are this one and all before it. The segments behind need no start: they carry on.
        """
        files, segment = self.segment.files, self.segment
        stored = decode_aborted(_read_or_empty(files, segment), segment.base_offset)
        if stored is not None:
            self._place = trusted_place(segment, recovery_point)
        if self._place is not None:
            self._position, self.end_offset = self._place.next_position, self._place.next_offset
        self.producers = newest_snapshot(files, segment.directory, max(self.end_offset, recovery_point))
        if stored is None:  # which transactions of this segment were aborted must be found out again
            self.producers = newest_snapshot(files, segment.directory, segment.base_offset)
        known_up_to = self.producers.end_offset
        self._aborted = [one for one in stored or () if one.last_offset < known_up_to]
        if known_up_to < self.end_offset:
            aborted, stepped_over = replay(self.producers, segments, self.end_offset)
            self.report.replayed_bytes += stepped_over
            self._aborted += [one for where, one in aborted if where.base_offset == segment.base_offset]

    def run(self, floor: int) -> bool:
        """Check every batch from the start on; False where one is wrong, and the log ends there.

        No batch may begin before `floor`, where the segment before this one ended.
        """
        segment, place = self.segment, self._place
        segment.offset_index.truncate(place.offset_entries if place else 0)
        segment.time_index.truncate(place.time_entries if place else 0)
        largest = segment.time_index.last if place else TimeEntry(NO_TIMESTAMP, segment.base_offset)
        builder = segment.index_builder(place.bytes_since_entry if place else 0, largest)
        started, size, whole = self._position, segment.log.size(), True
        self.end_offset = max(self.end_offset, floor)
        try:
            for position, header, data in checked_batches(segment.log, started, size, BUFFER_BYTES):
                _check_order(header, segment.base_offset, self.end_offset)
                builder.add(position, header.size_bytes, header.last_offset, header.max_timestamp_ms)
                self._replay(header, data)
                self._position = position + header.size_bytes
                self.end_offset = header.last_offset + 1
        except CodecError as error:
            whole = False
            cut_bytes = size - self._position
            self.report.truncated_bytes += cut_bytes
            self.report.note(
                segment,
                f"at byte {self._position}: {error}. Whole up to offset {self.end_offset - 1}; "
                f"the {cut_bytes} bytes behind it are cut off",
            )
        self.report.checked_bytes += self._position - started
        segment.size_bytes = self._position
        segment.continue_from(builder)
        segment.rewrite_aborted(self._aborted)
        segment.seal()
        _write_back(segment.log, started, self._position)
        return whole

    def _replay(self, header: BatchHeader, data: memoryview) -> None:
        if header.last_offset >= self.producers.end_offset:
            aborted = self.producers.replay(header, data)
            if aborted is not None:
                self._aborted.append(aborted)
        latest = self.epochs.latest
        if header.magic == 2 and header.leader_epoch >= 0 and (latest is None or header.leader_epoch > latest):
            self.epochs.assign(header.leader_epoch, header.base_offset)

    def cut(self) -> None:
        """Cut off what is behind the last whole batch; later segments must be gone by then."""
        self.segment.log.truncate(self._position)


def _check_order(header: BatchHeader, base_offset: int, end_offset: int) -> None:
    first = header.base_offset if header.magic == 2 else header.last_offset
    if first < end_offset or header.last_offset < first:
        raise Malformed(
            f"a batch from offset {first} to {header.last_offset}, behind one that ends at {end_offset - 1}"
        )
    if header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
        raise Malformed(f"a batch that ends at offset {header.last_offset} in a segment that begins at {base_offset}")


def _write_back(log: File, start: int, end: int) -> None:
    """Write bytes where they are already, so that the next sync brings them to the disk whatever became of the last."""
    while start < end:
        data = log.pread(min(BUFFER_BYTES, end - start), start)
        log.pwrite(data, start)
        start += len(data)


def _read_or_empty(files: Files, segment: Segment) -> bytes:
    path = segment.path(TXNINDEX)
    return read_file(files, path) if files.exists(path) else b""


def trusted_place(segment: WritableSegment, recovery_point: int) -> Place | None:
    """Behind the last indexed batch below the recovery point, if indexes and batch agree; None: begin at the front."""
    place = _place_behind(segment, recovery_point)
    if place is None and segment.offset_index.count:
        # The end may be torn, or zeros: Kafka allocates its indexes ahead. What comes before it may still be right.
        index, times = (read_file(segment.files, segment.path(kind)) for kind in (INDEX, TIMEINDEX))
        segment.offset_index.truncate(valid_offset_entries(index, segment.size_bytes))
        segment.time_index.truncate(valid_time_entries(times))
        place = _place_behind(segment, recovery_point)
    return place


def _place_behind(segment: WritableSegment, recovery_point: int) -> Place | None:
    kept = segment.offset_index.count_below(recovery_point)
    if kept == 0:
        return None
    entry = segment.offset_index.entry(kept - 1)
    try:
        position, header, _ = next(checked_batches(segment.log, entry.position, segment.size_bytes, BUFFER_BYTES))
    except (CodecError, StopIteration):
        return None
    times = segment.time_index.count_below(entry.offset + 1)
    if header.last_offset != entry.offset or position == 0 or not _rises(segment.time_index, times):
        return None
    return Place(position + header.size_bytes, header.last_offset + 1, kept, times, header.size_bytes)


def _rises(index: TimeIndex, count: int) -> bool:
    """Whether the last of so many entries can be right: later than the one before it, and no zeros."""
    if count == 0 or index.entry(count - 1).timestamp_ms == 0:
        return False
    return count == 1 or all(
        one < other for one, other in zip(index.entry(count - 2), index.entry(count - 1), strict=True)
    )


def indexes_fit(segment: Segment) -> bool:
    """A quick look at the indexes of a segment that was closed cleanly: sizes, and the last entry of each."""
    files = segment.files
    sizes = {entry.name: entry.size_bytes for entry in files.entries(segment.directory)}
    offset_bytes, time_bytes = sizes.get(segment.path(INDEX).name), sizes.get(segment.path(TIMEINDEX).name)
    if offset_bytes is None or time_bytes is None or offset_bytes % OFFSET_ENTRY.size or time_bytes % TIME_ENTRY.size:
        return False
    if decode_aborted(_read_or_empty(files, segment), segment.base_offset) is None:
        return False
    if not offset_bytes:
        return True
    with segment.opened(INDEX) as file:
        relative, position = OFFSET_ENTRY.unpack(file.pread(OFFSET_ENTRY.size, offset_bytes - OFFSET_ENTRY.size))
    with segment.opened() as log:
        try:
            _, header = next(walk_headers(log, position, segment.size_bytes, window_bytes=64))
        except (CodecError, StopIteration):
            return False
    return bool(header.last_offset == segment.base_offset + relative)


def rebuild_indexes(segment: WritableSegment) -> None:
    """Both indexes from the log, which is taken as it is."""
    segment.offset_index.truncate(0)
    segment.time_index.truncate(0)
    builder = segment.index_builder(0, TimeEntry(NO_TIMESTAMP, segment.base_offset))
    try:
        for position, header in walk_headers(segment.log, 0, segment.size_bytes):
            builder.add(position, header.size_bytes, header.last_offset, header.max_timestamp_ms)
    except CodecError:
        pass  # an index of what can be found is better than none
    segment.continue_from(builder)
    segment.seal()
