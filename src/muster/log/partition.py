"""`DiskLog`: one partition in Kafka's files.

Three layers, each with a file of its own: reading (`partition_reads.py`), appending (`partition_writes.py`), and here
everything that happens seldom: opening, closing, cutting the log at its end or its beginning, and swapping compacted
segments in. What opening does after a crash is told in `recovery.py`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from muster.errors import LogDamaged
from muster.log.config import LogConfig
from muster.log.recovery import LoadedLog, load_log, producers_up_to
from muster.log.segment import DELETED, SNAPSHOT, SWAP, Segment, offset_in_name
from muster.log.staging import RollPlan
from muster.log.steps import Steps, carry_out
from muster.log.writes import AppendedLog, RolledSegment
from muster.segments.files import REAL_FILES, Files


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
            try:
                return cls(files, directory, loaded, config, (latest or 0) if leader_epoch is None else leader_epoch)
            except BaseException:
                loaded.active.close()
                raise
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
        carry_out(self.taking_snapshot())

    def taking_snapshot(self) -> Steps:
        """The same in steps: files are made and removed elsewhere. `LogDamaged` if the disk fails.

        The log is none the worse for a snapshot that could not be written.
        """
        self.write()
        offset = self.written_offset
        if offset == self._snapshot_offset:
            return
        try:
            yield partial(self._save_snapshot, offset, self.producers.snapshot(), self._active.base_offset)
            self._snapshot_offset = offset
        except OSError as error:
            raise LogDamaged(f"{self.directory.name}: a snapshot could not be written: {error.strerror}") from error

    def _save_snapshot(self, offset: int, snapshot: bytes, active_base_offset: int) -> None:
        """In any thread."""
        self._write_snapshot(offset, snapshot).close()
        self._remove_snapshots(lambda number: active_base_offset < number < offset)

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
            except LogDamaged as error:
                self._failure = self._failure or str(error)
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
        """`replacing`, here and now, and what was replaced is removed."""
        carry_out(self.replacing(new, old))
        for segment in old:
            segment.delete()

    def replacing(self, new: Sequence[Segment], old: Sequence[Segment]) -> Steps:
        """Put compacted segments, whose files are named `.cleaned` and synced, in the place of closed ones.

        Kafka's swap, with a sync of the directory between its steps, since names may reach the disk in any order. A
        crash before the first of them leaves the old segments, one behind it the new ones (`recovery.py` finishes).
        Until the last step readers find the old segments, under whatever name they have. Those are the caller's to
        remove in the end, named `.deleted`.
        """
        self._places(old)
        assert self._active not in old, "the active segment is never replaced"
        bases = {segment.base_offset for segment in old}
        generation = self._generation
        unsynced = [rolled for rolled in self._rolled if rolled.segment.base_offset in bases]
        self._rolled = [rolled for rolled in self._rolled if rolled not in unsynced]
        try:
            for segment in reversed(new):
                # From the last one back, as in Kafka: a `.swap` behind a `.cleaned` is one that came too early.
                segment.rename(SWAP)
                yield lambda: self._sync_prepared(unsynced)
            if self._failure is not None or self._generation != generation:
                for segment in new:
                    segment.delete()
                raise LogDamaged(f"{self.directory.name} was closed, or cut, before its compacted segments were in it")
            for segment in old:
                segment.rename(DELETED)
            yield lambda: self.files.sync_directory(self.directory, "swap.removed")
            if self._failure is not None:
                raise LogDamaged(
                    f"{self.directory.name} was closed while compacted segments were swapped in, which is finished "
                    "when it is opened again"
                )
            for segment in new:
                segment.rename("")
            first, last = self._places(old)
            self._set_segments([*self._segments[:first], *new, *self._segments[last + 1 :]])
            for base_offset in bases.difference(self._bases):
                self.files.unlink(self.directory / f"{base_offset:020}{SNAPSHOT}")
            self._names_version += 1
        except OSError as error:
            raise self._fail("a compacted segment could not be swapped in", error) from error

    def _places(self, segments: Sequence[Segment]) -> tuple[int, int]:
        """Which segments of the log these are: the number of the first and of the last."""
        places = [self._segments.index(segment) for segment in segments]
        assert places == list(range(places[0], places[-1] + 1)), "segments that are replaced follow each other"
        return places[0], places[-1]

    def _sync_prepared(self, unsynced: Sequence[RolledSegment]) -> None:
        """In any thread. Nobody needs replaced segments to be durable; closing them waits for a sync under way."""
        for rolled in unsynced:
            rolled.close()
        self.files.sync_directory(self.directory, "swap.prepared")
