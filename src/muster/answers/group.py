"""One group in a few facts, now or as of a moment; they add up to what the list of all groups says of it."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.answers.partitions import PartitionLine
from muster.answers.status import GroupStatus, group_status, worst_of
from muster.answers.timeline import Timeline
from muster.patterns import exactly
from muster.tables.reading import Tables


class GroupFacts(NamedTuple):
    """None: not known, or there is none."""

    group_id: str
    overall: str | None
    verdict: str | None
    since_ms: int | None
    lag: int | None
    lag_ms: int | None
    partitions: int
    last_commit_ms: int | None
    members: int | None
    state: str | None = None
    """This and what follows: of now only."""
    type: str | None = None
    generation: int | None = None
    protocol: str | None = None
    expires_ms: int | None = None


class KnownNow(NamedTuple):
    """What is known of a group of now."""

    status: GroupStatus
    type: str | None
    generation: int | None
    protocol: str | None


def known_now(tables: Tables, group_id: str | None = None) -> dict[str, KnownNow]:
    """By group: of one, or of all. The verdict is the one that `muster status` tells."""
    only = [] if group_id is None else [exactly(group_id)]
    rows = tables.asked(f"SELECT group_id, type, generation, protocol FROM {tables.relation('groups', groups=only)} g")
    others = {row[0]: row[1:] for row in rows}
    return {
        each.group_id: KnownNow(each, *others.get(each.group_id, (None, None, None)))
        for each in group_status(tables, only)
    }


def group_facts(
    group_id: str, lines: Sequence[PartitionLine], drawn: Timeline, known: KnownNow | None = None
) -> GroupFacts:
    """What is said of a group, from its partitions and its timeline as of the same moment, and what is known of now."""
    lags = [line.lag for line in lines if line.lag is not None]
    times = [line.lag_ms for line in lines if line.lag_ms is not None]
    commits = [line.last_commit_ms for line in lines if line.last_commit_ms is not None]
    facts = GroupFacts(
        group_id,
        *worst_of((line.verdict, line.since_ms) for line in lines),
        sum(lags) if lags else None,
        max(times, default=None),
        len(lines),
        max(commits, default=None),
        len(drawn.owners()),
    )
    if known is None:
        return facts
    status = known.status
    return facts._replace(
        overall=status.overall,
        verdict=status.verdict,
        since_ms=status.verdict_since_ms,
        members=status.members,
        state=status.state,
        type=known.type,
        generation=known.generation,
        protocol=known.protocol,
        expires_ms=status.expires_at_ms,
    )
