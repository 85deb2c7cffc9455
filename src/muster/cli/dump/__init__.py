"""`muster dump`: segments as records, or as a summary. `command.py` makes a `Request`, `run.py` fulfils it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.segments.archives import UnpackLimit

TABLE_LIMIT = 200
"""Records that a table shows unless told otherwise; a person reads no more."""


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    TABLE = "table"
    PARQUET = "parquet"
    ARROW = "arrow"


ONLY_TO_FILES = (Format.PARQUET, Format.ARROW)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked and complete. `filters` are the arguments of a `Selection`; `limit` 0 is none."""

    paths: list[Path]
    format: Format
    out: Path | None
    latest: bool
    filters: dict[str, Any]
    limit: int
    summary: bool
    quiet: bool
    progress: bool
    unpack_limit: "UnpackLimit"
