"""Questions as commands: what options mean. Nothing heavy is imported before there is something to ask."""

from dataclasses import dataclass
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
    storage_options,
)
from muster.cli.questions.asking import AS_OF, moment
from muster.cli.questions.completion import complete_group
from muster.cli.questions.watching import WATCH, watch_s
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.cli.questions.answering import Asked

ROWS_FOR_PEOPLE = 40

app = typer.Typer()

GroupPattern = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP",
        autocompletion=complete_group,
        help="This group, or those like it: * and ? are wildcards.",
        show_default=False,
    ),
]
OneGroup = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="The group.", show_default=False)
]
AsOf = Annotated[str | None, AS_OF]
Watch = Annotated[str | None, WATCH]
ByPartition = Annotated[bool, option("--partitions", help="A row for each partition, as for a single GROUP.")]


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every question."""

    tables: Annotated[str, TABLES] = ...  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None
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
    as_json: Annotated[
        bool, option("--json", panel=OUTPUT, help="An object a line; moments in UTC, lengths of time in ms.")
    ] = False
    as_csv: Annotated[bool, CSV] = False
    csv_exact: Annotated[bool, CSV_EXACT] = False
    wide: Annotated[bool, WIDE] = False
    debug: Annotated[bool, DEBUG] = False

    def asked(self, group: str | None = None, as_of: str | None = None, watch: str | None = None) -> "Asked":
        from muster.cli.questions.answering import Asked

        format = chosen_format(self.as_json, self.as_csv, self.csv_exact, self.wide)
        limit = (ROWS_FOR_PEOPLE if format.is_for_people else 0) if self.limit is None else self.limit
        groups = () if group is None else (group,)
        options = storage_options(self.storage_option)
        return Asked(self.tables, options, groups, moment(as_of), format, limit or None, watch_s(watch, as_of))


@command(app)
def lag(
    common: Common,
    group: GroupPattern = None,
    since: Annotated[
        str | None,
        option("--since", metavar="TIME", help="From when on the trend is shown: 6h, 14:05, yesterday. Default: 6h."),
    ] = None,
    as_of: AsOf = None,
    partitions: ByPartition = False,
    watch: Watch = None,
) -> Status:
    """Say who is behind, since when, and how that came; the furthest first.

    By partition where one GROUP is named. The trend has 24 points, its highest is the full block; < before a
    moment: it was behind then already.

    [bold]Examples[/bold]

    Who is behind?
      [cyan]muster lag --tables tables[/cyan]

    How did one group get there, by partition?
      [cyan]muster lag orders-app --tables tables --since 12h[/cyan]

    The total of each group, for a program:
      [cyan]muster lag --tables tables --json[/cyan]
    """
    from muster.cli.questions.lag import show_lag, window_of

    since_ms, length_ms = window_of(since)
    return show_lag(common.asked(group, as_of, watch), since_ms, length_ms, partitions)


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

    A reset is a step back while nobody was in the group, a rewind one with members in it.

    [bold]Examples[/bold]

    What happened to a group?
      [cyan]muster history orders-app --tables tables[/cyan]

    All of it, for a program:
      [cyan]muster history orders-app --tables tables --json[/cyan]
    """
    from muster.cli.questions.history import show_history

    return show_history(common.asked(group, as_of), moment(since, "--since"))


@command(app)
def compare(
    common: Common,
    before: Annotated[str, typer.Argument(metavar="T1", help="A moment: 14:05, 'yesterday 14:05', '2h ago', ...")],
    after: Annotated[str, typer.Argument(metavar="T2", help="A later one; now is the last run.")] = "now",
    group: GroupPattern = None,
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
    return show_compared(common.asked(group), before_ms, after_ms, partitions)
