"""What the commands that ask tables share: opening them, groups asked for, and of which moment an answer is."""

import time
from typing import TYPE_CHECKING

import typer

from muster.answers.levels import Level
from muster.cli.missing import about_compacted, about_missing
from muster.cli.options import option
from muster.cli.output import say
from muster.cli.people import counted, shown_duration, shown_moment
from muster.cli.status import Status
from muster.errors import BadInput
from muster.extras import TABLES, need
from muster.patterns import is_wild, literal, regex
from muster.tables.clocks import AGO, UNIT_MS, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muster.tables.reading import Tables

OLD_MS = 3_600_000
"""Tables older than this may be of yesterday's trouble: they are said to be old."""
MOST_NAMES = 8
"""Groups that are offered where a pattern stands for several."""

AS_OF = option(
    "--as-of", metavar="TIME", help="As of a moment: 14:05, 'yesterday 14:05', 2026-01-31T12:30, '2h ago', epoch ms."
)
EXITS = {Level.WELL: Status.OK, Level.WARNING: Status.WARNING, Level.ERROR: Status.ERROR}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def moment(text: str | None, name: str = "--as-of") -> int | None:
    try:
        return None if text is None else parse_time(text, now_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def since_when(text: str) -> tuple[int | None, int]:
    """`--since` as a moment, or (None, and) as a length of time before the answer's own moment."""
    length = AGO.fullmatch(text.strip())
    if length:
        return None, int(length[1]) * UNIT_MS[length[2]]
    return moment(text, "--since"), 0


def moment_of(tables: "Tables", as_of_ms: int | None) -> int:
    """The one clock of an answer: the moment asked for, or that of the tables."""
    return tables.manifest.moment_ms if as_of_ms is None else as_of_ms


def opened(address: str, storage_options: dict[str, str]) -> "Tables":
    need(TABLES, "asking tables")
    from muster.tables.reading import open_tables

    return open_tables(address, storage_options)


def need_tables(tables: "Tables", *names: str) -> None:
    """Refuse tables that lack what a question needs."""
    missing = [name for name in names if name not in tables.manifest.tables]
    if not missing:
        return
    lacking = f"the tables at {tables.store.address} have no {' and no '.join(missing)}"
    need_history(tables, lacking)
    raise BadInput(
        f"{lacking}: no run has made them yet. `muster pipeline run --source SOURCE --out {tables.store.address}`, "
        "without --no-analytics, makes them."
    )


def need_history(tables: "Tables", lacking: str | None = None) -> None:
    """Refuse tables of state alone."""
    if tables.manifest.source.get("history") is False:
        lacking = lacking or f"the tables at {tables.store.address} have no history"
        raise BadInput(
            f"{lacking}: they are of state alone (--state-only). `muster pipeline run --source SOURCE --out TABLES`, "
            "with another directory for TABLES, makes tables that have them."
        )


def tell_missing(tables: "Tables", patterns: "Sequence[str]", as_of_ms: int | None) -> list[str]:
    """Those of the patterns that no group is like; of each it is said why."""
    return tell_unmatched(tables, patterns, _names(tables, as_of_ms), as_of_ms) if patterns else []


def tell_unmatched(
    tables: "Tables", patterns: "Sequence[str]", known: "Sequence[str]", as_of_ms: int | None
) -> list[str]:
    """The same, where the groups that count are known."""
    missing = [pattern for pattern in patterns if not any(map(regex([pattern]).fullmatch, known))]
    for pattern in missing:
        if is_wild(pattern):
            say(f"no group matches '{pattern}'; there are {len(_names(tables, as_of_ms)):,}.")
        else:
            say(about_missing(tables, pattern) or f"the group '{literal(pattern)}' was not there then.")
    return missing


def unless_missing(status: Status, missing: "Sequence[str]") -> Status:
    """How a command ends that answered: not as if all were well where one of the groups asked for is not there."""
    return Status.NOTHING_MATCHED if missing and status is Status.OK else status


def one_group(tables: "Tables", pattern: str, as_of_ms: int | None) -> str | None:
    """The group that is meant; None, and it is said why, for a pattern that no group or several are like."""
    if not is_wild(pattern):
        return literal(pattern)
    found = [name for name in _names(tables, as_of_ms) if regex([pattern]).fullmatch(name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"'{name}'" for name in found[:MOST_NAMES])
    more = f" and {len(found) - MOST_NAMES:,} more" if len(found) > MOST_NAMES else ""
    if found:
        say(f"{len(found):,} groups match '{pattern}'. Did you mean one of {names}{more}?")
    else:
        tell_missing(tables, [pattern], as_of_ms)
    return None


def _names(tables: "Tables", as_of_ms: int | None) -> list[str]:
    rows = tables.asked(f"SELECT group_id FROM {tables.relation('groups', as_of_ms)} g ORDER BY group_id")
    return [name for (name,) in rows]


def check_known(tables: "Tables", as_of_ms: int | None) -> None:
    """Refuse a moment before all that is known: that nothing was there then must not look as if all were well."""
    if as_of_ms is not None:
        tables.check_moment(as_of_ms)
        if not tables.asked(f"SELECT 1 FROM {tables.relation('groups', as_of_ms)} g LIMIT 1"):
            tables.refuse_unknown(as_of_ms)


def tell_moment(tables: "Tables", as_of_ms: int | None) -> None:
    """Of which moment the answer is: on stderr in every format, so that rows stay rows."""
    manifest = tables.manifest
    if as_of_ms is not None:
        say(f"as of {shown_moment(as_of_ms)}{_newest(manifest.newest_record_ms, as_of_ms)}.")
        _tell_compacted(tables, as_of_ms, "of that moment")
        return
    looked_ms = manifest.observed_at_ms
    age_ms = max(now_ms() - looked_ms, 0)
    if manifest.moment_ms != looked_ms:
        read = f"read at {shown_moment(looked_ms)}, {shown_duration(age_ms)} ago"
        say(f"as of {shown_moment(manifest.moment_ms)}, the newest record; {read}.")
        return
    hint = " They are old: run `muster pipeline run` again, or with --follow." if age_ms > OLD_MS else ""
    newest = _newest(manifest.newest_record_ms, looked_ms)
    say(f"as of {shown_moment(looked_ms)}, {shown_duration(age_ms)} ago, when the pipeline last looked{newest}.{hint}")


def _newest(newest_ms: int | None, moment_ms: int) -> str:
    is_before = newest_ms is not None and newest_ms < moment_ms
    return f"; the newest record is of {shown_moment(newest_ms)}" if is_before else ""


def tell_compacted(tables: "Tables", since_ms: int, as_of_ms: int | None = None) -> None:
    """That not all is known of the time since a moment, if so; of the answer's own moment it is told anyway."""
    if as_of_ms is None:
        _tell_compacted(tables, since_ms, "of that time")


def _tell_compacted(tables: "Tables", since_ms: int, of_what: str) -> None:
    incomplete = tables.incomplete(since_ms)
    if incomplete:
        say(about_compacted(incomplete, of_what))


def are_or_is(number: int, of: int, thing: str) -> str:
    """`1 of 4 groups is`, `2 of 4 groups are`."""
    return f"{number:,} of {counted(of, thing)} {'is' if number == 1 else 'are'}"
