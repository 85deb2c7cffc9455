"""Who is behind, since when, and how that came."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.answers.lag import POINTS, GroupLag, Window, group_lags, partition_lags, with_trends
from muster.tables.reading import Tables, open_tables
from tests.answers.world import EIGHT_MS, HOUR_MS, MINUTE_MS, NOW_MS, publish

WINDOW = Window(NOW_MS - 2 * HOUR_MS, NOW_MS)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with open_tables(publish(tmp_path_factory.mktemp("tables"))) as opened:
        yield opened


def test_groups_are_sorted_by_their_totals_and_what_is_unknown_comes_last(tables: Tables) -> None:
    assert group_lags(tables) == [
        GroupLag("orders-app", 100, 748_561, 0, 2, 1, 0),
        GroupLag("billing", 7, 90_000, 3, 1, 1, 0),
        GroupLag("nightly-audit", 0, 0, 0, 1, 0, 0),
        GroupLag("new", None, None, None, 1, 0, 1),
    ]
    assert [each.group_id for each in group_lags(tables, ["b?l*"])] == ["billing"]


def test_totals_are_those_of_the_table(tables: Tables) -> None:
    rows = tables.read("lag").table().to_pylist()
    for each in group_lags(tables):
        lags = [row["lag"] for row in rows if row["group_id"] == each.group_id and row["lag"] is not None]
        assert each.lag == (sum(lags) if lags else None)


def test_a_trend_ends_now_and_begins_at_the_start_of_the_window(tables: Tables) -> None:
    group = with_trends(tables, group_lags(tables, ["orders-app"]), WINDOW)[0]
    assert len(group.trend) == POINTS
    by_minute = dict(zip([round((ms - EIGHT_MS) / MINUTE_MS) for ms in WINDOW.points_ms], group.trend, strict=True))
    assert group.trend[-1] == 100
    # orders-1 has no row: nothing changed, so it is 0 all along, and so is the sum where orders-0 is not known yet
    assert [lag for minute, lag in by_minute.items() if minute < -60] == [0] * 6
    assert {lag for minute, lag in by_minute.items() if -60 <= minute < -30} == {3}
    assert {lag for minute, lag in by_minute.items() if -30 <= minute < 0} == {0}
    assert {lag for minute, lag in by_minute.items() if 0 <= minute < 15} == {10}


def test_behind_since_the_first_look_after_the_last_one_without_a_lag(tables: Tables) -> None:
    orders, other = partition_lags(tables, ["orders-app"], WINDOW)
    assert (orders.partition, orders.lag, orders.behind_since_ms, orders.was_behind_before) == (
        0, 100, EIGHT_MS, False,
    )  # fmt: skip
    assert (other.partition, other.lag, other.behind_since_ms, other.was_behind_before) == (1, 0, None, None)
    assert set(other.trend) == {0}
    group, billing = with_trends(tables, group_lags(tables)[:2], WINDOW)
    assert (group.behind_since_ms, group.was_behind_before) == (EIGHT_MS, False)
    assert (billing.behind_since_ms, billing.was_behind_before) == (EIGHT_MS + 5 * MINUTE_MS, True)


def test_nothing_remembered_is_nothing_known(tmp_path: Path) -> None:
    with open_tables(publish(tmp_path, "lag_history")) as opened:
        (orders, _) = partition_lags(opened, ["orders-app"], WINDOW)
        assert orders.behind_since_ms is None
        assert orders.trend == (*[None] * (POINTS - 1), 100)
        (group,) = with_trends(opened, group_lags(opened, ["orders-app"]), WINDOW)
        assert group.trend == (*[None] * (POINTS - 1), 100)


def test_lag_as_of_a_moment_is_measured_against_the_ends_at_that_moment(tables: Tables) -> None:
    """Looks saw 510 at eight, and 600 at half past."""
    found = [group_lags(tables, ["orders-app"], EIGHT_MS + minutes * MINUTE_MS) for minutes in (0, 1, 20)]
    assert [(group.lag, group.partitions) for (group,) in found] == [(10, 1), (12, 1), (64, 1)]
