"""What must be known of a group to tell what its next generation changes.

`Snapshot` is everything, and it survives a run as JSON (`carry` of `latest_rebalances`): the state tables alone would
not do. A member that leaves is a tombstone, which state tables do not keep, and the epoch record that makes a rebalance
of it may come in a later run; so may the target assignment that says what the rebalance moved.

An *owner* is a member by the name that lasts: its instance id where it has one, else its member id.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from muster.pipeline.rebalance_columns import SomeMembers, SomeOwners

Row = dict[str, Any]
Partition = tuple[str, int]
"""A topic (its name in classic groups, its id in newer ones; a subtopology in streams groups) and a partition."""
Owned = frozenset[Partition]
NOTHING: Owned = frozenset()


class Member(NamedTuple):
    instance_id: str | None
    subscription: str | None
    """Whatever is compared to see a change; None where it cannot be read."""


Members = dict[str, Member]


class Changes(NamedTuple):
    """Member ids that came and went, and instance ids that came back under a new member id; all sorted."""

    joined: list[str]
    left: list[str]
    replaced: list[str]


NO_CHANGES = Changes([], [], [])


@dataclass(slots=True)
class Snapshot:
    """A group as of its newest record. `open_row` is its newest row, which later records may still complete."""

    type: str | None = None
    generation: int | None = None
    known: bool = False
    """Whether any generation, or that there was none, has been seen: without it nothing can be said of a change."""
    ended: bool = False
    """Deleted while it had members: no deletion, if another type of group goes on from there."""
    protocol: str | None = None
    leader: str | None = None
    """The owner, not the member id: a static leader that comes back is the same leader."""
    members: "SomeMembers" = field(default_factory=dict)
    """As of the open row. They and owners may be a generation of the batch that is read; what is carried is plain."""
    current: Members = field(default_factory=dict)
    """As of now: newer groups write members one by one, and the epoch that counts them later."""
    targets: dict[str, Owned] = field(default_factory=dict)
    """Target assignments by member id, as of now; newer groups only."""
    owners: "SomeOwners" = field(default_factory=dict)
    """Who owns what since the open row; None: cannot be told."""
    owners_before: "SomeOwners" = field(default_factory=dict)
    topics: dict[str, list[str]] = field(default_factory=dict)
    """What each regular expression matches."""
    topology: int | None = None
    news: str | None = None
    """A cause that has shown itself, for the next epoch to name where no member explains it."""
    settled: bool = True
    """Whether the open row's cause stands, or depends on the assignment that is still to come."""
    rebalanced_at_ms: int | None = None
    first_epoch: Row | None = None
    """The first epoch seen, if its members were not: compaction may have moved them behind it. There is no row yet."""
    open_row: Row | None = None

    def carry(self) -> str:
        """All but the open row, as text; there must be one."""
        fields = {name: getattr(self, name) for name in _PLAIN}
        fields["members"], fields["current"] = self.members, self.current
        fields["targets"] = _listed(self.targets)
        for name, owners in (("owners", self.owners), ("owners_before", self.owners_before)):
            assert owners is None or isinstance(owners, dict)
            fields[name] = None if owners is None else _listed(owners)
        return json.dumps(fields, separators=(",", ":"), sort_keys=True)

    @classmethod
    def of_carry(cls, text: str, open_row: Row | None) -> "Snapshot":
        fields = json.loads(text)
        return cls(
            **{name: fields[name] for name in _PLAIN},
            members=_members(fields["members"]),
            current=_members(fields["current"]),
            targets=_owned(fields["targets"]),
            owners=None if fields["owners"] is None else _owned(fields["owners"]),
            owners_before=None if fields["owners_before"] is None else _owned(fields["owners_before"]),
            open_row=open_row,
        )


_PLAIN = (
    "type", "generation", "known", "ended", "protocol", "leader", "topics", "topology", "news", "settled",
    "rebalanced_at_ms",
)  # fmt: skip


def _listed(owned: dict[str, Owned]) -> dict[str, dict[str, list[int]]]:
    listed: dict[str, dict[str, list[int]]] = {}
    for name, partitions in owned.items():
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            by_topic.setdefault(topic, []).append(partition)
        listed[name] = by_topic
    return listed


def _owned(listed: dict[str, dict[str, list[int]]]) -> dict[str, Owned]:
    return {
        name: frozenset((topic, partition) for topic, partitions in by_topic.items() for partition in partitions)
        for name, by_topic in listed.items()
    }


def _members(listed: dict[str, list[str | None]]) -> Members:
    return {member_id: Member(*fields) for member_id, fields in listed.items()}


def subscription_of(topics: list[str] | None) -> str | None:
    return None if topics is None else _subscription(tuple(topics))


@lru_cache(1024)
def _subscription(topics: tuple[str, ...]) -> str:
    return json.dumps(sorted(topics))


def named_partitions(assignment: Iterable[dict[str, Any]]) -> Owned:
    return frozenset(
        (one["topic"] or one["topic_id"], partition) for one in assignment for partition in one["partitions"]
    )


def members_of(listed: Iterable[Row]) -> Members:
    """From the members of a classic group's record."""
    return {one["member_id"]: Member(one["instance_id"], subscription_of(one["subscribed_topics"])) for one in listed}


def owners_listed(listed: list[Row]) -> dict[str, Owned] | None:
    """Likewise; None if an assignment cannot be read."""
    if any(one["assignment"] is None for one in listed):
        return None
    return owners_of({one["member_id"]: named_partitions(one["assignment"]) for one in listed}, members_of(listed))


def owner_of(member_id: str, members: Members) -> str:
    member = members.get(member_id)
    return member_id if member is None or member.instance_id is None else member.instance_id


def owners_of(assigned: dict[str, Owned], members: Members) -> dict[str, Owned]:
    return {owner_of(member_id, members): partitions for member_id, partitions in assigned.items() if partitions}


def changes(before: Members, after: Members) -> Changes:
    instances = {member.instance_id: member_id for member_id, member in before.items() if member.instance_id}
    replaced = {
        member.instance_id: member_id
        for member_id, member in after.items()
        if member.instance_id and instances.get(member.instance_id, member_id) != member_id
    }
    gone = {instances[instance_id] for instance_id in replaced}
    return Changes(
        sorted(after.keys() - before.keys() - set(replaced.values())),
        sorted(before.keys() - after.keys() - gone),
        sorted(replaced),
    )


def subscriptions(members: Members) -> dict[str, str | None]:
    return {owner_of(member_id, members): member.subscription for member_id, member in members.items()}


def assigned_count(owners: dict[str, Owned] | None) -> int | None:
    return None if owners is None else len(NOTHING.union(*owners.values()))


def moved_count(before: dict[str, Owned] | None, after: dict[str, Owned] | None) -> int | None:
    """Partitions that were taken from their owner, whether somebody else has them now or nobody."""
    if before is None or after is None:
        return None
    return sum(len(partitions - after.get(owner, NOTHING)) for owner, partitions in before.items())


def hands_out_revoked(
    earlier: dict[str, Owned] | None, before: dict[str, Owned] | None, after: dict[str, Owned] | None
) -> bool:
    """Whether a generation does nothing but give away what the one before it had taken and given to nobody."""
    if earlier is None or before is None or after is None or moved_count(before, after):
        return False
    held, holds = NOTHING.union(*before.values()), NOTHING.union(*after.values())
    return held < holds <= held | NOTHING.union(*earlier.values())
