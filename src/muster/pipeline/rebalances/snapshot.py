"""What must be known of a group to tell what its next generation changes.

`Snapshot` is everything, and it survives a run as JSON (`carry` of `latest_rebalances`): the state tables alone would
not do. A member that leaves is a tombstone, which state tables do not keep, and the epoch record that makes a rebalance
of it may come in a later run; so may the target assignment that says what the rebalance moved.
"""

import json
from dataclasses import dataclass, field

from muster.pipeline.rebalances.generations import SomeMembers, SomeOwners
from muster.pipeline.rebalances.members import Member, Members, Owned, Row


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
    members: SomeMembers = field(default_factory=dict)
    """As of the open row. They and owners may be a generation of the batch that is read; what is carried is plain."""
    current: Members = field(default_factory=dict)
    """As of now: newer groups write members one by one, and the epoch that counts them later."""
    targets: dict[str, Owned] = field(default_factory=dict)
    """Target assignments by member id, as of now; newer groups only."""
    owners: SomeOwners = field(default_factory=dict)
    """Who owns what since the open row; None: cannot be told."""
    owners_before: SomeOwners = field(default_factory=dict)
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
