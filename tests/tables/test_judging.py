"""`status` and `verdicts` in SQL: held to `muster.verdicts`, for one look and for run after run."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.tables.schemas import TABLES
from muster.tables.sql.dialects import DUCKDB
from muster.tables.sql.ends import of_topics_now
from muster.tables.sql.judging import (
    changes,
    deletions,
    judged,
    new_commits,
    seen_ends,
    status,
    windows,
    with_lags,
)
from muster.verdicts import DEFAULT_RULES, Commit, EndAt, Rules, evaluate, lag_at_arrival, with_commit
from tests.tables.made import made

NOW_MS = 40 * 24 * 3_600_000
WEEK_MS = DEFAULT_RULES.expire_group_ms

times_ms = st.one_of(
    st.integers(NOW_MS - 20, NOW_MS), st.sampled_from([NOW_MS - WEEK_MS, NOW_MS - WEEK_MS - 1, NOW_MS + 5, 0])
)
small = st.integers(0, 6)
commits = st.builds(Commit, small, times_ms, st.none() | small)
looks = st.lists(st.tuples(st.integers(0, 9), small), max_size=4, unique_by=lambda look: look[0])
"""How long after one another, and what they saw."""
cases = st.lists(st.tuples(st.lists(commits, min_size=1, max_size=10), looks), min_size=1, max_size=12)


CONNECTION = duckdb.connect(config={"threads": 1})
"""One for all examples: a connection costs more than a query does."""


def asked(sql: str, **tables: pa.Table) -> list[dict[str, Any]]:
    for name, rows in tables.items():
        CONNECTION.register(name, rows)
    found: list[dict[str, Any]] = CONNECTION.sql(sql).to_arrow_table().to_pylist()
    return found


def window_rows(window: Sequence[Commit]) -> list[dict[str, int | None]]:
    """In some order: the place in the log tells."""
    rows = [
        {"committed_offset": each.offset, "commit_ms": each.at_ms, "lag": each.lag, "log_offset": place}
        for place, each in enumerate(window)
    ]
    return rows[::-1]


Look = tuple[int, int]


def timed(looks: Sequence[Look]) -> list[Look]:
    """The last of them now, or a little before."""
    return [(NOW_MS - 20 + 5 * number + after_ms % 5, end) for number, (after_ms, end) in enumerate(looks)]


def line(looks: Sequence[Look]) -> EndAt:
    """Where the log ended between two looks that were less than a day away."""

    def end_at(at_ms: int) -> int | None:
        for (left_ms, left_end), (right_ms, right_end) in pairwise(looks):
            if left_ms <= at_ms < right_ms and left_end <= right_end:
                return left_end + (right_end - left_end) * (at_ms - left_ms) // (right_ms - left_ms)
        return None

    return end_at


@settings(max_examples=60, deadline=None)
@given(cases)
def test_a_look_is_judged_as_in_python(cases: list[tuple[list[Commit], list[Look]]]) -> None:
    """Every key of a list has its own log, so that the ends differ."""
    key = [{"group_id": "g", "topic": f"t{number}", "partition": 0} for number in range(len(cases))]
    held = made("status", *(k | {"window": window_rows(case[0])} for k, case in zip(key, cases, strict=True)))
    ends = [
        {"topic": k["topic"], "partition": 0, "run_number": run, "observed_at_ms": look_ms, "log_end_offset": end}
        for k, case in zip(key, cases, strict=True)
        for run, (look_ms, end) in enumerate(timed(case[1]))
    ]
    sql = judged("held", f"({seen_ends('log_ends', DUCKDB)})", "log_ends", NOW_MS, DUCKDB)
    found = {row["topic"]: row for row in asked(sql, held=held, log_ends=made("log_ends", *ends))}
    for k, (window, case) in zip(key, cases, strict=True):
        seen = timed(case)
        expected = evaluate(window, [end for _, end in seen], NOW_MS, end_at=line(seen))
        if expected is None:
            assert k["topic"] not in found
        else:
            row = found[k["topic"]]
            assert (row["verdict"], row["completeness"]) == (expected.verdict, expected.completeness)


@pytest.mark.parametrize(
    ("of_the_old", "of_the_new", "offsets", "verdict"),
    [
        ([(0, 5), (10, 5)], [(20, 1000), (26, 2000)], [10] * 10, "STALLED"),  # 10 was beyond the old end
        ([(0, 5)], [(10, 1000), (20, 2000), (30, 3000), (40, 3000)], [50, 60, 70, 80, 100], "STOPPED"),
    ],
)
def test_a_topic_that_was_made_anew_is_judged_by_its_own_ends(
    of_the_old: list[Look], of_the_new: list[Look], offsets: list[int], verdict: str
) -> None:
    key, start_ms = {"group_id": "g", "topic": "t", "partition": 0}, NOW_MS - 100
    looks = [(*look, "old") for look in of_the_old] + [(*look, "new") for look in of_the_new]
    ends = [
        {"topic": "t", "partition": 0, "run_number": run, "observed_at_ms": start_ms + at_ms, "log_end_offset": end,
         "topic_id": topic_id}
        for run, (at_ms, end, topic_id) in enumerate(looks)
    ]  # fmt: skip
    ends.append({"topic": "u", "partition": 0, "run_number": 0, "observed_at_ms": start_ms, "log_end_offset": 1})
    since_ms = start_ms + of_the_old[-1][0] + 1
    rows = [
        key
        | {"kind": "commit", "log_offset": place, "committed_offset": offset, "commit_timestamp_ms": since_ms + place}
        for place, offset in enumerate(offsets)
    ]
    tables = {"commits": made("commits", *rows), "log_ends": made("log_ends", *ends), "status_before": made("status")}
    assert len(asked(of_topics_now("log_ends"), **tables)) == len(of_the_new) + 1
    seen, new, deleted = (
        f"({sql})" for sql in (of_topics_now("log_ends"), new_commits("commits"), deletions("commits"))
    )
    made_of = f"({windows(f'({with_lags(new, seen)})', deleted, 'status_before', DUCKDB)})"
    sql = judged(made_of, f"({seen_ends(seen, DUCKDB)})", seen, start_ms + looks[-1][0] + 1, DUCKDB)
    assert [row["verdict"] for row in asked(sql, **tables)] == [verdict]


@pytest.mark.parametrize(
    ("runs", "looks"),
    [
        ([(1, 10, "old"), (2, 10, "new")], [(2, 10)]),  # two copies of a disk, whose newest record is the same
        ([(1, 600, "old"), (2, 20, "new"), (3, 30, "new")], [(2, 20), (3, 30)]),  # the clock had been ahead
        ([(None, 5, "old"), (None, 10, "new"), (1, 7, "new")], [(None, 10), (1, 7)]),  # runs had no numbers once
        ([(1, 10, "old"), (2, 20, "new"), (3, 30, "old")], [(3, 30)]),  # an older disk was put back
        ([(1, 10, None), (2, 20, "new")], [(1, 10), (2, 20)]),
    ],
)
def test_what_came_later_of_a_topic_is_told_by_runs(
    runs: list[tuple[int | None, int, str | None]], looks: list[tuple[int | None, int]]
) -> None:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "run_number": run,
            "observed_at_ms": at_ms,
            "log_end_offset": 1,
            "topic_id": topic,
        }
        for run, at_ms, topic in runs
    ]
    found = asked(of_topics_now("log_ends"), log_ends=made("log_ends", *rows))
    assert {(row["run_number"], row["observed_at_ms"]) for row in found} == set(looks)


# Run after run.

Event = tuple[str, str, int, int]
"""What happens, to which group; the offset, and how long after the look before: clocks step back."""
events = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "deleted", "aborted", "committed"]),
        st.sampled_from(["a", "b"]),
        small,
        st.integers(0, 20),
    ),
    max_size=14,
)
LOOK_MS = 30
"""From look to look."""
Runs = list[tuple[list[Event], int | None]]
"""What happened before each run, and the end that it sees."""
runs: st.SearchStrategy[Runs] = st.lists(st.tuples(events, st.none() | small), min_size=1, max_size=5)
ALL = Rules(min_distance_ms=-LOOK_MS)
"""A commit whose clock has stepped back is one like any other."""
EMPTY = {name: made(name) for name in ("lag", "expiry")}


class Model:
    """The same in plain Python: windows by group, and the ends that were seen."""

    def __init__(self) -> None:
        self.windows: dict[str, tuple[Commit, ...]] = {}
        self.seen: list[tuple[int, int]] = []

    def take(self, event: Event, now_ms: int) -> None:
        kind, group, offset, _ = event
        if kind == "deleted":
            self.windows.pop(group, None)
        elif kind != "aborted":
            before = [end for at_ms, end in self.seen if at_ms <= now_ms]
            lag = lag_at_arrival(offset, before[-1] if before else None)
            self.windows[group] = with_commit(self.windows.get(group, ()), Commit(offset, now_ms, lag), ALL)

    def verdicts(self, now_ms: int) -> dict[str, str | None]:
        ends = [end for _, end in self.seen][-DEFAULT_RULES.intervals :]
        end_at = line(self.seen)
        found = {group: evaluate(window, ends, now_ms, end_at=end_at) for group, window in self.windows.items()}
        return {group: None if one is None else str(one.verdict) for group, one in found.items()}


def commit_row(event: Event, log_offset: int, now_ms: int) -> dict[str, Any]:
    kind, group, offset, _ = event
    row: dict[str, Any] = {"group_id": group, "topic": "t", "partition": 0, "log_offset": log_offset}
    if kind == "deleted":
        return row | {"kind": kind, "timestamp_ms": now_ms}
    outcome = None if kind == "commit" else kind
    return row | {
        "kind": "commit", "committed_offset": offset, "commit_timestamp_ms": now_ms, "txn_outcome": outcome
    }  # fmt: skip


def look(before: pa.Table, new: pa.Table, log_ends: pa.Table, offsets: pa.Table, at_ms: int, run: int) -> Any:
    """What a run makes of what it finds: rows of `status` and of `verdicts`."""
    given = {"before": before, "commits": new, "log_ends": log_ends, "offsets": offsets, **EMPTY}
    for name, rows in given.items():
        CONNECTION.register(name, rows)
    steps = {
        "latest": new_commits("commits"),
        "deleted": deletions("commits"),
        "arrived": with_lags("latest", "log_ends"),
        "now_windows": windows("arrived", "deleted", "before", DUCKDB),
        "now_ends": seen_ends("log_ends", DUCKDB),
        "now_judged": judged("now_windows", "now_ends", "log_ends", at_ms, DUCKDB),
        "now": status("offsets", "now_windows", "now_ends", "now_judged", "lag", "expiry", "before", at_ms),
    }
    for name, sql in steps.items():
        CONNECTION.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
    found = [CONNECTION.sql(sql).to_arrow_table() for sql in ("FROM now", changes("now", "before", at_ms, run))]
    return found[0].cast(TABLES["status"]), found[1].cast(TABLES["verdicts"]).to_pylist()


@settings(max_examples=10, deadline=None)
@given(runs)
def test_run_after_run_it_is_as_if_all_commits_had_been_watched(runs: Runs) -> None:
    check_run_after_run(runs)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(runs)
def test_run_after_run_of_many_kinds(runs: Runs) -> None:
    check_run_after_run(runs)


def check_run_after_run(runs: Runs) -> None:
    model, place = Model(), 0
    before, all_commits, ends = made("status"), list[dict[str, Any]](), list[dict[str, Any]]()
    said: dict[str, str | None] = {}
    for number, (happened, end) in enumerate(runs):
        new, now_ms = list[dict[str, Any]](), NOW_MS + (number + 1) * LOOK_MS
        for event in happened:
            at_ms, place = NOW_MS + number * LOOK_MS + event[3], place + 1
            model.take(event, at_ms)
            new.append(commit_row(event, place, at_ms))
        all_commits += new
        if end is not None:
            model.seen.append((now_ms, end))
            row = {"topic": "t", "partition": 0, "run_number": number, "observed_at_ms": now_ms, "log_end_offset": end}
            ends.append(row)
        offsets = made(
            "offsets",
            *(
                {"group_id": group, "topic": "t", "committed_offset": window[-1].offset}
                for group, window in model.windows.items()
            ),
        )
        log_ends = made("log_ends", *ends)
        now, changed = look(before, made("commits", *new), log_ends, offsets, now_ms, number)
        assert seen_windows(now) == {group: list(window) for group, window in model.windows.items()}
        expected = model.verdicts(now_ms)
        assert {row["group_id"]: row["verdict"] for row in now.to_pylist()} == expected
        assert all(row["ends"] == (([end for _, end in model.seen][-10:]) or None) for row in now.to_pylist())
        for row in changed:
            assert (row["verdict_before"], row["at_ms"], row["run_number"]) == (
                said.get(row["group_id"]),
                now_ms,
                number,
            )
            said[row["group_id"]] = row["verdict"]
        assert {group: verdict for group, verdict in said.items() if verdict} == {
            group: verdict for group, verdict in expected.items() if verdict
        }
        since = {row["group_id"]: row["verdict_since_ms"] for row in now.to_pylist()}
        fresh = {row["group_id"] for row in changed if row["verdict"]}
        assert all((since[group] == now_ms) == (group in fresh) for group, one in expected.items() if one)
        at_once, _ = look(made("status"), made("commits", *all_commits), log_ends, offsets, now_ms, number)
        assert seen_windows(at_once) == seen_windows(now)
        before = now


def seen_windows(rows: pa.Table) -> dict[str, list[Commit]]:
    """By group. Those of `status`, without places."""
    return {
        row["group_id"]: [Commit(one["committed_offset"], one["commit_ms"], one["lag"]) for one in row["window"]]
        for row in rows.to_pylist()
    }


# On top of the rules.

KEY: Mapping[str, Any] = {"group_id": "g", "topic": "t", "partition": 0}


def verdict_of(
    verdict: str | None, lost: int = 0, expires_in_ms: int | None = None, retention_ms: int = WEEK_MS
) -> Any:
    expires = None if expires_in_ms is None else NOW_MS + expires_in_ms
    tables = {
        "offsets": made("offsets", KEY | {"committed_offset": 1}),
        "judged": pa.Table.from_pylist([KEY | {"verdict": verdict, "completeness": 1.0}], JUDGED)
        if verdict is not None
        else JUDGED.empty_table(),
        "lag": made("lag", KEY | {"lost_records": lost}),
        "expiry": made("expiry", KEY | {"expires_at_ms": expires, "retention_ms": retention_ms}),
        "before": made("status"),
        "ends": pa.table({"topic": ["t"], "partition": pa.array([0], pa.int32()), "ends": [[1]]}),
    }
    (row,) = asked(status("offsets", "before", "ends", "judged", "lag", "expiry", "before", NOW_MS), **tables)
    return row["verdict"]


JUDGED = pa.schema([
    ("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("verdict", pa.string()),
    ("completeness", pa.float64()),
])  # fmt: skip
DAY_MS = 24 * 3_600_000


def test_losing_stands_above_all() -> None:
    assert verdict_of("OK", lost=1) == "LOSING"
    assert verdict_of("STOPPED", lost=1) == "LOSING"
    assert verdict_of(None, lost=1, expires_in_ms=0) == "LOSING"


def test_expiring_takes_the_place_of_what_is_no_error() -> None:
    assert [verdict_of(one, expires_in_ms=DAY_MS) for one in ("OK", "WARN", None)] == ["EXPIRING"] * 3
    assert [verdict_of(one, expires_in_ms=DAY_MS) for one in ("STOPPED", "STALLED", "REWIND")] == [
        "STOPPED", "STALLED", "REWIND"
    ]  # fmt: skip
    assert verdict_of("OK", expires_in_ms=DAY_MS + 1) == "OK"
    assert verdict_of("OK") == "OK"
    assert verdict_of("OK", expires_in_ms=15_001, retention_ms=60_000) == "OK"  # a quarter of the retention
    assert verdict_of("OK", expires_in_ms=15_000, retention_ms=60_000) == "EXPIRING"
