"""Rows into a file: batch by batch, so that memory does not grow with the table. It appears when it is whole."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from muster.cli.output import whole_file
from muster.errors import BadInput

if TYPE_CHECKING:
    from muster.tables.reading import Answer

PARQUET, CSV, JSON = "parquet", "csv", "json"
SUFFIXES = {".parquet": PARQUET, ".csv": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON}


def format_of_file(path: Path, asked: str | None) -> str:
    """The format that was asked for, else the one that the file's name tells."""
    found = asked or SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise typer.BadParameter(
            f"the name of {path} does not tell a format. Add --format parquet, csv or json", param_hint="--out"
        )
    return found


def export(path: Path, is_forced: bool, answer: "Answer", encode: Callable[[Any], bytes] | None, header: bytes) -> int:
    """Write all rows; how many there were. Without `encode` they are Parquet, as they are published."""
    if path.exists() and not path.is_dir() and not is_forced:
        raise BadInput(f"{path} is there already. --force replaces it, or choose another name.")
    with whole_file(path) as draft, _counted() as count:
        if encode is None:
            return _parquet(draft, answer, count)
        total = 0
        with draft.open("wb") as file:
            file.write(header)
            for batch in answer.rows:
                file.write(encode(batch))
                total += batch.num_rows
                count(batch.num_rows)
        return total


def _parquet(draft: Path, answer: "Answer", count: Callable[[int], None]) -> int:
    import pyarrow.parquet as pq

    total = 0
    with pq.ParquetWriter(str(draft), answer.schema, compression="zstd") as writer:
        for batch in answer.rows:
            writer.write_batch(batch)
            total += batch.num_rows
            count(batch.num_rows)
    return total


@contextmanager
def _counted() -> Iterator[Callable[[int], None]]:
    """On a terminal, how many rows are written already; how many there will be is not known before."""
    if not sys.stderr.isatty():
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("writing, {task.completed:,.0f} rows"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("writing", total=None)
        yield lambda rows: progress.advance(task, rows)
