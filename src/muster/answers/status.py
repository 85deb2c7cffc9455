"""How well groups do: the verdicts of `status`, by partition and by group, now or as of a moment.

A verdict is made when a run of the pipeline looks. As of a moment it is the one of the last look before it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.answers.levels import Level
from muster.tables.reading import Tables
from muster.tables.sql.queries import added_up
from muster.verdicts import Verdict

ERRORS = tuple(verdict.value for verdict in Verdict if verdict.is_error and verdict is not Verdict.ERR)
WARNINGS = ("WARN", "EXPIRING")
WORST_FIRST = ("LOSING", "STOPPED", "STALLED", "REWIND", "EXPIRING", "WARN", "OK")
RANKS = {verdict: rank for rank, verdict in enumerate(WORST_FIRST)}
LAST = len(WORST_FIRST)
"""The rank of what has no verdict, or one that is not known here."""


class PartitionStatus(NamedTuple):
    group_id: str
    topic: str
    partition: int
    verdict: str | None
    """None: nothing to judge."""
    verdict_since_ms: int | None
    lag: int | None
    lag_ms: int | None
    committed_offset: int | None
    log_end_offset: int | None
    lost_records: int | None
    last_commit_ms: int | None
    expires_at_ms: int | None


class GroupStatus(NamedTuple):
    group_id: str
    verdict: str | None
    """The worst on any of its partitions; None: nothing to judge."""
    topic: str | None
    """Of the worst partition, and of its like the one that is furthest behind."""
    partition: int | None
    verdict_since_ms: int | None
    """Since when one of its partitions has that verdict: the first of those that have it now."""
    partitions: int
    partitions_not_ok: int
    lag: int | None
    """Of all partitions together, as far as it is known."""
    lag_ms: int | None
    """The longest of any partition."""
    state: str | None
    members: int | None
    last_commit_ms: int | None
    expires_at_ms: int | None
    """The earliest of any partition."""

    @property
    def where(self) -> str | None:
        """The worst partition, if it is not OK."""
        return None if self.verdict in (None, "OK") else f"{self.topic}-{self.partition}"

    @property
    def overall(self) -> str | None:
        return overall(self.verdict)


class GroupVerdict(NamedTuple):
    """What is said of a group, and since when; as of its worst partition."""

    overall: str | None = None
    verdict: str | None = None
    since_ms: int | None = None


NO_VERDICT = GroupVerdict()


def overall(verdict: str | None) -> str | None:
    """OK, WARN or ERR: Burrow's words for a group whose worst partition has this verdict."""
    return None if verdict is None else "OK" if verdict == "OK" else "WARN" if verdict in WARNINGS else "ERR"


def worst_of(partitions: Iterable[tuple[str | None, int | None]]) -> GroupVerdict:
    """The verdict on a group, from those on its partitions and since when they stand: since the first of them does, but
    it is OK since all of them are.
    """
    judged = [(verdict, since_ms) for verdict, since_ms in partitions if verdict]
    if not judged:
        return NO_VERDICT
    worst = min((verdict for verdict, _ in judged), key=rank)
    times = [since_ms for verdict, since_ms in judged if verdict == worst and since_ms is not None]
    since_ms = (max if worst == "OK" else min)(times, default=None)
    return GroupVerdict(overall(worst), worst, since_ms)


def rank(verdict: str | None) -> int:
    """Where a verdict stands in `WORST_FIRST`."""
    return RANKS.get(verdict, LAST) if verdict else LAST


def rank_sql(verdict: str) -> str:
    """The same of a column."""
    cases = " ".join(f"WHEN '{name}' THEN {place}" for name, place in RANKS.items())
    return f"CASE {verdict} {cases} ELSE {LAST} END"


def level_of(verdicts: Iterable[str | None]) -> Level:
    found = set(verdicts)
    if found & set(ERRORS):
        return Level.ERROR
    return Level.WARNING if found & set(WARNINGS) else Level.WELL


def partition_status(tables: Tables, groups: Sequence[str] = (), as_of_ms: int | None = None) -> list[PartitionStatus]:
    """Every partition that is judged, of groups that match one of the patterns; the worst first."""
    status, expiry = (tables.relation(name, as_of_ms, groups) for name in ("status", "expiry"))
    rows = tables.asked(f"""
        SELECT s.group_id, s.topic, s.partition, s.verdict, s.verdict_since_ms, s.lag, s.lag_ms, s.committed_offset,
            s.log_end_offset, s.lost_records, s.last_commit_ms, e.expires_at_ms
        FROM {status} s LEFT JOIN {expiry} e
            ON s.group_id = e.group_id AND s.topic = e.topic AND s.partition = e.partition
        ORDER BY {rank_sql("s.verdict")}, s.lag DESC NULLS LAST, s.group_id, s.topic, s.partition""")
    return [PartitionStatus(*row) for row in rows]


def group_status(tables: Tables, groups: Sequence[str] = (), as_of_ms: int | None = None) -> list[GroupStatus]:
    """Every group that matches one of the patterns, judged or not; the worst first.

    It has its verdict since the first of its partitions has it, and is OK since all of them are.
    """
    status, expiry, known = (tables.relation(name, as_of_ms, groups) for name in ("status", "expiry", "groups"))
    rows = tables.asked(f"""
        WITH judged AS (
            SELECT s.*, {rank_sql("s.verdict")} AS rank, row_number() OVER (
                PARTITION BY s.group_id
                ORDER BY {rank_sql("s.verdict")}, s.lag DESC NULLS LAST, s.verdict_since_ms, s.topic, s.partition
            ) AS place, CASE WHEN s.verdict = 'OK'
                THEN max(s.verdict_since_ms) OVER (PARTITION BY s.group_id, s.verdict)
                ELSE min(s.verdict_since_ms) OVER (PARTITION BY s.group_id, s.verdict) END AS first_ms FROM {status} s
        ), summed AS (
            SELECT j.group_id, count(*) AS partitions, count(*) FILTER (WHERE j.verdict <> 'OK') AS not_ok,
                {added_up("j.lag")} AS lag, max(j.lag_ms) AS lag_ms, max(j.last_commit_ms) AS last_commit_ms
            FROM judged j GROUP BY j.group_id
        ), expiring AS (
            SELECT e.group_id, min(e.expires_at_ms) AS expires_at_ms FROM {expiry} e GROUP BY e.group_id
        )
        SELECT coalesce(g.group_id, u.group_id), w.verdict, w.topic, w.partition, w.first_ms,
            coalesce(u.partitions, 0), coalesce(u.not_ok, 0), u.lag, u.lag_ms, g.state, g.members,
            coalesce(u.last_commit_ms, g.last_commit_timestamp_ms), e.expires_at_ms
        FROM {known} g FULL JOIN summed u ON g.group_id = u.group_id
        LEFT JOIN judged w ON w.group_id = coalesce(g.group_id, u.group_id) AND w.place = 1
        LEFT JOIN expiring e ON e.group_id = coalesce(g.group_id, u.group_id)
        ORDER BY coalesce(w.rank, {LAST}), u.lag DESC NULLS LAST, 1""")
    return [GroupStatus(*row) for row in rows]


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


def group_verdicts_at(tables: Tables, at_ms: int) -> dict[str, GroupVerdict]:
    """`worst_of` for all groups as of a moment, by duckdb: there may be ten thousand."""
    since = "CASE WHEN verdict = 'OK' THEN max(since_ms) ELSE min(since_ms) END"  # as in `group_status`
    columns = f"group_id, verdict, {since} AS since_ms, {rank_sql('verdict')} AS rank"
    by_verdict = verdicts_at(tables, columns, at_ms, grouped="WHERE verdict <> '' GROUP BY group_id, verdict")
    rows = tables.asked(
        f"SELECT group_id, min_by(verdict, rank), min_by(since_ms, rank) FROM ({by_verdict}) b GROUP BY group_id"
    )
    return {group_id: GroupVerdict(overall(worst), worst, since_ms) for group_id, worst, since_ms in rows}


def told(groups: Sequence[GroupStatus]) -> str:
    """All groups in a line: `12 groups: 9 OK, 1 WARN, 2 in error`."""
    found = Counter(group.overall for group in groups)
    words = {"ERR": "in error", "WARN": "to be watched", "OK": "OK", None: "without a verdict"}
    parts = [f"{found[verdict]:,} {word}" for verdict, word in words.items() if found[verdict]]
    groups_told = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    return f"{groups_told}: {', '.join(parts)}" if parts else groups_told
