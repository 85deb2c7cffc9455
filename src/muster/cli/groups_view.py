"""One table, three ways: columns for people (and for awk), an object a line, and CSV.

In a pipe text is complete and plain. On a terminal it has colours and fits: long names give way, numbers never do.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from muster.cli.groups_model import TopicPartition
from muster.cli.groups_rows import SUCCESSFUL, Column, Kind, Shown, Table, spread
from muster.cli.output import write_to_stdout

if TYPE_CHECKING:
    from rich.console import Console

MISSING = "-"
GAP = "  "
NUMBERS = (Kind.NUMBER, Kind.LAG)
GIVES_WAY = ("target_assignment", "consumer_id", "current_assignment", "status", "client_id", "host", "topic", "group")
"""Columns that may be cut on a terminal, first to last."""
NARROWEST = 12
NARROWEST_NAME = 24
"""Cells that a column keeps whatever happens; groups and topics, without which a line says nothing, keep more."""


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def show(table: Table, format: Format) -> None:
    """Write a table to standard output."""
    if format is Format.JSON:
        text = json_lines(table)
    elif format is Format.CSV:
        text = csv_text(table)
    elif sys.stdout.isatty():
        text = terminal_text(table)
    else:
        text = plain_text(table)
    write_to_stdout(text.encode("utf-8", "replace"))


def json_lines(table: Table) -> str:
    """An object a line; what nobody knows is null."""
    keys = [column.key for column in table.columns]
    kinds = [column.kind for column in table.columns]
    return "".join(
        json.dumps(dict(zip(keys, map(_json_value, row, kinds), strict=True)), ensure_ascii=False) + "\n"
        for row in table.rows
    )


def _json_value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind is Kind.NODE:
        return value._asdict()
    if kind is Kind.ASSIGNMENT:
        return spread(value)
    return value


def csv_text(table: Table) -> str:
    """A header and a line for each row; what nobody knows is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    texts = [cells(values, column.kind, missing="") for values, column in _by_column(table)]
    writer.writerows(zip(*texts, strict=True))
    return out.getvalue()


def _by_column(table: Table) -> Iterator[tuple[list[Any], Column]]:
    """Columns and what is in them: ten thousand rows are written column by column in a tenth of the time."""
    for place, column in enumerate(table.columns):
        yield [row[place] for row in table.rows], column


def cells(values: list[Any], kind: Kind, missing: str = MISSING) -> list[str]:
    """Values of a column as kafka-consumer-groups writes them."""
    if kind is Kind.NODE:
        return [missing if node is None else f"{node.host}:{node.port}  ({node.id})" for node in values]
    if kind is Kind.ASSIGNMENT:
        return [missing if not partitions else _assignment(partitions) for partitions in values]
    return [missing if value is None else str(value) for value in values]


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in spread(partitions).items())


@dataclass(slots=True)
class _Printed:
    """A column as people see it; characters that would move the cursor are dots."""

    column: Column
    texts: list[str]
    width: int

    @classmethod
    def of(cls, column: Column, values: list[Any]) -> "_Printed":
        texts = cells(values, column.kind)
        if not all(map(str.isprintable, texts)):
            texts = ["".join(one if one.isprintable() else "·" for one in text) for text in texts]
        if all(map(str.isascii, texts)):
            return cls(column, texts, max(len(column.title), max(map(len, texts), default=0)))
        return cls(column, texts, max(map(_width, [column.title, *texts])))

    def padded(self) -> list[str]:
        """Title and cells, all of the column's width."""
        is_number = self.column.kind in NUMBERS
        texts = (self.column.title, *self.texts)
        if all(map(str.isascii, texts)) and max(map(len, texts)) <= self.width:  # nearly always, and much quicker
            pad = str.rjust if is_number else str.ljust
            return [pad(text, self.width) for text in texts]
        return [_padded(text, self.width, is_number) for text in texts]


def plain_text(table: Table) -> str:
    """Columns as wide as what is in them."""
    return _lines(each.padded() for each in _printed(table))


def terminal_text(table: Table) -> str:
    from rich.console import Console

    console = Console(file=sys.stdout)
    printed = _printed(table)
    widths = fitting_widths([each.column for each in printed], [each.width for each in printed], console.width)
    for each, width in zip(printed, widths, strict=True):
        each.width = width
    paint = _painter(console)
    return _lines(paint(each) for each in printed)


def _printed(table: Table) -> list[_Printed]:
    return [
        _Printed.of(column, values)
        for values, column in _by_column(table)
        if column.shown is Shown.ALWAYS or (column.shown is Shown.IF_ANY and any(value is not None for value in values))
    ]


def _lines(columns: Iterable[list[str]]) -> str:
    return "".join(GAP.join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def _width(text: str) -> int:
    """How many cells a text takes; Chinese takes two for each character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fitting_widths(columns: list[Column], widths: list[int], wanted: int) -> list[int]:
    """The same widths, or less for the columns that can give way; it may still be too wide on a narrow terminal."""
    fitted = list(widths)
    keys = [column.key for column in columns]
    for key in GIVES_WAY:
        excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - wanted
        if excess <= 0:
            break
        if key in keys:
            place = keys.index(key)
            least = max(NARROWEST_NAME if key in ("topic", "group") else NARROWEST, len(columns[place].title))
            fitted[place] = max(min(fitted[place], least), fitted[place] - excess)
    return fitted


def _padded(text: str, width: int, to_the_right: bool) -> str:
    if text.isascii():
        if len(text) > width:
            return text[: width - 1] + "…"
        return text.rjust(width) if to_the_right else text.ljust(width)
    length = _width(text)
    if length > width:
        from rich.cells import set_cell_size

        return set_cell_size(text, width - 1) + "…"
    return text + " " * (width - length)


def _painter(console: "Console") -> Callable[[_Printed], list[str]]:
    """How to colour a column. A group's name is bright once, and faint below."""
    from rich.style import Style

    system = None if console.no_color else console._color_system
    title, faint, name = Style(bold=True), Style(dim=True), Style(bold=True, color="cyan")
    good, middling, bad = Style(color="green"), Style(color="yellow"), Style(color="red")
    states = {"Stable": good, "Empty": faint, "Dead": bad}

    def style_of(text: str, above: str, column: Column) -> Style | None:
        if text == MISSING:
            return faint
        if column.key == "group":
            return faint if text == above else name
        if column.kind is Kind.LAG:
            return good if text == "0" else bad if text.startswith("-") else middling
        if column.kind is Kind.STATE:
            return states.get(text, middling)
        if column.kind is Kind.STATUS:
            return good if text == SUCCESSFUL else bad
        return None

    def paint(printed: _Printed) -> list[str]:
        head, *padded = printed.padded()
        painted, above = [title.render(head, color_system=system)], ""
        for text, shown in zip(printed.texts, padded, strict=True):
            style = style_of(text, above, printed.column)
            painted.append(shown if style is None else style.render(shown, color_system=system))
            above = text
        return painted

    return paint
