"""Rows of tables that say only what a test is about."""

from typing import Any

import pyarrow as pa

from muster.tables.schemas import PUBLISHED, TABLES

ANY = {pa.string(): "", pa.bool_(): False}


def made(table: str, *rows: dict[str, Any]) -> pa.Table:
    """Inner rows of a table; columns that are never NULL and not given have something in them."""
    always = {field.name: ANY.get(field.type, 0) for field in PUBLISHED[table] if not field.nullable}
    return pa.Table.from_pylist([always | row for row in rows], schema=TABLES[table])
