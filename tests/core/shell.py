"""A tiny shell: a log that is a list, a clock that stands still until told, answers kept by who asked.

    shell = Shell(OffsetsOnly())
    shell.ask(OffsetCommit(...))                  the answer; NO_ANSWER while the request is parked
    shell.refuse_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    shell.end_transaction(producer_id=9, commit=True)

`OffsetsOnly` is a coordinator for tests that put groups in their place by hand.
"""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, decode_key, decode_value
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import EndTransaction, Event, Instant, TimerFired, TimerKey
from muster.core.groups import NO_PRODUCER, Group
from muster.core.outcome import CommitWrite, OffsetsRecord, Outcome, SetTimer, Write
from muster.core.seats import Member, Seats

START = Instant(monotonic_ms=0, wall_ms=1_700_000_000_000)
NO_ANSWER = object()


class Logged(NamedTuple):
    """A record in the log, or a marker: then `record` is None."""

    record: OffsetsRecord | None
    producer_id: int
    commits: bool = False


class Shell:
    def __init__(self, coordinator: Coordinator, now: Instant = START) -> None:
        self.coordinator = coordinator
        self.now = now
        self.log: list[Logged] = []
        self.writes: list[Write | CommitWrite] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[Any, Any] = {}
        self._refusals: list[ErrorCode] = []

    def ask(self, event: Event) -> Any:
        """Let it happen; the answer if there already is one."""
        out = Outcome()
        self.coordinator.handle(event, self.now, out)
        self.perform(out)
        return self.answers.pop(getattr(event, "reply_to", None), NO_ANSWER)

    def perform(self, out: Outcome) -> None:
        """Append the writes in order, replay each, arm the timers, deliver the answers."""
        for write in out.writes:  # what waited for one write may ask for another
            if self._refusals:
                self.coordinator.refused(write, self._refusals.pop(0), out)
                continue
            self.writes.append(write)
            base_offset = len(self.log)
            self.log.extend(Logged(OffsetsRecord(*record), write.producer_id) for record in write.records)
            self.coordinator.appended(write, base_offset, out)
        for timer in out.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        self.answers.update(dict(out.replies))

    def refuse_next(self, error: ErrorCode) -> None:
        """The next append fails before anything is written."""
        self._refusals.append(error)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Write a marker, and tell the coordinator."""
        self.log.append(Logged(None, producer_id, commit))
        self.ask(EndTransaction(producer_id, 0, commit))

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks, firing the timers that come due, the earliest first."""
        end = Instant(self.now.monotonic_ms + milliseconds, self.now.wall_ms + milliseconds)
        while self.timers and min(self.timers.values()) <= end.monotonic_ms:
            key = min(self.timers, key=lambda key: self.timers[key])
            passed = max(self.timers.pop(key) - self.now.monotonic_ms, 0)
            self.now = Instant(self.now.monotonic_ms + passed, self.now.wall_ms + passed)
            self.ask(TimerFired(key))
        self.now = end

    def replay_into(self, fresh: Coordinator) -> None:
        """Load the whole log into another coordinator."""
        for log_offset, (record, producer_id, commits) in enumerate(self.log):
            if record is None:
                fresh.handle(EndTransaction(producer_id, 0, commits), self.now, Outcome())
            else:
                fresh.replay(record, log_offset, producer_id)

    def records_since(self, log_offset: int) -> list[tuple[Any, Any]]:
        """The log from there on, decoded: (key, value or None)."""
        return [
            (decode_key(logged.record.key), _value(logged.record)) for logged in self.log[log_offset:] if logged.record
        ]


def _value(record: OffsetsRecord) -> Any:
    return None if record.value is None else decode_value(decode_key(record.key).record_type, record.value)[1]


def recorded(group_id: str, value: GroupValue) -> Group:
    """The group that a record describes, with its members in their seats."""
    return Group(group_id, value, seats=Seats.recorded(value))


class OffsetsOnly(Coordinator):
    """A coordinator for groups made by hand: it notes whose sessions were extended, and members sit as records say."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(GroupConfig(**settings))
        self.extended: list[str] = []
        self.commits._extend_session = self._note_session

    def _note_session(self, group: Group, member: Member, now: Instant, out: Outcome) -> None:
        self.extended.append(member.member_id)

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        super().replay(record, log_offset, producer_id)
        key = decode_key(record[0])
        group = self.groups.get(key.group_id) if isinstance(key, GroupKey) else None
        if group is not None:
            group.seats = Seats() if group.record is None else Seats.recorded(group.record)
