"""Rows from the inner form to the published one, and back (`schemas` says what these are).

A producer may write any number as a time, and engines end at different ones: Python with the year 9999, pandas with
2262 where it counts nanoseconds. Every time after 2261 is published as the first moment of 2262. That is not when it
was, but still later than all the rest, as it was before: NULL would forget that, and the past would change
(`prefix_ends` of `queries`). A time before 1970 is none, as -1 is, and NULL.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muster.tables.schemas import MILLISECONDS, MOMENTS, TIMESTAMP, published_name

Array = Any  # pyarrow has no types of its own

LAST_MS = 9_214_646_400_000
"""2262-01-01T00:00:00Z"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_UTC = pa.timestamp("ms", tz="UTC")


def published(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Inner rows in the columns of a published schema. Every moment is one that all engines can hold."""
    return pa.Table.from_arrays([_published_column(rows, field) for field in schema], schema=schema)


def inner(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Published rows in the columns of an inner schema; NULL in those that the rows do not have."""
    found = rows.schema.names
    arrays = []
    for field in schema:
        name = published_name(field.name)
        if name not in found:
            arrays.append(pa.nulls(len(rows), field.type))
        elif field.name in MOMENTS:
            arrays.append(rows.column(name).cast(_MILLISECONDS_UTC, safe=False).cast(pa.int64()))
        else:
            arrays.append(rows.column(name).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def as_text(rows: Any) -> Any:
    """A published batch, with its moments as text: 2026-11-17T08:33:04.123Z."""
    for place, field in enumerate(rows.schema):
        if field.type == TIMESTAMP:
            text = pc.strftime(rows.column(place).cast(pa.timestamp("ms")), "%Y-%m-%dT%H:%M:%SZ")
            rows = rows.set_column(place, pa.field(field.name, pa.string()), text)
    return rows


def text_of(time_ms: int) -> str:
    """One moment, likewise."""
    moment = _EPOCH + timedelta(milliseconds=min(time_ms, LAST_MS))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def all_bounded(rows: pa.Table) -> pa.Table:
    """Inner rows with the moments that they would be published with: what is reckoned from them is then the same,
    whether they come from a table or straight from the log.
    """
    for place, name in enumerate(rows.schema.names):
        if name in MOMENTS:
            rows = rows.set_column(place, rows.schema.field(place), bounded(rows.column(place)))
    return rows


def bounded(times_ms: Array) -> Array:
    """A column of milliseconds, none before 1970 (NULL instead) or after `LAST_MS`."""
    bounds = pc.min_max(times_ms).as_py()
    if bounds["min"] is not None and bounds["min"] < 0:
        times_ms = pc.if_else(pc.less(times_ms, 0), pa.scalar(None, pa.int64()), times_ms)
    if bounds["max"] is not None and bounds["max"] > LAST_MS:
        times_ms = pc.min_element_wise(times_ms, LAST_MS, skip_nulls=False)
    return times_ms


def _published_column(rows: pa.Table, field: pa.Field) -> Array:
    if field.type != TIMESTAMP:
        column = rows.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    times_ms = bounded(rows.column(field.name + MILLISECONDS))
    return times_ms.cast(_MILLISECONDS_UTC).cast(TIMESTAMP)
