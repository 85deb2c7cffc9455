"""An answer as rows: asked once or again and again, written for people or for programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.cli.lines import csv_lines, csv_value, json_lines
from muster.cli.missing import about_missing
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.questions.asking import check_known, opened, tell_moment
from muster.cli.questions.watching import again, rows_on_screen
from muster.cli.status import Status
from muster.cli.tabular import Table, show

if TYPE_CHECKING:
    from muster.tables.reading import Tables


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, checked and complete. `limit` None is none, `watch_s` None is once."""

    tables: str
    storage_options: dict[str, str]
    groups: tuple[str, ...]
    """Patterns; none: all groups."""
    as_of_ms: int | None
    format: Format
    limit: int | None
    watch_s: float | None = None

    @property
    def shown_rows(self) -> int | None:
        """How many rows people see: no more than the terminal has lines where it is drawn again and again."""
        return self.limit if not self.format.is_for_people else rows_on_screen(self.limit, self.watch_s)


def ask(asked: Asked, answer: "Callable[[Tables], Status]") -> Status:
    """Answer a question; with `--watch` again and again, of the newest run each time."""
    return again(asked.watch_s, lambda: _once(asked, answer))


def _once(asked: Asked, answer: "Callable[[Tables], Status]") -> Status:
    with opened(asked.tables, asked.storage_options) as tables:
        check_known(tables, asked.as_of_ms)
        status = answer(tables)
        tell_moment(tables, asked.as_of_ms)
        return status


def nothing_found(tables: "Tables", asked: Asked, what: str) -> Status:
    """Say why there is no row: a group that is not there, or nothing of the kind."""
    told = [text for text in (about_missing(tables, pattern) for pattern in asked.groups) if text]
    say(told[0] if told else what)
    return Status.NOTHING_MATCHED if asked.groups else Status.OK


def write_rows(asked: Asked, rows: Sequence[NamedTuple], table: Callable[[Any], Table]) -> None:
    """Rows for programs, all of them; or a table for people, of as many as they want to see."""
    if asked.format.is_for_people:
        show(table(rows[: asked.shown_rows]), asked.format)
        return
    chosen = rows[: asked.limit]
    if asked.format is Format.JSON:
        write_lines_to_stdout(json_lines(published_row(row) for row in chosen))
    elif chosen:
        exact = asked.format is Format.CSV_EXACT
        texts = [[csv_value(value, exact) for value in published_row(row).values()] for row in chosen]
        write_to_stdout(csv_lines([list(published_row(chosen[0])), *texts]))


def published_row(row: NamedTuple) -> dict[str, Any]:
    """A row as programs get it: names as in tables, moments as text."""
    from muster.tables.schemas import MOMENTS
    from muster.tables.times import text_of

    moments = MOMENTS | {"until_ms"}
    return {
        name.removesuffix("_ms") if name in moments else name: text_of(value) if name in moments and value else value
        for name, value in row._asdict().items()
    }


def say_how_many_more(asked: Asked, rows: int, what: str) -> None:
    """That not all rows were shown, and how to see them."""
    shown = asked.shown_rows if asked.format.is_for_people else asked.limit
    if shown is not None and rows > shown:
        say(f"{rows - shown:,} more {what}. --limit 0 shows all, --json and --csv do too.")
