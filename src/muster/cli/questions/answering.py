"""An answer as rows: asked once or again and again, written for people or for programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.cli.lines import csv_lines, csv_value, json_lines
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.questions.asking import check_known, need_tables, opened, tell_missing, tell_moment, unless_missing
from muster.cli.questions.watching import again, rows_on_screen
from muster.cli.status import Status
from muster.cli.tabular import Column, Table, show
from muster.patterns import is_wild

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
    lines_a_row: int = 1

    @property
    def is_of_one(self) -> bool:
        """Whether one group is asked for, by its name: it is shown partition by partition."""
        return len(self.groups) == 1 and not is_wild(self.groups[0])

    @property
    def shown_rows(self) -> int | None:
        """How many rows people see: no more than the terminal has lines where it is drawn again and again."""
        return (
            self.limit if not self.format.is_for_people else rows_on_screen(self.limit, self.watch_s, self.lines_a_row)
        )


def ask(asked: Asked, answer: "Callable[[Tables], Status]", *needed: str) -> Status:
    """Answer a question that needs some tables; with `--watch` again and again, of the newest run each time."""
    return again(asked.watch_s, lambda: _once(asked, answer, needed))


def _once(asked: Asked, answer: "Callable[[Tables], Status]", needed: Sequence[str]) -> Status:
    with opened(asked.tables, asked.storage_options) as tables:
        need_tables(tables, *needed)
        check_known(tables, asked.as_of_ms)
        tell_moment(tables, asked.as_of_ms)
        missing = tell_missing(tables, asked.groups, asked.as_of_ms)
        if missing and len(missing) == len(asked.groups):
            return Status.NOTHING_MATCHED
        return unless_missing(answer(tables), missing)


def write_rows(asked: Asked, rows: Sequence[Any], kind: type[Any], table: Callable[[Any], Table]) -> None:
    """Rows (of a kind of NamedTuple) for programs; or a table for people. As many as are wanted: others are told of."""
    if asked.format.is_for_people:
        show(table(rows[: asked.shown_rows]), asked.format)
    elif asked.format is Format.JSON:
        write_lines_to_stdout(json_lines(published_row(row) for row in rows[: asked.limit]))
    else:
        exact = asked.format is Format.CSV_EXACT
        texts = [[csv_value(value, exact) for value in published_row(row).values()] for row in rows[: asked.limit]]
        write_to_stdout(csv_lines([list(map(_published_name, kind._fields)), *texts]))
    say_how_many_more(asked, len(rows))


def say_how_many_more(asked: Asked, rows: int) -> None:
    """That not all rows were shown, and how to see them."""
    if asked.shown_rows is not None and rows > asked.shown_rows:
        others = ", --json and --csv do too" if asked.format.is_for_people else ""
        say(f"{rows - asked.shown_rows:,} more rows. --limit 0 shows all{others}.")


def published_row(row: Any) -> dict[str, Any]:
    """A row as programs get it: names as in tables, moments as text."""
    from muster.tables.times import text_of

    return {
        _published_name(name): text_of(value) if _is_moment(name) and value is not None else value
        for name, value in row._asdict().items()
    }


def _published_name(name: str) -> str:
    return name.removesuffix("_ms") if _is_moment(name) else name


def _is_moment(name: str) -> bool:
    from muster.tables.schemas import MOMENTS

    return name in MOMENTS or name == "until_ms"


def table_of(columns: tuple[Column, ...]) -> Callable[[Sequence[Any]], Table]:
    """A table of rows, by the names of their fields."""
    return lambda rows: Table(columns, [tuple(getattr(row, column.key) for column in columns) for row in rows])
