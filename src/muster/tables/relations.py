"""Parquet files of a table as a duckdb relation with the columns of its schema, whichever muster wrote them.

Columns come and never go: a file of an earlier muster lacks some, and its rows have NULL there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from muster.tables.addresses import filesystem, is_local

GLOB_CHARACTERS = frozenset("*?")
"""duckdb takes a path with one of these for a pattern."""


def add_relation(
    connection: Any, name: str, schema: pa.Schema, files: Sequence[str], address: str, options: Mapping[str, str]
) -> None:
    """Make a relation of this name over files of the tables at an address; no files, no rows."""
    if not files:
        connection.register(name, schema.empty_table())
    elif is_local(address) and not GLOB_CHARACTERS & set(address):
        _add_view(connection, name, schema, files)
    else:  # duckdb would have to fetch an extension for an object store
        from pyarrow import dataset

        system, root = filesystem(address, options)
        paths = [root + file.removeprefix(address) for file in files]
        connection.register(name, dataset.dataset(paths, schema=schema, format="parquet", filesystem=system))


def _add_view(connection: Any, name: str, schema: pa.Schema, files: Sequence[str]) -> None:
    connection.read_parquet(list(files), union_by_name=True).create_view(f"{name}_files")
    connection.register(f"{name}_columns", schema.empty_table())
    found, wanted = (_types(connection, f"{name}_{part}") for part in ("files", "columns"))
    connection.unregister(f"{name}_columns")
    columns = [_column(column, found.get(column), kind) for column, kind in wanted.items()]
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {', '.join(columns)} FROM {name}_files")


def _types(connection: Any, relation: str) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {relation}").fetchall()}


def _column(name: str, found: str | None, wanted: str) -> str:
    if found == wanted:
        return f'"{name}"'
    value = "NULL" if found is None else f'"{name}"'
    return f'CAST({value} AS {wanted}) AS "{name}"'
