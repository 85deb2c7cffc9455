"""Asking the tables with duckdb: no JVM, the same files, the same SQL as Spark's.

Everything is read in the versions that one manifest names, so an answer is of one run even while another is under way.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import pyarrow as pa

from muster.errors import BadInput
from muster.patterns import is_wild, like, literal
from muster.tables import scratch
from muster.tables.clocks import iso_time, shown
from muster.tables.relations import FROM_THE_LOG, Moment, add_damage, add_relation
from muster.tables.schemas import ANALYTICS, HISTORY, JUDGED, TABLES, published_form
from muster.tables.sql import queries
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.store import TableStore
from muster.tables.times import published

NOT_SHOWN = {"latest_rebalances": "rebalances"}
"""Tables that are the pipeline's own, and where their rows are shown."""

ORDERS = {
    "commits": "offsets_partition, log_offset",
    "open_commits": "offsets_partition, log_offset",
    "group_records": "offsets_partition, log_offset",
    "markers": "offsets_partition, log_offset",
    "group_state": "group_id, record_type, log_offset",
    "rebalances": "at_ms, offsets_partition, log_offset",
    "log_ends": "topic, partition, observed_at_ms",
    "offsets": "group_id, topic, partition",
    "lag": "group_id, topic, partition",
    "groups": "group_id",
    "members": "group_id, member_id",
    "activity": "group_id",
    "lag_history": "group_id, topic, partition, interval_start_ms",
    "rates": "group_id, topic, partition, interval_start_ms",
    "group_hours": "group_id, hour_ms",
    "status": "group_id, topic, partition",
    "verdicts": "at_ms, group_id, topic, partition",
    "expiry": "group_id, topic, partition",
    "findings": "severity, kind, group_id, topic, partition, member_id",
}


STARTS = ("interval_start_ms", "hour_ms")
"""Columns that say where an interval of time begins."""


class Answer(NamedTuple):
    """Rows as they are published, and what their absence means."""

    rows: Any  # pyarrow.RecordBatchReader
    schema: Any
    complete_since: Mapping[int, int | None]
    """Partitions of the offsets topic of which the moment asked for is not wholly known, and since when they are
    (None: not known). A key of theirs that is not among the rows is *unknown*, not absent."""
    as_of_ms: int
    """Of which moment the rows are: the one asked for, else that of the tables (`Manifest.moment_ms`)."""
    ends_observed_at_ms: int | None = None
    """Of `lag`: of when the newest of the ends of logs is that it is measured against."""
    ends_are_drawn: bool = False
    """Of `lag`: some of them between two observations."""

    def table(self) -> Any:
        """All rows as one `pyarrow.Table`."""
        return self.rows.read_all()


class GroupEnd(NamedTuple):
    """What history knows of a group that is gone."""

    deleted_at_ms: int | None
    """None: not known."""
    kind: str
    """`deleted`, `expired` or `vanished`, as in `commits`."""
    last_seen_ms: int | None
    """Time of the last record that was no deletion."""


class TableFacts(NamedTuple):
    """One line of the list of tables."""

    table: str
    rows: int
    version: int
    files: int
    newest_ms: int | None


def open_tables(address: str | Path, storage_options: Mapping[str, str] | None = None) -> "Tables":
    """The tables at an address as the last published run left them."""
    store = TableStore(address, storage_options)
    return Tables(store, store.published())


class Tables:
    """Tables of one run, open for questions. Close it, or use it in a `with`."""

    def __init__(self, store: TableStore, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest
        self._connection = scratch.connect()
        self._opened: set[str] = set()
        self._moments: dict[tuple[int, str | None], Moment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def read(
        self,
        table: str,
        as_of_ms: int | None = None,
        where: Mapping[str, str | Sequence[str]] | None = None,
        limit: int | None = None,
    ) -> Answer:
        """Rows of a table now or as of a moment, in the order people look for them.

        `where` has a pattern, or several, by column (`*` and `?` are wildcards); a row must match one of each. Take the
        rows before asking for more: duckdb does one thing at a time. `BadInput` for a moment that tables do not know.
        """
        table = self._known(table)
        if as_of_ms is not None:
            self.check_moment(as_of_ms)
        patterns = {column: [some] if isinstance(some, str) else some for column, some in (where or {}).items()}
        conditions, values = _conditions(table, patterns)
        with self._told():
            only = _groups(table, patterns)
            relation = self._now(table) if as_of_ms is None else self._moment(as_of_ms, only).relation(table)
        sql = f"SELECT {_names(table)} FROM {relation} q {conditions} ORDER BY {ORDERS[table]}"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        schema = published_form(TABLES[table])
        drawn = "coalesce(bool_or(log_end_by = 'interpolated'), FALSE)"
        asked = f"SELECT max(observed_at_ms), {drawn} FROM {relation} q"
        observed = self._one(asked) if table == "lag" else (None, False)
        with self._told():
            batches = self._connection.sql(sql, params=values).to_arrow_reader()
        each = self._each(batches, TABLES[table], schema)
        if as_of_ms is not None:
            each = self._if_known(each, as_of_ms)
        rows = pa.RecordBatchReader.from_batches(schema, each)
        incomplete = {} if as_of_ms is None else self.incomplete(as_of_ms)
        moment_ms = self.manifest.moment_ms if as_of_ms is None else as_of_ms
        return Answer(rows, schema, incomplete, moment_ms, *observed)

    def relation(self, table: str, as_of_ms: int | None = None, groups: Sequence[str] = ()) -> str:
        """A relation with the inner rows of a table, now or as of a moment, for SQL of one's own (`asked`).

        Tables that are the pipeline's own (`NOT_SHOWN`) can be had as of now.
        `groups` are patterns; theirs are then the only rows, and all that a moment is derived from. `BadInput` for a
        moment that the tables do not know.
        """
        if table not in NOT_SHOWN or as_of_ms is not None:
            table = self._known(table)
        if as_of_ms is not None:
            self.check_moment(as_of_ms)
        only = _groups(table, {"group_id": groups})
        with self._told():
            relation = self._now(table) if as_of_ms is None else self._moment(as_of_ms, only).relation(table)
        return relation if only is None else f"(SELECT * FROM {relation} g WHERE {only})"

    def asked(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query over relations, with a value for each of its question marks."""
        with self._told():
            rows: list[tuple[Any, ...]] = self._connection.execute(sql, values).fetchall()
        return rows

    def columns(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The same as a `pyarrow.Table`: for many rows."""
        with self._told():
            return self._connection.sql(sql, params=values).to_arrow_table()

    def check_moment(self, as_of_ms: int, option: str = "--as-of ") -> None:
        """Refuse a moment that the tables do not know. `option` is what stands before it in the command."""
        named = option or "that moment "
        if self.manifest.source.get("history") is False:
            raise BadInput(
                f"the tables at {self.store.address} are of state alone (--state-only): nothing is known of the past. "
                f"Leave {named}out."
            )
        if as_of_ms > self.manifest.known_until_ms:
            raise BadInput(
                f"the tables at {self.store.address} end at {shown(self.manifest.known_until_ms)}, when the last run "
                f"looked; nothing is known of {shown(as_of_ms)}. Run `muster pipeline run` again, or leave {named}out "
                "to see the last state that is known."
            )

        since_ms = self.manifest.history_since_ms
        if since_ms is not None and as_of_ms < since_ms:
            raise BadInput(
                f"the tables at {self.store.address} have dropped what was before {shown(since_ms)} (--keep-history); "
                f"{shown(as_of_ms)} is not known any more. Ask for {option}{iso_time(since_ms)} or later."
            )

    def _if_known(self, batches: Iterator[Any], as_of_ms: int) -> Iterator[Any]:
        """The same batches. Where there are none, the moment may be one of which nothing is known: it is refused."""
        first = next(batches, None)
        if first is not None:
            return chain((first,), batches)
        self.refuse_unknown(as_of_ms)
        return batches

    def refuse_unknown(self, as_of_ms: int, option: str = "--as-of ") -> None:
        """Refuse a moment before all that history has: where there is no row, that may be why."""
        first_ms = self.first_record_ms()
        if first_ms is not None and as_of_ms < first_ms:
            raise BadInput(
                f"the oldest record in the tables at {self.store.address} is of {shown(first_ms)}: nothing is known of "
                f"{shown(as_of_ms)}. Ask for {option}{iso_time(first_ms)} or later."
            )

    def first_record_ms(self) -> int | None:
        """The time of the oldest record in history: nothing is known of a moment before it."""
        tables = [self._history(table) for table in FROM_THE_LOG]
        times = " UNION ALL ".join(f"SELECT min(timestamp_ms) AS ms FROM {table} t" for table in tables)
        found: int | None = self._one(f"SELECT min(ms) FROM ({times}) m")[0]
        return found

    def end_of_group(self, group_id: str) -> GroupEnd | None:
        """How a group ended that is not there any more; None if history has no deletion of it."""
        sql = f"""
            SELECT max(r.timestamp_ms) FILTER (WHERE r.is_end), max_by(r.kind, r.log_offset) FILTER (WHERE r.is_end),
                max(r.timestamp_ms) FILTER (WHERE NOT r.is_end) FROM (
                SELECT c.timestamp_ms, c.log_offset, c.kind, c.kind <> 'commit' AS is_end FROM {self._now("commits")} c
                WHERE c.group_id = $1
                UNION ALL SELECT g.timestamp_ms, g.log_offset, 'deleted', g.is_tombstone
                FROM {self._now("group_records")} g WHERE g.group_id = $1
            ) r"""
        deleted_at_ms, kind, last_seen_ms = self._one(sql, [group_id])
        return None if kind is None else GroupEnd(deleted_at_ms, kind, last_seen_ms)

    def incomplete(self, as_of_ms: int) -> dict[int, int | None]:
        """Partitions whose history begins later than this moment: compaction was there before the first run."""
        return {
            number: progress.complete_since_ms
            for number, progress in sorted(self.manifest.progress.items())
            if progress.complete_since_offset > 0
            and (progress.complete_since_ms is None or progress.complete_since_ms > as_of_ms)
        }

    def not_kept(self, table: str) -> str:
        """Why a table is empty whatever happened; "" where it is not known to be."""
        is_state_alone = self.manifest.source.get("history") is False
        if is_state_alone and table in HISTORY | ANALYTICS | JUDGED and table != "log_ends":
            return f"the tables are of state alone (--state-only): {table} is not kept."
        if table in ANALYTICS | JUDGED and table not in self.manifest.tables:
            return f"{table} was never made (--no-analytics): the next run without that option makes it."
        return ""

    def facts(self) -> list[TableFacts]:
        """What there is: rows and newest time of each table."""
        found = []
        for table in ORDERS:
            with self._told():
                relation = self._now(table)
            times = [
                name for name in ("timestamp_ms", "at_ms", "observed_at_ms", *STARTS) if name in TABLES[table].names
            ]
            newest = f"max({times[0]})" if times else "NULL"
            rows, newest_ms = self._one(f"SELECT count(*), {newest} FROM {relation} q")
            version = self.manifest.tables.get(table, -1)
            found.append(TableFacts(table, rows, version, len(self.files(table)), newest_ms))
        return found

    # Relations, by name or as a query in parentheses.

    def _known(self, table: str) -> str:
        table = NOT_SHOWN.get(table, table)
        if table not in ORDERS:
            raise BadInput(f"there is no table '{table}'. There are: {', '.join(sorted(ORDERS))}.")
        return table

    def files(self, table: str) -> list[str]:
        version = self.manifest.tables.get(table)
        return [] if version is None else self.store.files(table, version)

    def _now(self, table: str) -> str:
        """A relation with the rows of a table; for rebalances with the newest of each group, kept apart on disk.

        Of open commits without those that a deletion has ended: they stay in the table until their marker comes.
        """
        self._open(table)
        if table == "open_commits":
            return f"({queries.open_offsets(table)})"
        if table != "rebalances":
            return table
        self._open("latest_rebalances")
        return f"({queries.all_rebalances('rebalances', 'latest_rebalances')})"

    def _open(self, table: str) -> None:
        if table in self._opened:
            return
        self._opened.add(table)
        if table == "damage":
            add_damage(self._connection, self.manifest.damage)
            return
        store = self.store
        files = self.files(table)
        add_relation(self._connection, table, TABLES[table], files, store.address, store.storage_options)

    def _history(self, table: str) -> str:
        """What moments are derived from: commits that were deleted since may have waited for their marker then."""
        if table != "open_commits":
            return self._now(table)
        self._open(table)
        return table

    def _moment(self, as_of_ms: int, only: str | None = None) -> Moment:
        key = as_of_ms, only
        if key not in self._moments:
            name = f"moment{len(self._moments)}"
            is_all = self.manifest.lists_all_topics
            self._moments[key] = Moment(self._connection, self._history, as_of_ms, name, only, is_all)
        return self._moments[key]

    def _one(self, sql: str, values: Sequence[str] = ()) -> tuple[Any, ...]:
        (row,) = self.asked(sql, values)
        return row

    def _each(self, batches: Any, inside: pa.Schema, schema: pa.Schema) -> Iterator[Any]:
        with self._told():
            for batch in batches:
                yield from published(pa.Table.from_batches([batch.cast(inside)]), schema).to_batches()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What duckdb says about files, as a sentence."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException) as error:
            line = str(error).strip().splitlines()[0].rstrip(".")
            raise BadInput(
                f"the tables at {self.store.address} cannot be read: {line}. If they were cleaned up meanwhile, ask "
                "again; if a file is lost or damaged, build them anew in another place."
            ) from error


def _names(table: str) -> str:
    return ", ".join(f'q."{name}"' for name in TABLES[table].names)


def _conditions(table: str, where: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """A WHERE clause and the values for its question marks."""
    clauses, values = [], list[str]()
    for column, patterns in where.items():
        if column not in TABLES[table].names:
            raise BadInput(f"the table {table} has no column {column}, so it cannot be searched by it.")
        if patterns:
            clauses.append("(" + " OR ".join(f'q."{column}" {_is(each, "?")}' for each in patterns) + ")")
            values += map(_value, patterns)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values


def _groups(table: str, where: Mapping[str, Sequence[str]]) -> str | None:
    """A condition on the groups asked for, for all that a moment is derived from; None: all groups."""
    patterns = where.get("group_id")
    if not patterns or "group_id" not in TABLES[table].names:
        return None
    texts = [_value(pattern).replace("'", "''") for pattern in patterns]
    return " OR ".join(f"group_id {_is(*each)}" for each in zip(patterns, (f"'{text}'" for text in texts), strict=True))


def _is(pattern: str, value: str) -> str:
    """The rest of a condition: is a column like this?"""
    return f"LIKE {value} ESCAPE '\\'" if is_wild(pattern) else f"= {value}"


def _value(pattern: str) -> str:
    return like(pattern) if is_wild(pattern) else literal(pattern)
