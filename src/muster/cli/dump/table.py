"""Records as a table for people, a line each, printed as they are read.

Widths are fixed from the first line on, by the width of the terminal: a table that fits its columns to its contents
must have seen them all. What is too long ends in an ellipsis.
"""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.style import Style

from muster.cli.output import write_to_stdout
from muster.cli.people import shown_time
from muster.tables.clocks import zone_name

if TYPE_CHECKING:
    from muster.codec.columns.chunks import Longs
    from muster.segments.reader import SegmentChunk

WIDTH_OF_A_PIPE = 160
NARROWEST = 80
NARROW = 120
"""Below this many columns the year is left out."""
WIDEST_GROUP = 32
LINES_AT_ONCE = 500

LABELS = {
    0: "legacy commit",
    1: "commit",
    2: "group",
    3: "consumer group",
    4: "consumer topics",
    5: "consumer member",
    6: "consumer epoch",
    7: "consumer target",
    8: "consumer current",
    9: "share topics",
    10: "share member",
    11: "share group",
    12: "share epoch",
    13: "share target",
    14: "share current",
    15: "share state",
    16: "consumer regex",
    17: "streams group",
    19: "streams member",
    20: "streams epoch",
    21: "streams target",
    22: "streams current",
    23: "streams topology",
}

HEADER = Style(bold=True)
PLAIN = Style()
DIM = Style(dim=True)
NUMBER = Style(color="cyan")
KINDS = {
    "commit": Style(color="green"),
    "legacy commit": Style(color="green"),
    "group": Style(color="blue"),
    "marker": Style(color="yellow"),
    "unread": Style(color="red", bold=True),
}
NEWER = Style(color="magenta")
PROBLEM = Style(color="red")


TIME, LABEL = 2, 3  # places of these columns


class Column(NamedTuple):
    title: str
    width: int
    style: Style
    is_number: bool = False


class Line(NamedTuple):
    """The cells of a record, and how it is to look."""

    cells: tuple[str, ...]
    label: str
    is_faint: bool


def columns_for(width: int) -> list[Column]:
    """Columns that fill this width; names and values share what the numbers leave."""
    is_narrow = width < NARROW
    time_width = len("12-31 23:59:59") if is_narrow else len("2026-12-31 23:59:59")
    time = f"time ({zone_name()})"
    fixed = [
        Column("part", 4, DIM, True),
        Column("offset", 8 if is_narrow else 11, NUMBER, True),
        Column(time if len(time) <= time_width else zone_name(), time_width, DIM),
        Column("record", 16, PLAIN),
    ]
    left = max(width, NARROWEST) - sum(column.width for column in fixed) - 2 * (len(fixed) + 1)
    group = min(left * 2 // 5, WIDEST_GROUP)
    return [*fixed, Column("group", group, Style(bold=True)), Column("what", left - group, PLAIN)]


class TableSink:
    """Print records in blocks, with the header above the first."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self._console = Console(file=sys.stdout, width=None if is_terminal else WIDTH_OF_A_PIPE)
        self._columns = columns_for(self._console.width)
        self._has_header = False

    def add(self, piece: "SegmentChunk", partition: int | None, rows: "Longs | None") -> None:
        import numpy as np

        rows = np.arange(len(piece.chunk.records), dtype=np.int64) if rows is None else rows
        for start in range(0, len(rows), LINES_AT_ONCE):
            lines = lines_of(piece, partition, rows[start : start + LINES_AT_ONCE])
            text = "".join(map(self._line, lines))
            write_to_stdout((self._header() + text).encode("utf-8", "replace"))

    def _header(self) -> str:
        if self._has_header:
            return ""
        self._has_header = True
        return self._row([column.title for column in self._columns], [HEADER] * len(self._columns))

    def _line(self, line: Line) -> str:
        time_width = self._columns[TIME].width
        cells = [cell[-time_width:] if place == TIME else cell for place, cell in enumerate(line.cells)]
        if line.is_faint:
            return self._row(cells, [DIM] * len(self._columns))
        styles = [column.style for column in self._columns]
        styles[LABEL] = KINDS.get(line.label, NEWER)
        if line.label == "unread":
            styles[-1] = PROBLEM
        return self._row(cells, styles)

    def _row(self, cells: Any, styles: list[Style]) -> str:
        system = None if self._console.no_color else self._console._color_system
        shown = [
            style.render(fitted(cell, column.width, column.is_number), color_system=system)
            for cell, column, style in zip(cells, self._columns, styles, strict=True)
        ]
        return "  ".join(shown).rstrip() + "\n"

    def end_segment(self, piece: "SegmentChunk", left_bytes: int) -> None:
        pass

    def close(self) -> None:
        pass


def fitted(text: str, width: int, to_the_right: bool = False) -> str:
    """A text in exactly this many cells; characters that would move the cursor are shown as dots."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "·" for character in text)
    if text.isascii():
        if len(text) > width and not to_the_right:  # half a number is worse than a crooked line
            return text[: width - 1] + "…"
        return text.rjust(width) if to_the_right else text.ljust(width)
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    return text.rjust(len(text) + width - length) if to_the_right else text + " " * (width - length)


SHOWN = [
    "log_offset", "timestamp_ms", "record_type", "is_tombstone", "group_id", "topic", "partition", "committed_offset",
    "leader_epoch", "metadata", "expire_timestamp_ms", "producer_id", "txn_outcome", "group", "newer", "control",
    "unread",
]  # fmt: skip


def lines_of(piece: "SegmentChunk", partition: int | None, rows: "Longs") -> Iterator[Line]:
    from muster.codec.columns.arrow import to_arrow

    batch = to_arrow(piece.chunk, partition, rows)
    shown_partition = "" if partition is None else str(partition)
    values = zip(*(batch.column(name).to_pylist() for name in SHOWN), strict=True)
    for row in values:
        yield _line_of(shown_partition, dict(zip(SHOWN, row, strict=True)))


def _line_of(partition: str, record: dict[str, Any]) -> Line:
    label = label_of(record)
    cells = (
        partition,
        str(record["log_offset"]),
        shown_time(record["timestamp_ms"]),
        label,
        record["group_id"] or "",
        contents_of(record),
    )
    outcome = record["txn_outcome"]
    is_faint = record["is_tombstone"] or (outcome in ("aborted", "open") and record["control"] is None)
    return Line(cells, label, is_faint and record["unread"] is None)


def label_of(record: dict[str, Any]) -> str:
    if record["control"] is not None:
        return "marker"
    if record["unread"] is not None:
        return "unread"
    return LABELS.get(record["record_type"], f"type {record['record_type']}")


def contents_of(record: dict[str, Any]) -> str:
    """What a record says, in a few words: the rest of its key, then its value."""
    if record["unread"] is not None:
        return str(record["unread"]["problem"])
    if record["control"] is not None:
        return f"{record['control']['type']} of producer {record['producer_id']}"
    key = _rest_of_key(record)
    words = f"deleted {key}" if record["is_tombstone"] else f"{key} {_value(record)}"
    outcome = record["txn_outcome"]
    return words.strip() if outcome in (None, "committed") else f"{outcome}: {words}"


def _rest_of_key(record: dict[str, Any]) -> str:
    if record["topic"] is not None:
        return f"{record['topic']}-{record['partition']}"
    newer = record["newer"] or {}
    return newer.get("member_id") or newer.get("regular_expression") or ""


def _value(record: dict[str, Any]) -> str:
    if record["group"] is not None:
        return _group_contents(record["group"])
    if record["newer"] is not None:
        return _newer_contents(json.loads(record["newer"]["json"]))
    words = f"→ {record['committed_offset']}"
    if record["leader_epoch"] is not None:
        words += f", epoch {record['leader_epoch']}"
    if record["expire_timestamp_ms"] is not None:
        words += f", expires {shown_time(record['expire_timestamp_ms'])}"
    return f"{words}, “{record['metadata']}”" if record["metadata"] else words


def _group_contents(group: dict[str, Any]) -> str:
    members = group["members"] or []
    words = f"generation {group['generation']}, {len(members)} member{'' if len(members) == 1 else 's'}"
    if group["protocol"]:
        words += f", {group['protocol']}"
    clients = sorted({member["client_id"] for member in members if member["client_id"]})
    return f"{words}: {', '.join(clients)}" if clients else words


def _newer_contents(fields: dict[str, Any]) -> str:
    """`name=value` of what says something; empty lists, nulls and -1 do not."""
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'), ensure_ascii=False)}"
        for name, value in fields.items()
        if value not in (None, [], "", -1)
    )
