"""A live cluster: its log directory and its port make the same tables, and both are what Kafka's own tool says."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.errors import ClusterRefused, ClusterUnreachable
from tests.kit.kafka import KafkaBroker
from tests.pipeline.world import Rows, rows_of, run_here

if TYPE_CHECKING:
    from tests.real.drive import Drive

pytestmark = pytest.mark.kafka
COLUMNS = ("group_id", "topic", "partition", "committed_offset", "log_end_offset", "offset_lag")


def described(kafka: KafkaBroker) -> set[tuple[Any, ...]]:
    """What `kafka-consumer-groups --describe --all-groups` prints, as rows; '-' is None."""
    found = set()
    for line in kafka.consumer_groups("--describe", "--all-groups").splitlines():
        words = line.split()
        if len(words) >= 6 and words[0] != "GROUP" and words[2].isdigit():
            numbers = [None if word == "-" else int(word) for word in words[2:6]]
            found.add((words[0], words[1], *numbers))
    return found


def measured(rows: Rows) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in COLUMNS) for row in rows}


def test_the_log_directory_and_the_port_say_what_kafkas_own_tool_says(
    kafka: KafkaBroker, driven: "Drive", tmp_path: Path
) -> None:
    by_port, by_files = tmp_path / "by-port", tmp_path / "by-files"
    told = described(kafka)
    run_here(by_port, f"kafka://{kafka.bootstrap}")
    run_here(by_files, kafka.log_dir)
    assert described(kafka) == told, "somebody works on this broker"
    live, offline = (rows_of(each, "lag", "offsets", "groups", "members", "commits") for each in (by_port, by_files))
    assert told
    for tables in (live, offline):
        assert {row for row in measured(tables["lag"]) if row in told or row[3] is not None} == told
    for table in ("offsets", "groups", "members", "commits"):
        assert sorted(map(repr, live[table])) == sorted(map(repr, offline[table])), table


def test_a_second_run_over_the_port_reads_on(kafka: KafkaBroker, driven: "Drive", tmp_path: Path) -> None:
    from tests.real.drive import consumer

    run_here(tmp_path / "tables", f"kafka://{kafka.bootstrap}")
    before = rows_of(tmp_path / "tables", "commits")["commits"]
    from confluent_kafka import TopicPartition

    topic = next(iter(before))["topic"] if before else "orders"
    with consumer(kafka, "pipeline-reads-on") as one:
        one.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    summary = run_here(tmp_path / "tables", f"kafka://{kafka.bootstrap}")
    after = rows_of(tmp_path / "tables", "commits")["commits"]
    new = [row for row in after if row["group_id"] == "pipeline-reads-on"]
    assert [(row["topic"], row["committed_offset"]) for row in new] == [(topic, 1)]
    assert 1 <= summary.records < 50


def test_a_cluster_that_does_not_answer_leaves_no_tables(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1"):
        run_here(tmp_path / "tables", "kafka://127.0.0.1:1")
    assert not (tmp_path / "tables" / "_manifest").exists()


def test_a_login_that_nobody_asked_for(kafka: KafkaBroker, tmp_path: Path) -> None:
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    with pytest.raises((ClusterRefused, ClusterUnreachable)):
        run_here(tmp_path / "tables", f"kafka://{kafka.bootstrap}", kafka_config=config)
