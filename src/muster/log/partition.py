"""`DiskLog`: one partition in Kafka's files.

Records go through three stages, and an offset marks the end of each:

    staged    `append` has given them offsets; they are in memory      up to `end_offset`
    written   `write` has handed them to the operating system          up to `written_offset`
    durable   a sync has confirmed them                                up to `flushed_offset`

What readers may see ends at the high watermark: `flushed_offset` under `flush=always`, else `written_offset`.

A log is made of parts. `Appends` (`staging.py`) has what is staged, `Durability` (`flush.py`) what is to be synced,
`LogReader` (`reads.py`) reads, `SegmentRow` has the segments. Here they meet the files: writing, rolling, cutting the
log at its end or its beginning, swapping compacted segments in, opening and closing. `recovery.py` tells what opening
does after a crash.

One thread owns a log. `unsynced` makes a ticket that another thread may sync meanwhile; `synced` takes note of it. When
the disk fails, the log stops taking anything: what was durable stays readable, and a log that is to go on is opened
anew, which looks at the disk again instead of believing memory.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from muster.errors import LogDamaged, described
from muster.log.config import Flush, LogConfig
from muster.log.flush import Durability, RolledSegment, SyncTicket
from muster.log.producers import ProducerStates, remove_snapshots, write_snapshot
from muster.log.reads import LogReader, SegmentRow
from muster.log.recovery import LoadedLog, load_log, producers_up_to
from muster.log.segment import DELETED, SNAPSHOT, SWAP, Segment, WritableSegment, WrittenBatch
from muster.log.staging import Appends, Roll, RollPlan
from muster.log.steps import Steps, carry_out
from muster.segments.checkpoints import write_epochs
from muster.segments.files import REAL_FILES, Files

MOST_ROLLED = 8
"""Closed segments whose files stay open until they are durable; beyond that they are synced here and now."""


class DiskLog:
    """A partition on disk. `DiskLog.open` makes one; `report` says what opening found and did."""

    def __init__(self, files: Files, directory: Path, loaded: LoadedLog, config: LogConfig, leader_epoch: int) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.report = loaded.report
        self.start_offset = loaded.start_offset
        self.written_offset = loaded.end_offset
        self.epochs = loaded.epochs
        self.row = SegmentRow([*loaded.closed, loaded.active])
        self.lower_recovery_point: Callable[[int], None] = lambda offset: None
        """Called before the log is cut below its recovery point, which must be written down anew."""
        self._active = loaded.active
        self._snapshot_offset: int | None = None  # of the last one taken between rolls
        self._durability = Durability(files, directory, loaded.end_offset, names_changed=loaded.names_changed)
        self._appends = Appends(config, loaded.active, loaded.end_offset, leader_epoch, loaded.producers)
        self.append = self._appends.append
        self.append_marker = self._appends.append_marker
        self.append_batch = self._appends.append_batch
        self.check_batch = self._appends.check_batch
        self.append_packed = self._appends.append_packed
        reader = LogReader(self)
        self.read = reader.read
        self.find = reader.find
        self.batches = reader.batches
        self.offset_for_timestamp = reader.offset_for_timestamp
        self.offset_of_largest_timestamp = reader.offset_of_largest_timestamp
        self.aborted_transactions = reader.aborted_transactions
        self.epochs.assign(leader_epoch, self.end_offset)
        if self.epochs.entries != loaded.stored_epochs:
            self._write_epochs()

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
        new_epoch: bool = False,
        wall_ms: int | None = None,
        accept_loss: bool = True,
    ) -> Self:
        """Open a partition's directory, or make it. `clean` says that it was closed cleanly.

        `recovery_point` and `start_offset` come from the checkpoints; without `accept_loss`, `LossRefused` if the log
        ends before its recovery point. Without `leader_epoch` the last known one goes on, or with `new_epoch` the next
        one begins, so that a reader who was further than the log is now can tell. With `wall_ms`, producers
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
            following = (latest or 0) + (new_epoch and latest is not None and loaded.end_offset > 0)
            try:
                return cls(files, directory, loaded, config, following if leader_epoch is None else leader_epoch)
            except BaseException:
                loaded.active.close()
                raise
        except OSError as error:
            raise LogDamaged(f"{directory.name} cannot be opened: {error}") from error

    # What it has.

    @property
    def segments(self) -> tuple[Segment, ...]:
        """In log order; the last one is being written to."""
        return tuple(self.row.segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.row.segments)

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._appends.end_offset

    @property
    def flushed_offset(self) -> int:
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is durable, indexes included."""
        return self._durability.recovery_point

    @property
    def high_watermark(self) -> int:
        return self._durability.flushed_offset if self.config.flush is Flush.ALWAYS else self.written_offset

    @property
    def last_stable_offset(self) -> int:
        """What a reader under read_committed may not read past."""
        unstable = self.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def producers(self) -> ProducerStates:
        return self._appends.producers

    @property
    def failure(self) -> str | None:
        """Why the log takes nothing any more; None while it does."""
        return self._appends.failure

    @property
    def leader_epoch(self) -> int:
        return self._appends.staging.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        """Records appended from now on are a new leader's. `LogDamaged` if that cannot be written down."""
        self._appends.staging.seal()
        self._appends.staging.leader_epoch = epoch
        if self.epochs.assign(epoch, self.end_offset):
            try:
                self._write_epochs()
            except OSError as error:
                raise self._fail("the leader epochs could not be written", error) from error

    def reconfigure(self, config: LogConfig) -> None:
        """Go by other settings from the next record on; the active segment's indexes keep their size."""
        self.config = config
        self._appends.reconfigure(config)

    def _write_epochs(self) -> None:
        """The name lasts with the next sync of the directory, so before any record of this epoch is promised."""
        write_epochs(self.files, self.directory, self.epochs)
        self._durability.names_changed()

    # Writing.

    def write(self) -> None:
        """Hand everything staged to the operating system, one write for each segment. `LogDamaged` if that fails."""
        appends = self._appends
        if appends.failure is not None:
            raise LogDamaged(f"{self.directory.name} is read-only: {appends.failure}")
        if not appends.staging:
            return
        try:
            data, batches, rolls = appends.take()
            self._write(memoryview(data), batches, rolls)
        except Exception as error:
            raise self._fail("a write failed", error) from error
        appends.plan.is_full = self._active.is_full
        appends.producers.durable_up_to(self.high_watermark)

    def _write(self, data: memoryview, batches: list[WrittenBatch], rolls: list[Roll]) -> None:
        first = position = 0
        for number, snapshot in rolls:
            position = self._write_to_active(data, position, batches[first:number])
            self._roll(batches[number].base_offset, snapshot)
            first = number
        self._write_to_active(data, position, batches[first:])

    def _write_to_active(self, data: memoryview, position: int, batches: list[WrittenBatch]) -> int:
        if not batches:
            return position
        end = position + sum(batch.size_bytes for batch in batches)
        self._active.append(data[position:end], batches)
        self.written_offset = batches[-1].last_offset + 1
        aborted = self._appends.aborted
        while aborted and aborted[0].last_offset < self.written_offset:
            if self._active.txn_index_file is None:  # it is about to be made
                self._durability.names_changed()
            self._active.append_aborted(aborted.pop(0))
        return end

    def roll(self) -> None:
        """Begin a new segment now, unless the active one is empty."""
        self.write()
        if self._active.size_bytes:
            self.producers.end_offset = self.written_offset
            try:
                self._roll(self.written_offset, self.producers.snapshot())
            except OSError as error:
                raise self._fail("a new segment could not be made", error) from error
            self._appends.plan = RollPlan(self.config, self._active)

    def _roll(self, base_offset: int, snapshot: bytes) -> None:
        old = self._active
        if self.config.flush is Flush.ALWAYS:
            self._durability.make_durable_before_roll(old)
        old.seal()
        snapshot_file = write_snapshot(self.files, self.directory, base_offset, snapshot)
        self._active = self._writable(base_offset)
        self._durability.rolled(old, snapshot_file)
        self.row.set([*self.row.segments[:-1], old.closed(), self._active])
        if self._durability.rolled_segments > MOST_ROLLED:  # or a client could have all files of the process opened
            ticket = self.unsynced()
            if ticket is not None:
                ticket.sync()
                self._durability.synced(ticket)

    def _writable(self, base_offset: int) -> WritableSegment:
        return WritableSegment(
            self.files,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_bytes=self.config.segment_index_bytes,
        )

    def _fail(self, what: str, error: Exception) -> LogDamaged:
        """Turn read-only. Everything staged is gone, and half a batch may lie behind the last whole one."""
        reason = error.strerror or error if isinstance(error, OSError) else described(error)
        self._appends.failure = f"{what}: {reason}. Whole up to offset {self.written_offset - 1}"
        self._appends.drop(self.written_offset)
        with contextlib.suppress(OSError):  # recovery would cut it off too
            self._active.undo_append()
        return LogDamaged(f"{self.directory.name}: {self.failure}; durable up to offset {self.flushed_offset - 1}.")

    # Syncing.

    def unsynced(self, indexes: bool = False) -> SyncTicket | None:
        """What to sync for all that is written to be durable; None if it is. With `indexes`, those as well."""
        return self._durability.ticket(self.written_offset, self._active, indexes=indexes)

    def synced(self, ticket: SyncTicket) -> bool:
        """A ticket was synced; False if the log has failed, or was cut, meanwhile, and the ticket promises nothing."""
        durability, appends = self._durability, self._appends
        if ticket.generation != durability.generation:
            return False
        if appends.failure is not None:
            return durability.flushed_offset >= ticket.end_offset
        durability.synced(ticket)
        appends.producers.durable_up_to(self.high_watermark)
        return True

    def sync_failed(self, ticket: SyncTicket, error: OSError) -> LogDamaged:
        """A ticket could not be synced. The operating system may have dropped what it could not save: no second try."""
        return self._fail("a sync failed", error)

    def flush(self, indexes: bool = False) -> None:
        """Write and sync, here and now."""
        self.write()
        ticket = self.unsynced(indexes)
        if ticket is None:
            return
        try:
            ticket.sync()
        except OSError as error:
            raise self.sync_failed(ticket, error) from error
        self.synced(ticket)

    def take_snapshot(self) -> None:
        """Write the producers' state down, so that after a crash their batches are not read again up to here.

        Between rolls there is at most one such snapshot. It is not synced: without it, recovery takes longer.
        """
        carry_out(self.taking_snapshot())

    def taking_snapshot(self) -> Steps:
        """The same in steps: files are made and removed elsewhere. `LogDamaged` if the disk fails.

        A snapshot that could not be written does the log no harm.
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
        write_snapshot(self.files, self.directory, offset, snapshot).close()
        remove_snapshots(self.files, self.directory, lambda number: active_base_offset < number < offset)

    # Closing.

    def close(self) -> bool:
        """Leave the log so that it opens without a look at its records; False if its disk has failed."""
        if self.failure is None:
            try:
                self.flush()
                self._close_well()
            except OSError as error:
                self._fail("closing failed", error)
            except LogDamaged as error:
                self._appends.failure = self.failure or str(error)
        closed_well = self.failure is None
        self.abandon()
        return closed_well

    def abandon(self) -> None:
        """Close the files without saving anything: the log is being deleted, or was never used."""
        self._appends.failure = self.failure or "it is closed"
        self._durability.close_rolled(self.row.bases)
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
        self._durability.recovery_point = self.written_offset

    # Cutting.

    def truncate_to(self, offset: int) -> None:
        """Cut everything off from the batch on that holds an offset, for good."""
        self.flush()
        if offset >= self.written_offset:
            return
        if offset < self.recovery_point:
            last = self.row.segments[self.row.floor(offset)]
            cut = last.batch_at(offset)
            self.lower_recovery_point(last.next_offset() if cut is None else min(offset, cut[1].base_offset))
        self._durability.generation += 1
        try:
            self._truncate(offset)
        except OSError as error:
            raise self._fail("truncation failed", error) from error
        self.flush()

    def _truncate(self, offset: int) -> None:
        self._snapshot_offset = None
        keep = self.row.floor(offset)
        self._active.close()
        for segment in reversed(self.row.segments[keep + 1 :]):
            # One by one from the end: a crash must not leave a later one behind a gap.
            segment.delete()
            self.files.sync_directory(self.directory, "truncate.directory")
        self._active = self._writable(self.row.bases[keep])
        self.row.set([*self.row.segments[:keep], self._active])
        found = self._active.batch_at(offset)
        if found is not None:
            self._active.truncate(found[0], found[1].base_offset)
            self._active.log.sync("truncate.log")
        self.written_offset = self._appends.end_offset = self._active.next_offset()
        self._durability.cut(self.written_offset)
        self.start_offset = min(self.start_offset, self.written_offset)
        remove_snapshots(self.files, self.directory, lambda number: number > self.written_offset)
        self._appends.producers = producers_up_to(self.files, self.directory, self.row.segments, self.written_offset)
        self.epochs.truncate_from_end(self.written_offset)
        self.epochs.assign(self.leader_epoch, self.written_offset)
        self._write_epochs()
        self._appends.plan = RollPlan(self.config, self._active)
        self._durability.names_changed()

    def increase_start_offset(self, offset: int) -> None:
        """Records before an offset are gone for readers; `delete_segments` gives their room back.

        The new start lasts when the log start checkpoint is written.
        """
        self.start_offset = max(self.start_offset, min(offset, self.high_watermark))
        self.epochs.truncate_from_start(self.start_offset)  # in memory: opening does it again

    def delete_segments(self, count: int) -> None:
        """Remove that many segments from the front; the active one stays. The log then starts with what is left."""
        gone = self.row.segments[: min(count, len(self.row.segments) - 1)]
        if not gone:
            return
        kept = self.row.segments[len(gone) :]
        self.increase_start_offset(kept[0].base_offset)
        self.row.set(kept)
        try:
            self._durability.make_names_durable()
            self._durability.close_rolled({segment.base_offset for segment in gone})
            for segment in gone:
                segment.delete()
            remove_snapshots(self.files, self.directory, lambda number: number < kept[0].base_offset)
            self._durability.names_changed()
        except OSError as error:
            raise self._fail("a segment could not be removed", error) from error

    # Swapping.

    def replacing(self, new: Sequence[Segment], old: Sequence[Segment]) -> Steps:
        """Put compacted segments, whose files are named `.cleaned` and synced, in the place of closed ones.

        Kafka's swap, with a sync of the directory between its steps, since names may reach the disk in any order. A
        crash before the first of them leaves the old segments, one behind it the new ones (`recovery.py` finishes).
        Until the last step readers find the old segments, under whatever name they have. Those are the caller's to
        remove in the end, named `.deleted`.
        """
        self.row.places(old)
        assert self._active not in old, "the active segment is never replaced"
        bases = {segment.base_offset for segment in old}
        generation = self._durability.generation
        unsynced = self._durability.take_rolled(bases)
        try:
            for segment in reversed(new):
                # From the last one back, as in Kafka: a `.swap` behind a `.cleaned` is one that came too early.
                segment.rename(SWAP)
                yield lambda: self._sync_prepared(unsynced)
            if self.failure is not None or self._durability.generation != generation:
                for segment in new:
                    segment.delete()
                raise LogDamaged(f"{self.directory.name} was closed, or cut, before its compacted segments were in it")
            for segment in old:
                segment.rename(DELETED)
            yield lambda: self.files.sync_directory(self.directory, "swap.removed")
            if self.failure is not None:
                raise LogDamaged(
                    f"{self.directory.name} was closed while compacted segments were swapped in, which is finished "
                    "when it is opened again"
                )
            for segment in new:
                segment.rename("")
            first, last = self.row.places(old)
            self.row.set([*self.row.segments[:first], *new, *self.row.segments[last + 1 :]])
            for base_offset in bases.difference(self.row.bases):
                self.files.unlink(self.directory / f"{base_offset:020}{SNAPSHOT}")
            self._durability.names_changed()
        except OSError as error:
            raise self._fail("a compacted segment could not be swapped in", error) from error

    def _sync_prepared(self, unsynced: Sequence[RolledSegment]) -> None:
        """In any thread. Replaced segments need not become durable; closing them waits for a sync under way."""
        for rolled in unsynced:
            rolled.close()
        self.files.sync_directory(self.directory, "swap.prepared")
