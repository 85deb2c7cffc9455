"""One partition of `__consumer_offsets` as a state machine: start reading here.

The theory. A coordinator is told what happened (an event) and when, and says what is to be done (an outcome): records
to append, timers to arm, clients to answer. It never waits, looks at no clock and makes nothing up, so a year of
accidents can be played in a second, and a log tells all there is to know.

1. `handle` decides. It may change soft state (`seats.py`: who sits where and waits for what), never what the log says.
2. The shell appends the records of each write before it hands over the next event. If the log took them, `appended`
   replays them (`groups.py`), which is the only way hard state ever changes. If the log refused them before a byte was
   written (too large, not the leader), `refused` is told. What follows from either is in one place: `_follow`.
3. If the disk fails in the middle, there is nothing to repair: the coordinator is dropped and the log is read again.

A restart runs the same replay, record by record; then seats are made from the records, and `activate` begins sessions.

States and what each answers are in `states.py`; how seats change hands in `membership.py`, with the phases of a
rebalance in `rebalancing.py`; offsets in `offsets.py`; groups of newer kinds in `newer_groups.py`.
"""

from collections.abc import Callable
from typing import Any, assert_never

from muster.codec.error_codes import ErrorCode
from muster.core.config import GroupConfig
from muster.core.events import (
    DeleteGroup,
    DescribeAnswer,
    DescribedMember,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Heartbeat,
    Instant,
    JoinGroup,
    LeaveGroup,
    ListAnswer,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TimerFired,
    TopicsDeleted,
    TxnOffsetCommit,
    commit_error,
    refusal,
)
from muster.core.groups import NO_PRODUCER, Group, GroupTable
from muster.core.membership import Membership
from muster.core.offsets import Commits, Offsets
from muster.core.outcome import (
    AnyWrite,
    Assigned,
    CommitWrite,
    Created,
    Decision,
    Deleted,
    Emptied,
    Notice,
    NoticeKind,
    Outcome,
    Renamed,
    Reply,
    Write,
)
from muster.core.rebalancing import Rebalancing
from muster.core.seats import Member, Seats
from muster.core.states import State

CLASSIC_TYPE = "classic"
UNKNOWN_STATE = "Unknown"
_FIRST_VERSION_WITH_NOT_FOUND = 6
_NONE = ErrorCode.NONE


class Coordinator:
    """All groups of one partition."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.table = table = GroupTable()
        self.groups = table.groups
        self.newer = table.newer
        self.rebalancing = Rebalancing(table.groups, self.config)
        self.membership = Membership(table, self.rebalancing, self.config)
        self.commits = Commits(table, self.config, self.rebalancing.extend_session)
        self.offsets = Offsets(table, self.config)
        self.admin = Admin(table)
        self._handlers: dict[type, Callable[[Any, Instant, Outcome], None]] = {
            JoinGroup: self.membership.join,
            SyncGroup: self.membership.sync,
            Heartbeat: self.membership.heartbeat,
            LeaveGroup: self.membership.leave,
            OffsetCommit: self.commits.commit,
            TxnOffsetCommit: self.commits.txn_commit,
            EndTransaction: self._end_transaction,
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
        self.rebalancing.timer(event.key, now, out)

    def _end_transaction(self, event: EndTransaction, now: Instant, out: Outcome) -> None:
        """A marker is in the log: no decision of ours, so it is replayed at once."""
        self.table.replay_marker(event.producer_id, event.commit)

    # The log.

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Let one record of the log count, before the coordinator is active."""
        self.table.replay(record, log_offset, producer_id)

    def activate(self, now: Instant, out: Outcome) -> None:
        """The log has been read, and the members have their seats: sessions begin, requests may come."""
        for group in self.groups.values():
            self.rebalancing.activate(group, now, out)

    def unload(self, out: Outcome) -> tuple[int, int]:
        """The partition moves elsewhere. Nothing is written; returns how many groups and offsets were let go."""
        groups = list(self.groups.values())
        for group in groups:
            self.rebalancing.unload(group, out)
        self.groups.clear()
        self.newer.kinds.clear()
        return len(groups), sum(len(group.offsets) for group in groups)

    def hard_state(self) -> dict[str, tuple[Any, ...]]:
        """What the log alone explains, for comparison with a replay of it."""
        return {group_id: group.hard_state for group_id, group in self.groups.items() if group.is_in_log}

    def appended(self, write: AnyWrite, base_offset: int, out: Outcome) -> None:
        """The log took a write, its first record at this offset."""
        if isinstance(write, CommitWrite):
            event = write.event
            self.table.replay_commits(event.group_id, write.commits, base_offset, write.producer_id)
            out.replies.append((event.reply_to, write.answer))
            return
        assert isinstance(write, Write)
        for log_offset, record in enumerate(write.records, base_offset):
            self.table.replay(record, log_offset)
        self._follow(write.decision, _NONE, out)

    def refused(self, write: AnyWrite, error: ErrorCode, out: Outcome) -> None:
        """The log did not take a write, and nothing of it is there."""
        if isinstance(write, CommitWrite):
            out.replies.append(Reply(write.event.reply_to, refusal(write.event, commit_error(error))))
            return
        assert isinstance(write, Write)
        if write.may_be_split and len(write.records) > 1 and error is ErrorCode.MESSAGE_TOO_LARGE:
            _split(write, out)
        else:
            self._follow(write.decision, error, out)

    def _follow(self, decision: Decision, error: ErrorCode, out: Outcome) -> None:
        """What follows from a decision once the log has taken it (error NONE), or has refused it."""
        is_taken = error is _NONE
        match decision:
            case Created() if is_taken:
                self.membership.created(decision, out)
            case Created():
                self.membership.not_created(decision, error, out)
            case Assigned() if is_taken:
                self.rebalancing.assigned(decision, out)
            case Assigned():
                self.rebalancing.not_assigned(decision, error, out)
            case Renamed() if is_taken:
                self.membership.renamed(decision, out)
            case Renamed():
                self.membership.not_renamed(decision, error, out)
            case Emptied():
                pass  # the group is Empty either way
            case Deleted(group, notices, event, answer):
                if is_taken:
                    out.notices.extend(notices)
                    if group is not None:
                        self._end(group, out)
                elif notices:
                    out.notices.append(Notice(NoticeKind.NOT_WRITTEN, notices[0].group_id, reason=error.name))
                if event is not None:
                    reply = answer if is_taken else refusal(event, commit_error(error))
                    out.replies.append(Reply(event.reply_to, reply))
            case _:
                assert_never(decision)

    def _end(self, group: Group, out: Outcome) -> None:
        """The tombstone of a group is in the log. If offsets are left, it is a simple group from now on."""
        self.rebalancing.end(group, out)
        if self.groups.get(group.group_id) is group:
            group.seats = Seats()


def _split(write: Write, out: Outcome) -> None:
    """Put two halves of a write behind it, which the shell appends next. What follows it follows the second half."""
    half = len(write.records) // 2
    place = next((number for number, other in enumerate(out.writes) if other is write), len(out.writes))
    halves = Write(write.records[:half], Deleted()), Write(write.records[half:], write.decision)
    out.writes[place + 1 : place + 1] = halves


class Admin:
    """Questions about the groups of one partition.

    Of groups of the newer protocols only the id and the type are known here. They are listed, in the state "Unknown",
    which no filter asks for; to be described as a classic group is something they refuse in Kafka too.
    """

    def __init__(self, table: GroupTable) -> None:
        self._groups = table.groups
        self._newer = table.newer.kinds

    def describe(self, event: DescribeGroup, now: Instant, out: Outcome) -> None:
        """One group. Until version 5 one that does not exist is merely Dead."""
        group = self._groups.get(event.group_id)
        if event.group_id in self._newer:
            answer = _absent(event, f"Group {event.group_id} is not a classic group.")
        elif group is None or group.seats.state is State.DEAD:
            answer = _absent(event, f"Group {event.group_id} not found.")
        else:
            answer = _described(group.seats)
        out.replies.append(Reply(event.reply_to, answer))

    def list_groups(self, event: ListGroups, now: Instant, out: Outcome) -> None:
        """All groups that pass both filters; names that mean nothing match nothing."""
        states = {state.lower().strip() for state in event.states}
        types = {group_type.lower() for group_type in event.types}
        groups = tuple(
            [
                listed
                for listed in self._listed()
                if (not states or listed.state.lower() in states) and (not types or listed.type in types)
            ]
        )
        out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.NONE, groups)))

    def _listed(self) -> list[ListedGroup]:
        classic = [
            ListedGroup(group_id, group.seats.protocol_type or "", group.seats.state.value, CLASSIC_TYPE)
            for group_id, group in self._groups.items()
            if group_id not in self._newer and group.seats.state is not State.DEAD
        ]
        # A newer group has its type for a protocol type: consumer, share or streams.
        return classic + [ListedGroup(group_id, kind, UNKNOWN_STATE, kind) for group_id, kind in self._newer.items()]


def _absent(event: DescribeGroup, message: str) -> DescribeAnswer:
    if event.version < _FIRST_VERSION_WITH_NOT_FOUND:
        return DescribeAnswer(ErrorCode.NONE, State.DEAD.value)
    return DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, State.DEAD.value, message=message)


def _described(seats: Seats) -> DescribeAnswer:
    """Protocol and metadata are told of a Stable group only; the last assignment stays with its member throughout."""
    state = seats.state
    protocol = seats.protocol if state is State.STABLE else None
    return DescribeAnswer(
        ErrorCode.NONE,
        state.value,
        seats.protocol_type or "",
        protocol or "",
        tuple([_described_member(member, protocol) for member in seats.members.values()]),
    )


def _described_member(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"" if protocol is None else member.metadata(protocol),
        member.assignment,
    )
