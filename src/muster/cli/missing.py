"""What is not among the rows of tables, and why: a group that was asked for, what compaction took."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from muster.cli.output import missing_group
from muster.cli.people import shown_moment
from muster.patterns import is_wild, literal

if TYPE_CHECKING:
    from muster.tables.reading import GroupEnd, Tables

MOST_PARTITIONS_TOLD = 5


def about_missing(tables: "Tables", pattern: str) -> str:
    """A sentence about a group that is not there, with a next step; "" for one that is, and for a pattern."""
    if is_wild(pattern):
        return ""
    group_id = literal(pattern)
    known = [name for (name,) in tables.asked(f"SELECT group_id FROM {tables.relation('groups')} g")]
    if group_id in known:
        return ""
    end = tables.end_of_group(group_id)
    return missing_group(group_id, known, "`muster table groups` shows all") if end is None else _deleted(group_id, end)


def _deleted(group: str, end: "GroupEnd") -> str:
    """With the last of its offsets a group is gone, however that came."""
    how = {"expired": "is gone: its offsets expired", "vanished": "was deleted between two runs"}
    when = ", nobody saw when" if end.deleted_at_ms is None else f" at {shown_moment(end.deleted_at_ms)}"
    hint = "" if end.last_seen_ms is None else f" --as-of {end.last_seen_ms} shows it as it was last seen."
    return f"the group '{group}' {how.get(end.kind, 'was deleted')}{when}.{hint}"


def about_compacted(complete_since: Mapping[int, int | None], of_what: str = "of that moment") -> str:
    """A sentence about partitions of the log whose history begins later than a moment (`Tables.incomplete`)."""
    told = [
        f"{number} (complete since {shown_moment(since) if since is not None else 'nobody knows when'})"
        for number, since in list(complete_since.items())[:MOST_PARTITIONS_TOLD]
    ]
    more = len(complete_since) - len(told)
    rest = f" and {more:,} more" if more else ""
    return (
        "the log had been compacted before it was first read, so of these partitions of __consumer_offsets not all is "
        f"known {of_what}: {', '.join(told)}{rest}. A key that is not shown is unknown, not absent."
    )
