"""Appending to a log: staged, written, durable.

Records go through three stages, and an offset marks the end of each:

    staged    `append` has given them offsets; they are in memory      up to `end_offset`
    written   `write` has handed them to the operating system          up to `written_offset`
    durable   a sync has confirmed them                                up to `flushed_offset`

What readers may see ends at the high watermark: `flushed_offset` under `flush=always`, else `written_offset`.

One thread owns a log. `unsynced` makes a ticket that another thread may sync meanwhile (`flush.py`); `synced` takes
note of it. When the disk fails, the log stops taking anything: what was durable stays readable, and whoever wants to go
on opens it anew, which looks at the disk again instead of believing memory.
"""

import contextlib
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from muster.codec.batches import encode_marker
from muster.codec.error_codes import ErrorCode
from muster.codec.records import TRANSACTIONAL, BatchHeader
from muster.errors import LogDamaged, described
from muster.log.config import Flush, LogConfig
from muster.log.flush import SyncTicket
from muster.log.reads import SegmentedLog
from muster.log.recovery import LoadedLog
from muster.log.segment import LOG, SNAPSHOT, WritableSegment, WrittenBatch
from muster.log.staging import COORDINATOR_BASE_SEQUENCE, RollPlan, Staging
from muster.log.validation import AppendRefused, assigned, checked_client_batch
from muster.segments.checkpoints import write_epochs
from muster.segments.files import File, Files
from muster.segments.indexes import AbortedTransaction

NO_PRODUCER = -1


class RolledSegment(NamedTuple):
    """A segment that was closed, and the snapshot behind it, until both are durable."""

    segment: WritableSegment
    snapshot: File

    def steps(self) -> list[tuple[File, str]]:
        return [
            *((file, f"closed{kind}") for kind, file in self.segment.open_files()),
            (self.snapshot, f"closed{SNAPSHOT}"),
        ]

    def close(self) -> None:
        self.segment.close()
        self.snapshot.close()


class AppendedLog(SegmentedLog):
    """Segments that grow at the end."""

    def __init__(self, files: Files, directory: Path, loaded: LoadedLog, config: LogConfig, leader_epoch: int) -> None:
        super().__init__(files, directory, [*loaded.closed, loaded.active], loaded.start_offset)
        self.config = config
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.written_offset = self.flushed_offset = self.recovery_point = loaded.end_offset
        self._end_offset = loaded.end_offset
        self._active = loaded.active
        self._staging = Staging(min(config.max_message_bytes, config.segment_bytes), leader_epoch, config.codec)
        self._plan = RollPlan(config, self._active)
        self._planned = 0  # how many staged batches the plan has looked at
        self._rolls: list[tuple[int, bytes]] = []  # number of the staged batch that begins a segment, and the snapshot
        self._aborted: list[AbortedTransaction] = []  # staged
        self._rolled: list[RolledSegment] = []  # closed, not yet durable
        self._names_version = int(loaded.names_changed)
        self._synced_names_version = 0
        self._generation = 0
        self._failure: str | None = None
        self.epochs.assign(leader_epoch, self._end_offset)
        if self.epochs.entries != loaded.stored_epochs:
            self._write_epochs()

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end_offset

    @property
    def high_watermark(self) -> int:
        return self.flushed_offset if self.config.flush is Flush.ALWAYS else self.written_offset

    @property
    def last_stable_offset(self) -> int:
        """What a reader under read_committed may not read past."""
        unstable = self.producers.first_unstable_offset()
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def leader_epoch(self) -> int:
        return self._staging.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        """Records appended from now on are a new leader's. `LogDamaged` if that cannot be written down."""
        self._staging.seal()
        self._staging.leader_epoch = epoch
        if self.epochs.assign(epoch, self._end_offset):
            try:
                self._write_epochs()
            except OSError as error:
                raise self._fail("the leader epochs could not be written", error) from error

    def _write_epochs(self) -> None:
        """The name lasts with the next sync of the directory, so before any record of this epoch is promised."""
        write_epochs(self.files, self.directory, self.epochs)
        self._names_version += 1

    @property
    def failure(self) -> str | None:
        """Why the log takes nothing any more; None while it does."""
        return self._failure

    # Appending.

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        wall_ms: int,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
    ) -> int:
        """Stage records; returns the offset of the first. `AppendRefused` leaves nothing behind.

        Plain records of one turn share a batch; those of a transaction (with a producer id) have one of their own.
        """
        if self._failure is not None:
            self._refuse_all()
        offset = self._end_offset
        if not records:
            return offset
        if producer_id != NO_PRODUCER:
            return self._append_transactional(records, wall_ms, producer_id, producer_epoch)
        too_large = self._staging.add(records, offset, wall_ms)
        if too_large:
            self._refuse_size(too_large)
        self._end_offset = offset + len(records)
        return offset

    def _append_transactional(
        self, records: Sequence[tuple[bytes, bytes | None]], wall_ms: int, producer_id: int, producer_epoch: int
    ) -> int:
        self.producers.check_epoch(producer_id, producer_epoch)
        offset = self._end_offset
        self._staging.seal()
        too_large = self._staging.add(records, offset, wall_ms)
        if too_large:
            self._refuse_size(too_large)
        self._staging.seal(TRANSACTIONAL, producer_id, producer_epoch, COORDINATOR_BASE_SEQUENCE)
        self._end_offset = end_offset = offset + len(records)
        self._plan_rolls()
        self.producers.append_data(
            BatchHeader(
                offset, 0, 0, 2, 0, TRANSACTIONAL, end_offset - 1, wall_ms, wall_ms,
                producer_id, producer_epoch, COORDINATOR_BASE_SEQUENCE, len(records),
            )
        )  # fmt: skip
        return offset

    def append_marker(
        self, producer_id: int, producer_epoch: int, wall_ms: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> int:
        """End a producer's transaction; returns the marker's offset."""
        if self._failure is not None:
            self._refuse_all()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        offset = self._end_offset
        marker = encode_marker(
            offset, wall_ms, producer_id, producer_epoch,
            commit=commit, coordinator_epoch=coordinator_epoch, leader_epoch=self.leader_epoch,
        )  # fmt: skip
        self._stage_batch(marker, WrittenBatch(len(marker), offset, offset, wall_ms))
        aborted = self.producers.append_marker(
            producer_id, producer_epoch, coordinator_epoch, offset, wall_ms, commit=commit
        )
        if aborted is not None:
            self._aborted.append(aborted)
        return offset

    def append_batches(self, data: bytes | bytearray | memoryview, wall_ms: int) -> int:
        """Stage a batch that a client made; returns its base offset, which is the old one if it was here before.

        `AppendRefused` with Kafka's error where something is wrong with it, or with its place in the producer's row.
        """
        if self._failure is not None:
            self._refuse_all()
        batch = checked_client_batch(data, self.config, wall_ms)
        header = batch.header
        if header.producer_id >= 0:
            duplicate = self.producers.duplicate_of(header)
            if duplicate is not None:
                return duplicate.base_offset
            self.producers.check_data(header, from_client=True)
        if header.size_bytes > self.config.segment_bytes:
            self._refuse_size(header.size_bytes)
        offset = self._end_offset
        time_ms = wall_ms if self.config.log_append_time else batch.max_timestamp_ms
        kept = assigned(batch, offset, self.leader_epoch, wall_ms if self.config.log_append_time else None)
        last_offset = offset + header.last_offset
        self._stage_batch(kept, WrittenBatch(len(kept), offset, last_offset, time_ms))
        if header.producer_id >= 0:
            self.producers.append_data(
                header._replace(base_offset=offset, last_offset=last_offset, max_timestamp_ms=time_ms)
            )
        return offset

    def _stage_batch(self, data: bytes | bytearray, batch: WrittenBatch) -> None:
        self._staging.add_batch(data, batch)
        self._end_offset = batch.last_offset + 1
        self._plan_rolls()

    def _plan_rolls(self) -> None:
        """Look at what was sealed since, before a producer's state moves on."""
        batches = self._staging.batches
        for number in range(self._planned, len(batches)):
            if self._plan.begins_segment(batches[number]):
                self._rolls.append((number, self.producers.snapshot()))
        self._planned = len(batches)

    def _refuse_all(self) -> NoReturn:
        raise AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, self._failure or "")

    def _refuse_size(self, size_bytes: int) -> NoReturn:
        if size_bytes > self.config.max_message_bytes:
            limit = f"max.message.bytes is {self.config.max_message_bytes}"
            raise AppendRefused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes; {limit}")
        limit = f"segment.bytes is {self.config.segment_bytes}"
        raise AppendRefused(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size_bytes} bytes; {limit}")

    # Writing.

    def write(self) -> None:
        """Hand everything staged to the operating system, one write for each segment. `LogDamaged` if that fails."""
        if self._failure is not None:
            raise LogDamaged(f"{self.directory.name} is read-only: {self._failure}")
        if not self._staging:
            return
        try:
            self._staging.seal()
            self._plan_rolls()
            rolls, self._rolls, self._planned = self._rolls, [], 0
            data, batches = self._staging.take()
            self._write(memoryview(data), batches, rolls)
        except Exception as error:
            raise self._fail("a write failed", error) from error
        self._plan.is_full = self._active.is_full
        self.producers.durable_up_to(self.high_watermark)

    def _write(self, data: memoryview, batches: list[WrittenBatch], rolls: list[tuple[int, bytes]]) -> None:
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
        while self._aborted and self._aborted[0].last_offset < self.written_offset:
            self._names_version += self._active.txn_index_file is None  # it is about to be made
            self._active.append_aborted(self._aborted.pop(0))
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
            self._plan = RollPlan(self.config, self._active)

    def _roll(self, base_offset: int, snapshot: bytes) -> None:
        old = self._active
        if self.config.flush is Flush.ALWAYS:
            self._make_durable_before_roll()
        old.seal()
        snapshot_file = self._write_snapshot(base_offset, snapshot)
        self._active = self._writable(base_offset)
        self._rolled.append(RolledSegment(old, snapshot_file))
        self._set_segments([*self._segments[:-1], old.closed(), self._active])
        self._names_version += 1

    def _make_durable_before_roll(self) -> None:
        """Names reach the disk when they like: a power cut may keep the new segment and lose the end of the old one.

        That would leave later records without earlier ones. Little is unsynced under `flush=always`, so waiting for it
        here takes no longer than any other sync.
        """
        self._active.log.sync("roll.log")
        if self._names_version != self._synced_names_version:
            self.files.sync_directory(self.directory, "roll.directory")
            self._synced_names_version = self._names_version

    def _writable(self, base_offset: int) -> WritableSegment:
        return WritableSegment(
            self.files,
            self.directory,
            base_offset,
            index_interval_bytes=self.config.index_interval_bytes,
            max_index_bytes=self.config.segment_index_bytes,
        )

    def _write_snapshot(self, offset: int, snapshot: bytes) -> File:
        file = self.files.open(self.directory / f"{offset:020}{SNAPSHOT}", create=True)
        file.truncate(0)
        file.pwrite(snapshot, 0)
        return file

    def _fail(self, what: str, error: Exception) -> LogDamaged:
        """Turn read-only. Whatever was staged is gone, and half a batch may lie behind the last whole one."""
        reason = error.strerror or error if isinstance(error, OSError) else described(error)
        self._failure = f"{what}: {reason}. Whole up to offset {self.written_offset - 1}"
        self._staging.drop()
        self._rolls, self._planned, self._aborted = [], 0, []
        self._end_offset = self.written_offset
        with contextlib.suppress(OSError):  # recovery would cut it off too
            self._active.undo_append()
        return LogDamaged(f"{self.directory.name}: {self._failure}; durable up to offset {self.flushed_offset - 1}.")

    # Syncing.

    def unsynced(self, indexes: bool = False) -> SyncTicket | None:
        """What to sync for all that is written to be durable; None if it is. With `indexes`, those as well."""
        steps = [step for rolled in self._rolled for step in rolled.steps()]
        if self.written_offset > self.flushed_offset and self._active.size_bytes:
            steps.append((self._active.log, "flush.log"))
        if indexes and self.recovery_point < self.written_offset:
            steps += [(file, f"checkpoint{kind}") for kind, file in self._active.open_files() if kind != LOG]
        names = self._names_version != self._synced_names_version
        if not steps and not names and self.flushed_offset >= self.written_offset:
            return None
        reached = self.written_offset if indexes else self._active.base_offset
        return SyncTicket(
            self.written_offset, self.files, tuple(steps), self.directory if names else None,
            frozenset(rolled.segment.base_offset for rolled in self._rolled),
            self._names_version, max(self.recovery_point, reached), self._generation,
        )  # fmt: skip

    def synced(self, ticket: SyncTicket) -> bool:
        """A ticket was synced; False if the log has failed, or was cut, meanwhile, and the ticket promises nothing."""
        if ticket.generation != self._generation:
            return False
        if self._failure is not None:
            return self.flushed_offset >= ticket.end_offset
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        self.recovery_point = max(self.recovery_point, ticket.recovery_point)
        self._synced_names_version = max(self._synced_names_version, ticket.names_version)
        self._close_rolled(ticket.rolled)
        self.producers.durable_up_to(self.high_watermark)
        return True

    def _close_rolled(self, base_offsets: Container[int]) -> None:
        """Let go of segments that are durable, or that nobody will need."""
        kept: list[RolledSegment] = []
        for rolled in self._rolled:
            if rolled.segment.base_offset in base_offsets:
                rolled.close()
            else:
                kept.append(rolled)
        self._rolled = kept

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
