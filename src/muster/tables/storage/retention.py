"""`--keep-history`: rows of history that are older than that are dropped, and what still counts of them stays.

*Where history begins.* The horizon lies so far before the newest record whose time is believed (`horizon_ms`), and a
week before that: tables by hour look back so far, and everything younger than what was asked for must come out the same
after it. At most one horizon a day is drawn. The manifest has it, and moments before it are refused from then on.

*Which time is believed.* One wrong stamp must not drop a log, so a time counts if a witness is within a week of it: the
clock of this machine, the newest record of a partition of the data, or a record of another partition of the offsets
topic. If that has one partition only with records, another record of it will do: some are known (`landmarks`). Of two
witnesses in the offsets topic alone it is asked that the horizon does not lie behind the newest record of most of its
partitions. A time that is wrong by less than a week costs nothing that was asked for.

*What goes* is told by places in the log, not by times alone, since clocks step back and some stamps are wrong. In each
partition of the offsets topic rows count as old up to the last record dated before the horizon that stands before every
record dated after it (`find_places`). A record whose time is not believed neither ends that nor moves it, and a row
dated after the horizon is never dropped.

*What stays* of old rows, so that any moment after the horizon is answered as before: the newest of each key if it is
in force; commits whose transaction ended later; a deletion, while anything that it ended is left; the last old record
of each partition, by which the log as of a moment is known to go on behind a wrong stamp. Of verdicts the
last of each key stays. Observations of ends stay if a group's lag in time is measured by them: those from the last one
on that is not beyond the lowest offset committed; and the last end of each partition that was seen within a day before
the horizon, from which a line goes to the next one.

Rows are dropped by leaving them out of new files. A file of which less than a quarter can go is left as it is: so rows
may live longer than asked, and a row is rewritten a few times at most. State is not touched. Most files have only rows
that are dated after the horizon, and their bounds say so: of those no row is looked at, but for the places in the log
at which later records begin.

A file that cannot be read is no reason to lose a run, nor is a full disk: the table stays as it is, and so do all if it
cannot be told up to where logs are old. What was written is removed, the run tells why, and the next one tries again.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from muster.tables.clocks import AHEAD_MS, is_ahead
from muster.tables.relations import FROM_THE_LOG, add_relation
from muster.tables.schemas import TABLES, published_name
from muster.tables.sql.ends import LOOK_BACK_MS
from muster.tables.sql.hours import HOUR_MS, LOOK_BACK_HOURS
from muster.tables.sql.queries import COUNTS
from muster.tables.storage.changes import Run
from muster.tables.storage.compact import BATCH_ROWS, CANNOT, MEMORY, ORDERS, new_files, reason
from muster.tables.storage.files import WrittenFile
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.upkeep import DAY_MS

WITNESS_MS = LONGER_MS = LOOK_BACK_HOURS * HOUR_MS
"""How much more is kept than was asked for; and how near to a time another must be to bear it out."""
WORTH_IT = 4
"""A file is rewritten if one of so many rows in it can go."""


class Rule(NamedTuple):
    """Which old rows of a table stay; conditions on rows `r`, and on `w.until`, the last old place of a partition."""

    time: str = "timestamp_ms"
    key: tuple[str, ...] = ()
    counts: str = "FALSE"
    """Whether a row decides what is in force for its key."""
    is_end: str = "FALSE"
    """Whether it leaves nothing in force."""
    waits: str = "FALSE"
    """Whether it counts from a later place on."""


BY_PLACE = {
    "commits": Rule(
        key=("r.group_id", "r.topic", "r.partition"),
        counts=f"{COUNTS} AND coalesce(r.txn_marker_offset <= w.until, TRUE)",
        is_end="r.kind <> 'commit'",
        waits="coalesce(r.txn_marker_offset > w.until, FALSE)",
    ),
    "group_records": Rule(
        key=("r.offsets_partition", "r.record_type", "r.group_id", "r.member_id",
             "CASE WHEN r.record_type = 16 THEN r.regular_expression END"),
        counts="r.record_type >= 2 AND r.problem IS NULL AND r.group_id IS NOT NULL",
        is_end="r.is_tombstone",
    ),
    "markers": Rule(),
    "rebalances": Rule(time="at_ms"),
}  # fmt: skip
BY_INTERVAL = {
    "lag_history": "r.interval_start_ms + r.interval_ms",
    "rates": "r.interval_start_ms + r.interval_ms",
    "group_hours": f"r.hour_ms + {HOUR_MS}",
}
"""When the interval of a row was over."""
SHORTENED = (*BY_PLACE, "log_ends", *BY_INTERVAL, "verdicts")
"""In this order: which observations stay follows from the commits that are left."""


class Retained(NamedTuple):
    """What a manifest says of it."""

    horizon_ms: int
    """The last horizon that was drawn."""
    since_ms: int | None
    """The last one at which something was dropped: no moment before it is known."""

    def as_json(self) -> dict[str, int | None]:
        return self._asdict()


def retained_of(fields: Mapping[str, Any] | None) -> Retained | None:
    return None if not fields else Retained(fields["horizon_ms"], fields["since_ms"])


def horizon_ms(
    progress: Iterable[PartitionProgress], looked_at_ms: int, keep_ms: int, data_ms: Iterable[int | None] = ()
) -> int | None:
    """Where history may begin; None where no record has a time that is believed. `data_ms` are of the data's ends.

    It is counted from the newest record, not from now: of a copy of an old log all would be too old.
    """
    logs = [times for times in (_times(each, looked_at_ms) for each in progress) if times]
    newest = sorted((max(times) for times in logs), reverse=True)
    others = [looked_at_ms, *(time_ms for time_ms in data_ms if time_ms is not None)]
    found = sorted(((time_ms, place) for place, times in enumerate(logs) for time_ms in times), reverse=True)
    for time_ms, place in found:
        horizon = time_ms - keep_ms - LONGER_MS
        if _is_borne_out(time_ms, others):
            return horizon
        if len(logs) == 1:
            beside = list(logs[0])
            beside.remove(time_ms)
        else:
            beside = [each for number, times in enumerate(logs) if number != place for each in times]
        if _is_borne_out(time_ms, beside) and horizon <= newest[len(newest) // 2]:
            return horizon
    return None


def _times(progress: PartitionProgress, looked_at_ms: int) -> list[int]:
    """Times of some records of a partition, its newest among them; not those that nothing can bear out."""
    times = [time_ms for _, time_ms in progress.landmarks]
    newest_ms = progress.newest_timestamp_ms
    times += [newest_ms] if newest_ms is not None and newest_ms not in times else []
    upto_ms = newest_ms if newest_ms is not None and not is_ahead(newest_ms, looked_at_ms) else looked_at_ms
    return [time_ms for time_ms in times if 0 <= time_ms <= upto_ms]


def _is_borne_out(time_ms: int, by: Iterable[int]) -> bool:
    return any(abs(time_ms - other_ms) <= WITNESS_MS for other_ms in by)


def is_due(last: Retained | None, horizon: int) -> bool:
    return last is None or horizon - last.horizon_ms >= DAY_MS


class Gone(NamedTuple):
    """What was dropped."""

    rows: Mapping[str, int]
    """By table, where there were any."""
    notes: Sequence[str] = ()
    """What could not be done, in sentences."""

    def retained(self, last: Retained | None, horizon: int) -> Retained | None:
        """What the next manifest says of it: as long as something is left to do, the horizon is not drawn yet."""
        since_ms = last and last.since_ms
        if self.rows:
            since_ms = horizon if since_ms is None else max(horizon, since_ms)
        if not self.notes:
            return Retained(horizon, since_ms)
        if last is None:
            return Retained(horizon - DAY_MS, since_ms) if self.rows else None
        return Retained(last.horizon_ms, since_ms)


def drop_history(run: Run, horizon: int, looked_at_ms: int) -> Gone:
    """Drop what lies before a horizon, as part of a run."""
    if not any(_has_old(run, table, horizon) for table in SHORTENED):
        return Gone({})
    done, notes = dict[str, int](), list[str]()
    with tempfile.TemporaryDirectory() as spill, closing(duckdb.connect(config=_config(spill))) as connection:
        try:
            pruned = _Pruned(run, connection, horizon, looked_at_ms + AHEAD_MS)
            pruned.find_places()
        except CANNOT as error:
            return Gone({}, [_not_dropped("of any table", error)])
        for table in SHORTENED:
            try:
                shorter = pruned.shorter(table)
            except CANNOT as error:
                notes.append(_not_dropped(f"of {table}", error))
                continue
            if shorter is not None:
                run.swap(table, shorter.out, shorter.files, same_rows=False)
                done[table] = shorter.gone
    return Gone({table: rows for table, rows in done.items() if rows}, notes)


def _not_dropped(what: str, error: Exception) -> str:
    return (
        f"no old history {what} was dropped: {reason(error)}. The tables keep the files they had, and the next run "
        "tries again; a file that is damaged must be restored first."
    )


def _config(spill: str) -> dict[str, str | int]:
    return {"temp_directory": spill, "threads": 1, "memory_limit": MEMORY}


def _has_old(run: Run, table: str, horizon: int) -> bool:
    """Whether bounds of files say that some row may lie before the horizon. No file is opened."""
    return any(file.earliest_ms is None or file.earliest_ms <= horizon for file in _bounds(run, table))


class Bounds(NamedTuple):
    """What Delta's log tells of the times in a file; None where it does not."""

    name: str
    earliest_ms: int | None
    latest_ms: int | None
    nulls: int | None

    def is_within(self, after_ms: int, until_ms: int) -> bool:
        """Whether each row has a time, and a later one than this, and none later than that."""
        if self.earliest_ms is None or self.latest_ms is None or self.nulls != 0:
            return False
        return after_ms < self.earliest_ms and self.latest_ms <= until_ms


def _bounds(run: Run, table: str) -> list[Bounds]:
    if not run.has(table):
        return []
    facts, column = run.facts(table), published_name(_time_of(table))

    def told(name: str) -> list[int | None]:
        if name not in facts.column_names:
            return [None] * facts.num_rows
        values = facts[name]
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        found: list[int | None] = values.to_pylist()
        return found

    names = facts["path"].to_pylist()
    return list(map(Bounds, names, told(f"min.{column}"), told(f"max.{column}"), told(f"null_count.{column}")))


def _time_of(table: str) -> str:
    if table in BY_PLACE:
        return BY_PLACE[table].time
    return {"log_ends": "observed_at_ms", "group_hours": "hour_ms", "verdicts": "at_ms"}.get(table, "interval_start_ms")


class Shorter(NamedTuple):
    """Files to be put in the place of some."""

    out: Sequence[str]
    """Names of these."""
    files: Sequence[WrittenFile]
    gone: int
    """How many rows are in the ones and not in the others."""


class _Pruned:
    """The tables of a run, with relations over their files in duckdb: `file` is the name of a row's file."""

    def __init__(self, run: Run, connection: duckdb.DuckDBPyConnection, horizon: int, believed_ms: int) -> None:
        self._run, self._connection, self._horizon, self._believed_ms = run, connection, horizon, believed_ms
        for table in SHORTENED:
            self._view(table, table, self._with_old(table))

    def _view(self, table: str, name: str, files: Sequence[str]) -> None:
        store = self._run.store
        add_relation(self._connection, name, TABLES[table], files, store.address, store.storage_options, with_file=True)

    def _files(self, table: str) -> list[str]:
        return self._run.files(table) if self._run.has(table) else []

    def _with_old(self, table: str) -> list[str]:
        """Files that may have rows which can go, or which decide on those: rows at old places in the log. Such a row
        is dated before the horizon or has no time that is believed, else its log would not be old up to there.
        """
        if table == "log_ends":  # later ones tell which of the old are measured against
            return self._files(table)
        later = {file.name for file in _bounds(self._run, table) if file.is_within(self._horizon, self._believed_ms)}
        return [file for file in self._files(table) if file.rsplit("/", 1)[1] not in later]

    def find_places(self) -> None:
        """`places`: up to where each partition's log is old (`until`)."""
        for table in FROM_THE_LOG:
            self._view(table, f"whole_{table}", self._files(table))
        logs = " UNION ALL ".join(
            f"SELECT offsets_partition, log_offset, timestamp_ms FROM whole_{table}" for table in FROM_THE_LOG
        )
        self._connection.execute(f"""
            CREATE TEMP TABLE places AS
            SELECT l.offsets_partition, max(l.log_offset) AS until FROM ({logs}) l LEFT JOIN (
                SELECT offsets_partition, min(log_offset) AS first_later FROM ({logs}) f
                WHERE timestamp_ms > {self._horizon} AND timestamp_ms <= {self._believed_ms}
                GROUP BY offsets_partition
            ) c ON l.offsets_partition = c.offsets_partition
            WHERE l.timestamp_ms <= {self._horizon} AND coalesce(l.log_offset < c.first_later, TRUE)
            GROUP BY l.offsets_partition""")

    def shorter(self, table: str) -> Shorter | None:
        """What is to be in the place of files of a table; None where all can stay."""
        if table in BY_PLACE:
            return self._by_place(table, BY_PLACE[table])
        if table in BY_INTERVAL:
            return self._intervals(table, BY_INTERVAL[table])
        return self._observations() if table == "log_ends" else self._verdicts()

    def _by_place(self, table: str, rule: Rule) -> Shorter | None:
        """Without old rows, of a table in log order."""
        old = f"{table} r JOIN places w ON r.offsets_partition = w.offsets_partition AND r.log_offset <= w.until"
        stays = [f"coalesce(r.{rule.time} > {self._horizon}, FALSE)", "r.log_offset = w.until", rule.waits]
        joined = ""
        if rule.key:
            keys = ", ".join(f"{expression} AS k{place}" for place, expression in enumerate(rule.key))
            same = " AND ".join(f"{expression} IS NOT DISTINCT FROM n.k{p}" for p, expression in enumerate(rule.key))
            self._connection.execute(f"""
                CREATE TEMP TABLE newest_{table} AS SELECT {keys},
                    max(r.log_offset) FILTER (WHERE {rule.counts}) AS counting,
                    max(r.log_offset) FILTER (WHERE {rule.is_end}) AS ended
                FROM {old} GROUP BY ALL""")
            joined = f"LEFT JOIN newest_{table} n ON {same}"
            stays.append(f"({rule.counts} AND NOT {rule.is_end} AND r.log_offset = n.counting)")
        stay = " OR ".join(f"({each})" for each in stays)
        files = self._worth_it(table, f"SELECT r.file FROM {old} {joined} WHERE NOT ({stay})")
        if not files:
            return None
        if rule.key:
            named = ", ".join(f"k{place}" for place in range(len(rule.key)))
            waiting = f"UNION ALL SELECT {keys}, r.log_offset FROM whole_open_commits r" if table == "commits" else ""
            self._connection.execute(f"""
                CREATE TEMP TABLE left_{table} AS SELECT {named}, min(log_offset) AS first_left FROM (
                    SELECT {keys}, r.log_offset FROM {old} {joined}
                    WHERE NOT ({rule.is_end}) AND (({stay}) OR r.file NOT IN ({texts(files)})) {waiting}
                ) GROUP BY ALL""")
            joined += f" LEFT JOIN left_{table} h ON {same.replace('n.k', 'h.k')}"
            stay += f" OR ({rule.is_end} AND r.log_offset = n.ended AND coalesce(h.first_left < r.log_offset, FALSE))"
        kept = f"""
            {table} r LEFT JOIN places w ON r.offsets_partition = w.offsets_partition {joined}
            WHERE coalesce(r.log_offset > w.until, TRUE) OR {stay}"""
        return self._rewrite(table, files, kept, ORDERS[table])

    def _observations(self) -> Shorter | None:
        """Without old observations of ends. The newest run before the horizon stays whole: a moment right after it is
        measured against that. Of others, what lines begin at, and what a lag in time is measured by.
        """
        self._view("commits", "commits_left", self._files("commits"))
        self._connection.execute(f"""
            CREATE TEMP TABLE newest_run AS SELECT coalesce(run_number, -1) AS run_number, observed_at_ms FROM log_ends
            WHERE observed_at_ms <= {self._horizon} ORDER BY 1 DESC, 2 DESC LIMIT 1""")
        self._connection.execute("""
            CREATE TEMP TABLE lowest AS SELECT topic, partition, min(committed_offset) AS committed_offset FROM (
                SELECT topic, partition, committed_offset FROM commits_left
                UNION ALL SELECT topic, partition, committed_offset FROM whole_open_commits
            ) b WHERE committed_offset IS NOT NULL GROUP BY topic, partition""")
        self._connection.execute("""
            CREATE TEMP TABLE measured AS
            SELECT l.topic, l.partition, max(e.log_end_offset) AS first_end,
                max(e.observed_at_ms) AS at_ms
            FROM lowest l LEFT JOIN log_ends e ON l.topic = e.topic AND l.partition = e.partition
                AND e.log_end_offset <= l.committed_offset
            GROUP BY l.topic, l.partition""")
        self._connection.execute(f"""
            CREATE TEMP TABLE last_seen AS SELECT topic, partition, max(observed_at_ms) AS at_ms FROM log_ends
            WHERE log_end_offset IS NOT NULL AND observed_at_ms <= {self._horizon}
                AND observed_at_ms > {self._horizon - LOOK_BACK_MS} GROUP BY topic, partition""")
        stay = f"""
            coalesce(r.observed_at_ms > {self._horizon}, TRUE) OR r.log_end_offset IS NULL
            OR coalesce(r.observed_at_ms = l.at_ms, FALSE)
            OR EXISTS (SELECT 1 FROM newest_run n WHERE n.run_number = coalesce(r.run_number, -1)
                AND (n.run_number >= 0 OR n.observed_at_ms = r.observed_at_ms))
            OR (m.topic IS NOT NULL
                AND coalesce(r.log_end_offset >= m.first_end OR r.observed_at_ms > m.at_ms, TRUE))"""
        rows = """log_ends r LEFT JOIN measured m ON r.topic = m.topic AND r.partition = m.partition
            LEFT JOIN last_seen l ON r.topic = l.topic AND r.partition = l.partition"""
        files = self._worth_it("log_ends", f"SELECT r.file FROM {rows} WHERE NOT ({stay})")
        return self._rewrite("log_ends", files, f"{rows} WHERE {stay}", ORDERS["log_ends"])

    def _intervals(self, table: str, is_over: str) -> Shorter | None:
        """Without rows of intervals that were over at the horizon."""
        files = self._worth_it(table, f"SELECT r.file FROM {table} r WHERE {is_over} <= {self._horizon}")
        kept = f"{table} r WHERE coalesce({is_over} > {self._horizon}, TRUE)"
        return self._rewrite(table, files, kept, ORDERS[table])

    def _verdicts(self) -> Shorter | None:
        """Without old verdicts, but for the last of each key: that was still in force, unless the offset was gone."""
        key = "r.group_id, r.topic, r.partition"
        rows = f"""verdicts r LEFT JOIN (
            SELECT {key}, max(r.run_number) AS run_number FROM verdicts r WHERE r.at_ms <= {self._horizon} GROUP BY ALL
        ) n ON r.group_id = n.group_id AND r.topic = n.topic AND r.partition = n.partition"""
        stay = f"coalesce(r.at_ms > {self._horizon}, TRUE) OR (r.run_number = n.run_number AND r.verdict IS NOT NULL)"
        files = self._worth_it("verdicts", f"SELECT r.file FROM {rows} WHERE NOT ({stay})")
        return self._rewrite("verdicts", files, f"{rows} WHERE {stay}", ORDERS["verdicts"])

    def _worth_it(self, table: str, droppable: str) -> list[str]:
        """Names of the files that have enough rows that can go."""
        found = dict(self._connection.execute(f"SELECT file, count(*) FROM ({droppable}) d GROUP BY file").fetchall())
        if not found:
            return []
        rows = {row["path"]: row["num_records"] for row in self._run.facts(table).to_pylist()}
        return sorted(file for file, droppable_rows in found.items() if droppable_rows * WORTH_IT >= rows[file])

    def _rewrite(self, table: str, files: Sequence[str], kept: str, order: str) -> Shorter | None:
        """The kept rows of some files in new ones."""
        if not files:
            return None
        schema = TABLES[table]
        names = ", ".join(f'r."{name}"' for name in schema.names)
        sql = f"SELECT {names} FROM (SELECT r.* FROM {kept}) r WHERE r.file IN ({texts(files)}) ORDER BY {order}"
        rows = {row["path"]: row["num_records"] for row in self._run.facts(table).to_pylist()}
        with new_files(self._run.store, table, self._run.run_id) as writer:
            for batch in self._connection.sql(sql).to_arrow_reader(BATCH_ROWS):
                writer.append(pa.Table.from_batches([batch]).cast(schema))
            writer.close()
        gone: int = sum(rows[file] for file in files) - sum(file.rows for file in writer.files)
        return Shorter(files, writer.files, gone)


def texts(names: Iterable[str]) -> str:
    """Names as literals of SQL, with commas between."""
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)
