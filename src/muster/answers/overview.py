"""All groups in one list, now or as of a moment: how well each does, how far it is behind, what happened last."""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from muster.answers.status import WARNINGS, WORST_FIRST, group_status
from muster.answers.totals import DAY_MS, UNKNOWN, Totals, trends_of
from muster.tables.reading import Tables

TREND_POINTS = 24
RANKS = {word: rank for rank, word in enumerate(reversed(WORST_FIRST))}
"""What is said of a partition; the worst has the highest."""


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
    """Lags of the day before, the highest as the full block; a space: not known."""
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


class Verdict(NamedTuple):
    """What is said of a group."""

    overall: str | None = None
    verdict: str | None = None
    since_ms: int | None = None


NOTHING_SAID = Verdict()


def of_partitions(said: Iterable[tuple[str | None, int | None]]) -> Verdict:
    """The verdict on a group, from what is said of its partitions and since when."""
    worst, first_ms, rank = None, None, -1
    for word, since_ms in said:
        if not word or (word_rank := RANKS.get(word, len(RANKS))) < rank:
            continue
        if word_rank > rank:
            worst, first_ms, rank = word, since_ms, word_rank
        elif since_ms is not None and (first_ms is None or since_ms < first_ms):
            first_ms = since_ms
    return NOTHING_SAID if worst is None else Verdict(_of_group(worst), worst, first_ms)


@cache
def _of_group(worst: str) -> str:
    return "OK" if worst == "OK" else "WARN" if worst in WARNINGS else "ERR"


def overview(tables: Tables, totals: Totals | None, at_ms: int | None = None) -> list[GroupLine]:
    """Every group, those to look at first in front."""
    if at_ms is None:
        lines = _now(tables, totals)
    else:
        tables.check_moment(at_ms)
        lines = _as_of(tables, totals, at_ms)
    return sorted(lines, key=_urgency)


def _urgency(line: GroupLine) -> tuple[Any, ...]:
    rank = -1 if line.verdict is None else RANKS.get(line.verdict, len(RANKS))
    return -rank, -(-1 if line.lag is None else line.lag), line.group_id


# Now: from the tables of state


def _now(tables: Tables, totals: Totals | None) -> list[GroupLine]:
    behind = {row[0]: row[1:] for row in tables.asked(f"""
        SELECT group_id, sum(lag)::BIGINT, max(lag_ms), count(*), max(commit_timestamp_ms),
            list_sort(list(DISTINCT topic))
        FROM {tables.relation("lag")} l GROUP BY group_id""")}  # fmt: skip
    moved = _rebalances(tables, tables.manifest.known_until_ms)
    trends = _trends(totals, tables.manifest.known_until_ms)
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
    said = _said_at(tables, at_ms)
    moved, trends = _rebalances(tables, at_ms), _trends(totals, at_ms)
    behind = lags_by_group(totals, at_ms)
    lines = []
    for group_id in {*said, *moved, *behind}:
        lag, lag_ms, topics = behind.get(group_id, (None, None, ()))
        rebalanced_ms, cause, members = moved.get(group_id, (None, None, None))
        lines.append(GroupLine(
            group_id, *said.get(group_id, NOTHING_SAID), lag, lag_ms, trends.get(group_id, ""), None,
            members, None, rebalanced_ms, cause, None, None, tuple(topics),
        ))  # fmt: skip
    return lines


def verdicts_at(tables: Tables, columns: str, at_ms: int, only: str = "TRUE", grouped: str = "") -> str:
    """A query of what was said of partitions at a moment: `group_id`, `topic`, `partition`, `verdict` ('': nothing) and
    `since_ms`.
    """
    return f"""SELECT {columns} FROM (
        SELECT v.group_id, v.topic, v.partition, max_by(v.at_ms, v.run_number) AS since_ms,
            max_by(coalesce(v.verdict, ''), v.run_number) AS verdict
        FROM {tables.relation("verdicts")} v WHERE v.at_ms <= {int(at_ms)} AND {only}
        GROUP BY v.group_id, v.topic, v.partition
    ) w {grouped}"""


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


def _said_at(tables: Tables, at_ms: int) -> dict[str, Verdict]:
    """`of_partitions` of all groups, by duckdb: there may be ten thousand."""
    cases = " ".join(f"WHEN '{word}' THEN {rank}" for word, rank in RANKS.items())
    columns = f"group_id, verdict, min(since_ms) AS since_ms, CASE verdict {cases} ELSE {len(RANKS)} END AS rank"
    by_word = verdicts_at(tables, columns, at_ms, grouped="WHERE verdict <> '' GROUP BY group_id, verdict")
    rows = tables.asked(
        f"SELECT group_id, max_by(verdict, rank), max_by(since_ms, rank) FROM ({by_word}) b GROUP BY group_id"
    )
    return {group_id: Verdict(_of_group(worst), worst, since_ms) for group_id, worst, since_ms in rows}


def _rebalances(tables: Tables, until_ms: int) -> dict[str, tuple[int | None, str | None, int | None]]:
    """Of each group the last rebalance: when, why, and how many members there were then."""
    rows = tables.asked(f"""
        SELECT group_id, max_by(at_ms, log_offset), max_by(coalesce(cause, ''), log_offset), max_by(members, log_offset)
        FROM {tables.relation("rebalances")} r WHERE at_ms <= {int(until_ms)} GROUP BY group_id""")
    return {group_id: (at_ms, cause or None, members) for group_id, at_ms, cause, members in rows}


def _trends(totals: Totals | None, at_ms: int) -> dict[str, str]:
    if totals is None or not totals.lines:
        return {}
    lags = totals.before(at_ms, DAY_MS, TREND_POINTS)
    numbers, groups = totals.by_group()
    added = groups.added_up(lags)
    return dict(zip(numbers, trends_of(added), strict=True))
