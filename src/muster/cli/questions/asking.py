"""What the commands that ask tables share: their options, opening the tables, and of which moment an answer is."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from muster.answers.levels import Level
from muster.cli.options import OUTPUT, Format, option
from muster.cli.output import missing_group, say
from muster.cli.people import shown_duration, shown_moment
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Table
from muster.errors import BadInput
from muster.extras import TABLES, need
from muster.patterns import is_wild, literal
from muster.tables.clocks import parse_time

if TYPE_CHECKING:
    from muster.tables.reading import Tables

MOST_ROWS = 200
"""For people, unless they ask for more."""
LENGTHS = frozenset({"lag_ms", "retention_ms", "in_ms"})
"""Fields that end in `_ms` and are no moments."""
OLD_MS = 3_600_000
"""Tables older than this may be of yesterday's trouble: they are said to be old."""

AS_OF = option(
    "--as-of", metavar="TIME", help="As of a moment: 14:05, 'yesterday 14:05', 2026-01-31T12:30, '2h ago', epoch ms."
)
LIMIT = option(
    "--limit", "-n", panel=OUTPUT, metavar="N", min=0, help=f"At most N rows; 0 for all. Default: {MOST_ROWS}."
)
AS_JSON = option("--json", panel=OUTPUT, help="An object a line, with the names of the tables' columns.")
EXITS = {Level.WELL: Status.OK, Level.WARNING: Status.WARNING, Level.ERROR: Status.ERROR}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def moment(text: str | None, name: str = "--as-of") -> int | None:
    try:
        return None if text is None else parse_time(text, now_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def opened(address: str, storage_options: dict[str, str]) -> "Tables":
    need(TABLES, "asking tables")
    from muster.tables.reading import open_tables

    return open_tables(address, storage_options)


def need_tables(tables: "Tables", *names: str) -> None:
    """Refuse tables that lack what a question needs."""
    missing = [name for name in names if name not in tables.manifest.tables]
    if not missing:
        return
    is_bare = tables.manifest.source.get("history") is False
    why = "they are of state alone (--state-only)" if is_bare else "no run has made them yet"
    raise BadInput(
        f"the tables at {tables.store.address} have no {' and no '.join(missing)}: {why}. "
        f"`muster pipeline run --source SOURCE --out {tables.store.address}`, without --state-only and --no-analytics, "
        "makes them."
    )


def check_groups(tables: "Tables", groups: Sequence[str], found: Sequence[Any], as_of_ms: int | None = None) -> bool:
    """Whether there is something to show; if not, it is said why."""
    if found or not groups:
        return bool(found)
    known = [row[0] for row in tables.asked(f"SELECT group_id FROM {tables.relation('groups', as_of_ms)} g")]
    for pattern in groups:
        if is_wild(pattern):
            say(f"no group matches '{pattern}'; there are {len(known):,}.")
        elif literal(pattern) not in known:
            say(missing_group(literal(pattern), known, "`muster status` shows all"))
        else:
            say(f"there is nothing to tell of {literal(pattern)}.")
    return False


def check_known(tables: "Tables", as_of_ms: int | None) -> None:
    """Refuse a moment before all that is known: that nothing was there then must not look as if all were well."""
    if as_of_ms is not None:
        tables.check_moment(as_of_ms)
        if not tables.asked(f"SELECT 1 FROM {tables.relation('groups', as_of_ms)} g LIMIT 1"):
            tables.refuse_unknown(as_of_ms)


def tell_moment(tables: "Tables", as_of_ms: int | None) -> None:
    """Of which moment the answer is: on stderr in every format, so that rows stay rows."""
    if as_of_ms is not None:
        say(f"as of {shown_moment(as_of_ms)}.")
        return
    looked_ms = tables.manifest.observed_at_ms
    age_ms = max(now_ms() - looked_ms, 0)
    hint = " They are old: run `muster pipeline run` again, or with --follow." if age_ms > OLD_MS else ""
    say(f"as of {shown_moment(looked_ms)}, {shown_duration(age_ms)} ago, when the pipeline last looked.{hint}")


def view(rows: Sequence[Any], fields: Sequence[str], columns: tuple[Column, ...], format: Format) -> Table:
    """Rows as a table: for people in some columns, for programs in all fields, moments by their published names."""
    if not format.is_for_people:
        columns = tuple(_of_field(name) for name in fields)
    return Table(columns, [tuple(_cell(row, column.key) for column in columns) for row in rows])


def _of_field(name: str) -> Column:
    is_moment = name.endswith("_ms") and name not in LENGTHS
    return Column("", name.removesuffix("_ms") if is_moment else name, Kind.TIME_MS if is_moment else Kind.NUMBER)


def _cell(row: Any, key: str) -> Any:
    return getattr(row, key) if hasattr(row, key) else getattr(row, f"{key}_ms")


def first(rows: Sequence[Any], limit: int | None, *, is_for_people: bool) -> Sequence[Any]:
    """As many rows as are wanted; people are told of the others."""
    most = limit if limit is not None else MOST_ROWS if is_for_people else 0
    if not most or len(rows) <= most:
        return rows
    say(f"{len(rows) - most:,} more are not shown. --limit 0 shows all, --json and --csv do too.")
    return rows[:most]
