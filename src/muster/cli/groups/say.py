"""What to say when a cluster does not do what was asked: a sentence, and a next step where there is one."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from muster.cli.groups.model import Group, Refusal, State

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


def missing_group(group_id: str, known: Collection[str], others: str = "`muster groups list` shows all") -> str:
    """No group has that name; a similar one is offered, and the command that shows which there are."""
    near = get_close_matches(group_id, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"no group called '{group_id}'.{hint} {others} {len(known):,}."


def about_members(groups: Iterable[Group]) -> list[str]:
    """What kafka-consumer-groups says beside its rows: that nobody is there, or that it is about to change."""
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
