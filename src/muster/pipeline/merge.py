"""State, rebalances and lag of some partitions, by one task: what this run found on top of what the last one left.
Where it found nothing, lag alone: ends of the data have moved.

All records of a group are in one partition of the offsets topic, so merge tasks need nothing of each
other. What the reading tasks have found comes to them in packets. The SQL is run by duckdb, which spills to disk what
does not fit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.late_rows import LateRows
from muster.pipeline.packets import Packet, rows_of
from muster.pipeline.plan import Cut, Times
from muster.pipeline.rebalances.causes import COLUMNS, DELETED, rebalance_batches, with_first_commit
from muster.tables.relations import add_relation
from muster.tables.schemas import (
    COMMITS,
    GROUP_RECORDS,
    LATEST_REBALANCES,
    LOG_ENDS,
    MARKERS,
    MEMBERS,
    OFFSETS,
    REBALANCES,
    TABLES,
    TIMES,
)
from muster.tables.scratch import limited_duckdb
from muster.tables.sql import queries
from muster.tables.sql.ends import newest_ends
from muster.tables.sql.hours import HOUR_MS, LOOK_BACK_HOURS
from muster.tables.sql.lag import lag
from muster.tables.storage.files import TableWriter, WrittenFile

REMEMBERED_MS = LOOK_BACK_HOURS * HOUR_MS
"""How long something is kept of a group that is gone, in case it comes back."""


class Activity(NamedTuple):
    """Commits of groups (`schemas.ACTIVITY`): up to the last run, and in what this one has read."""

    before: pa.Table
    now: pa.Table


def rebalances_now(
    records: Iterable[pa.RecordBatch], state: pa.Table, latest: pa.Table, activity: Activity
) -> Iterator[tuple[str, pa.Table]]:
    """What new rows of `group_records`, by group and in log order, say about rebalances: tables and rows to write.

    Of `rebalances` what is new, of `latest_rebalances` and `activity` everything. `state` are the rows of `group_state`
    before the new ones, `latest` those of `latest_rebalances`. The row of a group that was deleted a week ago is final:
    there would be more and more of them.
    """
    latest = _with_first_commits(latest, activity.now)
    told: list[pa.Table] = []
    newest_ms = _newest_ms(latest)
    for batch in rebalance_batches(records, state, latest):
        rows = pa.Table.from_batches([batch])
        newest_ms = max(newest_ms, _newest_ms(rows))
        is_newest = pc.is_valid(rows["carry"])
        yield "rebalances", rows.filter(pc.invert(is_newest)).select(REBALANCES.names).cast(REBALANCES)
        yield "latest_rebalances", rows.filter(is_newest)
        told.append(rows.filter(is_newest).select(["group_id"]))
    others = _of_other_groups(latest, pa.concat_tables(told)) if told else latest
    is_final = _ended_before(others, newest_ms - REMEMBERED_MS)
    yield "rebalances", others.filter(is_final).select(REBALANCES.names).cast(REBALANCES)
    yield "latest_rebalances", others.filter(pc.invert(is_final))
    yield "activity", pa.concat_tables([_of_other_groups(activity.before, activity.now), activity.now])


def _newest_ms(rebalances: pa.Table) -> int:
    return pc.max(rebalances["at_ms"]).as_py() or 0


def _ended_before(latest: pa.Table, moment_ms: int) -> Any:
    """Which rows are of groups that were deleted before a moment."""
    is_old = pc.less(latest["at_ms"], moment_ms)
    return pc.fill_null(pc.and_(pc.equal(latest["cause"], DELETED), is_old), False)


def _of_other_groups(table: pa.Table, others: pa.Table) -> pa.Table:
    groups = pc.unique(others["group_id"]) if others.num_rows else pa.array([], pa.string())
    return table.filter(pc.invert(pc.is_in(table["group_id"], value_set=groups)))


def _by_group(table: pa.Table, column: str) -> dict[str, int | None]:
    return dict(zip(table["group_id"].to_pylist(), table[column].to_pylist(), strict=True))


def _with_first_commits(latest: pa.Table, activity: pa.Table) -> pa.Table:
    """Complete rows of earlier runs by the group's first commit since, if that came before its next generation."""
    first_ms = {group: ms for group, ms in _by_group(activity, "first_commit_ms").items() if ms is not None}
    groups = pa.array(list(first_ms), pa.string())
    missing = pc.and_(pc.is_null(latest["first_commit_after_ms"]), pc.equal(latest["type"], "classic"))
    waiting = pc.fill_null(pc.and_(missing, pc.is_in(latest["group_id"], value_set=groups)), False)
    if not pc.any(waiting).as_py():
        return latest
    rows = [with_first_commit(row, first_ms[row["group_id"]]) for row in latest.filter(waiting).to_pylist()]
    return pa.concat_tables([latest.filter(pc.invert(waiting)), pa.Table.from_pylist(rows, LATEST_REBALANCES)])


KEY = ("group_id", "topic", "partition")
AT_SAME_PLACE = "a.offsets_partition = b.offsets_partition AND a.log_offset = b.log_offset"
OF_SAME_KEY = " AND ".join(f"a.{name} = b.{name}" for name in KEY)


def _columns(given: Mapping[str, str]) -> str:
    """All columns of `commits` of the relation `a`, some of them replaced."""
    return ", ".join(f"{given[name]} AS {name}" if name in given else f"a.{name}" for name in COMMITS.names)


def not_in(partitions: Iterable[int]) -> str:
    """A condition: rows of other partitions of the offsets topic."""
    numbers = ", ".join(str(int(number)) for number in sorted(partitions))
    return f"offsets_partition NOT IN ({numbers})" if numbers else "TRUE"


REMEMBERED = f"""(a.group_id IN (
        SELECT group_id FROM offsets UNION ALL SELECT group_id FROM open_commits
        UNION ALL SELECT group_id FROM group_state
    ) OR a.last_commit_ms >= (SELECT max(last_commit_ms) - {REMEMBERED_MS} FROM (
        SELECT last_commit_ms FROM activity_held UNION ALL SELECT last_commit_ms FROM read_activity
    )))"""
"""A condition: rows `a` of activity whose group is there, or was a week ago."""


def as_commits(offsets: str) -> str:
    """Rows of `offsets` as the commits they once were."""
    known = dict.fromkeys((name for name in COMMITS.names if name not in OFFSETS.names), "NULL")
    known["kind"] = "'commit'"
    return f"SELECT {_columns(known)} FROM {offsets} a"


def candidates(offsets_before: str, winners: str, resolved: str, open_before: str) -> str:
    """Everything that may be in force: what was, what is new, and what a marker has released.

    And deletions that wait beside an open commit they have ended: without them it would come back with its marker.
    """
    return f"""
        {as_commits(offsets_before)}
        UNION ALL SELECT {_columns({})} FROM {winners} a
        UNION ALL SELECT {_columns({})} FROM {resolved} a
        UNION ALL SELECT {_columns({})} FROM {open_before} a WHERE a.txn_outcome IS NULL"""


def resolved(open_before: str, markers: str) -> str:
    """Commits of earlier runs whose transaction has ended since: the first marker of their producer decides."""
    told = {"txn_outcome": "CASE WHEN b.is_commit THEN 'committed' ELSE 'aborted' END", "txn_marker_offset": "b.marker"}
    return f"""
        SELECT {_columns(told)} FROM {open_before} a JOIN (
            SELECT o.offsets_partition, o.log_offset, min(m.log_offset) AS marker,
                min_by(m.type = 'COMMIT', m.log_offset) AS is_commit
            FROM {open_before} o JOIN {markers} m
                ON o.offsets_partition = m.offsets_partition AND o.producer_id = m.producer_id
                AND m.log_offset > o.log_offset
            GROUP BY o.offsets_partition, o.log_offset
        ) b ON {AT_SAME_PLACE} WHERE a.txn_outcome = 'open'"""


def resolved_by_rebuilding(open_before: str, open_now: str, winners: str) -> str:
    """The same for rebuilt partitions. Where the marker itself was cleaned away the outcome is unknown."""
    told = {"txn_outcome": "coalesce(b.txn_outcome, 'unknown')", "txn_marker_offset": "b.txn_marker_offset"}
    return f"""
        SELECT {_columns(told)} FROM {open_before} a
        LEFT JOIN (SELECT * FROM {winners} w WHERE w.txn_outcome IS NOT NULL) b ON {AT_SAME_PLACE}
        WHERE a.txn_outcome = 'open' AND NOT EXISTS (SELECT 1 FROM {open_now} c
            WHERE a.offsets_partition = c.offsets_partition AND a.log_offset = c.log_offset)"""


def still_open(open_before: str, resolved: str, open_now: str) -> str:
    """Commits whose transaction has not ended, as far as the log has been read."""
    return f"""
        SELECT {_columns({})} FROM {open_before} a
        WHERE a.txn_outcome = 'open' AND NOT EXISTS (SELECT 1 FROM {resolved} b WHERE {AT_SAME_PLACE})
        UNION ALL SELECT {_columns({})} FROM {open_now} a"""


def deletions_that_wait(still_open: str, candidates: str) -> str:
    """The newest deletion of each key that has an older commit in an open transaction, which it has ended already."""
    return f"""
        SELECT {_columns({})} FROM {candidates} a JOIN (
            SELECT c.group_id, c.topic, c.partition, max(c.log_offset) AS log_offset FROM {candidates} c
            WHERE c.kind <> 'commit' AND c.txn_outcome IS NULL GROUP BY c.group_id, c.topic, c.partition
        ) b ON {OF_SAME_KEY} AND a.log_offset = b.log_offset
        WHERE a.kind <> 'commit' AND EXISTS (SELECT 1 FROM {still_open} o
            WHERE o.group_id = a.group_id AND o.topic = a.topic AND o.partition = a.partition
            AND o.log_offset < a.log_offset)"""


def vanished(offsets_held: str, winners: str, open_now: str, read_before: Mapping[int, int]) -> str:
    """Keys that were in force and have no record in the log any more: deleted between two runs, at an unknown time.

    `read_before` has how far each rebuilt partition had been read. The deletion's place is unknown too; it is put right
    there, behind everything an earlier run had seen. What waits for a marker again, since a truncation took the one it
    had, is not gone.
    """
    places = " ".join(f"WHEN {int(number)} THEN {int(place)}" for number, place in sorted(read_before.items()))
    told = dict.fromkeys(COMMITS.names, "NULL") | {
        "offsets_partition": "a.offsets_partition", "log_offset": f"CASE a.offsets_partition {places} END",
        "kind": "'vanished'", "previous_commit_timestamp_ms": "a.commit_timestamp_ms",
        **{name: f"a.{name}" for name in KEY},
    }  # fmt: skip
    return f"""
        SELECT {_columns(told)} FROM {offsets_held} a
        WHERE NOT EXISTS (SELECT 1 FROM {winners} b WHERE {OF_SAME_KEY})
            AND NOT EXISTS (SELECT 1 FROM {open_now} b WHERE {OF_SAME_KEY})"""


Files = tuple[str, ...]
MOST_LOOKUPS = 100_000
"""Records looked at for their timestamp by one task; groups beyond that have their lag in time interpolated."""
BATCH_ROWS = 1 << 17
GROUP_RECORDS_AT_ONCE = 4096
"""Each has all members of its group: a hundred of them are 20 KB."""


class MergeWork(NamedTuple):
    """Which partitions, and where everything about them is. Files are absolute paths or addresses."""

    run_id: str
    tables: str
    storage_options: tuple[tuple[str, str], ...]
    history: bool
    is_new: bool
    """False: in these partitions nothing is, and their lag alone is measured."""
    partitions: tuple[int, ...]
    rebuilt: tuple[tuple[int, int], ...]
    """Partitions whose state comes from the log alone, and how far each had been read before."""
    cuts: tuple[Cut, ...]
    before: Mapping[str, Files]
    """By table; files that may have rows of these partitions, and perhaps of others."""
    new: Mapping[str, Files]
    """Files added to `group_records` and `markers` by this run."""
    all_group_records: Files
    """All of the table, where rebalances of a group are told anew."""
    told_anew: tuple[str, ...]
    """Groups of which a truncation cut off records: nothing that was known of their rebalances counts."""
    log_ends: Files
    memory_mb: int
    """Of the task's duckdb, which spills beyond it."""
    run_number: int
    offsets_retention_ms: int
    times: Times


class MergeAnswer(NamedTuple):
    files: tuple[WrittenFile, ...]
    """State of these partitions, all of it; and rows to append to history. If nothing is new, `lag` alone."""
    unmeasured: int
    """Groups' partitions beyond `MOST_LOOKUPS`."""
    lagging: int
    """How many committed offsets are before the end of their log."""


def merge_task(work: MergeWork, packets: Sequence[Sequence[Packet]]) -> MergeAnswer:
    """Merge; run again, it writes other files and answers the same.

    The packets of these partitions are of two readings: what is new, and the whole log of rebuilt ones.
    """
    with limited_duckdb(work.memory_mb) as connection:
        task = _Task(work, packets, connection)
        if work.is_new:
            task.begin()
            task.merge_offsets()
            task.merge_groups()
            if work.history:
                task.tell_rebalances()
        else:
            task.keep()
        task.measure_lag()
        return MergeAnswer(tuple(task.files), task.unmeasured, task.lagging)


class _Task:
    def __init__(self, work: MergeWork, packets: Sequence[Sequence[Packet]], connection: Any) -> None:
        self.work, self.connection = work, connection
        self.packets, self.packets_again = packets
        self.files: list[WrittenFile] = []
        self.unmeasured = self.lagging = 0
        self.rebuilt = {number: place for number, place in work.rebuilt if number in work.partitions}

    def begin(self) -> None:
        """What was before, and what this run has read."""
        work, connection = self.work, self.connection
        for table in ("offsets", "open_commits", "group_state"):
            self._view(f"{table}_held", TABLES[table], work.before.get(table, ()))
            self._view_of(f"{table}_before", f"SELECT * FROM {table}_held WHERE {not_in(self.rebuilt)}")
        self._view("activity_held", TABLES["activity"], work.before.get("activity", ()))
        self.late = LateRows(connection, self.packets, "new", work.offsets_retention_ms)
        self.late_again = LateRows(connection, self.packets_again, "again", work.offsets_retention_ms)
        for name in ("winners_commits", "open_commits", "winners_groups"):
            self._read(name)
        winners = ("read_winners_commits", "read_winners_groups")
        self.late.finish_winners(*winners, with_ended=False, but_not_in=self.rebuilt)
        self.late_again.finish_winners(*winners, with_ended=work.history)

    def keep(self) -> None:
        """What was before is what is."""
        self._view("offsets", OFFSETS, self.work.before["offsets"])
        self._view("members", MEMBERS, self.work.before["members"], here_only=False)

    # Relations

    def _view(self, name: str, schema: pa.Schema, files: Sequence[str], here_only: bool = True) -> None:
        """A relation over Parquet files: the rows of this task's partitions."""
        numbers = ", ".join(str(number) for number in self.work.partitions)
        condition = f"offsets_partition IN ({numbers})" if here_only else "TRUE"
        options = dict(self.work.storage_options)
        add_relation(self.connection, name, schema, files, self.work.tables, options, condition=condition)

    def _view_of(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")

    def _table_of(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")

    def _read(self, kind: str) -> None:
        """What this run has read, of one kind, as the table `read_<kind>`.

        Of rebuilt partitions the whole log counts, and not what is new in it; but activity is of what is new.
        """
        is_activity = kind == "activity"
        new = (each for each in self.packets if is_activity or each.offsets_partition not in self.rebuilt)
        self.connection.register("packets", rows_of([*new, *self.packets_again], kind))
        self._table_of(f"read_{kind}", "SELECT * FROM packets")
        self.connection.unregister("packets")

    def _writer(self, table: str) -> TableWriter:
        directory = f"{self.work.tables}/{table}"
        return TableWriter(table, TABLES[table], directory, self.work.storage_options, self.work.run_id)

    def _write(self, table: str, sql: str) -> None:
        """Rows of a table, into files of this task's own."""
        schema, writer = TABLES[table], self._writer(table)
        names = ", ".join(f'q."{name}"' for name in schema.names)
        for batch in self.connection.sql(f"SELECT {names} FROM ({sql}) q").to_arrow_reader(BATCH_ROWS):
            writer.append(pa.Table.from_batches([batch]).cast(schema))
        writer.close()
        self.files += writer.files

    # Steps

    def merge_offsets(self) -> None:
        self._view("new_markers", MARKERS, self.work.new.get("markers", ()))
        self._table_of("resolved", resolved("open_commits_before", "new_markers"))
        self._view_of(
            "candidates",
            candidates("offsets_before", "read_winners_commits", "resolved", "open_commits_before"),
        )
        self._table_of("offsets", queries.offsets("candidates"))
        self._table_of("still_open", still_open("open_commits_before", "resolved", "read_open_commits"))
        waiting = deletions_that_wait("still_open", "candidates")
        self._table_of("open_commits", f"SELECT * FROM still_open UNION ALL {waiting}")
        self._write("offsets", "SELECT * FROM offsets")
        self._write("open_commits", "SELECT * FROM open_commits")
        if self.work.history:
            self._write("commits", f"SELECT * FROM resolved UNION ALL SELECT * FROM {self.late.commits}")
            if self.rebuilt:
                self._view_of(
                    "open_commits_lost", f"SELECT * FROM open_commits_held WHERE NOT ({not_in(self.rebuilt)})"
                )
                self._write(
                    "commits",
                    resolved_by_rebuilding("open_commits_lost", "read_open_commits", "read_winners_commits"),
                )
                self._view_of("lost", self._lost())
                self._write("commits", vanished("lost", "read_winners_commits", "read_open_commits", self.rebuilt))

    def _lost(self) -> str:
        """What was in force in rebuilt partitions; but what a truncation cut off never was, and is withdrawn."""
        cut = "".join(
            f" AND NOT (offsets_partition = {cut.offsets_partition} AND log_offset >= {cut.log_offset})"
            for cut in self.work.cuts
        )
        return f"SELECT * FROM offsets_held WHERE NOT ({not_in(self.rebuilt)}){cut}"

    def merge_groups(self) -> None:
        self._view_of(
            "group_candidates", "SELECT * FROM group_state_before UNION ALL SELECT * FROM read_winners_groups"
        )
        self._table_of("group_state", queries.group_state("group_candidates"))
        self._table_of("members", queries.members("group_state", queries.DUCKDB_EXPLODE))
        self._write("group_state", "SELECT * FROM group_state")
        self._write("members", "SELECT * FROM members")
        self._write("groups", queries.groups("group_state", "members", "offsets", "open_commits"))

    def tell_rebalances(self) -> None:
        cut = {each.offsets_partition for each in self.work.cuts}
        self.connection.register("told_anew", pa.table({"group_id": pa.array(self.work.told_anew, pa.string())}))
        is_anew = "group_id IN (SELECT t.group_id FROM told_anew t)"
        goes_on = f"coalesce(NOT {is_anew}, TRUE)"
        self._write("group_records", f"SELECT * FROM {self.late.groups}")
        self._view("added_group_records", GROUP_RECORDS, self.work.new.get("group_records", ()))
        self._view("all_group_records", GROUP_RECORDS, self.work.all_group_records)
        self._view_of(
            "new_group_records",
            f"""SELECT * FROM added_group_records WHERE {goes_on} UNION ALL SELECT * FROM {self.late.groups}
            UNION ALL SELECT * FROM all_group_records WHERE {is_anew}""",
        )
        self._view("latest_rebalances_held", LATEST_REBALANCES, self.work.before.get("latest_rebalances", ()))
        self._view_of("latest_rebalances_before", f"SELECT * FROM latest_rebalances_held WHERE {goes_on}")
        self._view_of("group_state_known", f"SELECT * FROM group_state_held WHERE {goes_on}")
        self._read("activity")
        self.connection.execute(f"INSERT INTO read_activity BY NAME SELECT * FROM {self.late.activity}")
        self._view_of("activity_before", f"SELECT a.* FROM activity_held a WHERE {not_in(cut)} AND {REMEMBERED}")
        known = (
            self._rows("group_state_known", GROUP_RECORDS),
            self._rows("latest_rebalances_before", TABLES["latest_rebalances"]),
            Activity(
                self._rows("activity_before", TABLES["activity"]), self._rows("read_activity", TABLES["activity"])
            ),
        )
        writers = {table: self._writer(table) for table in ("rebalances", "latest_rebalances", "activity")}
        for table, rows in rebalances_now(self._group_records(), *known):
            writers[table].append(rows)
        for writer in writers.values():
            writer.close()
            self.files += writer.files

    def _group_records(self) -> Iterator[pa.RecordBatch]:
        """The new ones by group, in log order. No other query may run until they are read."""
        sql = f"SELECT {', '.join(COLUMNS)} FROM new_group_records ORDER BY group_id, log_offset"
        schema = pa.schema([GROUP_RECORDS.field(name) for name in COLUMNS])
        for batch in self.connection.sql(sql).to_arrow_reader(GROUP_RECORDS_AT_ONCE):
            yield batch.cast(schema)

    def _rows(self, relation: str, schema: pa.Schema) -> pa.Table:
        return self.connection.sql(f"SELECT * FROM {relation}").to_arrow_table().cast(schema)

    def measure_lag(self) -> None:
        self._view("log_ends", LOG_ENDS, self.work.log_ends, here_only=False)
        newest = f"({newest_ends('log_ends', self.work.run_number)})"
        behind = f"""
            SELECT DISTINCT o.topic, o.partition, o.committed_offset FROM offsets o
            JOIN {newest} e
            ON o.topic = e.topic AND o.partition = e.partition WHERE o.committed_offset < e.log_end_offset"""
        rows = self.connection.execute(f"{behind} LIMIT {MOST_LOOKUPS + 1}").fetchall()
        self.lagging = len(rows)
        if len(rows) > MOST_LOOKUPS:
            self.unmeasured = self.connection.execute(f"SELECT count(*) FROM ({behind})").fetchone()[0] - MOST_LOOKUPS
        wanted: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in rows[:MOST_LOOKUPS]:
            wanted.setdefault((topic, partition), []).append(offset)
        self.connection.register("times", self.work.times(wanted) if wanted else TIMES.empty_table())
        relations = ("offsets", "log_ends", newest, "members", "times")
        self._write("lag", lag(*relations, explode=queries.DUCKDB_EXPLODE, is_of_a_run=True))
