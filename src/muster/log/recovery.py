"""Opening a partition: from files to a log that can be trusted.

After a clean stop nothing is read but the end of the last segment and the newest snapshot. After a crash:

    1. leftovers of interrupted changes are finished or removed (`recovery_leftovers.py`);
    2. everything below the recovery point is as it was flushed, indexes included, and is not looked at;
    3. from there on every batch is read and its checksum computed. Where the first is wrong or cut short the log ends:
       later segments are removed for good, and only then the tail is cut off, so that a second crash in between
       never leaves a hole that looks like a log;
    4. indexes are rebuilt from there, producers replayed from the newest snapshot;
    5. what was found whole is written back and synced. It may have been in the page cache only, since the process
       before us was killed or its sync failed, and nobody else would bring it to the disk any more.

An index that is missing or does not fit its log is rebuilt in any case. Everything done is told in the report.

A log that ends before its recovery point has lost records that were durable (`recovery_loss.py`). That is told, or,
where it is not accepted, refused before anything is cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import CodecError, LogDamaged, Malformed
from muster.log.config import LogConfig
from muster.log.producers import ProducerStates
from muster.log.recovery_leftovers import finish_interrupted_changes
from muster.log.recovery_loss import LOST, Loss, LossRefused
from muster.log.recovery_producers import newest_snapshot, replay, snapshot_offsets
from muster.log.recovery_scan import RecoveryReport, Scan, indexes_fit, rebuild_indexes
from muster.log.segment import INDEX, LOG, SNAPSHOT, TIMEINDEX, Segment, WritableSegment, offset_in_name
from muster.segments.checkpoints import LeaderEpochs, read_epochs
from muster.segments.files import Files


@dataclass(slots=True)
class LoadedLog:
    """All that a log is made of."""

    closed: list[Segment]
    active: WritableSegment
    start_offset: int
    end_offset: int
    producers: ProducerStates
    epochs: LeaderEpochs
    stored_epochs: list[tuple[int, int]]
    """What the file says of them."""
    report: RecoveryReport
    names_changed: bool
    """Whether the directory must be synced before anything new in it can be promised."""


def load_log(
    files: Files,
    directory: Path,
    config: LogConfig,
    recovery_point: int,
    start_offset: int,
    *,
    clean: bool,
    accept_loss: bool = True,
) -> LoadedLog:
    """Raises `LossRefused` where records below the recovery point are missing and that is not accepted.

    Whatever is raised, no file is left open: a server tries again and again.
    """
    loading = _Loading(files, directory, config, RecoveryReport(directory.name, clean), accept_loss)
    try:
        return loading.load(recovery_point, start_offset)
    except BaseException:
        for segment in loading.opened:
            segment.close()
        raise


@dataclass(slots=True)
class _Loading:
    files: Files
    directory: Path
    config: LogConfig
    report: RecoveryReport
    accept_loss: bool
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates = field(default_factory=ProducerStates)
    opened: list[WritableSegment] = field(default_factory=list)

    def load(self, recovery_point: int, start_offset: int) -> LoadedLog:
        names_changed = finish_interrupted_changes(self.files, self.directory, self.report.notes)
        segments = self._segments()
        self._read_epochs()
        epochs_before = list(self.epochs.entries)
        made = not segments
        if made:
            segments = [Segment(self.files, self.directory, start_offset, 0)]
        repaired = self._repair_indexes(segments[:-1])
        end_offset = None if made or not self.report.clean else self._clean_end(segments)
        if end_offset is None:
            closed, active, end_offset = self._recover(segments, recovery_point, made=made)
        else:
            self._compare(end_offset, recovery_point)
            closed, active = segments[:-1], self._writable(segments[-1].base_offset)
        start_offset = max(start_offset, closed[0].base_offset if closed else active.base_offset)
        if end_offset < start_offset:
            closed, active = self._start_over([*closed, active], start_offset, end_offset)
            end_offset = start_offset
            names_changed = True
        self._remove_stray_snapshots([segment.base_offset for segment in (*closed, active)], end_offset)
        self.producers.durable_up_to(end_offset + 1)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(start_offset)
        return LoadedLog(
            closed, active, start_offset, end_offset, self.producers, self.epochs, epochs_before, self.report,
            names_changed or made or repaired,
        )  # fmt: skip

    def _segments(self) -> list[Segment]:
        found = [
            Segment(self.files, self.directory, offset, entry.size_bytes)
            for entry in self.files.entries(self.directory)
            if (offset := offset_in_name(entry.name, LOG)) is not None
        ]
        return sorted(found, key=lambda segment: segment.base_offset)

    def _writable(self, base_offset: int) -> WritableSegment:
        segment = WritableSegment(
            self.files,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_bytes=self.config.segment_index_bytes,
        )
        self.opened.append(segment)
        return segment

    def _read_epochs(self) -> None:
        try:
            self.epochs = read_epochs(self.files, self.directory)
        except Malformed as error:
            self.report.notes.append(f"{self.directory.name}: {error}; leader epochs are taken from the batches read")

    def _repair_indexes(self, closed: Sequence[Segment]) -> bool:
        """Rebuild those of closed segments that have lost a file. They are not read otherwise until they are needed."""
        repaired = False
        for segment in closed:
            if all(self.files.exists(segment.path(kind)) for kind in (INDEX, TIMEINDEX)):
                continue
            writable = self._writable(segment.base_offset)
            rebuild_indexes(writable)
            writable.close()
            self.report.note(segment, "an index was missing; rebuilt")
            repaired = True
        return repaired

    # After a clean stop.

    def _clean_end(self, segments: list[Segment]) -> int | None:
        """Where the log ends, with its producers as of there; None if it is not as a clean stop leaves it."""
        active = segments[-1]
        try:
            if not indexes_fit(active):
                raise Malformed("its indexes do not fit it")
            end_offset = active.next_offset()
        except (CodecError, LogDamaged, FileNotFoundError) as error:
            self.report.note(active, f"was closed cleanly, and yet: {error}; looked at as after a crash")
            return None
        if snapshot_offsets(self.files, self.directory):
            self.producers = newest_snapshot(self.files, self.directory, end_offset)
            self.report.replayed_bytes += replay(self.producers, segments, end_offset)[1]
        else:  # as in Kafka: a log from before there were snapshots is not read for their sake
            self.producers = ProducerStates(end_offset)
        return end_offset

    # After a crash.

    def _recover(
        self, segments: list[Segment], recovery_point: int, *, made: bool
    ) -> tuple[list[Segment], WritableSegment, int]:
        # Where the recovery point is the end of a segment that was closed later, that segment belongs to what is looked
        # at too: its last index entry is younger.
        first = max((number for number, one in enumerate(segments) if one.base_offset < recovery_point), default=0)
        recovered: list[WritableSegment] = []
        end_offset = segments[first].base_offset
        for number in range(first, len(segments)):
            scan = Scan(self._writable(segments[number].base_offset), self.report, self.epochs, self.producers)
            if number == first:
                scan.start(segments[: number + 1], recovery_point)
            whole = scan.run(end_offset)
            self.producers = scan.producers
            recovered.append(scan.segment)
            end_offset = max(end_offset, scan.end_offset)
            if not whole or number == len(segments) - 1:
                try:
                    self._compare(end_offset, recovery_point)
                except LossRefused:
                    for segment in recovered:
                        segment.close()
                    raise
            if not whole:
                self._remove_for_good(segments[number + 1 :])
                scan.cut()
                break
        if not made:
            for segment in recovered:
                self._make_durable(segment)
            self.files.sync_directory(self.directory, "recovery.directory")
        for segment in recovered[:-1]:
            segment.close()
        closed = [*segments[:first], *(segment.closed() for segment in recovered[:-1])]
        return closed, recovered[-1], end_offset

    def _compare(self, end_offset: int, recovery_point: int) -> None:
        """Hold the end found against what was durable."""
        if end_offset >= recovery_point:
            return
        self.report.loss = Loss(self.directory.name, recovery_point, end_offset)
        if not self.accept_loss:
            raise LossRefused([self.report.loss])
        self.report.notes.append(f"{LOST}{self.report.loss}")

    def _remove_for_good(self, segments: Sequence[Segment]) -> None:
        """Segments behind the first damage. While that is there, whoever opens the log next comes here again."""
        for segment in segments:
            segment.delete()
            self.report.truncated_bytes += segment.size_bytes
            self.report.note(segment, f"removed ({segment.size_bytes} bytes), since the log ends before it")
        if segments:
            self.files.sync_directory(self.directory, "recovery.removed")

    def _make_durable(self, segment: WritableSegment) -> None:
        for kind, file in segment.open_files():
            file.sync(f"recovery{kind}")

    def _start_over(
        self, segments: list[Segment], start_offset: int, end_offset: int
    ) -> tuple[list[Segment], WritableSegment]:
        """The log ends before it starts: somebody has removed files. Nothing in it may be shown to a reader."""
        for segment in segments:
            if isinstance(segment, WritableSegment):
                segment.close()
            segment.delete()
        self.report.notes.append(
            f"{self.directory.name}: ends at offset {end_offset} and starts at {start_offset}, so files are missing; "
            f"it goes on empty from {start_offset}"
        )
        self.producers, self.epochs = ProducerStates(start_offset), LeaderEpochs()
        return [], self._writable(start_offset)

    def _remove_stray_snapshots(self, bases: list[int], end_offset: int) -> None:
        """Keep those at the beginning of a segment, and the newest behind them all."""
        offsets = sorted(snapshot_offsets(self.files, self.directory))
        spare = max((offset for offset in offsets if bases[-1] < offset <= end_offset), default=None)
        for offset in offsets:
            if offset not in bases and offset != spare:
                self.files.unlink(self.directory / f"{offset:020}{SNAPSHOT}")


def producers_up_to(files: Files, directory: Path, segments: Sequence[Segment], end_offset: int) -> ProducerStates:
    """The producers as of an offset, from the newest snapshot before it and the batches behind that."""
    producers = newest_snapshot(files, directory, end_offset)
    replay(producers, segments, end_offset)
    producers.durable_up_to(end_offset + 1)
    return producers
