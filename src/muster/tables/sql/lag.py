"""SQL for lag: how far each group is behind the end of the log, in records and in time; in the dialect that Spark and
duckdb share, as in `queries`.

Unknown is NULL and never 0. Where the end of a topic was not looked at, its lag is not known, nor where a group has
committed up to that end or beyond it after the look. (`greatest` skips NULL, so where that would be wrong it is asked
only if both sides are there.) Time lag is exact where `times` has the timestamp of the first record not consumed yet.
Otherwise it is interpolated between two observations of the end of the log, the last that was not beyond the
committed offset and the first that was; a commit older than all observations has no time lag.
"""

from muster.tables.clocks import AHEAD_MS
from muster.tables.schemas import LAG
from muster.tables.sql.ends import observations, same_log
from muster.tables.sql.queries import SPARK_EXPLODE, difference


def owners(members: str, explode: str = SPARK_EXPLODE) -> str:
    """Which member has a partition: `group_id`, `topic`, `partition` and the member's columns.

    Share groups give a partition to many, and streams groups assign tasks: neither is here. Two owners can only be the
    work of a client's own assignor; one of them is shown.
    """
    assigned = f"""
        SELECT m.group_id, m.member_id, {explode}(m.assignment) AS a FROM {members} m
        WHERE m.type IN ('classic', 'consumer')"""
    each = f"""
        SELECT b.group_id, b.member_id, b.a.topic AS topic, {explode}(b.a.partitions) AS partition
        FROM ({assigned}) b"""
    return f"""
        SELECT o.group_id, o.topic, o.partition, o.member_id, c.client_id, c.client_host FROM (
            SELECT p.group_id, p.topic, p.partition, min(p.member_id) AS member_id FROM ({each}) p
            WHERE p.topic IS NOT NULL GROUP BY p.group_id, p.topic, p.partition
        ) o JOIN {members} c ON o.group_id = c.group_id AND o.member_id = c.member_id"""


def _passed(offsets: str, log_ends: str, newest: str) -> str:
    """When the log's end passed each committed offset: `group_id`, `topic`, `partition`, `passed_at_ms` or NULL.

    Observations and commits of a partition are put in one row by offset, and each commit looks to both sides. What was
    observed of a topic that was made anew since counts for nothing, nor does what is dated later than the `newest`
    ends, but for the observation that such an end is drawn to.
    """
    seen = f"""
        SELECT o.topic, o.partition, o.topic_id, o.log_end_offset, o.observed_at_ms FROM {log_ends} o
        JOIN (SELECT DISTINCT c.topic, c.partition FROM {offsets} c) k ON {same_log("o", "k")}
        WHERE o.observed_at_ms <= (SELECT max(n.observed_at_ms) FROM {newest} n)
        UNION ALL
        SELECT n.topic, n.partition, NULL, n.log_end_most, n.next_ms FROM {newest} n WHERE n.next_ms IS NOT NULL"""
    window = "PARTITION BY p.topic, p.partition ORDER BY p.place, p.is_commit ROWS BETWEEN"
    return f"""
        SELECT w.group_id, w.topic, w.partition,
            CASE WHEN w.right_ms >= w.left_ms THEN CAST(round(w.right_ms
                - CAST(w.right_offset - w.place AS DOUBLE) * CAST(w.right_ms - w.left_ms AS DOUBLE)
                / CAST(w.right_offset - w.left_offset AS DOUBLE)) AS BIGINT) END AS passed_at_ms
        FROM (
            SELECT p.group_id, p.topic, p.partition, p.place, p.is_commit,
                max(p.last_ms) OVER ({window} UNBOUNDED PRECEDING AND CURRENT ROW) AS left_ms,
                max(p.observed) OVER ({window} UNBOUNDED PRECEDING AND CURRENT ROW) AS left_offset,
                min(p.first_ms) OVER ({window} CURRENT ROW AND UNBOUNDED FOLLOWING) AS right_ms,
                min(p.observed) OVER ({window} CURRENT ROW AND UNBOUNDED FOLLOWING) AS right_offset
            FROM (
                SELECT NULL AS group_id, r.topic, r.partition, r.log_end_offset AS place, 0 AS is_commit,
                    r.log_end_offset AS observed, min(r.observed_at_ms) AS first_ms, max(r.observed_at_ms) AS last_ms
                FROM (
                    SELECT e.*, max(e.era) OVER (PARTITION BY e.topic, e.partition) AS last_era
                    FROM ({observations(f"({seen})")}) e
                ) r WHERE r.era = r.last_era
                GROUP BY r.topic, r.partition, r.log_end_offset
                UNION ALL
                SELECT o.group_id, o.topic, o.partition, o.committed_offset AS place, 1 AS is_commit,
                    NULL AS observed, NULL AS first_ms, NULL AS last_ms FROM {offsets} o
            ) p
        ) w WHERE w.is_commit = 1"""


def _raised(name: str, most: str, beyond: str) -> str:
    """An offset of the log, no less than what was committed, as far as it can have been; `beyond` if it cannot."""
    return f"""CASE WHEN w.committed_offset > e.{most} THEN e.{beyond}
        WHEN w.committed_offset > e.{name} THEN w.committed_offset ELSE e.{name} END AS {name}"""


def lag(
    offsets: str,
    log_ends: str,
    newest: str,
    members: str,
    times: str | None = None,
    explode: str = SPARK_EXPLODE,
    is_of_a_run: bool = False,
) -> str:
    """How far each group is behind, for what it has committed and for what is assigned to its members.

    `newest` are the ends that count, rows of `ends.newest_ends` or `ends.ends_at`. `lag` counts from the log's start
    where the commit is below it, leaves out transaction markers at the very end where the observation could tell, and
    is 0 for a commit beyond the end; `offset_lag` and `stable_lag` are plain differences, so negative there. `times`
    has the columns of TIMES. In a run, ends are known to be as new as the commits; otherwise a commit with a later time
    than the end makes the lag unknown, unless it is below the end all the same. An end that was drawn is no less than
    what the group had committed, as far as it can have been.
    """
    is_later = "coalesce(w.commit_at_ms > e.observed_at_ms AND w.committed_offset >= e.log_end_offset, FALSE)"
    is_outdated = "FALSE" if is_of_a_run else is_later
    exact = (
        "SELECT NULL AS topic, NULL AS partition, NULL AS place, NULL AS timestamp_ms WHERE 1 = 0"
        if times is None
        else f"""SELECT t.topic, t.partition, t.offset AS place, min(t.timestamp_ms) AS timestamp_ms FROM {times} t
            WHERE t.timestamp_ms IS NOT NULL GROUP BY t.topic, t.partition, t.offset"""
    )
    return f"""
        WITH newest AS (SELECT * FROM {newest} n
        ), wanted AS (
            SELECT o.group_id, o.topic, o.partition, o.committed_offset, o.commit_timestamp_ms, o.leader_epoch,
                o.metadata, w.member_id, w.client_id, w.client_host,
                coalesce(o.timestamp_ms, o.commit_timestamp_ms) AS commit_at_ms
            FROM {offsets} o LEFT JOIN ({owners(members, explode)}) w
                ON o.group_id = w.group_id AND o.topic = w.topic AND o.partition = w.partition
            UNION ALL
            SELECT w.group_id, w.topic, w.partition, NULL, NULL, NULL, NULL, w.member_id, w.client_id, w.client_host,
                NULL
            FROM ({owners(members, explode)}) w LEFT JOIN {offsets} o
                ON o.group_id = w.group_id AND o.topic = w.topic AND o.partition = w.partition
            WHERE o.group_id IS NULL
        ), placed AS (
            SELECT w.*, e.log_start_offset, e.log_end_by, e.observed_at_ms,
                {_raised("log_end_offset", "log_end_most", "log_end_most")},
                {_raised("last_stable_offset", "last_stable_most", "last_stable_offset")},
                coalesce(e.data_end_offset, e.log_end_offset) AS data_end_offset, {is_outdated} AS is_outdated,
                CASE WHEN {is_outdated} THEN NULL ELSE w.committed_offset END AS place
            FROM wanted w LEFT JOIN newest e ON w.topic = e.topic AND w.partition = e.partition
        ), measured AS (
            SELECT p.*, {difference("p.log_end_offset", "p.place")} AS offset_lag,
                {difference("p.last_stable_offset", "p.place")} AS stable_lag,
                CASE WHEN p.place IS NOT NULL
                    THEN {difference("p.data_end_offset", "greatest(p.place, p.log_start_offset)")} END AS behind,
                CASE WHEN p.place IS NOT NULL AND p.log_start_offset IS NOT NULL
                    THEN greatest({difference("p.log_start_offset", "p.place")}, 0) END AS lost_records
            FROM placed p
        ), timed AS (
            SELECT m.*, CASE WHEN m.behind IS NOT NULL THEN greatest(m.behind, 0) END AS lag,
                CASE WHEN m.behind IS NOT NULL THEN NULL
                    WHEN m.committed_offset IS NULL THEN 'nothing committed'
                    WHEN m.is_outdated THEN 'committed after the end was observed'
                    ELSE 'end not observed' END AS lag_unknown,
                CASE WHEN m.behind <= 0 THEN 0
                    WHEN t.timestamp_ms <= m.observed_at_ms + {AHEAD_MS} AND m.behind IS NOT NULL
                        THEN greatest(m.observed_at_ms - t.timestamp_ms, 0) END AS exact_ms,
                CASE WHEN i.passed_at_ms IS NOT NULL AND m.behind IS NOT NULL
                    THEN greatest(m.observed_at_ms - i.passed_at_ms, 0) END AS interpolated_ms
            FROM measured m
            LEFT JOIN ({exact}) t ON m.topic = t.topic AND m.partition = t.partition AND m.committed_offset = t.place
            LEFT JOIN ({_passed(offsets, log_ends, "newest")}) i
                ON m.group_id = i.group_id AND m.topic = i.topic AND m.partition = i.partition
        ), named AS (
            SELECT l.*, coalesce(l.exact_ms, l.interpolated_ms) AS lag_ms,
                CASE WHEN l.exact_ms IS NOT NULL THEN 'exact'
                    WHEN l.interpolated_ms IS NOT NULL THEN 'interpolated' END AS lag_ms_by
            FROM timed l
        )
        SELECT {", ".join(f"n.{name}" for name in LAG.names)} FROM named n"""
