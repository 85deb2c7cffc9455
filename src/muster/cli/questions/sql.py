"""`muster sql`: a question in SQL over the published run."""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.cli.lines import base64_text, csv_lines, csv_value, json_lines
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
    storage_options,
)
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.questions.asking import AS_JSON, AS_OF, LIMIT, MOST_ROWS, moment, opened, tell_moment
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Table, show

if TYPE_CHECKING:
    from collections.abc import Iterator

EPILOG = """
[bold]Examples[/bold]

Who has lost records?
  [cyan]muster sql "SELECT group_id, topic, lost_records FROM lag WHERE lost_records > 0" --tables tables[/cyan]

The worst lag of each group, as CSV:
  [cyan]muster sql "SELECT group_id, max(lag) FROM lag_history GROUP BY 1" --tables tables --csv[/cyan]

What is there to ask?
  [cyan]muster sql "DESCRIBE lag" --tables tables[/cyan]
"""

STATEMENT = typer.Argument(
    metavar="STATEMENT", help="SQL as duckdb has it; - reads it from standard input.", show_default=False
)
FILE = option("--file", "-f", metavar="FILE", readable=False, help="The statement is in a file.")


def sql(
    statement: Annotated[str | None, STATEMENT] = None,
    file: Annotated[Path | None, FILE] = None,
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    as_of: Annotated[str | None, AS_OF] = None,
    limit: Annotated[int | None, LIMIT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    as_csv: Annotated[bool, CSV] = False,
    csv_exact: Annotated[bool, CSV_EXACT] = False,
    wide: Annotated[bool, WIDE] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """Ask in SQL: every table of docs/pipeline.md by its name, as the last run left it. Nothing can be changed.

    Times are timestamps in UTC; `at` is a word of SQL, so the column is written "at". A statement reads the tables and
    nothing else: no other files, no network.
    """
    format, as_of_ms, text = chosen_format(as_json, as_csv, csv_exact, wide), moment(as_of), _statement(statement, file)
    with opened(tables, storage_options(storage_option)) as found:
        from muster.tables.own_sql import query

        _write(query(found, text, as_of_ms), format, limit)
        tell_moment(found, as_of_ms)
    return Status.OK


def _statement(statement: str | None, file: Path | None) -> str:
    if (statement is None) == (file is None):
        raise typer.BadParameter("write a statement, or name a file with --file", param_hint="STATEMENT")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
    return sys.stdin.read() if statement == "-" else str(statement)


def _write(reader: Any, format: Format, limit: int | None) -> None:
    names = reader.schema.names
    if format.is_for_people:
        _show(reader, names, format, MOST_ROWS if limit is None else limit)
        return
    exact = format is Format.CSV_EXACT
    if format is not Format.JSON:
        write_to_stdout(csv_lines([names]))
    for rows in _some(reader, limit or None):
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


def _show(reader: Any, names: list[str], format: Format, limit: int) -> None:
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
    if len(shown) < len(rows):
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
