"""The list of groups, now and as of a moment."""

from pathlib import Path

import pytest

from muster.answers.overview import TREND_POINTS, overview
from muster.answers.status import GroupVerdict, worst_of
from muster.answers.topic import readers, topic_partitions
from muster.answers.totals import Totals
from muster.errors import BadInput
from muster.tables.reading import open_tables
from tests.pages import world


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ([("OK", 1), ("OK", 2)], GroupVerdict("OK", "OK", 2)),
        ([("OK", 1), ("WARN", 5), ("WARN", 3)], GroupVerdict("WARN", "WARN", 3)),
        ([("EXPIRING", 4), ("WARN", 3)], GroupVerdict("WARN", "EXPIRING", 4)),
        ([("STOPPED", 9), ("REWIND", 2), ("WARN", 1)], GroupVerdict("ERR", "STOPPED", 9)),
        ([("LOSING", 9), ("STOPPED", 2)], GroupVerdict("ERR", "LOSING", 9)),
        ([(None, None), ("OK", None)], GroupVerdict("OK", "OK", None)),
        ([(None, None)], GroupVerdict()),
        ([], GroupVerdict()),
    ],
)
def test_a_group_is_as_its_worst_partition(said: list[tuple[str | None, int | None]], verdict: GroupVerdict) -> None:
    assert worst_of(said) == verdict


def test_groups_now_are_what_the_tables_say_the_worst_first(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.bring_up(tables)
        lines = overview(tables, totals)
        published = tables.read("lag").table().to_pylist()
    assert lines[0].group_id == "orders"
    assert {line.group_id for line in lines} == set(world.GROUPS)
    for line in lines:
        assert line.lag == sum(row["lag"] for row in published if row["group_id"] == line.group_id)
    orders, others = lines[0], lines[1:]
    assert (orders.overall, orders.verdict, orders.since_ms) == ("ERR", "STOPPED", world.STOPPED_MS + world.HOUR_MS)
    assert (orders.members, orders.cause, orders.topics) == (2, "member joined", ("clicks",))
    assert (orders.last_commit_ms, orders.expires_ms) == (world.STOPPED_MS, world.NOW_MS + world.DAY_MS)
    assert orders.trend.endswith("█")
    assert {line.verdict for line in others} == {"OK"}


def test_a_static_member_that_returned_is_no_rebalance(tmp_path: Path) -> None:
    joined = {"group_id": "orders", "at_ms": world.STOPPED_MS, "cause": "member joined", "members": 2, "log_offset": 1}
    back = {"at_ms": world.STOPPED_MS + 1, "cause": "static member returned", "members": 3, "log_offset": 2}
    world.publish(tmp_path, rebalances=[joined, joined | back])
    with open_tables(tmp_path) as tables:
        orders = overview(tables, None)[0]
        then = next(line for line in overview(tables, None, world.NOW_MS) if line.group_id == "orders")
    assert (orders.rebalanced_ms, orders.cause) == (world.STOPPED_MS, "member joined")
    assert (then.rebalanced_ms, then.members) == (world.STOPPED_MS, 3)


def test_a_trend_is_of_what_is_known(tmp_path: Path) -> None:
    """Where that is less than a day, all points of it are."""
    long = world.tables()["lag_history"]
    short = [row for row in long if row["interval_start_ms"] >= world.NOW_MS - 3 * world.HOUR_MS]
    world.publish(tmp_path, lag_history=short)
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.bring_up(tables)
        trend = overview(tables, totals)[0].trend
    assert len(trend) == TREND_POINTS
    assert " " not in trend


def test_groups_as_of_a_moment_are_what_was_said_and_seen_then(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.bring_up(tables)
        before = {line.group_id: line for line in overview(tables, totals, world.STOPPED_MS + 1)}
        after = {line.group_id: line for line in overview(tables, totals, world.STOPPED_MS + world.HOUR_MS)}
        away = {line.group_id: line for line in overview(tables, totals, world.NOW_MS - 15 * world.HOUR_MS)}
        with pytest.raises(BadInput, match="nothing is known of"):
            overview(tables, totals, world.NOW_MS + 1)
    assert (before["orders"].verdict, before["orders"].since_ms) == ("OK", world.START_MS)
    assert (after["orders"].verdict, after["orders"].since_ms) == ("STOPPED", world.STOPPED_MS + world.HOUR_MS)
    assert away["orders"].members == 1
    assert away["orders"].cause == "member left"


def test_a_topic_has_the_groups_that_read_it(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.bring_up(tables)
        now, then = readers(tables, totals, "clicks"), readers(tables, totals, "clicks", world.NOW_MS - world.DAY_MS)
        logs = topic_partitions(tables, "clicks")
    assert [(reader.group_id, reader.verdict, reader.partitions) for reader in now] == [
        ("orders", "STOPPED", 2),
        ("billing", "OK", 2),
    ]
    assert {(reader.group_id, reader.verdict) for reader in then} == {("orders", "OK"), ("billing", "OK")}
    assert then[0].lag == sum(world.lag_at("orders", number, world.NOW_MS - world.DAY_MS - 1) for number in range(2))
    assert [(log.partition, log.log_start_offset, log.written_in_a_day) for log in logs] == [
        (0, 5, 30 * 3600),
        (1, 5, 30 * 3600),
    ]


def test_a_group_that_was_deleted_before_a_moment_was_not_there(tmp_path: Path) -> None:
    made = world.tables()
    came_ms, went_ms = world.NOW_MS - 9 * world.HOUR_MS, world.NOW_MS - 6 * world.HOUR_MS
    record = {"offsets_partition": 0, "record_type": 2, "group_id": "console", "epoch": 1, "members": []}
    rebalance = {"group_id": "console", "generation": 1, "at_ms": came_ms, "cause": "first members", "members": 1,
                 "joined": [], "left": [], "type": "classic", "offsets_partition": 0, "log_offset": 900}  # fmt: skip
    world.publish(
        tmp_path,
        rebalances=[*made["rebalances"], rebalance],
        group_records=[
            *made["group_records"],
            record | {"log_offset": 900, "timestamp_ms": came_ms, "is_tombstone": False},
            record | {"log_offset": 901, "timestamp_ms": went_ms, "is_tombstone": True},
        ],
    )
    with open_tables(tmp_path) as tables:
        before, after = (overview(tables, None, at_ms) for at_ms in (went_ms - 1, went_ms))
    assert {line.group_id for line in before} - {line.group_id for line in after} == {"console"}


def test_a_topic_that_was_made_anew_was_not_written_to_backwards(tmp_path: Path) -> None:
    ends = [
        {"topic": "clicks", "partition": 0, "observed_at_ms": at_ms, "log_start_offset": 0, "log_end_offset": end}
        for at_ms, end in ((world.NOW_MS - 30 * world.HOUR_MS, 5000), (world.NOW_MS, 7))
    ]
    world.publish(tmp_path, log_ends=ends)
    with open_tables(tmp_path) as tables:
        (log,) = topic_partitions(tables, "clicks")
    assert (log.log_end_offset, log.written_in_a_day) == (7, None)
