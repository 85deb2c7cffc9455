"""The kit that the other tests in here lean on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kit import kafka as kit
from tests.kit.kafka import (
    DEFAULT_VERSION,
    REPOSITORY,
    RESTARTS_QUICKLY,
    KafkaBroker,
    KafkaUnavailable,
    require_kafka,
    resolve,
)
from tests.real.drive import Drive, drive

VERSIONS = ("3.9.1", "4.0.0", DEFAULT_VERSION)


def create_topic(broker: KafkaBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)]).values():
        created.result(20)


def commit(broker: KafkaBroker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2})
    try:
        [answer] = consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        assert answer.error is None
    finally:
        consumer.close()


def committed(broker: KafkaBroker, group: str) -> dict[tuple[str, str, int], int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(group, one.topic, one.partition): one.offset for one in answer.result(20).topic_partitions}


@pytest.mark.kafka
def test_a_commit_shows_in_kafkas_own_tool(kafka: KafkaBroker) -> None:
    create_topic(kafka, "kit-topic")
    commit(kafka, "kit-group", "kit-topic", 1234)
    described = kafka.consumer_groups("--describe", "--group", "kit-group")
    assert "kit-topic" in described
    assert "1234" in described


@pytest.mark.kafka
def test_the_drive_tells_what_it_did(kafka: KafkaBroker, driven: Drive) -> None:
    in_force = [pair for group in driven.groups for pair in committed(kafka, group).items()]
    assert dict(in_force) == driven.committed
    listed = kafka.consumer_groups("--list").split()
    assert set(driven.groups) <= set(listed)
    assert not set(driven.deleted_groups) & set(listed)


@pytest.mark.kafka
def test_the_log_folder_is_what_kafkas_tools_can_read(kafka: KafkaBroker, driven: Drive) -> None:
    dump = kafka.dump_log(sorted(kafka.log_dir.glob("__consumer_offsets-*/*.log")))
    for group in driven.groups:
        assert f'"group":"{group}"' in dump
    assert "endTxnMarker: COMMIT" in dump
    assert "endTxnMarker: ABORT" in dump
    assert "isvalid: false" not in dump


@pytest.mark.kafka
def test_the_console_consumer_reads_the_offsets_topic(kafka: KafkaBroker, driven: Drive) -> None:
    partition = next(
        folder.name.rsplit("-", 1)[1]
        for folder in kafka.log_dir.glob("__consumer_offsets-*")
        if any(b"drive-simple" in log.read_bytes() for log in folder.glob("*.log"))
    )
    wanted = '{"key":{"type":1,"data":{"group":"drive-simple","topic":"drive-orders","partition":0}}'
    assert wanted in kafka.console_consumer_offsets(
        partition=int(partition), is_enough=lambda printed: wanted in printed
    )


def test_without_maven_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = kit.find_java()
    if home is None:
        pytest.skip("no Java, so the sentence is about that")
    monkeypatch.setenv("JAVA_HOME", str(home.path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaUnavailable, match=r"no Maven to bring it: install Maven \(the command `mvn`\)\.$"):
        resolve(cache=tmp_path / "cache")


def test_without_java_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "find_java", lambda: None)
    with pytest.raises(KafkaUnavailable, match=r"^Kafka needs Java: no Java 17 or 21 found"):
        resolve(cache=tmp_path)


def test_a_failed_download_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text("#!/bin/sh\necho '[ERROR] nobody there'\nexit 1\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{mvn.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(KafkaUnavailable, match=r"could not bring Kafka 9\.9\.9.*nobody there"):
        resolve("9.9.9", cache=tmp_path / "cache")
    assert [left.name for left in (tmp_path / "cache").iterdir()] == ["9.9.9.lock"]


@pytest.mark.parametrize(("in_ci", "end"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_kafka_skips_here_and_fails_in_ci(
    in_ci: str, end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setattr(kit, "find_java", lambda: None)
    with pytest.raises(end, match="Kafka needs Java"):
        require_kafka()


@pytest.mark.kafka
@pytest.mark.matrix
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_can_be_driven_killed_and_taken_up_again(version: str, tmp_path: Path) -> None:
    release = require_kafka(version)
    with KafkaBroker(release, RESTARTS_QUICKLY, tmp_path) as broker:
        done = drive(broker)
        broker.kill()
    with KafkaBroker(release, RESTARTS_QUICKLY, tmp_path) as broker:
        in_force = [pair for group in done.groups for pair in committed(broker, group).items()]
        assert dict(in_force) == done.committed


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(kit.KafkaFailed, match="NO_SUCH_LISTENER"),
        KafkaBroker(require_kafka(), {"inter.broker.listener.name": "NO_SUCH_LISTENER"}, data_dir=tmp_path),
    ):
        pass


@pytest.mark.kafka
@pytest.mark.matrix
def test_the_command_runs_until_ctrl_c() -> None:
    require_kafka()
    command = [sys.executable, "-m", "tests.kit.kafka"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            first, second = running.stdout.readline(), running.stdout.readline()
            data = Path(second.split()[-1])
            assert first.startswith(f"Kafka {DEFAULT_VERSION} listens on 127.0.0.1:")
            assert (data / "meta.properties").exists()
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        assert not data.exists()
