"""`spark.read.format("muster")` of a log, and rows of Spark's own Kafka source."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from muster.codec.batches import encode_batch, iter_batches
from muster.codec.columns.schema import RECORDS
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.errors import BadInput
from muster.pipeline import datasource
from muster.pipeline.spark.log_reader import BatchReader
from muster.pipeline.spark.stream import StreamReader
from muster.segments.reader import record_batches
from muster.segments.sources import OFFSETS_TOPIC, Sources
from muster.tables.schemas import TABLES, published_form
from muster.tables.times import inner
from tests.pipeline.test_job import sorted_rows, without
from tests.pipeline.world import unpacked
from tests.tables.history import history as all_history
from tests.tables.history import history_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NAME = "k43-all"
KAFKA_ROWS = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
     ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
)  # fmt: skip
TXN = ("producer_id", "producer_epoch", "txn_outcome", "txn_marker_offset")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(NAME, tmp_path_factory.mktemp(NAME))


@pytest.fixture(scope="module")
def muster(spark: "SparkSession") -> "SparkSession":
    datasource.register(spark)
    return spark


def rows(frame: "DataFrame", schema: pa.Schema) -> list[dict[str, Any]]:
    """Records as they are; rows of tables as they are inside, of columns that are published."""
    found = frame.toArrow()
    if schema is RECORDS:
        records: list[dict[str, Any]] = found.select(schema.names).cast(schema).to_pylist()
        return records
    assert [(field.name, field.type) for field in found.schema] == [
        (field.name, field.type) for field in published_form(schema)
    ]
    told: list[dict[str, Any]] = inner(found, schema).to_pylist()
    return told


def decoded(log: Path) -> list[dict[str, Any]]:
    return [row for folder in sorted(log.glob("__consumer_offsets-*")) for batch in record_batches(folder)
            for row in batch.to_pylist()]  # fmt: skip


def test_records_are_those_of_the_log(muster: "SparkSession", log: Path) -> None:
    frame = muster.read.format("muster").load(str(log))
    assert frame.columns == RECORDS.names
    assert frame.rdd.getNumPartitions() == len(list(log.glob("__consumer_offsets-*")))
    assert sorted_rows(rows(frame, RECORDS)) == sorted_rows(decoded(log))


@pytest.mark.parametrize("table", ["commits", "group_records", "markers"])
def test_a_table_of_history(muster: "SparkSession", log: Path, table: str) -> None:
    frame = muster.read.format("muster").option("table", table).load(str(log))
    history = history_of(NAME)
    expected = history[table].to_pylist() + (history["open_commits"].to_pylist() if table == "commits" else [])
    assert sorted_rows(rows(frame, TABLES[table])) == sorted_rows(expected)
    assert expected


def test_the_newest_record_of_each_key(muster: "SparkSession", log: Path) -> None:
    """One row of each key: the last that is plain, or of a committed transaction, as the log has it."""
    frame = muster.read.format("muster").option("mode", "latest").option("table", "commits").load(str(log))
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in history_of(NAME)["commits"].to_pylist():
        if row["kind"] != "commit" or row["txn_outcome"] in (None, "committed"):
            newest[row["group_id"], row["topic"], row["partition"]] = row
    found = [row for row in rows(frame, TABLES["commits"]) if row["txn_outcome"] != "open"]
    assert sorted_rows(found) == sorted_rows(list(newest.values()))


def test_several_paths(muster: "SparkSession", log: Path, tmp_path: Path) -> None:
    """The partitions of one topic on two disks."""
    disks = tmp_path / "a", tmp_path / "b"
    for place, folder in enumerate(sorted(log.glob("__consumer_offsets-*"))):
        shutil.copytree(folder, disks[place % 2] / folder.name)
    frame = muster.read.format("muster").load(f"{disks[0]}, {disks[1]}")
    assert frame.count() == len(decoded(log))


def test_numbers_beyond_doubles_survive(muster: "SparkSession", tmp_path: Path) -> None:
    offset, beyond = 2**53 + 1, 2**62 + 1
    key = encode_key(offset_key("g", "t", 0))
    value = encode_offset_value(OffsetValue(beyond, 7, "", 1_760_000_000_001), 4)
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    batch = encode_batch([Record(offset, 1_760_000_000_000, key, value), Record(offset + 1, 0, key, None)])
    (folder / f"{offset:020}.log").write_bytes(batch)
    frame = muster.read.format("muster").option("table", "commits").load(str(tmp_path))
    found = {row["log_offset"]: row["committed_offset"] for row in rows(frame, TABLES["commits"])}
    assert found == {offset: beyond, offset + 1: None}  # a NULL beside it: there pandas would make doubles of both


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"table": "offset"},
            "BadInput: the option table=offset is none of records, commits, group_records, markers.",
        ),
        ({"mode": "newest"}, "BadInput: the option mode=newest is none of history, latest."),
        ({"tabel": "commits"}, "BadInput: there is no option 'tabel'. Did you mean 'table'?"),
        ({"path": "nothing/here"}, "SourceMissing: nothing/here does not exist"),
        ({}, "BadInput: there is nothing to read: load a directory of published tables"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "ClusterUnreachable: cannot connect to 127.0.0.1:1"),
    ],
)
def test_bad_options_say_what_is_wrong(muster: "SparkSession", options: dict[str, str], sentence: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as refused:
        muster.read.format("muster").options(**options).load().count()
    assert f"\nmuster.errors.{sentence}" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mod": "latest"}, "there is no option 'mod'. Did you mean 'mode'?"),
        ({"bootstrap.servers": "x:1"}, "Did you mean 'kafka.bootstrap.servers'?"),
        (
            {"includeHeaders": "true"},
            r"There are: path, table, asOf, run, mode, startingOffsets, .*, storage.\*.",
        ),
        ({"kafka.security.protocol": "SSL"}, "the option kafka.bootstrap.servers is missing"),
    ],
)
def test_an_option_that_nobody_reads_is_a_mistake(options: dict[str, str], sentence: str) -> None:
    for reader in (BatchReader, StreamReader):
        with pytest.raises(BadInput, match=sentence):
            reader(options)


def test_spark_finds_it_by_itself(spark: "SparkSession", log: Path) -> None:
    """Sessions look at modules whose names begin with pyspark_; this one was never told anything."""
    assert spark.newSession().read.format("muster").load(str(log)).columns == RECORDS.names


# Rows as Spark's Kafka source gives them


def kafka_rows(spark: "SparkSession", log: Path) -> "DataFrame":
    """What a consumer is handed: keys and values, no control records."""
    given = [
        {"key": record.key, "value": record.value, "topic": OFFSETS_TOPIC, "partition": int(folder.name.split("-")[1]),
         "offset": record.offset, "timestamp": record.timestamp_ms * 1000}
        for folder in sorted(log.glob("__consumer_offsets-*"))
        for segment in sorted(folder.glob("*.log"))
        for batch in iter_batches(segment.read_bytes())
        if not batch.header.is_control
        for record in batch.records
    ]  # fmt: skip
    another = {**given[0], "topic": "payments"}
    return spark.createDataFrame(pa.Table.from_pylist([*given, another], KAFKA_ROWS))


def test_rows_of_the_kafka_source(muster: "SparkSession", log: Path) -> None:
    from muster.pipeline.frames import commits_of, group_records_of

    frame = kafka_rows(muster, log)
    with Sources([log]) as sources:
        history = all_history(sources.partitions, {})  # which ids topics have is not in a topic
    commits = history["commits"].to_pylist() + history["open_commits"].to_pylist()
    found = rows(commits_of(frame), TABLES["commits"])
    assert sorted_rows(without(found, *TXN)) == sorted_rows(without(commits, *TXN))
    assert {row[name] for row in found for name in TXN} == {None}
    groups = rows(group_records_of(frame), TABLES["group_records"])
    assert sorted_rows(without(groups, *TXN)) == sorted_rows(without(history["group_records"].to_pylist(), *TXN))
    with pytest.raises(BadInput, match="offset is missing"):
        commits_of(frame.drop("offset"))
