"""A log on disk, seen through the protocol that the handlers know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.server.cluster.cluster import UNKNOWN_EPOCH_END, DiskPartition, EmptyPartition, PartitionOffsets


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DiskLog]:
    log = DiskLog.open(tmp_path / "t-0", LogConfig())
    yield log
    log.abandon()


def facts(partition: PartitionOffsets) -> list[object]:
    return [
        partition.leader_epoch,
        partition.start_offset,
        partition.end_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        [partition.epoch_end(epoch) for epoch in range(-3, 6)],
        partition.epoch_at(0),
        partition.first_since(0),
        partition.youngest(),
    ]


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_log_without_records_is_an_empty_partition(log: DiskLog, epoch: int) -> None:
    log.leader_epoch = epoch
    assert facts(DiskPartition(log)) == facts(EmptyPartition(epoch))


def test_a_log_with_records(log: DiskLog) -> None:
    partition = DiskPartition(log)
    log.append([(b"a", b"1"), (b"b", b"2")], 1_000)
    log.flush()
    log.leader_epoch = 2
    log.append([(b"c", b"3")], 2_000)
    log.flush()
    log.leader_epoch = 4
    assert (partition.start_offset, partition.end_offset, partition.high_watermark) == (0, 3, 3)
    assert [tuple(partition.epoch_end(epoch)) for epoch in (0, 1, 2, 3, 4)] == [(0, 2), (0, 2), (2, 3), (2, 3), (4, 3)]
    assert partition.epoch_end(5) == UNKNOWN_EPOCH_END
    assert [partition.epoch_at(offset) for offset in (0, 1, 2)] == [0, 0, 2]
    assert partition.first_since(1_001) == partition.youngest() == (2, 2_000, 2)
    assert partition.first_since(2_001) is None


def test_records_that_are_not_written_yet_are_not_seen(log: DiskLog) -> None:
    partition = DiskPartition(log)
    log.append([(b"a", b"1")], 1_000)
    assert (log.end_offset, partition.end_offset) == (1, 0)
    log.write()
    assert partition.end_offset == 1
