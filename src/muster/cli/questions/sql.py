"""`muster sql`: a question in SQL over the published run."""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from muster.cli.lines import base64_text, csv_lines, csv_value, json_lines
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.questions.answering import Asked, ask
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Table, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.tables.reading import Tables


def show_answer(asked: Asked, text: str) -> Status:
    """Rows as they come."""

    def answer(tables: "Tables") -> Status:
        from muster.tables.own_sql import query

        _write(query(tables, text, asked.as_of_ms), asked)
        return Status.OK

    return ask(asked, answer)


def statement_of(statement: str | None, file: Path | None) -> str:
    if (statement is None) == (file is None):
        raise typer.BadParameter("write a statement, or name a file with --file", param_hint="STATEMENT")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
    return sys.stdin.read() if statement == "-" else str(statement)


def _write(reader: Any, asked: Asked) -> None:
    names, format = reader.schema.names, asked.format
    if format.is_for_people:
        _show(reader, names, format, asked.limit)
        return
    exact = format is Format.CSV_EXACT
    if format is not Format.JSON:
        write_to_stdout(csv_lines([names]))
    for rows in _some(reader, asked.limit):
        if format is Format.JSON:
            write_lines_to_stdout(json_lines({name: _plain(value) for name, value in row.items()} for row in rows))
        else:
            write_to_stdout(csv_lines([[csv_value(_plain(value), exact) for value in row.values()] for row in rows]))


def _some(reader: Any, limit: int | None) -> "Iterator[list[dict[str, Any]]]":
    """Rows, as many as are wanted, a batch at a time."""
    left = limit
    for batch in reader:
        rows = batch.to_pylist() if left is None else batch.slice(0, left).to_pylist()
        yield rows
        if left is not None:
            left -= len(rows)
            if left <= 0:
                return


def _show(reader: Any, names: list[str], format: Format, limit: int | None) -> None:
    import pyarrow as pa

    rows = [row for some in _some(reader, limit + 1 if limit else None) for row in some]
    kinds = [
        Kind.NUMBER
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        else Kind.TEXT
        for kind in reader.schema.types
    ]
    columns = tuple(Column(name, name, kind) for name, kind in zip(names, kinds, strict=True))
    shown = rows[:limit] if limit else rows
    show(Table(columns, [tuple(_for_people(value) for value in row.values()) for row in shown]), format)
    if limit and len(shown) < len(rows):
        say(f"stopped after {limit:,} rows. --limit 0 shows all, --json and --csv do too.")


def _plain(value: Any) -> Any:
    """A value as JSON has it: moments as text, in UTC."""
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date | timedelta):
        return str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _for_people(value: Any) -> Any:
    """As they are read here: moments by the clock on the wall."""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S") if value.tzinfo else str(value)
    plain = _plain(value)
    return plain if plain is None or isinstance(plain, str | int | float) else str(plain)
