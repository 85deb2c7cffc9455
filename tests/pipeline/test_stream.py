"""`spark.readStream.format("muster")`: each record once, transactions decided, nothing lost in silence."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.errors import BadInput, DataLost
from muster.pipeline.datasource import register
from muster.pipeline.spark import stream
from muster.pipeline.spark.stream import StreamReader, limited
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.schemas import TABLES
from muster.tables.times import inner
from tests.pipeline.test_job import sorted_rows
from tests.pipeline.world import GrowingLog, unpacked
from tests.tables.history import history_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAME = "k43-all"
TRANSACTIONAL = 0x10
TIME_MS = 1_760_000_000_000
Given = list[tuple[int, str | None]]


class Log:
    """A broker's log directory of one or more partitions, written by the test batch by batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.next_offset: dict[int, int] = {}

    def _append(self, partition: int, batch: bytes, records: int) -> None:
        directory = self.folder / f"{OFFSETS_TOPIC}-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{0:020}.log").open("ab") as file:
            file.write(batch)
        self.next_offset[partition] = self.next_offset.get(partition, 0) + records

    def commit(self, partition: int = 0, count: int = 1, producer: int | None = None) -> None:
        """Commits in one batch, in a transaction of a producer or in none."""
        first = self.next_offset.get(partition, 0)
        records = [
            Record(offset, TIME_MS + offset, encode_key(offset_key("shop", "orders", offset)),
                   encode_offset_value(OffsetValue(offset, 0, "", TIME_MS), 3))
            for offset in range(first, first + count)
        ]  # fmt: skip
        more: dict[str, Any] = {}
        if producer is not None:
            more = {"attributes": TRANSACTIONAL, "producer_id": producer, "producer_epoch": 0}
        self._append(partition, encode_batch(records, **more), count)

    def delete(self, key: int, partition: int = 0) -> None:
        """A tombstone of the commit that was made at an offset."""
        offset = self.next_offset[partition]
        record = Record(offset, TIME_MS, encode_key(offset_key("shop", "orders", key)), None)
        self._append(partition, encode_batch([record]), 1)

    def end(self, producer: int, partition: int = 0, *, commit: bool = True) -> None:
        offset = self.next_offset[partition]
        self._append(partition, encode_marker(offset, TIME_MS, producer, 0, commit=commit, coordinator_epoch=0), 1)

    def reader(self, **options: str) -> StreamReader:
        return StreamReader({"path": str(self.folder), "table": "commits", **options})


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "data")


def batch(reader: StreamReader, start: dict[str, int], limit: Any = None) -> tuple[dict[str, int], Given]:
    """The next batch, as Spark asks for it: where it ends, and its offsets with the outcomes of transactions."""
    end = reader.latestOffset(start, limit)
    found = [
        (row["log_offset"], row["txn_outcome"])
        for partition in reader.partitions(start, end)
        for rows in reader.read(partition)
        for row in rows.to_pylist()
    ]
    return end, found


def test_a_transaction_is_held_back_until_it_is_decided(log: Log) -> None:
    log.commit(count=2)
    log.commit(producer=7)  # offset 2
    log.commit()
    reader = log.reader()
    end, found = batch(reader, reader.initialOffset())
    assert (end, found) == ({"0": 2}, [(0, None), (1, None)])
    assert batch(reader, end) == ({"0": 2}, [])  # nothing new, nothing given
    log.end(7)
    log.commit(producer=8)  # offset 5
    end, found = batch(reader, end)
    assert (end, found) == ({"0": 5}, [(2, "committed"), (3, None)])
    log.end(8, commit=False)
    assert batch(reader, end) == ({"0": 7}, [(5, "aborted")])


def test_the_marker_may_stand_behind_the_batch(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction is decided, another begins before its marker and is not."""
    monkeypatch.setattr(stream, "FARTHER", 1)  # markers are looked for in several steps
    log.commit(producer=7, count=3)  # 0 to 2
    log.commit(producer=8)  # 3
    log.commit(count=5)
    log.end(7)
    reader = log.reader()
    assert batch(reader, reader.initialOffset()) == (
        {"0": 3}, [(0, "committed"), (1, "committed"), (2, "committed")],
    )  # fmt: skip


def test_a_restarted_query_goes_on_from_its_checkpoint(log: Log) -> None:
    log.commit(count=3)
    log.commit(producer=7)
    first = log.reader()
    end, _ = batch(first, first.initialOffset())
    log.commit(count=2)
    log.end(7)
    again = log.reader()  # another process knows the offsets, and nothing else
    assert batch(again, end) == ({"0": 7}, [(3, "committed"), (4, None), (5, None)])
    assert [row.work.from_offset for row in again.partitions(json.dumps(end), json.dumps({"0": 7}))] == [3]


def test_a_rate_limit(log: Log) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    log.commit(0, count=10)
    log.commit(1, count=2)
    log.commit(1, producer=7)  # not decided: not to be had
    reader = log.reader(maxOffsetsPerTrigger="6")
    limit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    log.commit(0, count=5)  # too late for this query
    start, given = reader.initialOffset(), []
    for _ in range(10):
        end, found = batch(reader, start, limit)
        assert len(found) <= 6
        given.append(len(found))
        if end == start:
            break
        start = end
    assert given == [6, 6, 0]
    assert start == {"0": 10, "1": 2}
    assert batch(log.reader(), {"0": 0, "1": 0}, ReadAllAvailable())[0] == {"0": 15, "1": 2}


def test_a_batch_may_end_within_a_batch_of_the_log(log: Log) -> None:
    log.commit(count=10)
    reader = log.reader(maxOffsetsPerTrigger="4")
    ends, given, start = [], [], reader.initialOffset()
    for _ in range(3):
        start, found = batch(reader, start, reader.getDefaultReadLimit())
        ends.append(start["0"])
        given += [offset for offset, _ in found]
    assert ends == [4, 8, 10]
    assert given == list(range(10))


@pytest.mark.parametrize(
    ("waiting", "most", "shares"),
    [
        ((10, 10), 6, (3, 3)),
        ((100, 2, 5), 30, (23, 2, 5)),  # what the small ones leave is the large one's
        ((10, 10), 3, (1, 2)),
        ((1, 9, 4), 1, (0, 1, 0)),  # where it cannot be shared, the longest queue is shortened
        ((3, 0), 10, (3, 0)),
    ],
)
def test_the_limit_is_shared(waiting: tuple[int, ...], most: int, shares: tuple[int, ...]) -> None:
    begins = {str(number): 1000 * number for number in range(len(waiting))}
    ends = {number: begins[number] + size for number, size in zip(begins, waiting, strict=True)}
    given = limited(begins, ends, most)
    assert tuple(given[number] - begins[number] for number in begins) == shares


def test_where_a_stream_starts(log: Log) -> None:
    log.commit(0, count=4)
    log.commit(0, producer=7)
    log.commit(1, count=3)
    assert log.reader().initialOffset() == {"0": 0, "1": 0}
    assert log.reader(startingOffsets="earliest").initialOffset() == {"0": 0, "1": 0}
    latest = log.reader(startingOffsets="latest").initialOffset()
    assert latest == {"0": 4, "1": 3}  # the transaction that is under way will be given whole
    named = json.dumps({OFFSETS_TOPIC: {"0": 2, "1": -1}})
    reader = log.reader(startingOffsets=named)
    assert reader.initialOffset() == {"0": 2, "1": 3}
    assert batch(reader, reader.initialOffset()) == ({"0": 4, "1": 3}, [(2, None), (3, None)])
    assert log.reader(startingOffsets=named.replace("-1", "-2")).initialOffset() == {"0": 2, "1": 0}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffsets": "newest"},
            'startingOffsets=newest is none of earliest, latest and JSON like {"__consumer_',
        ),
        ({"startingOffsets": '{"0": 5}'}, "is none of earliest, latest and JSON like"),
        ({"startingOffsets": '{"__consumer_offsets": {"0": -3}}'}, "has an offset below -2, which is earliest."),
        (
            {"startingOffsets": '{"__consumer_offsets": {"0": 1}}'},
            "does not name partition 1 of __consumer_offsets. Name",
        ),
        ({"startingOffsets": '{"__consumer_offsets": {"0": 1, "1": 1, "9": 1}}'}, "names partition 9, and __consumer_"),
        ({"failOnDataLoss": "no"}, "the option failOnDataLoss=no is neither true nor false."),
        ({"maxOffsetsPerTrigger": "0"}, "the option maxOffsetsPerTrigger=0 is no number above 0."),
        (
            {"maxOffsetPerTrigger": "5"},
            "there is no option 'maxOffsetPerTrigger'. Did you mean 'maxOffsetsPerTrigger'?",
        ),
        ({"mode": "latest"}, "the option mode is not for a stream, which has every record."),
        ({"asOf": "2h ago"}, "the option asOf is about published tables"),
        (
            {"path": "s3://bucket/data"},
            "a stream follows a live cluster or a log directory, and not a copy in an object",
        ),
    ],
)
def test_bad_options_say_what_is_wrong(log: Log, options: dict[str, str], sentence: str) -> None:
    log.commit(0)
    log.commit(1)
    with pytest.raises(BadInput) as refused:
        log.reader(**options).initialOffset()
    assert sentence in str(refused.value)


def test_a_rate_limit_needs_a_spark_that_has_one(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    with pytest.raises(BadInput, match=r"maxOffsetsPerTrigger needs Spark 4\.2 or newer, and this is 4\."):
        log.reader(maxOffsetsPerTrigger="5")
    log.commit(count=2)
    assert log.reader().latestOffset() == {"0": 2}  # as Spark 4.0 and 4.1 ask: without anything


def lose_partition(log: Log) -> str:
    shutil.rmtree(log.folder / f"{OFFSETS_TOPIC}-1")
    return "__consumer_offsets-1 was read up to offset 3, and is not there any more"


def lose_end(log: Log) -> str:
    shutil.rmtree(log.folder / f"{OFFSETS_TOPIC}-1")
    log.next_offset[1] = 0
    log.commit(1, count=2)
    return "__consumer_offsets-1 was read up to offset 3, and ends at 2 now: it was truncated, or is an older copy"


def lose_start(log: Log) -> str:
    directory = log.folder / f"{OFFSETS_TOPIC}-1"
    shutil.rmtree(directory)
    log.next_offset[1] = 8
    log.commit(1, count=2)
    (directory / f"{0:020}.log").rename(directory / f"{8:020}.log")
    return "__consumer_offsets-1 was read up to offset 3, and begins at 8 now: the records in between are gone"


@pytest.mark.parametrize("lose", [lose_partition, lose_end, lose_start])
def test_lost_records_fail_the_query_unless_told_otherwise(
    log: Log, lose: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log.commit(0, count=2)
    log.commit(1, count=3)
    start = {"0": 2, "1": 3}
    sentence = lose(log)
    log.commit(0)
    reader = log.reader()
    with pytest.raises(DataLost) as lost:
        reader.latestOffset(start)
    assert str(lost.value).startswith(
        f"{sentence}. To go on with what is there, set the option failOnDataLoss to false"
    )
    with pytest.raises(DataLost):  # a restarted query, and Spark 4.0 and 4.1, come here first
        reader.partitions(start, start | {"0": 3})
    going_on = log.reader(failOnDataLoss="false")
    end, found = batch(going_on, start)
    assert (0, 2, None) in [(0, *row) for row in found]
    assert end["0"] == 3
    assert end["1"] == (10 if lose is lose_start else 3)  # an offset never falls
    assert capsys.readouterr().err == f"muster: {sentence}. The stream goes on with what is there.\n"
    assert going_on.latestOffset(end) == end
    assert capsys.readouterr().err == ""  # said once


def started(stream: Any, tmp_path: Path) -> Any:
    return (
        stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(tmp_path / "given"))
    )  # fmt: skip


@pytest.fixture
def muster(spark: "SparkSession") -> "SparkSession":
    register(spark)
    return spark


def test_a_query_of_spark_s(muster: "SparkSession", log: Log, tmp_path: Path) -> None:
    """The limit, and a restart from the checkpoint."""
    log.commit(0, count=5)
    log.commit(1, producer=7)
    options = {"table": "commits", "maxOffsetsPerTrigger": "3"}
    stream = muster.readStream.format("muster").options(**options).load(str(log.folder))
    query = started(stream, tmp_path)
    assert query.awaitTermination(120)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [3, 2]
    log.end(7, partition=1)
    assert started(stream, tmp_path).awaitTermination(120)
    found = muster.read.parquet(str(tmp_path / "given"))
    assert sorted((row.offsets_partition, row.log_offset, row.txn_outcome) for row in found.collect()) == [
        *((0, offset, None) for offset in range(5)), (1, 0, "committed"),
    ]  # fmt: skip


def test_spark_tells_why_a_query_is_refused(muster: "SparkSession", log: Log, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    log.commit()
    stream = muster.readStream.format("muster").option("startingOffsets", "newest").load(str(log.folder))
    with pytest.raises(StreamingQueryException, match="BadInput: the option startingOffsets=newest is none of") as told:
        started(stream, tmp_path).awaitTermination(120)
    assert "UnboundLocalError" not in str(told.value)


@pytest.mark.matrix
def test_a_query_of_spark_s_fails_where_records_are_lost(muster: "SparkSession", log: Log, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    log.commit(0)
    log.commit(1, count=3)
    stream = muster.readStream.format("muster").option("table", "commits").load(str(log.folder))
    assert started(stream, tmp_path).awaitTermination(120)
    lose_partition(log)
    with pytest.raises(StreamingQueryException, match="DataLost: __consumer_offsets-1 was read up to offset 3, and is"):
        started(stream, tmp_path).awaitTermination(120)


@pytest.mark.long
def test_a_stream_gives_each_record_once(muster: "SparkSession", tmp_path: Path) -> None:
    growing = GrowingLog(unpacked(NAME, tmp_path / "log"), tmp_path / "growing", Random(11))
    sizes = []
    for last in (False, False, True, True):  # the last time there is nothing new
        growing.grow(last)
        stream = muster.readStream.format("muster").option("table", "commits").load(str(growing.target))
        query = started(stream, tmp_path)
        assert query.awaitTermination(120)
        assert query.exception() is None
        sizes.append(muster.read.parquet(str(tmp_path / "given")).count())
    first_open: dict[int, int] = {}
    for row in history_of(NAME)["open_commits"].to_pylist():
        first_open[row["offsets_partition"]] = min(first_open.get(row["offsets_partition"], 1 << 62), row["log_offset"])
    expected = [
        row for row in history_of(NAME)["commits"].to_pylist()
        if row["log_offset"] < first_open.get(row["offsets_partition"], 1 << 62)
    ]  # fmt: skip
    given = muster.read.parquet(str(tmp_path / "given")).toArrow()
    assert sorted_rows(inner(given, TABLES["commits"]).to_pylist()) == sorted_rows(expected)
    assert 0 < sizes[0] <= sizes[1] < sizes[2] == sizes[3]
