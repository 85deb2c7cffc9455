"""State after a run, row by row: the SQL of `merge`, run by duckdb."""

from typing import Any

import duckdb
import pyarrow as pa

from muster.pipeline import merge
from muster.tables.schemas import COMMITS, MARKERS, OFFSETS
from muster.tables.sql import queries

Rows = list[dict[str, Any]]


def asked(sql: str, **relations: tuple[pa.Schema, Rows]) -> Rows:
    with duckdb.connect() as connection:
        for name, (schema, rows) in relations.items():
            connection.register(name, pa.Table.from_pylist(rows, schema))
        found: Rows = connection.sql(sql).to_arrow_table().to_pylist()
        return found


def commit(log_offset: int, committed: int | None, topic_partition: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "offsets_partition": 3, "log_offset": log_offset, "kind": "deleted" if committed is None else "commit",
        "group_id": "app", "topic": "orders", "partition": topic_partition, "committed_offset": committed,
        "commit_timestamp_ms": log_offset * 10, **more,
    }  # fmt: skip


def in_force(before: Rows, winners: Rows, resolved: Rows, waiting: Rows | None = None) -> dict[int, tuple[int, int]]:
    sql = queries.offsets(f"({merge.candidates('before', 'winners', 'resolved', 'waiting')})")
    rows = asked(
        sql, before=(OFFSETS, before), winners=(COMMITS, winners), resolved=(COMMITS, resolved),
        waiting=(COMMITS, waiting or []),
    )  # fmt: skip
    return {row["partition"]: (row["committed_offset"], row["log_offset"]) for row in rows}


def test_what_is_new_replaces_deletes_and_leaves_alone() -> None:
    before = [commit(1, 100, 0), commit(2, 200, 1), commit(3, 300, 2)]
    winners = [
        commit(10, 90, 0),  # a rewind is a commit like any other
        commit(11, None, 1),
        commit(12, 500, 2, txn_outcome="aborted", producer_id=7),
        commit(13, 600, 3, txn_outcome="committed", producer_id=7),
    ]
    assert in_force(before, winners, []) == {0: (90, 10), 2: (300, 3), 3: (600, 13)}


WAITING = [
    commit(5, 50, 0, txn_outcome="open", producer_id=7),
    commit(6, 60, 1, txn_outcome="open", producer_id=7),
    commit(7, 70, 2, txn_outcome="open", producer_id=8),
    commit(8, 80, 3, txn_outcome="open", producer_id=9),
]


def test_a_commit_released_by_its_marker_counts_by_its_own_place() -> None:
    markers = [
        {"offsets_partition": 3, "log_offset": 20, "producer_id": 7, "type": "COMMIT"},
        {"offsets_partition": 3, "log_offset": 30, "producer_id": 7, "type": "ABORT"},  # of a later transaction
        {"offsets_partition": 3, "log_offset": 21, "producer_id": 8, "type": "ABORT"},
        {"offsets_partition": 3, "log_offset": 4, "producer_id": 9, "type": "COMMIT"},  # of an earlier transaction
        {"offsets_partition": 4, "log_offset": 22, "producer_id": 9, "type": "COMMIT"},  # of another partition
    ]
    resolved = asked(merge.resolved("waiting", "markers"), waiting=(COMMITS, WAITING), markers=(MARKERS, markers))
    told = {row["log_offset"]: (row["txn_outcome"], row["txn_marker_offset"]) for row in resolved}
    assert told == {5: ("committed", 20), 6: ("committed", 20), 7: ("aborted", 21)}
    newer = [commit(10, 100, 0)]  # behind the commit, before the marker
    assert in_force([], newer, resolved) == {0: (100, 10), 1: (60, 6)}
    left = asked(
        merge.still_open("waiting", "resolved", "now"),
        waiting=(COMMITS, WAITING), resolved=(COMMITS, resolved), now=(COMMITS, [commit(9, 90, 4, txn_outcome="open")]),
    )  # fmt: skip
    assert sorted(row["log_offset"] for row in left) == [8, 9]


def test_what_a_rebuilt_partition_has_no_record_of_has_vanished() -> None:
    held = [commit(1, 100, 0), commit(2, 200, 1), commit(3, 300, 2)]
    (gone,) = asked(
        merge.vanished("held", "winners", "now", {3: 50, 9: 70}),
        held=(OFFSETS, held), winners=(COMMITS, [commit(1, 100, 0)]), now=(COMMITS, [commit(3, 300, 2)]),
    )  # fmt: skip
    assert (gone["group_id"], gone["partition"], gone["kind"], gone["log_offset"]) == ("app", 1, "vanished", 50)
    assert (gone["timestamp_ms"], gone["committed_offset"], gone["previous_commit_timestamp_ms"]) == (None, None, 20)


def test_a_marker_that_was_cleaned_away_leaves_an_unknown_outcome() -> None:
    waiting = [commit(offset, 1, offset, txn_outcome="open", producer_id=7) for offset in (5, 6, 7)]
    winners = [commit(5, 1, 5, txn_outcome="committed", producer_id=7, txn_marker_offset=40)]
    rows = asked(
        merge.resolved_by_rebuilding("waiting", "now", "winners"),
        waiting=(COMMITS, waiting), now=(COMMITS, [waiting[1]]), winners=(COMMITS, winners),
    )  # fmt: skip
    told = {row["log_offset"]: (row["txn_outcome"], row["txn_marker_offset"]) for row in rows}
    assert told == {5: ("committed", 40), 7: ("unknown", None)}


def test_a_deletion_waits_beside_the_open_commit_that_it_has_ended() -> None:
    winners = [commit(20, None, 0), commit(21, None, 1), commit(22, 5, 2)]  # partition 1 has an open commit behind it
    still_open = [*WAITING[:1], commit(30, 60, 1, txn_outcome="open", producer_id=7)]
    sql = merge.deletions_that_wait("still_open", "winners")
    waiting = asked(sql, still_open=(COMMITS, still_open), winners=(COMMITS, winners))
    assert [(row["partition"], row["log_offset"], row["kind"]) for row in waiting] == [(0, 20, "deleted")]
    released = [commit(5, 50, 0, txn_outcome="committed", producer_id=7)]
    assert in_force([], [], released, waiting) == {}
    assert in_force([], [], released) == {0: (50, 5)}


def test_partitions_that_are_kept() -> None:
    held = [commit(1, 100, 0), commit(2, 200, 0) | {"offsets_partition": 4, "group_id": "other"}]
    rows = asked(f"SELECT * FROM held WHERE {merge.not_in({3: 50})}", held=(OFFSETS, held))
    assert [row["group_id"] for row in rows] == ["other"]
    assert len(asked(f"SELECT * FROM held WHERE {merge.not_in({})}", held=(OFFSETS, held))) == 2
