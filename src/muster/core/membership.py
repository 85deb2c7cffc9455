"""Joining, syncing, heartbeats and leaving: how a group's seats change hands.

The order of the checks is Kafka's and matters: clients tell a restart from a mistake by which error they get. Decisions
that the log must take first (a new group, an assignment, a static member's new id) become a `Write`; what follows from
them is in `created`, `renamed` and `Rebalancing.assigned`, and in their counterparts where the log refused.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue
from muster.codec.primitives import MAX_STRING_BYTES
from muster.core.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from muster.core.events import (
    Heartbeat,
    Instant,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Leaver,
    LeaveResult,
    SyncAnswer,
    SyncGroup,
    TimerKey,
    TimerKind,
    group_error,
)
from muster.core.groups import Group, GroupTable
from muster.core.outcome import (
    Assigned,
    CancelTimer,
    Created,
    Notice,
    NoticeKind,
    Outcome,
    Renamed,
    Reply,
    Write,
)
from muster.core.rebalancing import Rebalancing, refuse_parked
from muster.core.seats import Member, Seats, protocols_bytes
from muster.core.states import HEARTBEAT_ERRORS, SYNC_ERRORS, Cause, State

_NONE, _DEAD = ErrorCode.NONE, State.DEAD  # members of an enum cost a lookup each time they are named


class Membership:
    """The seats of all groups of one partition of the offsets topic."""

    def __init__(self, table: GroupTable, rebalancing: Rebalancing, config: GroupConfig) -> None:
        self._groups = table.groups
        self._newer = table.newer.kinds
        self._rebalancing = rebalancing
        self._config = config

    # Joining.

    def join(self, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """Seat a member, or tell it what to do first."""
        refusal = self._refusal_before_lookup(request)
        if refusal is not None:
            out.replies.append(Reply(request.reply_to, JoinAnswer(refusal, request.member_id)))
            return
        asked_bytes = protocols_bytes(request.protocols)
        if asked_bytes > self._config.muster_max_member_bytes:
            out.notices.append(Notice(NoticeKind.TOO_LARGE, request.group_id, size=asked_bytes))
            self._refuse(request, group_error(ErrorCode.MESSAGE_TOO_LARGE), out)  # as its sync would be, in Kafka
            return
        group = self._groups.get(request.group_id)
        if group is not None:
            self._enter(group, request, now, out)
        elif request.member_id:
            self._refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, out)
        elif len(self._groups) >= self._config.muster_max_groups:
            self._refuse(request, ErrorCode.POLICY_VIOLATION, out)
        else:
            nothing = GroupValue("", 0, None, None, now.wall_ms)
            record = self._rebalancing.record(request.group_id, nothing)
            out.writes.append(Write([record], Created(request, now)))

    def created(self, decided: Created, out: Outcome) -> None:
        """The log has a record of the new group: the join goes on."""
        request, now = decided
        group = self._groups[request.group_id]
        group.take_seats()
        out.notices.append(Notice(NoticeKind.CREATED, request.group_id))
        self._enter(group, request, now, out)

    def not_created(self, decided: Created, error: ErrorCode, out: Outcome) -> None:
        """Nothing of the group is in the log. The join hears of it if it would have been parked.

        Otherwise it hears what it would have heard without the error, as in Kafka, which answers such joins before it
        writes. So it enters a group that no other request will see.
        """
        request, now = decided
        group, apart = Group(request.group_id), Outcome()
        self._enter(group, request, now, apart)
        for member in group.seats.members.values():
            waiter = group.seats.unpark_join(member)
            assert waiter is not None
            apart.replies.append(Reply(waiter.reply_to, JoinAnswer(group_error(error), member.member_id)))
        self._rebalancing.end(group, apart)
        out.replies.extend(apart.replies)
        out.notices.append(Notice(NoticeKind.NOT_WRITTEN, request.group_id, reason=error.name))

    def _enter(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        seats = group.seats
        if not self._has_room(seats, request.member_id) or not self._has_memory(seats, request):
            self._turn_away(group, request, now, out)
        elif seats.state is State.DEAD:
            self._refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, out)
        elif not seats.supports(request.protocol_type, request.protocols):
            self._refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
        elif not request.member_id:
            self._join_unknown(group, request, now, out)
        else:
            self._join_known(group, request, now, out)
        self._rebalancing.count_bytes(group)

    def _has_memory(self, seats: Seats, request: JoinGroup) -> bool:
        """Whether there is room for what a member brings, instead of what it brought before."""
        member_id = request.member_id or seats.static_members.get(request.instance_id or "", "")
        member = seats.members.get(member_id)
        grows_bytes = protocols_bytes(request.protocols)
        if member is not None:
            grows_bytes -= protocols_bytes(member.protocols)
        if grows_bytes <= 0:
            return True
        config = self._config
        return (
            seats.held_bytes + grows_bytes <= config.muster_max_group_bytes
            and self._rebalancing.held_bytes + grows_bytes <= config.muster_max_membership_bytes
        )

    def _refusal_before_lookup(self, request: JoinGroup) -> ErrorCode | None:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        config = self._config
        if not (
            config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.group_id in self._newer:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        names = [name for name, _ in request.protocols]
        if len(names) != len(set(names)):  # Kafka never answers this one; we do
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _refuse(self, request: JoinGroup, error: ErrorCode, out: Outcome, member_id: str | None = None) -> None:
        echoed = request.member_id if member_id is None else member_id
        out.replies.append(Reply(request.reply_to, JoinAnswer(error, echoed)))

    def _has_room(self, seats: Seats, member_id: str) -> bool:
        most = self._config.group_max_size
        member = seats.members.get(member_id)
        if seats.state is State.PREPARING_REBALANCE:
            return (member is not None and member.join_waiter is not None) or seats.awaiting_join < most
        if seats.state in (State.COMPLETING_REBALANCE, State.STABLE):
            return member is not None or len(seats.members) < most
        return True

    def _turn_away(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        seats = group.seats
        member = seats.members.get(request.member_id)
        if member is not None:
            self._rebalancing.unseat(group, member, NoticeKind.LEFT, Cause.TOO_MANY_MEMBERS, out)
            if seats.state is State.STABLE and not seats.members:  # it was the last one, and took too much memory
                self._rebalancing.prepare(group, Cause.TOO_MANY_MEMBERS, now, out)
        elif request.member_id in seats.pending_members:
            self._rebalancing.forget_id(group, request.member_id, out)
        self._refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, out, member_id="")

    def _join_unknown(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """A client without an id: new, or a static member that restarted."""
        seats = group.seats
        seated = None if request.instance_id is None else seats.static_members.get(request.instance_id)
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{request.fresh_uuid}"
        if len(member_id.encode("utf-8", "surrogateescape")) > MAX_STRING_BYTES:
            self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id="")  # no answer could hold the id
            return
        if seated is not None:
            assert seated in seats.members, (
                f"group {group.group_id}: instance {request.instance_id} is {seated}, who has no seat"
            )
            self._replace(group, seats.members[seated], member_id, request, now, out)
            return
        if self._rebalancing.seat_count >= self._config.muster_max_members:
            self._refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, out)
            return
        if request.instance_id is not None:
            self._seat(group, member_id, request, now, out)
            return
        if request.version < 4:
            self._seat(group, member_id, request, now, out)
            return
        # A new dynamic member gets only an id here, and its seat when it returns with it (KIP-394); else a client that
        # times out and retries leaves ghosts for the others to wait for.
        assert member_id not in seats.members, f"group {group.group_id}: the fresh id {member_id} has a seat already"
        deadline_ms = now.monotonic_ms + request.session_timeout_ms
        self._rebalancing.hand_out(group, member_id, deadline_ms, out)
        self._refuse(request, ErrorCode.MEMBER_ID_REQUIRED, out, member_id=member_id)

    def _join_known(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        seats = group.seats
        if request.member_id in seats.pending_members:
            if request.instance_id is not None:
                self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id="")
            else:
                self._rebalancing.forget_id(group, request.member_id, out)
                self._seat(group, request.member_id, request, now, out)
            return
        error = seats.member_error(request.member_id, request.instance_id)
        if error is not _NONE:
            self._refuse(request, error, out)
            return
        self._rejoin(group, seats.members[request.member_id], request, now, out)

    def _rejoin(self, group: Group, member: Member, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """An existing member is back: it may want to rebalance, or only have missed an answer."""
        seats = group.seats
        same = member.protocols == request.protocols
        is_leader = seats.leader == member.member_id
        match seats.state:
            case State.PREPARING_REBALANCE:
                self._update(seats, member, request)
                seats.park_join(member, request)
                self._rebalancing.complete_join_if_all_are_here(group, now, out)
            case State.COMPLETING_REBALANCE if same:
                out.replies.append(
                    Reply(request.reply_to, self._rebalancing.join_answer(seats, member, full=is_leader))
                )
            case State.STABLE if same and not is_leader:
                out.replies.append(Reply(request.reply_to, self._rebalancing.join_answer(seats, member, full=False)))
            case State.COMPLETING_REBALANCE | State.STABLE:
                self._update(seats, member, request)
                seats.park_join(member, request)
                self._rebalancing.prepare(group, Cause.MEMBER_REJOINED, now, out)
            case _:
                self._refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, out)

    def _update(self, seats: Seats, member: Member, request: JoinGroup) -> None:
        seats.offer(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _seat(self, group: Group, member_id: str, request: JoinGroup, now: Instant, out: Outcome) -> None:
        seats = group.seats
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
            join_waiter=request,
        )
        seats.add(member, request.protocol_type)
        self._rebalancing.seat_count += 1
        self._rebalancing.arm_session(group, member, now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS, out)
        if seats.rebalance is not None and seats.rebalance.is_initial:
            seats.new_member_added = True
        out.notices.append(Notice(NoticeKind.JOINED, group.group_id, member_id=member_id, reason=request.reason or ""))
        self._rebalancing.prepare_or_complete(group, Cause.MEMBER_JOINED, now, out)

    # A static member that restarted (KIP-345): its successor takes the seat, with a new id.

    def _replace(
        self, group: Group, member: Member, member_id: str, request: JoinGroup, now: Instant, out: Outcome
    ) -> None:
        seats = group.seats
        if seats.state is State.STABLE and seats.choice_with(member, request.protocols) == seats.protocol:
            # Same protocol as before, so no other member need hear of it: the new id is written down, then answered.
            value = seats.value_renamed(member, member_id, request)
            record = self._rebalancing.record(group.group_id, value)
            out.writes.append(Write([record], Renamed(group, member, member_id, request, now)))
            return
        self._tell_replaced(group, member_id, request, out)
        refuse_parked(seats, member, ErrorCode.FENCED_INSTANCE_ID, member.member_id, out)
        self._rename(group, member, member_id, now, out)
        self._update(seats, member, request)
        seats.park_join(member, request)
        self._rebalancing.prepare_or_complete(group, Cause.STATIC_MEMBER_REPLACED, now, out)

    def renamed(self, decided: Renamed, out: Outcome) -> None:
        """The log has the new id of a member of a Stable group: the member has it too, and is answered."""
        group, member, member_id, request, now = decided
        seats = group.seats
        leader = seats.leader or ""
        self._tell_replaced(group, member_id, request, out)
        self._rename(group, member, member_id, now, out)
        self._update(seats, member, request)
        self._rebalancing.count_bytes(group)
        knows = request.version >= 9  # older clients would take themselves for a leader with work to do
        leads = seats.leader == member_id
        answer = self._rebalancing.join_answer(seats, member, full=knows and leads)
        answer = answer._replace(skip_assignment=knows and leads)
        if not knows:
            answer = answer._replace(leader=leader)
        out.replies.append(Reply(request.reply_to, answer))

    def not_renamed(self, decided: Renamed, error: ErrorCode, out: Outcome) -> None:
        group, _, _, request, _ = decided
        seats = group.seats
        answer = JoinAnswer(
            group_error(error), "", seats.generation, seats.protocol_type, seats.protocol, seats.leader or ""
        )
        out.replies.append(Reply(request.reply_to, answer))
        out.notices.append(Notice(NoticeKind.NOT_WRITTEN, group.group_id, reason=error.name))

    def _tell_replaced(self, group: Group, member_id: str, request: JoinGroup, out: Outcome) -> None:
        notice = Notice(NoticeKind.REPLACED, group.group_id, member_id=member_id, reason=request.reason or "")
        out.notices.append(notice)

    def _rename(self, group: Group, member: Member, member_id: str, now: Instant, out: Outcome) -> None:
        out.timers.append(CancelTimer(TimerKey(TimerKind.SESSION, group.group_id, member.member_id)))
        member.armed_ms = None
        member.is_new = False  # a session that runs out while it waits does it no harm
        group.seats.rename(member, member_id)
        # Still the old session timeout: a new one counts from the next heartbeat.
        self._rebalancing.arm_session(group, member, now.monotonic_ms + member.session_timeout_ms, out)

    # Syncing.

    def sync(self, request: SyncGroup, now: Instant, out: Outcome) -> None:
        """Hand the leader's assignment round, once it is written down."""
        group = self._groups.get(request.group_id)
        error = self._sync_error(group, request)
        if error is not _NONE or group is None:
            out.replies.append(Reply(request.reply_to, SyncAnswer(error)))
            return
        seats = group.seats
        member = seats.members[request.member_id]
        assignments, request.assignments = request.assignments, {}  # only a leader's count, and no parked request's
        if seats.state is State.STABLE:
            self._rebalancing.synced(group, member, out)
            out.replies.append(Reply(request.reply_to, self._rebalancing.sync_answer(seats, member)))
            return
        seats.park_sync(member, request)
        member.deadline_ms = None
        self._rebalancing.synced(group, member, out)
        if member.member_id == seats.leader:
            record = self._rebalancing.record(group.group_id, seats.value(assignments))
            out.writes.append(Write([record], Assigned(group, seats.generation, assignments, now)))

    def _sync_error(self, group: Group | None, request: SyncGroup) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        seats = group.seats
        in_this_state = SYNC_ERRORS[seats.state]
        if seats.state is State.EMPTY or seats.state is State.DEAD:
            return in_this_state
        error = seats.seat_error(request.member_id, request.instance_id, request.generation)
        if error is not _NONE:
            return error
        for asked, have in ((request.protocol_type, seats.protocol_type), (request.protocol_name, seats.protocol)):
            if asked is not None and have is not None and asked != have:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return in_this_state

    # Heartbeats.

    def heartbeat(self, request: Heartbeat, now: Instant, out: Outcome) -> None:
        out.replies.append((request.reply_to, self._heartbeat_error(request, now, out)))

    def _heartbeat_error(self, request: Heartbeat, now: Instant, out: Outcome) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        seats = group.seats
        in_this_state = HEARTBEAT_ERRORS[seats.state]
        if seats.state is _DEAD:
            return in_this_state
        error = seats.seat_error(request.member_id, request.instance_id, request.generation)
        if error is not _NONE:
            return error
        self._rebalancing.extend_session(group, seats.members[request.member_id], now, out)
        return in_this_state

    # Leaving.

    def leave(self, request: LeaveGroup, now: Instant, out: Outcome) -> None:
        """Several at once, each with its own result; the group rebalances once."""
        if not request.group_id:
            out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.INVALID_GROUP_ID)))
            return
        group = self._groups.get(request.group_id)
        if group is not None and group.seats.state is State.DEAD:
            out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        results = tuple(
            LeaveResult(
                leaver.member_id,
                leaver.instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, leaver, out),
            )
            for leaver in request.members
        )
        out.replies.append(Reply(request.reply_to, LeaveAnswer(_NONE, results)))
        has_left = any(result.error is _NONE for result in results)
        if group is not None and has_left and group.seats.state is not State.EMPTY:
            self._rebalancing.prepare_or_complete(group, Cause.MEMBER_LEFT, now, out)

    def _leave_one(self, group: Group, leaver: Leaver, out: Outcome) -> ErrorCode:
        seats = group.seats
        member_id = leaver.member_id
        if not member_id:
            member_id = seats.static_members.get(leaver.instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in seats.pending_members:
            self._rebalancing.forget_id(group, member_id, out)
            return _NONE
        else:
            error = seats.member_error(member_id, leaver.instance_id)
            if error is not _NONE:
                return error
        member = seats.members[member_id]
        self._rebalancing.unseat(group, member, NoticeKind.LEFT, Cause.MEMBER_LEFT, out, leaver.reason)
        return _NONE
