"""The tasks that make `lag_history`, `rates` and `group_hours`: some groups each, by duckdb, within its memory.

`muster.tables` defines the tables (`intervals`, `hours`), in SQL. A row is made of what is of its group, and all
records of a group are in one partition of the offsets topic: so a task takes some of these partitions (`Share`), or
some groups of one that is large. Where a log ended is told by rows of any group: for that a task looks into all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.tables.relations import add_relation
from muster.tables.schemas import TABLES, published_name
from muster.tables.scratch import limited_duckdb
from muster.tables.sql import hours, intervals, queries
from muster.tables.sql.ends import observed_since
from muster.tables.sql.hours import DUCKDB_SIZE, HOUR_MS, LOOK_BACK_HOURS
from muster.tables.sql.intervals import Held
from muster.tables.storage.files import TableWriter, WrittenFile

STARTS = {"lag_history": "interval_start_ms", "rates": "interval_start_ms", "group_hours": "hour_ms"}
FROM_THE_START = 0
NAMES = ("group_id", "topic")
OF_OWN_GROUPS = ("before_lag_history", "before_rates")
"""Published rows do not tell the partition of the offsets topic that their group is in."""


class Share(NamedTuple):
    """The groups of one task."""

    partitions: tuple[int, ...] = ()
    """Of the offsets topic."""
    is_rest: bool = True
    """Whether it has all partitions but these."""
    slot: int = 0
    slots: int = 1
    """Into how many tasks the groups of these partitions are divided, and which one this is."""

    @property
    def is_everything(self) -> bool:
        return self.is_rest and not self.partitions and self.slots == 1

    def condition(self) -> str:
        """On rows that have `offsets_partition` and `group_id`."""
        numbers = ", ".join(map(str, self.partitions))
        told = [f"offsets_partition {'NOT IN' if self.is_rest else 'IN'} ({numbers})"] if self.partitions else []
        told += [f"hash(group_id) % {self.slots} = {self.slot}"] if self.slots > 1 else []
        return " AND ".join(told) or "TRUE"


class Place(NamedTuple):
    """Where rows go, and what a task may use meanwhile."""

    tables: str
    storage_options: tuple[tuple[str, str], ...]
    run_id: str
    memory_mb: int
    edges_ms: tuple[int, ...] = ()
    """Rows of a file begin between two of these: the next run replaces the newest, and leaves other files alone."""


class Making(NamedTuple):
    """Tables to be made from a moment on, of some groups."""

    tables: tuple[str, ...]
    """All of them are made of the same files."""
    since_ms: int
    files: Mapping[str, Sequence[str]]
    """Of each table that they are made of. What was published by the run before is under `before_` and its name;
    `all_` has rows of other groups too.

    `log_ends` is there for tables by interval, and not for hours; `new_commits` if only what it holds is new;
    `before_offsets` if published rows tell what was in force at `since_ms`, else `commits` is whole and tells it.
    """
    share: Share
    place: Place
    interval_ms: int
    observed_until: int = -1
    """The last run whose observations of ends the published rows are made of."""


class Keeping(NamedTuple):
    """Rows of some files from before a moment, which stay when those behind it are replaced."""

    table: str
    files: tuple[str, ...]
    until_ms: int
    place: Place


def make(work: Making | Keeping) -> list[WrittenFile]:
    """Write rows into the directories of their tables; run again, it writes other files with the same rows."""
    with limited_duckdb(work.place.memory_mb) as connection:
        if isinstance(work, Keeping):
            _add(connection, "held", work.table, work.files, work.place)
            kept = f"SELECT * FROM held WHERE {STARTS[work.table]} < {work.until_ms}"
            return written(work.table, work.place, rows(connection, kept, work.table))
        _open(connection, work)
        made = [written(table, work.place, rows(connection, _query(work, table), table)) for table in work.tables]
        return [file for files in made for file in files]


# Relations


def _open(connection: duckdb.DuckDBPyConnection, work: Making) -> None:
    """The relations of a work, with rows of its own groups. Groups and topics are numbers there (an ENUM): names take
    twice as long to sort.
    """
    for name, files in work.files.items():
        _add(connection, f"named_{name}", table_of(name), files, work.place, _condition(work, name))
    for column in NAMES:
        having = [f"SELECT {column} FROM named_{name}" for name in work.files if column in TABLES[table_of(name)].names]
        names = f"SELECT {column} FROM ({' UNION '.join(having)}) WHERE {column} IS NOT NULL ORDER BY {column}"
        if having:
            connection.execute(f"CREATE TEMP TYPE {column}_number AS ENUM ({names})")
    having = [f"SELECT group_id FROM named_{name}" for name in ("commits", "before_offsets") if name in work.files]
    connection.execute(f"CREATE TEMP VIEW own AS {' UNION '.join(having)}")
    for name in work.files:
        columns = [column for column in NAMES if column in TABLES[table_of(name)].names]
        numbers = ", ".join(f"CAST({column} AS {column}_number) AS {column}" for column in columns)
        is_shared = name in OF_OWN_GROUPS and not work.share.is_everything
        only = "WHERE group_id IN (SELECT group_id FROM own)" if is_shared else ""
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * REPLACE ({numbers}) FROM named_{name} {only}")
    if "log_ends" in work.files:
        moved = intervals.moved("commits", work.interval_ms, work.since_ms)
        connection.execute(f"CREATE TEMP TABLE moved AS {moved}")


def _add(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: str,
    files: Sequence[str],
    place: Place,
    condition: str = "TRUE",
) -> None:
    options = dict(place.storage_options)
    add_relation(connection, name, TABLES[table], files, place.tables, options, condition=condition)


def table_of(name: str) -> str:
    """The table that files of a work are of."""
    return name.removeprefix("before_").removeprefix("new_").removeprefix("all_")


def _condition(work: Making, name: str) -> str:
    """On published rows of a relation: those of the share, from a moment on. It says again what the query says, in a
    way that lets duckdb leave out parts of files by their bounds.
    """
    told = [] if name.startswith("all_") else [work.share.condition()]
    told = told if "offsets_partition" in TABLES[table_of(name)].names else []
    since_ms = work.since_ms - (LOOK_BACK_HOURS * HOUR_MS if name == "before_group_hours" else 0)
    if name == "all_commits":
        told.append("kind <> 'commit'")
    is_whole = name == "commits" and "log_ends" in work.files and "before_offsets" not in work.files
    if since_ms > FROM_THE_START and not is_whole:
        told += _since(table_of(name), since_ms)
    return " AND ".join(told) or "TRUE"


def _since(table: str, since_ms: int) -> list[str]:
    moment = f"TIMESTAMPTZ '{datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S+00}'"
    if table == "commits":
        column = published_name(intervals.TIMES[0])
        return [f'("{column}" >= {moment} OR "{column}" IS NULL)']
    return [f'"{published_name(STARTS[table])}" >= {moment}'] if table in STARTS else []


# Queries


def _query(work: Making, table: str) -> str:
    goes_on = work.since_ms > FROM_THE_START
    if table == "group_hours":
        before = f"({hours.hours_before('before_group_hours', work.since_ms)})" if goes_on else None
        rebalances = f"({queries.all_rebalances('rebalances', 'latest_rebalances')})"
        return hours.group_hours("commits", rebalances, work.since_ms, before, DUCKDB_SIZE)
    before = intervals.states_at("commits", work.since_ms)
    if "before_offsets" in work.files:
        before = intervals.states_before("before_lag_history", "before_offsets", work.since_ms)
    made = {"lag_history": intervals.lag_history, "rates": intervals.rates}[table]
    held = _held(work, table) if f"before_{table}" in work.files else None
    return made("moved", "log_ends", work.interval_ms, work.since_ms, f"({before})" if goes_on else None, held)


def _held(work: Making, table: str) -> Held:
    observed = f"({observed_since('log_ends', work.observed_until, work.interval_ms)})"
    is_known = "new_commits" in work.files
    committed = f"({intervals.committed_since('new_commits', work.interval_ms)})" if is_known else None
    return Held(f"before_{table}", f"all_{table}", "all_commits", observed, committed)


# Files


def rows(connection: duckdb.DuckDBPyConnection, sql: str, table: str) -> Iterator[pa.Table]:
    """The inner rows of a table that a query gives."""
    for batch in connection.sql(sql).to_arrow_reader():
        yield pa.Table.from_batches([batch]).cast(TABLES[table])


def written(table: str, place: Place, rows: Iterable[pa.Table]) -> list[WrittenFile]:
    """Inner rows in files of the table, apart where the edges are."""
    schema, directory = TABLES[table], f"{place.tables}/{table}"
    edges = sorted(place.edges_ms, reverse=True)
    writers = [
        TableWriter(table, schema, directory, place.storage_options, place.run_id) for _ in range(len(edges) + 1)
    ]
    try:
        for left in rows:
            for writer, edge_ms in zip(writers, edges, strict=False):
                is_later = pc.greater_equal(left[STARTS[table]], edge_ms)
                writer.append(left.filter(is_later))
                left = left.filter(pc.invert(is_later))
            writers[-1].append(left)
        for writer in writers:
            writer.close()
    finally:
        for writer in writers:
            writer.abandon()
    return [file for writer in writers for file in writer.files]
