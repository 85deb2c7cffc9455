"""Tables as relations of duckdb, in their inner form: over Parquet files, and as of a moment in the past.

Columns come and never go: a file of an earlier muster lacks some, and its rows have NULL there. What is
derived from history as of a moment is made when it is first asked for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from muster.errors import BadInput
from muster.tables.findings.finding import Asked
from muster.tables.findings.kinds import NEEDED, findings
from muster.tables.findings.of_logs import DAMAGE
from muster.tables.schemas import MOMENTS, TABLES, published_form, published_name
from muster.tables.sql import queries
from muster.tables.sql.dialects import DUCKDB
from muster.tables.sql.ends import ends_at
from muster.tables.sql.expiry import WEEK_MS, expiry
from muster.tables.sql.hours import HOUR_MS
from muster.tables.sql.judging import NOT_REMEMBERED, status_then
from muster.tables.sql.lag import lag
from muster.tables.sql.queries import DUCKDB_EXPLODE
from muster.tables.storage.addresses import filesystem, is_local

GLOB_CHARACTERS = frozenset("*?")
"""duckdb takes a path with one of these for a pattern."""

DUCKDB_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
}


def add_relation(
    connection: Any,
    name: str,
    schema: pa.Schema,
    files: Sequence[str],
    address: str,
    options: Mapping[str, str],
    *,
    with_file: bool = False,
    condition: str = "TRUE",
) -> None:
    """Make a relation of this name, of the columns of an inner schema, over files of the tables at an address.

    No files, no rows. `with_file` adds a column `file`, the name of each row's file; `condition` is on columns as they
    are published, whose bounds files have.
    """
    if not files:  # as a query: for rows of Arrow's duckdb would import pandas
        fields = [*schema, pa.field("file", pa.string())] if with_file else schema
        empty = ", ".join(_column(field, is_there=False) for field in fields)
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {empty} WHERE FALSE")
        return
    source = _source(connection, name, schema, files, address, options, with_file=with_file)
    more = ["parse_filename(filename) AS file"] if with_file else []

    def select(columns: Iterable[str]) -> None:
        listed = ", ".join([*columns, *more])
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {listed} FROM {source} WHERE {condition}")

    try:
        select(_column(field, is_there=True) for field in schema)
    except duckdb.BinderException:  # to ask first would be to read the ends of all files once more
        found = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        select(_column(field, published_name(field.name) in found) for field in schema)


def _source(
    connection: Any,
    name: str,
    schema: pa.Schema,
    files: Sequence[str],
    address: str,
    options: Mapping[str, str],
    *,
    with_file: bool,
) -> str:
    """What the rows of files, as they are published, are selected from."""
    if is_local(address) and not GLOB_CHARACTERS & set(address):
        paths = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        # A directory called topic=orders would be taken for a partition of Hive's, and its name for every row's topic.
        how = f"union_by_name = TRUE, hive_partitioning = FALSE, filename = {with_file}"
        return f"read_parquet([{paths}], {how})"
    from pyarrow import dataset  # duckdb would have to fetch an extension for an object store

    system, root = filesystem(address, options)
    inside = [root + file.removeprefix(address) for file in files]
    form = published_form(schema)
    if with_file:  # as if files were partitions by their own names: a relation for each would take minutes
        form, parquet = form.append(pa.field("filename", pa.string())), dataset.ParquetFileFormat()
        named = dataset.field("filename")
        parts = [parquet.make_fragment(path, system, partition_expression=named == path) for path in inside]
        rows = dataset.FileSystemDataset(parts, form, parquet, system)
    else:
        rows = dataset.dataset(inside, schema=form, format="parquet", filesystem=system)
    connection.register(f"{name}_files", rows)
    return f"{name}_files"


def add_damage(connection: Any, found: Sequence[Mapping[str, Any]]) -> None:
    """Make the relation `damage` of what a manifest tells of it."""
    columns = ", ".join(f"{field.name} {_duckdb_type(field.type)}" for field in DAMAGE)
    connection.execute(f"CREATE TEMP TABLE damage ({columns})")
    if found:
        rows = [[each[name] for name in DAMAGE.names] for each in found]
        connection.executemany("INSERT INTO damage VALUES (?, ?, ?, ?)", rows)


def _column(field: pa.Field, is_there: bool) -> str:
    value = f'"{published_name(field.name)}"' if is_there else "NULL"
    if field.name in MOMENTS and is_there:
        return f'epoch_ms({value}) AS "{field.name}"'
    return f'CAST({value} AS {_duckdb_type(field.type)}) AS "{field.name}"'  # structs may have got fields since


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = (f'"{field.name}" {_duckdb_type(field.type)}' for field in kind)
        return f"STRUCT({', '.join(fields)})"
    return DUCKDB_TYPES[kind]


FROM_THE_LOG = ("commits", "open_commits", "group_records", "markers")
OF_GROUPS = ("commits", "open_commits", "group_records")
STATE_OF_GROUPS = ("group_state", "members", "offsets", "open_commits")


class Moment:
    """The log of each partition before the first record with a later time, and what follows from it.

    `now` gives the relation of a table as it is today. What is made here has names of its own, which begin with `name`.
    With a condition on groups, `only`, theirs are the only rows that anything is derived from; where a partition's log
    ends at that moment is told by the records of all groups, but only of partitions that these groups are in.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        now: Callable[[str], str],
        as_of_ms: int,
        name: str,
        only: str | None = None,
        lists_all_topics: bool = False,
    ) -> None:
        self._only = only
        self._lists_all_topics = lists_all_topics
        self._connection = connection
        self._now = now
        self._as_of_ms = int(as_of_ms)
        self._name = name
        self._made: set[str] = set()

    def relation(self, table: str) -> str:
        """A relation with the rows that the table would have had."""
        match table:
            case "commits":
                return f"(SELECT * FROM {self._commits()} c WHERE c.txn_outcome IS NULL OR c.txn_outcome <> 'open')"
            case "group_records" | "markers" | "rebalances":
                return self._before(table)
            case "log_ends":
                return f"(SELECT * FROM {self._now(table)} r WHERE r.observed_at_ms <= {self._as_of_ms})"
            case "lag_history" | "rates":  # of intervals that were over
                is_over = f"r.interval_start_ms + r.interval_ms <= {self._as_of_ms}"
                return f"(SELECT * FROM {self._now(table)} r WHERE {is_over})"
            case "group_hours":
                return f"(SELECT * FROM {self._now(table)} r WHERE r.hour_ms + {HOUR_MS} <= {self._as_of_ms})"
            case "offsets":
                return self._kept(table, lambda: queries.offsets(self._commits()))
            case "open_commits":
                return self._kept(table, lambda: queries.open_offsets(self._commits()))
            case "group_state":
                return self._kept(table, lambda: queries.group_state(self._before("group_records")))
            case "members":
                return self._kept(table, lambda: queries.members(self.relation("group_state"), DUCKDB_EXPLODE))
            case "groups":
                return self._kept(table, lambda: queries.groups(*map(self.relation, STATE_OF_GROUPS)))
            case "lag":
                return self._kept(table, self._lag)
            case "verdicts":
                is_over = f"r.at_ms <= {self._as_of_ms} AND ({self._only or 'TRUE'})"
                return f"(SELECT * FROM {self._now(table)} r WHERE {is_over})"
            case "status":
                return self._kept(table, self._status)
            case "expiry":
                return self._kept(table, self._expiry)
            case "damage":
                return f"(SELECT * FROM {self._now(table)} r WHERE r.found_at_ms <= {self._as_of_ms})"
            case "findings":
                return self._kept(table, self._findings)
            case _:
                raise BadInput(f"the table {table} is kept for now only. Leave --as-of out.")

    def _lag(self) -> str:
        offsets, members = self.relation("offsets"), self.relation("members")
        newest = self._kept("newest_ends", lambda: ends_at(self._now("log_ends"), self._as_of_ms))
        return lag(offsets, self.relation("log_ends"), newest, members, explode=DUCKDB_EXPLODE)

    def _status(self) -> str:
        kinds = {name: TABLES["status"].field(name).type for name in NOT_REMEMBERED}
        unknown = {name: f"CAST(NULL AS {_duckdb_type(kind)})" for name, kind in kinds.items()}
        offsets, lag, verdicts = map(self.relation, ("offsets", "lag", "verdicts"))
        return status_then(offsets, lag, verdicts, self._as_of_ms, unknown)

    def _expiry(self) -> str:
        """By the retention that the last run knew."""
        asked = f"SELECT coalesce(max(r.retention_ms), {WEEK_MS}) FROM {self._now('expiry')} r"
        ((retention_ms,),) = self._connection.execute(asked).fetchall()
        offsets, groups, members = map(self.relation, ("offsets", "groups", "members"))
        state, waiting = map(self.relation, ("group_state", "open_commits"))
        return expiry(offsets, groups, members, state, waiting, self._as_of_ms, retention_ms, DUCKDB_EXPLODE)

    def _findings(self) -> str:
        relations = {table: self.relation(table) for table in NEEDED}
        return findings(relations, Asked(self._as_of_ms, self._lists_all_topics, DUCKDB))

    def _commits(self) -> str:
        """Commits, deletions and transactions that were open then; too many to be made a table of."""
        return f"({queries.commits_before(self._some('commits'), self._some('open_commits'), self._ends())})"

    def _before(self, table: str) -> str:
        names = [f'"{name}"' for name in TABLES[table].names]
        return f"({queries.before(self._some(table), names, self._ends())})"

    def _some(self, table: str) -> str:
        """Rows of a table as it is today, of the groups asked for.

        Where they are is said once more in words that bounds of files and of their row groups have an answer to.
        """
        if self._only is None or "group_id" not in TABLES[table].names:
            return self._now(table)
        return f"(SELECT * FROM {self._now(table)} g WHERE ({self._only}) AND {self._where_they_are})"

    @cached_property
    def _where_they_are(self) -> str:
        found = f"SELECT count(*), max(e.end_offset) FROM {self._ends()} e"
        ((ended, last),) = self._connection.execute(found).fetchall()
        is_before = f" AND log_offset < {last}" if ended and ended == len(self._partitions) else ""
        return f"offsets_partition IN ({_numbers(self._partitions)}){is_before}"

    @cached_property
    def _partitions(self) -> list[int]:
        """Partitions of the offsets topic that the groups asked for have ever had records in."""
        names = [f"SELECT offsets_partition FROM {self._now(table)} g WHERE {self._only}" for table in OF_GROUPS]
        return [number for (number,) in self._connection.execute(" UNION ".join(names)).fetchall()]

    def _ends(self) -> str:
        return self._kept("ends", self._prefix_ends)

    def _prefix_ends(self) -> str:
        history = [self._now(table) for table in FROM_THE_LOG]
        if self._only is not None:
            place = f"offsets_partition IN ({_numbers(self._partitions)})"
            history = [f"(SELECT * FROM {one} h WHERE {place})" for one in history]
        return queries.prefix_ends(*history, as_of_ms=self._as_of_ms)

    def _kept(self, table: str, query: Callable[[], str]) -> str:
        """Make a table once: state is small, and asked for several times."""
        name = f"{self._name}_{table}"
        if name not in self._made:
            self._connection.execute(f"CREATE TEMP TABLE {name} AS {query()}")
            self._made.add(name)
        return name


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "NULL"
