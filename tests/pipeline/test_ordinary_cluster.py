"""A cluster as Kafka comes: fifty partitions of __consumer_offsets, of which two have records."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.cli.status import Status
from muster.pipeline import datasource
from muster.pipeline.engine import LocalEngine, Reading, SparkEngine
from muster.pipeline.job import Request, run
from muster.pipeline.merge import MergeAnswer
from muster.tables.schemas import COMMITS, published_form
from tests.cli.test_follow import following
from tests.kit.kafka import KafkaBroker
from tests.pipeline.test_live import described, measured
from tests.pipeline.world import rows_of, run_here
from tests.real.drive import QUIET, WAIT_S, consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
TOPIC, BUSY, RECORDS = "orders", "busy", 10
NOT_YET = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)
COMMITTED = {("shop", 0): 3, ("shop", 1): 10, ("audit", 0): 7}


@pytest.fixture(scope="module", autouse=True)
def groups(ordinary: KafkaBroker) -> None:
    admin = AdminClient(QUIET | {"bootstrap.servers": ordinary.bootstrap})
    topics = [NewTopic(name, num_partitions=2, replication_factor=1) for name in (TOPIC, BUSY)]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_S)
    for partition in range(2):
        produce(ordinary, TOPIC, partition)
    for (group, partition), offset in COMMITTED.items():
        commit(ordinary, group, TOPIC, partition, offset)


def produce(broker: KafkaBroker, topic: str, partition: int) -> None:
    producer = Producer(QUIET | {"bootstrap.servers": broker.bootstrap})
    for _ in range(RECORDS):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(broker: KafkaBroker, group: str, topic: str, partition: int, offset: int) -> None:
    """Of fifty coordinators some are still loading when the first group comes."""
    deadline = time.monotonic() + WAIT_S
    with consumer(broker, group) as simple:
        while True:
            try:
                simple.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def committed_in(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows if row["topic"] == TOPIC}


@pytest.mark.matrix
def test_a_run_over_the_port_and_one_over_the_log_directory(ordinary: KafkaBroker, tmp_path: Path) -> None:
    told = described(ordinary)
    for name, source in (("port", f"kafka://{ordinary.bootstrap}"), ("files", str(ordinary.log_dir))):
        first = run_here(tmp_path / name, source)
        assert (first.partitions, first.notes) == (50, [])
        tables = rows_of(tmp_path / name, "offsets", "lag")
        assert committed_in(tables["offsets"]) == COMMITTED
        assert measured(tables["lag"]) == told
        assert run_here(tmp_path / name, source).records == 0


class WhileItRuns(LocalEngine):
    """Something happens in the cluster whenever tasks are about to run."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens

    def read(self, *arguments: Any) -> Reading:
        self._happens()
        return super().read(*arguments)

    def merge(self, *arguments: Any) -> list[MergeAnswer]:
        self._happens()
        return super().merge(*arguments)


def test_lag_is_of_one_moment_however_long_the_run_takes(ordinary: KafkaBroker, tmp_path: Path) -> None:
    """The group reads everything there is, before the run and during it: it is caught up, and nothing else."""
    read = 0

    def work() -> None:
        nonlocal read
        produce(ordinary, BUSY, 0)
        read += RECORDS
        commit(ordinary, "quick", BUSY, 0, read)

    work()
    for name, source in (("port", f"kafka://{ordinary.bootstrap}"), ("files", str(ordinary.log_dir))):
        before = read
        run(WhileItRuns(work), Request([source], str(tmp_path / name), analytics=False))
        assert read > before
        (row,) = [row for row in rows_of(tmp_path / name, "lag")["lag"] if row["group_id"] == "quick"]
        assert (row["committed_offset"], row["log_end_offset"]) == (before, before)
        assert [row[name] for name in ("lag", "offset_lag", "lag_ms", "lag_ms_by")] == [0, 0, 0, "exact"]


def test_records_deleted_before_they_were_read_are_lost(ordinary: KafkaBroker, tmp_path: Path) -> None:
    admin = AdminClient(QUIET | {"bootstrap.servers": ordinary.bootstrap})
    produce(ordinary, BUSY, 1)
    commit(ordinary, "slow", BUSY, 1, 2)
    for deleted in admin.delete_records([TopicPartition(BUSY, 1, 7)]).values():
        deleted.result(WAIT_S)
    run_here(tmp_path, f"kafka://{ordinary.bootstrap}")
    (row,) = [row for row in rows_of(tmp_path, "lag")["lag"] if row["group_id"] == "slow"]
    names = ("log_start_offset", "log_end_offset", "lag", "offset_lag", "lost_records")
    assert [row[name] for name in names] == [7, 10, 3, 8, 5]


@pytest.mark.spark
def test_a_run_on_spark(spark: "SparkSession", ordinary: KafkaBroker, tmp_path: Path) -> None:
    summary = run(SparkEngine(spark), Request([f"kafka://{ordinary.bootstrap}"], str(tmp_path)))
    assert summary.partitions == 50
    assert committed_in(rows_of(tmp_path, "offsets")["offsets"]) == COMMITTED


@pytest.mark.spark
@pytest.mark.matrix
def test_the_data_source_and_its_stream(spark: "SparkSession", ordinary: KafkaBroker, tmp_path: Path) -> None:
    datasource.register(spark)
    options = {"table": "commits", "kafka.bootstrap.servers": ordinary.bootstrap}
    batch = spark.read.format("muster").options(**options).load()
    assert committed_in(batch.toArrow().to_pylist()) == COMMITTED
    stream = spark.readStream.format("muster").options(**options).load()
    assert stream.columns == published_form(COMMITS).names
    query = (
        stream.writeStream.format("memory").queryName("ordinary").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert committed_in(spark.table("ordinary").toArrow().to_pylist()) == COMMITTED


@pytest.mark.matrix
def test_following_outlives_the_broker(ordinary: KafkaBroker, tmp_path: Path) -> None:
    with following(f"kafka://{ordinary.bootstrap}", tmp_path) as going:
        assert going.round()["records"] > 0
        ordinary.stop()
        assert going.line().endswith("Trying again until it works; Ctrl-C stops.")
        ordinary.start()
        commit(ordinary, "after", BUSY, 1, 4)
        assert "back after " in going.line()
        while not going.round()["records"]:
            pass
        code, said = going.interrupt()
    assert (code, said) == (Status.INTERRUPTED, ["muster: interrupted.\n"])
    assert {row["group_id"] for row in rows_of(tmp_path, "offsets")["offsets"]} >= {"shop", "audit", "after"}


def test_a_muster_server_is_a_cluster_as_any_other(tmp_path: Path) -> None:
    """What it hands out over the wire makes the tables that its data directory makes, lag included."""
    from tests.server.raw import ApiKey, Raw, commit_body, create_topic, running
    from tests.server.records.talking import batch, produce

    with running(tmp_path / "data") as server:
        create_topic(server.address, TOPIC, 1)
        with Raw(server.address) as raw:
            assert produce(raw, TOPIC, 0, batch(*"abcdefg")) == (0, 0)
            raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body("shop", TOPIC, {0: 5}))
        run_here(tmp_path / "live", "kafka://{}:{}".format(*server.address))
    run_here(tmp_path / "disk", tmp_path / "data")
    live, disk = (rows_of(tmp_path / kind, "commits", "offsets", "lag") for kind in ("live", "disk"))
    assert live["commits"] == disk["commits"]
    assert live["offsets"] == disk["offsets"]
    assert [(row["group_id"], row["lag"]) for row in live["lag"]] == [("shop", 2)]
    assert [(row["group_id"], row["lag"]) for row in disk["lag"]] == [("shop", 2)]
