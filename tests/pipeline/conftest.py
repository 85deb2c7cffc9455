"""One small Spark session, and one Kafka as it comes, for all tests of the pipeline in a process."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from muster.java import find_java
from tests.kit.kafka import AS_KAFKA_COMES, KafkaBroker, require_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    java = find_java()
    if java is None:
        if os.environ.get("CI"):
            pytest.fail("Spark needs a Java 17 or 21, and none was found")
        pytest.skip("Spark needs Java 17 or 21: install one, or run `python -m muster.java --install`")
    from muster.pipeline.spark.session import java_options, spark_session

    session = spark_session(
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{java_options(str(java.path))}",
            "spark.python.worker.reuse": "true",
        },
        name="muster tests",
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ordinary() -> Iterator[KafkaBroker]:
    """Fifty partitions of __consumer_offsets, most of them empty. Tests restart it, and leave it running."""
    with KafkaBroker(require_kafka(), AS_KAFKA_COMES) as broker:
        yield broker
