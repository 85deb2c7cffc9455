"""State, rebalances and lag of some partitions, by one task: what this run found on top of what the last one left.

All records of a group are in one partition of the offsets topic, so a partition's state depends on nothing outside of
it, and no row needs to move between tasks. The SQL is run by duckdb, which spills to disk what does not fit.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from muster.pipeline import merge
from muster.pipeline.extract_files import TableWriter
from muster.pipeline.model import WrittenFile
from muster.pipeline.plan import Cut
from muster.pipeline.rebalance_run import Activity, rebalances_now
from muster.pipeline.sources import Times
from muster.tables import lag_queries, queries
from muster.tables.relations import add_relation
from muster.tables.schemas import COMMITS, GROUP_RECORDS, LOG_ENDS, MARKERS, TABLES, TIMES

Files = tuple[str, ...]
MOST_LOOKUPS = 100_000
"""Records looked at for their timestamp by one task; groups beyond that have their lag in time interpolated."""
BATCH_ROWS = 1 << 17


class MergeWork(NamedTuple):
    """Which partitions, and where everything about them is. Files are absolute paths or addresses."""

    run_id: str
    tables: str
    storage_options: tuple[tuple[str, str], ...]
    history: bool
    partitions: tuple[int, ...]
    rebuilt: tuple[tuple[int, int], ...]
    """Partitions whose state comes from the log alone, and how far each had been read before."""
    cuts: tuple[Cut, ...]
    before: Mapping[str, Files]
    """By table."""
    staged: Mapping[str, Files]
    """`winners_commits`, `winners_groups`, `open_commits`, `activity` of this run."""
    staged_again: Mapping[str, Files]
    """The same of rebuilt partitions, from the whole log."""
    new: Mapping[str, Files]
    """Files added to `group_records` and `markers` by this run; for cut partitions all of `group_records`."""
    log_ends: Files
    run_number: int
    times: Times


class MergeAnswer(NamedTuple):
    files: tuple[WrittenFile, ...]
    """State of these partitions, all of it; and rows to append to `commits` and `rebalances`."""
    unmeasured: int
    """Groups' partitions beyond `MOST_LOOKUPS`."""


def merge_task(work: MergeWork) -> MergeAnswer:
    """Merge; run again, it writes other files and answers the same."""
    with tempfile.TemporaryDirectory() as spill, closing(duckdb.connect(config=_config(spill))) as connection:
        task = _Task(work, connection)
        task.merge_offsets()
        task.merge_groups()
        if work.history:
            task.tell_rebalances()
        task.measure_lag()
        return MergeAnswer(tuple(task.files), task.unmeasured)


def _config(spill: str) -> dict[str, str | int]:
    return {"temp_directory": spill, "threads": 1, "preserve_insertion_order": "false"}


class _Task:
    def __init__(self, work: MergeWork, connection: Any) -> None:
        self.work, self.connection = work, connection
        self.files: list[WrittenFile] = []
        self.unmeasured = 0
        self.rebuilt = {number: place for number, place in work.rebuilt if number in work.partitions}
        for table in ("offsets", "open_commits", "group_state"):
            self._view(f"{table}_held", TABLES[table], work.before.get(table, ()))
            self._view_of(f"{table}_before", f"SELECT * FROM {table}_held WHERE {merge.not_in(self.rebuilt)}")
        for name, schema in (
            ("winners_commits", COMMITS),
            ("open_commits", COMMITS),
            ("winners_groups", GROUP_RECORDS),
        ):
            self._staged(name, schema)

    # Relations

    def _view(self, name: str, schema: pa.Schema, files: Sequence[str], here_only: bool = True) -> None:
        """A relation over Parquet files: the rows of this task's partitions."""
        numbers = ", ".join(str(number) for number in self.work.partitions)
        where = f"WHERE offsets_partition IN ({numbers})" if here_only else ""
        work = self.work
        add_relation(self.connection, f"{name}_all", schema, files, work.tables, dict(work.storage_options))
        self._view_of(name, f"SELECT * FROM {name}_all {where}")

    def _view_of(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")

    def _table_of(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")

    def _staged(self, name: str, schema: pa.Schema) -> None:
        """What tasks staged; of rebuilt partitions only what was found in the whole log."""
        self._view(f"first_{name}", schema, self.work.staged.get(name, ()))
        self._view(f"again_{name}", schema, self.work.staged_again.get(name, ()))
        self._view_of(
            f"staged_{name}",
            f"SELECT * FROM first_{name} WHERE {merge.not_in(self.rebuilt)} UNION ALL SELECT * FROM again_{name}",
        )

    def _write(self, table: str, sql: str) -> None:
        """Rows of a table, into files of this task's own."""
        schema = TABLES[table]
        directory = f"{self.work.tables}/{table}"
        writer = TableWriter(table, schema, directory, self.work.storage_options, self.work.run_id, "")
        names = ", ".join(f'q."{name}"' for name in schema.names)
        for batch in self.connection.sql(f"SELECT {names} FROM ({sql}) q").to_arrow_reader(BATCH_ROWS):
            writer.append(pa.Table.from_batches([batch]).cast(schema))
        writer.close()
        self.files += writer.files

    # Steps

    def merge_offsets(self) -> None:
        self._view("new_markers", MARKERS, self.work.new.get("markers", ()))
        self._table_of("resolved", merge.resolved("open_commits_before", "new_markers"))
        self._view_of(
            "candidates",
            merge.candidates("offsets_before", "staged_winners_commits", "resolved", "open_commits_before"),
        )
        self._table_of("offsets", queries.offsets("candidates"))
        self._table_of("still_open", merge.still_open("open_commits_before", "resolved", "staged_open_commits"))
        waiting = merge.deletions_that_wait("still_open", "candidates")
        self._table_of("open_commits", f"SELECT * FROM still_open UNION ALL {waiting}")
        self._write("offsets", "SELECT * FROM offsets")
        self._write("open_commits", "SELECT * FROM open_commits")
        if self.work.history:
            self._write("commits", "SELECT * FROM resolved")
            if self.rebuilt:
                self._view_of(
                    "open_commits_lost", f"SELECT * FROM open_commits_held WHERE NOT ({merge.not_in(self.rebuilt)})"
                )
                self._write(
                    "commits",
                    merge.resolved_by_rebuilding("open_commits_lost", "staged_open_commits", "staged_winners_commits"),
                )
                self._view_of("lost", self._lost())
                self._write(
                    "commits", merge.vanished("lost", "staged_winners_commits", "staged_open_commits", self.rebuilt)
                )

    def _lost(self) -> str:
        """What was in force in rebuilt partitions; but what a truncation cut off never was, and is withdrawn."""
        cut = "".join(
            f" AND NOT (offsets_partition = {cut.offsets_partition} AND log_offset >= {cut.log_offset})"
            for cut in self.work.cuts
        )
        return f"SELECT * FROM offsets_held WHERE NOT ({merge.not_in(self.rebuilt)}){cut}"

    def merge_groups(self) -> None:
        self._view_of(
            "group_candidates", "SELECT * FROM group_state_before UNION ALL SELECT * FROM staged_winners_groups"
        )
        self._table_of("group_state", queries.group_state("group_candidates"))
        self._table_of("members", queries.members("group_state", queries.DUCKDB_EXPLODE))
        self._write("group_state", "SELECT * FROM group_state")
        self._write("members", "SELECT * FROM members")
        self._write("groups", queries.groups("group_state", "members", "offsets", "open_commits"))

    def tell_rebalances(self) -> None:
        cut = {each.offsets_partition for each in self.work.cuts}
        self._view("new_group_records", GROUP_RECORDS, self.work.new.get("group_records", ()))
        for table in ("latest_rebalances", "activity"):
            self._view(f"{table}_held", TABLES[table], self.work.before.get(table, ()))
            self._view_of(f"{table}_before", f"SELECT * FROM {table}_held WHERE {merge.not_in(cut)}")
        self._view_of("group_state_known", f"SELECT * FROM group_state_held WHERE {merge.not_in(cut)}")
        self._view("staged_activity", TABLES["activity"], self.work.staged.get("activity", ()))
        told = rebalances_now(
            self._rows("new_group_records", GROUP_RECORDS, "ORDER BY group_id, log_offset"),
            self._rows("group_state_known", GROUP_RECORDS),
            self._rows("latest_rebalances_before", TABLES["latest_rebalances"]),
            Activity(
                self._rows("activity_before", TABLES["activity"]), self._rows("staged_activity", TABLES["activity"])
            ),
        )
        for table, rows in (
            ("rebalances", told.final),
            ("latest_rebalances", told.latest),
            ("activity", told.activity),
        ):
            self.connection.register(f"told_{table}", rows)
            self._write(table, f"SELECT * FROM told_{table}")

    def _rows(self, relation: str, schema: pa.Schema, order: str = "") -> pa.Table:
        return self.connection.sql(f"SELECT * FROM {relation} {order}").to_arrow_table().cast(schema)

    def measure_lag(self) -> None:
        self._view("log_ends", LOG_ENDS, self.work.log_ends, here_only=False)
        run_number = self.work.run_number
        behind = f"""
            SELECT DISTINCT o.topic, o.partition, o.committed_offset FROM offsets o
            JOIN ({lag_queries.newest_log_ends("log_ends", run_number=run_number)}) e
            ON o.topic = e.topic AND o.partition = e.partition WHERE o.committed_offset < e.log_end_offset"""
        rows = self.connection.execute(f"{behind} LIMIT {MOST_LOOKUPS + 1}").fetchall()
        if len(rows) > MOST_LOOKUPS:
            self.unmeasured = self.connection.execute(f"SELECT count(*) FROM ({behind})").fetchone()[0] - MOST_LOOKUPS
        wanted: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in rows[:MOST_LOOKUPS]:
            wanted.setdefault((topic, partition), []).append(offset)
        self.connection.register("times", self.work.times(wanted) if wanted else TIMES.empty_table())
        explode = queries.DUCKDB_EXPLODE
        self._write("lag", lag_queries.lag("offsets", "log_ends", "members", "times", None, explode, run_number))
