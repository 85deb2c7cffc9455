"""History by interval on Spark: the rows that duckdb makes, from the start and from a moment on; and as of a moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from muster.pipeline.analytics import LENGTHS_MS, InProcess, OnSpark, Work
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, COMMITS, TABLES, published_form
from muster.tables.store import TableStore
from muster.tables.times import inner
from tests.pipeline.test_frames import in_order
from tests.pipeline.world import run_here, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]
Row = dict[str, Any]


@contextmanager
def interpreted(spark: "SparkSession") -> Iterator[None]:
    """A few hundred rows: compiling code for them would take longer than everything else."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    yield
    spark.conf.unset("spark.sql.codegen.wholeStage")


def made_by(maker: InProcess | OnSpark, work: Work) -> list[Row]:
    (files,) = maker.make([work])
    rows = [pq.ParquetFile(f"{work.tables}/{work.table}/{file.path}").read() for file in files]
    assert [len(each) for each in rows] == [file.rows for file in files]
    return in_order([row for each in rows for row in inner(each, ANALYTICS[work.table]).to_pylist()])


def test_spark_makes_what_duckdb_makes(spark: "SparkSession", tmp_path: Path) -> None:
    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    store = TableStore(tmp_path / "tables")
    manifest = store.manifest()
    assert manifest is not None
    files = {name: store.files(name, version) for name, version in manifest.tables.items() if name in TABLES}
    observed_until = manifest.source["analytics"]["observed_until"]
    middle_ms = sorted(pq.ParquetFile(files["commits"][0]).read()["timestamp"].to_pylist())[5].timestamp() * 1000
    with interpreted(spark):
        for table, length_ms in LENGTHS_MS.items():
            for since_ms in (0, int(middle_ms) // length_ms * length_ms):
                given = {
                    name: files.get(name, []) for name in ("commits", "log_ends", "rebalances", "latest_rebalances")
                }
                if since_ms:
                    names = ("lag_history", "rates", "offsets", "group_hours")
                    given |= {f"before_{name}": files[name] for name in names} | {"new_commits": files["commits"][:1]}
                work = Work(table, since_ms, since_ms + 1, given, 0, str(tmp_path / "made"), (), "run", observed_until)
                on_spark, here = made_by(OnSpark(spark), work), made_by(InProcess(), work)
                assert on_spark == here, (table, since_ms)
                assert on_spark, table


def test_frames_as_of_a_moment(spark: "SparkSession", tmp_path: Path) -> None:
    from muster.pipeline import frames

    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    store = TableStore(tmp_path / "tables")
    manifest = store.manifest()
    assert manifest is not None
    names = ("commits", "open_commits", "group_records", "markers", "log_ends")
    history = {
        name: frames.read_files(spark, store.files(name, manifest.tables[name]), TABLES[name])
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
