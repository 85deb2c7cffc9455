"""What happened to one group, in order: rebalances, steps back, deletions and verdicts; commits in between counted.

A step back while the group had no members is a reset, made from outside; with members it is a rewind.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.patterns import exactly
from muster.tables.reading import Tables
from muster.tables.sql.queries import COUNTS

FOREVER = 1 << 62
FIRST_MEMBERS = "first members"
"""The cause of a group's first rebalance."""
MOST_ROWS = 20_000
"""Of each kind of event that is looked at, the newest: a limit on what a group that flaps for a year can cost."""


class Event(NamedTuple):
    """One line of a group's history."""

    group_id: str
    at_ms: int
    until_ms: int
    """Later than `at_ms` for commits, which are counted."""
    kind: str
    """`rebalance`, `commits`, `rewind`, `reset`, `deleted`, `expired`, `vanished` or `verdict`."""
    topic: str | None
    partition: int | None
    number: int
    """Commits, or partitions that the same happened to at once."""
    offset_before: int | None
    offset_after: int | None
    generation: int | None
    members: int | None
    cause: str | None
    """Of a rebalance; of a verdict, the verdict."""
    joined: list[str]
    left: list[str]
    commit_gap_ms: int | None


def history(
    tables: Tables, group_id: str, since_ms: int | None = None, until_ms: int | None = None, as_of_ms: int | None = None
) -> list[Event]:
    """The history of a group, oldest first; commits between two other events are one event."""
    bounds = f"BETWEEN {since_ms or 0} AND {until_ms or FOREVER}"
    events = _rebalances(tables, group_id, bounds, as_of_ms)
    events += _deletions(tables, group_id, bounds, as_of_ms)
    events += _steps_back(tables, group_id, bounds, as_of_ms, _empty_spans(tables, group_id, as_of_ms))
    events += _verdicts(tables, group_id, bounds, as_of_ms)
    events += _commits(tables, group_id, bounds, as_of_ms, sorted({event.at_ms for event in events}))
    return sorted(events, key=lambda event: (event.at_ms, event.until_ms, event.kind, event.topic or ""))


def _event(group_id: str, at_ms: int, kind: str, **more: Any) -> Event:
    nothing: dict[str, Any] = dict.fromkeys(Event._fields)
    known = {"group_id": group_id, "at_ms": at_ms, "until_ms": at_ms, "kind": kind, "number": 1}
    return Event(**(nothing | known | {"joined": [], "left": []} | more))


def _rebalances(tables: Tables, group_id: str, bounds: str, as_of_ms: int | None) -> list[Event]:
    rows = tables.asked(
        f"""SELECT at_ms, generation, members, cause, joined, "left", commit_gap_ms
        FROM {tables.relation("rebalances", as_of_ms, [exactly(group_id)])} r WHERE at_ms {bounds}
        ORDER BY at_ms DESC LIMIT {MOST_ROWS}"""
    )
    names = ("generation", "members", "cause", "joined", "left", "commit_gap_ms")
    found = []
    for at_ms, *values in rows:
        told = dict(zip(names, values, strict=True))
        told |= {"joined": told["joined"] or [], "left": told["left"] or []}
        found.append(_event(group_id, at_ms, "rebalance", **told))
    return found


def _deletions(tables: Tables, group_id: str, bounds: str, as_of_ms: int | None) -> list[Event]:
    """What was deleted at once of one topic is one event."""
    rows = tables.asked(
        f"""SELECT coalesce(timestamp_ms, previous_commit_timestamp_ms) AS ms, kind, topic, count(*), min(partition)
        FROM {tables.relation("commits", as_of_ms, [exactly(group_id)])} c
        WHERE kind <> 'commit' AND coalesce(timestamp_ms, previous_commit_timestamp_ms) {bounds}
        GROUP BY ms, kind, topic ORDER BY ms DESC LIMIT {MOST_ROWS}"""
    )
    return [
        _event(group_id, ms, kind, topic=topic, number=count, partition=partition if count == 1 else None)
        for ms, kind, topic, count, partition in rows
    ]


def _steps_back(
    tables: Tables, group_id: str, bounds: str, as_of_ms: int | None, empty: Sequence[tuple[int, int]]
) -> list[Event]:
    rows = tables.asked(
        f"""SELECT ms, topic, partition, before, committed_offset FROM (
            SELECT coalesce(timestamp_ms, commit_timestamp_ms) AS ms, topic, partition, kind, committed_offset,
                lag(committed_offset) OVER (PARTITION BY topic, partition ORDER BY log_offset) AS before
            FROM {tables.relation("commits", as_of_ms, [exactly(group_id)])} c
            WHERE {COUNTS}
        ) s WHERE kind = 'commit' AND committed_offset < before AND ms {bounds} ORDER BY ms DESC LIMIT {MOST_ROWS}"""
    )
    return [
        _event(
            group_id,
            ms,
            "reset" if any(first <= ms < last for first, last in empty) else "rewind",
            topic=topic,
            partition=partition,
            offset_before=before,
            offset_after=after,
        )
        for ms, topic, partition, before, after in rows
    ]


def _empty_spans(tables: Tables, group_id: str, as_of_ms: int | None) -> list[tuple[int, int]]:
    """When the group had no members: also before its first ones came, and always where none ever did."""
    rows = tables.asked(
        f"""SELECT at_ms, members, cause FROM {tables.relation("rebalances", as_of_ms, [exactly(group_id)])} r
        WHERE at_ms IS NOT NULL ORDER BY at_ms, log_offset"""
    )
    if not rows:
        return [(0, FOREVER)] if _has_no_members(tables, group_id, as_of_ms) else []
    ends = [*(at_ms for at_ms, _, _ in rows[1:]), FOREVER]
    spans = [(at_ms, end) for (at_ms, members, _), end in zip(rows, ends, strict=True) if members == 0]
    return [(0, rows[0][0]), *spans] if rows[0][2] == FIRST_MEMBERS else spans


def _has_no_members(tables: Tables, group_id: str, as_of_ms: int | None) -> bool:
    """Of a group without rebalances: it commits from outside, unless what came before was lost to compaction."""
    rows = tables.asked(
        f"SELECT members FROM {tables.relation('groups', as_of_ms, [exactly(group_id)])} g WHERE members > 0"
    )
    return not rows


def _verdicts(tables: Tables, group_id: str, bounds: str, as_of_ms: int | None) -> list[Event]:
    """Verdicts that changed at one look are one event for each topic and verdict."""
    until = "" if as_of_ms is None else f" AND at_ms <= {as_of_ms}"
    rows = tables.asked(
        f"""SELECT at_ms, topic, verdict, count(*), min(partition)
        FROM {tables.relation("verdicts", None, [exactly(group_id)])} v
        WHERE verdict IS NOT NULL AND at_ms {bounds}{until}
        GROUP BY at_ms, topic, verdict ORDER BY at_ms DESC LIMIT {MOST_ROWS}"""
    )
    return [
        _event(group_id, at_ms, "verdict", topic=topic, cause=verdict, number=count,
               partition=partition if count == 1 else None)
        for at_ms, topic, verdict, count, partition in rows
    ]  # fmt: skip


def _commits(tables: Tables, group_id: str, bounds: str, as_of_ms: int | None, breaks: Sequence[int]) -> list[Event]:
    """Commits that are no step back, added up between other events."""
    rows = tables.asked(
        f"""SELECT ms // 1000 * 1000 AS second_ms, count(*), min(ms), max(ms) FROM (
            SELECT coalesce(timestamp_ms, commit_timestamp_ms) AS ms, kind, committed_offset,
                lag(committed_offset) OVER (PARTITION BY topic, partition ORDER BY log_offset) AS before
            FROM {tables.relation("commits", as_of_ms, [exactly(group_id)])} c WHERE {COUNTS}
        ) s WHERE kind = 'commit' AND NOT coalesce(committed_offset < before, FALSE)
            AND ms {bounds} GROUP BY second_ms ORDER BY second_ms"""
    )
    spans: dict[int, list[int]] = {}
    for _, count, first_ms, last_ms in rows:
        span = spans.setdefault(bisect_right(breaks, first_ms), [first_ms, last_ms, 0])
        span[1] = max(span[1], last_ms)
        span[2] += count
    return [
        _event(group_id, first_ms, "commits", until_ms=last_ms, number=count)
        for first_ms, last_ms, count in spans.values()
    ]
