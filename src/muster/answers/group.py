"""One group in a few facts, now or as of a moment; they add up to what the list of all groups says of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.answers.overview import of_partitions
from muster.answers.partitions import PartitionLine
from muster.answers.timeline import Timeline
from muster.tables.reading import Tables


class GroupFacts(NamedTuple):
    """None: not known, or there is none."""

    group_id: str
    verdict: str | None
    worst: str | None
    since_ms: int | None
    lag: int | None
    lag_ms: int | None
    partitions: int
    members: int | None
    state: str | None
    """This and what follows: of now only."""
    type: str | None
    generation: int | None
    protocol: str | None
    last_commit_ms: int | None
    expires_ms: int | None


def group_facts(
    tables: Tables, group_id: str, lines: Sequence[PartitionLine], drawn: Timeline, at_ms: int | None = None
) -> GroupFacts:
    """What is said of a group, from its partitions and its timeline as of the same moment."""
    lags = [line.lag for line in lines if line.lag is not None]
    times = [line.lag_ms for line in lines if line.lag_ms is not None]
    commits = [line.last_commit_ms for line in lines if line.last_commit_ms is not None]
    said = of_partitions((line.verdict, line.since_ms) for line in lines)
    members, state, kind, generation, protocol = _of_now(tables, group_id)
    expires_ms = _expires_ms(tables, group_id)
    if at_ms is not None:
        members, state, kind, generation, protocol, expires_ms = len(drawn.owners()), None, None, None, None, None
    return GroupFacts(
        group_id,
        *said,
        sum(lags) if lags else None,
        max(times, default=None),
        len(lines),
        members,
        state,
        kind,
        generation,
        protocol,
        max(commits, default=None),
        expires_ms,
    )


def _of_now(tables: Tables, group_id: str) -> tuple[Any, ...]:
    rows = tables.asked(
        f"SELECT members, state, type, generation, protocol FROM {tables.relation('groups')} g WHERE group_id = ?",
        [group_id],
    )
    return rows[0] if rows else (None,) * 5


def _expires_ms(tables: Tables, group_id: str) -> int | None:
    sql = f"SELECT min(expires_at_ms) FROM {tables.relation('expiry')} e WHERE group_id = ?"
    found: int | None = tables.asked(sql, [group_id])[0][0]
    return found
