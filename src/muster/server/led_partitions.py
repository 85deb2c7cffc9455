"""Partitions that this server leads and coordinates: events in, appends, one flush for all, answers out.

Groups have theirs in the offsets topic, transactions in `__transaction_state`; this module does not know which it has.

The order of things, which is what durability rests on:

1. An event is handled, and the records it decided on are appended, before the next event is looked at.
2. At the end of a turn of the loop everything appended in it is written in one go for each partition, and made durable
   together (`flush=always`); the syncs run in threads, and what comes in meanwhile shares the next one.
3. An answer leaves when everything its partition had appended before it is durable: it could reveal any of that.

A record that the log refuses before a byte is written goes back to the core as an error. When the disk fails in the
middle, the coordinator is dropped and its log opened anew, because only the disk knows what is on it.

Any other failure stays where it is: an answer that cannot be given ends its own connection; an event that fails in the
middle ends its own partition, which is read again from its log, because only that knows what was decided. All other
answers, timers and partitions go on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

from muster.codec.error_codes import ErrorCode
from muster.core.coordinator import Coordinator
from muster.core.events import Instant, TimerFired, failed
from muster.core.outcome import CommitWrite, Outcome, SetTimer
from muster.core.router import Machine, Ownership, Router
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.writes import WriteMarkers
from muster.errors import LogDamaged
from muster.log.config import Flush
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.log.validation import AppendRefused
from muster.server.records.marking import append_marker
from muster.server.server_log import FaultLog, ServerLog, Stats
from muster.server.timers import Clock
from muster.server.waiting_replies import Callback, ReplyPlace, WaitingReplies, fail_reply

NEVER_LED = -1


@dataclass(slots=True)
class LedPartition(Generic[Machine]):
    """One partition: its log, its coordinator, and answers that wait for the disk."""

    partition: int
    name: str
    """As the log of the server calls it."""
    log: DiskLog
    epoch: int = NEVER_LED
    coordinator: Machine | None = None
    replies: WaitingReplies = field(default_factory=WaitingReplies)
    behind_disk: WaitingReplies = field(default_factory=WaitingReplies)
    """What waits for the disk although answers do not (`offsets.commit.required.acks`)."""
    is_dirty: bool = False
    """Whether something was appended in this turn."""
    is_behind: bool = False
    """Whether something was appended that no answer may tell of yet."""
    load_seconds: float = 0.0
    records_loaded: int = 0


class LedPartitions(Generic[Machine]):
    """All partitions of one topic, by number. Everything here runs in the thread of the event loop.

    `log_failed` hears of a partition that was given up because its log, or what memory says of it, cannot be trusted;
    `grown` of one whose records may be read further than before; `serving` of one whose requests are about to be
    answered. `write_markers` gets the markers of an end when its decision is safe, and whether a load has found it. An
    answer waits for the disk, or if not `waits_for_disk` for the write, and no longer than `timeout_ms`.
    """

    def __init__(
        self,
        router: Router[Machine],
        flusher: Flusher,
        server_log: ServerLog,
        stats: Stats,
        faults: FaultLog,
        clock: Clock,
        log_failed: Callable[[LedPartition[Machine], LogDamaged], None],
        grown: Callable[[LedPartition[Machine]], None],
        *,
        waits_for_disk: bool,
        timeout_ms: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.router = router
        self._flusher = flusher
        self._clock_now = clock.now
        self._timers = clock.make_timers(loop, self._timer_fired)
        self._server_log = server_log
        self._stats = stats
        self._call_soon = loop.call_soon
        self._faults = faults
        self._report_log_failure = log_failed
        self._grown = grown
        self.serving: Callable[[LedPartition[Machine]], None] = lambda led: None
        self.write_markers: Callable[[LedPartition[Machine], WriteMarkers, bool], None] = _no_markers
        self.by_number: dict[int, LedPartition[Machine]] = {}
        self._dirty: list[LedPartition[Machine]] = []
        self._turn_now: Instant | None = None
        self._out = Outcome()  # empty between requests: making one for each costs more than looking into it
        self._waits_for_disk = waits_for_disk
        self._timeout_ms = timeout_ms

    # Time stands still within a turn.

    def now(self) -> Instant:
        if self._turn_now is None:
            self._turn_now = self._clock_now()
            self._call_soon(self._end_turn)
        return self._turn_now

    # Events.

    def submit(self, event: Any, reply: ReplyPlace, partition: int | None = None) -> None:
        """Handle a request, of this partition if it is known already; the reply gets its answer in its time.

        An exception is a mistake of ours: it is reported and dealt with, all but the connection of this request.
        """
        out = self._out
        event.reply_to = reply
        try:
            partition = self.router.handle(event, self._turn_now or self.now(), out, partition)
            if partition is None:
                for asked_by, answer in out.replies:
                    self._answer_behind_all(asked_by, answer)
            else:
                self._carry_out(self.by_number[partition], out)
            out.replies.clear()
        except Exception as error:
            self._out = Outcome()
            if type(event) not in self.router.only_decide:
                self._event_failed(self.by_number[self.router.partition_of(event)], event, out, error)
            raise

    def apply(self, led: LedPartition[Machine], event: Any) -> None:
        """Handle an event that no client asked for: a timer, an expiration, a deleted topic. Never raises."""
        if led.coordinator is not None:
            out = Outcome()
            is_decided = False
            try:
                led.coordinator.handle(event, self.now(), out)
                is_decided = True
                self._carry_out(led, out)
            except Exception as error:
                if is_decided or type(event) not in self.router.only_decide:
                    self._event_failed(led, event, out, error)
                else:
                    self._report_fault(led, event, error)

    def when_safe(self, led: LedPartition[Machine], then: Callable[[], None], given_up: Callable[[], None]) -> None:
        """Call `then` when all that is appended by now is safe, or `given_up` if the partition is let go before.

        Safe as the log's `flush` means it, whatever answers wait for.
        """
        self._when_safe(led, led.coordinator, led.log.end_offset, then, given_up)

    def _when_safe(
        self, led: LedPartition[Machine], coordinator: Machine | None, end_offset: int,
        then: Callable[[], None], given_up: Callable[[], None], answer: Any = None,
    ) -> None:  # fmt: skip
        if coordinator is None or led.coordinator is not coordinator:  # perhaps with the records of this
            given_up()
        elif led.log.high_watermark >= end_offset:
            then()
        else:  # for the first time, or again where a client's reply would have timed out
            go_on = partial(self._when_safe, led, coordinator, end_offset, then, given_up)
            waiting = [(Callback(go_on, go_on), ErrorCode.NONE)]
            if self._waits_for_disk:
                self._hold(led, waiting)
            else:
                led.behind_disk.wait(waiting, end_offset, self.now().monotonic_ms)

    def _timer_fired(self, key: Any) -> None:
        partition, core_key = key
        self.now()
        # The turn may have begun before the timer's time; the core would send it back.
        self._turn_now = self._clock_now()
        led = self.by_number.get(partition)
        if led is not None:
            self.apply(led, TimerFired(core_key))

    # Partitions that begin and cease to be served.

    def begin_serving(self, partition: int, epoch: int, coordinator: Machine) -> bool:
        """A load has come to its end; False if it came too late."""
        led = self.by_number[partition]
        out = Outcome()
        if not self.router.loaded(partition, epoch, coordinator, self.now(), out):
            return False
        led.coordinator, led.epoch = coordinator, epoch
        led.is_behind = led.log.end_offset > self._safe_offset(led)
        self._carry_out(led, out, is_loaded=True)
        self.serving(led)
        return True

    def resign(self, partition: int) -> tuple[int, int]:
        """Stop serving a partition: requests that wait hear NOT_COORDINATOR. Returns what its coordinator let go."""
        led = self.by_number[partition]
        out, let_go = Outcome(), (0, 0)
        try:
            let_go = self.router.resign(partition, None, out)
        except Exception as error:  # its coordinator is not in order, and is forgotten all the same
            self._faults.report(
                f"{led.name} was let go before all waiting requests were answered",
                error,
                partition=partition,
            )
        led.coordinator = None
        self._apply_timers(partition, out)
        led.replies.fail(ErrorCode.NOT_COORDINATOR)
        led.behind_disk.fail(ErrorCode.NOT_COORDINATOR)
        for reply, answer in out.replies:
            reply.answer(answer)
        return let_go

    # Carrying out what was decided.

    def _carry_out(self, led: LedPartition[Machine], out: Outcome, is_loaded: bool = False) -> None:
        if out.writes:
            self._append(led, out)
            out.writes.clear()
        if out.timers:
            self._apply_timers(led.partition, out)
            out.timers.clear()
        if out.notices:
            for notice in out.notices:
                self._stats.note(notice)
                self._server_log.group(led.partition, notice)
            out.notices.clear()
        if not led.is_behind:
            for reply, answer in out.replies:
                reply.answer(answer)
        elif out.replies:
            self._hold(led, out.replies)
        if out.markers:
            for markers in out.markers:
                self.when_safe(led, partial(self.write_markers, led, markers, is_loaded), _nothing)
            out.markers.clear()

    def append_marker(self, led: LedPartition[Machine], markers: WriteMarkers, *, is_repeated: bool) -> None:
        """End a transaction in the log of a partition. Raises `AppendRefused`."""
        wall_ms = self.now().wall_ms
        self._is_dirty(led)
        append_marker(led.log, markers, wall_ms, is_repeated=is_repeated)

    def _is_dirty(self, led: LedPartition[Machine]) -> None:
        """Before the first append: if a later one fails, this one is flushed all the same."""
        if not led.is_dirty:
            led.is_dirty = led.is_behind = True
            self._dirty.append(led)

    def _append(self, led: LedPartition[Machine], out: Outcome) -> None:
        coordinator, append = led.coordinator, led.log.append
        assert coordinator is not None
        wall_ms = self.now().wall_ms
        self._is_dirty(led)
        for write in out.writes:  # a write that is taken may bring about another, at the end of the same list
            try:
                base_offset = append(write.records, wall_ms, write.producer_id, write.producer_epoch)
            except AppendRefused as refused:
                coordinator.refused(write, refused.error, out)
            else:
                coordinator.appended(write, base_offset, out)
                if type(write) is CommitWrite:
                    self._stats.commits += len(write.commits)

    def _apply_timers(self, partition: int, out: Outcome) -> None:
        for timer in out.timers:
            if type(timer) is SetTimer:
                self._timers.set((partition, timer.key), timer.deadline_ms)
            else:
                self._timers.cancel((partition, timer.key))

    def _hold(self, led: LedPartition[Machine], answered: list[tuple[Any, Any]]) -> None:
        """Let answers wait for all that is appended so far; behind the first append of a turn, for all of that turn."""
        if led.is_dirty:
            led.replies.of_turn += answered
        else:
            led.replies.wait(answered.copy(), led.log.end_offset, self.now().monotonic_ms)

    def _answer_behind_all(self, reply: ReplyPlace, answer: Any) -> None:
        """For an answer about all partitions: it waits for what each has appended by now, one after another."""
        behind_now = [led for led in self.by_number.values() if led.coordinator is not None and led.is_behind]
        self._answer_behind([(led, led.log.end_offset) for led in behind_now], reply, answer)

    def _answer_behind(self, behind: list[tuple[LedPartition[Machine], int]], reply: ReplyPlace, answer: Any) -> None:
        while behind:
            led, end_offset = behind.pop()
            if led.coordinator is not None and led.is_behind and self._safe_offset(led) < end_offset:
                self._hold(led, [(Callback(partial(self._answer_behind, behind, reply), reply.fail), answer)])
                return
        reply.answer(answer)

    def _safe_offset(self, led: LedPartition[Machine]) -> int:
        return led.log.high_watermark if self._waits_for_disk else led.log.written_offset

    # The end of a turn.

    def _end_turn(self) -> None:
        ended = self._clock_now()
        self._turn_now = None
        dirty, self._dirty = self._dirty, []
        to_flush = []
        for led in dirty:
            led.is_dirty = False
            led.replies.end_turn(led.log.end_offset, ended.monotonic_ms)
            if led.log.config.flush is Flush.ALWAYS:
                to_flush.append((led.log, partial(self._flushed, led, led.log, ended)))
            else:
                self._write(led)
        if to_flush:
            self._flusher.flush_each(to_flush)
            if not self._waits_for_disk:
                for led in dirty:
                    self._release(led)

    def _write(self, led: LedPartition[Machine]) -> None:
        try:
            led.log.write()
        except LogDamaged as error:
            self._log_failed(led, error)
        else:
            self._release(led)

    def _flushed(self, led: LedPartition[Machine], log: DiskLog, asked: Instant, error: LogDamaged | None) -> None:
        if led.log is not log:
            return  # of a log that was given up meanwhile
        self._stats.flush.observe((self._clock_now().monotonic_ms - asked.monotonic_ms) / 1000)
        if error is not None:
            self._log_failed(led, error)
        else:
            self._release(led)

    def _release(self, led: LedPartition[Machine]) -> None:
        safe_offset = self._safe_offset(led)
        led.is_behind = led.log.end_offset > safe_offset
        led.replies.release(safe_offset)
        led.behind_disk.release(led.log.high_watermark)
        self._grown(led)

    def _log_failed(self, led: LedPartition[Machine], error: LogDamaged) -> None:
        """Only the disk knows what is on it: drop what memory says, and read the log again."""
        if led.coordinator is None:
            return
        self.resign(led.partition)
        self._report_log_failure(led, error)

    def _event_failed(self, led: LedPartition[Machine], event: Any, out: Outcome, error: Exception) -> None:
        """An event may be half done, so memory cannot be trusted any more. The log can, and is read again."""
        if isinstance(error, LogDamaged):
            self._log_failed(led, error)
        elif led.coordinator is not None:
            self._report_fault(led, event, error)
            self._log_failed(led, LogDamaged(f"{self.router.described(event)} may be half done."))
        own = getattr(event, "reply_to", None)  # its connection ends with the exception
        for reply, answer in out.replies:
            if reply is not own:
                fail_reply(reply, failed, answer, ErrorCode.NOT_COORDINATOR)
        for write in out.writes:
            waiting: Any = write.event
            if waiting is not None and waiting.reply_to is not None and waiting.reply_to is not own:
                fail_reply(waiting.reply_to, self.router.refusal, waiting, ErrorCode.NOT_COORDINATOR)

    def _report_fault(self, led: LedPartition[Machine], event: Any, error: Exception) -> None:
        described = self.router.described(event)
        self._faults.report(f"{led.name}: {described} failed", error, partition=led.partition)

    def time_out_replies(self) -> None:
        """Answers that have waited for `timeout_ms` go out as errors; called every second."""
        before_ms = self.now().monotonic_ms - self._timeout_ms
        for led in self.by_number.values():
            led.replies.time_out(before_ms)

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn is under way, and nothing waits for the disk."""
        waiting = any(len(led.replies) or len(led.behind_disk) for led in self.by_number.values())
        return self._turn_now is None and not waiting

    def close(self) -> None:
        """No timer fires any more."""
        self._timers.close()

    def states(self) -> dict[int, Ownership | None]:
        """Where each partition is in its life here."""
        routed = self.router.routed
        return {partition: routed[partition].ownership if partition in routed else None for partition in self.by_number}


def _nothing() -> None:
    """A load asks for the markers again."""


def _no_markers(led: Any, markers: WriteMarkers, is_loaded: bool) -> None:
    raise AssertionError("groups have no transactions of their own")


LedGroup = LedPartition[Coordinator]
LedGroups = LedPartitions[Coordinator]
LedTransaction = LedPartition[TransactionCoordinator]
LedTransactions = LedPartitions[TransactionCoordinator]
