"""SQL of one's own over published tables: every table by its name, with its published columns, and nothing else.

A statement may read; it cannot write, nor open a file that is not of these tables, nor fetch an extension.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import duckdb
import pyarrow as pa

from muster.errors import BadInput
from muster.tables.reading import ORDERS, Tables
from muster.tables.relations import add_relation
from muster.tables.schemas import MOMENTS, REBALANCES, TABLES, published_form, published_name
from muster.tables.storage.addresses import is_local

EXPLAINED = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)
NO_TABLE = re.compile(r"Table with name (\S+) does not exist")
DESCRIBES = re.compile(r"\s*(DESCRIBE|DESC|SHOW)\b", re.IGNORECASE)
READ = re.compile(r'\b(?:FROM|JOIN)\s+"?(\w+)', re.IGNORECASE)
LISTS_TABLES = re.compile(r"\bSHOW\b", re.IGNORECASE)


def query(tables: Tables, sql: str, as_of_ms: int | None = None) -> Any:
    """The answer to one statement, as a `pyarrow.RecordBatchReader`; times are UTC. `BadInput` says what is wrong."""
    if as_of_ms is not None:
        tables.check_moment(as_of_ms)
    connection = duckdb.connect()
    try:
        _check(connection, sql)
        named = _named(connection, sql)
        if tables.manifest.source.get("history") is False and not DESCRIBES.match(sql):
            _refuse_not_kept(connection, tables, sql)
        _add_views(connection, tables, named, as_of_ms)
        if LISTS_TABLES.search(sql):
            _add_names(connection, [name for name in ORDERS if name not in named])
        _lock(connection, tables)
        answer = connection.sql(sql)
        if answer is None:
            raise BadInput("the statement has no answer: write a SELECT.")
        reader = answer.to_arrow_reader()
        return pa.RecordBatchReader.from_batches(reader.schema, _each(reader))
    except duckdb.Error as error:
        raise BadInput(_told(error)) from None


def _each(reader: Any) -> Iterator[Any]:
    """Batches of an answer; what goes wrong behind the first is told like what goes wrong before."""
    try:
        yield from reader
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise BadInput(_told(error)) from None


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    # EXPLAIN ANALYZE carries out what it explains, a COPY to a file as well: what counts is what stands behind it.
    statements = connection.extract_statements(EXPLAINED.sub("", sql, count=1) if EXPLAINED.match(sql) else sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise BadInput(
            "one statement that reads, please: SELECT, WITH, DESCRIBE, SHOW or EXPLAIN. Tables are not changed."
        )


def _named(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Tables that a statement means; those that it may mean by its words, where duckdb needs their columns to tell."""
    try:
        named = {name.lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:
        named = {name for name in ORDERS if re.search(rf"\b{name}\b", sql, re.IGNORECASE)}
    return [name for name in ORDERS if name in named]


def _refuse_not_kept(connection: duckdb.DuckDBPyConnection, tables: Tables, sql: str) -> None:
    """Nothing to count is not the same as 0."""
    try:
        read = {name.lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:  # it needs their columns to tell
        read = {name.lower() for name in READ.findall(sql)}
    for not_kept in (tables.not_kept(name) for name in ORDERS if name in read):
        if not_kept:
            raise BadInput(not_kept)


def _add_names(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Tables without their rows."""
    for name in names:
        connection.register(name, published_form(TABLES[name]).empty_table())


def _add_views(
    connection: duckdb.DuckDBPyConnection, tables: Tables, names: Iterable[str], as_of_ms: int | None
) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    for name in names:
        if as_of_ms is not None or name == "open_commits":  # derived from other rows
            try:
                rows = tables.read(name, as_of_ms).table()
            except BadInput as problem:
                raise BadInput(f"{name} cannot be asked: {problem}") from None
            connection.register(name, rows)
            continue
        inside = _opened(connection, tables, name)
        if name == "rebalances":  # the newest of each group is kept apart on disk
            latest, columns = (
                _opened(connection, tables, "latest_rebalances"),
                ", ".join(map(_quoted, REBALANCES.names)),
            )
            inside = (
                f"(SELECT {columns} FROM {inside} UNION ALL SELECT {columns} FROM {latest} WHERE at_ms IS NOT NULL)"
            )
        columns = ", ".join(_published(column) for column in TABLES[name].names)
        connection.execute(f"CREATE TEMP VIEW {_quoted(name)} AS SELECT {columns} FROM {inside} i")


def _opened(connection: duckdb.DuckDBPyConnection, tables: Tables, name: str) -> str:
    inside, store = f"inside_{name}", tables.store
    add_relation(connection, inside, TABLES[name], tables.files(name), store.address, store.storage_options)
    return inside


def _published(name: str) -> str:
    if name not in MOMENTS:
        return f"i.{_quoted(name)}"
    return f"to_timestamp(i.{_quoted(name)} / 1000.0) AS {_quoted(published_name(name))}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _lock(connection: duckdb.DuckDBPyConnection, tables: Tables) -> None:
    if is_local(tables.store.address):
        folder = tables.store.address.replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{folder}']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _told(error: Exception) -> str:
    """What duckdb says, without the drawing of where; and a table that may have been meant."""
    unknown = NO_TABLE.search(str(error))
    if unknown is not None:
        near = get_close_matches(unknown[1].lower(), ORDERS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(ORDERS)}."
        return f"there is no table {unknown[1]}. {hint}"
    said = " ".join(line.strip() for line in str(error).split("\n\nLINE")[0].splitlines() if line.strip())
    return f"{said.rstrip('.')}. `muster table` lists the tables, `DESCRIBE lag` the columns."
