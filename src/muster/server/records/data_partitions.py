"""The partitions of data topics: batches in, one write for each log and turn, answers out, readers woken.

The order of things is that of the offsets topic (`led_partitions.py`): what a turn of the loop appends to a log is
written in one go at its end, and made durable together where `muster.flush` says so. `acks=1` is answered when the log
is written, `acks=all` when readers may see the records, which is when they are as durable as `muster.flush` promises.

A log whose disk fails takes nothing any more. Its producers hear KAFKA_STORAGE_ERROR, which makes them try again; the
log is opened anew, after a second at first and after a minute in the end, because only the disk knows what is on it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.writes import WriteMarkers
from muster.errors import LogDamaged, described
from muster.log.config import Flush
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.packing import is_repacked, repacked, takes_long
from muster.log.partition import DiskLog
from muster.log.reads import NOTHING
from muster.log.staging import Appended
from muster.log.steps import GrowingPause
from muster.log.validation import AppendRefused, ClientBatch, TooCostly, UnpackBudget
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.cluster import NO_OFFSET, Cluster
from muster.server.cluster.topics import COORDINATED_TOPICS, Happened, TopicChange
from muster.server.compaction import Compaction
from muster.server.records import first_batches
from muster.server.records.alter_replica_log_dirs import Move, Moved, alter_replica_log_dirs
from muster.server.records.delete_records import DeleteRecordsAnswer, DeleteRecordsRequest, delete_records
from muster.server.records.describe_log_dirs import DescribeLogDirsRequest, LogDirDescribed, describe_log_dirs
from muster.server.records.marking import append_marker
from muster.server.records.packing import Packing, UnpackedBatch
from muster.server.records.produce import (
    ALL,
    NO_ANSWER,
    ProduceAnswer,
    Produced,
    ProduceRequest,
    found,
    one_batch,
    refusal,
)
from muster.server.records.waiting_producers import DataLog, MarkerPending, Pending, Waiting
from muster.server.server_log import RateLimitedLog, ServerLog
from muster.server.slices import Slices, finished
from muster.server.timers import Clock

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Between two tries to open a log whose disk failed."""


NEVER_MS = float("inf")
NOTHING_REFUSED: Mapping[TopicPartition, Produced] = {}


class DataPartitions:
    """All logs but those of the offsets topic. Everything here runs in the thread of the event loop.

    `between_changes` does something while no topic is made or deleted. `grown` hears of every log that readers may read
    further than before.
    """

    def __init__(
        self,
        cluster: Cluster,
        directory: LogDirectory,
        flusher: Flusher,
        compaction: Compaction,
        on_loan: set[TopicPartition],
        server_log: ServerLog,
        remarks: RateLimitedLog,
        clock: Clock,
        between_changes: Callable[[Callable[[], DiskLog | None]], Awaitable[DiskLog | None]],
        grown: Callable[[TopicPartition], None],
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._flusher = flusher
        self._compaction = compaction
        self._on_loan = on_loan
        self._server_log = server_log
        self._remarks = remarks
        self._now = clock.now
        self._between_changes = between_changes
        self._grown = grown
        self._loop = asyncio.get_running_loop()
        self._by_key: dict[TopicPartition, DataLog] = {}
        """Those that something was appended to since the start."""
        self._dirty: list[DataLog] = []
        self._wall_ms: int | None = None
        self._openings: dict[TopicPartition, asyncio.Task[None]] = {}
        self._hurry = asyncio.Event()
        self.packing = Packing(self._begin_to_pack, self._packed)
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="open-again")
        self._is_stopping = False
        self.verify: first_batches.Verify = lambda request, producer_id, producer_epoch, key: None
        """Why a batch that begins something in a log is not part of a transaction; None if it is."""

    def __len__(self) -> int:
        """How many answers wait."""
        waiting = sum(len(one.waits_for_write) + len(one.waits_for_disk) for one in self._by_key.values())
        return waiting + len(self.packing)

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn is under way, and no answer waits."""
        return self._wall_ms is None and not len(self)

    # Requests.

    def produce(
        self,
        request: ProduceRequest,
        answer: Callable[[ProduceAnswer], None],
        refused_before: Mapping[TopicPartition, Produced] = NOTHING_REFUSED,
    ) -> None:
        """Append every batch of a request; `answer` is called when all are decided, perhaps at once."""
        finished(self.produce_in_slices(request, answer, refused_before))

    def produce_in_slices(
        self,
        request: ProduceRequest,
        answer: Callable[[ProduceAnswer], None],
        refused_before: Mapping[TopicPartition, Produced] = NOTHING_REFUSED,
    ) -> Slices[None]:
        kept = request._replace(partitions=tuple([one._replace(records=NOTHING) for one in request.partitions]))
        refused = refusal(request)
        if refused is not ErrorCode.NONE or not request.partitions:
            answer(ProduceAnswer(kept, (Produced(refused),) * len(request.partitions)))
            return
        pending = Pending(kept, answer)  # its bytes are not kept while it waits
        budget = UnpackBudget()
        for number, asked in enumerate(request.partitions):
            yield
            batch: memoryview | Produced = one_batch(asked.records, request.version)
            topic = found(asked, request, self._cluster)
            if isinstance(topic, Produced):
                pending.settle(number, topic)
            elif isinstance(batch, Produced):
                pending.settle(number, batch)
            elif (key := TopicPartition(topic.name, asked.partition)) in refused_before:
                pending.settle(number, refused_before[key])
            else:
                self._append(pending, number, key, batch, budget)

    def _append(
        self, pending: Pending, number: int, key: TopicPartition, records: memoryview, budget: UnpackBudget
    ) -> None:
        one = self._data_log(key)
        if one is not None and (key in self.packing or takes_long(records, one.log.config)):
            self.packing.put(UnpackedBatch(key, pending, number, bytes(records), budget))
            return
        self._settle(pending, number, key, records, lambda log: log.append_batch(records, self._turn_ms(), budget))

    def _settle(
        self, pending: Pending, number: int, key: TopicPartition, records: memoryview | bytes,
        append: Callable[[DiskLog], Appended | None],
    ) -> None:  # fmt: skip
        """Append a batch, and have its producer told when the log has got far enough; or tell it why not.

        Nothing is told yet where `append` returns None.
        """
        one = self._data_log(key)
        if one is None:
            pending.settle(number, Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))  # it is being deleted, or opened again
            return
        log, request = one.log, pending.request
        refused_early = first_batches.refused(request, key, log, records, self.verify)
        if refused_early is not None:
            pending.settle(number, refused_early)
            return
        try:
            appended = append(log)
        except AppendRefused as refused:
            if isinstance(refused, TooCostly):
                self._remarks.say(f"{key}: a batch was refused with {refused.error.name}: {refused.reason}.")
            pending.settle(number, _refused(refused, log))
            return
        if appended is None:
            return
        produced = Produced(ErrorCode.NONE, *appended, log.start_offset)
        self._is_dirty(one)
        if request.acks == NO_ANSWER:
            pending.settle(number, produced)
            return
        deadline_ms = self._now().monotonic_ms + max(request.timeout_ms, 0)
        waiting = Waiting(log.end_offset, deadline_ms, pending, number, produced)
        (one.waits_for_disk if request.acks == ALL else one.waits_for_write).append(waiting)

    def _is_dirty(self, one: DataLog) -> None:
        if not one.is_dirty:
            one.is_dirty = True
            self._dirty.append(one)

    # Transactions.

    def beginning(self, request: ProduceRequest) -> first_batches.Beginning:
        """Partitions in which a request would begin the transaction of its producer."""
        return first_batches.beginning(request, self._cluster, self.log_of)

    def end_transaction(
        self, key: TopicPartition, markers: WriteMarkers, is_repeated: bool, settled: Callable[[ErrorCode], None]
    ) -> None:
        """Append a marker; `settled` hears when it is safe, or why it is not there."""
        one = self._data_log(key)
        if one is None:
            settled(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it is being deleted, or opened again
            return
        try:
            append_marker(one.log, markers, self._turn_ms(), is_repeated=is_repeated)
        except AppendRefused as refused:
            settled(refused.error)
            return
        self._is_dirty(one)
        waiting = Waiting(one.log.end_offset, NEVER_MS, MarkerPending(settled), 0, Produced(ErrorCode.NONE))
        one.waits_for_disk.append(waiting)

    def would_be_packed(self, request: ProduceRequest) -> bool:
        """Whether a batch of a request would wait for others to be packed, or is to be packed itself."""
        for asked in request.partitions:
            topic = found(asked, request, self._cluster)
            if isinstance(topic, Produced):
                continue
            key = TopicPartition(topic.name, asked.partition)
            log = self.log_of(key)
            if log is not None and (key in self.packing or log.config.recompress_to is not None):
                return True
        return False

    def _begin_to_pack(self, batch: UnpackedBatch) -> Callable[[], ClientBatch] | None:
        """What a thread is to do for a batch whose turn has come; None if that is nothing, and its fate is decided."""
        work: list[Callable[[], ClientBatch]] = []

        def append(log: DiskLog) -> Appended | None:
            if not is_repacked(memoryview(batch.records), log.config):
                return log.append_batch(batch.records, self._turn_ms(), batch.budget)
            checked = log.check_batch(batch.records, self._turn_ms(), batch.budget)
            if isinstance(checked, Appended):
                return checked
            work.append(partial(repacked, checked, log.config, batch.budget))
            return None

        self._settle(batch.pending, batch.number, batch.key, batch.records, append)
        return work[0] if work else None

    def _packed(self, batch: UnpackedBatch, packed: ClientBatch | Exception) -> None:
        if isinstance(packed, Exception) and not isinstance(packed, AppendRefused):
            self._server_log.say(f"{batch.key}: a batch could not be packed: {described(packed)}", event="log failed")
            batch.pending.settle(batch.number, Produced(ErrorCode.UNKNOWN_SERVER_ERROR))
            return

        def append(log: DiskLog) -> Appended:
            if isinstance(packed, Exception):
                raise packed
            return log.append_packed(packed, self._turn_ms())

        self._settle(batch.pending, batch.number, batch.key, batch.records, append)

    def _data_log(self, key: TopicPartition) -> DataLog | None:
        log = self.log_of(key)
        if log is None:
            return None
        one = self._by_key.get(key)
        if one is None:
            one = self._by_key[key] = DataLog(key, log)
        elif one.log is not log:
            one.log = log
        return one

    def delete(self, request: DeleteRecordsRequest, answer: Callable[[DeleteRecordsAnswer], None]) -> None:
        """Let logs begin later; `answer` is called when that lasts."""
        deleted = delete_records(request, self._cluster, self.log_of)
        if all(one.error is not ErrorCode.NONE for one in deleted.partitions.values()):
            answer(deleted)
            return

        def written(done: asyncio.Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self._server_log.say(
                    f"{described(error)} Records were deleted until the next start.", event="log failed"
                )
            answer(deleted if error is None and not done.cancelled() else deleted.failed())

        self._loop.run_in_executor(self._opener, self._directory.write_log_starts).add_done_callback(written)

    def log_of(self, key: TopicPartition) -> DiskLog | None:
        """None where it is being deleted, or opened again."""
        return None if key in self._on_loan else self._directory.logs.get(key)

    def describe(self, request: DescribeLogDirsRequest) -> LogDirDescribed:
        return describe_log_dirs(request, self._directory)

    def move(self, moves: list[Move]) -> list[Moved]:
        return alter_replica_log_dirs(moves, self._directory)

    # Turns.

    def _turn_ms(self) -> int:
        """The time; it stands still within a turn."""
        if self._wall_ms is None:
            self._wall_ms = self._now().wall_ms
            self._loop.call_soon(self._end_turn)
        return self._wall_ms

    def _end_turn(self) -> None:
        self._wall_ms = None
        dirty, self._dirty = self._dirty, []
        to_flush = []
        for one in dirty:
            one.is_dirty = False
            if self._directory.logs.get(one.key) is not one.log:  # it is being deleted
                self._fail_waiting(one, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif one.log.config.flush is Flush.ALWAYS:
                to_flush.append((one.log, partial(self._flushed, one, one.log)))
            else:
                self._write(one)
        if to_flush:
            self._flusher.flush_each(to_flush)
            for one in dirty:
                self._release(one)

    def _write(self, one: DataLog) -> None:
        try:
            one.log.write()
        except LogDamaged as error:
            self._failed(one, one.log, error)
        else:
            self._release(one)

    def _flushed(self, one: DataLog, log: DiskLog, error: LogDamaged | None) -> None:
        if one.log is not log:
            return  # of a log that was given up meanwhile
        if error is not None:
            self._failed(one, log, error)
        else:
            self._release(one)

    def _release(self, one: DataLog) -> None:
        for waiting, offset in (
            (one.waits_for_write, one.log.written_offset),
            (one.waits_for_disk, one.log.high_watermark),
        ):
            while waiting and waiting[0].end_offset <= offset:
                _, _, pending, number, produced = waiting.popleft()
                pending.settle(number, produced)
        if one.log.high_watermark != one.readable_to:
            one.readable_to = one.log.high_watermark
            self._grown(one.key)

    def time_out(self) -> None:
        """Producers that have waited as long as they wanted to are told so; called every second."""
        now_ms = self._now().monotonic_ms
        for one in self._by_key.values():
            for waiting in (one.waits_for_write, one.waits_for_disk):
                late = [each for each in waiting if each.deadline_ms <= now_ms]
                if late:
                    in_time = [each for each in waiting if each.deadline_ms > now_ms]
                    waiting.clear()
                    waiting.extend(in_time)
                for each in late:
                    each.pending.settle(each.number, Produced(ErrorCode.REQUEST_TIMED_OUT))

    # Logs that fail, and logs that go.

    def give_up_failed_logs(self) -> None:
        """A disk may fail outside an append too: under a checkpoint, or when compaction swaps a segment in."""
        for key, log in list(self._directory.logs.items()):
            if log.failure is not None and key.topic not in COORDINATED_TOPICS and key not in self._openings:
                self._failed(self._data_log(key) or DataLog(key, log), log, LogDamaged(f"{log.failure}."))

    def _failed(self, one: DataLog, log: DiskLog, error: LogDamaged) -> None:
        self._fail_waiting(one, ErrorCode.KAFKA_STORAGE_ERROR)
        if one.key in self._openings or self._is_stopping or self._directory.logs.get(one.key) is not log:
            return
        self._server_log.say(f"{str(error).rstrip('.')}. It is opened again.", event="log failed")
        self._openings[one.key] = self._loop.create_task(self._open_again(one.key, log))

    def _fail_waiting(self, one: DataLog, error: ErrorCode) -> None:
        for waiting in (one.waits_for_write, one.waits_for_disk):
            while waiting:
                each = waiting.popleft()
                each.pending.settle(each.number, Produced(error))

    async def _open_again(self, key: TopicPartition, failed: DiskLog) -> None:
        """Until it works, or the topic is gone; another of its name may have come, whose log is not this one's."""
        pause, told = GrowingPause(FIRST_PAUSE_S, LONGEST_PAUSE_S), ""
        try:
            while self._directory.logs.get(key) is failed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause.next_s())
                try:
                    await self._open_once(key, failed)
                except Exception as error:
                    if described(error) != told:
                        told = described(error)
                        self._server_log.say(f"{told.rstrip('.')}. It is tried again.", event="log failed")
                else:
                    return
        finally:
            del self._openings[key]

    @property
    def is_opening(self) -> bool:
        return bool(self._openings)

    def open_again_now(self) -> None:
        """The disk is known to be well: logs that wait for their next try have it now."""
        self._hurry.set()
        self._hurry = asyncio.Event()

    async def _open_once(self, key: TopicPartition, failed: DiskLog) -> None:
        if self._directory.logs.get(key) is not failed:
            return
        self._on_loan.add(key)
        try:
            await self._compaction.let_go(key)
            log = await self._between_changes(partial(self._open, key, failed))
            if log is None:
                return
            if self._directory.logs.get(key) is not failed:  # deleted meanwhile
                log.abandon()
                return
            self._directory.replace_log(key, log)
            self._opener.submit(failed.abandon)  # closing a file waits for a sync that is under way
            self._compaction.reopened(key)
            for note in log.report.notes:
                self._server_log.say(note)
            self._server_log.say(f"{key} is open again, from offset {log.start_offset} to {log.end_offset}.")
            self._grown(key)
        finally:
            self._on_loan.discard(key)

    def _open(self, key: TopicPartition, failed: DiskLog) -> DiskLog | None:
        """In the thread that changes topics, so that none is deleted or made meanwhile."""
        return self._directory.open_again(key) if self._directory.logs.get(key) is failed else None

    def topic_changed(self, change: TopicChange) -> None:
        if change.happened is Happened.DELETED:
            for partition in range(change.topic.partitions):
                key = TopicPartition(change.topic.name, partition)
                one = self._by_key.pop(key, None)
                if one is not None:
                    self._fail_waiting(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for batch in self.packing.take_out(key):
                    batch.pending.settle(batch.number, Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def stop(self) -> None:
        """Nothing is opened again any more; `close` waits for the thread."""
        self._is_stopping = True
        for task in self._openings.values():
            task.cancel()

    def close(self) -> None:
        """In any thread, after `stop`."""
        self._opener.shutdown(cancel_futures=True)


_SAYS_NOTHING_OF_THE_LOG = frozenset({
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip


def _refused(refused: AppendRefused, log: DiskLog) -> Produced:
    start_offset = NO_OFFSET if refused.error in _SAYS_NOTHING_OF_THE_LOG else log.start_offset
    return Produced(
        refused.error,
        start_offset=start_offset,
        message=None if refused.error is ErrorCode.UNKNOWN_SERVER_ERROR else refused.reason or None,
        record_errors=tuple(refused.records),
    )
