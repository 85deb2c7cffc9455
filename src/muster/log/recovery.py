"""Opening a partition: from files to a log that can be trusted.

After a clean stop recovery reads the end of the last segment and the newest snapshot, and nothing else. After a crash:

    1. leftovers of interrupted changes are finished or removed (`finish_interrupted_changes`);
    2. everything below the recovery point is as it was flushed, indexes included, and is not read;
    3. from there on every batch is read and its checksum computed. The log ends before the first batch that is wrong or
       cut short: later segments are removed for good, and only then the tail is cut off, so that a second crash in
       between never leaves a hole that looks like a log;
    4. indexes are rebuilt from there, producers replayed from the newest snapshot;
    5. what was found whole is written back and synced. It may have been in the page cache only, because the previous
       process was killed or its sync failed, and nothing else would bring it to the disk.

An index that is missing or does not fit its log is rebuilt in any case. The report names everything that was done.

A log that ends before its recovery point has lost records that were durable (`recovery_scan.Loss`). The report says so;
where the loss is not accepted, opening is refused before anything is cut off.

A swap of compacted segments goes through three names. A `.cleaned` file is being written and is worth nothing. A
`.swap` file is whole and durable, and the segments it replaces are about to go: the swap is finished. A `.deleted` file
was replaced, and is removed. Where a `.cleaned` file exists, `.swap` files at or behind its offset belong to the same
unfinished change, and are removed too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import CodecError, LogDamaged, Malformed
from muster.log.config import LogConfig
from muster.log.producers import ProducerStates, newest_snapshot, replay, snapshot_offsets
from muster.log.recovery_scan import LOST, Loss, LossRefused, RecoveryReport, Scan, indexes_fit, rebuild_indexes
from muster.log.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIMEINDEX,
    TXNINDEX,
    Segment,
    WritableSegment,
    offset_in_name,
)
from muster.log.segment import offset_in_name as offset_in_plain_name
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
        """Segments behind the first damage. While the damage is there, the next opening comes here again."""
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
        """The log ends before it starts: files were removed. Nothing in it may be shown to a reader."""
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


# Leftovers of interrupted changes.


KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"
"""A snapshot of Kafka's metadata, not one of our business."""


def _offset_in_name(name: str, suffix: str) -> int | None:
    for kind in SEGMENT_SUFFIXES:
        offset = offset_in_plain_name(name, kind + suffix)
        if offset is not None:
            return offset
    return None


def finish_interrupted_changes(files: Files, directory: Path, notes: list[str]) -> bool:
    """Leave only plain segment files; says in `notes` what was done. True if any name changed.

    Every step may be interrupted and done again: what is removed goes before what takes its place gets its name.
    """
    names = [entry.name for entry in files.entries(directory) if not entry.is_directory]
    gone = [name for name in names if name.endswith(DELETED) and not name.endswith(KRAFT_SNAPSHOT_DELETED)]
    cleaned = {name: offset for name in names if (offset := _offset_in_name(name, CLEANED)) is not None}
    swaps = {name: offset for name in names if (offset := _offset_in_name(name, SWAP)) is not None}
    first_cleaned = min(cleaned.values(), default=None)
    unfinished = [name for name, offset in swaps.items() if first_cleaned is not None and offset >= first_cleaned]
    gone += [name for name in names if name.endswith(".tmp")]
    _remove(files, directory, [*gone, *unfinished], notes)
    if unfinished and cleaned:
        # While the `.cleaned` files are there, the next opening knows that the `.swap` files are not whole.
        files.sync_directory(directory, "leftovers.unfinished")
    _remove(files, directory, list(cleaned), notes)
    left = [name for name in swaps if name not in unfinished]
    if left:
        _finish_swap(files, directory, left, notes)
    orphans = _orphaned_indexes(files, directory)
    _remove(files, directory, orphans, notes)
    return bool(gone or cleaned or swaps or orphans)


def _remove(files: Files, directory: Path, names: list[str], notes: list[str]) -> None:
    for name in names:
        files.unlink(directory / name)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes.append(f"{directory.name}: removed {min(names)}{more}, left over from an interrupted change")


def _finish_swap(files: Files, directory: Path, swaps: list[str], notes: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(LOG + SWAP)]
    if logs:
        replaced = range(min(map(_offset, logs)), max(_next_offset(files, directory, name) for name in logs))
        old = [
            entry.name
            for entry in files.entries(directory)
            if (offset := _offset_in_name(entry.name, "")) is not None and offset in replaced
        ]
        _remove(files, directory, old, notes)
        files.sync_directory(directory, "leftovers.replaced")
    for name in swaps:
        files.rename(directory / name, directory / name.removesuffix(SWAP))
    notes.append(f"{directory.name}: swapped in {', '.join(sorted(swaps))}, as compaction had begun to")


def _offset(name: str) -> int:
    return int(name[:20])


def _next_offset(files: Files, directory: Path, log_name: str) -> int:
    size = next(entry.size_bytes for entry in files.entries(directory) if entry.name == log_name)
    segment = Segment(files, directory, _offset(log_name), size, SWAP)
    if not files.exists(segment.path(INDEX)):
        return _walked_end(segment)
    return segment.next_offset()


def _walked_end(segment: Segment) -> int:
    end = segment.base_offset
    with segment.opened() as log:
        for _, header in segment._walk(log, 0):
            end = header.last_offset + 1
    return end


def _orphaned_indexes(files: Files, directory: Path) -> list[str]:
    names = {entry.name for entry in files.entries(directory)}
    return [
        name
        for name in sorted(names)
        for kind in (INDEX, TIMEINDEX, TXNINDEX)
        if offset_in_plain_name(name, kind) is not None and f"{name[:20]}{LOG}" not in names
    ]
