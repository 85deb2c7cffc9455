"""SQL for `group_hours`, in the dialect that Spark and duckdb share: members, rebalances and commits, hour by hour.

Like tables by interval (`intervals`), it is made from a moment on, with the state right before it. How many members a
group has is carried on from hour to hour, a week at most: of a group that was quiet for longer nothing is known until
it is told anew, so a run looks no further back than that.
"""

from muster.tables.schemas import GROUP_HOURS
from muster.tables.sql.intervals import AT
from muster.tables.sql.queries import COUNTS, UNTIL_BEFORE, UNTIL_HERE

HOUR_MS = 3_600_000
LOOK_BACK_HOURS = 7 * 24
"""How long a group may be quiet and its members still be known."""
MOST_MEMBERS = 1 << 20

DUCKDB_SIZE = "len"
SPARK_SIZE = "array_size"
"""How many elements a list has."""

STOPPED = "('first members', 'group emptied', 'group deleted')"
"""Causes that are no interruption: no members before, or none after."""
BY_JOINING = "('first members', 'member joined')"
BY_LEAVING = "('group emptied', 'member left')"
BY_BOTH = "('members joined and left')"
BY_CHANGE = (
    "('protocol changed', 'subscription changed', 'matched topics changed', 'topology changed', 'partitions changed')"
)


def group_hours(
    commits: str, rebalances: str, since_ms: int = 0, before: str | None = None, size: str = SPARK_SIZE
) -> str:
    """Members, rebalances and commits of each group, by hour in which it had any.

    `before` has the last row of each group before `since_ms`, of the `LOOK_BACK_HOURS` before that. What a rebalance
    interrupted is counted in the hour in which the group committed again.
    """
    inner = "PARTITION BY m.group_id, m.hour_ms ORDER BY m.at_ms"
    over = "PARTITION BY {0}.group_id ORDER BY {0}.hour_ms"
    chain = "PARTITION BY l.group_id, l.chain ORDER BY l.hour_ms"
    ended = "r.first_commit_after_ms"
    states = (
        ""
        if before is None
        else f"""UNION ALL SELECT b.group_id, b.hour_ms, 0, b.last_commit_ms, b.last_commit_ms, NULL, 0, 0, 0, 0, 0,
            0, 0, NULL, NULL, b.members, NULL, NULL, 0 FROM {before} b"""
    )
    is_rebalance = "coalesce(r.generation <> r.previous_generation, TRUE) AND coalesce(r.cause, '') <> 'group deleted'"
    return f"""
        WITH moments AS (
            SELECT c.group_id, {AT} AS at_ms, {AT} - {AT} % {HOUR_MS} AS hour_ms, count(*) AS commits
            FROM {commits} c WHERE c.kind = 'commit' AND {COUNTS} AND {AT} >= {since_ms}
            GROUP BY c.group_id, {AT}, {AT} - {AT} % {HOUR_MS}
        ), gaps AS (
            SELECT m.*, m.at_ms - lag(m.at_ms) OVER ({inner}) AS gap_ms FROM moments m
        ), told AS (
            SELECT r.*, r.at_ms - r.at_ms % {HOUR_MS} AS hour_ms, {is_rebalance} AS is_rebalance,
                {size}(r.joined) AS n_joined, {size}(r.left) AS n_left
            FROM {rebalances} r WHERE r.at_ms >= {since_ms}
        ), parts AS (
            SELECT g.group_id, g.hour_ms, sum(g.commits) AS commits, min(g.at_ms) AS first_ms, max(g.at_ms) AS last_ms,
                max(g.gap_ms) AS gap_ms, 0 AS rebalances, 0 AS by_joining, 0 AS by_leaving, 0 AS by_both,
                0 AS by_change, 0 AS static_returns, 0 AS told, NULL AS n_joined, NULL AS n_left, NULL AS members,
                NULL AS least, NULL AS most, 1 AS is_new
            FROM gaps g GROUP BY g.group_id, g.hour_ms
            UNION ALL
            SELECT t.group_id, t.hour_ms, 0, NULL, NULL, NULL, sum(CASE WHEN t.is_rebalance THEN 1 ELSE 0 END),
                sum(CASE WHEN t.is_rebalance AND t.cause IN {BY_JOINING} THEN 1 ELSE 0 END),
                sum(CASE WHEN t.is_rebalance AND t.cause IN {BY_LEAVING} THEN 1 ELSE 0 END),
                sum(CASE WHEN t.is_rebalance AND t.cause IN {BY_BOTH} THEN 1 ELSE 0 END),
                sum(CASE WHEN t.is_rebalance AND t.cause IN {BY_CHANGE} THEN 1 ELSE 0 END),
                sum(CASE WHEN t.cause IN ('static member returned', 'static member replaced') THEN 1 ELSE 0 END),
                count(*), sum(t.n_joined), sum(t.n_left), max_by(t.members, t.log_offset),
                min(t.members), max(t.members), 1
            FROM told t GROUP BY t.group_id, t.hour_ms
            {states}
        ), interruptions AS (
            SELECT r.group_id, {ended} - {ended} % {HOUR_MS} AS hour_ms, sum(r.commit_gap_ms) AS interrupted_ms
            FROM {rebalances} r WHERE {ended} >= {since_ms} AND r.commit_gap_ms IS NOT NULL
                AND coalesce(r.cause, '') NOT IN {STOPPED}
            GROUP BY r.group_id, {ended} - {ended} % {HOUR_MS}
        ), hours AS (
            SELECT p.group_id, p.hour_ms, sum(p.commits) AS commits, min(p.first_ms) AS first_ms,
                max(p.last_ms) AS last_ms, max(p.gap_ms) AS gap_ms, sum(p.rebalances) AS rebalances,
                sum(p.by_joining) AS by_joining, sum(p.by_leaving) AS by_leaving, sum(p.by_both) AS by_both,
                sum(p.by_change) AS by_change, sum(p.static_returns) AS static_returns, sum(p.told) AS told,
                sum(p.n_joined) AS n_joined, sum(p.n_left) AS n_left, max(p.members) AS members, min(p.least) AS least,
                max(p.most) AS most, max(p.is_new) AS is_new
            FROM parts p GROUP BY p.group_id, p.hour_ms
        ), linked AS (
            SELECT n.*, sum(n.is_apart) OVER ({over.format("n")} {UNTIL_HERE}) AS chain FROM (
                SELECT h.*, CASE WHEN h.hour_ms - lag(h.hour_ms) OVER ({over.format("h")})
                    > {LOOK_BACK_HOURS * HOUR_MS} THEN 1 ELSE 0 END AS is_apart
                FROM hours h
            ) n
        ), filled AS (
            SELECT l.*, max(l.last_ms) OVER ({chain} {UNTIL_HERE}) AS last_commit_ms,
                max(l.last_ms) OVER ({chain} {UNTIL_BEFORE}) AS commit_before_ms,
                max(l.hour_ms / {HOUR_MS} * {MOST_MEMBERS} + l.members) OVER ({chain} {UNTIL_HERE}) AS members_now,
                max(l.hour_ms / {HOUR_MS} * {MOST_MEMBERS} + l.members) OVER ({chain} {UNTIL_BEFORE}) AS members_before
            FROM linked l
        ), named AS (
            SELECT f.group_id, f.hour_ms, f.members_now % {MOST_MEMBERS} AS members,
                least(f.least, f.members_before % {MOST_MEMBERS}) AS members_min,
                greatest(f.most, f.members_before % {MOST_MEMBERS}) AS members_max,
                f.rebalances, f.by_joining, f.by_leaving, f.by_both, f.by_change, f.static_returns,
                CASE WHEN f.told = 0 THEN 0 ELSE f.n_joined END AS members_joined,
                CASE WHEN f.told = 0 THEN 0 ELSE f.n_left END AS members_left, f.commits,
                greatest(f.gap_ms, f.first_ms - f.commit_before_ms) AS longest_silence_ms,
                CASE WHEN i.interrupted_ms IS NOT NULL THEN i.interrupted_ms WHEN f.rebalances = 0 THEN 0 END
                    AS interrupted_ms,
                f.last_commit_ms
            FROM filled f LEFT JOIN interruptions i ON f.group_id = i.group_id AND f.hour_ms = i.hour_ms
            WHERE f.is_new = 1 AND f.hour_ms >= {since_ms}
        )
        SELECT {", ".join(f"n.{name}" for name in GROUP_HOURS.names)} FROM named n"""


def hours_before(group_hours: str, since_ms: int) -> str:
    """The last row of each group before `since_ms`, of what the last run published."""
    return f"""
        SELECT h.group_id, h.hour_ms, h.members, h.last_commit_ms FROM {group_hours} h JOIN (
            SELECT p.group_id, max(p.hour_ms) AS hour_ms FROM {group_hours} p
            WHERE p.hour_ms < {since_ms} AND p.hour_ms >= {since_ms - LOOK_BACK_HOURS * HOUR_MS} GROUP BY p.group_id
        ) n ON h.group_id = n.group_id AND h.hour_ms = n.hour_ms"""


def first_told(rebalances: str, before: str) -> str:
    """The earliest time at which rows of rebalances say something that those before did not."""
    names = "group_id, log_offset, at_ms, cause, members, joined, r.left, generation, previous_generation"
    gap = "group_id, log_offset, cause, first_commit_after_ms, commit_gap_ms"
    return f"""
        SELECT min(t.at_ms) FROM (
            SELECT d.at_ms FROM (SELECT {names} FROM {rebalances} r EXCEPT SELECT {names} FROM {before} r) d
            UNION ALL
            SELECT d.first_commit_after_ms FROM (SELECT {gap} FROM {rebalances} r EXCEPT SELECT {gap} FROM {before} r) d
        ) t"""
