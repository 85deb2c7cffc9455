"""What happened to one group: how it does, what happened to it in order, what will happen, and what to do.

Facts only, each with its time; `cli/questions/why.py` says them in words.
"""

from collections.abc import Sequence
from typing import NamedTuple

from muster.answers.findings import Finding, findings
from muster.answers.status import GroupStatus, group_status
from muster.answers.timeline import RETURNED
from muster.patterns import exactly
from muster.tables.reading import Tables
from muster.tables.sql.queries import COUNTS, added_up

REBALANCE, RETURN, VERDICT, REWIND, DELETION = "rebalance", "return", "verdict", "rewind", "deletion"
"""A return is that of a static member, for which nothing stops."""
MOST_EVENTS = 200


class Event(NamedTuple):
    """Something that happened to the group."""

    at_ms: int | None
    kind: str
    what: str
    """The cause of a rebalance, a verdict, how offsets were deleted."""
    number: int | None = None
    """Members after a rebalance; partitions with that verdict; records that were rewound; offsets deleted."""
    length_ms: int | None = None
    """How long the group did not commit around a rebalance; the interval in which it went back."""
    who: tuple[str, ...] = ()
    """Members that came (+) and went (-)."""


class Group(NamedTuple):
    group_id: str
    type: str
    state: str
    generation: int | None
    protocol: str | None
    members: int
    topics: tuple[str, ...]
    committed_partitions: int


class Why(NamedTuple):
    group: Group
    status: GroupStatus
    events: list[Event]
    """The oldest first."""
    events_before: int
    """That were left out since there were too many."""
    commits: int
    """In the same time."""
    findings: list[Finding]


def why(tables: Tables, group_id: str, since_ms: int, as_of_ms: int | None = None) -> Why | None:
    """All there is to say of a group; None if there is none of this name."""
    group = _group(tables, group_id, as_of_ms)
    if group is None:
        return None
    (status,) = group_status(tables, [exactly(group_id)], as_of_ms)
    events = _events(tables, group_id, since_ms, as_of_ms)
    told = findings(tables, [exactly(group_id)], as_of_ms=as_of_ms)
    commits = _commits(tables, group_id, since_ms, as_of_ms)
    return Why(group, status, events[-MOST_EVENTS:], max(len(events) - MOST_EVENTS, 0), commits, told)


def _group(tables: Tables, group_id: str, as_of_ms: int | None) -> Group | None:
    only = [exactly(group_id)]
    groups, offsets = (tables.relation(name, as_of_ms, only) for name in ("groups", "offsets"))
    rows = tables.asked(
        f"""SELECT g.group_id, g.type, g.state, g.generation, g.protocol, g.members,
            (SELECT list(DISTINCT o.topic ORDER BY o.topic) FROM {offsets} o), g.committed_partitions
        FROM {groups} g WHERE g.group_id = ?""",
        [group_id],
    )
    if not rows:
        return None
    row = rows[0]
    return Group(row[0], row[1], row[2], row[3], row[4], row[5], tuple(row[6] or ()), row[7])


def _commits(tables: Tables, group_id: str, since_ms: int, as_of_ms: int | None) -> int:
    relation = tables.relation("commits", as_of_ms, [exactly(group_id)])
    ((found,),) = tables.asked(
        f"""SELECT count(*) FROM {relation} c
        WHERE kind = 'commit' AND {COUNTS} AND coalesce(timestamp_ms, commit_timestamp_ms) >= ?""",
        [since_ms],
    )
    return int(found)


def _events(tables: Tables, group_id: str, since_ms: int, as_of_ms: int | None) -> list[Event]:
    only = [exactly(group_id)]

    def asked(table: str, sql: str) -> list[tuple[object, ...]]:
        relation = tables.relation(table, as_of_ms, only)
        return tables.asked(sql.format(relation=relation), [group_id, since_ms])

    rebalances = asked(
        "rebalances",
        """SELECT at_ms, coalesce(cause, 'not known'), members, commit_gap_ms, joined, "left" FROM {relation} r
        WHERE group_id = ? AND at_ms >= ?""",
    )
    verdicts = asked(
        "verdicts",
        """SELECT at_ms, coalesce(verdict, 'nothing to judge'), count(*) FROM {relation} r
        WHERE group_id = ? AND at_ms >= ? GROUP BY ALL""",
    )
    rewinds = asked(
        "rates",
        f"""SELECT interval_start_ms, {added_up("rewound")}, sum(rewinds)::BIGINT, max(interval_ms) FROM {{relation}} r
        WHERE group_id = ? AND interval_start_ms >= ? AND rewinds > 0 GROUP BY interval_start_ms""",
    )
    deletions = asked(
        "commits",
        """SELECT coalesce(timestamp_ms, previous_commit_timestamp_ms) AS at_ms, kind, count(*) FROM {relation} r
        WHERE group_id = ? AND coalesce(timestamp_ms, previous_commit_timestamp_ms) >= ? AND kind <> 'commit'
        GROUP BY ALL""",
    )
    events = [Event(at, RETURN if cause == RETURNED else REBALANCE, cause, members, gap, _who(joined, left))  # type: ignore[arg-type]
              for at, cause, members, gap, joined, left in rebalances]  # fmt: skip
    events += [Event(at, VERDICT, verdict, partitions) for at, verdict, partitions in verdicts]  # type: ignore[arg-type]
    events += [Event(at, REWIND, _how_often(times), records, length)  # type: ignore[arg-type]
               for at, records, times, length in rewinds]  # fmt: skip
    events += [Event(at, DELETION, kind, offsets) for at, kind, offsets in deletions]  # type: ignore[arg-type]
    return sorted(events, key=lambda event: (event.at_ms or 0, event.kind))


def _how_often(times: object) -> str:
    return "once" if times == 1 else f"{times} times"


def _who(joined: object, left: object) -> tuple[str, ...]:
    came: Sequence[str] = joined if isinstance(joined, list) else ()
    went: Sequence[str] = left if isinstance(left, list) else ()
    return (*(f"+{member}" for member in came), *(f"-{member}" for member in went))
