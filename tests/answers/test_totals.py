"""Totals of the past are what each partition's last row says, added up."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.answers.overview import overview
from muster.answers.partitions import partitions
from muster.answers.series import all_series, group_series
from muster.answers.totals import DAY_MS, UNKNOWN, Lines, Totals, carried_on, trends_of
from muster.pages.site import page
from muster.tables.reading import Tables, open_tables
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.pages import world
from tests.tables.made import made

STEP_MS = world.INTERVAL_MS
Rows = list[dict[str, Any]]


def random_rows(seed: int, start_ms: int = world.START_MS, count: int = 400) -> Rows:
    """Rows here and there in four days; some lags are unknown, some commits deleted."""
    chance = random.Random(seed)
    found = {}
    for _ in range(count):
        key = {
            "group_id": f"g{chance.randrange(4)}",
            "topic": f"t{chance.randrange(2)}",
            "partition": chance.randrange(3),
        }
        interval_ms = start_ms + chance.randrange(4 * DAY_MS // STEP_MS) * STEP_MS
        lag = chance.choice([None, chance.randrange(1000)])
        found[(*key.values(), interval_ms)] = key | {
            "interval_start_ms": interval_ms, "interval_ms": STEP_MS, "at_ms": interval_ms + STEP_MS, "lag": lag,
            "lag_ms": None if lag is None else lag * 7,
            "committed_offset": chance.choice([None, 5]) if lag is None else 5,
            "commits": 1, "log_offset": 1,
        }  # fmt: skip
    return list(found.values())


def told_at(rows: Rows, at_ms: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Lag and its time by group and topic, looked up one by one."""
    last: dict[Any, Any] = {}
    for row in sorted(rows, key=lambda row: row["interval_start_ms"]):
        if row["interval_start_ms"] + STEP_MS <= at_ms:
            last[row["group_id"], row["topic"], row["partition"]] = row
    lines: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for (group_id, topic, _), row in last.items():
        if row["lag"] is not None:
            lines[group_id, topic].append((row["lag"], row["lag_ms"]))
    return {line: (sum(lag for lag, _ in some), max(ms for _, ms in some)) for line, some in lines.items()}


def known(totals: Totals, at_ms: int) -> dict[tuple[str, str], tuple[int, int]]:
    found = totals.at(at_ms)
    if found is None:
        return {}
    each = zip(totals.lines, found[0].tolist(), found[1].tolist(), strict=True)
    return {line: (lag, lag_ms) for line, lag, lag_ms in each if lag != UNKNOWN}


def append(path: Path, rows: Rows, run_id: str, observed_at_ms: int = world.NOW_MS + 9 * DAY_MS) -> TableStore:
    store = TableStore(path)
    with begin_run(store, run_id=run_id, now_ms=world.NOW_MS) as run:
        run.append_rows("lag_history", made("lag_history", *rows))
        run.publish({}, {"cluster_id": "c", "observed_at_ms": observed_at_ms}, now_ms=world.NOW_MS)
    return store


def added_up(tables: Tables) -> Totals:
    totals = Totals(tables)
    totals.bring_up(tables)
    return totals


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cells", [8_000_000, 600])
def test_totals_are_the_last_rows_added_up(
    tmp_path: Path, seed: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.answers.totals.CELLS_AT_A_TIME", cells)  # keys of a line come in several lots
    rows = random_rows(seed)
    append(tmp_path, rows, "a")
    with open_tables(tmp_path) as tables:
        totals = added_up(tables)
    for at_ms in range(world.START_MS, world.START_MS + 5 * DAY_MS, 7 * world.HOUR_MS + 1):
        assert known(totals, at_ms) == told_at(rows, at_ms)


def test_days_that_were_forgotten_are_added_up_again(tmp_path: Path) -> None:
    rows = random_rows(5)
    append(tmp_path, rows, "a")
    with open_tables(tmp_path) as tables:
        totals = Totals(tables, most_bytes=1)
        totals.bring_up(tables)
        assert totals.at(world.START_MS + DAY_MS) is None
        for at_ms in range(world.START_MS + DAY_MS, world.START_MS + 4 * DAY_MS, 7 * world.HOUR_MS):
            totals.recall(tables, at_ms)
            assert known(totals, at_ms) == told_at(rows, at_ms)
            assert known(totals, at_ms - DAY_MS + STEP_MS) == told_at(rows, at_ms - DAY_MS + STEP_MS)


def test_a_newer_run_adds_up_only_the_days_that_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = random_rows(1), random_rows(2, world.START_MS + 4 * DAY_MS, 100)
    append(tmp_path, first, "a")
    with open_tables(tmp_path) as tables:
        before = added_up(tables)
    append(tmp_path, later, "b")
    days: list[int] = []
    add_day = Totals._add_day
    monkeypatch.setattr(
        Totals,
        "_add_day",
        lambda self, tables, ms, *is_eventful: (days.append(ms), add_day(self, tables, ms, *is_eventful)),
    )
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.go_on_from(before, tables)
        totals.bring_up(tables)
    assert min(days) == world.START_MS + 4 * DAY_MS
    for at_ms in range(world.START_MS, world.START_MS + 9 * DAY_MS, 11 * world.HOUR_MS):
        assert known(totals, at_ms) == told_at([*first, *later], at_ms)


def test_years_without_a_row_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit with a wrong date makes them."""
    begin_ms = world.START_MS - 3000 * DAY_MS
    rows = [*random_rows(1, begin_ms)[:3], *random_rows(2, count=100)]
    append(tmp_path, rows, "a")
    asked: list[int] = []
    of_day = Totals._rows
    monkeypatch.setattr(Totals, "_rows", lambda self, tables, ms: (asked.append(ms), of_day(self, tables, ms))[1])
    with open_tables(tmp_path) as tables:
        totals = added_up(tables)
    assert len(asked) == len({row["interval_start_ms"] // DAY_MS for row in rows})
    assert totals.done[0] > 3000
    assert len(set(map(id, totals._days))) <= 2 * len(asked) + 1  # nor do they take memory
    assert len(set(map(id, totals._held))) <= len(asked) + 1
    for day in (1, 1500, 2999, 3001):
        at_ms = begin_ms + day * DAY_MS
        assert known(totals, at_ms) == told_at(rows, at_ms)


def test_a_row_of_the_far_future_is_left_out(tmp_path: Path) -> None:
    rows = random_rows(3)
    ahead = rows[0] | {"interval_start_ms": 9_214_646_400_000, "at_ms": 9_214_646_400_000 + STEP_MS}
    append(tmp_path, [*rows, ahead], "a")
    with open_tables(tmp_path) as tables:
        totals = added_up(tables)
    assert totals.done[1] < 10
    at_ms = world.START_MS + 5 * DAY_MS
    assert known(totals, at_ms) == told_at(rows, at_ms)


def test_values_hold_until_the_next_one() -> None:
    keys, slots, values = (np.array(some) for some in ([0, 0, 1], [1, 3, 0], [5, 7, 9]))
    filled = carried_on(keys, slots, values, np.array([2, UNKNOWN]), 5)
    assert filled.tolist() == [[2, 5, 5, 7, 7], [9, 9, 9, 9, 9]]


def test_a_trend_is_a_line_of_blocks() -> None:
    assert trends_of(np.array([[UNKNOWN, 0, 1, 50, 100], [0, 0, 0, 0, 0]])) == [" ▁▁▄█", "▁▁▁▁▁"]
    assert trends_of(np.array([[0, 2**47, 2**62]])) == ["▁▄█"]
    assert Lines.of(np.zeros(3, np.int64)).added_up(np.array([[2**62], [2**62], [UNKNOWN]])).tolist() == [[2**49]]


def test_all_ways_to_the_past_agree(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with open_tables(tmp_path) as tables:
        totals = added_up(tables)
        series = all_series(tables, totals, world.START_MS, world.NOW_MS)
        for group_id in ("orders", "billing"):
            assert series[group_id] == group_series(tables, group_id, world.START_MS, world.NOW_MS)
            for hours in (1, 4, 30, 71):
                at_ms = world.NOW_MS - hours * world.HOUR_MS + 1
                lines = partitions(tables, group_id, at_ms)
                row = next(row for row in overview(tables, totals, at_ms) if row.group_id == group_id)
                assert (row.lag, row.lag_ms) == (
                    sum(line.lag or 0 for line in lines),
                    max(line.lag_ms or 0 for line in lines),
                )
                interval_ms = at_ms // world.HOUR_MS * world.HOUR_MS - (
                    0 if at_ms % world.HOUR_MS > STEP_MS else world.HOUR_MS
                )
                assert row.lag == sum(world.lag_at(group_id, number, interval_ms + STEP_MS) for number in range(2))


def test_a_clock_that_is_put_right_ends_earlier(tmp_path: Path) -> None:
    """A run by a clock a month ahead had days that are none now."""
    rows = random_rows(3)
    ahead_ms = world.NOW_MS + 30 * DAY_MS
    ahead = rows[0] | {"interval_start_ms": ahead_ms, "at_ms": ahead_ms + STEP_MS}
    append(tmp_path, [*rows, ahead], "a", observed_at_ms=ahead_ms + DAY_MS)
    with open_tables(tmp_path) as tables:
        before = added_up(tables)
    append(tmp_path, [], "b")
    with open_tables(tmp_path) as tables:
        totals = Totals(tables)
        totals.go_on_from(before, tables)
        assert totals.is_complete
    assert before.done[1] > 30 > totals.done[1]


def test_nothing_is_known_before_history(tmp_path: Path) -> None:
    append(tmp_path, [], "a")
    with open_tables(tmp_path) as tables:
        totals = added_up(tables)
        assert totals.at(world.NOW_MS) is None
        assert totals.is_complete
        assert overview(tables, totals, world.NOW_MS) == []


def test_an_answer_is_of_what_was_added_up_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days come, and with them groups, while a page is made."""
    late = {"group_id": "late", "topic": "t", "partition": 0, "lag": 5, "lag_ms": 5, "committed_offset": 5,
            "interval_start_ms": world.NOW_MS - STEP_MS, "interval_ms": STEP_MS}  # fmt: skip
    world.publish(tmp_path, lag_history=[*world.tables()["lag_history"], late])
    with open_tables(tmp_path) as tables, open_tables(tmp_path) as others:
        totals = Totals(tables)
        totals.bring_up(tables, lambda: totals.done[0] == 2)
        at = Totals.at

        def slow(self: Totals, at_ms: int) -> Any:
            found = at(self, at_ms)
            totals.bring_up(others)
            return found

        monkeypatch.setattr(Totals, "at", slow)
        shown = page("overview", tables, totals, {"at": str(world.START_MS + 2 * world.DAY_MS - STEP_MS)})
    assert len(shown["groups"]["rows"]) == len(world.GROUPS)
    assert totals.is_complete


def test_a_slot_that_is_not_over_has_no_rate_and_silence_is_none_read(tmp_path: Path) -> None:
    world.publish(tmp_path)
    with open_tables(tmp_path) as tables:
        one = group_series(tables, "orders", world.NOW_MS - world.DAY_MS, world.NOW_MS - 1)
        every = all_series(tables, added_up(tables), world.NOW_MS - world.DAY_MS, world.NOW_MS - 1)
    for series in (one, every["orders"]):
        assert (series.commits[-1], series.consumed[-1]) == (None, None)
        assert (series.commits[-2], series.consumed[-2]) == (0, 0), "it has stopped"
        assert max(each or 0 for each in series.commits) == world.PARTITIONS * 30
        assert max(each or 0 for each in series.consumed) == world.PARTITIONS * 600
