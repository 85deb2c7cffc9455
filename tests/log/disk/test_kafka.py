"""Kafka's own tools and a real broker judge the files."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.codec.batches import encode_batch
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
    offset_key,
)
from muster.codec.partitioning import partition_for
from muster.codec.records import Record
from muster.errors import ConfigError
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.log.segment import INDEX, LOG, SEGMENT_SUFFIXES, SNAPSHOT, TIMEINDEX, TXNINDEX
from muster.segments import checkpoints
from tests.kit.kafka import Kafka, KafkaBroker, require_kafka
from tests.log.disk.unsynced import UNSYNCED

pytestmark = pytest.mark.kafka

START_MS = 1_750_000_000_000
CONFIG = LogConfig(segment_bytes=6000, index_interval_bytes=300, timestamp_after_max_ms=1 << 60, flush=Flush.ALWAYS)
HARMLESS = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n")


@pytest.fixture(scope="module")
def kafka_tools() -> Kafka:
    return require_kafka()


def written_to(log: DiskLog, turns: int, number: int = 0, client_id: int = 77) -> None:
    """A little of everything: merged commits, transactions both ways, batches of clients, clocks that step back."""
    for turn in range(number, number + turns):
        now_ms = START_MS + 10 * turn - (300 if turn % 17 == 7 else 0)
        for _ in range(turn % 4):
            log.append([(b"key-%d" % turn, None if turn % 5 == 0 else b"v" * (turn % 40))], now_ms)
        producer_id = 5 + turn % 3
        if turn % 6 == 2:
            log.append([(b"t", b"1"), (b"t", b"2")], now_ms, producer_id, 0)
        if turn % 6 == 5:
            log.append_marker(5 + (turn - 3) % 3, 0, now_ms, commit=turn % 12 == 5)
        if turn % 7 == 3:
            records = [Record(one, now_ms + one, b"c", b"x" * one) for one in range(5)]
            data = encode_batch(
                records, producer_id=client_id, producer_epoch=0, base_sequence=5 * (turn // 7), codec=turn % 5
            )
            log.append_batch(data, now_ms)
        log.flush()


def accepted(kafka: Kafka, directory: Path) -> None:
    """kafka-dump-log finds nothing to complain about, in any file, in any mode."""
    modes = [
        ((LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT), ("--deep-iteration", "--print-data-log")),
        ((INDEX, TIMEINDEX), ("--index-sanity-check",)),
        ((INDEX, TIMEINDEX), ("--verify-index-only",)),
    ]
    for kinds, arguments in modes:
        files = [sorted(directory.glob(f"*{kind}")) for kind in kinds]
        assert all(files), "a kind of file is missing"
        names = ",".join(str(file) for some in files for file in some)
        done = kafka.run(kafka.dump_log_class, *arguments, "--files", names)
        assert done.returncode == 0, done.stderr
        assert HARMLESS.sub("", done.stderr).strip() == "", f"{arguments}: {done.stderr}"
        assert "isvalid: false" not in done.stdout
        for word in ("ismatch", "orrupt", "ndexOutOfBounds", "not found", "out of order"):
            assert word not in done.stdout
        if LOG in kinds:
            assert len(re.findall(r"^\| offset: ", done.stdout, re.MULTILINE)) > 300
            assert "producerId: 77" in done.stdout


def test_dump_log_accepts_everything(kafka_tools: Kafka, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = DiskLog.open(directory, CONFIG, files=UNSYNCED)
    written_to(log, 150)
    assert len(log.segments) > 3
    accepted(kafka_tools, directory)  # in use
    recovery_point = log.segments[1].base_offset + 3
    end_offset = log.end_offset
    log.abandon()
    with (directory / log.segments[-1].path(LOG).name).open("ab") as file:
        file.write(b"\1" * 100)
    recovered = DiskLog.open(directory, CONFIG, files=UNSYNCED, recovery_point=recovery_point)
    assert recovered.end_offset == end_offset
    assert recovered.report.truncated_bytes == 100
    written_to(recovered, 30, number=150)
    recovered.truncate_to(recovered.end_offset - 9)
    written_to(recovered, 30, number=180, client_id=78)  # the other's last batches are cut off
    assert recovered.close()
    accepted(kafka_tools, directory)


NOT_READY = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
GROUPS = [f"group-{number}" for number in range(12)]


class OurTopic:
    """Offsets and groups written by muster, and what a broker should make of them."""

    def __init__(self, directory: LogDirectory, partitions: int) -> None:
        self.directory = directory
        self.partitions = partitions
        self.expected: dict[tuple[str, str, int], int] = {}

    def log(self, group: str) -> DiskLog:
        key = checkpoints.TopicPartition("__consumer_offsets", partition_for(group, self.partitions))
        return self.directory.logs[key]

    def commit(self, group: str, partition: int, offset: int | None, producer_id: int = -1) -> None:
        value = None
        if offset is not None:
            value = encode_offset_value(OffsetValue(offset, 0, "by muster", START_MS), 4)
        key = encode_key(offset_key(group, "orders", partition))
        self.log(group).append([(key, value)], START_MS, producer_id, 0 if producer_id >= 0 else -1)

    def write(self) -> None:
        """Each group gets offsets; some are overwritten, deleted, in transactions that end this way or that."""
        for turn in range(40):
            for number, group in enumerate(GROUPS):
                self.commit(group, turn % 3, 1000 * number + turn)
                self.expected[group, "orders", turn % 3] = 1000 * number + turn
            for log in self.directory.logs.values():
                log.flush()
        for number, group in enumerate(GROUPS[:4]):
            self.commit(group, 0, 77, producer_id=900 + number)
            self.log(group).append_marker(900 + number, 0, START_MS, commit=number % 2 == 0)
            if number % 2 == 0:
                self.expected[group, "orders", 0] = 77
        self.commit(GROUPS[5], 1, None)
        del self.expected[GROUPS[5], "orders", 1]
        empty = GroupValue("consumer", 9, None, None, START_MS, ())
        for group in (GROUPS[0], GROUPS[7]):
            self.log(group).append([(encode_key(GroupKey(group)), encode_group_value(empty, 3))], START_MS)


def committed(bootstrap: str, group: str) -> dict[tuple[str, str, int], int]:
    """What the broker answers, once it has loaded the group's partition.

    Through a consumer: the admin client of librdkafka crashes when the answer is NOT_COORDINATOR, as it is for a moment
    after a broker's start.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    deadline = time.monotonic() + 60
    found = None
    while found is None:
        try:
            found = consumer.committed([TopicPartition("orders", number) for number in range(3)], timeout=30)
        except KafkaException as error:
            if error.args[0].code() not in NOT_READY or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    consumer.close()
    assert all(one.error is None for one in found)
    return {(group, one.topic, one.partition): one.offset for one in found if one.offset >= 0}


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that has made its offsets topic and a topic to commit for."""
    broker = KafkaBroker(require_kafka(), data_dir=tmp_path / "kafka")
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(20)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "theirs", "log_level": 2})
        consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        consumer.close()
        with pytest.raises(ConfigError, match="in use"):
            LogDirectory.open(broker.log_dir)
        yield broker


def test_a_broker_loads_what_muster_wrote(prepared: KafkaBroker) -> None:
    broker = prepared
    broker.stop()
    partitions = sorted(broker.log_dir.glob("__consumer_offsets-*"))
    for partition in partitions:
        for kind in (*SEGMENT_SUFFIXES, SNAPSHOT):
            for file in partition.glob(f"*{kind}"):
                file.unlink()
    ids = {path.name: (path / "partition.metadata").read_text() for path in partitions}
    directory = LogDirectory.open(broker.log_dir, lambda topic: CONFIG, files=UNSYNCED)
    ours = OurTopic(directory, len(partitions))
    ours.write()
    assert sum(len(log.segments) for log in directory.logs.values()) > 2 * len(partitions)
    ends = {str(key): log.end_offset for key, log in directory.logs.items()}
    assert directory.close()
    assert {path.name: (path / "partition.metadata").read_text() for path in partitions} == ids

    broker.start()
    found: dict[tuple[str, str, int], int] = {}
    for group in GROUPS:
        found |= committed(broker.bootstrap, group)
    assert found == ours.expected
    listed = broker.consumer_groups("--list").split()
    assert set(GROUPS) <= set(listed)
    assert "theirs" not in listed
    broker.stop()

    again = LogDirectory.open(broker.log_dir, files=UNSYNCED)
    assert again.was_clean
    for key, log in again.logs.items():
        assert log.end_offset >= ends[str(key)]
        assert all(batch.problem is None for batch in log.batches())
    again.close()
