"""What happened to a group, and what changed between two moments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.answers.compare import GroupChange, PartitionChange, group_changes, partition_changes
from muster.answers.history import history
from muster.answers.why import why
from muster.tables.reading import Tables, open_tables
from tests.answers.world import EIGHT_MS, HOUR_MS, MINUTE_MS, NOW_MS, at, publish


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with open_tables(publish(tmp_path_factory.mktemp("tables"))) as opened:
        yield opened


def test_events_in_order_with_commits_counted_between_them(tables: Tables) -> None:
    events = history(tables, "orders-app")
    found = [((event.at_ms - EIGHT_MS) // MINUTE_MS, event.kind, event.number) for event in events]
    assert found == [
        (-125, "rebalance", 1),
        (-120, "commits", 3),
        (-60, "commits", 1),
        (-60, "verdict", 1),
        (-55, "rebalance", 1),
        (-50, "reset", 1),
        (-45, "rebalance", 1),
        (-40, "commits", 1),
        (-20, "expired", 1),
        (0, "verdict", 1),
        (0, "commits", 4),
    ]
    assert events[1].until_ms == EIGHT_MS - 100 * MINUTE_MS
    reset = events[5]
    assert (reset.topic, reset.partition, reset.offset_before, reset.offset_after) == ("orders", 0, 700, 450)
    assert [
        (event.cause, event.members, event.joined, event.left) for event in events if event.kind == "rebalance"
    ] == [
        ("first members", 1, ["shop-0"], []),
        ("group emptied", 0, [], ["shop-0"]),
        ("member joined", 2, ["shop-0", "shop-1"], []),
    ]
    assert [event.cause for event in events if event.kind == "verdict"] == ["OK", "STALLED"]


def test_every_commit_is_in_one_event(tables: Tables) -> None:
    """But for those that went back, which are events of their own."""
    commits = sum(event.number for event in history(tables, "orders-app") if event.kind in ("commits", "reset"))
    ((known,),) = tables.asked(f"SELECT count(*) FROM {tables.relation('commits')} c WHERE kind = 'commit'")
    assert commits == known == 10


def test_a_step_back_of_a_group_that_never_had_members_is_a_reset(tmp_path: Path) -> None:
    commits = [
        at("new", "gone", 5, kind="commit", log_offset=place, timestamp_ms=EIGHT_MS + place, committed_offset=offset)
        for place, offset in enumerate((9, 5))
    ]
    with open_tables(publish(tmp_path, commits=commits)) as tables:
        assert [event.kind for event in history(tables, "new")] == ["commits", "reset"]


def test_commits_of_aborted_transactions_did_not_happen(tmp_path: Path) -> None:
    commits = [
        at("new", "gone", 5, kind="commit", log_offset=place, timestamp_ms=NOW_MS + place, committed_offset=offset,
           txn_outcome=outcome)
        for place, (offset, outcome) in enumerate(((9, None), (50, "aborted"), (10, "committed"), (11, None)))
    ]  # fmt: skip
    with open_tables(publish(tmp_path, commits=commits)) as opened:
        assert [(event.kind, event.number) for event in history(opened, "new")] == [("commits", 3)]
        told = why(opened, "new", NOW_MS)
    assert told is not None
    assert told.commits == 3


def test_history_of_some_time(tables: Tables) -> None:
    since = history(tables, "orders-app", since_ms=EIGHT_MS - 30 * MINUTE_MS)
    assert [event.kind for event in since] == ["expired", "verdict", "commits"]
    until = history(tables, "orders-app", as_of_ms=EIGHT_MS - 52 * MINUTE_MS)
    assert [event.kind for event in until] == ["rebalance", "commits", "commits", "verdict", "rebalance"]
    assert history(tables, "nosuch") == []


def test_a_step_back_with_members_is_a_rewind(tmp_path: Path) -> None:
    with open_tables(publish(tmp_path, "rebalances")) as opened:
        kinds = [event.kind for event in history(opened, "orders-app")]
    assert kinds.count("rewind") == 1
    assert "reset" not in kinds


def test_names_are_no_patterns(tmp_path: Path) -> None:
    commits = [
        at(name, "t", 0, kind="commit", log_offset=place, timestamp_ms=NOW_MS, commit_timestamp_ms=NOW_MS)
        for place, name in enumerate(("a*", "ab", r"a\b"))
    ]
    with open_tables(publish(tmp_path, commits=commits)) as opened:
        for name in ("a*", "ab", r"a\b"):
            assert [(event.group_id, event.number) for event in history(opened, name)] == [(name, 1)]


def test_what_changed_between_two_moments(tables: Tables) -> None:
    orders = group_changes(tables, EIGHT_MS - HOUR_MS, None, ["orders-*"])
    assert orders == [
        GroupChange("orders-app", "Empty", "Stable", 0, 2, None, 3, 2, 2, None, 100, 0, 200, ["shop-0", "shop-1"], [])
    ]
    assert orders[0].has_changed
    changed = partition_changes(tables, EIGHT_MS + MINUTE_MS, None, ["orders-app"])
    assert changed == [
        PartitionChange("orders-app", "orders", 0, 500, None, 500, 12, 100, None, "shop-0"),
        PartitionChange("orders-app", "orders", 1, None, 40, 40, None, 0, None, "shop-1"),
    ]
    assert [each.moved for each in changed] == [0, 0]


def test_what_began_in_between_is_counted_from_its_first_commit(tmp_path: Path) -> None:
    began = [
        at("new", "t", 0, kind="commit", log_offset=minute, txn_outcome=outcome, committed_offset=offset)
        | dict.fromkeys(("timestamp_ms", "commit_timestamp_ms"), EIGHT_MS + minute * MINUTE_MS)
        for minute, offset, outcome in ((1, 2, "aborted"), (2, 5, None), (4, 30, None), (6, 12, None))
    ]
    with open_tables(publish(tmp_path, commits=began)) as opened:
        before_ms, until_ms = EIGHT_MS, EIGHT_MS + 5 * MINUTE_MS
        (group,) = group_changes(opened, before_ms, until_ms, ["new"])
        assert (group.consumed, group.rewound) == (25, 0)
        (partition,) = partition_changes(opened, before_ms, until_ms, ["new"])
        assert (partition.committed_first, partition.committed_after, partition.moved) == (5, 30, 25)
        (group,) = group_changes(opened, EIGHT_MS + 3 * MINUTE_MS, EIGHT_MS + 7 * MINUTE_MS, ["new"])
        assert (group.consumed, group.rewound) == (7, 0)


def test_what_began_is_told_by_places_and_markers_and_since_the_last_deletion(tmp_path: Path) -> None:
    def written(group_id: str, place: int, minute: int, offset: int | None, **more: Any) -> dict[str, Any]:
        row = at(group_id, "t", 0, kind="commit", log_offset=place, committed_offset=offset) | more
        return row | dict.fromkeys(("timestamp_ms", "commit_timestamp_ms"), EIGHT_MS + minute * MINUTE_MS)

    committed = {"txn_outcome": "committed"}
    began = [
        written("deleted", 1, 3, 100),
        written("deleted", 2, 4, None, kind="deleted"),
        written("transaction", 10, -1, 100, txn_marker_offset=30, **committed),  # written before, committed behind
        written("clock", 32, -1, 100),  # behind a record of a later time
        written("transaction", 40, 20, 500, txn_marker_offset=41, **committed),
        written("deleted", 52, 10, 700),
        written("deleted", 53, 12, 720),
        written("clock", 60, 20, 500),
    ]
    markers = [
        {"log_offset": place, "timestamp_ms": EIGHT_MS + at_ms} for place, at_ms in ((30, 300_000), (41, 1_200_000))
    ]
    with open_tables(publish(tmp_path, commits=began, markers=markers)) as opened:
        groups = group_changes(opened, EIGHT_MS, EIGHT_MS + 25 * MINUTE_MS, ["deleted", "transaction", "clock"])
    assert {group.group_id: group.consumed for group in groups} == {"deleted": 20, "transaction": 400, "clock": 400}


def test_the_same_moment_twice_is_no_change(tables: Tables) -> None:
    same = group_changes(tables, EIGHT_MS, EIGHT_MS)
    assert same
    assert not any(each.has_changed for each in same)
