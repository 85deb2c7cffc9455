"""The step of a run that brings `lag_history`, `rates` and `group_hours` up to the history that it has appended.

`muster.tables` defines them (`intervals`, `hours`). On Spark that SQL is run through `frames`, in this process by
duckdb; both write the same rows.

A run makes the rows anew from the first interval on in which something is new (a commit, an observation of a log's
end, a rebalance): usually the one that was open when the last run ended. What was before it comes from what that run
has published, and so do the rows from there on of keys and partitions of which nothing is new (`intervals.Held`).
Everything is made anew where the last run did not make these tables, and after a truncation of the log; ends of logs
are taken from the published rows then too, since observations are thinned out meanwhile.

No row is made of the time before the horizon of `--keep-history`. Where something is new there, what was in force at
the horizon is found in the commits that are left.

Rows that the next run will replace go to files of their own: taking them out again leaves the other files alone.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.spark.published import is_on_disk
from muster.tables import hours, intervals
from muster.tables.changes import Run
from muster.tables.ends import LOOK_BACK_MS, first_observed, observed_since
from muster.tables.files import Options, TableWriter, WrittenFile, open_store
from muster.tables.hours import DUCKDB_SIZE, HOUR_MS, LOOK_BACK_HOURS
from muster.tables.intervals import INTERVAL_MS, Held
from muster.tables.relations import add_relation
from muster.tables.retention import retained_of
from muster.tables.schemas import ANALYTICS, REBALANCES, TABLES, published_form, published_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STARTS = {"lag_history": "interval_start_ms", "rates": "interval_start_ms", "group_hours": "hour_ms"}
LENGTHS_MS = {"lag_history": INTERVAL_MS, "rates": INTERVAL_MS, "group_hours": HOUR_MS}
FROM_THE_START = 0
ROWS_FOR_SPARK = 20_000_000
"""Of 5 M commits duckdb makes the tables in 19 CPU seconds, files included, where Spark on the same two cores had not
finished after a hundred. Beyond this a cluster's cores count for more than that.
"""
MEMORY_MB = 1024
"""What duckdb may use on the driver."""


class Work(NamedTuple):
    """One table to be made from a moment on."""

    table: str
    since_ms: int
    open_ms: int
    """Rows from here on are going to be replaced."""
    files: Mapping[str, Sequence[str]]
    """Of each table that it is made of. What was published by the run before is under `before_` and its name."""
    rows: int
    """How many commits, and offsets in force before, are in those files."""
    tables: str
    storage_options: tuple[tuple[str, str], ...]
    run_id: str
    observed_until: int = -1
    """The last run whose observations of ends the published rows are made of."""


class Made(NamedTuple):
    """What a run did."""

    remembered: dict[str, Any]
    """What the next run must find in the manifest."""
    rows: dict[str, int]
    """Of each table the rows that are new, or made anew."""


class Maker(Protocol):
    def make(self, works: Sequence[Work]) -> Iterator[list[WrittenFile]]:
        """Write the rows of each into the table's directory."""


def bring_up(changes: Run, maker: Maker, is_cut: bool, options: Options = ()) -> "Made":
    """Bring the tables up to date. `is_cut`: the log was truncated."""
    news = News(changes, is_cut, tuple(options))
    works = [news.work(table, since_ms) for table, since_ms in news.since_ms.items() if since_ms is not None]
    rows = dict.fromkeys(ANALYTICS, 0)
    for work, files in zip(works, maker.make(works), strict=True):
        rows[work.table] = sum(file.rows for file in files)
        since = datetime.fromtimestamp(work.since_ms / 1000, UTC)
        changes.withdraw(work.table, f"{published_name(STARTS[work.table])} >= '{since:%Y-%m-%dT%H:%M:%SZ}'")
        changes.append(work.table, files)
    remembered = {"run_number": changes.number, "observed_until": changes.number, "newest_ms": news.newest_ms}
    return Made(remembered, rows)


def goes_on(changes: Run) -> dict[str, Any] | None:
    """What was remembered by the last run that made these tables, as of this one if nothing is new since; None if none
    has made them.

    `observed_until` stays: the observations of a run that makes no rows are for the next one that does.
    """
    last: dict[str, Any] | None = changes.manifest.source.get("analytics") if changes.manifest is not None else None
    if last is None or last["run_number"] != changes.number - 1:
        return last
    return {**last, "run_number": changes.number}


class News:
    """What is new in a run, and from when on."""

    def __init__(self, changes: Run, is_cut: bool, options: tuple[tuple[str, str], ...]) -> None:
        self._changes, self._options = changes, options
        last = goes_on(changes)
        self._goes_on = last is not None and last["run_number"] == changes.number and not is_cut
        retained = retained_of(changes.manifest.source.get("retention")) if changes.manifest is not None else None
        self._horizon_ms = FROM_THE_START
        if retained is not None and retained.since_ms is not None:  # which is later after a truncation into it
            self._horizon_ms = min(retained.since_ms, retained.horizon_ms)
        self._published_until_ms = None if last is None or is_cut else last["newest_ms"]
        self._is_first = last is None
        with limited_duckdb() as self._connection:
            self._view("new_commits", "commits", self._new("commits"))
            commits_ms = self._first(intervals.first_change("new_commits"))
            deleted_ms = self._first_deletion() if self._goes_on else None
            self._view("ends", "log_ends", self._files("log_ends", "observed_at_ms", self._ends_since(last)))
            self._observed_until = -1 if last is None else last.get("observed_until", last["run_number"])
            ends_ms = self._first(first_observed("ends", self._observed_until))
            newest = self._first("SELECT max(observed_at_ms) FROM ends")
            self.newest_ms = max((time for time in (newest, commits_ms) if time is not None), default=None)
            """The newest observation: rows of the intervals from there on may still change."""
            rebalances_ms = self._first_rebalance()
        self.since_ms = {
            "lag_history": self._since("lag_history", commits_ms, deleted_ms, ends_ms),
            "rates": self._since("rates", commits_ms, deleted_ms, ends_ms),
            "group_hours": self._since("group_hours", commits_ms, rebalances_ms),
        }

    def work(self, table: str, since_ms: int) -> Work:
        changes = self._changes
        horizon_ms = self._first_start(table)
        names = {"group_hours": ("commits", "rebalances", "latest_rebalances")}.get(table, ("commits", "log_ends"))
        is_told = self._goes_on and since_ms >= horizon_ms  # by what is published: nothing is new before
        since_ms = max(since_ms, horizon_ms)
        files: dict[str, Sequence[str]] = {}
        for name in names:
            column, back_ms = {"commits": ("timestamp_ms", 0), "log_ends": ("observed_at_ms", LOOK_BACK_MS)}.get(
                name, ("", 0)
            )
            files[name] = self._files(name, column, since_ms - back_ms if is_told or name == "log_ends" else 0)
        if table == "group_hours":
            if since_ms > FROM_THE_START:
                files["before_group_hours"] = self._files(table, "hour_ms", since_ms - LOOK_BACK_HOURS * HOUR_MS)
        elif not self._is_first:
            files["before_lag_history"] = self._files("lag_history", "interval_start_ms", since_ms)
            files["before_rates"] = self._files("rates", "interval_start_ms", since_ms)
            if self._goes_on:
                files["new_commits"] = self._new("commits")
            if is_told and since_ms > FROM_THE_START:
                files["before_offsets"] = self._published("offsets")
        open_ms = _floored(self.newest_ms or 0, LENGTHS_MS[table])
        with limited_duckdb() as self._connection:
            self._view("all_commits", "commits", files["commits"])
            self._view("all_offsets", "offsets", files.get("before_offsets", []))
            rows = self._first("SELECT (SELECT count(*) FROM all_commits) + (SELECT count(*) FROM all_offsets)") or 0
        return Work(table, since_ms, open_ms, files, rows, changes.store.address, self._options, changes.run_id,
                    self._observed_until)  # fmt: skip

    def _first_start(self, table: str) -> int:
        """The first interval of which rows are made: what its rows are made of is all there.

        Hours are made of a week before them as well; rows of the first week are left as they were published.
        """
        begin_ms = _ceiled(self._horizon_ms, LENGTHS_MS[table])
        if table != "group_hours" or not self._horizon_ms or self._published_until_ms is None:
            return begin_ms
        whole_ms = min(self._horizon_ms + LOOK_BACK_HOURS * HOUR_MS, self._published_until_ms)
        return max(begin_ms, _floored(whole_ms, HOUR_MS))

    def _since(self, table: str, *times: int | None) -> int | None:
        known = [time for time in times if time is not None]
        if not self._goes_on:
            return FROM_THE_START
        return _floored(max(min(known), 0), LENGTHS_MS[table]) if known else None

    def _ends_since(self, last: Mapping[str, Any] | None) -> int:
        """From when on observations are looked at: they say something new of two days before them at most."""
        self._view("new_ends", "log_ends", self._new("log_ends"))
        first_ms = self._first(f"SELECT min(observed_at_ms) FROM new_ends WHERE run_number = {self._changes.number}")
        if last is None:
            return 0
        known = [time for time in (first_ms, last["newest_ms"]) if time is not None]
        return min(known) - 2 * LOOK_BACK_MS if known else 0

    def _first_deletion(self) -> int | None:
        """The earliest time of deletions of commits that are new because their transaction has ended only now.

        Such a deletion may be published already and of a time long before (`vanished`): what is published right before
        the commit does not tell of it.
        """
        progress = {} if self._changes.manifest is None else self._changes.manifest.progress
        read = [{"offsets_partition": number, "next_offset": each.next_offset} for number, each in progress.items()]
        self._connection.register("read_before", pa.Table.from_pylist(read, _READ))
        self._connection.execute(f"CREATE TEMP TABLE late AS {intervals.late_commits('new_commits', 'read_before')}")
        lowest = self._first("SELECT min(log_offset) FROM late")
        if lowest is None:
            return None
        self._view("commits_behind", "commits", self._behind(lowest))
        return self._first(intervals.first_deletion("commits_behind", "late"))

    def _behind(self, log_offset: int) -> list[str]:
        """Files of commits whose bounds do not say that all are before this place."""
        facts = self._changes.facts("commits")
        if "max.log_offset" not in facts.column_names:
            return self._files("commits")
        is_before = pc.fill_null(pc.less_equal(facts["max.log_offset"], log_offset), False)
        before = set(facts["path"].filter(is_before).to_pylist())
        return [file for file in self._files("commits") if file.rsplit("/", 1)[1] not in before]

    def _first_rebalance(self) -> int | None:
        self._view("new_rebalances", "rebalances", self._new("rebalances"))
        self._view("latest_now", "latest_rebalances", self._files("latest_rebalances"))
        self._view("latest_before", "latest_rebalances", self._published("latest_rebalances"))
        names = ", ".join(f'"{name}"' for name in REBALANCES.names)
        both = f"(SELECT {names} FROM new_rebalances UNION ALL SELECT {names} FROM latest_now WHERE at_ms IS NOT NULL)"
        return self._first(hours.first_told(both, "latest_before"))

    def _first(self, sql: str) -> int | None:
        (row,) = self._connection.execute(sql).fetchall()
        found: int | None = row[0]
        return found

    def _view(self, name: str, table: str, files: Sequence[str]) -> None:
        store = self._changes.store
        add_relation(self._connection, name, TABLES[table], files, store.address, store.storage_options)

    def _files(self, table: str, column: str = "", since_ms: int = 0) -> list[str]:
        columns = intervals.TIMES if table == "commits" and column else (column,)
        return self._changes.files_since(table, [published_name(name) for name in columns], since_ms)

    def _published(self, table: str) -> list[str]:
        """Files of a table as the last run published it."""
        manifest = self._changes.manifest
        if manifest is None or table not in manifest.tables:
            return []
        return self._changes.store.files(table, manifest.tables[table])

    def _new(self, table: str) -> list[str]:
        before = set(self._published(table))
        return [file for file in self._changes.files(table) if file not in before]


def _floored(time_ms: int, length_ms: int) -> int:
    return time_ms - time_ms % length_ms


def _ceiled(time_ms: int, length_ms: int) -> int:
    return _floored(time_ms + length_ms - 1, length_ms)


def written(work: Work, rows: Iterable[pa.Table]) -> list[WrittenFile]:
    """Inner rows in files of the table, those that stay apart from those that the next run replaces."""
    schema = ANALYTICS[work.table]
    directory = f"{work.tables}/{work.table}"
    stays, open_still = (
        TableWriter(work.table, schema, directory, work.storage_options, work.run_id) for _ in range(2)
    )
    try:
        for some in rows:
            is_open = pc.greater_equal(some[STARTS[work.table]], work.open_ms)
            stays.append(some.filter(pc.invert(is_open)))
            open_still.append(some.filter(is_open))
        stays.close()
        open_still.close()
    finally:
        stays.abandon()
        open_still.abandon()
    return [*stays.files, *open_still.files]


def maker_on(spark: "SparkSession | None") -> Maker:
    """Who makes the tables: Spark, where there is one and enough to do."""
    return InProcess() if spark is None else BySize(OnSpark(spark))


@contextmanager
def limited_duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb that goes on in files where its memory ends."""
    with tempfile.TemporaryDirectory(prefix="muster-") as spill:
        config: dict[str, Any] = {
            "temp_directory": spill,
            "memory_limit": f"{MEMORY_MB}MiB",
            "preserve_insertion_order": "false",
        }
        with duckdb.connect(config=config) as connection:
            yield connection


class InProcess:
    """The tables by duckdb. `lag_history` and `rates` are made of the same rows, which are added up once."""

    def make(self, works: Sequence[Work]) -> Iterator[list[WrittenFile]]:
        with limited_duckdb() as connection:
            opened: tuple[Mapping[str, Sequence[str]], int] | None = None
            for work in works:
                if (work.files, work.since_ms) != opened:
                    opened = work.files, work.since_ms
                    self._open(connection, work)
                schema = ANALYTICS[work.table]
                batches = connection.sql(self._sql(work)).to_arrow_reader()
                yield written(work, (pa.Table.from_batches([batch]).cast(schema) for batch in batches))

    @staticmethod
    def _open(connection: duckdb.DuckDBPyConnection, work: Work) -> None:
        """The relations of a work. Groups and topics are numbers there (an ENUM): names take twice as long to sort."""
        schemas = {name: TABLES[table_of(name)] for name in work.files}
        for name, files in work.files.items():
            add_relation(
                connection, f"{work.table}_{name}", schemas[name], files, work.tables, dict(work.storage_options)
            )
        for column in ("group_id", "topic"):
            having = [
                f"SELECT {column} FROM {work.table}_{name}" for name in work.files if column in schemas[name].names
            ]
            names = f"SELECT {column} FROM ({' UNION '.join(having)}) WHERE {column} IS NOT NULL ORDER BY {column}"
            if having:
                connection.execute(f"CREATE TYPE {work.table}_{column} AS ENUM ({names})")
        for name, schema in schemas.items():
            columns = [column for column in ("group_id", "topic") if column in schema.names]
            numbers = ", ".join(f"CAST({column} AS {work.table}_{column}) AS {column}" for column in columns)
            rows = f"SELECT * REPLACE ({numbers}) FROM {work.table}_{name}"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {rows}")
        if work.table != "group_hours":
            connection.execute(
                f"CREATE OR REPLACE TEMP TABLE moved AS {intervals.moved('commits', INTERVAL_MS, work.since_ms)}"
            )

    @staticmethod
    def _sql(work: Work) -> str:
        goes_on = work.since_ms > FROM_THE_START
        if work.table == "group_hours":
            before = f"({hours.hours_before('before_group_hours', work.since_ms)})" if goes_on else None
            rebalances = f"({all_rebalances('rebalances', 'latest_rebalances')})"
            return hours.group_hours("commits", rebalances, work.since_ms, before, DUCKDB_SIZE)
        before = intervals.states_at("commits", work.since_ms)
        if "before_offsets" in work.files:
            before = intervals.states_before("before_lag_history", "before_offsets", work.since_ms)
        made = {"lag_history": intervals.lag_history, "rates": intervals.rates}[work.table]
        held = None
        if f"before_{work.table}" in work.files:
            observed = f"({observed_since('log_ends', work.observed_until, INTERVAL_MS)})"
            is_known = "new_commits" in work.files
            committed = f"({intervals.committed_since('new_commits')})" if is_known else None
            held = Held(f"before_{work.table}", observed, committed)
        return made("moved", "log_ends", INTERVAL_MS, work.since_ms, f"({before})" if goes_on else None, held)


def table_of(name: str) -> str:
    """The table that files of a work are of."""
    return name.removeprefix("before_").removeprefix("new_")


def all_rebalances(rebalances: str, latest: str) -> str:
    """Rows of rebalances, with the newest of each group, which are kept apart."""
    names = ", ".join(f"r.{name}" for name in REBALANCES.names)
    return f"SELECT {names} FROM {rebalances} r UNION ALL SELECT {names} FROM {latest} r WHERE r.at_ms IS NOT NULL"


class BySize:
    """Spark for what is large; what is small takes it longer to plan than duckdb to do."""

    def __init__(self, large: Maker) -> None:
        self._small, self._large = InProcess(), large

    def make(self, works: Sequence[Work]) -> Iterator[list[WrittenFile]]:
        rows = max((work.rows for work in works), default=0)
        return (self._small if rows < ROWS_FOR_SPARK else self._large).make(works)


class OnSpark:
    """The tables by Spark, from the functions of `frames`."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def make(self, works: Sequence[Work]) -> Iterator[list[WrittenFile]]:
        return map(self._written, works)

    def _written(self, work: Work) -> list[WrittenFile]:
        from muster.pipeline import frames

        rows = frames.inside(self._made(work)).select(*ANALYTICS[work.table].names)
        schema = ANALYTICS[work.table]

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            tables = (pa.Table.from_batches([batch]).cast(schema) for batch in batches)
            files = written(work, tables)
            yield from pa.Table.from_pylist([file._asdict() for file in files], _WRITTEN).to_batches()

        told = rows.mapInArrow(
            write, "table string, path string, size_bytes long, rows long, statistics string"
        ).collect()
        return [WrittenFile(*row) for row in told]

    def _made(self, work: Work) -> "DataFrame":
        from muster.pipeline import frames

        given = {name: self._read(table_of(name), files, work) for name, files in work.files.items()}
        since = datetime.fromtimestamp(work.since_ms / 1000, UTC) if work.since_ms > FROM_THE_START else None
        if work.table == "group_hours":
            rebalances = frames.all_rebalances(given["rebalances"], given["latest_rebalances"])
            return frames.group_hours(given["commits"], rebalances, since, given.get("before_group_hours"))
        made = {"lag_history": frames.lag_history, "rates": frames.rates}[work.table]
        before = held = None
        if since is not None and "before_offsets" in given:
            before = frames.states_before(given["before_lag_history"], given["before_offsets"], since)
        elif since is not None:
            before = frames.states_at(given["commits"], since)
        if f"before_{work.table}" in given:
            held = frames.Held(given[f"before_{work.table}"], work.observed_until, given.get("new_commits"))
        return made(given["commits"], given["log_ends"], since=since, before=before, held=held)

    def _read(self, table: str, files: Sequence[str], work: Work) -> "DataFrame":
        """Spark reads files itself where it can; of an object store only muster has the settings."""
        from muster.pipeline import frames

        if not files:
            return frames.read_files(self._spark, files, TABLES[table])
        if is_on_disk(work.tables):
            return frames.read_files(self._spark, [f"file://{file}" for file in files], TABLES[table])
        schema, options = published_form(TABLES[table]), work.storage_options

        def load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyarrow import dataset

            for batch in batches:
                for file in batch.column("file").to_pylist():
                    store, path = open_store(file, options)
                    yield from dataset.dataset(path, schema=schema, format="parquet", filesystem=store).to_batches()

        names = self._spark.createDataFrame([(file,) for file in files], "file string")
        return names.repartition(len(files)).mapInArrow(load, frames.struct_of(schema))


_READ = pa.schema([("offsets_partition", pa.int64()), ("next_offset", pa.int64())])
_WRITTEN = pa.schema([("table", pa.string()), ("path", pa.string()), ("size_bytes", pa.int64()), ("rows", pa.int64()),
                      ("statistics", pa.string())])  # fmt: skip
