"""History by interval: the SQL beside a model in plain Python, in one go and in steps."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.pipeline.analytics import InProcess, bring_up
from muster.tables import intervals, queries
from muster.tables.intervals import DUCKDB_SIZE, HOUR_MS, INTERVAL_MS
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, COMMITS, LATEST_REBALANCES, LOG_ENDS, OFFSETS, REBALANCES, TABLES
from muster.tables.store import TableStore
from muster.tables.times import inner
from tests.pipeline import interval_model as model
from tests.pipeline.world import GrowingLog, run_here, unpacked

Row = dict[str, Any]
START_MS = 1_700_000_000_000


CONNECTION = duckdb.connect(config={"threads": 1})


def asked(sql: str, **tables: pa.Table) -> pa.Table:
    for name, rows in tables.items():
        CONNECTION.register(name, rows)
    return CONNECTION.sql(sql).to_arrow_table()


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


PAUSES = st.sampled_from([0, 1, 75_000, 299_999, 300_000, 510_000, 1_500_000, HOUR_MS, 90_000_000, 700_000_000])
"""Within an interval, over its edge, and beyond all look-backs."""
STEPS_BACK = st.sampled_from([1, 210_000, 450_000])
RUNS = 5


class World(NamedTuple):
    """Some groups and a topic of their own. Rows have a `run`: the one that reads or decides them."""

    commits: list[Row]
    log_ends: list[Row]
    rebalances: list[Row]


def commit_rows(draw: st.DrawFn, world: int) -> Iterator[Row]:
    """Commits, rewinds and deletions of a few keys in log order; clocks step back now and then."""
    now_ms, run = START_MS, 0
    for log_offset in range(draw(st.integers(1, 20))):
        now_ms += draw(PAUSES) if draw(st.integers(0, 5)) else -draw(STEPS_BACK)
        run = min(run + draw(st.sampled_from([0, 0, 0, 1])), RUNS - 1)
        kind = draw(st.sampled_from(["commit"] * 6 + ["deleted", "expired", "vanished"]))
        is_commit = kind == "commit"
        outcome = draw(st.sampled_from([None, None, None, "committed", "aborted", "unknown"])) if is_commit else None
        has_time = kind != "vanished" and draw(st.integers(0, 9))
        yield dict.fromkeys(COMMITS.names) | {
            "offsets_partition": 0, "log_offset": log_offset, "timestamp_ms": now_ms if has_time else None,
            "kind": kind, "group_id": f"{world}{draw(st.sampled_from('ab'))}", "topic": f"t{world}",
            "partition": draw(st.integers(0, 1)), "txn_outcome": outcome,
            "committed_offset": draw(st.integers(0, 60)) if is_commit else None, "metadata": "",
            "commit_timestamp_ms": now_ms - 5 if is_commit else None,
            "previous_commit_timestamp_ms": None if is_commit else now_ms - 600_000,
            "run": run if outcome is None else draw(st.integers(run, RUNS - 1)),
        }  # fmt: skip


def log_end_rows(draw: st.DrawFn, world: int) -> Iterator[Row]:
    """Observations of ends that rise, rest, and now and then fall."""
    for partition in range(2):
        now_ms, end = START_MS - 450_000, 0
        for run in range(RUNS):
            now_ms += draw(PAUSES)
            end = end + draw(st.sampled_from([0, 1, 7, 20])) if draw(st.integers(0, 9)) else end // 2
            if draw(st.integers(0, 4)):
                yield dict.fromkeys(LOG_ENDS.names) | {
                    "topic": f"t{world}", "partition": partition, "observed_at_ms": now_ms, "run_number": run,
                    "log_end_offset": end if draw(st.integers(0, 9)) else None, "run": run,
                }  # fmt: skip


CAUSES = ["first members", "member joined", "member left", "group emptied", "members joined and left",
          "static member returned", "partitions changed", "rejoined", "group deleted", None]  # fmt: skip


def rebalance_rows(draw: st.DrawFn, world: int) -> Iterator[Row]:
    """Of each group in log order; the first commit after one is read in the same run or later."""
    for group in "ab":
        now_ms, run = START_MS, 0
        for log_offset in range(draw(st.integers(0, 8))):
            now_ms += draw(PAUSES)
            run = min(run + draw(st.sampled_from([0, 0, 1])), RUNS - 1)
            cause = draw(st.sampled_from(CAUSES))
            names = None if cause is None else draw(st.lists(st.sampled_from("xyz"), max_size=3))
            before, after = now_ms - draw(PAUSES), now_ms + draw(PAUSES)
            has_time = draw(st.integers(0, 9)) > 0
            has_gap = has_time and draw(st.booleans())
            yield dict.fromkeys(REBALANCES.names) | {
                "group_id": f"{world}{group}", "at_ms": now_ms if has_time else None,
                "cause": cause, "members": draw(st.integers(0, 5)), "joined": names, "left": names,
                "generation": draw(st.sampled_from([None, 3, 4])),
                "previous_generation": draw(st.sampled_from([None, 3])),
                "first_commit_after_ms": after if has_gap else None,
                "commit_gap_ms": after - before if has_gap else None,
                "type": "classic", "offsets_partition": 0, "log_offset": log_offset, "run": run,
                "gap_run": draw(st.integers(run, RUNS - 1)),
            }  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Several at once: each question to an engine has its price."""
    found = World([], [], [])
    for world in range(draw(st.integers(2, 8))):
        found.commits.extend(commit_rows(draw, world))
        found.log_ends.extend(log_end_rows(draw, world))
        found.rebalances.extend(rebalance_rows(draw, world))
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


def check_in_one_go(world: World) -> None:
    given, expected = given_to(world), modelled(world)
    asked_for = {
        "lag_history": intervals.lag_history("commits", "log_ends"),
        "rates": intervals.rates("commits", "log_ends"),
        "group_hours": intervals.group_hours("commits", "rebalances", size=DUCKDB_SIZE),
    }
    for name, sql in asked_for.items():
        found = asked(sql, **given).cast(ANALYTICS[name])
        assert in_order(found.to_pylist()) == in_order(expected[name]), name


@settings(max_examples=6, deadline=None)
@given(worlds())
def test_history_by_interval_is_what_the_model_says(world: World) -> None:
    check_in_one_go(world)


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(worlds())
def test_history_by_interval_is_what_the_model_says_of_many_worlds(world: World) -> None:
    check_in_one_go(world)


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


def run_of(store: TableStore, world: World, run: int) -> None:
    """What the job does with history and state, and then the step itself."""
    now, last = until(world, run), until(world, run - 1)
    was_final = {(row["group_id"], row["log_offset"]) for row in last.rebalances if not row["is_last"]}
    final = [
        row for row in now.rebalances if not row["is_last"] and (row["group_id"], row["log_offset"]) not in was_final
    ]
    with store.run() as changes:
        changes.append_rows("commits", table([row for row in now.commits if row["run"] == run], COMMITS))
        changes.append_rows("log_ends", table([row for row in now.log_ends if row["run"] == run], LOG_ENDS))
        changes.append_rows("rebalances", table(final, REBALANCES))
        newest = [row for row in now.rebalances if row["is_last"]]
        changes.replace("latest_rebalances", table(newest, LATEST_REBALANCES))
        state = asked(queries.offsets("commits"), commits=table(now.commits, COMMITS))
        changes.replace("offsets", state.select(OFFSETS.names).cast(OFFSETS))
        changes.publish({}, {"analytics": bring_up(changes, InProcess(), False).remembered})


def check_in_steps(world: World, folder: Path) -> None:
    store = TableStore(folder / uuid4().hex)
    for run in range(RUNS):
        run_of(store, world, run)
    expected = modelled(until(world, RUNS - 1))
    with open_tables(store.address) as tables:
        for name in ANALYTICS:
            found = inner(tables.read(name).table(), ANALYTICS[name]).to_pylist()
            assert in_order(found) == in_order(expected[name]), name


@settings(max_examples=2, deadline=None)
@given(world=worlds())
def test_in_steps_it_is_the_same(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_in_steps(world, tmp_path_factory.getbasetemp())


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(world=worlds())
def test_in_many_steps_it_is_the_same(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_in_steps(world, tmp_path_factory.getbasetemp())


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
        if run != 1:
            check_by_model(tmp_path / "tables")
    run_here(tmp_path / "once", growing.target, analytics=True)
    steps, once = (check_by_model(tmp_path / name) for name in ("tables", "once"))
    assert in_order(steps["group_hours"]) == in_order(once["group_hours"])
    without_ends = {"produced": None, "produced_in_ms": None}
    in_steps, in_one_go = ([row | without_ends for row in each["rates"]] for each in (steps, once))
    assert in_order(in_steps) == in_order(in_one_go)


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
