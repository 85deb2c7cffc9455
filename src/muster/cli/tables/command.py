"""`muster table`: any table of the pipeline, now or as of a moment, without Spark.

Here options become a `Request`; `run.py` fulfils it. Nothing heavy is imported before, so that help is quick.
"""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from muster.cli.dump import TABLE_LIMIT
from muster.cli.options import (
    CSV,
    CSV_EXACT,
    DEBUG,
    OUTPUT,
    STORAGE_OPTION,
    TABLES,
    WIDE,
    Format,
    chosen_format,
    option,
    storage_options,
)
from muster.cli.questions.completion import complete_group
from muster.cli.status import Status
from muster.cli.tables import NAMES, Request
from muster.tables.clocks import parse_time

EPILOG = """
[bold]Examples[/bold]

Which tables are there?
  [cyan]muster table --tables tables[/cyan]

What had a group committed last Tuesday at 14:05?
  [cyan]muster table offsets --tables tables --group orders-app --as-of 2026-01-27T14:05+01:00[/cyan]

Who is behind, for a program:
  [cyan]muster table lag --tables s3://bucket/tables --storage-option AWS_REGION=eu-central-1 --json[/cyan]

All commits of a group, in a file:
  [cyan]muster table commits --tables tables --group orders-app -o commits.parquet[/cyan]
"""


def complete_name(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin like this, for the shell."""
    return [(name, told) for name, told in NAMES.items() if name.startswith(incomplete.lower())]


def _filter(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Filters", show_default=False, **settings)


NAME = typer.Argument(
    metavar="NAME",
    autocompletion=complete_name,
    help=f"{', '.join(NAMES)}. Without a name: which tables there are.",
    show_default=False,
)
AS_OF = _filter(
    "--as-of",
    metavar="TIME",
    help="As of a moment: 14:05, 'yesterday 14:05', 2026-01-31T12:30 (local without a zone), epoch ms, or '2h ago'.",
)
GROUP = _filter(
    "--group",
    "-g",
    metavar="NAME",
    autocompletion=complete_group,
    help="Rows of this group; * and ? are wildcards. Repeatable.",
)
TOPIC = _filter("--topic", "-t", metavar="NAME", help="Rows of this topic; * and ? are wildcards. Repeatable.")
LIMIT = option(
    "--limit",
    "-n",
    panel=OUTPUT,
    metavar="N",
    min=0,
    help=f"At most N rows; 0 for all. Default: {TABLE_LIMIT} as text, else all.",
)


class FileFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


FILE_FORMAT = option(
    "--format", "-f", panel=OUTPUT, metavar="FORMAT", help="parquet, csv or json; else what the name of FILE tells."
)
OUT = option(
    "--out", "-o", panel=OUTPUT, metavar="FILE", help="Write to a file, all rows; it appears when it is whole."
)
FORCE = option("--force", panel=OUTPUT, help="Replace FILE if it is there.")
AS_JSON = option("--json", panel=OUTPUT, help="An object a line, with the columns of docs/pipeline.md.")


def table(
    name: Annotated[str | None, NAME] = None,
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    as_of: Annotated[str | None, AS_OF] = None,
    group: Annotated[list[str] | None, GROUP] = None,
    topic: Annotated[list[str] | None, TOPIC] = None,
    limit: Annotated[int | None, LIMIT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    as_csv: Annotated[bool, CSV] = False,
    csv_exact: Annotated[bool, CSV_EXACT] = False,
    wide: Annotated[bool, WIDE] = False,
    format: Annotated[FileFormat | None, FILE_FORMAT] = None,
    out: Annotated[Path | None, OUT] = None,
    force: Annotated[bool, FORCE] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """Show a table of the pipeline, as it is now or was at a moment. Needs neither Spark nor Java."""
    shown_as, is_parquet = _format(chosen_format(as_json, as_csv, csv_exact, wide), format, out)
    if force and out is None:
        raise typer.BadParameter("it is about a file: name one with -o FILE", param_hint="--force")
    if out is not None and name is None:
        raise typer.BadParameter("which table is to be written? `muster table offsets -o FILE`", param_hint="NAME")
    if limit is None:
        limit = TABLE_LIMIT if shown_as.is_for_people else 0
    request = Request(
        name,
        tables,
        storage_options(storage_option),
        _moment(as_of),
        {column: patterns for column, patterns in (("group_id", group), ("topic", topic)) if patterns},
        limit or None,
        shown_as,
        out,
        is_parquet,
        force,
    )
    from muster.cli.tables.run import list_tables, show_table

    return list_tables(request) if name is None else show_table(request)


def _format(shown_as: Format, format: FileFormat | None, out: Path | None) -> tuple[Format, bool]:
    """What rows are written as, and whether that is Parquet."""
    from muster.cli.tables.export import format_of_file

    if shown_as is not Format.TEXT:
        if format is not None:
            raise typer.BadParameter(f"it does not go with --{shown_as}", param_hint="--format")
        if out is not None and not shown_as.is_for_people:
            _check_name(out, shown_as)
        if out is None or not shown_as.is_for_people:
            return shown_as, False
        raise typer.BadParameter("it is for a terminal: a file is parquet, csv or json", param_hint="--wide")
    if out is None and format is FileFormat.PARQUET:
        raise typer.BadParameter("parquet is for a file: name one with -o FILE", param_hint="--format")
    if out is None and format is None:
        return shown_as, False
    chosen = format_of_file(out, format) if out is not None else str(format)
    return {"csv": Format.CSV, "json": Format.JSON}.get(chosen, Format.JSON), chosen == FileFormat.PARQUET


def _check_name(out: Path, shown_as: Format) -> None:
    """Refuse CSV in a file that is called JSON, and the like."""
    from muster.cli.tables.export import CSV, JSON, SUFFIXES

    written, named = JSON if shown_as is Format.JSON else CSV, SUFFIXES.get(out.suffix.lower())
    if named not in (None, written):
        raise typer.BadParameter(
            f"the name of {out} says {named}. Leave one of the two out, or write --format {written} if it is meant so",
            param_hint=f"--{shown_as}",
        )


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else parse_time(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--as-of") from None
