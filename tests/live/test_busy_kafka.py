"""Brokers of other releases, and one that is written to while it is read."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from muster.codec import iter_batches
from muster.live.cluster import Cluster
from muster.live.download import download_from
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.live import life
from tests.live.broker import DATA
from tests.live.test_kafka import segments

pytestmark = pytest.mark.kafka
SMALL_SEGMENTS = {"offsets.topic.segment.bytes": str(1 << 20)}
"""The smallest that Kafka 4 takes; a topic with less is silently never made."""


def read_to_the_end(broker: KafkaBroker, partition: int, directory: Path, steps: int) -> list[Path]:
    """In so many downloads, each into a directory of its own."""
    made = []
    offset = 0
    with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
        for step in range(steps):
            made.append(directory / f"{partition}-{step}")
            offset = download_from(cluster, life.OFFSETS, partition, offset, None, made[-1])
    return made


@pytest.mark.matrix
@pytest.mark.parametrize("version", ["3.9.1", "4.0.0"])
def test_other_releases(version: str, tmp_path: Path) -> None:
    with KafkaBroker(require_kafka(version)) as broker:
        producer = life.live(broker)
        for partition in range(life.OFFSETS_PARTITIONS):
            (directory,) = read_to_the_end(broker, partition, tmp_path, 1)
            assert segments(directory) == segments(broker.log_dir / f"{life.OFFSETS}-{partition}")
        del producer


@pytest.mark.long
def test_downloads_while_groups_commit_are_the_log_piece_by_piece(tmp_path: Path) -> None:
    """Small segments, and no cleaner, so that the broker still has every byte when we compare."""
    settings = SMALL_SEGMENTS | {"log.cleaner.enable": "false"}
    with KafkaBroker(require_kafka(), settings) as broker:
        producer = life.live(broker)
        writers = [threading.Thread(target=commit_often, args=(broker, group)) for group in life.groups()]
        for writer in writers:
            writer.start()
        made: dict[int, list[Path]] = {partition: [] for partition in range(life.OFFSETS_PARTITIONS)}
        rounds = 0
        offsets = dict.fromkeys(made, 0)
        with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
            while True:
                is_last = not any(writer.is_alive() for writer in writers)
                for partition, directories in made.items():
                    directories.append(tmp_path / f"{partition}-{rounds}")
                    offsets[partition] = download_from(
                        cluster, life.OFFSETS, partition, offsets[partition], None, directories[-1]
                    )
                rounds += 1
                if is_last:
                    break
        assert rounds > 5
        for partition, directories in made.items():
            original = broker.log_dir / f"{life.OFFSETS}-{partition}"
            assert len(list(original.glob("*.log"))) > 1
            assert b"".join(map(segments, directories)) == segments(original)
        del producer


@pytest.mark.long
def test_a_log_that_is_being_cleaned(tmp_path: Path) -> None:
    """What is left of it is read whole, in order, and ends where the log ends."""
    settings = SMALL_SEGMENTS | {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
    with KafkaBroker(require_kafka(), settings) as broker:
        producer = life.live(broker)
        for group in life.groups():
            commit_often(broker, group)
        with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
            ends = cluster.log_ends([(life.OFFSETS, partition) for partition in range(life.OFFSETS_PARTITIONS)])
        cleaned = 0
        for (_, partition), end in ends.items():
            (directory,) = read_to_the_end(broker, partition, tmp_path, 1)
            batches = list(iter_batches(segments(directory)))
            assert not any(one.problem for one in batches)
            offsets = [record.offset for one in batches for record in one.records]
            assert offsets == sorted(set(offsets))
            assert batches[-1].header.last_offset + 1 == end.high_watermark
            cleaned += len(offsets) < (end.high_watermark or 0)
        assert cleaned
        del producer


def commit_often(broker: KafkaBroker, group: str) -> None:
    with life.consumer(broker, group) as simple:
        for offset in range(600):
            where = TopicPartition(DATA, offset % 7, offset, "x" * 3000)
            simple.commit(offsets=[where], asynchronous=False)
