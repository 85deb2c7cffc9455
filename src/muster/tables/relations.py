"""Parquet files of a table as a duckdb relation with the columns of its schema, whichever muster wrote them.

Columns come and never go: a file of an earlier muster lacks some, and its rows have NULL there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from muster.tables.addresses import filesystem, is_local

GLOB_CHARACTERS = frozenset("*?")
"""duckdb takes a path with one of these for a pattern."""

DUCKDB_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
}


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
    found = {row[0] for row in connection.execute(f"DESCRIBE {name}_files").fetchall()}
    columns = [_column(field, field.name in found) for field in schema]
    connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {', '.join(columns)} FROM {name}_files")


def _column(field: pa.Field, is_there: bool) -> str:
    value = f'"{field.name}"' if is_there else "NULL"
    return f'CAST({value} AS {_duckdb_type(field.type)}) AS "{field.name}"'  # structs may have got fields since


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = (f'"{field.name}" {_duckdb_type(field.type)}' for field in kind)
        return f"STRUCT({', '.join(fields)})"
    return DUCKDB_TYPES[kind]
