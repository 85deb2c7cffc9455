"""Rows on their way from the tasks that read to those that merge."""

from typing import Any

import pyarrow as pa
import pytest

from muster.pipeline import packets
from muster.pipeline.packets import Packet, PacketWriter, rows_of
from muster.tables.schemas import ACTIVITY


def activity(partition: int, *groups: str) -> pa.Table:
    rows = [{"group_id": group, "offsets_partition": partition, "last_commit_ms": 5} for group in groups]
    return pa.Table.from_pylist(rows, ACTIVITY)


def sent(*appended: tuple[int, pa.Table]) -> list[Packet]:
    writer = PacketWriter("activity")
    for partition, rows in appended:
        writer.append(partition, rows)
    writer.close()
    return writer.packets


def groups_in(some: list[Packet]) -> list[Any]:
    return rows_of(some, "activity").read_all()["group_id"].to_pylist()


def test_a_packet_has_rows_of_one_partition() -> None:
    found = sent((3, activity(3, "a")), (3, activity(3, "b", "c")), (4, activity(4)), (5, activity(5, "d")))
    assert [(each.offsets_partition, each.rows) for each in found] == [(3, 3), (5, 1)]
    assert [groups_in([each]) for each in found] == [["a", "b", "c"], ["d"]]
    assert groups_in(found) == ["a", "b", "c", "d"]
    assert rows_of(found, "winners_groups").read_all().num_rows == 0


def test_a_packet_is_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "PACKET_BYTES", 100)
    found = sent(*((0, activity(0, f"group-{number}")) for number in range(40)))
    assert len(found) > 5
    assert groups_in(found) == [f"group-{number}" for number in range(40)]


def test_a_packet_holds_its_own_rows_and_not_what_they_were_cut_from() -> None:
    many = activity(0, *(f"group-{number}" for number in range(100_000)))
    (packet,) = sent((0, many.slice(500, 2)))
    assert groups_in([packet]) == ["group-500", "group-501"]
    assert len(packet.payload) < 2000
