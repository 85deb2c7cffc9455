"""SQL for `status` and `verdicts`, in the dialect that Spark and duckdb share: the rules of `muster.verdicts`.

A partition of a group is judged by its window, the last commits in the order of the log, and by the last ends that its
log was seen to have. `status` keeps the window of each row; a run adds its new commits to it (`windows`), and judges
every row anew, since ends and clock move (`judged`). On top of the rules comes what they do not know (`status`):

    LOSING     records that were to be read next are gone; above all rules
    EXPIRING   the offset will soon be deleted; in the place of OK and WARN, and where there is nothing to judge

A deletion ends a window. A commit of a transaction has its own place in the log, and counts once it is committed. The
lag of a commit is measured against the last end that was observed before it, if that was within a day; whether a lag
only grows, against the line between the ends that were observed before and after it. `log_ends` are those of the
topics as they are now (`ends.of_topics_now`): what was observed of one that was deleted since says nothing.

As elsewhere, functions take relations with inner columns, and aggregates are of fixed width where that can be.
"""

from collections.abc import Mapping

from muster.tables.schemas import STATUS, VERDICTS
from muster.tables.sql.dialects import SPARK, Dialect
from muster.tables.sql.ends import LOOK_BACK_MS, same_log
from muster.tables.sql.queries import COUNTS, UNTIL_BEFORE, UNTIL_HERE, difference
from muster.verdicts import DEFAULT_RULES

KEY = ("group_id", "topic", "partition")
DAY_MS = 24 * 3_600_000
FROM_HERE = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
COMMIT_MS = "coalesce({0}.commit_timestamp_ms, {0}.timestamp_ms, 0)"
"""The time of a commit as the client told it: windows are of what clients do. (`intervals.AT` is the record's.)"""


def _key(relation: str) -> str:
    return ", ".join(f"{relation}.{name}" for name in KEY)


def _same(left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in KEY)


def soon_ms(retention_ms: str) -> str:
    """How long before its deletion an offset counts as expiring."""
    return f"least({DAY_MS}, {retention_ms} / 4)"


def new_commits(commits: str) -> str:
    """The last commits of each key behind its last deletion, as many as a window holds."""
    return f"""
        SELECT {_key("n")}, n.committed_offset, n.commit_ms, n.log_offset FROM (
            SELECT {_key("c")}, c.committed_offset, {COMMIT_MS.format("c")} AS commit_ms, c.log_offset,
                row_number() OVER (PARTITION BY {_key("c")} ORDER BY c.log_offset DESC) AS newest
            FROM {commits} c WHERE c.kind = 'commit' AND {COUNTS}
        ) n LEFT JOIN ({deletions(commits)}) d ON {_same("n", "d")}
        WHERE n.newest <= {DEFAULT_RULES.intervals} AND (d.log_offset IS NULL OR d.log_offset <= n.log_offset)"""


def deletions(commits: str) -> str:
    """Where each key that was deleted was deleted last."""
    return f"""
        SELECT {_key("c")}, max(c.log_offset) AS log_offset FROM {commits} c WHERE c.kind <> 'commit'
        GROUP BY {_key("c")}"""


def with_lags(new: str, log_ends: str) -> str:
    """New commits with their lag when they came: NULL where no end had been observed in the day before."""
    window = f"PARTITION BY u.topic, u.partition ORDER BY u.at_ms, u.is_commit {UNTIL_HERE}"
    return f"""
        SELECT {_key("p")}, p.committed_offset, p.at_ms AS commit_ms, p.log_offset,
            CASE WHEN p.observed_at_ms >= p.at_ms - {LOOK_BACK_MS}
                THEN greatest({difference("p.log_end_offset", "p.committed_offset")}, 0) END AS lag
        FROM (
            SELECT u.*, max(u.seen_ms) OVER ({window}) AS observed_at_ms,
                max_by(u.seen_end, u.seen_ms) OVER ({window}) AS log_end_offset
            FROM (
                SELECT {_key("n")}, n.committed_offset, n.commit_ms AS at_ms, n.log_offset, 1 AS is_commit,
                    CAST(NULL AS BIGINT) AS seen_ms, CAST(NULL AS BIGINT) AS seen_end
                FROM {new} n
                UNION ALL
                SELECT NULL, o.topic, o.partition, NULL, o.at_ms, NULL, 0, o.at_ms, o.log_end_offset
                FROM ({_observed(log_ends, new)}) o
            ) u
        ) p WHERE p.is_commit = 1"""


def _end(relation: str) -> str:
    """Markers at the very end are nothing to read."""
    return f"coalesce({relation}.data_end_offset, {relation}.log_end_offset)"


def windows(arrived: str, deleted: str, before: str, dialect: Dialect = SPARK) -> str:
    """The window of each key: what `before` (rows of `status`) has of it, and what has `arrived` since (`with_lags`).

    Windows of keys of which nothing is new stay as they are; `deleted` are of `deletions`.
    """
    seen = {name: f"c.{name}" for name in ("committed_offset", "commit_ms", "lag", "log_offset")}
    return f"""
        WITH touched AS (
            SELECT {_key("a")} FROM {arrived} a UNION SELECT {_key("d")} FROM {deleted} d
        ), held AS (
            SELECT {_key("h")}, {_seen("h.c")} FROM (
                SELECT {_key("b")}, {dialect.explode}(b.window) AS c FROM {before} b JOIN touched t ON {_same("b", "t")}
            ) h LEFT JOIN {deleted} d ON {_same("h", "d")}
            WHERE d.log_offset IS NULL OR d.log_offset <= h.c.log_offset
        ), ranked AS (
            SELECT u.*, row_number() OVER (PARTITION BY {_key("u")} ORDER BY u.log_offset DESC) AS newest FROM (
                SELECT {_key("h")}, {_seen("h")} FROM held h
                UNION ALL SELECT {_key("a")}, {_seen("a")} FROM {arrived} a
            ) u
        )
        SELECT {_key("c")}, {dialect.in_order(dialect.struct(seen), "c.log_offset")} AS window
        FROM ranked c WHERE c.newest <= {DEFAULT_RULES.intervals} GROUP BY {_key("c")}
        UNION ALL
        SELECT {_key("b")}, b.window FROM {before} b LEFT JOIN touched t ON {_same("b", "t")}
        WHERE t.group_id IS NULL AND b.window IS NOT NULL"""


def _seen(source: str) -> str:
    names = ("committed_offset", "commit_ms", "lag", "log_offset")
    return ", ".join(f"{source}.{name} AS {name}" for name in names)


def seen_ends(log_ends: str, dialect: Dialect = SPARK) -> str:
    """The last ends that each log was seen to have: all of them (`ends`), the lowest and the newest."""
    return f"""
        SELECT s.topic, s.partition, {dialect.in_order("s.log_end_offset", "s.run_number")} AS ends,
            min(s.log_end_offset) AS lowest_end, max_by(s.log_end_offset, s.run_number) AS newest_end
        FROM (
            SELECT e.topic, e.partition, e.run_number, max({_end("e")}) AS log_end_offset
            FROM {log_ends} e JOIN (
                SELECT DISTINCT r.run_number FROM {log_ends} r WHERE r.run_number IS NOT NULL
                ORDER BY r.run_number DESC LIMIT {DEFAULT_RULES.intervals}
            ) n ON e.run_number = n.run_number
            WHERE {_end("e")} IS NOT NULL GROUP BY e.topic, e.partition, e.run_number
        ) s GROUP BY s.topic, s.partition"""


def judged(windows: str, ends: str, log_ends: str, at_ms: int | str, dialect: Dialect = SPARK) -> str:
    """`verdicts.evaluate` of each key that has a young commit and an end: `verdict` and `completeness`.

    What needs the order of commits is asked only of those that the first rules leave undecided.
    """
    window = f"PARTITION BY {_key('y')} ORDER BY y.log_offset"
    return f"""
        WITH young AS (
            SELECT {_key("r")}, {_seen("r.c")} FROM (
                SELECT {_key("w")}, {dialect.explode}(w.window) AS c FROM {windows} w
            ) r WHERE {at_ms} - r.c.commit_ms <= {DEFAULT_RULES.expire_group_ms}
        ), counted AS (
            SELECT {_key("y")}, CAST(count(*) AS DOUBLE) / {DEFAULT_RULES.intervals} AS completeness,
                min_by(y.commit_ms, y.log_offset) AS first_ms, max_by(y.commit_ms, y.log_offset) AS last_ms,
                max_by(y.committed_offset, y.log_offset) AS last_offset, min(y.committed_offset) AS lowest_offset,
                max(y.committed_offset) AS highest_offset, min(y.lag) AS least_lag
            FROM young y GROUP BY {_key("y")}
        ), decided AS (
            SELECT c.*, CASE WHEN c.completeness < {DEFAULT_RULES.minimum_complete} THEN 'OK'
                WHEN {difference("e.newest_end", "c.last_offset")} <= {DEFAULT_RULES.allowed_lag} THEN 'OK'
                WHEN {at_ms} - c.last_ms > c.last_ms - c.first_ms AND e.lowest_end > c.last_offset THEN 'STOPPED'
                WHEN c.lowest_offset = c.highest_offset AND c.least_lag <= {DEFAULT_RULES.allowed_lag} THEN 'OK'
                WHEN c.lowest_offset = c.highest_offset THEN 'STALLED' END AS verdict
            FROM counted c JOIN {ends} e ON {same_log("c", "e")}
        ), steps AS (
            SELECT {_key("y")}, y.log_offset,
                y.committed_offset < lag(y.committed_offset) OVER ({window}) AS is_back,
                max(y.committed_offset) OVER ({window} {FROM_HERE}) < lag(y.committed_offset) OVER ({window}) AS is_lost
            FROM young y JOIN (SELECT {_key("d")} FROM decided d WHERE d.verdict IS NULL) u ON {_same("y", "u")}
        ), moved AS (
            SELECT {_key("s")}, min_by(s.is_lost, s.log_offset) FILTER (WHERE s.is_back) AS went_back
            FROM steps s GROUP BY {_key("s")}
        ), behind AS (
            SELECT {_key("y")}, {_seen("y")} FROM young y JOIN (
                SELECT {_key("d")} FROM decided d
                WHERE d.verdict IS NULL AND coalesce(d.least_lag > {DEFAULT_RULES.allowed_lag}, TRUE)
            ) u ON {_same("y", "u")}
        ), shrunk AS (
            SELECT {_key("h")}, max(CASE WHEN h.is_shrunk THEN 1 ELSE 0 END) AS shrank FROM (
                SELECT {_key("y")}, y.lag < max(y.lag) OVER ({window} {UNTIL_BEFORE}) AS is_shrunk
                FROM ({_with_lags_then("behind", log_ends)}) y
            ) h GROUP BY {_key("h")}
        )
        SELECT {_key("d")}, d.completeness, CASE WHEN d.verdict IS NOT NULL THEN d.verdict
            WHEN m.went_back THEN 'REWIND' WHEN d.least_lag <= {DEFAULT_RULES.allowed_lag} THEN 'OK'
            WHEN h.shrank = 0 THEN 'WARN' ELSE 'OK' END AS verdict
        FROM decided d LEFT JOIN moved m ON {_same("d", "m")} LEFT JOIN shrunk h ON {_same("d", "h")}"""


def _with_lags_then(commits: str, log_ends: str) -> str:
    """Commits with their lag against the end on the line between two looks, of keys that have two such; else with the
    lag that they have.
    """
    before = f"PARTITION BY u.topic, u.partition ORDER BY u.at_ms, u.is_commit {UNTIL_HERE}"
    after = f"PARTITION BY u.topic, u.partition ORDER BY u.at_ms, u.is_commit {FROM_HERE}"
    has_line = f"""p.left_ms >= p.at_ms - {LOOK_BACK_MS} AND p.right_ms < p.at_ms + {LOOK_BACK_MS}
        AND p.right_end >= p.left_end"""
    line = """p.left_end + CAST(floor(CAST(p.right_end - p.left_end AS DOUBLE) * CAST(p.at_ms - p.left_ms AS DOUBLE)
        / CAST(p.right_ms - p.left_ms AS DOUBLE)) AS BIGINT)"""
    return f"""
        SELECT {_key("l")}, l.committed_offset, l.log_offset,
            CASE WHEN count(l.drawn) OVER (PARTITION BY {_key("l")}) > 1 THEN l.drawn ELSE l.lag END AS lag
        FROM (
            SELECT {_key("p")}, p.committed_offset, p.log_offset, p.lag,
                CASE WHEN {has_line} THEN greatest({difference(line, "p.committed_offset")}, 0) END AS drawn
            FROM (
                SELECT u.*, max(u.seen_ms) OVER ({before}) AS left_ms,
                    max_by(u.seen_end, u.seen_ms) OVER ({before}) AS left_end,
                    min(u.seen_ms) OVER ({after}) AS right_ms, min_by(u.seen_end, u.seen_ms) OVER ({after}) AS right_end
                FROM (
                    SELECT {_key("n")}, n.committed_offset, n.commit_ms AS at_ms, n.log_offset, n.lag, 1 AS is_commit,
                        CAST(NULL AS BIGINT) AS seen_ms, CAST(NULL AS BIGINT) AS seen_end
                    FROM {commits} n
                    UNION ALL
                    SELECT NULL, o.topic, o.partition, NULL, o.at_ms, NULL, NULL, 0, o.at_ms, o.log_end_offset
                    FROM ({_observed(log_ends, commits)}) o
                ) u
            ) p WHERE p.is_commit = 1
        ) l"""


def _observed(log_ends: str, commits: str) -> str:
    """Ends of the logs that these commits are of, whenever they were observed."""
    return f"""
        SELECT e.topic, e.partition, e.observed_at_ms AS at_ms, max({_end("e")}) AS log_end_offset
        FROM {log_ends} e JOIN (SELECT DISTINCT n.topic, n.partition FROM {commits} n) t ON {same_log("e", "t")}
        WHERE e.observed_at_ms IS NOT NULL AND {_end("e")} IS NOT NULL
        GROUP BY e.topic, e.partition, e.observed_at_ms"""


def status(
    offsets: str, windows: str, ends: str, judged: str, lag: str, expiry: str, before: str, at_ms: int | str
) -> str:
    """How each group does with each partition that it has an offset of, and since when: of `windows`, `seen_ends` and
    `judged`, the tables of those names, and `before`, what the last run published.
    """
    is_soon = f"x.expires_at_ms <= {at_ms} + {soon_ms('x.retention_ms')}"
    return f"""
        WITH told AS (
            SELECT {_key("o")}, CASE WHEN l.lost_records > 0 THEN 'LOSING'
                    WHEN {is_soon} AND coalesce(j.verdict, 'OK') IN ('OK', 'WARN') THEN 'EXPIRING'
                    ELSE j.verdict END AS verdict,
                {at_ms} AS at_ms, o.committed_offset, l.log_end_offset, l.lag, l.lag_ms, l.lost_records,
                o.commit_timestamp_ms AS last_commit_ms, j.completeness, w.window, e.ends
            FROM {offsets} o
            LEFT JOIN {windows} w ON {_same("o", "w")}
            LEFT JOIN {ends} e ON {same_log("o", "e")}
            LEFT JOIN {judged} j ON {_same("o", "j")}
            LEFT JOIN {lag} l ON {_same("o", "l")}
            LEFT JOIN {expiry} x ON {_same("o", "x")}
        ), dated AS (
            SELECT t.*, CASE WHEN b.verdict = t.verdict THEN b.verdict_since_ms
                WHEN t.verdict IS NOT NULL THEN t.at_ms END AS verdict_since_ms
            FROM told t LEFT JOIN {before} b ON {_same("t", "b")}
        )
        SELECT {", ".join(f"d.{name}" for name in STATUS.names)} FROM dated d"""


def changes(status: str, before: str, at_ms: int | str, run_number: int) -> str:
    """Rows of `verdicts`: where a verdict is another than `before`, and where the offset is gone."""
    names = {"run_number": str(run_number)}
    shown = ", ".join(f"{names[name]} AS {name}" if name in names else f"u.{name}" for name in VERDICTS.names)
    return f"""
        SELECT {shown} FROM (
            SELECT {_key("s")}, {at_ms} AS at_ms, s.verdict, b.verdict AS verdict_before, s.committed_offset, s.lag,
                s.lag_ms
            FROM {status} s LEFT JOIN {before} b ON {_same("s", "b")}
            WHERE NOT (s.verdict IS NOT DISTINCT FROM b.verdict)
            UNION ALL
            SELECT {_key("b")}, {at_ms}, NULL, b.verdict, NULL, NULL, NULL
            FROM {before} b LEFT JOIN {status} s ON {_same("s", "b")}
            WHERE s.group_id IS NULL AND b.verdict IS NOT NULL
        ) u"""


NOT_REMEMBERED = ("completeness", "window", "ends")
"""Columns of `status` that nothing tells as of a moment."""


def status_then(offsets: str, lag: str, verdicts: str, at_ms: int, unknown: Mapping[str, str]) -> str:
    """`status` as of a moment: what was in force, and the last that was said of it until then. `unknown` has an
    expression, NULL of its type, for each column that is not remembered.
    """
    known = {
        "verdict": "v.verdict", "verdict_since_ms": "CASE WHEN v.verdict IS NOT NULL THEN v.at_ms END",
        "at_ms": str(at_ms),
        "committed_offset": "o.committed_offset", "log_end_offset": "l.log_end_offset", "lag": "l.lag",
        "lag_ms": "l.lag_ms", "lost_records": "l.lost_records", "last_commit_ms": "o.commit_timestamp_ms",
    }  # fmt: skip
    told = {name: f"o.{name}" for name in KEY} | known | {name: unknown[name] for name in NOT_REMEMBERED}
    return f"""
        SELECT {", ".join(f"{value} AS {name}" for name, value in told.items())} FROM {offsets} o
        LEFT JOIN {lag} l ON {_same("o", "l")}
        LEFT JOIN (
            SELECT n.* FROM {verdicts} n JOIN (
                SELECT {_key("r")}, max(r.run_number) AS run_number FROM {verdicts} r WHERE r.at_ms <= {at_ms}
                GROUP BY {_key("r")}
            ) m ON {_same("n", "m")} AND n.run_number = m.run_number
        ) v ON {_same("o", "v")}"""
