"""`DiskLog`: one partition in Kafka's files.

Three layers, each with a file of its own: reading (`partition_reads.py`), appending (`partition_writes.py`), and here
everything that happens seldom: opening, closing, cutting the log at its end or its beginning, and swapping compacted
segments in. What opening does after a crash is told in `recovery.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from muster.errors import LogDamaged
from muster.log.files import REAL_FILES, Files
from muster.log.partition_config import LogConfig
from muster.log.partition_rolls import RollPlan
from muster.log.partition_writes import AppendedLog
from muster.log.recovery import LoadedLog, load_log, producers_up_to
from muster.log.segment import DELETED, SNAPSHOT, SWAP, Segment, offset_in_name


class DiskLog(AppendedLog):
    """A partition on disk. `DiskLog.open` makes one; `report` says what opening found and did."""

    def __init__(self, files: Files, directory: Path, loaded: LoadedLog, config: LogConfig, leader_epoch: int) -> None:
        super().__init__(files, directory, loaded, config, leader_epoch)
        self.report = loaded.report
        self._snapshot_offset: int | None = None  # of the last one taken between rolls
        self.lower_recovery_point: Callable[[int], None] = lambda offset: None
        """Called before the log is cut below its recovery point: whoever has written that down must write it anew."""

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig | None = None,
        *,
        files: Files = REAL_FILES,
        recovery_point: int = 0,
        start_offset: int = 0,
        clean: bool = False,
        leader_epoch: int | None = None,
        wall_ms: int | None = None,
        accept_loss: bool = True,
    ) -> Self:
        """Open a partition's directory, or make it. `clean` says that whoever closed it did so in peace.

        `recovery_point` and `start_offset` come from the checkpoints; without `accept_loss`, `LossRefused` if the log
        ends before its recovery point. Without `leader_epoch` the last known one goes on. With `wall_ms`, producers
        that were silent for too long are forgotten.
        """
        config = config or LogConfig()
        try:
            files.mkdir(directory)
            loaded = load_log(
                files, directory, config, recovery_point, start_offset, clean=clean, accept_loss=accept_loss
            )
            if wall_ms is not None:
                loaded.producers.forget_idle(wall_ms, config.producer_id_expiration_ms)
            latest = loaded.epochs.latest
            return cls(files, directory, loaded, config, (latest or 0) if leader_epoch is None else leader_epoch)
        except OSError as error:
            raise LogDamaged(f"{directory.name} cannot be opened: {error}") from error

    def reconfigure(self, config: LogConfig) -> None:
        """Go by other settings from now on."""
        self._staging.seal()
        self._plan_rolls()
        self.config = config
        self._staging.max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._staging.codec = config.codec
        self._plan.config = config

    def take_snapshot(self) -> None:
        """Write the producers' state down, so that after a crash their batches are not read again up to here.

        Between rolls there is at most one such snapshot. It is not synced: without it, recovery takes longer.
        """
        self.write()
        offset = self.written_offset
        if offset == self._snapshot_offset:
            return
        try:
            self._write_snapshot(offset, self.producers.snapshot()).close()
            self._remove_snapshots(lambda number: self._active.base_offset < number < offset)
            self._snapshot_offset = offset
        except OSError as error:
            raise self._fail("a snapshot could not be written", error) from error

    def _remove_snapshots(self, which: Callable[[int], bool]) -> None:
        for entry in self.files.entries(self.directory):
            number = offset_in_name(entry.name, SNAPSHOT)
            if number is not None and which(number):
                self.files.unlink(self.directory / entry.name)

    def checkpoint(self) -> None:
        """Make everything durable, indexes too, so that `recovery_point` is the end of the log."""
        self.take_snapshot()
        self.flush(indexes=True)

    def close(self) -> bool:
        """Leave the log so that it opens without a look at its records; False if its disk has failed."""
        if self._failure is None:
            try:
                self.flush()
                self._close_well()
            except OSError as error:
                self._fail("closing failed", error)
            except LogDamaged:
                pass  # `failure` has it
        closed_well = self._failure is None
        self.abandon()
        return closed_well

    def abandon(self) -> None:
        """Let go of the files without saving anything: the log is being deleted, or was never used."""
        self._failure = self._failure or "it is closed"
        self._close_rolled(self._bases)
        self._active.close()

    def _close_well(self) -> None:
        self._active.seal()
        self._snapshot_offset = None
        self.take_snapshot()
        snapshot = self.files.open(self.directory / f"{self.written_offset:020}{SNAPSHOT}", write=True)
        for kind, file in (*self._active.open_files()[1:], (SNAPSHOT, snapshot)):
            file.sync(f"close{kind}")
        snapshot.close()
        self.files.sync_directory(self.directory, "close.directory")
        self.recovery_point = self.written_offset

    def truncate_to(self, offset: int) -> None:
        """Cut everything off from the batch on that holds an offset, for good."""
        self.flush()
        if offset >= self.written_offset:
            return
        if offset < self.recovery_point:
            last = self._segments[self._floor(offset)]
            cut = last.batch_at(offset)
            self.lower_recovery_point(last.next_offset() if cut is None else min(offset, cut[1].base_offset))
        self._generation += 1
        try:
            self._truncate(offset)
        except OSError as error:
            raise self._fail("truncation failed", error) from error
        self.flush()

    def _truncate(self, offset: int) -> None:
        self._snapshot_offset = None
        keep = self._floor(offset)
        self._active.close()
        for segment in reversed(self._segments[keep + 1 :]):
            # One by one from the end: a crash must not leave a later one behind a gap.
            segment.delete()
            self.files.sync_directory(self.directory, "truncate.directory")
        self._active = self._writable(self._bases[keep])
        self._set_segments([*self._segments[:keep], self._active])
        found = self._active.batch_at(offset)
        if found is not None:
            self._active.truncate(found[0], found[1].base_offset)
            self._active.log.sync("truncate.log")
        self.written_offset = self._end_offset = self._active.next_offset()
        self.flushed_offset = min(self.flushed_offset, self.written_offset)
        self.recovery_point = min(self.recovery_point, self.written_offset)
        self.start_offset = min(self.start_offset, self.written_offset)
        self._remove_snapshots(lambda number: number > self.written_offset)
        self.producers = producers_up_to(self.files, self.directory, self._segments, self.written_offset)
        self.epochs.truncate_from_end(self.written_offset)
        self.epochs.assign(self.leader_epoch, self.written_offset)
        self._write_epochs()
        self._plan = RollPlan(self.config, self._active)
        self._names_version += 1

    def increase_start_offset(self, offset: int) -> None:
        """Records before an offset are gone for readers; `delete_segments` gives their room back.

        The new start lasts when the log start checkpoint is written.
        """
        self.start_offset = max(self.start_offset, min(offset, self.high_watermark))
        self.epochs.truncate_from_start(self.start_offset)  # in memory: opening does it again

    def delete_segments(self, count: int) -> None:
        """Remove that many segments from the front; the active one stays. The log then starts with what is left."""
        gone = self._segments[: min(count, len(self._segments) - 1)]
        if not gone:
            return
        kept = self._segments[len(gone) :]
        self.increase_start_offset(kept[0].base_offset)
        self._set_segments(kept)
        try:
            self._close_rolled({segment.base_offset for segment in gone})
            for segment in gone:
                segment.delete()
            self._remove_snapshots(lambda number: number < kept[0].base_offset)
            self._names_version += 1
        except OSError as error:
            raise self._fail("a segment could not be removed", error) from error

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put compacted segments, whose files are named `.cleaned` and synced, in the place of closed ones.

        Kafka's swap, with a sync of the directory between its steps, since names may reach the disk in any order. A
        crash before the first of them leaves the old segments, one behind it the new ones (`recovery.py` finishes).
        """
        places = [self._segments.index(segment) for segment in old]
        assert places == list(range(places[0], places[0] + len(old))), "segments that are replaced follow each other"
        assert self._active not in old, "the active segment is never replaced"
        bases = {segment.base_offset for segment in old}
        self._close_rolled(bases)
        try:
            for segment in reversed(new):
                # From the last one back, as in Kafka: a `.swap` behind a `.cleaned` is one that came too early.
                segment.rename(SWAP)
                self.files.sync_directory(self.directory, "swap.prepared")
            for segment in old:
                segment.rename(DELETED)
            self.files.sync_directory(self.directory, "swap.removed")
            for segment in new:
                segment.rename("")
            self._set_segments([*self._segments[: places[0]], *new, *self._segments[places[-1] + 1 :]])
            for segment in old:
                segment.delete()
            self._remove_snapshots(lambda number: number in bases and number not in self._bases)
            self._names_version += 1
        except OSError as error:
            raise self._fail("a compacted segment could not be swapped in", error) from error
