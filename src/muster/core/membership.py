"""Joining, syncing, heartbeats and leaving: how a group's seats change hands.

The order of the checks is Kafka's and matters: clients tell a restart from a mistake by which error they get. Decisions
that the log must take first (an assignment, an emptied group, a static member's new id) become a `Write`; whatever
follows from them happens in its `then`, after a look at whether the group has moved on meanwhile.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import MAX_STRING_BYTES
from muster.core.answers import JoinAnswer, LeaveAnswer, LeaveResult, SyncAnswer, group_error
from muster.core.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from muster.core.events import Heartbeat, Instant, JoinGroup, LeaveGroup, Leaver, SyncGroup
from muster.core.group import Group, Member, State, member_error, protocols_bytes
from muster.core.outcome import CancelTimer, Cause, Notice, NoticeKind, Outcome, Reply, SetTimer, Write
from muster.core.rebalancing import PENDING_TIMER, SESSION_TIMER, Rebalancing


class Membership(Rebalancing):
    """The seats of all groups of one partition of the offsets topic."""

    def __init__(self, groups: dict[str, Group], newer: dict[str, str], config: GroupConfig) -> None:
        super().__init__(groups, config)
        self._newer = newer

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
        if group is None:
            if request.member_id:
                self._refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, out)
                return
            if len(self._groups) >= self._config.muster_max_groups:
                self._refuse(request, ErrorCode.POLICY_VIOLATION, out)
                return
            group = self._create(request, now, out)
        if not self._has_room(group, request.member_id) or not self._has_memory(group, request, asked_bytes):
            self._turn_away(group, request, now, out)
        elif group.is_dead:
            self._refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, out)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
        elif not request.member_id:
            self._join_unknown(group, request, now, out)
        else:
            self._join_known(group, request, now, out)
        self._count_bytes(group)

    def _has_memory(self, group: Group, request: JoinGroup, asked_bytes: int) -> bool:
        """Whether there is room for what a member brings, instead of what it brought before."""
        member_id = request.member_id or group.static_members.get(request.instance_id or "", "")
        member = group.members.get(member_id)
        grows_bytes = asked_bytes if member is None else asked_bytes - protocols_bytes(member.protocols)
        if grows_bytes <= 0:
            return True
        config = self._config
        return (
            group.held_bytes + grows_bytes <= config.muster_max_group_bytes
            and self.held_bytes + grows_bytes <= config.muster_max_membership_bytes
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

    def _create(self, request: JoinGroup, now: Instant, out: Outcome) -> Group:
        """A group begins with a record of an empty one, as Kafka's does since 4.0."""
        group = Group(request.group_id, state_timestamp_ms=now.wall_ms)
        record = self._record(group, group.value())
        self._groups[request.group_id] = group
        out.notices.append(Notice(NoticeKind.CREATED, request.group_id))

        def undone(error: ErrorCode, later: Outcome) -> None:
            # Nothing of the group is in the log: whoever waits in it hears of the error, and it is gone.
            _take_back_notices(group, error, later)
            for member in list(group.members.values()):
                waiter = group.unpark_join(member)
                if waiter is not None:
                    later.replies.append(Reply(waiter.reply_to, JoinAnswer(group_error(error), member.member_id)))
            self.end(group, later)

        out.writes.append(Write([record], otherwise=undone))
        return group

    def _has_room(self, group: Group, member_id: str) -> bool:
        most = self._config.group_max_size
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            return (member is not None and member.join_waiter is not None) or group.awaiting_join < most
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            return member is not None or len(group.members) < most
        return True

    def _turn_away(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        member = group.members.get(request.member_id)
        if member is not None:
            self._unseat(group, member, NoticeKind.LEFT, Cause.TOO_MANY_MEMBERS, out)
        elif request.member_id in group.pending_members:
            self._forget_id(group, request.member_id, out)
        self._refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, out, member_id="")

    def _join_unknown(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """Somebody without an id: new, or a static member that restarted."""
        seated = None if request.instance_id is None else group.static_members.get(request.instance_id)
        member_id = f"{request.client_id if request.instance_id is None else request.instance_id}-{request.fresh_uuid}"
        if len(member_id.encode("utf-8", "surrogateescape")) > MAX_STRING_BYTES:
            self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id="")  # no answer could hold the id
            return
        if seated is not None:
            assert seated in group.members, (
                f"group {group.group_id}: instance {request.instance_id} is {seated}, who has no seat"
            )
            self._replace(group, group.members[seated], member_id, request, now, out)
            return
        if self.seats >= self._config.muster_max_members:
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
        assert member_id not in group.members, f"group {group.group_id}: the fresh id {member_id} has a seat already"
        deadline_ms = now.monotonic_ms + request.session_timeout_ms
        group.hand_out(member_id, deadline_ms)
        self.seats += 1
        out.timers.append(SetTimer((PENDING_TIMER, group.group_id, member_id), deadline_ms))
        self._refuse(request, ErrorCode.MEMBER_ID_REQUIRED, out, member_id=member_id)

    def _forget_id(self, group: Group, member_id: str, out: Outcome) -> None:
        """An id that was handed out is used, or never will be."""
        group.take_back(member_id)
        self.seats -= 1
        self._count_bytes(group)
        out.timers.append(CancelTimer((PENDING_TIMER, group.group_id, member_id)))

    def _join_known(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        if request.member_id in group.pending_members:
            if request.instance_id is not None:
                self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id="")
            else:
                self._forget_id(group, request.member_id, out)
                self._seat(group, request.member_id, request, now, out)
            return
        error = member_error(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(request, error, out)
            return
        self._rejoin(group, group.members[request.member_id], request, now, out)

    def _rejoin(self, group: Group, member: Member, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """An existing member is back: it may want to rebalance, or only have missed an answer."""
        same = member.protocols == request.protocols
        is_leader = group.leader == member.member_id
        match group.state:
            case State.PREPARING_REBALANCE:
                self._update(group, member, request)
                group.park_join(member, request)
                self._complete_join_if_all_are_here(group, now, out)
            case State.COMPLETING_REBALANCE if same:
                out.replies.append(Reply(request.reply_to, self._joined(group, member, full=is_leader)))
            case State.STABLE if same and not is_leader:
                out.replies.append(Reply(request.reply_to, self._joined(group, member, full=False)))
            case State.COMPLETING_REBALANCE | State.STABLE:
                self._update(group, member, request)
                group.park_join(member, request)
                self.prepare(group, group.state, Cause.MEMBER_REJOINED, now, out)
            case _:
                self._refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, out)

    def _update(self, group: Group, member: Member, request: JoinGroup) -> None:
        group.offer(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _seat(self, group: Group, member_id: str, request: JoinGroup, now: Instant, out: Outcome) -> None:
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
        came_from = group.state
        group.add(member, request.protocol_type)
        self.seats += 1
        self._arm_session(group, member, now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS, out)
        if group.rebalance is not None and group.rebalance.is_joining and group.rebalance.is_initial:
            group.new_member_added = True
        out.notices.append(Notice(NoticeKind.JOINED, group.group_id, member_id=member_id, reason=request.reason or ""))
        self._prepare_or_complete(group, came_from, Cause.MEMBER_JOINED, now, out)

    def _replace(
        self, group: Group, member: Member, member_id: str, request: JoinGroup, now: Instant, out: Outcome
    ) -> None:
        """A static member restarted (KIP-345): its successor takes the seat, with a new id."""
        state = group.state
        out.notices.append(
            Notice(NoticeKind.REPLACED, group.group_id, member_id=member_id, reason=request.reason or "")
        )
        if state is State.STABLE and self._choice_with(group, member, request.protocols) == group.protocol:
            self._replace_in_stable(group, member, member_id, request, now, out)
            return
        self._fence(group, member, out)
        self._rename(group, member, member_id, now, out)
        self._update(group, member, request)
        group.park_join(member, request)
        self._prepare_or_complete(group, state, Cause.STATIC_MEMBER_REPLACED, now, out)

    def _choice_with(self, group: Group, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> str | None:
        before = member.protocols
        group.offer(member, protocols)
        try:
            return group.choose_protocol() if group.candidates() else None
        finally:
            group.offer(member, before)

    def _fence(self, group: Group, member: Member, out: Outcome) -> None:
        """Tell the member's older self, if it waits for anything, that somebody else has its name now."""
        waiter = group.unpark_join(member)
        if waiter is not None:
            answer = JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, member.member_id)
            out.replies.append(Reply(waiter.reply_to, answer))
        if member.sync_waiter is not None:
            out.replies.append(Reply(member.sync_waiter.reply_to, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID)))
            member.sync_waiter = None

    def _rename(self, group: Group, member: Member, member_id: str, now: Instant, out: Outcome) -> None:
        out.timers.append(CancelTimer((SESSION_TIMER, group.group_id, member.member_id)))
        member.armed_ms = None
        member.is_new = False  # a session that runs out while it waits does it no harm
        group.rename(member, member_id)
        # Still the old session timeout: a new one counts from the next heartbeat.
        self._arm_session(group, member, now.monotonic_ms + member.session_timeout_ms, out)

    def _replace_in_stable(
        self, group: Group, member: Member, member_id: str, request: JoinGroup, now: Instant, out: Outcome
    ) -> None:
        """Same protocol as before, so nobody else need hear of it: the new id is written down, then answered."""
        captured_leader = group.leader or ""
        generation = group.generation
        old_id, old_protocols = member.member_id, member.protocols
        old_timeouts = member.session_timeout_ms, member.rebalance_timeout_ms
        self._fence(group, member, out)
        self._rename(group, member, member_id, now, out)
        self._update(group, member, request)

        def answered(later: Outcome) -> None:
            leads = group.leader == member_id
            knows = request.version >= 9  # older clients would take themselves for a leader with work to do
            answer = self._joined(group, member, full=knows and leads)
            answer = answer._replace(skip_assignment=knows and leads, generation=generation)
            if not knows:
                answer = answer._replace(leader=captured_leader)
            later.replies.append(Reply(request.reply_to, answer))

        def undone(error: ErrorCode, later: Outcome) -> None:
            _take_back_notices(group, error, later)
            self._rename(group, member, old_id, now, later)
            group.offer(member, old_protocols)
            self._count_bytes(group)
            member.session_timeout_ms, member.rebalance_timeout_ms = old_timeouts
            answer = JoinAnswer(
                group_error(error), "", generation, group.protocol_type, group.protocol, captured_leader
            )
            later.replies.append(Reply(request.reply_to, answer))

        out.writes.append(Write([self._record(group, group.value())], answered, undone))

    # Syncing.

    def sync(self, request: SyncGroup, now: Instant, out: Outcome) -> None:
        """Hand the leader's assignment round, once it is written down."""
        group = self._groups.get(request.group_id)
        error = self._sync_error(group, request)
        if error is not ErrorCode.NONE or group is None:
            out.replies.append(Reply(request.reply_to, SyncAnswer(error)))
            return
        member = group.members[request.member_id]
        assignments, request.assignments = request.assignments, {}  # only a leader's count, and no parked request's
        group.pending_sync.discard(member.member_id)
        if group.state is State.STABLE:
            self._disarm_sync_if_all_came(group, out)
            out.replies.append(Reply(request.reply_to, self._assigned(group, member)))
            return
        group.park_sync(member, request)
        member.deadline_ms = None
        self._disarm_sync_if_all_came(group, out)
        if member.member_id == group.leader:
            self._write_assignment(group, assignments, now, out)

    def _sync_error(self, group: Group | None, request: SyncGroup) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None or group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = member_error(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        for asked, have in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
            if asked is not None and have is not None and asked != have:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _disarm_sync_if_all_came(self, group: Group, out: Outcome) -> None:
        if not group.pending_sync:
            self._disarm_sync(group, out)

    def _assigned(self, group: Group, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol)

    def _write_assignment(self, group: Group, assignments: dict[str, bytes], now: Instant, out: Outcome) -> None:
        generation = group.generation
        state_timestamp_ms = group.state_timestamp_ms

        def still_waiting() -> bool:
            return group.state is State.COMPLETING_REBALANCE and group.generation == generation

        def assigned(later: Outcome) -> None:
            if not still_waiting():
                return  # a newer rebalance has answered everybody already
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            self._tell_stable(group, now, later)
            self._move(group, State.COMPLETING_REBALANCE, State.STABLE, now, None)
            group.state_timestamp_ms = state_timestamp_ms
            for member in group.members.values():
                if member.sync_waiter is not None:
                    later.replies.append(Reply(member.sync_waiter.reply_to, self._assigned(group, member)))
                    member.sync_waiter = None
                    self.extend_session(group, member, now, later)

        def undone(error: ErrorCode, later: Outcome) -> None:
            if not still_waiting():
                return
            self._answer_syncs(group, SyncAnswer(group_error(error)), now, later)
            self.prepare(group, State.COMPLETING_REBALANCE, Cause.APPEND_REFUSED, now, later)

        out.writes.append(Write([self._record(group, group.value(assignments))], assigned, undone))

    def _tell_stable(self, group: Group, now: Instant, out: Outcome) -> None:
        rebalance = group.rebalance
        assert rebalance is not None
        took_ms = now.monotonic_ms - rebalance.since_ms
        out.notices.append(
            Notice(
                NoticeKind.STABLE,
                group.group_id,
                rebalance.cause,
                generation=group.generation,
                size=len(group.members),
                duration_ms=took_ms,
            )
        )

    # Heartbeats and sessions.

    def heartbeat(self, request: Heartbeat, now: Instant, out: Outcome) -> None:
        out.replies.append((request.reply_to, self._heartbeat_error(request, now, out)))

    def _heartbeat_error(self, request: Heartbeat, now: Instant, out: Outcome) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = member_error(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.extend_session(group, group.members[request.member_id], now, out)
        rebalance = group.rebalance
        joining = rebalance is not None and rebalance.is_joining
        return ErrorCode.REBALANCE_IN_PROGRESS if joining else ErrorCode.NONE

    # Leaving.

    def leave(self, request: LeaveGroup, now: Instant, out: Outcome) -> None:
        """Several at once, each with its own result; the group rebalances once."""
        if not request.group_id:
            out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.INVALID_GROUP_ID)))
            return
        group = self._groups.get(request.group_id)
        if group is not None and group.is_dead:
            out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        came_from = State.DEAD if group is None else group.state
        results = tuple(
            LeaveResult(
                leaver.member_id,
                leaver.instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, leaver, out),
            )
            for leaver in request.members
        )
        out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.NONE, results)))
        if group is not None and came_from is not State.EMPTY and any(not result.error for result in results):
            self._prepare_or_complete(group, came_from, Cause.MEMBER_LEFT, now, out)

    def _leave_one(self, group: Group, leaver: Leaver, out: Outcome) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:
            member_id = group.static_members.get(leaver.instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            self._forget_id(group, member_id, out)
            return ErrorCode.NONE
        else:
            error = member_error(group, member_id, leaver.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._unseat(group, group.members[member_id], NoticeKind.LEFT, Cause.MEMBER_LEFT, out, leaver.reason)
        return ErrorCode.NONE


def _take_back_notices(group: Group, error: ErrorCode, out: Outcome) -> None:
    """The log refused what an event decided about a group: the operator hears of that instead of the decision."""
    out.notices[:] = [notice for notice in out.notices if notice.group_id != group.group_id]
    out.notices.append(Notice(NoticeKind.NOT_WRITTEN, group.group_id, reason=error.name))
