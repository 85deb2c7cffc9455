"""Questions as commands: what options mean. Nothing heavy is imported before there is something to ask."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.bundles import command
from muster.cli.options import (
    CSV,
    CSV_EXACT,
    DEBUG,
    OUTPUT,
    STORAGE_OPTION,
    TABLES,
    WIDE,
    chosen_format,
    option,
    parse_length_s,
    storage_options,
)
from muster.cli.questions.asking import AS_OF, moment, since_when
from muster.cli.questions.completion import complete_group
from muster.cli.questions.watching import WATCH, watch_s
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.cli.questions.answering import Asked

ROWS_FOR_PEOPLE = 40
LINES_OF_A_FINDING = 4

app = typer.Typer()

GroupPatterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP",
        autocompletion=complete_group,
        help="Groups; * and ? are wildcards. Default: all.",
        show_default=False,
    ),
]
OneGroup = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        autocompletion=complete_group,
        help="The group; * and ? are wildcards, if one group alone is like that.",
        show_default=False,
    ),
]
AsOf = Annotated[str | None, AS_OF]
Watch = Annotated[str | None, WATCH]
ByPartition = Annotated[bool, option("--partitions", "-p", help="A row for each partition, as for a single GROUP.")]
AsJson = Annotated[
    bool, option("--json", panel=OUTPUT, help="An object a line; moments in UTC, lengths of time in ms.")
]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Opening:
    """The options of every question: where the tables are."""

    tables: Annotated[str, TABLES] = ...  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None
    debug: Annotated[bool, DEBUG] = False


@dataclass(frozen=True, slots=True)
class Common(Opening):
    """The options of every question whose answer is rows."""

    limit: Annotated[
        int | None,
        option(
            "--limit",
            "-n",
            panel=OUTPUT,
            metavar="N",
            min=0,
            help=f"At most N rows; 0 for all. Default: {ROWS_FOR_PEOPLE} as text, else all.",
        ),
    ] = None
    as_json: AsJson = False
    as_csv: Annotated[bool, CSV] = False
    csv_exact: Annotated[bool, CSV_EXACT] = False
    wide: Annotated[bool, WIDE] = False

    def asked(self, groups: Sequence[str] | None = (), as_of: str | None = None, watch: str | None = None) -> "Asked":
        from muster.cli.questions.answering import Asked

        format = chosen_format(self.as_json, self.as_csv, self.csv_exact, self.wide)
        limit = (ROWS_FOR_PEOPLE if format.is_for_people else 0) if self.limit is None else self.limit
        options = storage_options(self.storage_option)
        every_s = watch_s(watch, as_of)
        return Asked(self.tables, options, tuple(groups or ()), moment(as_of), format, limit or None, every_s)


@command(app)
def status(
    common: Common,
    group: GroupPatterns = None,
    as_of: AsOf = None,
    partitions: ByPartition = False,
    problems: Annotated[bool, option("--problems", help="Only what is not OK.")] = False,
    max_age: Annotated[
        str | None,
        option("--max-age", metavar="LENGTH", help="A warning if the last run looked longer ago than this: 15m, 2h."),
    ] = None,
    watch: Watch = None,
) -> Status:
    """Who is well and who is not: a verdict on each group, by how its commits move. Exits with 0, 10 or 11, for cron.

    OK; WARN: the lag only grows; STALLED: commits go on with the same offset; STOPPED: no commits any more; REWIND:
    went back; LOSING: records were deleted before they were read; EXPIRING: the offset will be deleted soon. A group
    has the worst verdict of its partitions.

    [bold]Examples[/bold]

    Are all groups well? For cron: exit code 0 all well, 10 a warning (also: the pipeline no longer runs), 11 an error.
      [cyan]muster status --tables tables --max-age 15m[/cyan]

    One group, partition by partition:
      [cyan]muster status orders-app --tables tables[/cyan]

    And yesterday at five past two, for a program:
      [cyan]muster status 'orders-*' --tables tables --as-of 'yesterday 14:05' --json[/cyan]
    """
    from muster.cli.questions.status import show_status

    max_age_s = None if max_age is None else parse_length_s("--max-age", max_age)
    return show_status(common.asked(group, as_of, watch), partitions, problems, max_age_s)


@command(app)
def why(
    opening: Opening,
    group: OneGroup,
    since: Annotated[
        str,
        option("--since", metavar="TIME", help="From when on events are told: 6h, 14:05, yesterday. Default: 24h."),
    ] = "24h",
    as_of: AsOf = None,
    as_json: Annotated[bool, option("--json", help="One object: the facts behind the words.")] = False,
) -> Status:
    """One page in words: what this group is, how it does and since when, what happened to it, and what to do.

    Exits like `muster status`: 0 all well, 10 a warning, 11 an error.

    [bold]Examples[/bold]

    What happened to a group, and what is to be done?
      [cyan]muster why orders-app --tables tables[/cyan]

    And what would it have said yesterday, of the week before?
      [cyan]muster why orders-app --tables tables --as-of 'yesterday 14:05' --since 7d[/cyan]
    """
    from muster.cli.questions.why import show_why

    common = Common(opening.tables, opening.storage_option, as_json=as_json)
    return show_why(common.asked(as_of=as_of), group, *since_when(since))


@command(app)
def findings(
    common: Common,
    group: GroupPatterns = None,
    severity: Annotated[
        list[Severity] | None,
        option("--severity", "-s", metavar="SEVERITY", help="error, warning or info; repeatable. Default: all."),
    ] = None,
    as_of: AsOf = None,
    watch: Watch = None,
) -> Status:
    """What should be looked at: stuck, rewound and flapping groups, lost records, damage; each with what to do.

    [bold]Examples[/bold]

    What should be looked at, and what is to be done? Exit code 0 nothing, 10 a warning, 11 an error.
      [cyan]muster findings --tables tables[/cyan]

    Errors alone, of some groups, for a program:
      [cyan]muster findings 'orders-*' --tables tables --severity error --json[/cyan]
    """
    from muster.cli.questions.findings import show_findings

    asked = replace(common.asked(group, as_of, watch), lines_a_row=LINES_OF_A_FINDING)
    return show_findings(asked, [each.value for each in severity or Severity])


@command(app)
def expiring(
    common: Common,
    group: GroupPatterns = None,
    within: Annotated[
        str, option("--within", metavar="LENGTH", help="How far to look ahead: 12h, 2d, 1w. Default: 2d.")
    ] = "2d",
    as_of: AsOf = None,
    watch: Watch = None,
) -> Status:
    """What the broker will delete, and when: offsets and whole groups, by its own rules, if nothing more happens.

    A row without a topic is the group itself. The broker looks every ten minutes or so, so it may be a little later. IN
    counts from the moment of the answer; what is due by then goes at its next look.

    [bold]Examples[/bold]

    Which offsets will be gone within two days, if nothing more is committed?
      [cyan]muster expiring --tables tables[/cyan]

    Within a week, of some groups, for a program:
      [cyan]muster expiring 'nightly-*' --tables tables --within 7d --json[/cyan]
    """
    from muster.cli.questions.expiring import show_expiring

    return show_expiring(common.asked(group, as_of, watch), int(parse_length_s("--within", within) * 1000))


@command(app)
def lag(
    common: Common,
    group: GroupPatterns = None,
    since: Annotated[
        str,
        option("--since", metavar="TIME", help="From when on the trend is shown: 6h, 14:05, yesterday. Default: 6h."),
    ] = "6h",
    as_of: AsOf = None,
    partitions: ByPartition = False,
    watch: Watch = None,
) -> Status:
    """Say who is behind, since when, and how that came; the furthest first.

    By partition where one GROUP is named. The trend has 24 points, its highest is the full block; < before a
    moment: it was behind then already; ? instead of one: no look saw it begin.

    [bold]Examples[/bold]

    Who is behind?
      [cyan]muster lag --tables tables[/cyan]

    How did one group get there, by partition?
      [cyan]muster lag orders-app --tables tables --since 12h[/cyan]

    The total of each group, for a program:
      [cyan]muster lag --tables tables --json[/cyan]
    """
    from muster.cli.questions.lag import show_lag

    return show_lag(common.asked(group, as_of, watch), *since_when(since), partitions)


@command(app)
def history(
    common: Common,
    group: OneGroup,
    since: Annotated[
        str | None,
        option("--since", metavar="TIME", help="From when on: 14:05, yesterday, 2026-01-31, 6h. Default: all."),
    ] = None,
    as_of: AsOf = None,
) -> Status:
    """Show what happened to a group, in order: rebalances, resets, deletions, verdicts; commits in between are counted.

    A reset is a step back while the group had no members, a rewind one with members in it.

    [bold]Examples[/bold]

    What happened to a group?
      [cyan]muster history orders-app --tables tables[/cyan]

    All of it, for a program:
      [cyan]muster history orders-app --tables tables --json[/cyan]
    """
    from muster.cli.questions.history import show_history

    since_ms, length_ms = (None, 0) if since is None else since_when(since)
    return show_history(common.asked(as_of=as_of), group, since_ms, length_ms)


@command(app)
def compare(
    common: Common,
    before: Annotated[str, typer.Argument(metavar="T1", help="A moment: 14:05, 'yesterday 14:05', '2h ago', ...")],
    after: Annotated[str, typer.Argument(metavar="T2", help="A later one; now is the last run.")] = "now",
    group: GroupPatterns = None,
    partitions: ByPartition = False,
) -> Status:
    """Show what changed between two moments: members, offsets and lag, then and then.

    Groups, those first whose lag changed most; by partition where one GROUP is named.

    [bold]Examples[/bold]

    What has changed since eight?
      [cyan]muster compare 8:00 now --tables tables[/cyan]

    Which partitions of a group?
      [cyan]muster compare 8:00 now orders-app --tables tables[/cyan]
    """
    from muster.cli.questions.compare import show_compared

    after_ms = None if after == "now" else moment(after, "T2")
    before_ms = moment(before, "T1")
    assert before_ms is not None
    if after_ms is not None and before_ms >= after_ms:
        raise typer.BadParameter("it is not after T1. Write the earlier moment first", param_hint="T2")
    return show_compared(common.asked(), group or (), before_ms, after_ms, partitions)


@command(app, no_args_is_help=True)
def sql(
    common: Common,
    statement: Annotated[
        str | None,
        typer.Argument(
            metavar="STATEMENT", help="SQL as duckdb has it; - reads it from standard input.", show_default=False
        ),
    ] = None,
    file: Annotated[
        Path | None, option("--file", "-f", metavar="FILE", readable=False, help="The statement is in a file.")
    ] = None,
    as_of: AsOf = None,
) -> Status:
    """Ask in SQL: every table of docs/pipeline.md by its name, as the last run left it. Nothing can be changed.

    Times are timestamps in UTC; `at` is a word of SQL, so the column is written "at". A statement reads the tables and
    nothing else: no other files, no network.

    [bold]Examples[/bold]

    Who has lost records?
      [cyan]muster sql "SELECT group_id, topic, lost_records FROM lag WHERE lost_records > 0" --tables tables[/cyan]

    The worst lag of each group, as CSV:
      [cyan]muster sql "SELECT group_id, max(lag) FROM lag_history GROUP BY 1" --tables tables --csv[/cyan]

    What is there to ask?
      [cyan]muster sql "DESCRIBE lag" --tables tables[/cyan]
    """
    from muster.cli.questions.sql import show_answer, statement_of

    return show_answer(common.asked(as_of=as_of), statement_of(statement, file))
