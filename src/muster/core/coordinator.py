"""One partition of `__consumer_offsets` as a state machine: start reading here.

The theory. A coordinator is told what happened (an event) and when, and says what is to be done (an outcome): records
to append, timers to arm, clients to answer. It never waits, looks at no clock and makes nothing up, so a year of
accidents can be played in a second, and a log tells all there is to know.

1. `handle` decides. It may touch soft state (who waits for what, until when), never what the log says.
2. The shell appends the records of each write. If the log took them, `appended` replays them one by one, which is the
   only way hard state ever changes, and then does what waited for it. If the log refused them before a byte was
   written (too large, not the leader), `refused` gives everybody Kafka's error for that, and all is as before.
3. If the disk fails in the middle, there is nothing to repair: the coordinator is dropped and the log is read again.

Where a group is in its life is in `group.py`; how seats change hands in `membership.py`, on top of the phases of a
rebalance in `rebalancing.py`; what becomes of commits in `offsets.py`; who is told what about it in `admin.py`; how a
log is read back in `loading.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    decode_key,
    decode_value,
)
from muster.core.admin import Admin
from muster.core.answers import commit_error, refusal
from muster.core.config import GroupConfig
from muster.core.events import (
    DeleteGroup,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Heartbeat,
    Instant,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TimerFired,
    TopicsDeleted,
    TxnOffsetCommit,
)
from muster.core.group import Group
from muster.core.membership import Membership
from muster.core.offsets import Offsets
from muster.core.outcome import NO_PRODUCER, Notice, NoticeKind, Outcome, Reply, Write

_CONSUMER_TYPES = frozenset({3, 4, 5, 6, 7, 8, 16})
_SHARE_TYPES = frozenset(range(9, 16))


def kind_of_group(record_type: int) -> str:
    """Which kind of group a record of a newer type belongs to."""
    if record_type in _CONSUMER_TYPES:
        return "consumer"
    return "share" if record_type in _SHARE_TYPES else "streams"


def _split(write: Write, out: Outcome) -> None:
    """Put two halves of a write behind it, which the shell appends next. What follows it follows the second half."""
    half = len(write.records) // 2
    place = next((number for number, other in enumerate(out.writes) if other is write), len(out.writes))
    halves = Write(write.records[:half], may_be_split=True), replace(write, records=write.records[half:])
    out.writes[place + 1 : place + 1] = halves


class Coordinator:
    """All groups of one partition."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.groups: dict[str, Group] = {}
        self.newer: dict[str, str] = {}
        """Groups of newer kinds by id: kept as they are, listed, never changed."""
        self._newer_records: dict[str, dict[bytes, bytes]] = {}
        self.unreadable_records = 0
        self.is_active = False
        """Whether loading is over: from then on records are our own decisions coming back."""
        self.membership = Membership(self.groups, self.newer, self.config)
        self.offsets = Offsets(self.groups, self.newer, self.config, self.membership.extend_session)
        self.admin = Admin(self.groups, self.newer)
        self._handlers: dict[type, Callable[[Any, Instant, Outcome], None]] = {
            JoinGroup: self.membership.join,
            SyncGroup: self.membership.sync,
            Heartbeat: self.membership.heartbeat,
            LeaveGroup: self.membership.leave,
            OffsetCommit: self.offsets.commit,
            TxnOffsetCommit: self.offsets.txn_commit,
            EndTransaction: self.offsets.end_transaction,
            OffsetFetch: self.offsets.fetch,
            OffsetDelete: self.offsets.delete_offsets,
            DescribeGroup: self.admin.describe,
            ListGroups: self.admin.list_groups,
            DeleteGroup: self.offsets.delete_group,
            TopicsDeleted: self.offsets.topics_deleted,
            ExpireOffsets: self.offsets.expire,
            TimerFired: self._timer,
        }

    def handle(self, event: Event, now: Instant, out: Outcome) -> None:
        """Decide what an event asks for."""
        self._handlers[type(event)](event, now, out)

    def _timer(self, event: TimerFired, now: Instant, out: Outcome) -> None:
        self.membership.timer(event.key, now, out)

    def activate(self, now: Instant, out: Outcome) -> None:
        """The log has been replayed to its end: sessions begin, requests may come."""
        self.is_active = True
        for group in self.groups.values():
            self.membership.loaded(group, now, out)

    def unload(self, out: Outcome) -> tuple[int, int]:
        """The partition moves elsewhere. Nothing is written; returns how many groups and offsets were let go."""
        groups = list(self.groups.values())
        offsets = sum(len(group.offsets) for group in groups)
        for group in groups:
            self.membership.unloaded(group, out)
        self.newer.clear()
        return len(groups), offsets

    def hard_state(self) -> dict[str, tuple[Any, ...]]:
        """What the log alone explains, for comparison with a replay of it."""
        return {
            group_id: (group.durable, dict(group.offsets), {pid: dict(held) for pid, held in group.pending.items()})
            for group_id, group in self.groups.items()
            if group.durable is not None or group.offsets or group.pending
        }

    def appended(self, write: Write, base_offset: int, out: Outcome) -> None:
        """The log took a write, its first record at this offset."""
        if write.staged is not None:
            self.offsets.replay_commits(write.event.group_id, write.staged, base_offset, write.producer_id)
        else:
            for log_offset, record in enumerate(write.records, base_offset):
                self.replay(record, log_offset, write.producer_id)
            out.notices.extend(write.notices)
        if write.event is not None:
            out.replies.append((write.event.reply_to, write.answer))
        elif write.then is not None:
            write.then(out)

    def refused(self, write: Write, error: ErrorCode, out: Outcome) -> None:
        """The log did not take a write, and nothing of it is there."""
        if write.may_be_split and len(write.records) > 1 and error is ErrorCode.MESSAGE_TOO_LARGE:
            _split(write, out)
            return
        if write.notices:
            out.notices.append(Notice(NoticeKind.NOT_WRITTEN, write.notices[0].group_id, reason=error.name))
        if write.event is not None:
            out.replies.append(Reply(write.event.reply_to, refusal(write.event, commit_error(error))))
        elif write.otherwise is not None:
            write.otherwise(error, out)

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Let one record of the log count. An unknown kind is stepped over and counted; a bad one raises."""
        raw_key, raw_value = record
        key = decode_key(raw_key)
        if isinstance(key, OffsetKey):
            offset: OffsetValue | None = None
            if raw_value is not None:
                _, decoded = decode_value(key.record_type, raw_value)
                assert isinstance(decoded, OffsetValue)
                offset = decoded
            self.offsets.replay_offset(key, offset, log_offset, producer_id)
        elif isinstance(key, GroupKey):
            value: GroupValue | None = None
            if raw_value is not None:
                _, group_value = decode_value(key.record_type, raw_value)
                assert isinstance(group_value, GroupValue)
                value = group_value
            self._replay_group(key.group_id, value)
        elif isinstance(key, TypedKey):
            self._replay_newer(key, raw_key, raw_value)
        else:
            self.unreadable_records += 1

    def _replay_group(self, group_id: str, value: GroupValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            self._forget_classic(group_id, group)
        elif group is None:
            self.groups[group_id] = Group.loaded(group_id, value)
        elif self.is_active:
            group.durable = value  # its seats are ahead of the log; what waited for this record follows
        else:
            group.take(value)

    def _forget_classic(self, group_id: str, group: Group | None) -> None:
        """A tombstone ends a classic group, not its offsets: those have tombstones of their own."""
        if group is None:
            return
        if self.is_active:
            self.membership.release(group)
        if group.offsets or group.pending:
            simple = Group(group_id, offsets=group.offsets, pending=group.pending)
            self.groups[group_id] = simple
        else:
            group.is_dead = True
            del self.groups[group_id]

    def _replay_newer(self, key: TypedKey, raw_key: bytes, raw_value: bytes | None) -> None:
        records = self._newer_records.setdefault(key.group_id, {})
        if raw_value is not None:
            records[raw_key] = raw_value
            self.newer[key.group_id] = kind_of_group(key.record_type)
            return
        records.pop(raw_key, None)
        if not records:
            del self._newer_records[key.group_id]
            self.newer.pop(key.group_id, None)
