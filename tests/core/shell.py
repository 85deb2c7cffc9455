"""A tiny shell: a log that is a list, a clock that stands still until told, answers kept by who asked.

    shell = Shell(OffsetsOnly())
    shell.ask(OffsetCommit(...))                  the answer; NO_ANSWER while the request is parked
    shell.refuse_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    shell.end_transaction(producer_id=9, commit=True)

It works with anything that has `handle` and `replay`. `OffsetsOnly` is a coordinator without membership, for tests that
put groups in their place by hand.
"""

from typing import Any, NamedTuple, Protocol

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, OffsetKey, OffsetValue, decode_key, decode_value
from muster.core.admin import Admin
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    DeleteGroup,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Instant,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TimerFired,
    TopicsDeleted,
    TxnOffsetCommit,
)
from muster.core.group import Group, Member
from muster.core.offsets import Offsets
from muster.core.outcome import OffsetsRecord, Outcome, Reply, SetTimer, Write

START = Instant(monotonic_ms=0, wall_ms=1_700_000_000_000)
NO_ANSWER = object()


class Handles(Protocol):
    def handle(self, event: Any, now: Instant, out: Outcome) -> None: ...
    def replay(self, record: OffsetsRecord, log_offset: int, producer_id: int) -> None: ...


class Logged(NamedTuple):
    """A record in the log, or a marker: then `record` is None."""

    record: OffsetsRecord | None
    producer_id: int
    commits: bool = False


class Shell:
    def __init__(self, coordinator: Handles, now: Instant = START) -> None:
        self.coordinator = coordinator
        self.now = now
        self.log: list[Logged] = []
        self.writes: list[Write] = []
        self.timers: dict[tuple[str, ...], int] = {}
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
                Coordinator.refused(self.coordinator, write, self._refusals.pop(0), out)  # type: ignore[arg-type]
                continue
            self.writes.append(write)
            for record in map(OffsetsRecord._make, write.records):
                self.log.append(Logged(record, write.producer_id))
                self.coordinator.replay(record, len(self.log) - 1, write.producer_id)
            if write.event is not None:
                out.replies.append(Reply(write.event.reply_to, write.answer))
            elif write.then is not None:
                write.then(out)
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

    def replay_into(self, fresh: Handles) -> None:
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


class OffsetsOnly:
    """Offsets and admin on groups made by hand; notes whose sessions were restarted."""

    def __init__(self, **settings: Any) -> None:
        self.groups: dict[str, Group] = {}
        self.newer: dict[str, str] = {}
        self.extended: list[str] = []
        self.offsets = Offsets(self.groups, self.newer, GroupConfig(**settings), self._extend_session)
        self.admin = Admin(self.groups, self.newer)
        self._handlers: dict[type, Any] = {
            OffsetCommit: self.offsets.commit,
            TxnOffsetCommit: self.offsets.txn_commit,
            EndTransaction: self.offsets.end_transaction,
            OffsetFetch: self.offsets.fetch,
            OffsetDelete: self.offsets.delete_offsets,
            DeleteGroup: self.offsets.delete_group,
            TopicsDeleted: self.offsets.topics_deleted,
            ExpireOffsets: self.offsets.expire,
            DescribeGroup: self.admin.describe,
            ListGroups: self.admin.list_groups,
        }

    def _extend_session(self, group: Group, member: Member, now: Instant, out: Outcome) -> None:
        self.extended.append(member.member_id)

    def handle(self, event: Any, now: Instant, out: Outcome) -> None:
        self._handlers[type(event)](event, now, out)

    def replay(self, record: OffsetsRecord, log_offset: int, producer_id: int) -> None:
        key, value = decode_key(record.key), _value(record)
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self.offsets.replay_offset(key, value, log_offset, producer_id)
            return
        assert isinstance(key, GroupKey)
        group = self.groups.get(key.group_id)
        if isinstance(value, GroupValue):
            self.groups.setdefault(key.group_id, Group(key.group_id)).take(value)
        elif group is not None and (group.offsets or group.pending):
            self.groups[key.group_id] = Group(key.group_id, offsets=group.offsets, pending=group.pending)
        else:
            self.groups.pop(key.group_id, None)
