"""Published tables in Spark: by format, as views, and in a catalog."""

import shutil
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.errors import BadInput
from muster.pipeline import datasource, views
from muster.pipeline.spark import published
from muster.pipeline.spark.log_reader import table_of_log
from muster.pipeline.spark.published import TableReader, struct_of_table
from muster.tables.reading import ORDERS, open_tables
from muster.tables.schemas import PUBLISHED, TABLES, published_form
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.pipeline.test_job import sorted_rows
from tests.pipeline.test_stream import Log
from tests.pipeline.world import GrowingLog, run_here, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("k43-full", tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def tables(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "the tables"
    run_here(path, log, analytics=True)
    return path


def answered(tables: Path, name: str, as_of_ms: int | None = None) -> Rows:
    """What `muster table` shows."""
    with open_tables(tables) as opened:
        rows: Rows = opened.read(name, as_of_ms).table().to_pylist()
    return rows


def read_here(tables: Path, name: str, **more: Any) -> Rows:
    """What the tasks of a query hand over, without Spark."""
    reader = TableReader(str(tables), {}, name, struct_of_table(name), **more)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    found: Rows = pa.Table.from_batches(batches, published_form(TABLES[name])).to_pylist()
    return found


def rows(frame: "DataFrame") -> Rows:
    found: Rows = frame.toArrow().to_pylist()
    return found


def middle_ms(tables: Path) -> int:
    times = sorted(row["timestamp"] for row in answered(tables, "commits"))
    return int(times[len(times) // 2].timestamp() * 1000)


@pytest.mark.parametrize("name", sorted(ORDERS))
def test_every_table_is_what_muster_table_shows(tables: Path, name: str) -> None:
    expected = answered(tables, name)
    assert sorted_rows(read_here(tables, name)) == sorted_rows(expected)
    assert expected or name == "open_commits"


@pytest.mark.parametrize("name", ["offsets", "lag", "rebalances", "commits"])
def test_a_table_as_of_a_moment(tables: Path, name: str) -> None:
    then_ms = middle_ms(tables)
    expected = answered(tables, name, then_ms)
    assert sorted_rows(read_here(tables, name, as_of=str(then_ms))) == sorted_rows(expected)
    assert len(expected) > 0
    assert sorted_rows(expected) != sorted_rows(answered(tables, name))


def test_in_one_line(spark: "SparkSession", tables: Path) -> None:
    frame = spark.read.format("muster").option("table", "lag").load(str(tables))
    assert sorted_rows(rows(frame)) == sorted_rows(answered(tables, "lag"))
    kinds = dict(frame.dtypes)
    assert (kinds["observed_at"], kinds["lag_ms"], kinds["lag"]) == ("timestamp", "bigint", "bigint")
    comments = {field.name: field.metadata["comment"] for field in frame.schema}
    assert comments["lag"] == PUBLISHED["lag"].field("lag").metadata[b"comment"].decode()
    then = spark.read.format("muster").option("table", "offsets").option("asOf", str(middle_ms(tables)))
    assert sorted_rows(rows(then.load(str(tables)))) == sorted_rows(answered(tables, "offsets", middle_ms(tables)))


def test_columns_that_are_not_asked_for_are_not_read(spark: "SparkSession", tables: Path) -> None:
    frame = spark.read.format("muster").schema("lag long, group_id string").option("table", "lag").load(str(tables))
    assert sorted_rows(rows(frame)) == sorted_rows(
        [{"lag": row["lag"], "group_id": row["group_id"]} for row in answered(tables, "lag")]
    )


def test_a_reader_stays_with_the_run_it_was_planned_on(log: Path, tmp_path: Path) -> None:
    """A run under way, or one that was killed, leaves versions that nobody published; a later run is another."""
    growing = GrowingLog(log, tmp_path / "growing", Random(5))
    growing.grow()
    run_here(tmp_path / "tables", growing.target)
    first, before = TableStore(tmp_path / "tables").manifest(), answered(tmp_path / "tables", "commits")
    assert first is not None
    with begin_run(TableStore(tmp_path / "tables")) as run:
        run.replace("commits", TABLES["commits"].empty_table())  # and ends without being published
    assert sorted_rows(read_here(tmp_path / "tables", "commits")) == sorted_rows(before)
    reader = TableReader(str(tmp_path / "tables"), {}, "commits", struct_of_table("commits"))
    growing.grow(all_of_it=True)
    run_here(tmp_path / "tables", growing.target)
    planned = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted_rows(planned) == sorted_rows(before)
    assert sorted_rows(read_here(tmp_path / "tables", "commits", run=first.run_id)) == sorted_rows(before)
    assert len(read_here(tmp_path / "tables", "commits")) > len(before)


def test_files_are_read_in_groups(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    files = store.files("commits", manifest.tables["commits"])
    monkeypatch.setattr(published, "GROUP_BYTES", 1)
    assert published.file_groups(store, manifest, "commits") == [[file] for file in files]
    monkeypatch.setattr(published, "GROUP_BYTES", 1 << 30)
    assert published.file_groups(store, manifest, "commits") == [files]


def test_a_file_of_before_a_column_was_added(tmp_path: Path) -> None:
    from pyarrow import fs

    pq.write_table(pa.table({"a": [1, 2], "s": [[{"x": 1}], None]}), tmp_path / "old.parquet")
    columns = pa.schema([("s", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))), ("new", pa.string())])
    (batch,) = published.read_file(fs.LocalFileSystem(), str(tmp_path / "old.parquet"), columns)
    assert batch.to_pylist() == [{"s": [{"x": 1, "y": None}], "new": None}, {"s": None, "new": None}]
    (batch,) = published.read_file(fs.LocalFileSystem(), str(tmp_path / "old.parquet"), columns.remove(0))
    assert batch.to_pylist() == [{"new": None}, {"new": None}]
    with pytest.raises(BadInput, match=r"is gone: the run that is being read was cleaned up meanwhile\. Load"):
        next(published.read_file(fs.LocalFileSystem(), str(tmp_path / "other.parquet"), columns))


def read_with(path: Path | str, **options: str) -> Rows:
    source = datasource.OffsetsTopic({"path": str(path), **options})
    reader: Any = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "lags"}, "there is no table 'lags'. Did you mean 'lag'?"),
        ({"table": "customers"}, "there is no table 'customers'. There are: activity, commits,"),
        ({}, "the option table is missing: which table is to be read? There are: activity,"),
        ({"table": "lag", "as_of": "2026"}, "there is no option 'as_of'. Did you mean 'asOf'?"),
        (
            {"table": "lag", "asOf": "someday"},
            "the option asOf: 'someday' is not a time. Write 14:05, yesterday 14:05,",
        ),
        ({"table": "lag", "asOf": "2100-01-01"}, "nothing is known of 2100-01-01 00:00:00 UTC. Run"),
        ({"table": "activity", "asOf": "2026-11-16T05:13"}, "is kept for now only. Leave the option asOf out."),
        ({"table": "lag", "mode": "latest"}, "the option mode is about a log, and these are published tables."),
        ({"table": "lag", "startingOffsets": "earliest"}, "the option startingOffsets is for spark.readStream."),
        (
            {"table": "lag", "run": "20200101T000000-0"},
            "have no run 20200101T000000-0, or it was",
        ),
    ],
)
def test_bad_options_say_what_is_wrong(tables: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_with(tables, **options)
    assert sentence in str(refused.value)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere does not exist: load the directory that `muster pipeline run --out`"):
        read_with(tmp_path / "nowhere", table="lag")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"file is a file\. Tables are kept in a directory of their own: load that\."):
        read_with(tmp_path / "file", table="lag")
    with pytest.raises(BadInput, match="no path is given: load the directory"):
        table_of_log({"table": "lag"})


def test_what_is_not_published(log: Path, tables: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    neither = r"empty is neither a directory of published tables \(it has no _manifest\) nor a log \(it has no "
    with pytest.raises(BadInput, match=neither + r"__consumer_offsets-N\)\. Load what `muster pipeline"):
        read_with(tmp_path / "empty")
    with pytest.raises(BadInput, match=r"the table lag is made by the pipeline, and .* has no _manifest\. `muster"):
        read_with(log, table="lag")
    with pytest.raises(BadInput, match=r"the option asOf is about published tables, and .* is none"):
        read_with(log, table="commits", asOf="2h ago")
    shutil.copytree(tables, tmp_path / "first run killed", ignore=lambda _, names: {"_manifest"} & set(names))
    with pytest.raises(BadInput, match="is neither a directory of published tables"):
        read_with(tmp_path / "first run killed")
    with pytest.raises(BadInput, match=neither):
        read_with(tmp_path / "empty", table="lag")
    reader = datasource.OffsetsTopic({"path": str(tables), "table": "lag"}).streamReader(struct_of_table("lag"))
    with pytest.raises(BadInput, match=r"has published tables, and a stream follows a log\. Read them with"):
        reader.initialOffset()


def test_a_schema_that_the_table_does_not_have(tables: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    with pytest.raises(BadInput, match=r"the table lag has no column 'group'\. Did you mean 'group_id'"):
        TableReader(str(tables), {}, "lag", StructType([StructField("group", StringType())]))
    with pytest.raises(BadInput, match=r"the column observed_at of lag is timestamp, not bigint\. Load it as it is"):
        TableReader(str(tables), {}, "lag", StructType([StructField("observed_at", LongType())]))


# By name, in SQL


def test_views_of_one_run(spark: "SparkSession", log: Path, tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path / "tables")
    names = views(spark, str(tmp_path / "tables"), prefix="kafka_")
    assert names == [f"kafka_{name}" for name in ORDERS]
    for table in ("rebalances", "lag", "groups"):
        assert sorted_rows(rows(spark.table(f"kafka_{table}"))) == sorted_rows(answered(tables, table))
    with begin_run(TableStore(tmp_path / "tables")) as run:
        run.replace("groups", TABLES["groups"].empty_table())
        run.publish({}, {})
    (row,) = spark.sql("SELECT count(*) AS n FROM kafka_groups").collect()
    assert row.n == len(answered(tables, "groups")) > 0  # still the run that it was made of
    views(spark, str(tmp_path / "tables"), prefix="kafka_")
    assert spark.table("kafka_groups").count() == 0


class OldSpark:
    version = "3.5.7"


class Spark:
    version = "4.2.0"


def test_what_cannot_be_opened_says_what_to_do(tables: Path, tmp_path: Path) -> None:
    old: Any = OldSpark()
    some: Any = Spark()
    with pytest.raises(BadInput, match=r"Spark 3\.5\.7 is not supported: muster needs Spark 4\.0 to 4\.3"):
        views(old, str(tables))
    with pytest.raises(BadInput, match=r"there are no tables at .*\. `muster pipeline run"):
        views(some, str(tmp_path))


def test_a_missing_extra_is_named(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "muster.pipeline.spark.published", None)
    monkeypatch.setitem(sys.modules, "muster.pipeline.datasource", None)
    some: Any = Spark()
    with pytest.raises(BadInput, match=r"opening tables needs .*: pip install 'muster\[pipeline\]'\."):
        views(some, str(tables))


def test_tables_of_layout_1_are_refused_with_the_way_out(tables: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from muster.tables.storage import manifest

    shutil.copytree(tables, tmp_path / "tables")
    some: Any = Spark()
    with begin_run(TableStore(tmp_path / "tables")) as run:
        monkeypatch.setattr(manifest, "FORMAT_VERSION", 1)  # as an earlier muster wrote it
        run.publish({}, {})
    monkeypatch.undo()
    way_out = r"have layout 1, .* `muster pipeline migrate --tables .*` rewrites them\."
    with pytest.raises(BadInput, match=way_out):
        views(some, str(tmp_path / "tables"))
    with pytest.raises(BadInput, match=way_out):
        read_with(tmp_path / "tables", table="lag")


def test_rows_that_are_none_are_left_out(tmp_path: Path) -> None:
    """`latest_rebalances` has a row for a group of which no rebalance is known yet: `at` is NULL in it."""
    from pyarrow import fs

    pq.write_table(pa.table({"at": [1, None], "group_id": ["a", "b"]}), tmp_path / "some.parquet")
    columns = pa.schema([("group_id", pa.string())])
    (batch,) = published.read_file(fs.LocalFileSystem(), str(tmp_path / "some.parquet"), columns, "at")
    assert batch.to_pylist() == [{"group_id": "a"}]


def test_open_commits_without_those_that_were_deleted(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.commit(producer=7, count=2)
    log.delete(0)
    run_here(tmp_path / "tables", log.folder)
    kept = TableStore(tmp_path / "tables").files("open_commits", 0)
    assert [pq.read_metadata(file).num_rows for file in kept] == [3]  # the deletion waits with them
    assert [row["partition"] for row in read_here(tmp_path / "tables", "open_commits")] == [1]
