"""All groups in one list, now or as of a moment: how well each does, how far it is behind, what happened last."""

from typing import Any, NamedTuple

from muster.answers.status import NO_VERDICT, group_status, group_verdicts_at, rank
from muster.answers.timeline import RETURNED
from muster.answers.totals import DAY_MS, UNKNOWN, Totals, trends_of
from muster.tables.reading import Tables
from muster.tables.sql.queries import HEADS, added_up

TREND_POINTS = 24


class GroupLine(NamedTuple):
    """One group. What is None is not known, or there is none."""

    group_id: str
    overall: str | None
    """ERR, WARN or OK."""
    verdict: str | None
    """What is said of its worst partition."""
    since_ms: int | None
    """Since when that is said of this partition; as of a moment, of the first of those it is said of."""
    lag: int | None
    lag_ms: int | None
    trend: str
    """Lags of the day before, or since the first that is known; the highest as the full block; a space: not known."""
    partitions: int | None
    """Of now only."""
    members: int | None
    state: str | None
    """Of now only."""
    rebalanced_ms: int | None
    cause: str | None
    last_commit_ms: int | None
    expires_ms: int | None
    """When the first of its offsets, or the group, will be deleted. Of now only."""
    topics: tuple[str, ...]


def overview(tables: Tables, totals: Totals | None, at_ms: int | None = None) -> list[GroupLine]:
    """Every group, those to look at first in front."""
    if at_ms is None:
        lines = _now(tables, totals)
    else:
        tables.check_moment(at_ms)
        lines = _as_of(tables, totals, at_ms)
    return sorted(lines, key=_urgency)


def _urgency(line: GroupLine) -> tuple[Any, ...]:
    return rank(line.verdict), -(-1 if line.lag is None else line.lag), line.group_id


# Now: from the tables of state


def _now(tables: Tables, totals: Totals | None) -> list[GroupLine]:
    behind = {row[0]: row[1:] for row in tables.asked(f"""
        SELECT group_id, {added_up("lag")}, max(lag_ms), count(*), max(commit_timestamp_ms),
            list_sort(list(DISTINCT topic))
        FROM {tables.relation("lag")} l GROUP BY group_id""")}  # fmt: skip
    moved = _rebalances(tables, tables.manifest.now_ms)
    trends = _trends(totals, tables.manifest.now_ms)
    lines = []
    for group in group_status(tables):
        lag, lag_ms, partitions, last_commit_ms, topics = behind.get(group.group_id, (None, None, 0, None, ()))
        rebalanced_ms, cause, _ = moved.get(group.group_id, (None, None, None))
        lines.append(GroupLine(
            group.group_id, group.overall, group.verdict, group.verdict_since_ms, lag, lag_ms,
            trends.get(group.group_id, ""), partitions, group.members, group.state, rebalanced_ms, cause,
            last_commit_ms, group.expires_at_ms, tuple(topics),
        ))  # fmt: skip
    return lines


# As of a moment: from what was said, and what was added up


def _as_of(tables: Tables, totals: Totals | None, at_ms: int) -> list[GroupLine]:
    said = group_verdicts_at(tables, at_ms)
    moved, trends = _rebalances(tables, at_ms), _trends(totals, at_ms)
    behind = lags_by_group(totals, at_ms)
    there = {*said, *behind}
    only_moved = moved.keys() - there
    lines = []
    for group_id in there | (only_moved - _deleted(tables, at_ms) if only_moved else set()):
        lag, lag_ms, topics = behind.get(group_id, (None, None, ()))
        rebalanced_ms, cause, members = moved.get(group_id, (None, None, None))
        lines.append(GroupLine(
            group_id, *said.get(group_id, NO_VERDICT), lag, lag_ms, trends.get(group_id, ""), None,
            members, None, rebalanced_ms, cause, None, None, tuple(topics),
        ))  # fmt: skip
    return lines


def _deleted(tables: Tables, at_ms: int) -> set[str]:
    """Groups whose last record until a moment says that they are no more."""
    rows = tables.asked(f"""
        SELECT group_id FROM {tables.relation("group_records")} r
        WHERE r.record_type IN {HEADS} AND r.timestamp_ms <= {int(at_ms)}
        GROUP BY group_id HAVING max_by(r.is_tombstone, r.log_offset)""")
    return {group_id for (group_id,) in rows}


def lags_by_group(totals: Totals | None, at_ms: int) -> dict[str, tuple[int | None, int | None, list[str]]]:
    """Lag, its time, and topics of every group that had committed something at a moment."""
    found = None if totals is None else totals.at(at_ms)
    groups: dict[str, tuple[int | None, int | None, list[str]]] = {}
    if totals is None or found is None:
        return groups
    for (group_id, topic), lag, lag_ms in zip(totals.lines, found[0].tolist(), found[1].tolist(), strict=True):
        if lag == UNKNOWN:
            continue
        total, longest_ms, topics = groups.get(group_id, (None, None, []))
        groups[group_id] = (total or 0) + lag, max(longest_ms or UNKNOWN, lag_ms), [*topics, topic]
    return {group_id: (lag, None if lag_ms == UNKNOWN else lag_ms, topics)
            for group_id, (lag, lag_ms, topics) in groups.items()}  # fmt: skip


def _rebalances(tables: Tables, until_ms: int) -> dict[str, tuple[int | None, str | None, int | None]]:
    """Of each group the last rebalance: when, why, and how many members there were then."""
    moved = f"WHERE cause IS DISTINCT FROM '{RETURNED}'"
    rows = tables.asked(f"""
        SELECT group_id, max_by(at_ms, log_offset) FILTER ({moved}),
            max_by(coalesce(cause, ''), log_offset) FILTER ({moved}), max_by(members, log_offset)
        FROM {tables.relation("rebalances")} r WHERE at_ms <= {int(until_ms)} GROUP BY group_id""")
    return {group_id: (at_ms, cause or None, members) for group_id, at_ms, cause, members in rows}


def _trends(totals: Totals | None, at_ms: int) -> dict[str, str]:
    if totals is None or not totals.lines:
        return {}
    begin_ms = (totals.first_ms or 0) + totals.interval_ms
    lags = totals.before(at_ms, min(DAY_MS, max(at_ms - begin_ms, totals.interval_ms)), TREND_POINTS)
    numbers, groups = totals.by_group()
    added = groups.added_up(lags)
    return dict(zip(numbers, trends_of(added), strict=True))
