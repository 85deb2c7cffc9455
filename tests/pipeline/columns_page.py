"""The tables of columns in `docs/pipeline.md`, made of `muster.tables.columns`.

`python -m tests.pipeline.columns_page docs/pipeline.md` brings the page up to date; a test compares it.
"""

import re
import sys
from pathlib import Path

import pyarrow as pa

from muster.tables import columns
from muster.tables.schemas import PUBLISHED, TIMESTAMP

HEAD = "| column | type | what it is | NULL means |\n|---|---|---|---|\n"
SECTION = r"(\n### `{table}`:.*?\n)" + re.escape(HEAD) + r"(?:\|[^\n]*\n)*"
SAME_AS = {"open_commits": "commits", "group_state": "group_records", "latest_rebalances": "rebalances"}
"""Tables that have the columns of another, and no list of their own."""


def column_lines(table: str) -> str:
    """The lines of a table's columns."""
    lines = []
    for column, published in zip(columns.TABLES[table], PUBLISHED[table], strict=True):
        lines.append(f"| `{published.name}` | {type_name(published.type)} | {column.what} | {column.null} |\n")
    return "".join(lines)


def type_name(kind: pa.DataType) -> str:
    if kind == TIMESTAMP:
        return "timestamp"
    if not pa.types.is_list(kind):
        return str(kind)
    return "list of struct" if pa.types.is_struct(kind.value_type) else f"list of {kind.value_type}"


def updated(page: str) -> str:
    """The page with the columns that tables have now."""
    for table in columns.TABLES:
        if table not in SAME_AS:
            found = re.search(SECTION.format(table=table), page, re.DOTALL)
            if found is not None:
                page = page[: found.end(1)] + HEAD + column_lines(table) + page[found.end() :]
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(updated(file.read_text(encoding="utf-8")), encoding="utf-8")
