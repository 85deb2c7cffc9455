"""How far behind: small cases where the reader can see them, and the ends that live brokers told."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from muster.tables.schemas import LAG, LOG_ENDS, MEMBERS, OFFSETS, TIMES
from muster.tables.sql.ends import LOOK_BACK_MS, ends_at, newest_ends
from muster.tables.sql.lag import lag
from muster.tables.sql.queries import DUCKDB_EXPLODE, FARTHEST
from tests.codec.corpus_records import NAMES
from tests.tables.history import answers, asked, state_at_the_end

Row = dict[str, Any]


def committed(offset: int, group: str = "g", partition: int = 0) -> Row:
    return {"group_id": group, "topic": "t", "partition": partition, "committed_offset": offset}


def end(at_ms: int, offset: int | None, partition: int = 0, **more: int | str) -> Row:
    return {"topic": "t", "partition": partition, "observed_at_ms": at_ms, "log_end_offset": offset, **more}


def member(name: str, *partitions: int, group: str = "g", type: str = "consumer") -> Row:
    assignment = [{"topic": "t", "topic_id": None, "partitions": list(partitions)}]
    return {"group_id": group, "type": type, "member_id": name, "client_id": f"c-{name}", "assignment": assignment}


def lags(
    offsets: list[Row],
    ends: list[Row],
    members: Sequence[Row] = (),
    times: list[Row] | None = None,
    as_of_ms: int | None = None,
    run_number: int | None = None,
) -> list[Row]:
    tables = {
        "offsets": pa.Table.from_pylist(offsets, schema=OFFSETS),
        "log_ends": pa.Table.from_pylist(ends, schema=LOG_ENDS),
        "members": pa.Table.from_pylist(list(members), schema=MEMBERS),
        "times": pa.Table.from_pylist(times or [], schema=TIMES),
    }
    newest = newest_ends("log_ends", run_number) if as_of_ms is None else ends_at("log_ends", as_of_ms)
    given = ("offsets", "log_ends", f"({newest})", "members", None if times is None else "times")
    sql = lag(*given, explode=DUCKDB_EXPLODE, is_of_a_run=run_number is not None)
    rows: list[Row] = asked(tables, sql).select(LAG.names).cast(LAG).to_pylist()
    return sorted(rows, key=lambda row: (row["group_id"], row["topic"], row["partition"]))


def one(*given: Any, **more: Any) -> Row:
    (row,) = lags(*given, **more)
    return row


def test_lag_is_against_the_newest_end() -> None:
    row = one([committed(5)], [end(100, 9, last_stable_offset=8), end(200, 12, last_stable_offset=10), end(150, 50)])
    assert (row["lag"], row["offset_lag"], row["stable_lag"]) == (7, 7, 5)
    assert (row["log_end_offset"], row["last_stable_offset"], row["observed_at_ms"]) == (12, 10, 200)


def test_the_newest_end_is_that_of_the_last_run_whatever_its_clock_said() -> None:
    ends = [end(900, 9, run_number=1), end(200, 12, run_number=2), end(10**17, 3)]
    row = one([committed(5)], ends)
    assert (row["lag"], row["observed_at_ms"]) == (7, 200)
    assert one([committed(5)], ends, as_of_ms=150)["lag"] is None
    assert one([committed(5)], ends, as_of_ms=250)["lag"] == 7
    assert one([committed(5)], [end(100, 9, run_number=1), end(200, 9, partition=1, run_number=2)])["lag"] is None


def test_lost_records_are_no_lag() -> None:
    row = one([committed(5)], [end(100, 50, log_start_offset=37, data_end_offset=49)])
    assert (row["lag"], row["offset_lag"], row["lost_records"], row["log_start_offset"]) == (12, 45, 32, 37)
    row = one([committed(40)], [end(100, 50, log_start_offset=37)])
    assert (row["lag"], row["offset_lag"], row["lost_records"]) == (10, 10, 0)
    row = one([committed(5)], [end(100, 50, log_start_offset=50)])
    assert (row["lag"], row["offset_lag"], row["lost_records"], row["lag_ms"]) == (0, 45, 45, 0)
    assert one([committed(5)], [end(100, 50)])["lost_records"] is None


MEASURES = ("lag", "offset_lag", "stable_lag", "lost_records", "lag_ms", "lag_ms_by")


@pytest.mark.parametrize("offset", [9, 20])
def test_a_commit_since_the_end_was_observed_leaves_the_lag_unknown(offset: int) -> None:
    """The end may have moved on with it: neither 0 nor negative, and not exact."""
    ends = [end(100, 9, last_stable_offset=9, log_start_offset=0), end(300 + LOOK_BACK_MS, 30)]
    row = one([committed(offset) | {"timestamp_ms": 150}], ends, as_of_ms=200)
    assert [row[name] for name in MEASURES] == [None] * 6
    assert (row["committed_offset"], row["log_end_offset"], row["observed_at_ms"]) == (offset, 9, 100)
    assert row["lag_unknown"] == "committed after the end was observed"


def test_a_commit_since_then_below_that_end_is_behind_it_all_the_same() -> None:
    row = one([committed(6) | {"timestamp_ms": 150}], [end(100, 9)], as_of_ms=200)
    assert (row["lag"], row["offset_lag"], row["lag_unknown"]) == (3, 3, None)


def test_in_a_run_the_ends_are_as_new_as_the_commits_whatever_clocks_say() -> None:
    row = one([committed(9) | {"timestamp_ms": 150}], [end(100, 9, run_number=3)], run_number=3)
    assert (row["lag"], row["lag_ms"], row["lag_ms_by"]) == (0, 0, "exact")
    earlier = one([committed(5)], [end(100, 9, run_number=2)], run_number=3)
    assert (earlier["lag"], earlier["lag_unknown"]) == (None, "end not observed")


def test_a_record_stamped_by_a_clock_that_counts_otherwise_has_no_age() -> None:
    """Microseconds, say: its time is the year 58000."""
    times = [{"topic": "t", "partition": 0, "offset": 5, "timestamp_ms": 1_794_000_000_000_000}]
    now = 1_794_000_000_000
    row = one([committed(5)], [end(now, 9)], times=times)
    assert (row["lag"], row["lag_ms"], row["lag_ms_by"]) == (4, None, None)
    row = one(
        [committed(5)], [end(now - 100, 4), end(1_794_000_000_000_000, 5), end(now, 9, run_number=1)], times=times
    )
    assert (row["lag_ms"], row["lag_ms_by"]) == (80, "interpolated")


def test_unknown_is_not_zero() -> None:
    row = one([committed(5)], [end(100, 9, partition=1)])
    assert [row[name] for name in ("lag", "offset_lag", "stable_lag", "lag_ms", "lag_ms_by", "log_end_offset")] == [
        None
    ] * 6
    assert one([committed(5)], [end(100, None)])["lag"] is None
    assert one([committed(5)], [end(100, 9)])["stable_lag"] is None


def test_markers_at_the_end_are_no_lag_where_that_is_known() -> None:
    row = one([committed(9)], [end(100, 10, data_end_offset=9)])
    assert (row["lag"], row["offset_lag"], row["lag_ms"], row["lag_ms_by"]) == (0, 1, 0, "exact")
    assert one([committed(9)], [end(100, 10)])["lag"] == 1


def test_a_commit_beyond_the_end_has_nothing_left_to_read() -> None:
    row = one([committed(100)], [end(100, 10, last_stable_offset=8)])
    assert (row["lag"], row["offset_lag"], row["stable_lag"], row["lag_ms"]) == (0, -90, -92, 0)


def test_time_is_exact_where_the_record_was_looked_at() -> None:
    times = [{"topic": "t", "partition": 0, "offset": 5, "timestamp_ms": 130}]
    row = one([committed(5)], [end(100, 4), end(200, 9)], times=times)
    assert (row["lag_ms"], row["lag_ms_by"]) == (70, "exact")
    late = [{"topic": "t", "partition": 0, "offset": 5, "timestamp_ms": 900}]  # by a clock that is ahead of ours
    assert one([committed(5)], [end(200, 9)], times=late)["lag_ms"] == 0


def test_time_is_interpolated_between_two_ends_otherwise() -> None:
    ends = [end(0, 0), end(100, 10), end(200, 10), end(300, 30)]
    expected = {
        0: (300, "interpolated"),
        5: (250, "interpolated"),
        10: (100, "interpolated"),  # the end stood at 10 until 200: what came then is what is waited for
        20: (50, "interpolated"),
        30: (0, "exact"),
    }
    for offset, (lag_ms, by) in expected.items():
        row = one([committed(offset)], ends)
        assert (row["lag_ms"], row["lag_ms_by"]) == (lag_ms, by), offset
    nothing_looked_up = one([committed(5)], ends, times=[])
    assert (nothing_looked_up["lag_ms"], nothing_looked_up["lag_ms_by"]) == (250, "interpolated")


def test_time_is_unknown_before_the_first_end_and_with_only_one() -> None:
    assert one([committed(5)], [end(100, 10), end(200, 20)])["lag_ms"] is None
    row = one([committed(5)], [end(100, 10)])
    assert (row["lag"], row["lag_ms"], row["lag_ms_by"]) == (5, None, None)


def test_time_is_that_of_the_topic_as_it_is_now() -> None:
    """Made anew under the same name, its log has nothing to do with the one that was there before."""
    row = one([committed(15)], [end(100, 20), end(200, 10)])
    assert row["lag"] == 0
    row = one([committed(7)], [end(100, 20), end(200, 5), end(300, 9)])
    assert (row["lag"], row["lag_ms"]) == (2, 50)
    row = one([committed(7)], [end(100, 5, topic_id="a"), end(200, 9, topic_id="b"), end(300, 11, topic_id="b")])
    assert (row["lag"], row["lag_ms"]) == (4, None)  # it was beyond 7 when it was seen first


def test_time_between_two_looks_is_by_the_line_between_them() -> None:
    row = one([committed(11)], [end(0, 10), end(900, 13)], as_of_ms=800)
    assert (row["log_end_offset"], row["lag"], row["lag_ms"]) == (12, 1, 500)  # the end was at 11 after a third of it


def test_a_commit_beyond_all_stable_offsets_says_nothing_of_them() -> None:
    ends = [end(0, 10, last_stable_offset=10), end(100, 100, last_stable_offset=20)]
    rows = [one([committed(offset) | {"timestamp_ms": 50}], ends, as_of_ms=60) for offset in (50, 18, 12)]
    assert [(row["last_stable_offset"], row["stable_lag"]) for row in rows] == [(16, -34), (18, 0), (16, 4)]


def test_large_numbers_do_not_overflow() -> None:
    row = one([committed(2**60)], [end(0, 2**60 - 2**40), end(2**41, 2**60 + 2**40)])
    assert (row["lag"], row["lag_ms"]) == (2**40, 2**40)


@pytest.mark.parametrize(
    ("offset", "lag", "offset_lag"),
    [
        (-(2**63), 7, FARTHEST + 7),
        (-5, 7, 12),
        (7, 0, 0),
        (2**53 + 1, 0, 6 - 2**53),
        (2**63 - 1, 0, 7 - FARTHEST),
    ],
)
def test_whatever_a_client_commits_is_so_far_away(offset: int, lag: int, offset_lag: int) -> None:
    row = one([committed(offset)], [end(0, 5), end(100, 7, last_stable_offset=7, log_start_offset=0)])
    assert (row["committed_offset"], row["lag"], row["offset_lag"], row["stable_lag"]) == (
        offset, lag, offset_lag, offset_lag
    )  # fmt: skip
    assert row["lost_records"] == (min(-offset, FARTHEST) if offset < 0 else 0)


def test_what_is_lost_as_of_a_moment_is_what_the_look_before_it_tells() -> None:
    ends = [end(100, 10, log_start_offset=0), end(200, 20, log_start_offset=9)]
    assert one([committed(5)], ends, as_of_ms=150)["lost_records"] == 0
    assert one([committed(5)], ends, as_of_ms=200)["lost_records"] == 4


def test_as_of_a_moment_ends_are_between_the_looks_around_it() -> None:
    ends = [end(0, 0), end(100, 10, last_stable_offset=8), end(200, 20, last_stable_offset=18), end(300, 90)]
    row = one([committed(5)], ends, as_of_ms=150)
    assert (row["lag"], row["lag_ms"], row["observed_at_ms"]) == (10, 100, 150)
    assert (row["log_end_offset"], row["last_stable_offset"], row["log_end_by"]) == (15, 13, "interpolated")
    row = one([committed(12) | {"timestamp_ms": 140}], ends, as_of_ms=150)  # committed after the look
    assert (row["lag"], row["lag_ms"], row["lag_unknown"]) == (3, 30, None)
    row = one([committed(17) | {"timestamp_ms": 140}], ends, as_of_ms=150)
    assert (row["lag"], row["offset_lag"], row["stable_lag"], row["lag_ms"]) == (0, 0, 0, 0)
    assert (row["log_end_offset"], row["last_stable_offset"]) == (17, 17)  # it was that far then
    row = one([committed(25) | {"timestamp_ms": 140}], ends, as_of_ms=150)
    assert (row["lag"], row["offset_lag"], row["log_end_offset"]) == (0, -5, 20)  # and cannot have been any further
    row = one([committed(5)], ends, as_of_ms=250)
    assert (row["log_end_offset"], row["last_stable_offset"], row["stable_lag"]) == (55, None, None)


def test_as_of_the_moment_of_a_look_its_end_counts() -> None:
    ends = [end(100, 10, data_end_offset=9, run_number=1), end(200, 20, run_number=2)]
    row = one([committed(9) | {"timestamp_ms": 100}], ends, as_of_ms=100)
    assert (row["lag"], row["log_end_offset"], row["log_end_by"]) == (0, 10, "observed")
    row = one([committed(9)], ends, as_of_ms=250)
    assert (row["lag"], row["log_end_by"], row["observed_at_ms"]) == (11, "observed", 200)


def test_an_end_that_did_not_move_between_looks_is_known() -> None:
    ends = [end(100, 10, data_end_offset=9), end(200, 10)]
    row = one([committed(10) | {"timestamp_ms": 140}], ends, as_of_ms=150)
    assert (row["lag"], row["log_end_by"], row["observed_at_ms"]) == (0, "observed", 150)


@pytest.mark.parametrize(
    "ends",
    [
        [end(100, 10)],
        [end(100, 10), end(150 + LOOK_BACK_MS, 20)],
        [end(100, 10), end(200, 4)],
        [end(100, 10), end(200, None)],
        [end(100, 10), end(200, 20, partition=1)],
        [end(100, 10, topic_id="a"), end(200, 20, topic_id="b")],
    ],
    ids=["none after", "a day later", "fell", "not to be had", "of another partition", "of another topic"],
)
def test_there_is_no_line_to_a_look_that_says_nothing(ends: list[Row]) -> None:
    row = one([committed(5)], ends, as_of_ms=150)
    assert (row["lag"], row["observed_at_ms"], row["log_end_by"]) == (5, 100, "observed")
    row = one([committed(12) | {"timestamp_ms": 140}], ends, as_of_ms=150)
    assert row["lag_unknown"] == "committed after the end was observed"


def test_a_look_that_did_not_get_an_end_is_passed_over() -> None:
    ends = [end(100, 10, run_number=1), end(150, None, run_number=2), end(300, 30, run_number=4)]
    assert one([committed(5)], ends, as_of_ms=200)["lag"] == 15
    gone = [*ends[:2], end(180, 7, partition=1, run_number=3)]  # nobody saw it after that: it may have been deleted
    assert one([committed(5)], gone, as_of_ms=200)["lag_unknown"] == "end not observed"


def test_of_looks_of_one_moment_the_furthest_counts() -> None:
    ends = [end(100, 10, run_number=1), end(200, 15, run_number=2), end(200, 20, run_number=3)]
    assert one([committed(5)], ends, as_of_ms=150)["log_end_offset"] == 15


def test_markers_at_a_drawn_end_are_drawn_too() -> None:
    ends = [end(100, 10, data_end_offset=9), end(200, 20, data_end_offset=19)]
    assert [one([committed(9)], ends, as_of_ms=at_ms)["lag"] for at_ms in (100, 101, 150, 200)] == [0, 0, 5, 10]


def test_there_is_no_line_from_a_look_of_long_ago() -> None:
    now = 200 + LOOK_BACK_MS
    row = one([committed(5)], [end(100, 10), end(now + 100, 20)], as_of_ms=now)
    assert (row["lag"], row["observed_at_ms"]) == (5, 100)


def test_owners_and_what_is_assigned_but_never_committed() -> None:
    rows = lags(
        [committed(5)], [end(100, 10), end(100, 3, partition=1)], [member("m", 0, 1), member("s", 0, type="share")]
    )
    assert [(row["partition"], row["committed_offset"], row["lag"], row["member_id"]) for row in rows] == [
        (0, 5, 5, "m"),
        (1, None, None, "m"),
    ]
    assert rows[1]["log_end_offset"] == 3
    assert rows[0]["client_id"] == "c-m"


def test_two_owners_do_not_double_a_row() -> None:
    rows = lags([committed(5), committed(6, "h")], [end(100, 10), end(100, 10)], [member("m", 0), member("n", 0)])
    assert [(row["group_id"], row["lag"], row["member_id"]) for row in rows] == [("g", 5, "m"), ("h", 4, None)]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("damaged")])
def test_lag_is_what_the_broker_told(name: str) -> None:
    """End offsets by both isolation levels, minus what is committed."""
    told = answers(name)
    ends: dict[tuple[str, int], Row] = {}
    for topic, facts in told["topics"].items():
        for key, column in (("endReadUncommitted", "log_end_offset"), ("endReadCommitted", "last_stable_offset")):
            for partition, facts_of_one in (facts.get(key) or {}).items():
                number = int(partition.rpartition("-")[2])
                row = ends.setdefault((topic, number), {"topic": topic, "partition": number, "run_number": 4})
                row[column] = facts_of_one["offset"]
    state = state_at_the_end(name) | {"log_ends": pa.Table.from_pylist(list(ends.values()), schema=LOG_ENDS)}
    newest = f"({newest_ends('log_ends', run_number=4)})"
    sql = lag("offsets", "log_ends", newest, "members", explode=DUCKDB_EXPLODE, is_of_a_run=True)
    rows = asked(state, sql).to_pylist()
    ours = {
        (row["group_id"], f"{row['topic']}-{row['partition']}"): (row["offset_lag"], row["stable_lag"])
        for row in rows
        if row["committed_offset"] is not None
    }
    theirs = {}
    for group in told["groups"]:
        for partition, offset in (group.get("committed") or {}).items():
            topic, _, number = partition.rpartition("-")
            known = ends.get((topic, int(number)), {})
            theirs[group["groupId"], partition] = tuple(
                None if known.get(column) is None else known[column] - offset["offset"]
                for column in ("log_end_offset", "last_stable_offset")
            )
    assert ours == theirs
    assert any(lag is not None for lag, _ in theirs.values())
