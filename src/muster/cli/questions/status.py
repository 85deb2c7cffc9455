"""`muster status`: who is well, and who is not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.options import (
    CSV,
    CSV_EXACT,
    DEBUG,
    STORAGE_OPTION,
    TABLES,
    WIDE,
    Format,
    chosen_format,
    option,
    storage_options,
)
from muster.cli.output import say
from muster.cli.questions.asking import (
    AS_JSON,
    AS_OF,
    EXITS,
    LIMIT,
    check_groups,
    check_known,
    first,
    moment,
    need_tables,
    opened,
    tell_moment,
    view,
)
from muster.cli.questions.completion import complete_group
from muster.cli.questions.watching import WATCH, again, rows_on_screen, watch_s
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Shown, show
from muster.patterns import is_wild

if TYPE_CHECKING:
    from muster.answers.status import GroupStatus, PartitionStatus
    from muster.tables.reading import Tables

EPILOG = """
[bold]Examples[/bold]

Is everybody well? For cron: exit code 0 all well, 10 a warning, 11 an error.
  [cyan]muster status --tables tables[/cyan]

One group, partition by partition:
  [cyan]muster status orders-app --tables tables[/cyan]

And yesterday at five past two, for a program:
  [cyan]muster status 'orders-*' --tables tables --as-of 'yesterday 14:05' --json[/cyan]
"""

GROUPS = typer.Argument(
    metavar="GROUP",
    autocompletion=complete_group,
    help="Groups; * and ? are wildcards. Default: all.",
    show_default=False,
)
PARTITIONS = option("--partitions", "-p", help="Partition by partition; one group by its name is shown so anyway.")
PROBLEMS = option("--problems", help="Only what is not OK.")

GROUP_COLUMNS = (
    Column("GROUP", "group_id"),
    Column("VERDICT", "worst"),
    Column("SINCE", "verdict_since", Kind.TIME_MS),
    Column("LAG", "lag", Kind.LAG),
    Column("BEHIND", "lag_ms", Kind.LENGTH_MS),
    Column("WHERE", "where", spare=1),
    Column("NOT-OK", "partitions_not_ok", Kind.NUMBER, spare=4),
    Column("PARTITIONS", "partitions", Kind.NUMBER, short="PARTS", spare=5),
    Column("STATE", "state", Kind.STATE, spare=2),
    Column("MEMBERS", "members", Kind.NUMBER, spare=3),
    Column("LAST-COMMIT", "last_commit", Kind.TIME_MS, spare=6),
    Column("EXPIRES", "expires_at", Kind.TIME_MS, shown=Shown.IF_ANY, spare=7),
)
PARTITION_COLUMNS = (
    Column("GROUP", "group_id"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    Column("VERDICT", "verdict"),
    Column("SINCE", "verdict_since", Kind.TIME_MS),
    Column("LAG", "lag", Kind.LAG),
    Column("BEHIND", "lag_ms", Kind.LENGTH_MS),
    Column("COMMITTED", "committed_offset", Kind.NUMBER, spare=3),
    Column("END", "log_end_offset", Kind.NUMBER, spare=4),
    Column("LOST", "lost_records", Kind.NUMBER, shown=Shown.IF_ANY, spare=2),
    Column("LAST-COMMIT", "last_commit", Kind.TIME_MS, spare=1),
    Column("EXPIRES", "expires_at", Kind.TIME_MS, shown=Shown.IF_ANY, spare=5),
)


def status(
    group: Annotated[list[str] | None, GROUPS] = None,
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    as_of: Annotated[str | None, AS_OF] = None,
    partitions: Annotated[bool, PARTITIONS] = False,
    problems: Annotated[bool, PROBLEMS] = False,
    limit: Annotated[int | None, LIMIT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    as_csv: Annotated[bool, CSV] = False,
    csv_exact: Annotated[bool, CSV_EXACT] = False,
    wide: Annotated[bool, WIDE] = False,
    watch: Annotated[str | None, WATCH] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """Who is well and who is not: a verdict on each group, by how its commits move. Exits with 0, 10 or 11, for cron.

    OK; WARN: the lag only grows; STALLED: commits go on with the same offset; STOPPED: no commits any more; REWIND:
    went back; LOSING: records were deleted before they were read; EXPIRING: the offset will be deleted soon.
    """
    format, every_s = chosen_format(as_json, as_csv, csv_exact, wide), watch_s(watch, as_of)
    limit = rows_on_screen(limit, every_s)
    groups, as_of_ms, options = group or [], moment(as_of), storage_options(storage_option)

    def answer() -> Status:
        with opened(tables, options) as found:
            return _answer(found, groups, as_of_ms, partitions, problems, limit, format)

    return again(every_s, answer)


def _answer(
    tables: "Tables",
    groups: list[str],
    as_of_ms: int | None,
    partitions: bool,
    problems: bool,
    limit: int | None,
    format: Format,
) -> Status:
    from muster.answers.status import GroupStatus, PartitionStatus, group_status, level_of, partition_status, told

    by_partition = partitions or (len(groups) == 1 and not is_wild(groups[0]))
    need_tables(tables, "status", "expiry")
    check_known(tables, as_of_ms)
    judged = group_status(tables, groups, as_of_ms)
    rows: Sequence[GroupStatus | PartitionStatus]
    rows = partition_status(tables, groups, as_of_ms) if by_partition else judged
    if not check_groups(tables, groups, judged, as_of_ms):
        return Status.NOTHING_MATCHED if groups else Status.OK
    if problems:
        rows = [row for row in rows if _verdict(row) not in ("OK", None)]
    tell_moment(tables, as_of_ms)
    shown = first(rows, limit, is_for_people=format.is_for_people)
    kind = PartitionStatus if by_partition else GroupStatus
    show(view(shown, kind._fields, PARTITION_COLUMNS if by_partition else GROUP_COLUMNS, format), format)
    if format.is_for_people:
        say(told(judged) + ".")
    return EXITS[level_of(each.verdict for each in judged)]


def _verdict(row: "GroupStatus | PartitionStatus") -> str | None:
    return getattr(row, "worst", row.verdict)
