"""`muster compare`: what changed between two moments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.output import say
from muster.cli.people import counted, shown_moment
from muster.cli.questions.answering import Asked, ask, write_rows
from muster.cli.questions.asking import moment_of, tell_compacted, tell_missing, tell_unmatched, unless_missing
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Shown, Table
from muster.errors import BadInput
from muster.patterns import is_wild

if TYPE_CHECKING:
    from muster.answers.compare import GroupChange, PartitionChange
    from muster.tables.reading import Tables


def show_compared(
    asked: Asked, groups_like: Sequence[str], before_ms: int, after_ms: int | None, by_partition: bool
) -> Status:
    """Groups that changed, or partitions where one group is named. One may be gone since, or not have been there."""
    of_one = len(groups_like) == 1 and not is_wild(groups_like[0])

    def answer(tables: "Tables") -> Status:
        from muster.answers.compare import GroupChange, PartitionChange, group_changes, partition_changes

        until_ms = moment_of(tables, after_ms)
        for moment_ms in (before_ms, after_ms):
            if moment_ms is not None:
                tables.check_moment(moment_ms, option="")
        if before_ms >= until_ms:
            raise BadInput(f"{shown_moment(before_ms)} is not before {shown_moment(until_ms)}, where the tables end.")
        groups = group_changes(tables, before_ms, after_ms, groups_like)
        if all(group.state_before is None for group in groups):
            tables.refuse_unknown(before_ms, option="")
        tell_compacted(tables, before_ms)
        if not groups and groups_like:
            tell_missing(tables, groups_like, after_ms)
            return Status.NOTHING_MATCHED
        missing = tell_unmatched(tables, groups_like, [group.group_id for group in groups], after_ms)
        if of_one or by_partition:
            partitions = partition_changes(tables, before_ms, after_ms, groups_like)
            write_rows(asked, partitions, PartitionChange, _partition_table)
        else:
            changed = [group for group in groups if group.has_changed]
            write_rows(asked, changed, GroupChange, _group_table)
            say(f"{len(changed):,} of {counted(len(groups), 'group')} changed.")
        for group in groups if of_one else ():
            say(_members(group))
        say(f"from {shown_moment(before_ms)} to {shown_moment(until_ms)}.")
        return unless_missing(Status.OK, missing)

    return ask(asked, answer)


def _members(group: "GroupChange") -> str:
    who = [*(f"+{one}" for one in group.joined), *(f"-{one}" for one in group.left)]
    return f"members: {step(group.members_before, group.members_after)}{': ' + ' '.join(who) if who else ''}."


def _group_table(rows: Sequence["GroupChange"]) -> Table:
    columns = (
        Column("GROUP", "group_id"),
        Column("LAG", "lag"),
        Column("CONSUMED", "consumed", Kind.NUMBER),
        Column("BACK", "rewound", Kind.NUMBER, Shown.IF_ANY),
        Column("MEMBERS", "members"),
        Column("GENERATION", "generation", short="GEN", spare=2),
        Column("PARTITIONS", "partitions", short="PARTS", spare=3),
        Column("STATE", "state", spare=1),
    )
    return Table(columns, [_group_row(each) for each in rows])


def _group_row(each: "GroupChange") -> tuple[Any, ...]:
    return (
        each.group_id,
        step(each.lag_before, each.lag_after),
        each.consumed,
        each.rewound or None,
        step(each.members_before, each.members_after),
        step(each.generation_before, each.generation_after),
        step(each.partitions_before, each.partitions_after),
        step(each.state_before, each.state_after),
    )


def _partition_table(rows: Sequence["PartitionChange"]) -> Table:
    of_one = len({each.group_id for each in rows}) == 1
    columns = (
        Column("GROUP", "group_id", shown=Shown.TO_PROGRAMS if of_one else Shown.ALWAYS),
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
        Column("COMMITTED", "committed_offset"),
        Column("MOVED", "moved", Kind.NUMBER),
        Column("LAG", "lag"),
        Column("BEFORE", "member_before", Kind.MEMBER, spare=2),
        Column("AFTER", "member_after", Kind.MEMBER, spare=1),
    )
    return Table(columns, [_partition_row(each) for each in rows])


def _partition_row(each: "PartitionChange") -> tuple[Any, ...]:
    place = each.group_id, each.topic, each.partition
    committed = step(each.committed_before, each.committed_after)
    return *place, committed, each.moved, step(each.lag_before, each.lag_after), each.member_before, each.member_after


def step(before: Any, after: Any) -> str:
    """`3 → 5`, or the one value where they are the same."""
    texts = ["?" if value is None else str(value) for value in (before, after)]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)
