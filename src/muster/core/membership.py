"""Joining, syncing, heartbeats and leaving: how a group's seats change hands.

The order of the checks is Kafka's and matters: clients tell a restart from a mistake by which error they get. Decisions
that the log must take first (an assignment, an emptied group, a static member's new id) become a `Write`; whatever
follows from them happens in its `then`, after a look at whether the group has moved on meanwhile.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, encode_group_value, encode_key, group_value_version
from muster.core.answers import JoinAnswer, JoinedMember, LeaveAnswer, LeaveResult, SyncAnswer
from muster.core.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from muster.core.events import Heartbeat, Instant, JoinGroup, LeaveGroup, Leaver, SyncGroup
from muster.core.group import LEGAL_MOVES, Group, IllegalMove, Member, Rebalance, State
from muster.core.outcome import CancelTimer, OffsetsRecord, Outcome, Reply, SetTimer, Write
from muster.core.refusals import group_error, member_error

JOIN_TIMER, SYNC_TIMER, SESSION_TIMER, PENDING_TIMER = "join", "sync", "session", "pending"


class Membership:
    """The seats of all groups of one partition of the offsets topic."""

    def __init__(self, groups: dict[str, Group], newer: dict[str, str], config: GroupConfig) -> None:
        self._groups = groups
        self._newer = newer
        self._config = config

    # Joining.

    def join(self, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """Seat a member, or tell it what to do first."""
        refusal = self._refusal_before_lookup(request)
        if refusal is not None:
            out.replies.append(Reply(request.reply_to, JoinAnswer(refusal, request.member_id)))
            return
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                self._refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, out)
                return
            group = self._create(request, now, out)
        if not self._has_room(group, request.member_id):
            self._turn_away(group, request, now, out)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, out)
        elif not request.member_id:
            self._join_unknown(group, request, now, out)
        else:
            self._join_known(group, request, now, out)

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
        self._groups[request.group_id] = group

        def undone(error: ErrorCode, later: Outcome) -> None:
            # Nothing of the group is in the log: whoever waits in it hears of the error, and it is gone.
            for member in list(group.members.values()):
                waiter = group.unpark_join(member)
                if waiter is not None:
                    later.replies.append(Reply(waiter.reply_to, JoinAnswer(group_error(error), member.member_id)))
            self.end(group, later)

        out.writes.append(Write([self._record(group, group.value())], otherwise=undone))
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
            self._unseat(group, member, out)
        self._refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, out, member_id="")

    def _join_unknown(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        """Somebody without an id: new, or a static member that restarted."""
        if request.instance_id is not None:
            member_id = f"{request.instance_id}-{request.fresh_uuid}"
            seated = group.static_members.get(request.instance_id)
            if seated is not None:
                self._replace(group, group.members[seated], member_id, request, now, out)
            else:
                self._seat(group, member_id, request, now, out)
            return
        member_id = f"{request.client_id}-{request.fresh_uuid}"
        if request.version < 4:
            self._seat(group, member_id, request, now, out)
            return
        # A new dynamic member gets only an id here, and its seat when it returns with it (KIP-394); else a client that
        # times out and retries leaves ghosts for the others to wait for.
        deadline_ms = now.monotonic_ms + request.session_timeout_ms
        group.pending_members[member_id] = deadline_ms
        out.timers.append(SetTimer((PENDING_TIMER, group.group_id, member_id), deadline_ms))
        self._refuse(request, ErrorCode.MEMBER_ID_REQUIRED, out, member_id=member_id)

    def _join_known(self, group: Group, request: JoinGroup, now: Instant, out: Outcome) -> None:
        if request.member_id in group.pending_members:
            if request.instance_id is not None:
                self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, out, member_id="")
            else:
                del group.pending_members[request.member_id]
                out.timers.append(CancelTimer((PENDING_TIMER, group.group_id, request.member_id)))
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
                self.prepare(group, group.state, now, out)
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
        self._arm_session(group, member, now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS, out)
        if group.rebalance is not None and group.rebalance.is_joining and group.rebalance.is_initial:
            group.rebalance.new_member_added = True
        self._prepare_or_complete(group, came_from, now, out)

    def _replace(
        self, group: Group, member: Member, member_id: str, request: JoinGroup, now: Instant, out: Outcome
    ) -> None:
        """A static member restarted (KIP-345): its successor takes the seat, with a new id."""
        state = group.state
        if state is State.STABLE and self._choice_with(group, member, request.protocols) == group.protocol:
            self._replace_in_stable(group, member, member_id, request, now, out)
            return
        self._fence(group, member, out)
        self._rename(group, member, member_id, now, out)
        self._update(group, member, request)
        group.park_join(member, request)
        self._prepare_or_complete(group, state, now, out)

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
            self._rename(group, member, old_id, now, later)
            group.offer(member, old_protocols)
            member.session_timeout_ms, member.rebalance_timeout_ms = old_timeouts
            answer = JoinAnswer(
                group_error(error), "", generation, group.protocol_type, group.protocol, captured_leader
            )
            later.replies.append(Reply(request.reply_to, answer))

        out.writes.append(Write([self._record(group, group.value())], answered, undone))

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

    # The phases of a rebalance.

    def _move(self, group: Group, came_from: State, to: State, now: Instant, rebalance: Rebalance | None) -> None:
        if to not in LEGAL_MOVES[came_from]:
            raise IllegalMove(f"group {group.group_id}: {came_from.value} to {to.value}")
        group.rebalance = rebalance
        group.state_timestamp_ms = now.wall_ms

    def _prepare_or_complete(self, group: Group, came_from: State, now: Instant, out: Outcome) -> None:
        if came_from is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_here(group, now, out)
        else:
            self.prepare(group, came_from, now, out)

    def prepare(self, group: Group, came_from: State, now: Instant, out: Outcome) -> None:
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
                self.touch(group, member, now, out)

    def _complete_join_if_all_are_here(self, group: Group, now: Instant, out: Outcome) -> None:
        rebalance = group.rebalance
        if rebalance is not None and rebalance.is_joining and not rebalance.is_initial and group.everybody_joined:
            self._complete_join(group, now, out)

    def _complete_join(self, group: Group, now: Instant, out: Outcome) -> None:
        """The phase ends: a new generation of those who came."""
        for member in [each for each in group.members.values() if each.join_waiter is None and not each.is_static]:
            self._unseat(group, member, out)
        if group.members and not self._some_leader_joined(group):
            # Only silent static members are left: keep their seats, and wait once more.
            assert group.rebalance is not None
            group.rebalance = Rebalance(True, now.monotonic_ms + group.rebalance_timeout_ms)
            out.timers.append(SetTimer((JOIN_TIMER, group.group_id), group.rebalance.deadline_ms))
            return
        out.timers.append(CancelTimer((JOIN_TIMER, group.group_id)))
        group.generation += 1
        if group.members:
            self._begin_generation(group, now, out)
        else:
            self._become_empty(group, now, out)

    def _some_leader_joined(self, group: Group) -> bool:
        """Make sure that whoever leads is here to do it."""
        if group.leader is not None and group.members[group.leader].join_waiter is not None:
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
        out.writes.append(Write([self._record(group, group.value())]))

    def _begin_generation(self, group: Group, now: Instant, out: Outcome) -> None:
        group.protocol = group.choose_protocol()
        group.subscribed_topics = group.compute_subscribed_topics()
        self._move(group, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, now, Rebalance(is_joining=False))
        group.pending_sync = set(group.members)
        for member in group.members.values():
            waiter = group.unpark_join(member)
            member.is_new = False
            if waiter is not None:
                full = member.member_id == group.leader
                out.replies.append(Reply(waiter.reply_to, self._joined(group, member, full=full)))
                self.touch(group, member, now, out)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        out.timers.append(SetTimer((SYNC_TIMER, group.group_id), group.sync_deadline_ms))

    def _disarm_sync(self, group: Group, out: Outcome) -> None:
        if group.sync_deadline_ms is not None:
            group.sync_deadline_ms = None
            out.timers.append(CancelTimer((SYNC_TIMER, group.group_id)))
        group.pending_sync.clear()

    # Syncing.

    def sync(self, request: SyncGroup, now: Instant, out: Outcome) -> None:
        """Hand the leader's assignment round, once it is written down."""
        group = self._groups.get(request.group_id)
        error = self._sync_error(group, request)
        if error is not ErrorCode.NONE or group is None:
            out.replies.append(Reply(request.reply_to, SyncAnswer(error)))
            return
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        if group.state is State.STABLE:
            self._disarm_sync_if_all_came(group, out)
            out.replies.append(Reply(request.reply_to, self._assigned(group, member)))
            return
        member.sync_waiter = request
        member.deadline_ms = None
        self._disarm_sync_if_all_came(group, out)
        if member.member_id == group.leader:
            self._write_assignment(group, request.assignments, now, out)

    def _sync_error(self, group: Group | None, request: SyncGroup) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None or group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
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
            self._move(group, State.COMPLETING_REBALANCE, State.STABLE, now, None)
            group.state_timestamp_ms = state_timestamp_ms
            for member in group.members.values():
                if member.sync_waiter is not None:
                    later.replies.append(Reply(member.sync_waiter.reply_to, self._assigned(group, member)))
                    member.sync_waiter = None
                    self.touch(group, member, now, later)

        def undone(error: ErrorCode, later: Outcome) -> None:
            if not still_waiting():
                return
            self._answer_syncs(group, SyncAnswer(group_error(error)), now, later)
            self.prepare(group, State.COMPLETING_REBALANCE, now, later)

        out.writes.append(Write([self._record(group, group.value(assignments))], assigned, undone))

    # Heartbeats and sessions.

    def heartbeat(self, request: Heartbeat, now: Instant, out: Outcome) -> None:
        out.replies.append(Reply(request.reply_to, self._heartbeat_error(request, now, out)))

    def _heartbeat_error(self, request: Heartbeat, now: Instant, out: Outcome) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = member_error(group, request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.touch(group, group.members[request.member_id], now, out)
        rebalance = group.rebalance
        joining = rebalance is not None and rebalance.is_joining
        return ErrorCode.REBALANCE_IN_PROGRESS if joining else ErrorCode.NONE

    def touch(self, group: Group, member: Member, now: Instant, out: Outcome) -> None:
        """A sign of life: the session begins again. Only the deadline moves; the timer looks at it when it fires."""
        self._arm_session(group, member, now.monotonic_ms + member.session_timeout_ms, out)

    def _arm_session(self, group: Group, member: Member, deadline_ms: int, out: Outcome) -> None:
        member.deadline_ms = deadline_ms
        if member.armed_ms is None or member.armed_ms > deadline_ms:
            member.armed_ms = deadline_ms
            out.timers.append(SetTimer((SESSION_TIMER, group.group_id, member.member_id), deadline_ms))

    def _unseat(self, group: Group, member: Member, out: Outcome) -> None:
        """Take a member's seat; whatever it waits for is answered with "unknown"."""
        waiter = group.unpark_join(member)
        if waiter is not None:
            out.replies.append(Reply(waiter.reply_to, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")))
        if member.sync_waiter is not None:
            out.replies.append(Reply(member.sync_waiter.reply_to, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)))
            member.sync_waiter = None
        out.timers.append(CancelTimer((SESSION_TIMER, group.group_id, member.member_id)))
        member.armed_ms = None
        group.remove(member)

    # Leaving.

    def leave(self, request: LeaveGroup, now: Instant, out: Outcome) -> None:
        """Several at once, each with its own result; the group rebalances once."""
        if not request.group_id:
            out.replies.append(Reply(request.reply_to, LeaveAnswer(ErrorCode.INVALID_GROUP_ID)))
            return
        group = self._groups.get(request.group_id)
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
            self._prepare_or_complete(group, came_from, now, out)

    def _leave_one(self, group: Group, leaver: Leaver, out: Outcome) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:
            member_id = group.static_members.get(leaver.instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            del group.pending_members[member_id]
            out.timers.append(CancelTimer((PENDING_TIMER, group.group_id, member_id)))
            return ErrorCode.NONE
        else:
            error = member_error(group, member_id, leaver.instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._unseat(group, group.members[member_id], out)
        return ErrorCode.NONE

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
        if rebalance.is_initial and rebalance.new_member_added and rebalance.remaining_ms != 0:
            rebalance.new_member_added = False
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, rebalance.remaining_ms)
            rebalance.remaining_ms = max(rebalance.remaining_ms - rebalance.delay_ms, 0)
            rebalance.delay_ms = delay_ms
            rebalance.deadline_ms = now.monotonic_ms + delay_ms
            out.timers.append(SetTimer((JOIN_TIMER, group.group_id), rebalance.deadline_ms))
            return
        rebalance.is_initial = False
        self._complete_join(group, now, out)

    def _sync_timer(self, group: Group, now: Instant, out: Outcome) -> None:
        """Those who never synced lose their seats, static ones too; heartbeats do not save them."""
        if group.sync_deadline_ms is None:
            return
        if now.monotonic_ms < group.sync_deadline_ms:
            out.timers.append(SetTimer((SYNC_TIMER, group.group_id), group.sync_deadline_ms))
            return
        came_from = group.state
        group.sync_deadline_ms = None
        for member_id in sorted(group.pending_sync):
            self._unseat(group, group.members[member_id], out)
        self.prepare(group, came_from, now, out)

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
        came_from, rebalance = group.state, group.rebalance
        self._unseat(group, member, out)
        if rebalance is not None and rebalance.is_joining and group.everybody_joined:
            rebalance.is_initial = False  # nobody is left to wait for
        self._prepare_or_complete(group, came_from, now, out)

    def _pending_timer(self, group: Group, member_id: str, now: Instant, out: Outcome) -> None:
        deadline_ms = group.pending_members.get(member_id)
        if deadline_ms is None:
            return
        if now.monotonic_ms < deadline_ms:
            out.timers.append(SetTimer((PENDING_TIMER, group.group_id, member_id), deadline_ms))
            return
        del group.pending_members[member_id]
        self._complete_join_if_all_are_here(group, now, out)

    # Coming and going of whole groups.

    def loaded(self, group: Group, now: Instant, out: Outcome) -> None:
        """A group was read from the log: everybody has a full session to find the new coordinator."""
        for member in group.members.values():
            self.touch(group, member, now, out)
        if len(group.members) > self._config.group_max_size:
            self.prepare(group, State.STABLE, now, out)

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
        group.is_dead = True
        for kind in (JOIN_TIMER, SYNC_TIMER):
            out.timers.append(CancelTimer((kind, group.group_id)))
        out.timers.extend(CancelTimer((SESSION_TIMER, group.group_id, member_id)) for member_id in group.members)
        out.timers.extend(
            CancelTimer((PENDING_TIMER, group.group_id, member_id)) for member_id in group.pending_members
        )
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def _record(self, group: Group, value: GroupValue) -> OffsetsRecord:
        version = group_value_version(self._config.inter_broker_protocol_version)
        return OffsetsRecord(encode_key(GroupKey(group.group_id)), encode_group_value(value, version))
