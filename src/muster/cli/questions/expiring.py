"""`muster expiring`: what the broker will delete, and when."""

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
    parse_length_s,
    storage_options,
)
from muster.cli.output import say
from muster.cli.people import shown_duration
from muster.cli.questions.asking import (
    AS_JSON,
    AS_OF,
    LIMIT,
    check_groups,
    check_known,
    first,
    moment,
    need_tables,
    now_ms,
    opened,
    tell_moment,
    view,
)
from muster.cli.questions.completion import complete_group
from muster.cli.questions.watching import WATCH, again, rows_on_screen, watch_s
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, show

if TYPE_CHECKING:
    from muster.tables.reading import Tables

EPILOG = """
[bold]Examples[/bold]

Which offsets will be gone within two days, if nothing more is committed?
  [cyan]muster expiring --tables tables[/cyan]

Within a week, of some groups, for a program:
  [cyan]muster expiring 'nightly-*' --tables tables --within 7d --json[/cyan]
"""

GROUPS = typer.Argument(
    metavar="GROUP",
    autocompletion=complete_group,
    help="Groups; * and ? are wildcards. Default: all.",
    show_default=False,
)
WITHIN = option("--within", metavar="LENGTH", help="How far to look ahead: 12h, 2d, 1w. Default: 2d.")

COLUMNS = (
    Column("GROUP", "group_id"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    Column("EXPIRES", "expires_at", Kind.TIME_MS),
    Column("IN", "in_ms", Kind.LENGTH_MS),
    Column("WHY", "rule", spare=2),
    Column("COMMITTED", "committed_offset", Kind.NUMBER, spare=3),
    Column("LAG", "lag", Kind.LAG, spare=1),
)


def expiring(
    group: Annotated[list[str] | None, GROUPS] = None,
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    within: Annotated[str, WITHIN] = "2d",
    as_of: Annotated[str | None, AS_OF] = None,
    limit: Annotated[int | None, LIMIT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    as_csv: Annotated[bool, CSV] = False,
    csv_exact: Annotated[bool, CSV_EXACT] = False,
    wide: Annotated[bool, WIDE] = False,
    watch: Annotated[str | None, WATCH] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """What the broker will delete, and when: offsets and whole groups, by its own rules, if nothing more happens.

    A row without a topic is the group itself. The broker looks every ten minutes or so, so it may be a little later.
    """
    format, every_s = chosen_format(as_json, as_csv, csv_exact, wide), watch_s(watch, as_of)
    limit = rows_on_screen(limit, every_s)
    groups, as_of_ms, options = group or [], moment(as_of), storage_options(storage_option)
    within_ms = int(parse_length_s("--within", within) * 1000)

    def answer() -> Status:
        with opened(tables, options) as found:
            return _answer(found, groups, as_of_ms, within_ms, limit, format)

    return again(every_s, answer)


def _answer(
    tables: "Tables", groups: list[str], as_of_ms: int | None, within_ms: int, limit: int | None, format: Format
) -> Status:
    from muster.answers.expiring import Expiring, expiring

    from_ms = now_ms() if as_of_ms is None else as_of_ms
    need_tables(tables, "expiry")
    check_known(tables, as_of_ms)
    rows = expiring(tables, from_ms + within_ms, from_ms, groups, as_of_ms)
    if not rows and groups and not check_groups(tables, groups, rows, as_of_ms):
        return Status.NOTHING_MATCHED
    tell_moment(tables, as_of_ms)
    show(view(first(rows, limit, is_for_people=format.is_for_people), Expiring._fields, COLUMNS, format), format)
    if not rows and format.is_for_people:
        say(f"nothing expires within {shown_duration(within_ms)}.")
    return Status.OK
