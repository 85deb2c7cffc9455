"""Mistakes in who sits where, and for how long: `seats`, `states`, `rebalancing`, `membership`, `events`."""

from tests.mutants.mutant import Mutant

SEATS = (
    # The group: seats, votes, subscriptions.
    Mutant(
        "seats.py",
        "return not self.pending_members and self.awaiting_join == len(self.members)",
        "return self.awaiting_join == len(self.members)",
        "a rebalance does not wait for ids that were handed out",
    ),
    Mutant(
        "seats.py",
        "max((member.rebalance_timeout_ms for",
        "min((member.rebalance_timeout_ms for",
        "the slowest member has no time to rejoin",
    ),
    Mutant(
        "seats.py",
        "if count == len(self.members)}",
        "if count >= 1}",
        "a protocol is chosen that some members do not have",
    ),
    Mutant(
        "seats.py",
        "(-votes[name], hash_map_bucket",
        "(votes[name], hash_map_bucket",
        "the protocol with the fewest votes wins",
    ),
    Mutant(
        "seats.py",
        "(-votes[name], hash_map_bucket(name, buckets), name)",
        "(-votes[name], name)",
        "a tie between protocols goes to another one than in Kafka",
    ),
    Mutant(
        "seats.py",
        "return protocol_type == self.protocol_type and any(",
        "return any(",
        "connectors may join a group of consumers",
    ),
    Mutant(
        "seats.py",
        "return bool(protocol_type) and bool(names)",
        "return bool(names)",
        "the first member of a group may have no protocol type",
    ),
    Mutant(
        "seats.py",
        "            return self.protocol_type == CONSUMER_PROTOCOL\n",
        "            return False\n",
        "offsets under a subscription that cannot be read may be deleted",
    ),
    Mutant(
        "seats.py",
        "rebalance_timeout_ms if rebalance_timeout_ms >= 0 else member.session_timeout_ms",
        "rebalance_timeout_ms",
        "members of an old record have a negative rebalance timeout",
    ),
    Mutant(
        "seats.py",
        "        if self.leader == member.member_id:\n            self.leader = member_id\n",
        "",
        "a leader that restarts no longer leads",
    ),
    Mutant(
        "seats.py",
        "            self.leader = next(iter(self.members), None)\n",
        "            pass\n",
        "a leader that has gone goes on leading",
    ),
    # The phases of a rebalance.
    Mutant(
        "rebalancing.py",
        "        if seats.state is State.COMPLETING_REBALANCE:\n            self._drop_assignments",
        "        if False:\n            self._drop_assignments",
        "parked syncs are never answered when the next rebalance begins",
    ),
    Mutant(
        "rebalancing.py",
        '            member.assignment = b""\n',
        "            pass\n",
        "members of a rebalance that came too early are described with an old assignment",
    ),
    Mutant(
        "rebalancing.py",
        "remaining_ms = max(seats.rebalance_timeout_ms - rebalance.delay_ms, 0)",
        "remaining_ms = seats.rebalance_timeout_ms",
        "the initial delay may be extended past the rebalance timeout",
    ),
    Mutant(
        "rebalancing.py",
        "rebalance.remaining_ms = max(rebalance.remaining_ms - rebalance.delay_ms, 0)",
        "pass",
        "a group to which somebody is always new never begins",
    ),
    Mutant(
        "rebalancing.py",
        "or rebalance is None or rebalance.is_initial:",
        "or rebalance is None:",
        "the first member does not wait for the others",
    ),
    Mutant(
        "rebalancing.py",
        "if each.join_waiter is None and not each.is_static]",
        "if each.join_waiter is None]",
        "a static member loses its seat with the first rebalance it misses",
    ),
    Mutant(
        "rebalancing.py",
        "            self._wait_once_more(group, rebalance, now, out)\n            return\n",
        "            return\n",
        "a group of silent static members is never looked at again",
    ),
    Mutant(
        "rebalancing.py",
        "        seats.generation = _as_int32(seats.generation + 1)\n",
        "        seats.generation += bool(seats.members)\n",
        "a group that becomes empty keeps its generation, and a late commit of it is accepted",
    ),
    Mutant(
        "rebalancing.py",
        "        seats.leader = joined.member_id\n",
        "",
        "a silent leader is left to make the assignment",
    ),
    Mutant(
        "rebalancing.py",
        "        out.writes.append(Write([self.record(group.group_id, seats.value())], Emptied()))\n",
        "",
        "an empty group comes back with its members after a restart",
    ),
    Mutant(
        "rebalancing.py",
        "            member.is_new = False\n",
        "",
        "a member that waits in a later rebalance is dropped by its session",
    ),
    Mutant(
        "rebalancing.py",
        "                full = member.member_id == seats.leader\n",
        "                full = True\n",
        "everybody believes to lead",
    ),
    Mutant(
        "rebalancing.py",
        "        rebalance.pending_sync = set(seats.members)\n",
        "        rebalance.pending_sync = {each for each, seat in seats.members.items() if seat.join_waiter}\n",
        "a silent static member is carried through one generation after another",
    ),
    Mutant(
        "rebalancing.py",
        "        rebalance.sync_deadline_ms = now.monotonic_ms + seats.rebalance_timeout_ms\n"
        "        self._arm_sync(group, rebalance.sync_deadline_ms, out)\n",
        "",
        "members that never sync block the group for ever",
    ),
    Mutant(
        "rebalancing.py",
        "        if now.monotonic_ms < rebalance.sync_deadline_ms:\n",
        "        if False:\n",
        "a late sync timer takes the seats of the next generation",
    ),
    Mutant(
        "rebalancing.py",
        "        if now.monotonic_ms < rebalance.join_deadline_ms:\n",
        "        if False:\n",
        "a late join timer ends the next rebalance before its time",
    ),
    Mutant(
        "rebalancing.py",
        "        if waits and not member.is_new:\n",
        "        if waits:\n",
        "a client that gave up joining is waited for without end",
    ),
    Mutant(
        "rebalancing.py",
        "and seats.all_joined:\n            seats.rebalance.is_initial = False\n",
        "and seats.all_joined:\n            pass\n",
        "a group waits out its initial delay for nobody",
    ),
    Mutant(
        "rebalancing.py",
        "self._wait_no_longer_than_needed(group.seats)\n        self.complete_join_if_all_are_here(group, now, out)",
        "pass",
        "a rebalance waits for an id that has run out",
    ),
    Mutant(
        "rebalancing.py",
        "if len(seats.members) > self._config.group_max_size:",
        "if len(seats.members) >= self._config.group_max_size:",
        "a full group rebalances after every restart",
    ),
    Mutant(
        "rebalancing.py",
        "ErrorCode.NOT_COORDINATOR, member.member_id, out)",
        'ErrorCode.NOT_COORDINATOR, "", out)',
        "a member forgets its id when the partition moves",
    ),
    Mutant(
        "rebalancing.py",
        "            self._answer_syncs(group, SyncAnswer(group_error(error)), now, out)\n",
        "",
        "members hear of a rebalance, and not that their assignment could not be written",
    ),
    Mutant(
        "rebalancing.py",
        "        self.seat_count -= len(seats.members) + len(seats.pending_members)\n",
        "",
        "ids that were handed out in a deleted group count for ever",
    ),
    # Joining, syncing, heartbeats, leaving.
    Mutant(
        "membership.py",
        "JoinAnswer(group_error(error), member.member_id)",
        "JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)",
        "the first member of a group is not told that the group could not be written down",
    ),
    Mutant(
        "membership.py",
        "<= request.session_timeout_ms <=",
        "< request.session_timeout_ms <",
        "the smallest and the largest session timeout are refused",
    ),
    Mutant(
        "membership.py",
        "or seats.awaiting_join < most",
        "or seats.awaiting_join <= most",
        "one more than group.max.size may join",
    ),
    Mutant(
        "membership.py",
        "return member is not None or len(seats.members) < most",
        "return member is not None or len(seats.members) <= most",
        "one more than group.max.size may join a stable group",
    ),
    Mutant(
        "membership.py",
        "            self._rebalancing.unseat(group, member, NoticeKind.LEFT, Cause.TOO_MANY_MEMBERS, out)\n",
        "            pass\n",
        "a loaded group that is too large stays so",
    ),
    Mutant(
        "membership.py",
        "if self._rebalancing.seat_count >= self._config.muster_max_members:",
        "if self._rebalancing.seat_count > self._config.muster_max_members:",
        "one member more than the limit is seated",
    ),
    Mutant(
        "membership.py",
        "        if request.version < 4:\n",
        "        if request.version <= 4:\n",
        "clients of version 4 are seated before they have an id",
    ),
    Mutant(
        "membership.py",
        "        deadline_ms = now.monotonic_ms + request.session_timeout_ms\n",
        "        deadline_ms = now.monotonic_ms + request.rebalance_timeout_ms\n",
        "an id that nobody uses is waited for as long as a member",
    ),
    Mutant(
        "membership.py",
        "            case State.STABLE if same and not is_leader:\n",
        "            case State.STABLE if same:\n",
        "a leader cannot ask for a rebalance",
    ),
    Mutant(
        "membership.py",
        "now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS",
        "now.monotonic_ms + request.session_timeout_ms",
        "new members are dropped while they wait for the slow ones",
    ),
    Mutant(
        "membership.py",
        "            seats.new_member_added = True\n",
        "            pass\n",
        "the initial delay is not extended for latecomers",
    ),
    Mutant(
        "membership.py",
        "if seats.state is State.STABLE and seats.choice_with(member, request.protocols) == seats.protocol:",
        "if seats.state is State.STABLE:",
        "a static member restarts with protocols that its group does not use",
    ),
    Mutant(
        "membership.py",
        "refuse_parked(seats, member, ErrorCode.FENCED_INSTANCE_ID,",
        "refuse_parked(seats, member, ErrorCode.UNKNOWN_MEMBER_ID,",
        "of two clients with one instance id, the older one rejoins for ever",
    ),
    Mutant(
        "membership.py",
        "        self._rename(group, member, member_id, now, out)\n"
        "        self._update(seats, member, request)\n        self._rebalancing.count",
        "        self._update(seats, member, request)\n"
        "        self._rename(group, member, member_id, now, out)\n        self._rebalancing.count",
        "a restarted member's new session timeout counts before its first heartbeat",
    ),
    Mutant(
        "membership.py",
        "        knows = request.version >= 9",
        "        knows = request.version >= 8",
        "a restarted leader of an older version assigns although nobody waits for it",
    ),
    Mutant(
        "membership.py",
        "answer._replace(skip_assignment=knows and leads)",
        "answer._replace(skip_assignment=False)",
        "a restarted leader assigns although nobody waits for it",
    ),
    Mutant(
        "membership.py",
        "            value = seats.value_renamed(member, member_id, request)\n",
        "            value = seats.value_renamed(member, member_id, request)\n"
        "            self._update(seats, member, request)\n",
        "a restart that was not written down changes what the group supports",
    ),
    Mutant(
        "membership.py",
        "        if member.member_id == seats.leader:\n            record",
        "        if assignments:\n            record",
        "a follower's assignment counts, and a leader's empty one does not",
    ),
    Mutant(
        "rebalancing.py",
        "or seats.generation != generation or rebalance is None:",
        "or rebalance is None:",
        "an assignment that was decided for one generation is handed to the next",
    ),
    Mutant(
        "seats.py",
        "        error = self.member_error(member_id, instance_id)\n"
        "        if error is _NONE and generation != self.generation:\n"
        "            return ErrorCode.ILLEGAL_GENERATION\n        return error\n",
        "        if generation != self.generation:\n            return ErrorCode.ILLEGAL_GENERATION\n"
        "        return self.member_error(member_id, instance_id)\n",
        "a fenced member that syncs is told to rejoin, because its generation is looked at first",
    ),
    Mutant(
        "membership.py",
        "        self._rebalancing.extend_session(group, seats.members[request.member_id], now, out)\n",
        "",
        "heartbeats do not keep a session",
    ),
    Mutant(
        "rebalancing.py",
        "            if answer_sync(member, self.sync_answer(seats, member), out):\n"
        "                self.extend_session(group, member, now, out)\n",
        "            answer_sync(member, self.sync_answer(seats, member), out)\n",
        "nobody watches the sessions of members that have their assignment",
    ),
    Mutant(
        "membership.py",
        "            error = seats.member_error(member_id, leaver.instance_id)\n",
        "            error = seats.member_error(member_id, None)\n",
        "an older client takes the seat of its successor away",
    ),
    Mutant(
        "membership.py",
        "        if group is not None and group.seats.state is State.DEAD:\n",
        "        if False:\n",
        "a client believes to have left a group that was about to move",
    ),
    # States, and what they answer.
    Mutant(
        "states.py",
        "    State.STABLE: (State.PREPARING_REBALANCE, State.DEAD),\n",
        "    State.STABLE: (State.PREPARING_REBALANCE,),\n",
        "a partition with a Stable group cannot move",
    ),
    Mutant(
        "states.py",
        "(Heartbeat, Rule(MEMBER, _UNKNOWN_MEMBER, _REBALANCING, ",
        "(Heartbeat, Rule(MEMBER, _UNKNOWN_MEMBER, _AT_ONCE, ",
        "members are not told to join again",
    ),
    Mutant(
        "states.py",
        "(DeleteGroup, Rule(ANY_CLIENT, _WRITTEN, _NON_EMPTY, _NON_EMPTY, _NON_EMPTY, ",
        "(DeleteGroup, Rule(ANY_CLIENT, _WRITTEN, _NON_EMPTY, _WRITTEN, _NON_EMPTY, ",
        "a group is deleted while its members wait for their assignment",
    ),
    # Who is refused, and with which error.
    Mutant(
        "seats.py",
        "                return ErrorCode.FENCED_INSTANCE_ID\n",
        "                return ErrorCode.UNKNOWN_MEMBER_ID\n",
        "two clients with one instance id push each other out without end",
    ),
    Mutant(
        "seats.py",
        "            if seated is None:\n"
        "                return ErrorCode.UNKNOWN_MEMBER_ID\n            if seated != member_id:",
        "            if seated is not None and seated != member_id:",
        "an instance id that nobody has is not noticed, as in 2.6",
    ),
    Mutant(
        "events.py",
        "    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,\n",
        "    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.COORDINATOR_NOT_AVAILABLE,\n",
        "clients go on asking a node that is no longer the coordinator",
    ),
)
