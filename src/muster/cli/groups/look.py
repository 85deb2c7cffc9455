"""The commands that only look: ask the cluster, make rows of its answers, show them, and say what is amiss.

A refusal is a sentence with a next step where there is one; the commands that change something use the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from muster.cli.groups.connect import Asked, counting
from muster.cli.groups.model import (
    MANY_GROUPS,
    Committed,
    Group,
    GroupListing,
    GroupType,
    Refusal,
    State,
    TopicPartition,
    list_table,
    members_table,
    offsets_table,
    state_table,
)
from muster.cli.output import missing_group, say
from muster.cli.status import Status
from muster.cli.tabular import Table, show
from muster.patterns import is_wild, literal, regex

if TYPE_CHECKING:
    from muster.cli.groups.cluster import Cluster

LISTED_GROUPS = 5
"""Groups that get a sentence each; more than these are counted."""

NOT_ALLOWED = "you are not allowed to. It needs an ACL for the {}; --command-config says who you are"

NEXT_STEPS = {
    "NON_EMPTY_GROUP": "it still has members. Stop them, or wait for their sessions to end "
    "(`muster groups members` shows them), then try again",
    "GROUP_SUBSCRIBED_TO_TOPIC": "its members are subscribed to the topic. Stop them first",
    "UNKNOWN_MEMBER_ID": "somebody joined it meanwhile. Stop its members, then try again",
    "GROUP_ID_NOT_FOUND": "there is no such group. `muster groups list` shows those there are",
    "UNKNOWN_TOPIC_OR_PART": "there is no such topic or partition",
    "_UNKNOWN_PARTITION": "there is no such partition",
    "_UNKNOWN_TOPIC": "there is no such topic",
    "INVALID_GROUP_ID": "the name cannot be a group's",
    "GROUP_AUTHORIZATION_FAILED": NOT_ALLOWED.format("group"),
    "TOPIC_AUTHORIZATION_FAILED": NOT_ALLOWED.format("topic"),
    "CLUSTER_AUTHORIZATION_FAILED": NOT_ALLOWED.format("cluster"),
    "COORDINATOR_LOAD_IN_PROGRESS": "its coordinator is still loading. Try again in a moment",
    "COORDINATOR_NOT_AVAILABLE": "it has no coordinator right now. Try again in a moment",
    "NOT_COORDINATOR": "its coordinator has just moved. Try again in a moment",
    "REBALANCE_IN_PROGRESS": "it is rebalancing. Try again in a moment",
}


def reason(refusal: Refusal) -> str:
    """Why, and what to do; Kafka's own words for what is rare."""
    return NEXT_STEPS.get(refusal.code, f"{refusal.text} ({refusal.code})")


def about_members(groups: Iterable[Group]) -> list[str]:
    """What kafka-consumer-groups says beside its rows: that a group has no members, or that it is about to change."""
    empty, restless = [], []
    for group in groups:
        if group.state is State.EMPTY:
            empty.append(group.group_id)
        elif group.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE):
            restless.append(group.group_id)
    return _sentences(empty, "has no active members", "have no active members") + _sentences(
        restless, "is rebalancing", "are rebalancing"
    )


def _sentences(group_ids: list[str], one: str, many: str) -> list[str]:
    if len(group_ids) > LISTED_GROUPS:
        return [f"{len(group_ids):,} groups {many}."]
    return [f"group '{group_id}' {one}." for group_id in group_ids]


class View(Enum):
    OFFSETS = auto()
    MEMBERS = auto()
    STATE = auto()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which groups a command is about: those named, or all."""

    named: tuple[str, ...]
    """Names, and patterns of names."""
    all_groups: bool = False

    @property
    def is_wild(self) -> bool:
        return any(map(is_wild, self.named))


@dataclass(slots=True)
class Found:
    """What is known of the groups that were asked for, and how the command ends because of it."""

    groups: dict[str, Group]
    status: Status = Status.OK

    def refuse(self, sentence: str, status: Status = Status.REFUSED) -> None:
        """Say why something is not there; the first reason decides about the exit code."""
        say(sentence)
        self.status = self.status or status


def list_groups(cluster: "Cluster", asked: Asked, states: frozenset[State], types: frozenset[GroupType]) -> Status:
    """All groups, or those in some states and of some types."""
    listings, refusals = cluster.listings()
    chosen = [each for each in listings if (not states or each.state in states) and (not types or each.type in types)]
    show(list_table(chosen), asked.format)
    if refusals:
        _tell_unlisted(refusals)
        return Status.UNREACHABLE
    if not chosen:
        asked.tell("there are no groups." if not listings else f"none of the {len(listings):,} groups is like that.")
        return Status.NOTHING_MATCHED if listings else Status.OK
    return Status.OK


def _tell_unlisted(refusals: Iterable[Refusal]) -> None:
    for refusal in dict.fromkeys(refusals):
        say(f"a broker could not list its groups, and they are missing here: {reason(refusal)}.")


def describe(cluster: "Cluster", asked: Asked, scope: Scope, view: View, verbose: bool) -> Status:
    """Groups from one of three sides; those that could not be described are named afterwards."""
    found = find(cluster, scope, with_instance_ids=view is View.MEMBERS)
    if view is View.OFFSETS:
        table = _offsets(cluster, asked, found, verbose)
    else:
        table = (
            members_table(found.groups.values(), verbose)
            if view is View.MEMBERS
            else state_table(found.groups.values())
        )
    if table.rows or found.groups:
        show(table, asked.format)
    asked.tell(*about_members(found.groups.values()))
    return found.status


def _offsets(cluster: "Cluster", asked: Asked, found: Found, verbose: bool) -> Table:
    committed = committed_offsets(cluster, asked, found)
    wanted = {partition for offsets in committed.values() for partition in offsets}
    wanted.update(partition for group in found.groups.values() for one in group.members for partition in one.assignment)
    return offsets_table(found.groups.values(), committed, cluster.end_offsets(wanted).known, verbose)


def committed_offsets(cluster: "Cluster", asked: Asked, found: Found) -> dict[str, Mapping[TopicPartition, Committed]]:
    """The offsets in force of the groups that were found; one whose offsets are refused is not found any more.

    A group that does not exist yet has none, and is not asked about: confluent-kafka is known to crash at that.
    """
    committed: dict[str, Mapping[TopicPartition, Committed]] = {
        group_id: {} for group_id, group in found.groups.items() if group.state is State.DEAD
    }
    existing = [group_id for group_id in found.groups if group_id not in committed]
    with counting("offsets", len(existing), asked) as advance:
        answers = cluster.committed(existing, advance)
    for group_id, answer in answers.items():
        if isinstance(answer, Refusal):
            found.refuse(f"group '{group_id}': its offsets cannot be read: {reason(answer)}.")
            del found.groups[group_id]
        else:
            committed[group_id] = answer
    return committed


def find(cluster: "Cluster", scope: Scope, with_instance_ids: bool = False, may_be_new: bool = False) -> Found:
    """Describe the groups of a scope. One that does not exist is refused, unless it `may_be_new`."""
    found = Found({})
    listings: dict[str, GroupListing] = {}
    if scope.all_groups or scope.is_wild or len(scope.named) >= MANY_GROUPS:
        listed, refusals = cluster.listings()
        listings = {each.group_id: each for each in listed}
        if refusals:
            _tell_unlisted(refusals)
            found.status = Status.UNREACHABLE
    wanted = list(listings) if scope.all_groups else named_groups(scope, listings, found)
    for group_id, answer in _described(cluster, wanted, listings, with_instance_ids).items():
        if isinstance(answer, Refusal):
            found.refuse(f"group '{group_id}': {reason(answer)}.")
        elif answer.state is State.DEAD and not may_be_new:
            if group_id in map(literal, scope.named):  # else it has gone since it was listed
                listings = listings or {each.group_id: each for each in cluster.listings()[0]}
                found.refuse(missing_group(group_id, listings), Status.NOTHING_MATCHED)
        else:
            found.groups[group_id] = answer
    return found


def named_groups(scope: Scope, listings: Iterable[str], found: Found) -> list[str]:
    """The groups of a scope by their names; a pattern that none matches is refused."""
    wanted: dict[str, None] = {}
    for name in scope.named:
        matched = regex([name])
        names = [each for each in listings if matched.fullmatch(each)] if is_wild(name) else [literal(name)]
        if not names:
            found.refuse(f"no group is called like '{name}'. `muster groups list` shows all.", Status.NOTHING_MATCHED)
        wanted |= dict.fromkeys(names)
    return list(wanted)


def _described(
    cluster: "Cluster", wanted: list[str], listings: Mapping[str, GroupListing], with_instance_ids: bool
) -> Mapping[str, Group | Refusal]:
    if not with_instance_ids:
        return cluster.describe_many(wanted, {each.group_id: each.type for each in listings.values()})
    empty: dict[str, Group | Refusal] = {
        group_id: Group(group_id, listings[group_id].type, State.EMPTY)
        for group_id in wanted
        if group_id in listings and listings[group_id].state is State.EMPTY
    }  # they have no members to be described
    return empty | cluster.describe(group_id for group_id in wanted if group_id not in empty)
