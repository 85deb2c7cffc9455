"""History by interval on Spark: the rows that duckdb makes, from the start and from a moment on; and as of a moment."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.pipeline.interval_task import Making, Place, Share, make, table_of
from muster.tables.findings.finding import Asked
from muster.tables.findings.kinds import findings
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, COMMITS, TABLES, published_form
from muster.tables.sql.dialects import DUCKDB
from muster.tables.sql.hours import HOUR_MS
from muster.tables.sql.intervals import INTERVAL_MS
from muster.tables.storage.store import TableStore
from muster.tables.times import inner, published
from tests.pipeline.test_frames import in_order
from tests.pipeline.world import run_here, unpacked
from tests.tables.finding_rows import CASES, NOW_MS, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]
Row = dict[str, Any]


@contextmanager
def interpreted(spark: "SparkSession") -> Iterator[None]:
    """A few hundred rows: compiling code for them would take longer than everything else."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def made_by_a_task(work: Making) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {table: [] for table in work.tables}
    for file in make(work):
        rows = pq.ParquetFile(f"{work.place.tables}/{file.table}/{file.path}").read()
        assert len(rows) == file.rows
        found[file.table] += inner(rows, ANALYTICS[file.table]).to_pylist()
    return found


def read_files(spark: "SparkSession", files: Sequence[str], schema: pa.Schema) -> "DataFrame":
    """Parquet files of a table, by its inner schema; no files are an empty table."""
    from muster.pipeline.frames import empty, struct_of

    return spark.read.schema(struct_of(published_form(schema))).parquet(*files) if files else empty(spark, schema)


def made_by_frames(spark: "SparkSession", table: str, work: Making) -> list[Row]:
    from muster.pipeline import frames

    given = {name: read_files(spark, files, TABLES[table_of(name)]) for name, files in work.files.items()}
    since = datetime.fromtimestamp(work.since_ms / 1000, UTC) if work.since_ms else None
    if table == "group_hours":
        rebalances = frames.all_rebalances(given["rebalances"], given["latest_rebalances"])
        rows = frames.group_hours(given["commits"], rebalances, since, given.get("before_group_hours"))
    else:
        before = held = None
        if since is not None:
            before = frames.states_before(given["before_lag_history"], given["before_offsets"], since)
            held = frames.Held(given[f"before_{table}"], work.observed_until, given["new_commits"])
        made = {"lag_history": frames.lag_history, "rates": frames.rates}[table]
        rows = made(given["commits"], given["log_ends"], since=since, before=before, held=held)
    return inner(rows.toArrow(), ANALYTICS[table]).to_pylist()


def test_spark_makes_what_duckdb_makes(spark: "SparkSession", tmp_path: Path) -> None:
    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    store = TableStore(tmp_path / "tables")
    manifest = store.manifest()
    assert manifest is not None
    files = {name: store.files(name, version) for name, version in manifest.tables.items() if name in TABLES}
    observed_until = manifest.source["analytics"]["observed_until"]
    middle_ms = sorted(pq.ParquetFile(files["commits"][0]).read()["timestamp"].to_pylist())[5].timestamp() * 1000
    place = Place(str(tmp_path / "made"), (), "run", 512, ())
    with interpreted(spark):
        for tables, length_ms in ((("lag_history", "rates"), INTERVAL_MS), (("group_hours",), HOUR_MS)):
            names = ("rebalances", "latest_rebalances") if tables == ("group_hours",) else ("log_ends",)
            for since_ms in (0, int(middle_ms) // length_ms * length_ms):
                given = {name: files.get(name, []) for name in ("commits", *names)}
                if since_ms:
                    given |= {f"before_{name}": files[name] for name in ("lag_history", "rates", "offsets")}
                    given |= {f"all_{name}": files[name] for name in ("lag_history", "rates", "commits")}
                    given |= {"before_group_hours": files["group_hours"], "new_commits": files["commits"][:1]}
                work = Making(tables, since_ms, given, Share(), place, INTERVAL_MS, observed_until)
                for table, here in made_by_a_task(work).items():
                    assert in_order(made_by_frames(spark, table, work)) == in_order(here), (table, since_ms)
                    assert here, table


def test_spark_judges_as_duckdb_does(spark: "SparkSession", tmp_path: Path) -> None:
    """At the first look, and at one that goes on from it."""
    from muster.pipeline import frames

    folder = tmp_path / "tables"
    run_here(folder, unpacked("k43-all", tmp_path), analytics=True)
    with open_tables(folder) as tables, interpreted(spark):
        read = {
            name: spark.createDataFrame(tables.read(name).table(), frames.struct_of(published_form(TABLES[name])))
            for name in ("offsets", "groups", "members", "group_state", "open_commits", "commits", "log_ends", "lag")
        }
        at, week = tables.read("expiry").table()["at"][0].as_py(), timedelta(days=7)
        state = (read[name] for name in ("offsets", "groups", "members", "group_state", "open_commits"))
        expiry = frames.expiry(*state, at, week)
        assert shown(expiry, "expiry") == shown(tables.read("expiry").table(), "expiry")
        looked = (read[name] for name in ("offsets", "commits", "log_ends", "lag"))
        status = frames.status(*looked, expiry, at).localCheckpoint()
        assert shown(status, "status") == shown(tables.read("status").table(), "status")
        none = frames.empty(spark, TABLES["commits"])
        again = frames.status(read["offsets"], none, read["log_ends"], read["lag"], expiry, at, status)
        assert shown(again, "status") == shown(status, "status")


def shown(rows: Any, table: str) -> list[str]:
    """Rows of Spark or of Arrow, in one order."""
    found = rows if isinstance(rows, pa.Table) else rows.toArrow()
    return sorted(map(repr, inner(found, TABLES[table]).to_pylist()))


def test_frames_as_of_a_moment(spark: "SparkSession", tmp_path: Path) -> None:
    from muster.pipeline import frames

    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    store = TableStore(tmp_path / "tables")
    manifest = store.manifest()
    assert manifest is not None
    names = ("commits", "open_commits", "group_records", "markers", "log_ends")
    history = {
        name: read_files(spark, store.files(name, manifest.tables[name]), TABLES[name])
        for name in names
        if name in manifest.tables
    }
    history = {name: history.get(name, frames.empty(spark, TABLES[name])) for name in names}
    with open_tables(tmp_path / "tables") as tables, interpreted(spark):
        times = sorted(time for time in tables.read("commits").table()["timestamp"].to_pylist() if time is not None)
        moment = times[len(times) // 2]
        then = frames.as_of(history, moment.astimezone(UTC))
        found = inner(frames.offsets(then["commits"]).toArrow(), TABLES["offsets"]).to_pylist()
        expected = tables.read("offsets", as_of_ms=int(moment.timestamp() * 1000)).table()
    assert in_order(found) == in_order(inner(expected, TABLES["offsets"]).to_pylist())
    assert found
    assert then["commits"].columns == published_form(COMMITS).names
    assert isinstance(moment, datetime)


def test_spark_finds_what_duckdb_finds(spark: "SparkSession") -> None:
    """In the rows of all cases, each with a group and a topic of its own."""
    from muster.pipeline import frames

    rows: dict[str, list[Row]] = {}
    for number, case in enumerate(CASES):
        told = json.dumps(case.rows)
        for name in ("payments", "orders"):
            told = told.replace(json.dumps(name), json.dumps(f"{name} {number}"))
        for table, more in json.loads(told).items():
            rows.setdefault(table, []).extend(more)
    tables = tables_of(rows)
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    sql = findings({name: name for name in tables}, Asked(NOW_MS, True, DUCKDB))
    here = connection.sql(sql).to_arrow_table().cast(TABLES["findings"]).to_pylist()
    with interpreted(spark):
        given = {
            name: spark.createDataFrame(
                published(table, published_form(table.schema)).to_pylist(),
                frames.struct_of(published_form(table.schema)),
            )
            for name, table in tables.items()
        }
        found = frames.findings(given, datetime.fromtimestamp(NOW_MS / 1000, UTC), lists_all_topics=True).toArrow()
    there = inner(found, TABLES["findings"]).to_pylist()
    assert {row["kind"] for row in here} == {case.kind for case in CASES}
    for one in (*here, *there):
        one["evidence"] = json.loads(one["evidence"])
    assert in_order(there) == in_order(here)
