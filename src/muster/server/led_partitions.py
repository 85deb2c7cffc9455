"""The shell round the coordinators: events in, appends, one flush for all, answers out.

The order of things, which is what durability rests on:

1. An event is handled, and the records it decided on are appended, before the next event is looked at.
2. At the end of a turn of the loop everything appended in it is written in one go for each partition, and made durable
   together (`flush=always`); the syncs run in threads, and what comes in meanwhile shares the next one.
3. An answer leaves when everything its partition had appended before it is durable: it could reveal any of that.

What the disk refuses before a byte is written goes back to the core as an error. When the disk fails in the middle, the
coordinator is dropped and its log opened anew, because only the disk knows what is on it.

Whatever else goes wrong ends where it is: an answer that cannot be given costs its own connection; an event that breaks
off in the middle costs its own partition, which is read again from its log, because only that knows what was decided.
All other answers, timers and partitions go on.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import partition_for
from muster.core.answers import commit_error, refusal, timed_out
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    DeleteGroup,
    DescribeGroup,
    Event,
    ExpireOffsets,
    Instant,
    ListGroups,
    OffsetFetch,
    TimerFired,
    TopicsDeleted,
)
from muster.core.outcome import CommitWrite, Notice, Outcome, SetTimer
from muster.core.router import Ownership, Router
from muster.errors import LogDamaged
from muster.log.config import Flush
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.log.validation import AppendRefused
from muster.server.connection import Slot
from muster.server.stats import Stats
from muster.server.timers import Timers

_ONLY_DECIDED = frozenset({OffsetFetch, DescribeGroup, ListGroups, ExpireOffsets, TopicsDeleted})
"""What they change, they change when the log has taken it: where one breaks off before that, nothing is half done."""


class Waiter(Protocol):
    """Somebody who asked; `event` is what."""

    @property
    def event(self) -> Any: ...

    def answer(self, answer: Any) -> None:
        """Never raises: what cannot be answered ends with its own connection."""


@dataclass(slots=True)
class Held:
    """Answers of one turn that wait until their log is durable up to an offset."""

    end_offset: int
    since_ms: int
    replies: list[tuple[Any, Any]]
    """Who waits, and for what answer."""


@dataclass(slots=True)
class LedPartition:
    """One partition of the offsets topic: its log, its coordinator, and answers that wait for the disk."""

    partition: int
    log: DiskLog
    epoch: int = 0
    coordinator: Coordinator | None = None
    held: deque[Held] = field(default_factory=deque)
    turn: list[tuple[Any, Any]] = field(default_factory=list)
    """Answers that will be held together at the end of this turn."""
    is_dirty: bool = False
    """Whether something was appended in this turn."""
    is_behind: bool = False
    """Whether something was appended that no answer may tell of yet."""
    missed: list[TopicsDeleted] = field(default_factory=list)
    """What was deleted while the partition was not served: it forgets the offsets before it answers anybody again."""
    load_seconds: float = 0.0
    records_loaded: int = 0

    @property
    def held_answers(self) -> int:
        return len(self.turn) + sum(len(held.replies) for held in list(self.held))


class LedPartitions:
    """All partitions of the offsets topic. Everything here runs in the thread of the event loop."""

    def __init__(
        self,
        config: GroupConfig,
        router: Router,
        flusher: Flusher,
        timers: Timers,
        stats: Stats,
        now: Callable[[], Instant],
        call_soon: Callable[[Callable[[], None]], object],
        tell: Callable[[int, Notice], None],
        broken: Callable[[LedPartition, LogDamaged], None],
        fault: Callable[..., None],
    ) -> None:
        self._config = config
        self.router = router
        self._flusher = flusher
        self._timers = timers
        self._stats = stats
        self._clock = now
        self._call_soon = call_soon
        self._tell = tell
        self._broken = broken
        self._fault = fault
        self.shells: dict[int, LedPartition] = {}
        self._dirty: list[LedPartition] = []
        self._turn_now: Instant | None = None
        self._out = Outcome()  # empty between requests: making one for each costs more than looking into it
        self._waits_for_disk = config.offsets_commit_required_acks == -1

    # Time stands still within a turn.

    def now(self) -> Instant:
        if self._turn_now is None:
            self._turn_now = self._clock()
            self._call_soon(self._end_turn)
        return self._turn_now

    # Events.

    def ask(self, waiter: Waiter, event: Event) -> None:
        """Let a request about a group happen; the waiter hears the answer in its time.

        Whatever is raised is a mistake of ours, told and dealt with but for the waiter's own connection.
        """
        out = self._out
        event.reply_to = waiter  # type: ignore[union-attr]
        try:
            partition = self.router.handle(event, self._turn_now or self.now(), out)
            if partition is None:
                for asked_by, answer in out.replies:
                    self._answer_behind_all(asked_by, answer)
            else:
                self._carry_out(self.shells[partition], out)
            out.replies.clear()
        except Exception as error:
            self._out = Outcome()
            if type(event) not in _ONLY_DECIDED:
                shell = self.shells[partition_for(event.group_id, self.router.partitions)]  # type: ignore[union-attr]
                self._broke_off(shell, event, out, error)
            raise

    def happen(self, shell: LedPartition, event: Event) -> None:
        """Something that nobody asked for: a timer, an expiration, a topic that is gone. Never raises."""
        if shell.coordinator is not None:
            out = Outcome()
            is_decided = False
            try:
                shell.coordinator.handle(event, self.now(), out)
                is_decided = True
                self._carry_out(shell, out)
            except Exception as error:
                if is_decided or type(event) not in _ONLY_DECIDED:
                    self._broke_off(shell, event, out, error)
                else:
                    self._fault_of(shell, event, error)

    def topics_deleted(self, partitions: Iterable[tuple[str, int]], then: Callable[[], None]) -> None:
        """Forget the offsets of partitions that are gone; `then` is called when that is durable.

        A partition that is not served is not waited for: it forgets them when it is served again.
        """
        gone = TopicsDeleted(tuple(partitions))
        left = len(self.shells)

        def one_has() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for shell in list(self.shells.values()):
            self._forget_topics(shell, gone, one_has)

    def _forget_topics(self, shell: LedPartition, gone: TopicsDeleted, then: Callable[[], None]) -> None:
        self.happen(shell, gone)
        forgotten = _Forgotten(self, shell, gone, then)
        if shell.coordinator is not None and shell.is_behind:
            self._hold(shell, [(forgotten, None)])
        else:
            forgotten.answer(None)

    def is_durable(self, shell: LedPartition, end_offset: int) -> bool:
        return self._safe_offset(shell) >= end_offset

    def hold_on(self, shell: LedPartition, waiter: Waiter) -> None:
        self._hold(shell, [(waiter, None)])

    def timer_fired(self, key: Any) -> None:
        partition, core_key = key
        self.now()
        self._turn_now = self._clock()  # the turn may have begun before the timer's time; the core would send it back
        shell = self.shells.get(partition)
        if shell is not None:
            self.happen(shell, TimerFired(core_key))

    # Coming and going of partitions.

    def active(self, partition: int, epoch: int, coordinator: Coordinator) -> bool:
        """A load has come to its end; False if it came too late."""
        shell = self.shells[partition]
        out = Outcome()
        if not self.router.loaded(partition, epoch, coordinator, self.now(), out):
            return False
        shell.coordinator, shell.epoch = coordinator, epoch
        shell.is_behind = shell.log.end_offset > self._safe_offset(shell)
        self._carry_out(shell, out)
        missed, shell.missed = shell.missed, []
        for gone in missed:
            self._forget_topics(shell, gone, lambda: None)
        return True

    def resign(self, partition: int, epoch: int | None = None) -> tuple[int, int]:
        """Let a partition go: whoever waits hears NOT_COORDINATOR. Returns the groups and offsets let go."""
        shell = self.shells[partition]
        out, let_go = Outcome(), (0, 0)
        try:
            let_go = self.router.resign(partition, epoch, out)
        except Exception as error:  # its groups are not in order, and are forgotten all the same
            self._fault(f"partition {partition} was let go before all who wait were told", error, partition=partition)
        shell.coordinator = None
        self._apply_timers(partition, out)
        self._fail_held(shell, ErrorCode.NOT_COORDINATOR)
        for waiter, answer in out.replies:
            waiter.answer(answer)
        return let_go

    # Doing what was decided.

    def _carry_out(self, shell: LedPartition, out: Outcome) -> None:
        if out.writes:
            self._append(shell, out)
            out.writes.clear()
        if out.timers:
            self._apply_timers(shell.partition, out)
            out.timers.clear()
        if out.notices:
            for notice in out.notices:
                self._tell(shell.partition, notice)
            out.notices.clear()
        if not shell.is_behind:
            for waiter, answer in out.replies:
                waiter.answer(answer)
        elif out.replies:
            self._hold(shell, out.replies)

    def _append(self, shell: LedPartition, out: Outcome) -> None:
        coordinator, append = shell.coordinator, shell.log.append
        assert coordinator is not None
        wall_ms = self.now().wall_ms
        if not shell.is_dirty:  # before anything is appended: if that breaks off, what was is flushed all the same
            shell.is_dirty = shell.is_behind = True
            self._dirty.append(shell)
        for write in out.writes:  # what waited for one may ask for another, at the end of the same list
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

    def _hold(self, shell: LedPartition, replies: list[tuple[Any, Any]]) -> None:
        """Let answers wait for all that is appended so far; behind the first append of a turn, for all of that turn."""
        if shell.is_dirty:
            shell.turn += replies
        else:
            shell.held.append(Held(shell.log.end_offset, self.now().monotonic_ms, replies.copy()))

    def _answer_behind_all(self, waiter: Waiter, answer: Any) -> None:
        """For an answer about all partitions: it waits for what each has appended by now, one after another."""
        shells = [shell for shell in self.shells.values() if shell.coordinator is not None and shell.is_behind]
        self._answer_behind([(shell, shell.log.end_offset) for shell in shells], waiter, answer)

    def _answer_behind(self, behind: list[tuple[LedPartition, int]], waiter: Waiter, answer: Any) -> None:
        while behind:
            shell, end_offset = behind.pop()
            if shell.coordinator is not None and shell.is_behind and not self.is_durable(shell, end_offset):
                self._hold(shell, [(_Onward(waiter, partial(self._answer_behind, behind, waiter)), answer)])
                return
        waiter.answer(answer)

    def _safe_offset(self, shell: LedPartition) -> int:
        return shell.log.high_watermark if self._waits_for_disk else shell.log.written_offset

    # The end of a turn.

    def _end_turn(self) -> None:
        now = self._clock()
        self._turn_now = None
        dirty, self._dirty = self._dirty, []
        to_flush = []
        for shell in dirty:
            shell.is_dirty = False
            if shell.turn:
                shell.held.append(Held(shell.log.end_offset, now.monotonic_ms, shell.turn))
                shell.turn = []
            if shell.log.config.flush is Flush.ALWAYS:
                to_flush.append((shell.log, partial(self._flushed, shell, shell.log, now)))
            else:
                self._write(shell)
        if to_flush:
            self._flusher.flush_each(to_flush)
            if not self._waits_for_disk:
                for shell in dirty:
                    self._release(shell)

    def _write(self, shell: LedPartition) -> None:
        try:
            shell.log.write()
        except LogDamaged as error:
            self._log_broke(shell, error)
        else:
            self._release(shell)

    def _flushed(self, shell: LedPartition, log: DiskLog, asked: Instant, error: LogDamaged | None) -> None:
        if shell.log is not log:
            return  # of a log that was given up meanwhile
        self._stats.flush.observe((self._clock().monotonic_ms - asked.monotonic_ms) / 1000)
        if error is not None:
            self._log_broke(shell, error)
        else:
            self._release(shell)

    def _release(self, shell: LedPartition) -> None:
        held, safe_offset = shell.held, self._safe_offset(shell)
        shell.is_behind = shell.log.end_offset > safe_offset
        while held and held[0].end_offset <= safe_offset:
            for waiter, answer in held.popleft().replies:
                waiter.answer(answer)

    def _log_broke(self, shell: LedPartition, error: LogDamaged) -> None:
        """Nobody knows what is on the disk: drop what memory says, and read the log again."""
        if shell.coordinator is None:
            return
        self.resign(shell.partition)
        self._broken(shell, error)

    def _broke_off(self, shell: LedPartition, event: Event, out: Outcome, error: Exception) -> None:
        """An event may be half done: memory is not to be believed any more. The log is, and is read again."""
        if isinstance(error, LogDamaged):
            self._log_broke(shell, error)
        elif shell.coordinator is not None:
            self._fault_of(shell, event, error)
            self._log_broke(shell, LogDamaged(f"{_described(event)} may be half done."))
        waiters = [waiter for waiter, _ in out.replies]
        waiters += [write.event.reply_to for write in out.writes if write.event is not None]
        for waiter in waiters:
            if waiter is not None and waiter.event is not None and waiter.event is not event:
                self._refuse(waiter, ErrorCode.NOT_COORDINATOR)

    def _fault_of(self, shell: LedPartition, event: Event, error: Exception) -> None:
        what = _described(event)
        self._fault(f"partition {shell.partition}: {what} broke off", error, partition=shell.partition)

    def _fail_held(self, shell: LedPartition, error: ErrorCode) -> None:
        failed = [reply for held in shell.held for reply in held.replies] + shell.turn
        shell.held, shell.turn = deque(), []
        for waiter, _ in failed:
            self._refuse(waiter, commit_error(error))

    def _refuse(self, waiter: Waiter, error: ErrorCode) -> None:
        try:
            waiter.answer(refusal(waiter.event, error))
        except Exception as problem:
            self._cannot_tell(waiter, problem)

    def _cannot_tell(self, waiter: Waiter, problem: Exception) -> None:
        if isinstance(waiter, Slot):
            waiter.connection.cannot_answer(waiter, problem)
        else:
            self._fault("an error could not be told", problem)

    def time_out_held(self) -> None:
        """Answers that have waited for `offsets.commit.timeout.ms` go out as errors; called now and then."""
        now_ms = self.now().monotonic_ms
        for shell in self.shells.values():
            held = shell.held
            while held and now_ms - held[0].since_ms >= self._config.offsets_commit_timeout_ms:
                for waiter, answer in held.popleft().replies:
                    try:
                        waiter.answer(timed_out(waiter.event, answer))
                    except Exception as problem:
                        self._cannot_tell(waiter, problem)

    def states(self) -> dict[int, Ownership | None]:
        """Where each partition is in its life here."""
        shards = self.router.shards
        return {partition: shards[partition].ownership if partition in shards else None for partition in self.shells}


class _Onward:
    """Waits in a partition's queue on behalf of somebody who waits for several."""

    __slots__ = ("_waiter", "answer")

    def __init__(self, waiter: Waiter, answer: Callable[[Any], None]) -> None:
        self._waiter = waiter
        self.answer = answer

    @property
    def event(self) -> Any:
        return self._waiter.event


class _Forgotten:
    """Waits in a partition's queue until a deletion is durable there, longer than a client's answer would."""

    __slots__ = ("_end_offset", "_gone", "_shards", "_shell", "_then")
    event = DeleteGroup(None, "")
    """Stands for a request, as all have one who wait there. The answer to it is not looked at."""

    def __init__(
        self, shards: LedPartitions, shell: LedPartition, gone: TopicsDeleted, then: Callable[[], None]
    ) -> None:
        self._shards = shards
        self._shell = shell
        self._gone = gone
        self._then = then
        self._end_offset = shell.log.end_offset

    def answer(self, answer: Any) -> None:
        if self._shell.coordinator is None:  # the partition was given up, perhaps with what was appended
            self._shell.missed.append(self._gone)
            self._then()
        elif self._shards.is_durable(self._shell, self._end_offset):
            self._then()
        else:  # an answer would have timed out
            self._shards.hold_on(self._shell, self)


def _described(event: Event) -> str:
    """An event in the log of the server: what it is, and of which group."""
    name = type(event).__name__
    if type(event) is TimerFired:
        return f"{name} {' '.join(filter(None, event.key))}"
    group_id = getattr(event, "group_id", None)
    return name if group_id is None else f"{name} of group {group_id}"
