"""A cluster as Kafka comes: fifty partitions of __consumer_offsets, of which two have records."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.errors import ClusterError
from muster.live import download
from muster.pipeline import datasource
from muster.pipeline.job import OnSpark, Request, run
from muster.tables.schemas import COMMITS
from tests.kit.kafka import AS_KAFKA_COMES, KafkaBroker, require_kafka
from tests.pipeline.test_live import described, measured
from tests.pipeline.world import rows_of, run_here
from tests.real.drive import QUIET, WAIT_S, consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
TOPIC, RECORDS = "orders", 10
COMMITTED = {("shop", 0): 3, ("shop", 1): 10, ("audit", 0): 7}


@pytest.fixture(scope="module")
def ordinary() -> Iterator[KafkaBroker]:
    with KafkaBroker(require_kafka(), AS_KAFKA_COMES) as broker:
        admin = AdminClient(QUIET | {"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)]).values():
            made.result(WAIT_S)
        producer = Producer(QUIET | {"bootstrap.servers": broker.bootstrap})
        for number in range(2 * RECORDS):
            producer.produce(TOPIC, b"x", partition=number % 2)
        assert producer.flush(WAIT_S) == 0
        for (group, partition), offset in COMMITTED.items():
            with consumer(broker, group) as simple:
                simple.commit(offsets=[TopicPartition(TOPIC, partition, offset)], asynchronous=False)
        yield broker


def committed_in(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows}


def test_a_run_over_the_port_and_one_over_the_log_directory(ordinary: KafkaBroker, tmp_path: Path) -> None:
    told = described(ordinary)
    for name, source in (("port", f"kafka://{ordinary.bootstrap}"), ("files", str(ordinary.log_dir))):
        first = run_here(tmp_path / name, source)
        assert (first.partitions, first.notes) == (50, [])
        tables = rows_of(tmp_path / name, "offsets", "lag")
        assert committed_in(tables["offsets"]) == COMMITTED
        assert measured(tables["lag"]) == told
        assert run_here(tmp_path / name, source).records == 0


@pytest.mark.spark
def test_a_run_on_spark(spark: "SparkSession", ordinary: KafkaBroker, tmp_path: Path) -> None:
    summary = run(OnSpark(spark), Request([f"kafka://{ordinary.bootstrap}"], str(tmp_path)))
    assert summary.partitions == 50
    assert committed_in(rows_of(tmp_path, "offsets")["offsets"]) == COMMITTED


@pytest.mark.spark
def test_the_data_source_and_its_stream(spark: "SparkSession", ordinary: KafkaBroker, tmp_path: Path) -> None:
    datasource.register(spark)
    options = {"table": "commits", "kafka.bootstrap.servers": ordinary.bootstrap}
    batch = spark.read.format("muster").options(**options).load()
    assert committed_in(batch.toArrow().to_pylist()) == COMMITTED
    stream = spark.readStream.format("muster").options(**options).load()
    assert stream.columns == COMMITS.names
    query = (
        stream.writeStream.format("memory").queryName("ordinary").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert committed_in(spark.table("ordinary").toArrow().to_pylist()) == COMMITTED


def test_a_muster_server_says_where_its_records_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.server.raw import ApiKey, Raw, commit_body, create_topic, running

    monkeypatch.setattr(download, "CATCHING_UP_S", 0.3)
    with running(tmp_path / "data") as server:
        create_topic(server.address, TOPIC, 1)
        with Raw(server.address) as raw:
            raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body("shop", TOPIC, {0: 5}))
        with pytest.raises(ClusterError, match="point at its data directory"):
            run_here(tmp_path / "tables", "kafka://{}:{}".format(*server.address))
