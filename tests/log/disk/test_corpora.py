"""Directories that real brokers left, of every version: opened, read, closed, opened again."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from muster.log.directory import CLEAN_STOP, LogDirectory
from muster.segments.checkpoints import TopicPartition
from tests.codec.corpus_records import CORPORA, NAMES
from tests.log.disk.unsynced import UNSYNCED

OFFSETS = "__consumer_offsets"
CLEAN = ("k08-to-26", "k26", "k26-formats", "k39", "k40", "k43-all", "mini-lz4-39", "mini-zstd-43")
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
DAMAGED = {
    # partition, where recovery must cut, and the words that say so (byte positions are those of story.md)
    "damaged-torn": {0: (2380, "byte 656"), 1: (1537, "byte 11480")},
    "damaged-flip": {0: (2376, "byte 328")},
    "damaged-length": {0: (2376, "byte 328"), 2: (1148, "byte 1968")},
}


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = request.param
    with (
        pa.input_stream(str(CORPORA / name / f"{name}.tar.zst"), compression="zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(tmp_path, filter="data")
    if name in CLEAN:
        (tmp_path / "logs" / CLEAN_STOP).touch()  # the archives have no hidden files
    return tmp_path / "logs"


def expected(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            if "keyHex" in fields or "control" in fields:
                yield fields


def expected_records(name: str) -> dict[int, list[tuple[int, int, str | None, str | None]]]:
    """By partition: offset, timestamp, key and value, as Kafka's tools read them."""
    found: dict[int, list[tuple[int, int, str | None, str | None]]] = {}
    for fields in expected(name):
        if "control" in fields:
            row = (fields["offset"], fields["timestamp"], None, None)
        else:
            row = (fields["offset"], fields["timestamp"], fields["keyHex"], fields["valueHex"])
        found.setdefault(fields["partition"], []).append(row)
    return found


def found_records(directory: LogDirectory, partition: int) -> list[tuple[int, int, str | None, str | None]]:
    rows: list[tuple[int, int, str | None, str | None]] = []
    for batch in directory.logs[TopicPartition(OFFSETS, partition)].batches():
        for record in batch.records:
            if batch.header.is_control:
                rows.append((record.offset, record.timestamp_ms, None, None))
            else:
                value = None if record.value is None else record.value.hex()
                rows.append((record.offset, record.timestamp_ms, (record.key or b"").hex(), value))
    return rows


@pytest.mark.parametrize(("name", "unpacked"), [(name, name) for name in NAMES], indirect=["unpacked"], ids=NAMES)
def test_a_brokers_directory(name: str, unpacked: Path) -> None:
    before = (unpacked / "meta.properties").read_text()
    directory = LogDirectory.open(unpacked, files=UNSYNCED)
    assert directory.was_clean == (name in CLEAN)
    assert directory.meta.cluster_id is not None
    assert f"cluster.id={directory.meta.cluster_id}" in before
    assert (unpacked / "meta.properties").read_text() == before
    groups = json.loads((CORPORA / name / "expected" / "groups.json").read_text())
    for partition, rows in expected_records(name).items():
        log = directory.logs[TopicPartition(OFFSETS, partition)]
        cut, words = DAMAGED.get(name, {}).get(partition, (None, ""))
        if cut is None:
            assert log.report.truncated_bytes == 0
            if name not in DAMAGED:
                assert log.end_offset == groups["logEndAtStop"][str(partition)]
        else:
            assert log.end_offset == cut
            assert any(words in note for note in log.report.notes)
            rows = [row for row in rows if row[0] < cut]
        assert found_records(directory, partition) == rows
        if name in CLEAN:
            assert log.report.checked_bytes == log.report.replayed_bytes == 0
    check_topics(directory, groups)
    ends = {key: (log.end_offset, log.last_stable_offset) for key, log in directory.logs.items()}
    assert directory.close()
    again = LogDirectory.open(unpacked, files=UNSYNCED)
    assert again.was_clean
    assert again.notes == []
    assert {key: (log.end_offset, log.last_stable_offset) for key, log in again.logs.items()} == ends
    again.close()


def check_topics(directory: LogDirectory, groups: dict[str, Any]) -> None:
    """Ids, ends under both isolation levels, and the newest record, as the live broker told them."""
    compared = 0
    for name, topic in groups["topics"].items():
        ours = directory.registry.get(name)
        if ours is None or name == OFFSETS or "endReadCommitted" not in topic:
            continue
        if topic.get("topicId", NO_ID) != NO_ID:
            assert ours.topic_id == topic["topicId"]
        for number in range(topic["partitions"]):
            key = TopicPartition(name, number)
            log = directory.logs[key]
            assert log.start_offset == topic["earliest"][str(key)]["offset"]
            assert log.end_offset == topic["endReadUncommitted"][str(key)]["offset"]
            assert log.last_stable_offset == topic["endReadCommitted"][str(key)]["offset"]
            newest = (topic.get("maxTimestamp") or {}).get(str(key))
            if newest is not None and newest["offset"] >= 0:
                found = log.offset_of_largest_timestamp()
                assert found is not None
                assert (found.offset, found.timestamp_ms) == (newest["offset"], newest["timestamp"])
            compared += 1
    assert compared >= 2
