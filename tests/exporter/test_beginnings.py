"""Partitions that begin from tables: whatever comes next, they tell the same as those that were read from the start."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from muster.codec.batches import iter_batches
from muster.codec.records import BatchHeader, Record
from muster.exporter.beginnings import read_beginnings
from muster.exporter.groups import Beginning, Group, OffsetsPartition, Room
from muster.exporter.limits import LeftOut, Limits, Wanted
from muster.tables.reading import open_tables
from tests.exporter.test_corpora import logs
from tests.pipeline.world import GrowingLog, run_here, unpacked

Batches = list[tuple[BatchHeader, list[Record]]]


def read_whole(name: str) -> dict[int, Batches]:
    found: dict[int, Batches] = {}
    for number, _, data in logs(name):
        found.setdefault(number, []).extend((batch.header, list(batch.records)) for batch in iter_batches(data))
    return found


def new_partition(room: Room) -> OffsetsPartition:
    return OffsetsPartition(room, Wanted(), lambda where: None)


def told(group: Group) -> dict[str, object]:
    """What is compared of a group. Lags of commits are not: tables know the ends of logs, and history does not."""
    rebalances = group.rebalances.by_cause if group.rebalances is not None else Counter[str]()
    return {
        "type": group.type,
        "protocols": (group.protocol_type, group.protocol) if group.type else None,
        "members": group.members,
        "positions": {where: (position.window[-1], position.log_offset) for where, position in group.positions.items()},
        "commits": group.commits,
        "rebalances": +rebalances,
    }


def followed(partition: OffsetsPartition, batches: Batches, start: int) -> dict[str, dict[str, object]]:
    partition.go_live()
    for header, records in batches:
        partition.take(header, [record for record in records if record.offset >= start])
    for _ in range(2):
        for group in partition.groups.values():
            if group.rebalances is not None:
                group.rebalances.settle()
    return {group_id: told(group) for group_id, group in partition.groups.items()}


def from_the_start(batches: Batches, until: int) -> OffsetsPartition:
    partition = new_partition(Room(Limits(), LeftOut()))
    for header, records in batches:
        partition.take(header, [record for record in records if record.offset < until])
    return partition


def beginnings_at(tables: Path) -> dict[int, Beginning]:
    with open_tables(tables) as opened:
        return read_beginnings(opened, Wanted())


@pytest.mark.parametrize("name", ["k26-full", "k43-all"])
def test_beginning_anywhere_is_the_same_as_reading_from_the_start(name: str, tmp_path: Path) -> None:
    whole, log = read_whole(name), GrowingLog(unpacked(name, tmp_path / "unpacked"), tmp_path / "log", Random(1))
    log.grow()
    run_here(tmp_path / "tables", log.target, analytics=True)
    seen = 0
    for number, beginning in beginnings_at(tmp_path / "tables").items():
        room = Room(Limits(), LeftOut())
        begun = new_partition(room)
        begun.restore(beginning)
        batches = whole.get(number, [])
        expected = followed(from_the_start(batches, beginning.next_offset), batches, beginning.next_offset)
        assert followed(begun, batches, beginning.next_offset) == expected
        assert room.groups == len(begun.groups)
        assert room.partitions == sum(len(group.positions) for group in begun.groups.values())
        seen += len(expected)
    assert seen > 10
