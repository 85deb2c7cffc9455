"""`muster status`: who is well, and who is not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.answers.levels import Level
from muster.cli.output import say
from muster.cli.people import shown_duration
from muster.cli.questions.answering import Asked, ask, table_of, write_rows
from muster.cli.questions.asking import EXITS, now_ms
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Shown

if TYPE_CHECKING:
    from muster.answers.status import GroupStatus, PartitionStatus
    from muster.tables.reading import Tables

GROUP_COLUMNS = (
    Column("GROUP", "group_id"),
    Column("VERDICT", "verdict", Kind.VERDICT),
    Column("SINCE", "verdict_since_ms", Kind.TIME_MS),
    Column("LAG", "lag", Kind.LAG),
    Column("BEHIND", "lag_ms", Kind.LENGTH_MS),
    Column("WHERE", "where", spare=1),
    Column("NOT-OK", "partitions_not_ok", Kind.NUMBER, spare=4),
    Column("PARTITIONS", "partitions", Kind.NUMBER, short="PARTS", spare=5),
    Column("STATE", "state", Kind.STATE, spare=2),
    Column("MEMBERS", "members", Kind.NUMBER, spare=3),
    Column("LAST-COMMIT", "last_commit_ms", Kind.TIME_MS, spare=6),
    Column("EXPIRES", "expires_at_ms", Kind.TIME_MS, shown=Shown.IF_ANY, spare=7),
)
PARTITION_COLUMNS = (
    Column("GROUP", "group_id"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    Column("VERDICT", "verdict", Kind.VERDICT),
    Column("SINCE", "verdict_since_ms", Kind.TIME_MS),
    Column("LAG", "lag", Kind.LAG),
    Column("BEHIND", "lag_ms", Kind.LENGTH_MS),
    Column("COMMITTED", "committed_offset", Kind.NUMBER, spare=3),
    Column("END", "log_end_offset", Kind.NUMBER, spare=4),
    Column("LOST", "lost_records", Kind.NUMBER, shown=Shown.IF_ANY, spare=2),
    Column("LAST-COMMIT", "last_commit_ms", Kind.TIME_MS, spare=1),
    Column("EXPIRES", "expires_at_ms", Kind.TIME_MS, shown=Shown.IF_ANY, spare=5),
)


def show_status(asked: Asked, by_partition: bool, problems: bool, max_age_s: float | None = None) -> Status:
    """The worst first: groups, or partitions where one group is named."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.status import GroupStatus, PartitionStatus, group_status, level_of, partition_status, told

        judged = group_status(tables, asked.groups, asked.as_of_ms)
        if asked.is_of_one or by_partition:
            partitions = _chosen(partition_status(tables, asked.groups, asked.as_of_ms), problems)
            write_rows(asked, partitions, PartitionStatus, table_of(PARTITION_COLUMNS))
        else:
            write_rows(asked, _chosen(judged, problems), GroupStatus, table_of(GROUP_COLUMNS))
        if asked.format.is_for_people:
            say(told(judged) + ".")
        if judged and all(each.verdict is None for each in judged):
            say("nothing could be judged: no end of a log was seen, or nothing was committed for a week.")
        return EXITS[max(level_of(each.verdict for each in judged), _level_of_age(tables, max_age_s))]

    return ask(asked, answer, "status", "expiry")


def _level_of_age(tables: "Tables", max_age_s: float | None) -> Level:
    """What was well when the pipeline last looked may not be any more."""
    age_ms = now_ms() - tables.manifest.observed_at_ms
    if max_age_s is None or age_ms <= max_age_s * 1000:
        return Level.WELL
    say(f"the last look was {shown_duration(age_ms)} ago, longer than --max-age. Does `muster pipeline run` still run?")
    return Level.WARNING


def _chosen(rows: "Sequence[GroupStatus | PartitionStatus]", problems: bool) -> Sequence[Any]:
    return [row for row in rows if row.verdict not in ("OK", None)] if problems else rows
