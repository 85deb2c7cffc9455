"""Members of a group and what they own, as plain objects, and what differs between two generations.

An *owner* is a member by the name that lasts: its instance id where it has one, else its member id.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

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
    """Partitions that were taken from their owner, whether another member has them now or none."""
    if before is None or after is None:
        return None
    return sum(len(partitions - after.get(owner, NOTHING)) for owner, partitions in before.items())


def hands_out_revoked(
    earlier: dict[str, Owned] | None, before: dict[str, Owned] | None, after: dict[str, Owned] | None
) -> bool:
    """Whether a generation does nothing but give away what the one before it had taken and left without an owner."""
    if earlier is None or before is None or after is None or moved_count(before, after):
        return False
    held, holds = NOTHING.union(*before.values()), NOTHING.union(*after.values())
    return held < holds <= held | NOTHING.union(*earlier.values())
