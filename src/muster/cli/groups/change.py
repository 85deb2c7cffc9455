"""The commands that change something: reset offsets, forget them, delete groups. What was refused is always named."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.cli.groups.connect import Asked
from muster.cli.groups.look import NEXT_STEPS, Found, Scope, committed_offsets, find, named_groups, reason
from muster.cli.groups.model import (
    Committed,
    Refusal,
    State,
    TopicPartition,
    deletable_groups_table,
    deleted_groups_table,
    deleted_offsets_table,
    reset_table,
)
from muster.cli.groups.plan import (
    CannotReset,
    FromFile,
    Known,
    Need,
    Plan,
    ResetSpec,
    export_text,
    named,
    needs,
    plan_reset,
)
from muster.cli.output import say, write_to_stdout
from muster.cli.status import Status
from muster.cli.tabular import show

if TYPE_CHECKING:
    from muster.cli.groups.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Reset:
    """What is to be reset, where to, and whether really. Without topics and partitions it is what was committed."""

    scope: Scope
    spec: ResetSpec
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    is_dry_run: bool = True
    is_dry_run_said: bool = False
    export: bool = False
    verbose: bool = False

    @property
    def of_all_topics(self) -> bool:
        return not (self.topics or self.partitions or isinstance(self.spec, FromFile))


def reset_offsets(cluster: "Cluster", asked: Asked, reset: Reset) -> Status:
    """Plan the new offsets of all groups, then write them if that is wanted, then show what was planned or written."""
    found = find(cluster, reset.scope, may_be_new=True)
    _refuse_active(found)
    wants_committed = Need.COMMITTED in needs(reset.spec) or reset.of_all_topics or reset.verbose
    committed = committed_offsets(cluster, asked, found) if wants_committed else {}
    scopes = _partitions_to_reset(cluster, reset, found, committed)
    plans = _plans(cluster, reset, scopes, committed, found)
    for note in dict.fromkeys(note for plan in plans.values() for note in plan.notes):
        asked.tell(note)
    new_offsets = {group_id: plan.offsets for group_id, plan in plans.items() if plan.offsets}
    if not reset.is_dry_run and new_offsets:
        new_offsets = _write(cluster, new_offsets, found)
    if reset.export:
        with_group = reset.scope.all_groups or reset.scope.is_wild or len(reset.scope.named) != 1
        write_to_stdout(export_text(new_offsets, with_group).encode())
    elif new_offsets:
        show(reset_table(new_offsets, committed if reset.verbose else None), asked.format)
    _tell_end(asked, reset, new_offsets, found)
    return found.status


def _refuse_active(found: Found) -> None:
    """Leave out the groups with members: what we write, they would overwrite."""
    for group in list(found.groups.values()):
        if not group.state.is_inactive:
            found.refuse(
                f"offsets can only be reset while nobody uses the group, and '{group.group_id}' is {group.state} with "
                f"{len(group.members)} {'member' if len(group.members) == 1 else 'members'}. Stop them first."
            )
            del found.groups[group.group_id]


def _partitions_to_reset(
    cluster: "Cluster", reset: Reset, found: Found, committed: Mapping[str, Mapping[TopicPartition, Committed]]
) -> dict[str, Iterable[TopicPartition]]:
    if isinstance(reset.spec, FromFile):
        scopes: dict[str, Iterable[TopicPartition]] = {each: reset.spec.of(each) for each in found.groups}
        if not (reset.scope.all_groups or reset.scope.is_wild):
            for group_id in [each for each, offsets in scopes.items() if not offsets]:
                found.refuse(f"the file has no offset for group '{group_id}'.")
        return scopes
    if reset.of_all_topics:
        return {group_id: committed[group_id] for group_id in found.groups}
    partitions, is_whole = list(reset.partitions), True
    for topic, answer in cluster.partitions_of(reset.topics).items():
        if isinstance(answer, Refusal):
            found.refuse(f"topic '{topic}': {reason(answer)}. Nothing is reset.")
            is_whole = False
        else:
            partitions += answer
    return dict.fromkeys(found.groups, partitions) if is_whole else {}


def _plans(
    cluster: "Cluster",
    reset: Reset,
    scopes: Mapping[str, Iterable[TopicPartition]],
    committed: Mapping[str, Mapping[TopicPartition, Committed]],
    found: Found,
) -> dict[str, Plan]:
    partitions = {partition for wanted in scopes.values() for partition in wanted}
    ends = cluster.end_offsets(partitions)
    wanted = needs(reset.spec)
    starts = cluster.start_offsets(ends.known).known if Need.LOG_START in wanted else {}
    times = {}
    if Need.TIME in wanted:
        times = cluster.offsets_at(ends.known, reset.spec.timestamp_ms).known  # type: ignore[union-attr]
    plans: dict[str, Plan] = {}
    for group_id, scope in scopes.items():
        own = {partition: commit.offset for partition, commit in committed.get(group_id, {}).items()}
        try:
            plans[group_id] = plan_reset(
                reset.spec, group_id, scope, Known(ends.known, starts, own, times, ends.refused)
            )
        except CannotReset as problem:
            found.refuse(str(problem))
    return plans


def _write(
    cluster: "Cluster", new_offsets: Mapping[str, Mapping[TopicPartition, int]], found: Found
) -> dict[str, dict[TopicPartition, int]]:
    """Returns what has been written."""
    refused = cluster.alter(new_offsets)
    for group_id, problems in refused.items():
        for refusal in dict.fromkeys(problems.values()):
            places = named([place for place, why in problems.items() if why == refusal])
            found.refuse(f"group '{group_id}': {places} was not reset: {reason(refusal)}.")
    written = {
        group_id: {place: offset for place, offset in offsets.items() if place not in refused.get(group_id, {})}
        for group_id, offsets in new_offsets.items()
    }
    return {group_id: offsets for group_id, offsets in written.items() if offsets}


def _tell_end(
    asked: Asked, reset: Reset, new_offsets: Mapping[str, Mapping[TopicPartition, int]], found: Found
) -> None:
    count = sum(map(len, new_offsets.values()))
    if not count:
        if not found.status:
            found.status = Status.NOTHING_MATCHED
            asked.tell(
                "nothing to reset: nothing was ever committed there. --topic NAME gives a group its first offsets."
            )
        return
    new = [group_id for group_id in new_offsets if found.groups[group_id].state is State.DEAD]
    if reset.is_dry_run:
        asked.tell(*(f"group '{group_id}' does not exist yet; --execute would create it." for group_id in new))
        if not reset.is_dry_run_said:
            asked.tell("a dry run: nothing was changed. Add --execute to reset these offsets.")
    else:
        asked.tell(f"{count:,} {'offset' if count == 1 else 'offsets'} reset.")


def would_delete(cluster: "Cluster", asked: Asked, scope: Scope) -> Status:
    """Show the groups that would be deleted; those that a cluster would refuse are named."""
    found = find(cluster, scope)
    for group in list(found.groups.values()):
        if not group.state.is_inactive:
            found.refuse(f"group '{group.group_id}' would not be deleted: {NEXT_STEPS['NON_EMPTY_GROUP']}.")
            del found.groups[group.group_id]
    committed = committed_offsets(cluster, asked, found)
    show(deletable_groups_table({each: len(offsets) for each, offsets in committed.items()}), asked.format)
    asked.tell("a dry run: nothing was deleted.")
    return found.status


def delete_groups(cluster: "Cluster", asked: Asked, scope: Scope) -> Status:
    """Delete groups with all they committed."""
    found, listed = Found({}), list[str]()
    if scope.all_groups or scope.is_wild:
        listings, refusals = cluster.listings()
        if refusals:
            say(f"not all groups could be listed, and none was deleted: {reason(refusals[0])}.")
            return Status.UNREACHABLE
        listed = [each.group_id for each in listings]
    group_ids = listed if scope.all_groups else named_groups(scope, listed, found)
    if not group_ids:
        if scope.all_groups:
            asked.tell("there are no groups.")
        return found.status
    outcomes = cluster.delete(group_ids)
    show(deleted_groups_table(outcomes), asked.format)
    refused = {group_id: refusal for group_id, refusal in outcomes.items() if refusal is not None}
    for group_id, refusal in refused.items():
        say(f"group '{group_id}' was not deleted: {reason(refusal)}.")
    if not refused:
        return found.status
    is_missing = all(refusal.code == "GROUP_ID_NOT_FOUND" for refusal in refused.values())
    return Status.NOTHING_MATCHED if is_missing else Status.REFUSED


def delete_offsets(
    cluster: "Cluster", asked: Asked, group_id: str, topics: Iterable[str], partitions: Iterable[TopicPartition]
) -> Status:
    """Forget what a group committed for some topics or partitions."""
    found = find(cluster, Scope((group_id,)))
    if not found.groups:
        return found.status
    (group_id,) = found.groups
    wanted, unknown = list(partitions), {}
    for topic, answer in cluster.partitions_of(topics).items():
        if isinstance(answer, Refusal):
            unknown[topic] = answer
            found.refuse(f"topic '{topic}': {reason(answer)}.")
        else:
            wanted += answer
    outcomes: dict[TopicPartition, Refusal | None] = {}
    if wanted:
        answered = cluster.delete_offsets(group_id, dict.fromkeys(wanted))
        outcomes = dict.fromkeys(wanted, answered) if isinstance(answered, Refusal) else answered
    show(deleted_offsets_table(group_id, outcomes, unknown), asked.format)
    for refusal in dict.fromkeys(why for why in outcomes.values() if why is not None):
        places = named([place for place, why in outcomes.items() if why == refusal])
        found.refuse(f"group '{group_id}': {places} was not forgotten: {reason(refusal)}.")
    return found.status
