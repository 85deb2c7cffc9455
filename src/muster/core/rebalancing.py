"""The phases of a rebalance, sessions and timers: what happens to seats without anybody asking.

A rebalance is one soft object beside the group. While it is joining, requests are parked; once everybody is here, or
time is up, a new generation begins and the leader's assignment is awaited. Timers only remind: deadlines are kept with
what they are for, and looked at when a timer fires, however early or late.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, encode_group_value, encode_key, group_value_version
from muster.core.answers import JoinAnswer, JoinedMember, SyncAnswer
from muster.core.config import GroupConfig
from muster.core.events import Instant
from muster.core.group import LEGAL_MOVES, Group, IllegalMove, Member, Rebalance, State
from muster.core.outcome import CancelTimer, Cause, Notice, NoticeKind, OffsetsRecord, Outcome, Reply, SetTimer, Write

JOIN_TIMER, SYNC_TIMER, SESSION_TIMER, PENDING_TIMER = "join", "sync", "session", "pending"
SHORTEST_WAIT_MS = 1_000
"""A group whose rebalance timeout is shorter waits for nobody a second time."""


class Rebalancing:
    """What `Membership` stands on."""

    def __init__(self, groups: dict[str, Group], config: GroupConfig) -> None:
        self._groups = groups
        self._config = config
        self.seats = 0
        """Members, and ids handed out to become members. Each parks at most one request."""
        self.held_bytes = 0
        """Of all of them, as `Group.held_bytes` counts."""

    # The phases of a rebalance.

    def _move(self, group: Group, came_from: State, to: State, now: Instant, rebalance: Rebalance | None) -> None:
        if to not in LEGAL_MOVES[came_from]:
            raise IllegalMove(f"group {group.group_id}: {came_from.value} to {to.value}")
        group.rebalance = rebalance
        group.state_timestamp_ms = now.wall_ms

    def _prepare_or_complete(self, group: Group, came_from: State, cause: Cause, now: Instant, out: Outcome) -> None:
        if came_from is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_here(group, now, out)
        else:
            self.prepare(group, came_from, cause, now, out)

    def prepare(self, group: Group, came_from: State, cause: Cause, now: Instant, out: Outcome) -> None:
        """Start a rebalance: everybody is asked to join again.

        The state it came from is given, because a seat taken or left just now has changed what can be computed.
        """
        if came_from is State.COMPLETING_REBALANCE:
            self._drop_assignments(group, now, out)
        self._disarm_sync(group, out)
        is_initial = came_from is State.EMPTY
        if is_initial:  # others are given a moment to arrive too
            delay_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            rebalance = Rebalance(True, now.monotonic_ms + delay_ms, True, delay_ms, remaining_ms)
        else:
            rebalance = Rebalance(True, now.monotonic_ms + group.rebalance_timeout_ms)
        rebalance.cause, rebalance.since_ms = cause, now.monotonic_ms
        out.notices.append(Notice(NoticeKind.REBALANCING, group.group_id, cause, generation=group.generation))
        self._move(group, came_from, State.PREPARING_REBALANCE, now, rebalance)
        out.timers.append(SetTimer((JOIN_TIMER, group.group_id), rebalance.deadline_ms))
        if not is_initial:
            self._complete_join_if_all_are_here(group, now, out)

    def _drop_assignments(self, group: Group, now: Instant, out: Outcome) -> None:
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS), now, out)

    def _answer_syncs(self, group: Group, answer: SyncAnswer, now: Instant, out: Outcome) -> None:
        for member in group.members.values():
            if member.sync_waiter is not None:
                out.replies.append(Reply(member.sync_waiter.reply_to, answer))
                member.sync_waiter = None
                self.extend_session(group, member, now, out)

    def _complete_join_if_all_are_here(self, group: Group, now: Instant, out: Outcome) -> None:
        rebalance = group.rebalance
        if rebalance is None or not rebalance.is_joining or rebalance.is_initial:
            return
        if group.everybody_joined or (rebalance.is_overdue and group.awaiting_join):
            self._complete_join(group, now, out)

    def _complete_join(self, group: Group, now: Instant, out: Outcome) -> None:
        """The phase ends: a new generation of those who came."""
        for member in [each for each in group.members.values() if each.join_waiter is None and not each.is_static]:
            self._unseat(group, member, NoticeKind.EXPIRED, Cause.DID_NOT_REJOIN, out)
        if group.members and not self._some_leader_joined(group):
            self._wait_once_more(group, now, out)
            return
        out.timers.append(CancelTimer((JOIN_TIMER, group.group_id)))
        group.generation = _as_int32(group.generation + 1)
        if group.members:
            self._begin_generation(group, now, out)
        else:
            self._become_empty(group, now, out)

    def _wait_once_more(self, group: Group, now: Instant, out: Outcome) -> None:
        """Only silent static members are left: they keep their seats, and the phase goes on.

        A timer of no length would fire for ever. The next join ends the phase instead, as that timer would.
        """
        rebalance = group.rebalance
        assert rebalance is not None
        rebalance.is_overdue = group.rebalance_timeout_ms < SHORTEST_WAIT_MS
        if not rebalance.is_overdue:
            rebalance.deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
            out.timers.append(SetTimer((JOIN_TIMER, group.group_id), rebalance.deadline_ms))

    def _some_leader_joined(self, group: Group) -> bool:
        """Make sure that the leader is a member who is here to lead."""
        leader = None if group.leader is None else group.members.get(group.leader)
        if leader is not None and leader.join_waiter is not None:
            return True
        joined = next((each for each in group.members.values() if each.join_waiter is not None), None)
        if joined is None:
            return False
        group.leader = joined.member_id
        return True

    def _become_empty(self, group: Group, now: Instant, out: Outcome) -> None:
        group.protocol = None
        group.leader = None
        self._move(group, State.PREPARING_REBALANCE, State.EMPTY, now, None)
        group.subscribed_topics = group.compute_subscribed_topics()
        out.notices.append(Notice(NoticeKind.EMPTY, group.group_id, generation=group.generation))
        out.writes.append(Write([self._record(group, group.value())]))

    def _begin_generation(self, group: Group, now: Instant, out: Outcome) -> None:
        group.protocol = group.choose_protocol()
        group.subscribed_topics = group.compute_subscribed_topics()
        rebalance = group.rebalance
        assert rebalance is not None
        rebalance.is_joining = rebalance.is_initial = False
        self._move(group, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, now, rebalance)
        group.pending_sync = set(group.members)
        for member in group.members.values():
            waiter = group.unpark_join(member)
            member.is_new = False
            if waiter is not None:
                full = member.member_id == group.leader
                out.replies.append(Reply(waiter.reply_to, self._joined(group, member, full=full)))
                self.extend_session(group, member, now, out)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        out.timers.append(SetTimer((SYNC_TIMER, group.group_id), group.sync_deadline_ms))

    def _disarm_sync(self, group: Group, out: Outcome) -> None:
        if group.sync_deadline_ms is not None:
            group.sync_deadline_ms = None
            out.timers.append(CancelTimer((SYNC_TIMER, group.group_id)))
        group.pending_sync.clear()

    def _joined(self, group: Group, member: Member, *, full: bool) -> JoinAnswer:
        members: tuple[JoinedMember, ...] = ()
        if full:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(group.protocol))
                for each in group.members.values()
            )
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader or "",
            False,
            members,
        )

    # Sessions.

    def extend_session(self, group: Group, member: Member, now: Instant, out: Outcome) -> None:
        """A sign of life: the session begins again. Only the deadline moves; the timer looks at it when it fires."""
        deadline_ms = now.monotonic_ms + member.session_timeout_ms
        member.deadline_ms = deadline_ms
        if member.armed_ms is None or member.armed_ms > deadline_ms:
            self._arm_session(group, member, deadline_ms, out)

    def _arm_session(self, group: Group, member: Member, deadline_ms: int, out: Outcome) -> None:
        member.deadline_ms = deadline_ms
        if member.armed_ms is None or member.armed_ms > deadline_ms:
            member.armed_ms = deadline_ms
            out.timers.append(SetTimer((SESSION_TIMER, group.group_id, member.member_id), deadline_ms))

    def _unseat(
        self, group: Group, member: Member, what: NoticeKind, cause: Cause, out: Outcome, reason: str | None = None
    ) -> None:
        """Take a member's seat; whatever it waits for is answered with "unknown"."""
        out.notices.append(Notice(what, group.group_id, cause, member.member_id, reason or ""))
        waiter = group.unpark_join(member)
        if waiter is not None:
            out.replies.append(Reply(waiter.reply_to, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")))
        if member.sync_waiter is not None:
            out.replies.append(Reply(member.sync_waiter.reply_to, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)))
            member.sync_waiter = None
        out.timers.append(CancelTimer((SESSION_TIMER, group.group_id, member.member_id)))
        member.armed_ms = None
        group.remove(member)
        self.seats -= 1
        self._count_bytes(group)

    # Timers.

    def timer(self, key: tuple[str, ...], now: Instant, out: Outcome) -> None:
        """One of ours fired. What it stands for may have moved on: the group's own deadlines decide."""
        group = self._groups.get(key[1])
        if group is None:
            return
        if key[0] == JOIN_TIMER:
            self._join_timer(group, now, out)
        elif key[0] == SYNC_TIMER:
            self._sync_timer(group, now, out)
        elif key[0] == SESSION_TIMER:
            self._session_timer(group, key[2], now, out)
        elif key[0] == PENDING_TIMER:
            self._pending_timer(group, key[2], now, out)

    def _join_timer(self, group: Group, now: Instant, out: Outcome) -> None:
        rebalance = group.rebalance
        if rebalance is None or not rebalance.is_joining:
            return
        if now.monotonic_ms < rebalance.deadline_ms:
            out.timers.append(SetTimer((JOIN_TIMER, group.group_id), rebalance.deadline_ms))
            return
        if rebalance.is_initial and group.new_member_added and rebalance.remaining_ms != 0:
            group.new_member_added = False
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, rebalance.remaining_ms)
            rebalance.remaining_ms = max(rebalance.remaining_ms - rebalance.delay_ms, 0)
            rebalance.delay_ms = delay_ms
            rebalance.deadline_ms = now.monotonic_ms + delay_ms
            out.timers.append(SetTimer((JOIN_TIMER, group.group_id), rebalance.deadline_ms))
            return
        rebalance.is_initial = False
        self._complete_join(group, now, out)

    def _sync_timer(self, group: Group, now: Instant, out: Outcome) -> None:
        """Those who never synced lose their seats, static ones too; heartbeats do not save them.

        One who was replaced by a successor still counts as missing, as in Kafka: the group rebalances for its sake.
        """
        if group.sync_deadline_ms is None:
            return
        if now.monotonic_ms < group.sync_deadline_ms:
            out.timers.append(SetTimer((SYNC_TIMER, group.group_id), group.sync_deadline_ms))
            return
        came_from = group.state
        group.sync_deadline_ms = None
        for member_id in sorted(group.pending_sync & group.members.keys()):
            self._unseat(group, group.members[member_id], NoticeKind.EXPIRED, Cause.DID_NOT_SYNC, out)
        self.prepare(group, came_from, Cause.DID_NOT_SYNC, now, out)

    def _session_timer(self, group: Group, member_id: str, now: Instant, out: Outcome) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        member.armed_ms = None
        if member.deadline_ms is None:
            return
        if now.monotonic_ms < member.deadline_ms:
            self._arm_session(group, member, member.deadline_ms, out)
            return
        waits = member.join_waiter is not None or member.sync_waiter is not None
        if waits and not member.is_new:
            member.deadline_ms = None  # spent; armed again when it is answered
            return
        came_from = group.state
        self._unseat(group, member, NoticeKind.EXPIRED, Cause.SESSION_EXPIRED, out)
        self._wait_no_longer_than_needed(group)
        self._prepare_or_complete(group, came_from, Cause.SESSION_EXPIRED, now, out)

    def _wait_no_longer_than_needed(self, group: Group) -> None:
        """Whoever runs out of time during the initial delay ends it, if it was the last one not here."""
        rebalance = group.rebalance
        if rebalance is not None and rebalance.is_joining and group.everybody_joined:
            rebalance.is_initial = False

    def _pending_timer(self, group: Group, member_id: str, now: Instant, out: Outcome) -> None:
        deadline_ms = group.pending_members.get(member_id)
        if deadline_ms is None:
            return
        if now.monotonic_ms < deadline_ms:
            out.timers.append(SetTimer((PENDING_TIMER, group.group_id, member_id), deadline_ms))
            return
        group.take_back(member_id)
        self.seats -= 1
        self._count_bytes(group)
        self._wait_no_longer_than_needed(group)
        self._complete_join_if_all_are_here(group, now, out)

    # Coming and going of whole groups.

    def loaded(self, group: Group, now: Instant, out: Outcome) -> None:
        """A group was read from the log: everybody has a full session to find the new coordinator."""
        self.seats += len(group.members)
        self._count_bytes(group)
        for member in group.members.values():
            self.extend_session(group, member, now, out)
        if len(group.members) > self._config.group_max_size:
            self.prepare(group, State.STABLE, Cause.TOO_MANY_MEMBERS, now, out)

    def unloaded(self, group: Group, out: Outcome) -> None:
        """The partition moves elsewhere: whoever waits is told to look for the new coordinator."""
        for member in group.members.values():
            waiter = group.unpark_join(member)
            if waiter is not None:
                answer = JoinAnswer(ErrorCode.NOT_COORDINATOR, member.member_id)
                out.replies.append(Reply(waiter.reply_to, answer))
            if member.sync_waiter is not None:
                out.replies.append(Reply(member.sync_waiter.reply_to, SyncAnswer(ErrorCode.NOT_COORDINATOR)))
                member.sync_waiter = None
        self.end(group, out)

    def end(self, group: Group, out: Outcome) -> None:
        """The group is no more: no timers, no place in the cache."""
        self.release(group)
        group.is_dead = True
        for kind in (JOIN_TIMER, SYNC_TIMER):
            out.timers.append(CancelTimer((kind, group.group_id)))
        out.timers.extend(CancelTimer((SESSION_TIMER, group.group_id, member_id)) for member_id in group.members)
        out.timers.extend(
            CancelTimer((PENDING_TIMER, group.group_id, member_id)) for member_id in group.pending_members
        )
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def release(self, group: Group) -> None:
        """Count the seats of a group no longer."""
        self.seats -= len(group.members) + len(group.pending_members)
        self.held_bytes -= group.counted_bytes
        group.counted_bytes = 0

    def _count_bytes(self, group: Group) -> None:
        """A group has changed: count what it holds now instead of what it held."""
        if not group.is_dead:
            self.held_bytes += group.held_bytes - group.counted_bytes
            group.counted_bytes = group.held_bytes

    def _record(self, group: Group, value: GroupValue) -> OffsetsRecord:
        version = group_value_version(self._config.inter_broker_protocol_version)
        return OffsetsRecord(encode_key(GroupKey(group.group_id)), encode_group_value(value, version))


def _as_int32(number: int) -> int:
    """As Java counts: behind the largest number comes the smallest."""
    return (number + 2**31) % 2**32 - 2**31
