"""Who is behind, by how much, since when, and how that came: `lag` beside what `lag_history` remembers of it.

`lag_history` has a row where something changed. Between two rows nothing did, so what was true at one holds until the
next; where there is none in the time that is looked at, it is as it is now.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.tables.reading import Tables

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
    """Since when it is behind. None: it is not, or nobody saw it."""
    was_behind_before: bool | None = None
    """Whether it was behind then already: nobody looked before, or looks further back were not looked at."""
    trend: tuple[int | None, ...] = ()
    """Lags at equal distances, the last one now."""


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
    def points_ms(self) -> list[int]:
        step = (self.until_ms - self.since_ms) / (POINTS - 1)
        return [round(self.since_ms + place * step) for place in range(POINTS)]


class Step(NamedTuple):
    """A lag from a moment on."""

    at_ms: int
    lag: int | None


Key = tuple[str, str, int]


def partition_lags(
    tables: Tables, groups: Sequence[str], window: Window, as_of_ms: int | None = None
) -> list[PartitionLag]:
    """The partitions of groups (patterns), the furthest behind first."""
    rows = tables.asked(f"""
        SELECT group_id, topic, partition, committed_offset, log_end_offset, lag, lag_ms, lost_records, lag_unknown,
            member_id, client_id, client_host FROM {tables.relation("lag", as_of_ms, groups)} l
        ORDER BY lag DESC NULLS LAST, group_id, topic, partition""")
    lags = [PartitionLag(*row) for row in rows]
    steps = _steps(tables, sorted({each.group_id for each in lags}), window)
    found = []
    for each in lags:
        own = steps.get((each.group_id, each.topic, each.partition), [])
        since_ms, before = _behind_since(own, each.lag)
        trend = _points(own, window, each.lag)
        found.append(each._replace(behind_since_ms=since_ms, was_behind_before=before, trend=trend))
    return found


def group_lags(tables: Tables, groups: Sequence[str] = (), as_of_ms: int | None = None) -> list[GroupLag]:
    """Every group with its totals, the furthest behind first; without what takes history (`with_trends`)."""
    rows = tables.asked(f"""
        SELECT group_id, sum(lag)::BIGINT AS total, max(lag_ms), sum(lost_records)::BIGINT, count(*),
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
    steps = _steps(tables, names, window)
    return [_with_trend(each, now[each.group_id], steps, window) for each in lags]


def _with_trend(group: GroupLag, now: dict[Key, int | None], steps: dict[Key, list[Step]], window: Window) -> GroupLag:
    all_since = (_behind_since(steps.get(key, []), lag) for key, lag in now.items())
    since_ms, before = min((each for each in all_since if each[0] is not None), default=(None, None))
    trends = [_points(steps.get(key, []), window, lag) for key, lag in now.items()]
    return group._replace(
        behind_since_ms=since_ms,
        was_behind_before=before,
        trend=tuple(map(_sum, zip(*trends, strict=True))),
    )


def _sum(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _steps(tables: Tables, groups: Sequence[str], window: Window) -> dict[Key, list[Step]]:
    """What is remembered of these groups in a window, and of the day before it."""
    found: dict[Key, list[Step]] = defaultdict(list)
    rows = tables.asked(
        f"""SELECT group_id, topic, partition, at_ms, lag FROM {tables.relation("lag_history")} h
        WHERE interval_start_ms >= {window.since_ms - DAY_MS} AND at_ms <= {window.until_ms}
            AND group_id IN (SELECT unnest(?)) ORDER BY at_ms""",
        [groups],
    )
    for group_id, topic, partition, at_ms, lag in rows:
        found[group_id, topic, partition].append(Step(at_ms, lag))
    return found


def _points(steps: list[Step], window: Window, now: int | None) -> tuple[int | None, ...]:
    """The lag at each point of a window; the last one is that of now."""
    if not steps:
        return (now,) * POINTS
    lags, place, held = [], 0, None
    for point_ms in window.points_ms[:-1]:
        while place < len(steps) and steps[place].at_ms <= point_ms:
            held = steps[place].lag
            place += 1
        lags.append(held)
    return (*lags, now)


def _behind_since(steps: list[Step], now: int | None) -> tuple[int, bool] | tuple[None, None]:
    """Since when it has been behind at every look, and whether it was so before the first look that is known."""
    since_ms = None
    for step in reversed(steps if now else []):
        if step.lag == 0:
            return (None, None) if since_ms is None else (since_ms, False)
        since_ms = step.at_ms
    return (None, None) if since_ms is None else (since_ms, True)
