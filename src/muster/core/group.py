"""A classic group: what the log says of it (hard), and what we may forget (soft).

Hard: the last group record, the committed offsets, the offsets that transactions hold pending. They change in `replay`
alone. Soft: everybody's seats as they are right now, parked requests, deadlines, and the rebalance in progress, if
there is one. A crash in the middle of a rebalance brings back the last durable generation, as in Kafka.

The state is not stored: it follows from the rebalance and the members.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from muster.codec.consumer_protocol import subscribed_topics
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue, MemberValue
from muster.codec.partitioning import hash_map_bucket, hash_map_buckets
from muster.core.outcome import Cause
from muster.errors import CodecError

TopicPartition = tuple[str, int]
Protocols = tuple[tuple[str, bytes], ...]
CONSUMER_PROTOCOL = "consumer"
_PROTOCOL_BYTES = 128
"""What a protocol of a member takes besides its name and metadata."""


class State(Enum):
    """Kafka's names, as they go over the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.PREPARING_REBALANCE, State.DEAD),
    State.PREPARING_REBALANCE: (State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE, State.STABLE, State.DEAD),
    State.STABLE: (State.PREPARING_REBALANCE, State.DEAD),
    State.DEAD: (State.DEAD,),
}
"""From where to where; anything else is a bug. The diagram in docs/architecture.md is drawn from this."""


class IllegalMove(AssertionError):
    """A state was left for one that cannot follow it."""


@dataclass(slots=True)
class Member:
    """One seat. The waiters are parked requests: at most one of each, a newer one replaces it unanswered."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    join_waiter: Any = None
    sync_waiter: Any = None
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
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first candidate in its own order of preference."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of {sorted(candidates)}")


@dataclass(slots=True)
class Rebalance:
    """A generation in the making: members are joining, or (once all have) the leader's assignment is awaited."""

    is_joining: bool = True
    deadline_ms: int = 0
    """When joining ends, or when those who have not synced lose their seats."""
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0
    cause: Cause = Cause.NONE
    since_ms: int = 0
    is_overdue: bool = False
    """The deadline has passed with no leader there: the next join completes the phase."""


@dataclass(slots=True)
class Group:
    """Members in the order they were added, so that "any member" is always the same one."""

    group_id: str
    # Hard.
    durable: GroupValue | None = None
    offsets: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Packed as in `muster.codec.committed`, the pending ones too."""
    pending: dict[int, dict[TopicPartition, bytes]] = field(default_factory=dict)
    # Soft.
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: dict[str, int] = field(default_factory=dict)
    """Ids handed out but not yet seated, with their deadlines."""
    pending_sync: set[str] = field(default_factory=set)
    sync_deadline_ms: int | None = None
    subscribed_topics: frozenset[str] | None = None
    state_timestamp_ms: int = -1
    rebalance: Rebalance | None = None
    is_dead: bool = False
    awaiting_join: int = 0
    new_member_added: bool = False
    """Whether somebody came during an initial delay, and it was not extended for it yet; Kafka never forgets."""
    commit_kinds: int = field(default=0, compare=False)
    """Which kinds of commits it has had lately: ordinary (1), transactional (2), both (3)."""
    held_bytes: int = field(default=0, compare=False)
    """Of all members, and of ids handed out."""
    counted_bytes: int = field(default=0, compare=False)
    """How much of that is counted for the whole partition."""
    _support: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> State:
        if self.is_dead:
            return State.DEAD
        if self.rebalance is not None:
            return State.PREPARING_REBALANCE if self.rebalance.is_joining else State.COMPLETING_REBALANCE
        return State.STABLE if self.members else State.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def everybody_joined(self) -> bool:
        return not self.pending_members and self.awaiting_join == len(self.members)

    def add(self, member: Member, protocol_type: str) -> None:
        """Seat somebody; the first one gives the group its type, and leads it."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._support.update(_names(member.protocols))
        self.held_bytes += member.held_bytes
        if self.leader is None:
            self.leader = member.member_id
        self.awaiting_join += member.join_waiter is not None

    def remove(self, member: Member) -> None:
        """Take a seat away; whoever comes first leads, if it was the leader's."""
        del self.members[member.member_id]
        self.held_bytes -= member.held_bytes
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self._withdraw(member.protocols)
        self.awaiting_join -= member.join_waiter is not None
        self.pending_sync.discard(member.member_id)
        if member.member_id in self.pending_members:
            self.take_back(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def offer(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """A member comes back with another list."""
        self._withdraw(member.protocols)
        self._support.update(_names(protocols))
        self.held_bytes += protocols_bytes(protocols) - protocols_bytes(member.protocols)
        member.protocols = protocols

    def _withdraw(self, protocols: tuple[tuple[str, bytes], ...]) -> None:
        for name in _names(protocols):
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member the id of its successor, in the same seat."""
        assert member.instance_id is not None
        assert self.members.get(member.member_id) is member, f"group {self.group_id}: {member.member_id} has no seat"
        self.members = {
            member_id if old_id == member.member_id else old_id: seated for old_id, seated in self.members.items()
        }
        self.static_members[member.instance_id] = member_id
        if self.leader == member.member_id:
            self.leader = member_id
        self.held_bytes += len(member_id) - len(member.member_id)
        member.member_id = member_id

    def hand_out(self, member_id: str, deadline_ms: int) -> None:
        """Keep an id for somebody who is to join with it."""
        self.pending_members[member_id] = deadline_ms
        self.held_bytes += len(member_id)

    def take_back(self, member_id: str) -> None:
        """An id that was handed out is used, or never will be."""
        del self.pending_members[member_id]
        self.held_bytes -= len(member_id)

    def park_join(self, member: Member, waiter: Any) -> None:
        """Keep a join until the phase is complete; an older one of the same member is forgotten."""
        self.awaiting_join += member.join_waiter is None
        _forget(member.join_waiter)
        member.join_waiter = waiter

    def park_sync(self, member: Member, waiter: Any) -> None:
        """Keep a sync until the assignment is there; an older one of the same member is forgotten."""
        _forget(member.sync_waiter)
        member.sync_waiter = waiter

    def unpark_join(self, member: Member) -> Any:
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
        votes = Counter(member.vote(candidates) for member in self.members.values())
        buckets = hash_map_buckets(len(votes))
        return min(votes, key=lambda name: (-votes[name], hash_map_bucket(name, buckets), name))

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether somebody who offers this may join."""
        names = _names(protocols)
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(names)
        everybody = len(self.members)  # nobody, perhaps: then any name will do
        return protocol_type == self.protocol_type and any(self._support[name] == everybody for name in names)

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

    def holds_pending(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())

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

    @classmethod
    def loaded(cls, group_id: str, value: GroupValue) -> "Group":
        """The group that a record describes, everybody in their seats and nobody waiting."""
        group = cls(group_id)
        group.take(value)
        return group

    def take(self, value: GroupValue) -> None:
        """Become what a record says; offsets are not its business."""
        self.durable = value
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.state_timestamp_ms = value.state_timestamp_ms
        self.members = {member.member_id: _seated(member, value.protocol) for member in value.members}
        self.leader = value.leader if value.leader in self.members else None  # no broker writes another, a bad disk may
        self.static_members = {
            member.instance_id: member.member_id for member in self.members.values() if member.instance_id is not None
        }
        self.awaiting_join = 0
        self.held_bytes = sum(member.held_bytes for member in self.members.values())
        self._support = Counter(name for member in self.members.values() for name in _names(member.protocols))
        self.rebalance = None
        self.pending_sync = set()
        self.sync_deadline_ms = None
        self.subscribed_topics = self.compute_subscribed_topics()


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE for one who sits where it says; a static member whose seat went to a successor is fenced."""
    if instance_id is not None:
        seated = group.static_members.get(instance_id)
        if seated is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if seated != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def protocols_bytes(protocols: Protocols) -> int:
    return sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def _forget(waiter: Any) -> None:
    """A parked request that nobody will answer lets go of its place on the connection, which knows the request too."""
    if waiter is not None:
        waiter.reply_to = None


def _names(protocols: Iterable[tuple[str, bytes]]) -> list[str]:
    return [name for name, _ in protocols]


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
