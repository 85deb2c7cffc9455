"""One table, three ways: columns for people (and for awk), an object a line, and CSV.

Text shows members by their names, `--wide` by their whole ids. In a pipe every column is there, plain and uncut. On a
terminal it has colours and fits: titles get shorter, long names give way as far as they can still be told apart, the
least telling columns are left out (and named), numbers are never cut.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import csv_cell, short_members, shown_duration, shown_time
from muster.tables.clocks import iso_time

if TYPE_CHECKING:
    from rich.console import Console

SUCCESSFUL = "Successful"


class Kind(Enum):
    TEXT = auto()
    NUMBER = auto()
    LAG = auto()
    STATE = auto()
    GROUP_TYPE = auto()
    """People see it as Kafka's tool writes it, programs as it is in tables."""
    STATUS = auto()
    VERDICT = auto()
    NODE = auto()
    ASSIGNMENT = auto()
    MEMBER = auto()
    """A member id; people see it without its unique part."""
    MEMBERS = auto()
    """Several, each with + or - in front where it came or went."""
    TIME_MS = auto()
    LENGTH_MS = auto()


class Shown(Enum):
    """Programs always get every column; people get some only when there is something in them, some never."""

    ALWAYS = auto()
    IF_ANY = auto()
    TO_PROGRAMS = auto()


class Column(NamedTuple):
    """`title` for people, as Kafka's tool prints it; `key` for JSON and CSV, as tables call it."""

    title: str
    key: str
    kind: Kind = Kind.TEXT
    shown: Shown = Shown.ALWAYS
    short: str = ""
    """The title where there is little room."""
    spare: int = 0
    """Above 0: may be left out where there is too little room, the highest first."""


Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: Sequence[Row]


MISSING = "-"
WARNINGS = ("WARN", "EXPIRING")
GAP = "  "
NUMBERS = (Kind.NUMBER, Kind.LAG, Kind.LENGTH_MS)
GIVES_WAY = (
    "target_assignment", "metadata", "problem", "who", "member_id", "assignment", "status", "client_id",
    "client_host", "topic", "group_id",
)  # fmt: skip
"""Columns that may be cut on a terminal, first to last."""
NARROWEST = 10
NARROWEST_NAME = 14
"""Cells that a column keeps whatever happens; groups and topics, without which a line says nothing, keep more."""
WIDEST_NAME = 32
"""Cells up to which columns are left out before groups and topics that begin alike are cut until they look alike."""


def show(table: Table, format: Format) -> None:
    """Write a table to standard output."""
    if format is Format.JSON:
        write_lines_to_stdout(json_lines(table).encode("utf-8", "replace"))
    elif not format.is_for_people:
        write_to_stdout(csv_text(table, exact=format is Format.CSV_EXACT).encode("utf-8", "replace"))
    elif format is Format.TEXT and sys.stdout.isatty():
        text, left_out = terminal_text(table)
        write_to_stdout(text.encode("utf-8", "replace"))
        if left_out:
            say(f"left out for want of room: {', '.join(left_out)}. --wide shows all.")
    else:
        write_to_stdout(plain_text(table, wide=format is Format.WIDE).encode("utf-8", "replace"))


def json_lines(table: Table) -> str:
    """An object a line; what is not known is null."""
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
        return [{"topic": topic, "partitions": partitions} for topic, partitions in spread(value).items()]
    if kind is Kind.GROUP_TYPE:
        return value.lower()
    if kind is Kind.TIME_MS:
        return iso_time(value)
    return value


def csv_text(table: Table, exact: bool = False) -> str:
    """A header and a line for each row; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    texts = [_csv_column(values, column.kind, exact) for values, column in _by_column(table)]
    writer.writerows(zip(*texts, strict=True))
    return out.getvalue()


def _csv_column(values: list[Any], kind: Kind, exact: bool) -> list[str]:
    if kind is Kind.GROUP_TYPE:
        return [value.lower() for value in values]
    if kind in NUMBERS:
        return ["" if value is None else str(value) for value in values]
    if kind is Kind.TIME_MS:
        return ["" if value is None else iso_time(value) for value in values]
    return [csv_cell(text, exact) for text in cells(values, kind, missing="", wide=True)]


def _by_column(table: Table) -> Iterator[tuple[list[Any], Column]]:
    """Columns and what is in them: ten thousand rows are written column by column in a tenth of the time."""
    for place, column in enumerate(table.columns):
        yield [row[place] for row in table.rows], column


def cells(
    values: list[Any], kind: Kind, missing: str = MISSING, *, wide: bool = False, with_year: bool = True
) -> list[str]:
    """Values of a column as kafka-consumer-groups writes them; `wide` has whole member ids."""
    if kind is Kind.NODE:
        return [missing if node is None else f"{node.host}:{node.port}  ({node.id})" for node in values]
    if kind is Kind.ASSIGNMENT:
        return [missing if not partitions else _assignment(partitions) for partitions in values]
    if kind is Kind.MEMBER and not wide:
        names = short_members(value for value in values if value is not None)
        return [missing if value is None else names[value] for value in values]
    if kind is Kind.MEMBERS:
        changes = [[(one[:1], one[1:]) if one[:1] in "+-" else ("", one) for one in value or ()] for value in values]
        names = {} if wide else short_members(member for row in changes for _, member in row)
        return [" ".join(sign + names.get(member, member) for sign, member in row) or missing for row in changes]
    if kind is Kind.TIME_MS:
        return [shown_time(value, with_year=with_year) or missing for value in values]
    if kind is Kind.LENGTH_MS:
        return [missing if value is None else shown_duration(value) for value in values]
    return [missing if value is None else str(value) for value in values]


def _assignment(partitions: Iterable[tuple[str, int]]) -> str:
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in spread(partitions).items())


@dataclass(slots=True)
class _Printed:
    """A column as people see it; characters that would move the cursor are dots."""

    column: Column
    title: str
    texts: list[str]
    width: int

    @classmethod
    def of(cls, column: Column, values: list[Any], *, wide: bool = False, is_tight: bool = False) -> "_Printed":
        texts = cells(values, column.kind, wide=wide, with_year=not is_tight)
        title = column.short if is_tight and column.short else column.title
        if not all(map(str.isprintable, texts)):
            texts = ["".join(one if one.isprintable() else "·" for one in text) for text in texts]
        if all(map(str.isascii, texts)):
            return cls(column, title, texts, max(len(title), max(map(len, texts), default=0)))
        return cls(column, title, texts, max(map(_width, [title, *texts])))

    def padded(self) -> list[str]:
        """Title and cells, all of the column's width."""
        is_number = self.column.kind in NUMBERS
        texts = (self.title, *self.texts)
        if all(map(str.isascii, texts)) and max(map(len, texts)) <= self.width:  # nearly always, and much quicker
            pad = str.rjust if is_number else str.ljust
            return [pad(text, self.width) for text in texts]
        return [_padded(text, self.width, is_number) for text in texts]


def plain_text(table: Table, wide: bool = False) -> str:
    """Columns as wide as what is in them."""
    return _lines(each.padded() for each in _printed(table, wide=wide))


def terminal_text(table: Table) -> tuple[str, list[str]]:
    """What fits the terminal, with colours; and the titles of the columns that did not find room."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    printed, left_out = fitted(table, console.width)
    paint = _painter(console)
    return _lines(paint(each) for each in printed), left_out


def fitted(table: Table, width: int) -> "tuple[list[_Printed], list[str]]":
    """Columns for a width: as they are, else with short titles, else cut, else without the least telling ones."""
    printed = _printed(table)
    if _total(each.width for each in printed) <= width:
        return printed, []
    printed = _printed(table, is_tight=True)
    left_out = []
    while _total(map(_telling, printed)) > width:
        spare = max(printed, key=lambda each: each.column.spare)
        if not spare.column.spare:
            break
        printed.remove(spare)
        left_out.append(spare.column.title)
    for key in GIVES_WAY:
        for each in printed:
            excess = _total(one.width for one in printed) - width
            if each.column.key == key and excess > 0:
                each.width = max(_least(each), each.width - excess)
    return printed, left_out


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + len(GAP) * (len(found) - 1)


def _least(printed: "_Printed") -> int:
    """How far a column can be cut."""
    if printed.column.key not in GIVES_WAY:
        return printed.width
    return min(printed.width, max(NARROWEST_NAME if _has_names(printed) else NARROWEST, len(printed.title)))


def _telling(printed: "_Printed") -> int:
    """How far a column can be cut until two names in it look alike."""
    least = _least(printed)
    if least == printed.width or not _has_names(printed):
        return least
    alike = max((_width(_same_beginning(*two)) for two in pairwise(sorted(set(printed.texts)))), default=0)
    return max(least, min(printed.width, alike + 2, WIDEST_NAME))  # one more character, and the dots


def _same_beginning(one: str, other: str) -> str:
    return "".join(first for first, _ in takewhile(lambda two: two[0] == two[1], zip(one, other, strict=False)))


def _has_names(printed: "_Printed") -> bool:
    return printed.column.key in ("topic", "group_id")


def _printed(table: Table, *, wide: bool = False, is_tight: bool = False) -> list[_Printed]:
    return [
        _Printed.of(column, values, wide=wide, is_tight=is_tight)
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
        if column.key == "group_id":
            return faint if text == above else name
        if column.kind is Kind.LAG:
            return good if text == "0" else bad if text.startswith("-") else middling
        if column.kind is Kind.STATE:
            return states.get(text, middling)
        if column.kind is Kind.VERDICT:
            return good if text == "OK" else middling if text in WARNINGS else bad
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


def spread(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Partitions by topic, both in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics
