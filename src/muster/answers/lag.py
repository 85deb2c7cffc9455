"""Who is behind, by how much, since when, and how that came: `lag` beside what `lag_history` remembers of it.

`lag_history` has a row where something changed. Between two rows nothing did, so what was true at one holds until the
next; where there is none in the time that is looked at, it is as it is now.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.tables.reading import Tables
from muster.tables.sql.queries import added_up

DAY_MS = 86_400_000
POINTS = 24
"""Of a trend."""


class PartitionLag(NamedTuple):
    """One partition of a group. What is None is not known, or there is none."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_ms: int | None
    lost_records: int | None
    lag_unknown: str | None
    """Why `lag` is None."""
    member_id: str | None
    client_id: str | None
    client_host: str | None
    behind_since_ms: int | None = None
    """Since when it is behind. None: it is not, or no look saw it begin."""
    was_behind_before: bool | None = None
    """Whether it was behind then already: there was no look before, or looks further back were not read."""
    trend: tuple[int | None, ...] = ()
    """Lags at equal distances, the last one now."""
    log_end_by: str | None = None
    """How `log_end_offset` is known: `observed`, or as of a moment `interpolated` between two observations."""


class GroupLag(NamedTuple):
    """All partitions of a group together."""

    group_id: str
    lag: int | None
    """Of those whose lag is known; None: of none is it known."""
    lag_ms: int | None
    """The longest of them."""
    lost_records: int | None
    partitions: int
    behind: int
    """Partitions with a lag."""
    unknown: int
    """Partitions whose lag is not known."""
    behind_since_ms: int | None = None
    """The earliest of its partitions that are behind now."""
    was_behind_before: bool | None = None
    trend: tuple[int | None, ...] = ()


class Window(NamedTuple):
    """From when to when a trend is."""

    since_ms: int
    until_ms: int

    @property
    def step_ms(self) -> int:
        return max((self.until_ms - self.since_ms) // (POINTS - 1), 1)

    @property
    def points_ms(self) -> list[int]:
        return [self.until_ms - place * self.step_ms for place in reversed(range(POINTS))]


class Remembered(NamedTuple):
    """What history has of one partition in a window, and in the day before it."""

    lags: dict[int, int | None]
    """By number of the first point of the window that is not before them: the last lag until that point."""
    behind_since_ms: int | None
    """The first look behind the last one without a lag."""
    was_behind_before: bool
    """No look saw it without a lag."""


Key = tuple[str, str, int]
NOTHING = Remembered({}, None, True)
"""Nothing has changed for so long."""
NOT_KEPT = Remembered({0: None}, None, True)
"""Nobody knows."""


def partition_lags(
    tables: Tables, groups: Sequence[str], window: Window, as_of_ms: int | None = None
) -> list[PartitionLag]:
    """The partitions of groups (patterns), the furthest behind first."""
    rows = tables.asked(f"""
        SELECT group_id, topic, partition, committed_offset, log_end_offset, lag, lag_ms, lost_records, lag_unknown,
            member_id, client_id, client_host, log_end_by FROM {tables.relation("lag", as_of_ms, groups)} l
        ORDER BY lag DESC NULLS LAST, group_id, topic, partition""")
    lags = [PartitionLag(*row[:-1])._replace(log_end_by=row[-1]) for row in rows]
    remembered = _remembered(tables, sorted({each.group_id for each in lags}), window)
    found, unchanged = [], _unchanged(tables)
    for each in lags:
        own = remembered.get((each.group_id, each.topic, each.partition), unchanged)
        since_ms, before = _behind_since(own, each.lag)
        trend = _points(own, each.lag)
        found.append(each._replace(behind_since_ms=since_ms, was_behind_before=before, trend=trend))
    return found


def group_lags(tables: Tables, groups: Sequence[str] = (), as_of_ms: int | None = None) -> list[GroupLag]:
    """Every group with its totals, the furthest behind first; without what takes history (`with_trends`)."""
    rows = tables.asked(f"""
        SELECT group_id, {added_up("lag")} AS total, max(lag_ms), {added_up("lost_records")}, count(*),
            count(*) FILTER (WHERE lag > 0), count(*) FILTER (WHERE lag IS NULL)
        FROM {tables.relation("lag", as_of_ms, groups)} l
        GROUP BY group_id ORDER BY total DESC NULLS LAST, group_id""")
    return [GroupLag(*row) for row in rows]


def with_trends(
    tables: Tables, lags: Sequence[GroupLag], window: Window, as_of_ms: int | None = None
) -> list[GroupLag]:
    """The same groups with their trends, and since when they are behind."""
    names = [each.group_id for each in lags]
    relation = tables.relation("lag", as_of_ms)
    now: dict[str, dict[Key, int | None]] = defaultdict(dict)
    for group_id, topic, partition, lag in tables.asked(
        f"SELECT group_id, topic, partition, lag FROM {relation} l WHERE group_id IN (SELECT unnest(?))", [names]
    ):
        now[group_id][group_id, topic, partition] = lag
    remembered = _remembered(tables, names, window)
    unchanged = _unchanged(tables)
    return [
        _with_trend(each, [(remembered.get(key, unchanged), lag) for key, lag in now[each.group_id].items()])
        for each in lags
    ]


def _unchanged(tables: Tables) -> Remembered:
    """What is remembered of a partition that history has nothing of."""
    return NOT_KEPT if tables.not_kept("lag_history") else NOTHING


def _with_trend(group: GroupLag, partitions: Sequence[tuple[Remembered, int | None]]) -> GroupLag:
    all_since = (_behind_since(remembered, lag) for remembered, lag in partitions)
    since_ms, before = min((each for each in all_since if each[0] is not None), default=(None, None))
    trends = [_points(remembered, lag) for remembered, lag in partitions]
    return group._replace(
        behind_since_ms=since_ms,
        was_behind_before=before,
        trend=tuple(map(_sum, zip(*trends, strict=True))),
    )


def _sum(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _remembered(tables: Tables, groups: Sequence[str], window: Window) -> dict[Key, Remembered]:
    """Of these groups. Rows are added up where they are: a large cluster has thousands for each point."""
    after = f"at_ms - {window.points_ms[0]} + {window.step_ms - 1}"
    rows = tables.asked(
        f"""SELECT group_id, topic, partition, greatest({after}, 0) // {window.step_ms} AS point,
            max_by(coalesce(lag, -1), at_ms), min(at_ms) FILTER (at_ms > coalesce(zero_ms, -1)), any_value(zero_ms)
        FROM (
            SELECT group_id, topic, partition, at_ms, lag, max(CASE WHEN lag = 0 THEN at_ms END) OVER (
                PARTITION BY group_id, topic, partition
            ) AS zero_ms FROM {tables.relation("lag_history")} h
            WHERE interval_start_ms >= {window.since_ms - DAY_MS} AND at_ms <= {window.until_ms}
                AND group_id IN (SELECT unnest(?))
        ) s GROUP BY group_id, topic, partition, point""",
        [groups],
    )
    found: dict[Key, Remembered] = {}
    for group_id, topic, partition, point, lag, since_ms, zero_ms in rows:
        key = group_id, topic, partition
        known = found.get(key) or Remembered({}, since_ms, zero_ms is None)
        known.lags[point] = None if lag < 0 else lag
        seen = [each for each in (known.behind_since_ms, since_ms) if each is not None]
        found[key] = known._replace(behind_since_ms=min(seen, default=None))
    return found


def _points(known: Remembered, now: int | None) -> tuple[int | None, ...]:
    """The lag at each point of a window; the last one is that of now."""
    if not known.lags:
        return (now,) * POINTS
    lags, held = [], None
    for point in range(POINTS - 1):
        held = known.lags.get(point, held)
        lags.append(held)
    return (*lags, now)


def _behind_since(known: Remembered, now: int | None) -> tuple[int, bool] | tuple[None, None]:
    """Since when it has been behind at every look, and whether it was so before the first look that is known."""
    if not now or known.behind_since_ms is None:
        return None, None
    return known.behind_since_ms, known.was_behind_before
