"""`Seats`: the members of one group now, its state, and its parked requests. Soft: a crash forgets it.

Seats are made from the group record when the log has been read (`Seats.recorded`). From then on they run ahead
of the record, as in Kafka: members that join or leave, the next generation, the voted protocol and the leader are seen
by clients (heartbeats, DescribeGroups) before anything is written, and a rebalance writes nothing until the leader has
sent its assignment. What has to wait for the log waits: assignments and the Stable state, the new id of a static member
that restarted in a Stable group, the existence of a group. A crash brings back the last record, as in Kafka.

One mutation precedes its write although a record follows it: a group becomes Empty first. Kafka does so too, and only
logs it when the record cannot be written; the group is Empty all the same.

The state is stored, and `move` is the only way to change it. It cannot be computed from the members: while the last
member leaves a Stable group, the group is still Stable until its rebalance begins.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.codec.consumer_protocol import subscribed_topics
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue, MemberValue
from muster.codec.partitioning import hash_map_bucket, hash_map_buckets
from muster.core.events import JoinGroup, SyncGroup
from muster.core.states import LEGAL_MOVES, Cause, IllegalMove, State
from muster.errors import CodecError

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the member's order of preference."""
CONSUMER_PROTOCOL = "consumer"
_PROTOCOL_BYTES = 128
"""What a protocol of a member takes besides its name and metadata."""
_NONE = ErrorCode.NONE  # members of an enum cost a lookup each time they are named


@dataclass(slots=True)
class Member:
    """One seat. The waiters are parked requests: at most one of each, a newer one replaces it unanswered."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_waiter: JoinGroup | None = None
    sync_waiter: SyncGroup | None = None
    deadline_ms: int | None = None
    """When its session ends; None while a parked request keeps it."""
    armed_ms: int | None = None
    """When its timer will fire, at the latest at the deadline: heartbeats move only the deadline."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def held_bytes(self) -> int:
        """About how much memory its ids and protocols take; assignments have the limit of a record."""
        ids = len(self.member_id) + len(self.instance_id or "") + len(self.client_id)
        return ids + protocols_bytes(self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return metadata_of(self.protocols, protocol)


@dataclass(slots=True)
class Rebalance:
    """A generation in the making: from the call to join again until the last member has asked for its assignment."""

    cause: Cause
    since_ms: int
    join_deadline_ms: int
    """When joining ends."""
    is_initial: bool = False
    """Whether the group was empty: then it waits a moment for more members, even if all are here."""
    delay_ms: int = 0
    remaining_ms: int = 0
    is_overdue: bool = False
    """The deadline has passed with no leader there: the next join completes the phase."""
    pending_sync: set[str] = field(default_factory=set)
    """Members of the new generation that have not asked for their assignment."""
    sync_deadline_ms: int | None = None
    """When those lose their seats."""


@dataclass(slots=True)
class Seats:
    """The members of one group, in the order they were added, so that "any member" is always the same one."""

    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: dict[str, int] = field(default_factory=dict)
    """Ids handed out but not yet seated, with their deadlines."""
    subscribed_topics: frozenset[str] | None = None
    rebalance: Rebalance | None = None
    awaiting_join: int = 0
    new_member_added: bool = False
    """Whether a member came during an initial delay that was not extended for it yet; Kafka never forgets."""
    commit_kinds: int = 0
    """Which kinds of commits the group has had lately: ordinary (1), transactional (2), both (3)."""
    held_bytes: int = 0
    """Of all members, and of ids handed out."""
    counted_bytes: int = 0
    """How much of that is counted for the whole partition."""
    _support: dict[str, int] = field(default_factory=dict)
    """How many members offer each protocol."""

    @classmethod
    def recorded(cls, value: GroupValue) -> "Seats":
        """The members as a record says, each in its seat and without a parked request."""
        members = {member.member_id: _seated(member, value.protocol) for member in value.members}
        seats = cls(
            State.STABLE if members else State.EMPTY,
            value.generation,
            value.protocol_type or None,
            value.protocol,
            value.leader if value.leader in members else None,  # no broker writes another, a bad disk may
            value.state_timestamp_ms,
            members,
        )
        for member in members.values():
            if member.instance_id is not None:
                seats.static_members[member.instance_id] = member.member_id
            seats._support_more(member.protocols)
            seats.held_bytes += member.held_bytes
        seats.subscribed_topics = seats.compute_subscribed_topics()
        return seats

    def move(self, to: State, wall_ms: int) -> None:
        """Go from one state to another, as `LEGAL_MOVES` allows."""
        if to not in LEGAL_MOVES[self.state]:
            raise IllegalMove(f"{self.state.value} to {to.value}")
        self.state = to
        self.state_timestamp_ms = wall_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and self.awaiting_join == len(self.members)

    def add(self, member: Member, protocol_type: str) -> None:
        """Seat a member; the first one gives the group its type, and leads it."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._support_more(member.protocols)
        self.held_bytes += member.held_bytes
        if self.leader is None:
            self.leader = member.member_id
        self.awaiting_join += member.join_waiter is not None

    def remove(self, member: Member) -> None:
        """Take a seat away. The first of the others leads, if it was the leader's."""
        del self.members[member.member_id]
        self.held_bytes -= member.held_bytes
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self._withdraw(member.protocols)
        self.awaiting_join -= member.join_waiter is not None
        if self.rebalance is not None:
            self.rebalance.pending_sync.discard(member.member_id)
        if member.member_id in self.pending_members:
            self.take_back(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def offer(self, member: Member, protocols: Protocols) -> None:
        """A member comes back with another list."""
        self._withdraw(member.protocols)
        self._support_more(protocols)
        self.held_bytes += protocols_bytes(protocols) - protocols_bytes(member.protocols)
        member.protocols = protocols

    def _support_more(self, protocols: Protocols) -> None:
        for name, _ in protocols:
            self._support[name] = self._support.get(name, 0) + 1

    def _withdraw(self, protocols: Protocols) -> None:
        for name, _ in protocols:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of its successor, in the same seat."""
        assert member.instance_id is not None
        assert self.members.get(member.member_id) is member, f"{member.member_id} has no seat"
        self.members = {
            member_id if old_id == member.member_id else old_id: seated for old_id, seated in self.members.items()
        }
        self.static_members[member.instance_id] = member_id
        if self.leader == member.member_id:
            self.leader = member_id
        self.held_bytes += len(member_id) - len(member.member_id)
        member.member_id = member_id

    def hand_out(self, member_id: str, deadline_ms: int) -> None:
        """Keep an id for a client that is to join with it."""
        self.pending_members[member_id] = deadline_ms
        self.held_bytes += len(member_id)

    def take_back(self, member_id: str) -> None:
        """An id that was handed out is used, or never will be."""
        del self.pending_members[member_id]
        self.held_bytes -= len(member_id)

    def park_join(self, member: Member, waiter: JoinGroup) -> None:
        """Keep a join until the phase is complete. An older one of the same member is never answered, as in Kafka."""
        self.awaiting_join += member.join_waiter is None
        member.join_waiter = waiter

    def park_sync(self, member: Member, waiter: SyncGroup) -> None:
        """Keep a sync until the assignment is there; as with joins, it replaces an older one."""
        member.sync_waiter = waiter

    def unpark_join(self, member: Member) -> JoinGroup | None:
        """The parked join, to be answered now."""
        waiter, member.join_waiter = member.join_waiter, None
        self.awaiting_join -= waiter is not None
        return waiter

    def candidates(self) -> set[str]:
        """Protocols that all members support."""
        return {name for name, count in self._support.items() if count == len(self.members)}

    def choose_protocol(self) -> str:
        """Every member votes for its first candidate; a tie goes to the name that Java's hash map puts first."""
        candidates = self.candidates()
        return _winner(Counter(_vote(member.protocols, candidates) for member in self.members.values()))

    def choice_with(self, member: Member, protocols: Protocols) -> str | None:
        """The protocol that would be chosen if a member came back with another list; None if none were left."""
        before = {name for name, _ in member.protocols}
        candidates = {
            name for name, _ in protocols if self._support.get(name, 0) + (name not in before) == len(self.members)
        }
        lists = (protocols if each is member else each.protocols for each in self.members.values())
        return _winner(Counter(_vote(offered, candidates) for offered in lists)) if candidates else None

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a client that offers this may join."""
        names = [name for name, _ in protocols]
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        size = len(self.members)  # none, perhaps: then any name will do
        return protocol_type == self.protocol_type and any(self._support.get(name, 0) == size for name in names)

    def is_subscribed(self, topic: str) -> bool:
        """Unknown subscriptions count as all topics, in a group of consumers."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The union of the members' subscriptions; None where they cannot be known."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic for member in self.members.values() for topic in subscribed_topics(member.metadata(self.protocol))
            )
        except CodecError:
            return None

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member that sits where it says; a static member whose seat went to a successor is fenced."""
        if instance_id is not None:
            seated = self.static_members.get(instance_id)
            if seated is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if seated != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def seat_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """NONE for a member of this generation."""
        error = self.member_error(member_id, instance_id)
        if error is _NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def value(self, assignments: dict[str, bytes] | None = None) -> GroupValue:
        """The group record of this moment; `assignments` replace those of the members."""
        return GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_timestamp_ms,
            tuple(self._member_value(member, assignments) for member in self.members.values()),
        )

    def value_renamed(self, member: Member, member_id: str, request: JoinGroup) -> GroupValue:
        """The group record as it will be when a static member has the id, timeouts and protocols of its successor."""
        value = self.value()
        members = tuple(
            each._replace(
                member_id=member_id,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                subscription=metadata_of(request.protocols, self.protocol),
            )
            if each.member_id == member.member_id
            else each
            for each in value.members
        )
        return value._replace(leader=member_id if value.leader == member.member_id else value.leader, members=members)

    def _member_value(self, member: Member, assignments: dict[str, bytes] | None) -> MemberValue:
        assignment = member.assignment if assignments is None else assignments.get(member.member_id, b"")
        return MemberValue(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(self.protocol),
            assignment,
        )


def metadata_of(protocols: Protocols, protocol: str | None) -> bytes:
    return next((metadata for name, metadata in protocols if name == protocol), b"")


def protocols_bytes(protocols: Protocols) -> int:
    return sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def _vote(protocols: Protocols, candidates: set[str]) -> str:
    """The first candidate in a member's own order of preference."""
    for name, _ in protocols:
        if name in candidates:
            return name
    raise AssertionError(
        f"a member that offers {[name for name, _ in protocols]} supports none of {sorted(candidates)}"
    )


def _winner(votes: Counter[str]) -> str:
    buckets = hash_map_buckets(len(votes))
    return min(votes, key=lambda name: (-votes[name], hash_map_bucket(name, buckets), name))


def _seated(member: MemberValue, protocol: str | None) -> Member:
    rebalance_timeout_ms = member.rebalance_timeout_ms
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else member.session_timeout_ms,
        ((protocol or "", member.subscription),),
        member.assignment,
    )
