"""`Rebalancing`: the join and sync phases of a rebalance, member sessions, and their timers.

While members join, their requests are parked; once all are here, or time is up, a new generation begins and the
leader's assignment is awaited. Timers only remind: deadlines are kept with what they are for, and looked at when a
timer fires, however early or late.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, encode_group_value, encode_key, group_value_version
from muster.core.config import GroupConfig
from muster.core.events import Instant, JoinAnswer, JoinedMember, SyncAnswer, TimerKey, TimerKind, group_error
from muster.core.groups import Group
from muster.core.outcome import (
    Assigned,
    CancelTimer,
    Emptied,
    Notice,
    NoticeKind,
    OffsetsRecord,
    Outcome,
    Reply,
    SetTimer,
    Write,
)
from muster.core.seats import Member, Rebalance, Seats
from muster.core.states import Cause, State

SHORTEST_WAIT_MS = 1_000
"""A group whose rebalance timeout is shorter waits a second time for no member."""


def answer_sync(member: Member, answer: SyncAnswer, out: Outcome) -> bool:
    """Answer the member's parked sync; False if there is none."""
    waiter = member.sync_waiter
    if waiter is None:
        return False
    out.replies.append(Reply(waiter.reply_to, answer))
    member.sync_waiter = None
    return True


def refuse_parked(seats: Seats, member: Member, error: ErrorCode, member_id: str, out: Outcome) -> None:
    """Answer whatever the member waits for with an error; its join hears this member id."""
    waiter = seats.unpark_join(member)
    if waiter is not None:
        out.replies.append(Reply(waiter.reply_to, JoinAnswer(error, member_id)))
    answer_sync(member, SyncAnswer(error), out)


class Rebalancing:
    """The rebalances and sessions of all groups of one partition. `groups` is the coordinator's table."""

    def __init__(self, groups: dict[str, Group], config: GroupConfig) -> None:
        self._groups = groups
        self._config = config
        self.seat_count = 0
        """Members, and ids handed out to become members. Each parks at most one request."""
        self.held_bytes = 0
        """Of all of them, as `Seats.held_bytes` counts."""

    # The phases of a rebalance.

    def prepare_or_complete(self, group: Group, cause: Cause, now: Instant, out: Outcome) -> None:
        """A seat was taken or left: start a rebalance, or see whether that was what the one in progress waits for."""
        if group.seats.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all_are_here(group, now, out)
        else:
            self.prepare(group, cause, now, out)

    def prepare(self, group: Group, cause: Cause, now: Instant, out: Outcome) -> None:
        """Start a rebalance: all members are asked to join again."""
        seats = group.seats
        if seats.state is State.COMPLETING_REBALANCE:
            self._drop_assignments(group, now, out)
        self._disarm_sync(group, out)
        is_initial = seats.state is State.EMPTY
        rebalance = Rebalance(cause, now.monotonic_ms, now.monotonic_ms + seats.rebalance_timeout_ms, is_initial)
        if is_initial:  # others are given a moment to arrive too
            rebalance.delay_ms = self._config.group_initial_rebalance_delay_ms
            rebalance.remaining_ms = max(seats.rebalance_timeout_ms - rebalance.delay_ms, 0)
            rebalance.join_deadline_ms = now.monotonic_ms + rebalance.delay_ms
        out.notices.append(Notice(NoticeKind.REBALANCING, group.group_id, cause, generation=seats.generation))
        seats.move(State.PREPARING_REBALANCE, now.wall_ms)
        seats.rebalance = rebalance
        self._arm_join(group, rebalance, out)
        if not is_initial:
            self.complete_join_if_all_are_here(group, now, out)

    def _drop_assignments(self, group: Group, now: Instant, out: Outcome) -> None:
        for member in group.seats.members.values():
            member.assignment = b""
        self._answer_syncs(group, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS), now, out)

    def _answer_syncs(self, group: Group, answer: SyncAnswer, now: Instant, out: Outcome) -> None:
        for member in group.seats.members.values():
            if answer_sync(member, answer, out):
                self.extend_session(group, member, now, out)

    def complete_join_if_all_are_here(self, group: Group, now: Instant, out: Outcome) -> None:
        """End the join phase, unless it waits for a member, for an id that was handed out, or for its first delay."""
        seats = group.seats
        rebalance = seats.rebalance
        if seats.state is not State.PREPARING_REBALANCE or rebalance is None or rebalance.is_initial:
            return
        if seats.all_joined or (rebalance.is_overdue and seats.awaiting_join):
            self._complete_join(group, rebalance, now, out)

    def _complete_join(self, group: Group, rebalance: Rebalance, now: Instant, out: Outcome) -> None:
        """The phase ends: a new generation of those who came."""
        seats = group.seats
        for member in [each for each in seats.members.values() if each.join_waiter is None and not each.is_static]:
            self.unseat(group, member, NoticeKind.EXPIRED, Cause.DID_NOT_REJOIN, out)
        if seats.members and not self._some_leader_joined(seats):
            self._wait_once_more(group, rebalance, now, out)
            return
        out.timers.append(CancelTimer(TimerKey(TimerKind.JOIN, group.group_id)))
        seats.generation = _as_int32(seats.generation + 1)
        if seats.members:
            self._begin_generation(group, rebalance, now, out)
        else:
            self._become_empty(group, now, out)

    def _wait_once_more(self, group: Group, rebalance: Rebalance, now: Instant, out: Outcome) -> None:
        """Only silent static members are left: they keep their seats, and the phase goes on.

        A timer of no length would fire for ever. The next join ends the phase instead, as that timer would.
        """
        rebalance.is_overdue = group.seats.rebalance_timeout_ms < SHORTEST_WAIT_MS
        if not rebalance.is_overdue:
            rebalance.join_deadline_ms = now.monotonic_ms + group.seats.rebalance_timeout_ms
            self._arm_join(group, rebalance, out)

    def _arm_join(self, group: Group, rebalance: Rebalance, out: Outcome) -> None:
        out.timers.append(SetTimer(TimerKey(TimerKind.JOIN, group.group_id), rebalance.join_deadline_ms))

    def _some_leader_joined(self, seats: Seats) -> bool:
        """Make sure that the leader is a member who is here to lead."""
        leader = None if seats.leader is None else seats.members.get(seats.leader)
        if leader is not None and leader.join_waiter is not None:
            return True
        joined = next((each for each in seats.members.values() if each.join_waiter is not None), None)
        if joined is None:
            return False
        seats.leader = joined.member_id
        return True

    def _become_empty(self, group: Group, now: Instant, out: Outcome) -> None:
        """The group is Empty whether or not the log takes the record of it, as in Kafka."""
        seats = group.seats
        seats.protocol = None
        seats.leader = None
        seats.rebalance = None
        seats.move(State.EMPTY, now.wall_ms)
        seats.subscribed_topics = seats.compute_subscribed_topics()
        out.notices.append(Notice(NoticeKind.EMPTY, group.group_id, generation=seats.generation))
        out.writes.append(Write([self.record(group.group_id, seats.value())], Emptied()))

    def _begin_generation(self, group: Group, rebalance: Rebalance, now: Instant, out: Outcome) -> None:
        seats = group.seats
        seats.protocol = seats.choose_protocol()
        seats.subscribed_topics = seats.compute_subscribed_topics()
        seats.move(State.COMPLETING_REBALANCE, now.wall_ms)
        rebalance.is_initial = False
        rebalance.pending_sync = set(seats.members)
        for member in seats.members.values():
            waiter = seats.unpark_join(member)
            member.is_new = False
            if waiter is not None:
                full = member.member_id == seats.leader
                out.replies.append(Reply(waiter.reply_to, self.join_answer(seats, member, full=full)))
                self.extend_session(group, member, now, out)
        rebalance.sync_deadline_ms = now.monotonic_ms + seats.rebalance_timeout_ms
        self._arm_sync(group, rebalance.sync_deadline_ms, out)

    def join_answer(self, seats: Seats, member: Member, *, full: bool) -> JoinAnswer:
        """The answer to a join that has succeeded; `full` with all members, for the leader."""
        members: tuple[JoinedMember, ...] = ()
        if full:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(seats.protocol))
                for each in seats.members.values()
            )
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            seats.generation,
            seats.protocol_type,
            seats.protocol,
            seats.leader or "",
            False,
            members,
        )

    def synced(self, group: Group, member: Member, out: Outcome) -> None:
        """A member of the new generation has asked for its assignment. The rebalance ends with the last one's."""
        rebalance = group.seats.rebalance
        if rebalance is not None:
            rebalance.pending_sync.discard(member.member_id)
            if not rebalance.pending_sync:
                self._disarm_sync(group, out)
                self._end_if_settled(group.seats)

    def _arm_sync(self, group: Group, deadline_ms: int, out: Outcome) -> None:
        out.timers.append(SetTimer(TimerKey(TimerKind.SYNC, group.group_id), deadline_ms))

    def _disarm_sync(self, group: Group, out: Outcome) -> None:
        rebalance = group.seats.rebalance
        if rebalance is not None:
            if rebalance.sync_deadline_ms is not None:
                rebalance.sync_deadline_ms = None
                out.timers.append(CancelTimer(TimerKey(TimerKind.SYNC, group.group_id)))
            rebalance.pending_sync.clear()

    def _end_if_settled(self, seats: Seats) -> None:
        """The rebalance is over when the group is Stable and no member is waited for."""
        rebalance = seats.rebalance
        if seats.state is State.STABLE and rebalance is not None and rebalance.sync_deadline_ms is None:
            seats.rebalance = None

    # The assignment, once the log has taken it, or has not.

    def assigned(self, decided: Assigned, out: Outcome) -> None:
        """Hand the assignment round, unless a newer rebalance has answered all members already."""
        group, generation, assignments, now = decided
        seats, rebalance = group.seats, group.seats.rebalance
        if seats.state is not State.COMPLETING_REBALANCE or seats.generation != generation or rebalance is None:
            return
        seats.move(State.STABLE, seats.state_timestamp_ms)  # the time that stands in the record
        out.notices.append(
            Notice(
                NoticeKind.STABLE,
                group.group_id,
                rebalance.cause,
                generation=generation,
                size=len(seats.members),
                duration_ms=now.monotonic_ms - rebalance.since_ms,
            )
        )
        for member in seats.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if answer_sync(member, self.sync_answer(seats, member), out):
                self.extend_session(group, member, now, out)
        self._end_if_settled(seats)

    def not_assigned(self, decided: Assigned, error: ErrorCode, out: Outcome) -> None:
        """The members that wait for the assignment hear of the error, and the group begins again."""
        group, generation, _, now = decided
        if group.seats.state is State.COMPLETING_REBALANCE and group.seats.generation == generation:
            self._answer_syncs(group, SyncAnswer(group_error(error)), now, out)
            self.prepare(group, Cause.APPEND_REFUSED, now, out)

    def sync_answer(self, seats: Seats, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, member.assignment, seats.protocol_type, seats.protocol)

    # Sessions.

    def extend_session(self, group: Group, member: Member, now: Instant, out: Outcome) -> None:
        """A sign of life: the session begins again. Only the deadline moves; the timer looks at it when it fires."""
        deadline_ms = now.monotonic_ms + member.session_timeout_ms
        member.deadline_ms = deadline_ms
        if member.armed_ms is None or member.armed_ms > deadline_ms:
            self.arm_session(group, member, deadline_ms, out)

    def arm_session(self, group: Group, member: Member, deadline_ms: int, out: Outcome) -> None:
        member.deadline_ms = deadline_ms
        if member.armed_ms is None or member.armed_ms > deadline_ms:
            member.armed_ms = deadline_ms
            out.timers.append(SetTimer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id), deadline_ms))

    def unseat(
        self, group: Group, member: Member, kind: NoticeKind, cause: Cause, out: Outcome, reason: str | None = None
    ) -> None:
        """Take a member's seat; whatever it waits for is answered with "unknown"."""
        out.notices.append(Notice(kind, group.group_id, cause, member.member_id, reason or ""))
        refuse_parked(group.seats, member, ErrorCode.UNKNOWN_MEMBER_ID, "", out)
        out.timers.append(CancelTimer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id)))
        member.armed_ms = None
        group.seats.remove(member)
        self.seat_count -= 1
        self.count_bytes(group)

    # Timers.

    def timer(self, key: TimerKey, now: Instant, out: Outcome) -> None:
        """One of ours fired. What it stands for may have moved on: the group's own deadlines decide."""
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if group is None:
            return
        match kind:
            case TimerKind.JOIN:
                self._join_timer(group, now, out)
            case TimerKind.SYNC:
                self._sync_timer(group, now, out)
            case TimerKind.SESSION:
                self._session_timer(group, member_id, now, out)
            case TimerKind.PENDING:
                self._pending_timer(group, member_id, now, out)

    def _join_timer(self, group: Group, now: Instant, out: Outcome) -> None:
        seats = group.seats
        rebalance = seats.rebalance
        if seats.state is not State.PREPARING_REBALANCE or rebalance is None:
            return
        if now.monotonic_ms < rebalance.join_deadline_ms:
            self._arm_join(group, rebalance, out)
            return
        if rebalance.is_initial and seats.new_member_added and rebalance.remaining_ms != 0:
            seats.new_member_added = False
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, rebalance.remaining_ms)
            rebalance.remaining_ms = max(rebalance.remaining_ms - rebalance.delay_ms, 0)
            rebalance.delay_ms = delay_ms
            rebalance.join_deadline_ms = now.monotonic_ms + delay_ms
            self._arm_join(group, rebalance, out)
            return
        rebalance.is_initial = False
        self._complete_join(group, rebalance, now, out)

    def _sync_timer(self, group: Group, now: Instant, out: Outcome) -> None:
        """Those who never synced lose their seats, static ones too; heartbeats do not save them.

        A member that was replaced by a successor still counts as missing, as in Kafka: the group rebalances for it.
        """
        seats, rebalance = group.seats, group.seats.rebalance
        if rebalance is None or rebalance.sync_deadline_ms is None:
            return
        if now.monotonic_ms < rebalance.sync_deadline_ms:
            self._arm_sync(group, rebalance.sync_deadline_ms, out)
            return
        rebalance.sync_deadline_ms = None
        for member_id in sorted(rebalance.pending_sync & seats.members.keys()):
            self.unseat(group, seats.members[member_id], NoticeKind.EXPIRED, Cause.DID_NOT_SYNC, out)
        self.prepare(group, Cause.DID_NOT_SYNC, now, out)

    def _session_timer(self, group: Group, member_id: str, now: Instant, out: Outcome) -> None:
        member = group.seats.members.get(member_id)
        if member is None:
            return
        member.armed_ms = None
        if member.deadline_ms is None:
            return
        if now.monotonic_ms < member.deadline_ms:
            self.arm_session(group, member, member.deadline_ms, out)
            return
        waits = member.join_waiter is not None or member.sync_waiter is not None
        if waits and not member.is_new:
            member.deadline_ms = None  # spent; armed again when it is answered
            return
        self.unseat(group, member, NoticeKind.EXPIRED, Cause.SESSION_EXPIRED, out)
        self._wait_no_longer_than_needed(group.seats)
        self.prepare_or_complete(group, Cause.SESSION_EXPIRED, now, out)

    def _wait_no_longer_than_needed(self, seats: Seats) -> None:
        """A member that runs out of time during the initial delay ends it, if it was the last one not here."""
        if seats.state is State.PREPARING_REBALANCE and seats.rebalance is not None and seats.all_joined:
            seats.rebalance.is_initial = False

    def _pending_timer(self, group: Group, member_id: str, now: Instant, out: Outcome) -> None:
        deadline_ms = group.seats.pending_members.get(member_id)
        if deadline_ms is None:
            return
        if now.monotonic_ms < deadline_ms:
            out.timers.append(SetTimer(TimerKey(TimerKind.PENDING, group.group_id, member_id), deadline_ms))
            return
        self._take_back(group, member_id)
        self._wait_no_longer_than_needed(group.seats)
        self.complete_join_if_all_are_here(group, now, out)

    # Ids that are handed out, to become members.

    def hand_out(self, group: Group, member_id: str, deadline_ms: int, out: Outcome) -> None:
        """Keep an id for a client that is to join with it, until a deadline."""
        group.seats.hand_out(member_id, deadline_ms)
        self.seat_count += 1
        out.timers.append(SetTimer(TimerKey(TimerKind.PENDING, group.group_id, member_id), deadline_ms))

    def forget_id(self, group: Group, member_id: str, out: Outcome) -> None:
        """An id that was handed out is used, or never will be."""
        self._take_back(group, member_id)
        out.timers.append(CancelTimer(TimerKey(TimerKind.PENDING, group.group_id, member_id)))

    def _take_back(self, group: Group, member_id: str) -> None:
        group.seats.take_back(member_id)
        self.seat_count -= 1
        self.count_bytes(group)

    # Coming and going of whole groups.

    def activate(self, group: Group, now: Instant, out: Outcome) -> None:
        """A group was read from the log: its members have a full session each to find the new coordinator."""
        seats = group.seats
        self.seat_count += len(seats.members)
        self.count_bytes(group)
        for member in seats.members.values():
            self.extend_session(group, member, now, out)
        if len(seats.members) > self._config.group_max_size:
            self.prepare(group, Cause.TOO_MANY_MEMBERS, now, out)

    def unload(self, group: Group, out: Outcome) -> None:
        """The partition moves elsewhere: the clients that wait are told to look for the new coordinator."""
        seats = group.seats
        for member in seats.members.values():
            refuse_parked(seats, member, ErrorCode.NOT_COORDINATOR, member.member_id, out)
        self.end(group, out)

    def end(self, group: Group, out: Outcome) -> None:
        """The group is Dead here: no seats, no timers. If it lives on, for its offsets, its seats begin anew."""
        seats = group.seats
        self.seat_count -= len(seats.members) + len(seats.pending_members)
        self.held_bytes -= seats.counted_bytes
        seats.counted_bytes = 0
        seats.move(State.DEAD, seats.state_timestamp_ms)
        if seats.rebalance is not None:
            for kind in (TimerKind.JOIN, TimerKind.SYNC):
                out.timers.append(CancelTimer(TimerKey(kind, group.group_id)))
        for kind, member_ids in ((TimerKind.SESSION, seats.members), (TimerKind.PENDING, seats.pending_members)):
            out.timers.extend(CancelTimer(TimerKey(kind, group.group_id, member_id)) for member_id in member_ids)

    def count_bytes(self, group: Group) -> None:
        """Seats have changed: count what they hold now instead of what they held."""
        seats = group.seats
        if seats.state is not State.DEAD:
            self.held_bytes += seats.held_bytes - seats.counted_bytes
            seats.counted_bytes = seats.held_bytes

    def record(self, group_id: str, value: GroupValue) -> OffsetsRecord:
        version = group_value_version(self._config.inter_broker_protocol_version)
        return OffsetsRecord(encode_key(GroupKey(group_id)), encode_group_value(value, version))


def _as_int32(number: int) -> int:
    """As Java counts: behind the largest number comes the smallest."""
    return (number + 2**31) % 2**32 - 2**31
