"""`muster table`: the pipeline's tables, read without Spark. `command.py` makes a `Request`, `run.py` fulfils it."""

from dataclasses import dataclass
from pathlib import Path

from muster.cli.options import Format
from muster.tables.about import ABOUT

NAMES = {name: told for name, told in ABOUT.items() if name != "latest_rebalances"}  # its rows are shown as rebalances


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked and complete. `limit` None is none; `name` None asks for the list of tables.
    `out` None is standard output."""

    name: str | None
    tables: str
    storage_options: dict[str, str]
    as_of_ms: int | None
    where: dict[str, list[str]]
    limit: int | None
    format: Format
    out: Path | None = None
    is_parquet: bool = False
    is_forced: bool = False
