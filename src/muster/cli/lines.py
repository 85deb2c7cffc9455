"""Rows for programs: JSON, an object a line, and CSV."""

import base64
import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from muster.cli.people import csv_cell


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """An object a line; what is not known is null."""
    texts = (json.dumps(row, ensure_ascii=False, default=base64_text) + "\n" for row in rows)
    return "".join(texts).encode("utf-8", "replace")


def base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def csv_value(value: Any, exact: bool) -> Any:
    if isinstance(value, str):
        return csv_cell(value, exact)
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict):
        return csv_cell(json.dumps(value, ensure_ascii=False, default=base64_text), exact)
    return value


def csv_lines(rows: list[list[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")
