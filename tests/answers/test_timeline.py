"""Members as bars: from records of classic groups, and of newer ones."""

from pathlib import Path
from typing import Any

from muster.answers.timeline import Bar, assigned_text, timeline
from muster.tables.reading import open_tables
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.pages import world
from tests.tables.made import made


def test_members_of_a_classic_group_are_bars_across_its_generations(tmp_path: Path) -> None:
    world.publish(tmp_path)
    left_ms, back_ms = world.NOW_MS - 20 * world.HOUR_MS, world.NOW_MS - 10 * world.HOUR_MS
    with open_tables(tmp_path) as tables:
        drawn = timeline(tables, "orders", world.START_MS, world.NOW_MS)
        first, second = drawn.members
        assert first.bars == [
            Bar(world.START_MS, left_ms, 1, 1, "clicks 0"),
            Bar(left_ms, back_ms, 2, 2, "clicks 0-1"),
            Bar(back_ms, None, 3, 1, "clicks 0"),
        ]
        assert second.bars == [
            Bar(world.START_MS, left_ms, 1, 1, "clicks 1"),
            Bar(back_ms, None, 3, 1, "clicks 1"),
        ]
        assert (second.client_id, second.client_host) == ("orders client 1", "orders")
        assert [each.cause for each in drawn.rebalances] == ["member joined", "member left", "first members"]
        while_away = timeline(tables, "orders", left_ms, back_ms - 1)
        assert [member.member_id for member in while_away.owners()] == ["orders-0"]
        assert timeline(tables, "nosuch", 0, world.NOW_MS).members == []


def newer(at_ms: int, record_type: int, **fields: Any) -> dict[str, Any]:
    always = {"group_id": "g", "member_id": "m", "is_tombstone": False, "log_offset": at_ms, "offsets_partition": 0}
    return always | {"timestamp_ms": at_ms, "record_type": record_type} | fields


def assigned(*partitions: int) -> list[dict[str, Any]]:
    return [{"topic": "t", "topic_id": None, "partitions": list(partitions)}]


def test_members_of_a_newer_group_are_bars_from_their_own_records(tmp_path: Path) -> None:
    rows = [
        newer(1, 5, client_id="c", client_host="h"),
        newer(2, 8, epoch=1, assignment=assigned(0, 1)),
        newer(3, 8, epoch=2, assignment=assigned(0, 1)),
        newer(4, 8, epoch=3, assignment=assigned(1)),
        newer(5, 8, is_tombstone=True),
        newer(6, 5, is_tombstone=True),
    ]
    with begin_run(TableStore(tmp_path), run_id="r", now_ms=9) as run:
        run.append_rows("group_records", made("group_records", *rows))
        run.publish({}, {"observed_at_ms": 9}, now_ms=9)
    with open_tables(tmp_path) as tables:
        (member,) = timeline(tables, "g", 0, 9).members
    assert member.bars == [
        Bar(1, 2, None, 0, ""),
        Bar(2, 4, 1, 2, "t 0-1"),
        Bar(4, 6, 3, 1, "t 1"),
    ]


def test_partitions_are_told_in_ranges() -> None:
    several = [{"topic": "b", "topic_id": None, "partitions": [7, 0, 2, 1]}, *assigned(3)]
    assert assigned_text(several) == "b 0-2, 7; t 3"
    assert assigned_text([{"topic": None, "topic_id": "xyz", "partitions": [1]}]) == "xyz 1"
    assert assigned_text(None) == ""
