"""History by interval: the SQL beside a model in plain Python, in one go and in steps."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.pipeline import analytics
from muster.pipeline.analytics import bring_up, last_analysed, lots_of, may_have, shared_out
from muster.pipeline.engine import LocalEngine
from muster.pipeline.interval_task import STARTS, Place, Share, written
from muster.tables.reading import open_tables
from muster.tables.schemas import (
    ANALYTICS,
    COMMITS,
    GROUP_HOURS,
    LATEST_REBALANCES,
    LOG_ENDS,
    OFFSETS,
    REBALANCES,
    TABLES,
)
from muster.tables.scratch import limited_duckdb
from muster.tables.sql import intervals, queries
from muster.tables.sql.ends import first_observed
from muster.tables.sql.hours import DUCKDB_SIZE, HOUR_MS, first_told, group_hours, hours_before
from muster.tables.sql.intervals import INTERVAL_MS
from muster.tables.storage.changes import begin_run
from muster.tables.storage.compact import compact
from muster.tables.storage.store import TableStore
from muster.tables.times import inner
from tests.pipeline import interval_model as model
from tests.pipeline.world import GrowingLog, run_here, unpacked

Row = dict[str, Any]
START_MS = 1_700_000_000_000
LENGTHS_MS = {"lag_history": INTERVAL_MS, "rates": INTERVAL_MS, "group_hours": HOUR_MS}


CONNECTION = duckdb.connect(config={"threads": 1})


def asked(sql: str, **tables: pa.Table) -> pa.Table:
    for name, rows in tables.items():
        CONNECTION.register(name, rows)
    return CONNECTION.sql(sql).to_arrow_table()


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


SPANS_MS = (0, 120_000, 1_500_000, 3 * HOUR_MS, 26 * HOUR_MS, 200 * HOUR_MS)
"""How long a run after the one before: within an interval, over its edge, and beyond all look-backs."""
STEPS_BACK_MS = (1, 210_000, 450_000)
RUNS = 6
PARTITIONS = {"a": 0, "b": 1}
"""Of the offsets topic, by group."""


class World(NamedTuple):
    """Some groups and their topics. Rows have a `run`: the one that reads or decides them."""

    commits: list[Row]
    log_ends: list[Row]
    rebalances: list[Row]


class Window(NamedTuple):
    """What a run finds is of this time; where it is calm, of nothing before it."""

    run: int
    begin_ms: int
    end_ms: int
    is_calm: bool

    def times(self, random: Random, most: int) -> list[int]:
        """Moments in it, in order; some on the edge of an interval."""
        found = sorted(random.randrange(self.begin_ms, self.end_ms) for _ in range(random.randint(0, most)))
        edges = [time - time % INTERVAL_MS for time in found]
        return [edge if edge >= self.begin_ms and random.random() < 0.2 else at
                for at, edge in zip(found, edges, strict=True)]  # fmt: skip


def windows(random: Random) -> list[Window]:
    found, begin_ms = [], START_MS
    for run in range(RUNS):
        end_ms = begin_ms + random.choice(SPANS_MS) + 60_000
        found.append(Window(run, begin_ms, end_ms, random.random() < 0.6))
        begin_ms = end_ms
    return found


def commit_rows(random: Random, times: Sequence[Window], world: int) -> Iterator[Row]:
    """Commits, rewinds and deletions of a few keys in log order.

    In runs that are not calm clocks step back, and transactions and deletions of an earlier time are decided.
    """
    log_offset = 0
    later = [window.run for window in times if not window.is_calm]
    for window in times:
        for at_ms in window.times(random, 5):
            is_odd = not window.is_calm and random.random() < 0.4
            kind = random.choice(["commit"] * 5 + ["deleted", "expired"] + ["vanished"] * 2 * is_odd)
            now_ms = at_ms - is_odd * random.choice(STEPS_BACK_MS)
            is_commit = kind == "commit"
            outcome = random.choice([None, None, "committed", "aborted", "unknown"]) if is_commit else None
            decided = [window.run] if outcome is None else [window.run, *(run for run in later if run > window.run)]
            has_time = kind != "vanished" and random.random() < 0.9
            group = random.choice("ab")
            row = dict.fromkeys(COMMITS.names) | {
                "offsets_partition": PARTITIONS[group], "log_offset": log_offset,
                "timestamp_ms": now_ms if has_time else None,
                "kind": kind, "group_id": f"{world}{group}", "topic": f"t{world}",
                "partition": random.randint(0, 1), "txn_outcome": outcome,
                "committed_offset": random.randint(0, 60) if is_commit else None, "metadata": "",
                "commit_timestamp_ms": now_ms - 5 if is_commit else None,
                "previous_commit_timestamp_ms": None if is_commit else now_ms - 600_000,
                "run": random.choice(decided),
            }  # fmt: skip
            yield row
            if kind == "vanished" and random.random() < 0.5:  # and the next record is a commit of the same key
                yield row | {"kind": "commit", "committed_offset": 5, "commit_timestamp_ms": now_ms - 600_000}
            log_offset += 1


def log_end_rows(random: Random, times: Sequence[Window], world: int) -> Iterator[Row]:
    """Observations of ends that rise, rest, and now and then fall."""
    for partition in range(2):
        end = 0
        for window in times:
            for at_ms in window.times(random, 3):
                end = end + random.choice([0, 1, 7, 20]) if random.random() < 0.85 else end // 2
                at_ms -= random.choice(STEPS_BACK_MS) if not window.is_calm and random.random() < 0.2 else 0
                yield dict.fromkeys(LOG_ENDS.names) | {
                    "topic": f"t{world}", "partition": partition, "observed_at_ms": at_ms, "run_number": window.run,
                    "log_end_offset": end if random.random() < 0.9 else None, "run": window.run,
                }  # fmt: skip


CAUSES = ["first members", "member joined", "member left", "group emptied", "members joined and left",
          "static member returned", "partitions changed", "rejoined", "group deleted", None]  # fmt: skip


def rebalance_rows(random: Random, times: Sequence[Window], world: int) -> Iterator[Row]:
    """Of each group in log order; the first commit after one is read in the same run or later."""
    for group in "ab":
        log_offset = 0
        for window in times:
            for at_ms in window.times(random, 3):
                log_offset += 1
                cause = random.choice(CAUSES)
                names = None if cause is None else random.sample("xyz", random.randint(0, 3))
                gap_window = random.choice(times[window.run :])
                after_ms = max(at_ms, random.randrange(gap_window.begin_ms, gap_window.end_ms))
                has_time = random.random() < 0.9
                has_gap = has_time and random.random() < 0.5
                yield dict.fromkeys(REBALANCES.names) | {
                    "group_id": f"{world}{group}", "at_ms": at_ms if has_time else None,
                    "cause": cause, "members": random.randint(0, 5), "joined": names, "left": names,
                    "generation": random.choice([None, 3, 4]), "previous_generation": random.choice([None, 3]),
                    "first_commit_after_ms": after_ms if has_gap else None,
                    "commit_gap_ms": after_ms - at_ms + random.choice([0, 70_000]) if has_gap else None,
                    "type": "classic", "offsets_partition": PARTITIONS[group], "log_offset": log_offset,
                    "run": window.run, "gap_run": gap_window.run,
                }  # fmt: skip


def world_of(seed: int, parts: int = 16) -> World:
    """Many small worlds at once: each question to an engine has its price."""
    random = Random(seed)
    found, times = World([], [], []), windows(random)
    for part in range(parts):
        found.commits.extend(commit_rows(random, times, part))
        found.log_ends.extend(log_end_rows(random, times, part))
        found.rebalances.extend(rebalance_rows(random, times, part))
    return found


def table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def given_to(world: World) -> dict[str, pa.Table]:
    return {
        "commits": table(world.commits, COMMITS),
        "log_ends": table(world.log_ends, LOG_ENDS),
        "rebalances": table(world.rebalances, REBALANCES),
    }


def modelled(world: World) -> dict[str, list[Row]]:
    return {
        "lag_history": model.lag_history(world.commits, world.log_ends, INTERVAL_MS),
        "rates": model.rates(world.commits, world.log_ends, INTERVAL_MS),
        "group_hours": model.group_hours(world.commits, world.rebalances),
    }


def made_from(since_ms: Mapping[str, int] | None = None) -> dict[str, str]:
    """The SQL of each table; from a moment on, what was before it is of the rows in `before_` and the table's name."""
    if since_ms is None:
        moved = f"({intervals.moved('commits')})"
        return {
            "lag_history": intervals.lag_history(moved, "log_ends"),
            "rates": intervals.rates(moved, "log_ends"),
            "group_hours": group_hours("commits", "rebalances", size=DUCKDB_SIZE),
        }
    states = {
        name: f"({intervals.states_before('before_lag_history', 'before_offsets', since_ms[name])})"
        for name in ("lag_history", "rates")
    }
    moves = {name: f"({intervals.moved('commits', since_ms=since_ms[name])})" for name in states}
    hours_ms = since_ms["group_hours"]
    hours = f"({hours_before('before_group_hours', hours_ms)})"
    return {
        "lag_history": intervals.lag_history(
            moves["lag_history"], "log_ends", since_ms=since_ms["lag_history"], before=states["lag_history"]
        ),
        "rates": intervals.rates(moves["rates"], "log_ends", since_ms=since_ms["rates"], before=states["rates"]),
        "group_hours": group_hours("commits", "rebalances", hours_ms, hours, DUCKDB_SIZE),
    }


def check_in_one_go(world: World) -> dict[str, list[Row]]:
    given, expected = given_to(world), modelled(world)
    for name, sql in made_from().items():
        found = asked(sql, **given).cast(ANALYTICS[name])
        assert in_order(found.to_pylist()) == in_order(expected[name]), name
    return expected


@pytest.mark.parametrize("seed", range(3))
def test_history_by_interval_is_what_the_model_says(seed: int) -> None:
    rows = check_in_one_go(world_of(seed))
    assert all(len(each) > 30 for each in rows.values())


@pytest.mark.long
def test_history_by_interval_is_what_the_model_says_of_many_worlds() -> None:
    for seed in range(100, 400):
        check_in_one_go(world_of(seed))


def check_from_a_moment_on(seed: int, moments: int) -> None:
    """The rows from any interval on, made of what is there from then on and of the state right before it."""
    world, random = world_of(seed), Random(seed)
    given, expected = given_to(world), modelled(world)
    given |= {f"before_{name}": table(rows, ANALYTICS[name]) for name, rows in expected.items()}
    state = asked(queries.offsets("commits"), commits=given["commits"])
    given["before_offsets"] = state.select(OFFSETS.names).cast(OFFSETS)
    for _ in range(moments):
        moment = random.choice(world.commits)["commit_timestamp_ms"] or START_MS
        since_ms = {name: moment - moment % length_ms for name, length_ms in LENGTHS_MS.items()}
        kept = given | {
            "commits": table([row for row in world.commits if model.at_of(row) >= since_ms["lag_history"]], COMMITS)
        }
        for name, sql in made_from(since_ms).items():
            found = asked(sql, **(given if name == "group_hours" else kept)).cast(ANALYTICS[name])
            wanted = [row for row in expected[name] if row[STARTS[name]] >= since_ms[name]]
            assert in_order(found.to_pylist()) == in_order(wanted), (name, moment)


def test_from_a_moment_on_it_is_the_same() -> None:
    check_from_a_moment_on(seed=4, moments=4)


@pytest.mark.long
def test_from_many_moments_on_it_is_the_same() -> None:
    for seed in range(500, 600):
        check_from_a_moment_on(seed, moments=10)


def until(world: World, run: int) -> World:
    """What is known after a run. The first commit after a rebalance is looked for until the group's next one."""
    told = []
    seen = [row for row in world.rebalances if row["run"] <= run]
    for row, following in zip_longest(seen, seen[1:]):
        is_last = following is None or following["group_id"] != row["group_id"]
        known_until = run if is_last else following["run"]
        if row["gap_run"] > known_until:
            row = row | {"first_commit_after_ms": None, "commit_gap_ms": None}
        told.append(row | {"is_last": is_last})
    return World(
        [row for row in world.commits if row["run"] <= run], [row for row in world.log_ends if row["run"] <= run], told
    )


def run_of(store: TableStore, world: World, run: int, *, is_cut: bool = False) -> None:
    """What the job does with history and state, and then the step itself."""
    now, last = until(world, run), until(world, run - 1)
    was_final = {(row["group_id"], row["log_offset"]) for row in last.rebalances if not row["is_last"]}
    final = [
        row for row in now.rebalances if not row["is_last"] and (row["group_id"], row["log_offset"]) not in was_final
    ]
    with begin_run(store) as changes:
        changes.append_rows("commits", table([row for row in now.commits if row["run"] == run], COMMITS))
        changes.append_rows("log_ends", table([row for row in now.log_ends if row["run"] == run], LOG_ENDS))
        changes.append_rows("rebalances", table(final, REBALANCES))
        newest = [row for row in now.rebalances if row["is_last"]]
        changes.replace("latest_rebalances", table(newest, LATEST_REBALANCES))
        state = asked(queries.offsets("commits"), commits=table(now.commits, COMMITS))
        changes.replace("offsets", state.select(OFFSETS.names).cast(OFFSETS))
        changes.publish({}, {"analytics": bring_up(changes, LocalEngine(), is_cut).remembered})


def check_in_steps(world: World, folder: Path, runs: int = RUNS) -> None:
    """After every run the tables are what the model makes of all that is known then."""
    store = TableStore(folder / uuid4().hex)
    for run in range(runs):
        run_of(store, world, run)
        expected = modelled(until(world, run))
        with open_tables(store.address) as tables:
            for name in ANALYTICS:
                found = inner(tables.read(name).table(), ANALYTICS[name]).to_pylist()
                assert in_order(found) == in_order(expected[name]), (name, run)


@pytest.mark.long
def test_in_steps_it_is_the_same(tmp_path: Path) -> None:
    check_in_steps(world_of(5), tmp_path)


@pytest.mark.long
def test_in_steps_of_several_tasks_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "ROWS_A_TASK", 12)
    check_in_steps(world_of(6, parts=4), tmp_path, runs=4)


@pytest.mark.long
def test_in_many_steps_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(700, 760):
        monkeypatch.setattr(analytics, "ROWS_A_TASK", (1_000_000, 1, 5, 20)[seed % 4])
        check_in_steps(world_of(seed, parts=1 + seed % 12), tmp_path)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, [Share()]),
        ({0: 40, 7: 60}, [Share()]),
        ({0: 60, 1: 60, 2: 80, 3: 10}, [Share((0, 3), False), Share((1,), False), Share((0, 1, 3))]),
        ({4: 201, 5: 9}, [Share((4,), False, 0, 3), Share((4,), False, 1, 3), Share((4,), False, 2, 3), Share((4,))]),
        ({0: 150, 1: 120}, [Share((1,), False), Share((1,))]),
    ],
    ids=["none", "few", "many", "skewed", "fewer-than-tasks"],
)
def test_groups_are_shared_out_by_their_partitions(
    rows: dict[int, int], expected: list[Share], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analytics, "ROWS_A_TASK", 100)
    assert shared_out(rows) == expected


@pytest.mark.parametrize(
    ("share", "first", "last", "expected"),
    [
        (Share((2, 9), False), 3, 8, False),
        (Share((2, 9), False), 3, 9, True),
        (Share((2, 3)), 2, 3, False),
        (Share((2, 3)), 2, 4, True),
        (Share(), 5, 5, True),
    ],
)
def test_files_that_have_nothing_of_a_share_are_left_out(share: Share, first: int, last: int, expected: bool) -> None:
    assert may_have(share, first, last) == expected


def commit_row(at_ms: int, run: int, **more: Any) -> Row:
    return dict.fromkeys(COMMITS.names) | {
        "offsets_partition": 0, "log_offset": at_ms - START_MS, "timestamp_ms": at_ms, "kind": "commit",
        "group_id": "g", "topic": "t", "partition": 0, "committed_offset": 10, "metadata": "",
        "commit_timestamp_ms": at_ms, "run": run, **more,
    }  # fmt: skip


def look_row(at_ms: int | None, run: int, end: int | None, partition: int = 0) -> Row:
    return dict.fromkeys(LOG_ENDS.names) | {
        "topic": "t", "partition": partition, "observed_at_ms": at_ms, "run_number": run, "log_end_offset": end,
        "run": run,
    }  # fmt: skip


def rebalance_row(at_ms: int, log_offset: int, **more: Any) -> Row:
    return dict.fromkeys(REBALANCES.names) | {
        "group_id": "g", "at_ms": at_ms, "cause": "member joined", "members": 2, "joined": ["x"], "left": [],
        "generation": 4, "previous_generation": 3, "type": "classic", "offsets_partition": 0,
        "log_offset": log_offset, **more,
    }  # fmt: skip


def test_a_partition_that_was_not_observed_for_a_day_and_a_half(tmp_path: Path) -> None:
    """The run that sees it again draws lines, of moments that are less than a day from both observations.

    A rebalance is all that is new in that run for `group_hours`.
    """
    hours = [START_MS + number * HOUR_MS for number in range(37)]
    looks = [look_row(hours[0], 0, 10), look_row(hours[30], 1, 5, partition=1), look_row(hours[36], 2, 46)]
    commits = [commit_row(hours[1], 0), *(commit_row(hours[at], 1) for at in (6, 20, 30))]
    rebalances = [rebalance_row(hours[at], at, run=run, gap_run=run) for at, run in ((1, 0), (34, 2))]
    check_in_steps(World(commits, looks, rebalances), tmp_path, runs=3)
    with open_tables(tmp_path.iterdir().__next__()) as tables:
        rows = inner(tables.read("lag_history").table(), ANALYTICS["lag_history"]).to_pylist()
    ends = {row["last_commit_ms"]: row["log_end_by"] for row in rows if row["commits"]}
    assert ends == {hours[1]: None, hours[6]: None, hours[20]: "interpolated", hours[30]: None}


@pytest.mark.parametrize(
    ("ids", "by"), [(("a", "a"), "interpolated"), (("a", "b"), None), ((None, "b"), "interpolated")]
)
def test_no_line_goes_to_another_topic_of_the_same_name(ids: tuple[str | None, str], by: str | None) -> None:
    """Though its log is longer than that of the first one was."""
    minutes = [START_MS - START_MS % INTERVAL_MS + number * INTERVAL_MS for number in range(8)]
    looks = [
        look_row(at_ms, run, end) | {"topic_id": topic_id}
        for run, (at_ms, end, topic_id) in enumerate(zip((minutes[0], minutes[6]), (10, 70), ids, strict=True))
    ]
    given = given_to(World([commit_row(minutes[at] + 1, 0) for at in (1, 3, 7)], looks, []))
    made = {name: asked(sql, **given).cast(ANALYTICS[name]).to_pylist() for name, sql in made_from().items()}
    between = [row for row in made["lag_history"] if row["interval_start_ms"] in (minutes[1], minutes[3])]
    assert [row["log_end_by"] for row in between] == [by, by]
    produced = [row["produced"] for row in made["rates"] if row["interval_start_ms"] == minutes[3]]
    assert produced == [None if by is None else 10]


@pytest.mark.parametrize("is_deleted_again", [False, True])
def test_a_transaction_that_ends_after_its_commit_was_deleted(is_deleted_again: bool, tmp_path: Path) -> None:
    """The deletion has the time of the commit before, and was published by an earlier run."""
    first_ms, then_ms, last_ms = START_MS, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS
    gone = {"kind": "vanished", "timestamp_ms": None, "commit_timestamp_ms": None, "committed_offset": None}
    commits = [
        commit_row(first_ms, 0, log_offset=1, committed_offset=5),
        commit_row(then_ms, 1, log_offset=2, txn_outcome="committed", txn_marker_offset=9),
        commit_row(first_ms, 0, log_offset=3, previous_commit_timestamp_ms=first_ms, **gone),
    ]
    if is_deleted_again:
        commits.append(commit_row(last_ms, 0, log_offset=4, previous_commit_timestamp_ms=last_ms, **gone))
    looks = [look_row(first_ms, 0, 5), look_row(last_ms, 0, 20)]
    check_in_steps(World(commits, looks, []), tmp_path, runs=2)


@pytest.mark.parametrize("rows_a_task", [1_000_000, 1])
def test_another_groups_deletion_is_no_observation(
    rows_a_task: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock was ahead when it was written: its group has a row of that time, in which nothing was committed and the
    commit behind it in the log is in force. So look rows that are there since another end was observed, and those every
    group of the partition has. The group whose late commit is read by the second run has none, in one task with the
    other or not.
    """
    monkeypatch.setattr(analytics, "ROWS_A_TASK", rows_a_task)
    hours = [START_MS + number * HOUR_MS for number in range(5)]
    other = {"group_id": "other", "offsets_partition": 1}
    commits = [
        commit_row(hours[0], 0, log_offset=1, **other),
        commit_row(hours[2], 0, log_offset=2, kind="deleted", committed_offset=None, commit_timestamp_ms=None, **other),
        commit_row(hours[1], 0, log_offset=3, committed_offset=12, **other),
        commit_row(hours[0], 0, log_offset=1),
        commit_row(hours[1], 1, log_offset=2, txn_outcome="committed", txn_marker_offset=9),
    ]
    looks = [look_row(hours[0], 0, 20), look_row(hours[4], 0, 40)]
    check_in_steps(World(commits, looks, []), tmp_path, runs=2)
    with open_tables(next(tmp_path.iterdir())) as tables:
        rows = inner(tables.read("lag_history").table(), ANALYTICS["lag_history"]).to_pylist()
    (deletion,) = [row for row in rows if row["interval_start_ms"] == hours[2] - hours[2] % INTERVAL_MS]
    assert (deletion["group_id"], deletion["commits"], deletion["committed_offset"]) == ("other", 0, 12)
    assert deletion["log_end_offset"] is not None


def test_runs_in_which_nothing_was_new_but_the_time(tmp_path: Path) -> None:
    """Such a run of a live cluster observes the ends, and makes no rows: the next one makes them."""
    minutes = [START_MS + number * 60_000 for number in (0, 1, 30, 50, 70)]
    looks = [
        look_row(at_ms, run, end) for run, (at_ms, end) in enumerate(zip(minutes[1:], (10, 10, 10, 40), strict=True))
    ]
    world = World([commit_row(minutes[0], 0, committed_offset=5)], looks, [])
    store = TableStore(tmp_path)
    run_of(store, world, 0)
    for run in (1, 2):
        with begin_run(store) as changes:
            changes.append_rows("log_ends", table([looks[run]], LOG_ENDS))
            changes.publish({}, {"analytics": last_analysed(changes)})
    run_of(store, world, 3)
    check_by_model(tmp_path)


def test_after_a_truncation_nothing_of_what_was_cut_is_left(tmp_path: Path) -> None:
    hours = [START_MS + number * HOUR_MS for number in range(4)]
    kept, cut = commit_row(hours[0], 0), commit_row(hours[2], 1, committed_offset=20)
    world = World([kept, cut], [look_row(hours[0] + 1, 0, 30), look_row(hours[3], 1, 40)], [])
    store = TableStore(tmp_path)
    run_of(store, world, 0)
    run_of(store, world, 1)
    with begin_run(store) as changes:
        changes.withdraw("commits", f"log_offset >= {cut['log_offset']}")
        state = asked(queries.offsets("commits"), commits=table([kept], COMMITS))
        changes.replace("offsets", state.select(OFFSETS.names).cast(OFFSETS))
        changes.publish({}, {"analytics": bring_up(changes, LocalEngine(), True).remembered})
    rows = check_by_model(tmp_path)
    assert {row["committed_offset"] for row in rows["lag_history"]} == {10}


MINUTE_MS = 60_000
BY_OBSERVATIONS = {"lag_ms": None, "behind_since_ms": None}


def observed_for_hours() -> World:
    """A busy group and an idle one, with an observation each twelve minutes; partition 1 is seen early and late only.

    Run 0 finds nearly all of it, with observations of as many earlier runs; run 1 the last of partition 0.
    """
    begin_ms, end = START_MS - START_MS % HOUR_MS + HOUR_MS, 100
    world = World([], [], [])
    for place in range(30):
        at_ms = begin_ms + place * 12 * MINUTE_MS
        end += (5, 60, 0, 20)[place % 4]
        world.log_ends.append(look_row(at_ms, 0, end) | {"run_number": place - 40})
        if place in (3, 5):  # runs that would be thinned out, but that the second is the last
            world.log_ends.append(look_row(at_ms, 0, 30 + place, partition=1) | {"run_number": place - 40})
        busy = {"group_id": "busy", "committed_offset": end - place % 7 - 20}
        world.commits.append(commit_row(at_ms + MINUTE_MS, 0, **busy))
    world.log_ends[-1] |= {"run": 1, "run_number": 1}
    world.commits.append(commit_row(begin_ms + 2 * MINUTE_MS, 0, group_id="idle", committed_offset=90))
    world.commits.append(commit_row(begin_ms + 3 * MINUTE_MS, 0, group_id="gone", committed_offset=95))
    world.commits.append(commit_row(begin_ms + 50 * MINUTE_MS, 0, partition=1, committed_offset=20))
    return world


@pytest.fixture(scope="module")
def hours_in_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of `observed_for_hours` after runs 0 and 1."""
    world, store = observed_for_hours(), TableStore(tmp_path_factory.mktemp("hours") / "tables")
    run_of(store, world, 0)
    run_of(store, world, 1)
    return Path(store.address)


@pytest.fixture
def two_runs(hours_in_tables: Path, tmp_path: Path) -> TableStore:
    """A copy of them to go on with."""
    return TableStore(shutil.copytree(hours_in_tables, tmp_path / "tables"))


def late_rows(world: World, late: str) -> None:
    """What run 2 finds besides a new observation of partition 0."""
    last_ms, end = world.log_ends[-1]["observed_at_ms"], world.log_ends[-1]["log_end_offset"]
    now_ms, long_ago_ms = last_ms + 12 * MINUTE_MS, last_ms - 5 * HOUR_MS
    world.log_ends.append(look_row(now_ms, 2, end + 9))
    match late:
        case "partition":
            world.log_ends.append(look_row(now_ms, 2, 70, partition=1))
        case "vanished":
            begin_ms = world.commits[-2]["timestamp_ms"]
            of_gone = {"kind": "vanished", "group_id": "gone", "committed_offset": None, "timestamp_ms": None,
                       "commit_timestamp_ms": None, "previous_commit_timestamp_ms": begin_ms}  # fmt: skip
            world.commits.append(commit_row(now_ms, 2, **of_gone))
        case "transaction":
            world.commits.append(commit_row(long_ago_ms, 2, group_id="late", txn_outcome="committed"))
        case "deletion":
            of_gone = {"kind": "deleted", "group_id": "gone", "committed_offset": None, "timestamp_ms": None}
            world.commits.append(commit_row(now_ms, 2, **of_gone, commit_timestamp_ms=None))


@pytest.mark.parametrize(
    "late",
    ["partition", "transaction", "pause"]
    + [pytest.param(late, marks=pytest.mark.long) for late in ("vanished", "deletion", "truncation")],
)
def test_published_rows_outlast_the_observations_that_they_were_made_of(
    late: str, two_runs: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a run finds of a time whose observations are thinned out: rows are as if all of them were there,
    even if groups are of several tasks.

    Only since when a group was behind is of the observations that are left, and only of a key that is new.
    """
    monkeypatch.setattr(analytics, "ROWS_A_TASK", 14 if late in ("transaction", "truncation") else 1000)
    world, store = observed_for_hours(), two_runs
    compact(store)
    if late == "pause":
        with begin_run(store) as changes:
            assert changes.manifest is not None
            changes.publish({}, {"analytics": changes.manifest.source["analytics"]})
    late_rows(world, late)
    run_of(store, world, 2, is_cut=late == "truncation")
    expected = modelled(until(world, 2))
    with open_tables(store.address) as tables:
        found = {name: inner(tables.read(name).table(), ANALYTICS[name]).to_pylist() for name in ANALYTICS}
        assert tables.read("log_ends").table().num_rows < len(world.log_ends) - 6
    for name in ("lag_history", "rates"):
        for rows in (found[name], expected[name]):
            rows[:] = [row | BY_OBSERVATIONS if row["group_id"] == "late" else row for row in rows]
    for name in ANALYTICS:
        assert in_order(found[name]) == in_order(expected[name]), name


def test_nothing_is_made_of_the_time_before_the_horizon(two_runs: TableStore) -> None:
    """Rows before it are gone, and commits but for what is in force. A run without these tables is made up for."""
    world, store = observed_for_hours(), two_runs
    horizon_ms = START_MS - START_MS % HOUR_MS + 3 * HOUR_MS + MINUTE_MS
    horizon = f"{datetime.fromtimestamp(horizon_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    with begin_run(store) as changes:
        assert changes.manifest is not None
        changes.withdraw("commits", f"timestamp < '{horizon}' AND group_id = 'busy' AND committed_offset < 290")
        changes.withdraw("lag_history", f"interval_start < '{horizon}'")
        changes.withdraw("rates", f"interval_start < '{horizon}'")
        retention = {"horizon_ms": horizon_ms, "since_ms": horizon_ms}
        changes.publish({}, {"analytics": changes.manifest.source["analytics"], "retention": retention})
    late_rows(world, "nothing")
    run_of(store, world, 2)
    expected = modelled(until(world, 2))
    with open_tables(store.address) as tables:
        for name in ("lag_history", "rates"):
            found = inner(tables.read(name).table(), ANALYTICS[name]).to_pylist()
            wanted = [row for row in expected[name] if row["interval_start_ms"] >= horizon_ms]
            assert in_order(found) == in_order(wanted), name
            assert wanted


def test_files_are_copied_in_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "ROWS_A_TASK", 100)
    assert lots_of({}) == []
    assert lots_of({"a": 300, "b": 40, "c": 60, "d": 1}) == [["a"], ["b", "c"], ["d"]]


def test_rows_that_the_next_run_replaces_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    hours = [START_MS - START_MS % HOUR_MS + number * HOUR_MS for number in range(4)]
    rows = table(model.group_hours([commit_row(hour, 0) for hour in hours], []), GROUP_HOURS)
    place = Place(str(tmp_path), (), "a-run", 64, (hours[1], hours[3]))
    files = written("group_hours", place, [rows.slice(2), rows.slice(0, 2)])
    found = [pq.read_table(tmp_path / "group_hours" / file.path)["hour"].to_pylist() for file in files]
    assert [sorted(int(hour.timestamp() * 1000) for hour in each) for each in found] == [
        hours[3:],
        hours[1:3],
        hours[:1],
    ]


@pytest.mark.parametrize(
    ("before", "now", "since"),
    [
        ([(0, 0)], [10], 0),
        ([(0, 0), (10, 1)], [20], 10),
        ([], [20], 20),
        ([(0, 0), (30, 1)], [20], 0),  # a clock that was put back
        ([(0, 0)], [30], 6),  # a day before it
        ([(0, 0)], [], None),
    ],
)
def test_from_when_on_an_observation_tells_something_new(
    before: list[tuple[int, int]], now: list[int], since: int | None
) -> None:
    looks = [look_row(START_MS + at * HOUR_MS, run, 7) for at, run in before]
    looks += [look_row(START_MS + at * HOUR_MS, 2, 9) for at in now]
    looks += [look_row(START_MS - HOUR_MS, 2, None), look_row(START_MS + 5 * HOUR_MS, 1, None)]  # nothing was seen
    sql = first_observed("ends", 1)
    expected = None if since is None else START_MS + since * HOUR_MS
    assert asked(sql, ends=table(looks, LOG_ENDS)).to_pylist()[0].popitem()[1] == expected


@pytest.mark.parametrize(
    ("change", "since"),
    [
        ({}, None),
        ({"first_commit_after_ms": START_MS + 500, "commit_gap_ms": 600}, 500),
        ({"members": 3}, 100),
        ({"cause": "rejoined"}, 100),
        ({"joined": ["x", "y"]}, 100),
        ({"generation": 5}, 100),
        ({"log_offset": 8, "at_ms": START_MS + 70}, 70),
    ],
)
def test_from_when_on_a_rebalance_tells_something_new(change: Row, since: int | None) -> None:
    before = [rebalance_row(START_MS + 100, 1), rebalance_row(START_MS + 50, 0)]
    now = [rebalance_row(START_MS + 100, 1) | change]
    sql = first_told("told", "told_before")
    found = asked(sql, told=table(now, REBALANCES), told_before=table(before, REBALANCES)).to_pylist()
    assert found[0].popitem()[1] == (None if since is None else START_MS + since)


def check_by_model(tables: Path) -> dict[str, list[Row]]:
    """The tables of a run, beside what the model makes of the history beside them; rows are as they are inside."""
    names = ("commits", "log_ends", "rebalances", *ANALYTICS)
    with open_tables(tables) as opened:
        found = {name: inner(opened.read(name).table(), TABLES[name]).to_pylist() for name in names}
    expected = modelled(World(found["commits"], found["log_ends"], found["rebalances"]))
    for name in ANALYTICS:
        assert in_order(found[name]) == in_order(expected[name]), name
        assert found[name], name
    return found


def test_runs_over_a_growing_log_keep_them_up(tmp_path: Path) -> None:
    """Of a log directory, with observations of every run; a run without them in between is made up for."""
    growing = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "growing", Random(3))
    for run in range(4):
        growing.grow(run == 3)
        run_here(tmp_path / "tables", growing.target, analytics=run != 1)
        if run in (0, 2):  # the last one is looked at below
            check_by_model(tmp_path / "tables")
    run_here(tmp_path / "once", growing.target, analytics=True)
    steps, once = (check_by_model(tmp_path / name) for name in ("tables", "once"))
    assert in_order(steps["group_hours"]) == in_order(once["group_hours"])
    without_ends = {"produced": None, "produced_in_ms": None}
    in_steps, in_one_go = ([row | without_ends for row in each["rates"]] for each in (steps, once))
    assert in_order(in_steps) == in_order(in_one_go)


def test_what_does_not_fit_into_memory_goes_on_in_files() -> None:
    sorted_rows = "SELECT hash(i) AS key, i, row_number() OVER (ORDER BY hash(i)) AS place FROM range(2_000_000) r(i)"
    with limited_duckdb(32) as connection:
        spill = connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        assert connection.execute(f"SELECT max(place) FROM ({sorted_rows})").fetchall() == [(2_000_000,)]
    assert not Path(spill).exists()


def test_state_alone_has_no_history_by_interval(tmp_path: Path) -> None:
    logs = unpacked("mini-zstd-43", tmp_path)
    run_here(tmp_path / "tables", logs, history=False, analytics=True)
    with open_tables(tmp_path / "tables") as tables:
        assert [tables.read(name).table().num_rows for name in ANALYTICS] == [0, 0, 0]


def test_a_moment_shows_the_intervals_that_were_over(tmp_path: Path) -> None:
    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    with open_tables(tmp_path / "tables") as tables:
        now = tables.read("lag_history").table()
        starts = sorted(set(now["interval_start"].to_pylist()))
        moment_ms = int(starts[0].timestamp() * 1000) + INTERVAL_MS
        then = tables.read("lag_history", as_of_ms=moment_ms).table()
        assert set(then["interval_start"].to_pylist()) == {starts[0]}
        assert tables.read("lag_history", as_of_ms=moment_ms - 1).table().num_rows == 0
