"""The partitions of the offsets topic that this server leads: events in, appends, one flush for all, answers out.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import partition_for
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    DescribeGroup,
    Event,
    ExpireOffsets,
    Instant,
    ListGroups,
    OffsetFetch,
    TimerFired,
    TopicsDeleted,
    failed,
    refusal,
)
from muster.core.outcome import CommitWrite, Outcome, SetTimer
from muster.core.router import Ownership, Router
from muster.errors import LogDamaged
from muster.log.config import Flush
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.log.validation import AppendRefused
from muster.server.server_log import FaultLog, ServerLog, Stats
from muster.server.timers import Clock
from muster.server.waiting_replies import Callback, ReplyPlace, WaitingReplies, fail_reply

_ONLY_DECIDED = frozenset({OffsetFetch, DescribeGroup, ListGroups, ExpireOffsets, TopicsDeleted})
"""They change something only when the log has taken it: where one fails before that, nothing is half done."""


@dataclass(slots=True)
class LedPartition:
    """One partition of the offsets topic: its log, its coordinator, and answers that wait for the disk."""

    partition: int
    log: DiskLog
    epoch: int = 0
    coordinator: Coordinator | None = None
    replies: WaitingReplies = field(default_factory=WaitingReplies)
    is_dirty: bool = False
    """Whether something was appended in this turn."""
    is_behind: bool = False
    """Whether something was appended that no answer may tell of yet."""
    missed: list[TopicsDeleted] = field(default_factory=list)
    """Topics deleted while the partition was not served: it forgets their offsets before it answers again."""
    load_seconds: float = 0.0
    records_loaded: int = 0


class LedPartitions:
    """All partitions of the offsets topic, by number. Everything here runs in the thread of the event loop.

    `log_failed` hears of a partition that was given up because its log, or what memory says of it, cannot be trusted;
    `grown` of one whose records may be read further than before.
    """

    def __init__(
        self,
        config: GroupConfig,
        router: Router,
        flusher: Flusher,
        server_log: ServerLog,
        stats: Stats,
        faults: FaultLog,
        clock: Clock,
        log_failed: Callable[[LedPartition, LogDamaged], None],
        grown: Callable[[LedPartition], None] = lambda led: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
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
        self.by_number: dict[int, LedPartition] = {}
        self._dirty: list[LedPartition] = []
        self._turn_now: Instant | None = None
        self._out = Outcome()  # empty between requests: making one for each costs more than looking into it
        self._waits_for_disk = config.offsets_commit_required_acks == -1

    # Time stands still within a turn.

    def now(self) -> Instant:
        if self._turn_now is None:
            self._turn_now = self._clock_now()
            self._call_soon(self._end_turn)
        return self._turn_now

    # Events.

    def submit(self, event: Event, reply: ReplyPlace) -> None:
        """Handle a request about a group; the reply gets its answer in its time.

        An exception is a mistake of ours: it is reported and dealt with, all but the connection of this request.
        """
        out = self._out
        event.reply_to = reply  # type: ignore[union-attr]
        try:
            partition = self.router.handle(event, self._turn_now or self.now(), out)
            if partition is None:
                for asked_by, answer in out.replies:
                    self._answer_behind_all(asked_by, answer)
            else:
                self._carry_out(self.by_number[partition], out)
            out.replies.clear()
        except Exception as error:
            self._out = Outcome()
            if type(event) not in _ONLY_DECIDED:
                led = self.by_number[partition_for(event.group_id, self.router.partitions)]  # type: ignore[union-attr]
                self._event_failed(led, event, out, error)
            raise

    def apply(self, led: LedPartition, event: Event) -> None:
        """Handle an event that no client asked for: a timer, an expiration, a deleted topic. Never raises."""
        if led.coordinator is not None:
            out = Outcome()
            is_decided = False
            try:
                led.coordinator.handle(event, self.now(), out)
                is_decided = True
                self._carry_out(led, out)
            except Exception as error:
                if is_decided or type(event) not in _ONLY_DECIDED:
                    self._event_failed(led, event, out, error)
                else:
                    self._report_fault(led, event, error)

    def topics_deleted(self, partitions: Iterable[tuple[str, int]], then: Callable[[], None]) -> None:
        """Forget the offsets of deleted topics' partitions; `then` is called when that is durable.

        A partition of ours that is not served is not waited for: it forgets them when it is served again.
        """
        gone = TopicsDeleted(tuple(partitions))
        left = len(self.by_number)

        def one_has() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for led in list(self.by_number.values()):
            self._forget_topics(led, gone, one_has)

    def _forget_topics(self, led: LedPartition, gone: TopicsDeleted, then: Callable[[], None]) -> None:
        self.apply(led, gone)
        self._when_forgotten(led, gone, led.log.end_offset, then)

    def _when_forgotten(
        self, led: LedPartition, gone: TopicsDeleted, end_offset: int, then: Callable[[], None], answer: Any = None
    ) -> None:
        if led.coordinator is None:  # the partition was given up, perhaps with the records of this
            led.missed.append(gone)
            then()
        elif not led.is_behind or self._safe_offset(led) >= end_offset:
            then()
        else:  # for the first time, or again where a client's reply would have timed out
            go_on = partial(self._when_forgotten, led, gone, end_offset, then)
            self._hold(led, [(Callback(go_on, go_on), ErrorCode.NONE)])

    def _timer_fired(self, key: Any) -> None:
        partition, core_key = key
        self.now()
        # The turn may have begun before the timer's time; the core would send it back.
        self._turn_now = self._clock_now()
        led = self.by_number.get(partition)
        if led is not None:
            self.apply(led, TimerFired(core_key))

    # Partitions that begin and cease to be served.

    def begin_serving(self, partition: int, epoch: int, coordinator: Coordinator) -> bool:
        """A load has come to its end; False if it came too late."""
        led = self.by_number[partition]
        out = Outcome()
        if not self.router.loaded(partition, epoch, coordinator, self.now(), out):
            return False
        led.coordinator, led.epoch = coordinator, epoch
        led.is_behind = led.log.end_offset > self._safe_offset(led)
        self._carry_out(led, out)
        missed, led.missed = led.missed, []
        for gone in missed:
            self._forget_topics(led, gone, lambda: None)
        return True

    def resign(self, partition: int) -> tuple[int, int]:
        """Stop serving a partition: requests that wait hear NOT_COORDINATOR. Returns the groups and offsets let go."""
        led = self.by_number[partition]
        out, let_go = Outcome(), (0, 0)
        try:
            let_go = self.router.resign(partition, None, out)
        except Exception as error:  # its groups are not in order, and are forgotten all the same
            self._faults.report(
                f"partition {partition} was let go before all waiting requests were answered",
                error,
                partition=partition,
            )
        led.coordinator = None
        self._apply_timers(partition, out)
        led.replies.fail(ErrorCode.NOT_COORDINATOR)
        for reply, answer in out.replies:
            reply.answer(answer)
        return let_go

    # Carrying out what was decided.

    def _carry_out(self, led: LedPartition, out: Outcome) -> None:
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

    def _append(self, led: LedPartition, out: Outcome) -> None:
        coordinator, append = led.coordinator, led.log.append
        assert coordinator is not None
        wall_ms = self.now().wall_ms
        if not led.is_dirty:  # before the first append: if a later one fails, this one is flushed all the same
            led.is_dirty = led.is_behind = True
            self._dirty.append(led)
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

    def _hold(self, led: LedPartition, answered: list[tuple[Any, Any]]) -> None:
        """Let answers wait for all that is appended so far; behind the first append of a turn, for all of that turn."""
        if led.is_dirty:
            led.replies.of_turn += answered
        else:
            led.replies.wait(answered.copy(), led.log.end_offset, self.now().monotonic_ms)

    def _answer_behind_all(self, reply: ReplyPlace, answer: Any) -> None:
        """For an answer about all partitions: it waits for what each has appended by now, one after another."""
        behind_now = [led for led in self.by_number.values() if led.coordinator is not None and led.is_behind]
        self._answer_behind([(led, led.log.end_offset) for led in behind_now], reply, answer)

    def _answer_behind(self, behind: list[tuple[LedPartition, int]], reply: ReplyPlace, answer: Any) -> None:
        while behind:
            led, end_offset = behind.pop()
            if led.coordinator is not None and led.is_behind and self._safe_offset(led) < end_offset:
                self._hold(led, [(Callback(partial(self._answer_behind, behind, reply), reply.fail), answer)])
                return
        reply.answer(answer)

    def _safe_offset(self, led: LedPartition) -> int:
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

    def _write(self, led: LedPartition) -> None:
        try:
            led.log.write()
        except LogDamaged as error:
            self._log_failed(led, error)
        else:
            self._release(led)

    def _flushed(self, led: LedPartition, log: DiskLog, asked: Instant, error: LogDamaged | None) -> None:
        if led.log is not log:
            return  # of a log that was given up meanwhile
        self._stats.flush.observe((self._clock_now().monotonic_ms - asked.monotonic_ms) / 1000)
        if error is not None:
            self._log_failed(led, error)
        else:
            self._release(led)

    def _release(self, led: LedPartition) -> None:
        safe_offset = self._safe_offset(led)
        led.is_behind = led.log.end_offset > safe_offset
        led.replies.release(safe_offset)
        self._grown(led)

    def _log_failed(self, led: LedPartition, error: LogDamaged) -> None:
        """Only the disk knows what is on it: drop what memory says, and read the log again."""
        if led.coordinator is None:
            return
        self.resign(led.partition)
        self._report_log_failure(led, error)

    def _event_failed(self, led: LedPartition, event: Event, out: Outcome, error: Exception) -> None:
        """An event may be half done, so memory cannot be trusted any more. The log can, and is read again."""
        if isinstance(error, LogDamaged):
            self._log_failed(led, error)
        elif led.coordinator is not None:
            self._report_fault(led, event, error)
            self._log_failed(led, LogDamaged(f"{_described(event)} may be half done."))
        own = getattr(event, "reply_to", None)  # its connection ends with the exception
        for reply, answer in out.replies:
            if reply is not own:
                fail_reply(reply, failed, answer, ErrorCode.NOT_COORDINATOR)
        for write in out.writes:
            waiting: Any = write.event
            if waiting is not None and waiting.reply_to is not None and waiting.reply_to is not own:
                fail_reply(waiting.reply_to, refusal, waiting, ErrorCode.NOT_COORDINATOR)

    def _report_fault(self, led: LedPartition, event: Event, error: Exception) -> None:
        self._faults.report(f"partition {led.partition}: {_described(event)} failed", error, partition=led.partition)

    def time_out_replies(self) -> None:
        """Answers that have waited for `offsets.commit.timeout.ms` go out as errors; called every second."""
        before_ms = self.now().monotonic_ms - self._config.offsets_commit_timeout_ms
        for led in self.by_number.values():
            led.replies.time_out(before_ms)

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn is under way, and no answer waits for the disk."""
        return self._turn_now is None and not any(len(led.replies) for led in self.by_number.values())

    def close(self) -> None:
        """No timer fires any more."""
        self._timers.close()

    def states(self) -> dict[int, Ownership | None]:
        """Where each partition is in its life here."""
        routed = self.router.routed
        return {partition: routed[partition].ownership if partition in routed else None for partition in self.by_number}


def _described(event: Event) -> str:
    """An event in the log of the server: what it is, and of which group."""
    name = type(event).__name__
    if type(event) is TimerFired:
        return f"{name} {' '.join(filter(None, event.key))}"
    group_id = getattr(event, "group_id", None)
    return name if group_id is None else f"{name} of group {group_id}"
