"""SQL for history by interval (`lag_history`, `rates`, `group_hours`), in the dialect that Spark and duckdb share.

As in `queries`, functions take relations with inner columns and return a query with the columns of one table.

*What a row is of.* Time is cut into intervals of one length, counted from 1970. A commit belongs to the interval of its
record's time; one that has none, to that of its commit time, and a deletion that has none (`vanished`), to that of the
commit it ended. Commits of committed transactions count from when they were written. In force at an interval's end is
what has the highest place in the log of all that belongs to it or to an earlier one: clocks step back, places do not.

*The end of a log* at any moment is on the straight line between the observations before and after it, if both are less
than a day away. Behind the newest observation it is unknown; so the last row of a series is of the moment of that
observation (`at_ms`), and a later run makes it one of the interval's end. Where ends fall (a topic made anew under its
old name) there is no line.

*In steps as in one go.* Each function gives the rows from `since_ms` on, and needs then only commits from there on, the
observations of `LOOK_BACK_MS` before it, and the state right before it (`before`: columns of `BEFORE`). What is further
away than that counts as unknown in one go as well: two ways to the same row must not differ. `since_ms` is the start
of an interval.

*What is published stays.* Old observations are thinned out (`compact`), so most rows cannot be made a second time as
they were made at first. `Held` tells what is published and what is new since. Rows are made anew where something new
can change them: of a key from its first new commit on, of a partition from where its first new observation tells
something. All others are taken over. Where only a commit is new, the end of the log is that of the published rows of
the same partition and interval, whatever group they are of.

Aggregates are of fixed width, so Spark hashes them; what must be ordered (steps from commit to commit, states carried
on) is ordered once, by key. No row meets more rows of another relation than it becomes.
"""

from typing import NamedTuple

from muster.tables.queries import COUNTS
from muster.tables.schemas import GROUP_HOURS, LAG_HISTORY, RATES

INTERVAL_MS = 5 * 60_000
"""Of the published tables."""
HOUR_MS = 3_600_000
LOOK_BACK_MS = 86_400_000
"""How far from a moment an observation of a log's end says anything about it."""
LOOK_BACK_HOURS = 7 * 24
"""How long a group may be quiet and its members still be known."""
MOST_MEMBERS = 1 << 20
NEVER_MS = (1 << 63) - 1

DUCKDB_SIZE = "len"
SPARK_SIZE = "array_size"
"""How many elements a list has."""

BEFORE = ("group_id", "topic", "partition", "log_offset", "committed_offset", "commit_ms")
"""What was in force: `committed_offset` NULL for a deletion, `commit_ms` its time."""

TIMES = ("timestamp_ms", "commit_timestamp_ms", "previous_commit_timestamp_ms")
"""Where the time of a commit is: in the first of these that is not NULL."""
AT = f"coalesce({', '.join(f'c.{name}' for name in TIMES)}, 0)"
"""The time of a row `c` of `commits`."""
KEY = "group_id, topic, partition"
UNTIL_HERE = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
UNTIL_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

STOPPED = "('first members', 'group emptied', 'group deleted')"
"""Causes that are no interruption: no members before, or none after."""
BY_JOINING = "('first members', 'member joined')"
BY_LEAVING = "('group emptied', 'member left')"
BY_BOTH = "('members joined and left')"
BY_CHANGE = (
    "('protocol changed', 'subscription changed', 'matched topics changed', 'topology changed', 'partitions changed')"
)


class Held(NamedTuple):
    """Relations: what the last run published of a table, and from when on something is new since."""

    rows: str
    observed: str
    """Of `observed_since`."""
    committed: str | None
    """Of `committed_since`; None where any key may be new from the start."""


def _key(relation: str) -> str:
    return ", ".join(f"{relation}.{name}" for name in KEY.split(", "))


def _same_key(left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in KEY.split(", "))


def _moves(commits: str, interval_ms: int, since_ms: int) -> str:
    """Commits and deletions that count, with their interval. `place` orders them, and is odd for a commit: at the same
    offset a commit comes after what `vanished` there.
    """
    return f"""
        SELECT {_key("c")}, {AT} AS at_ms, {AT} - {AT} % {interval_ms} AS interval_start_ms,
            c.log_offset * 2 + CASE WHEN c.kind = 'commit' THEN 1 ELSE 0 END AS place,
            coalesce(c.committed_offset, 0) AS committed_offset
        FROM {commits} c WHERE {COUNTS} AND {AT} >= {since_ms}"""


def moved(commits: str, interval_ms: int = INTERVAL_MS, since_ms: int = 0) -> str:
    """Commits and deletions, added up by key and interval: what `lag_history` and `rates` are made of.

    Steps go from commit to commit within the interval, in log order. A step back is a rewind.
    """
    inner = f"PARTITION BY {_key('m')}, m.interval_start_ms ORDER BY m.place"
    both = f"m.place % 2 = 1 AND lag(m.place) OVER ({inner}) % 2 = 1"
    return f"""
        SELECT {_key("s")}, s.interval_start_ms, sum(s.place % 2) AS commits, max(s.place) AS place,
            max_by(s.committed_offset, s.place) AS committed_offset, max_by(s.at_ms, s.place) AS at_ms,
            min(s.place) AS first_place, min_by(s.committed_offset, s.place) AS first_offset,
            min_by(s.at_ms, s.place) AS first_ms,
            count(s.step) AS steps, coalesce(sum(CASE WHEN s.step > 0 THEN s.step END), 0) AS forward,
            coalesce(sum(CASE WHEN s.step < 0 THEN -s.step END), 0) AS back,
            sum(CASE WHEN s.step < 0 THEN 1 ELSE 0 END) AS rewinds,
            coalesce(sum(s.distance_ms), 0) AS distances_ms, max(s.distance_ms) AS longest_ms
        FROM (
            SELECT m.*,
                CASE WHEN {both} THEN m.committed_offset - lag(m.committed_offset) OVER ({inner}) END AS step,
                CASE WHEN {both} THEN greatest(m.at_ms - lag(m.at_ms) OVER ({inner}), 0) END AS distance_ms
            FROM ({_moves(commits, interval_ms, since_ms)}) m
        ) s GROUP BY {_key("s")}, s.interval_start_ms"""


def _same_log(left: str, right: str) -> str:
    return f"{left}.topic = {right}.topic AND {left}.partition = {right}.partition"


def _still_holds(held: Held) -> str:
    """Published rows `h` of which no new observation changes the end of the log."""
    return f"""{held.rows} h LEFT JOIN {held.observed} t ON {_same_log("h", "t")}
        WHERE h.interval_start_ms < coalesce(t.since_ms, {NEVER_MS})"""


def _with_held(made: str, names: str, held: Held | None, held_names: str, since_ms: int) -> str:
    """Rows `n` that were made, where something is new; all other rows as they are published."""
    if held is None or held.committed is None:
        return f"SELECT {names} FROM {made} n"

    def news(rows: str) -> str:
        return f"""LEFT JOIN {held.committed} k ON {_same_key(rows, "k")}
            LEFT JOIN {held.observed} t ON {_same_log(rows, "t")}"""

    since = f"coalesce(least(k.since_ms, t.since_ms), {NEVER_MS})"
    return f"""
        SELECT {names} FROM {made} n {news("n")} WHERE n.interval_start_ms >= {since}
        UNION ALL
        SELECT {held_names} FROM {held.rows} h {news("h")}
        WHERE h.interval_start_ms >= {since_ms} AND h.interval_start_ms < {since}"""


def _log_offset(place: str) -> str:
    return f"({place} - {place} % 2) / 2"


def _states_before(before: str) -> str:
    """What was in force right before the first interval, as moves of an interval before all others."""
    return f"""
        SELECT {_key("b")}, CAST(-1 AS BIGINT) AS interval_start_ms, 0 AS commits,
            b.log_offset * 2 + CASE WHEN b.committed_offset IS NULL THEN 0 ELSE 1 END AS place,
            coalesce(b.committed_offset, 0) AS committed_offset, coalesce(b.commit_ms, 0) AS at_ms
        FROM {before} b WHERE b.log_offset IS NOT NULL"""


# ---- ends of logs


def _observations(log_ends: str, interval_ms: int, since_ms: int) -> str:
    """Every observation of a log's end with the one before it and the one after it.

    `era` counts how often the end had fallen: within one, ends only rise.
    """
    window = "PARTITION BY {0}.topic, {0}.partition ORDER BY {0}.observed_at_ms"
    return f"""
        SELECT n.*, sum(CASE WHEN n.previous_end > n.log_end_offset THEN 1 ELSE 0 END) OVER (
                {window.format("n")} {UNTIL_HERE}) AS era
        FROM (
            SELECT o.topic, o.partition, o.observed_at_ms, o.log_end_offset,
                o.observed_at_ms - o.observed_at_ms % {interval_ms} AS interval_start_ms,
                lag(o.log_end_offset) OVER ({window.format("o")}) AS previous_end,
                lead(o.observed_at_ms) OVER ({window.format("o")}) AS next_ms,
                lead(o.log_end_offset) OVER ({window.format("o")}) AS next_end
            FROM (
                SELECT r.topic, r.partition, r.observed_at_ms, max(r.log_end_offset) AS log_end_offset
                FROM {log_ends} r
                WHERE r.log_end_offset IS NOT NULL AND r.observed_at_ms >= {since_ms - LOOK_BACK_MS}
                GROUP BY r.topic, r.partition, r.observed_at_ms
            ) o
        ) n"""


def _looks(observations: str, interval_ms: int) -> str:
    """The last observation of each interval that has one, and whether it is another end than at the one before."""
    window = "PARTITION BY l.topic, l.partition ORDER BY l.interval_start_ms"
    before = f"l.interval_start_ms - {LOOK_BACK_MS}"
    return f"""
        SELECT l.*, coalesce(lag(l.log_end_offset) OVER ({window}) <> l.log_end_offset
            OR lag(l.observed_at_ms) OVER ({window}) < {before}, TRUE) AS is_change
        FROM {observations} l WHERE l.next_ms IS NULL OR l.next_ms >= l.interval_start_ms + {interval_ms}"""


def _first_looks(looks: str) -> str:
    """Since when the end of a log is observed: before that there is none to be found."""
    return f"""
        SELECT l.topic, l.partition, min(l.interval_start_ms) AS first_ms
        FROM {looks} l GROUP BY l.topic, l.partition"""


def _observed_spots(moves: str, starts: str, observed: str) -> str:
    """Intervals (`starts`, of rows `m`) in which the end of a log is asked for, and may be known."""
    return f"""
        SELECT m.topic, m.partition, {starts} AS interval_start_ms
        FROM {moves} m JOIN {observed} o ON m.topic = o.topic AND m.partition = o.partition
        WHERE {starts} >= o.first_ms"""


def _ends(spots: str, looks: str, interval_ms: int) -> str:
    """Where a log ended at the ends of intervals: of spots (`topic`, `partition`, `interval_start_ms`).

    `at_ms` is the interval's end, or that of the newest observation if this is in the interval and none comes after.
    """
    window = f"PARTITION BY u.topic, u.partition ORDER BY u.interval_start_ms {UNTIL_HERE}"
    last = {
        name: f"max_by(u.{name}, u.left_ms) OVER ({window}) AS {name}"
        for name in ("left_end", "era", "next_ms", "next_end")
    }
    over = f"(f.interval_start_ms + {interval_ms})"
    is_near = f"coalesce(f.left_ms >= {over} - {LOOK_BACK_MS}, FALSE)"
    is_soon = f"f.next_ms >= 0 AND f.next_ms < {over} + {LOOK_BACK_MS}"
    has_line = f"({is_near} AND {is_soon} AND f.next_end >= f.left_end)"
    is_within = "coalesce(f.left_ms >= f.interval_start_ms, FALSE)"
    return f"""
        SELECT f.topic, f.partition, f.interval_start_ms, f.era,
            CASE WHEN {is_within} AND NOT {has_line} THEN f.left_ms ELSE {over} END AS at_ms,
            CASE WHEN {has_line} THEN f.left_end + CAST(floor(CAST(f.next_end - f.left_end AS DOUBLE)
                    * CAST({over} - f.left_ms AS DOUBLE) / CAST(f.next_ms - f.left_ms AS DOUBLE)) AS BIGINT)
                WHEN {is_within} THEN f.left_end END AS log_end_offset,
            CASE WHEN {has_line} AND f.next_end > f.left_end THEN 'interpolated'
                WHEN {has_line} OR {is_within} THEN 'observed' END AS log_end_by
        FROM (
            SELECT u.topic, u.partition, u.interval_start_ms, u.is_spot, max(u.left_ms) OVER ({window}) AS left_ms,
                {", ".join(last.values())}
            FROM (
                SELECT g.topic, g.partition, g.interval_start_ms, max(g.is_spot) AS is_spot, max(g.left_ms) AS left_ms,
                    max(g.left_end) AS left_end, max(g.era) AS era, max(g.next_ms) AS next_ms,
                    max(g.next_end) AS next_end
                FROM (
                    SELECT s.topic, s.partition, s.interval_start_ms, 1 AS is_spot, NULL AS left_ms, NULL AS left_end,
                        NULL AS era, NULL AS next_ms, NULL AS next_end
                    FROM ({spots}) s
                    UNION ALL
                    SELECT l.topic, l.partition, l.interval_start_ms, 0, l.observed_at_ms, l.log_end_offset,
                        l.era, coalesce(l.next_ms, -1), coalesce(l.next_end, -1)
                    FROM {looks} l
                ) g GROUP BY g.topic, g.partition, g.interval_start_ms
            ) u
        ) f WHERE f.is_spot = 1"""


def _passed(behind: str, observations: str) -> str:
    """Of committed offsets (`topic`, `partition`, `era`, `behind_at`) that the log's end had passed: the observations
    (`left`, `next`) between which it did.

    Observations of one era and the offsets are put in one row by offset: the last observation that was not beyond an
    offset, and the one after it, have it between them.
    """
    window = f"PARTITION BY p.topic, p.partition, p.era ORDER BY p.behind_at, p.is_row {UNTIL_HERE}"
    return f"""
        SELECT w.* FROM (
            SELECT p.topic, p.partition, p.era, p.behind_at, p.is_row,
                max(p.observed_at_ms) OVER ({window}) AS left_ms, max(p.observed) OVER ({window}) AS left_end,
                max(p.next_ms) OVER ({window}) AS next_ms, max(p.next_end) OVER ({window}) AS next_end
            FROM (
                SELECT r.topic, r.partition, r.era, r.behind_at, 1 AS is_row,
                    NULL AS observed, NULL AS observed_at_ms, NULL AS next_ms, NULL AS next_end
                FROM {behind} r
                UNION ALL
                SELECT o.topic, o.partition, o.era, o.log_end_offset, 0, o.log_end_offset, o.observed_at_ms,
                    CASE WHEN o.next_end >= o.log_end_offset THEN o.next_ms END,
                    CASE WHEN o.next_end >= o.log_end_offset THEN o.next_end END
                FROM {observations} o
            ) p
        ) w WHERE w.is_row = 1"""


# ---- lag_history


def _known_ends(held: Held | None, moves: str, since_ms: int) -> str:
    """Ends of logs as published rows of `lag_history` tell them, by partition and interval.

    `is_look`: some row is there since another end was observed, and for nothing else.
    """
    if held is None:
        return """
            SELECT l.topic, l.partition, l.interval_start_ms, l.observed_at_ms AS at_ms, l.log_end_offset,
                CAST(NULL AS STRING) AS log_end_by, 0 AS is_look
            FROM looks l WHERE FALSE"""
    return f"""
        SELECT h.topic, h.partition, h.interval_start_ms, max(h.at_ms) AS at_ms,
            max_by(h.log_end_offset, h.at_ms) AS log_end_offset, max_by(h.log_end_by, h.at_ms) AS log_end_by,
            max(CASE WHEN h.commits = 0 AND h.committed_offset IS NOT NULL AND m.place IS NULL THEN 1 ELSE 0 END)
                AS is_look
        FROM (SELECT h.* FROM {_still_holds(held)}) h
        LEFT JOIN {moves} m ON {_same_key("h", "m")} AND h.interval_start_ms = m.interval_start_ms
        WHERE h.log_end_offset IS NOT NULL AND h.interval_start_ms >= {since_ms}
        GROUP BY h.topic, h.partition, h.interval_start_ms"""


def _known_passings(held: Held | None) -> str:
    """Since when keys were behind, as published rows tell it."""
    if held is None:
        return f"""
            SELECT {_key("m")}, m.interval_start_ms, m.at_ms, m.committed_offset, m.log_end_offset,
                CAST(NULL AS BIGINT) AS behind_since_ms
            FROM measured m WHERE FALSE"""
    return f"""
        SELECT {_key("h")}, h.interval_start_ms, h.at_ms, h.committed_offset, h.log_end_offset, h.behind_since_ms
        FROM {_still_holds(held)} AND h.lag > 0"""


def lag_history(
    moves: str,
    log_ends: str,
    interval_ms: int = INTERVAL_MS,
    since_ms: int = 0,
    before: str | None = None,
    held: Held | None = None,
) -> str:
    """How far each group was behind, by partition and interval; `moves` are rows of `moved`.

    There is a row where the group committed or its commit was deleted, and, while a commit was in force, where the
    end of the log was observed at another offset than before. Between rows nothing changed.
    """
    window = f"PARTITION BY {_key('g')} ORDER BY g.interval_start_ms, g.is_move"
    now, earlier = f"({window} {UNTIL_HERE})", f"({window} {UNTIL_BEFORE})"
    with_states = "" if before is None else f"UNION ALL {_states_before(before)}"
    spots = f"""{_observed_spots("moves", "m.interval_start_ms", "observed")}
        UNION SELECT c.topic, c.partition, c.interval_start_ms FROM changes c
        UNION SELECT k.topic, k.partition, k.interval_start_ms FROM known k"""
    log_offsets = {
        "log_offset": f"CAST({_log_offset('n.place')} AS BIGINT) AS log_offset",
        "log_offset_before": f"CAST({_log_offset('n.place_before')} AS BIGINT) AS log_offset_before",
    }
    names = [log_offsets.get(name, f"n.{name}") for name in LAG_HISTORY.names]
    return f"""
        WITH moves AS (
            SELECT {_key("m")}, m.interval_start_ms, m.commits, m.place, m.committed_offset, m.at_ms FROM {moves} m
            {with_states}
        ), observations AS ({_observations(log_ends, interval_ms, since_ms)}
        ), looks AS ({_looks("observations", interval_ms)}
        ), observed AS ({_first_looks("looks")}
        ), known AS ({_known_ends(held, moves, since_ms)}
        ), changes AS (
            SELECT l.topic, l.partition, l.interval_start_ms FROM looks l WHERE l.is_change
            UNION SELECT k.topic, k.partition, k.interval_start_ms FROM known k WHERE k.is_look = 1
        ), wanted AS (
            SELECT {_key("m")}, m.interval_start_ms, 1 AS is_move, m.commits, m.place, m.committed_offset, m.at_ms
            FROM moves m
            UNION ALL
            SELECT {_key("k")}, c.interval_start_ms, 0, 0, NULL, NULL, NULL
            FROM (
                SELECT {_key("m")}, min(m.interval_start_ms) AS first_ms FROM moves m GROUP BY {_key("m")}
            ) k JOIN changes c ON {_same_log("k", "c")}
            WHERE c.interval_start_ms > k.first_ms AND c.interval_start_ms >= {since_ms}
        ), filled AS (
            SELECT {_key("g")}, g.interval_start_ms, g.commits, g.is_move, g.place AS moved_to,
                coalesce(lead(g.interval_start_ms) OVER ({window}) = g.interval_start_ms, FALSE) AS has_move,
                max(g.place) OVER {now} AS place, max_by(g.committed_offset, g.place) OVER {now} AS committed_offset,
                max_by(g.at_ms, g.place) OVER {now} AS commit_ms, max(g.place) OVER {earlier} AS place_before,
                max_by(g.committed_offset, g.place) OVER {earlier} AS committed_before,
                max_by(g.at_ms, g.place) OVER {earlier} AS commit_before_ms
            FROM wanted g
        ), rows_of AS (
            SELECT {_key("f")}, f.interval_start_ms, f.commits, f.place, f.commit_ms,
                CASE WHEN f.place % 2 = 1 THEN f.committed_offset END AS committed_offset,
                CASE WHEN f.place_before % 2 = 1 OR f.place_before > f.moved_to THEN f.place_before END AS place_before,
                CASE WHEN f.place_before % 2 = 1 THEN f.committed_before END AS committed_before,
                CASE WHEN f.place_before % 2 = 1 THEN f.commit_before_ms END AS commit_before_ms
            FROM filled f
            WHERE f.interval_start_ms >= {since_ms} AND (f.is_move = 1 OR (f.place % 2 = 1 AND NOT f.has_move))
        ), drawn AS ({_ends(spots, "looks", interval_ms)}
        ), ends AS (
            SELECT d.topic, d.partition, d.interval_start_ms, d.era, coalesce(k.at_ms, d.at_ms) AS at_ms,
                coalesce(k.log_end_offset, d.log_end_offset) AS log_end_offset,
                coalesce(k.log_end_by, d.log_end_by) AS log_end_by
            FROM drawn d LEFT JOIN known k ON {_same_log("d", "k")} AND d.interval_start_ms = k.interval_start_ms
        ), measured AS (
            SELECT r.*, coalesce(e.at_ms, r.interval_start_ms + {interval_ms}) AS at_ms, e.era, e.log_end_by,
                e.log_end_offset,
                coalesce(r.commit_ms > e.at_ms AND r.committed_offset >= e.log_end_offset, FALSE) AS is_outdated,
                CASE WHEN e.log_end_offset > r.committed_offset THEN r.committed_offset END AS behind_at
            FROM rows_of r LEFT JOIN ends e ON r.topic = e.topic AND r.partition = e.partition
                AND r.interval_start_ms = e.interval_start_ms
        ), behind AS (
            SELECT DISTINCT m.topic, m.partition, m.era, m.behind_at FROM measured m WHERE m.behind_at IS NOT NULL
        ), passed AS ({_passed("behind", "observations")}
        ), timed AS (
            SELECT m.*, CASE WHEN k.at_ms IS NOT NULL THEN k.behind_since_ms
                WHEN p.left_ms >= m.at_ms - {LOOK_BACK_MS} AND p.next_end > p.left_end THEN p.next_ms - CAST(
                    round(CAST(p.next_end - p.behind_at AS DOUBLE) * CAST(p.next_ms - p.left_ms AS DOUBLE)
                    / CAST(p.next_end - p.left_end AS DOUBLE)) AS BIGINT) END AS passed_at_ms
            FROM measured m LEFT JOIN passed p ON m.topic = p.topic AND m.partition = p.partition AND m.era = p.era
                AND m.behind_at = p.behind_at
            LEFT JOIN ({_known_passings(held)}) k ON {_same_key("m", "k")}
                AND m.interval_start_ms = k.interval_start_ms AND m.at_ms = k.at_ms
                AND m.behind_at = k.committed_offset AND m.log_end_offset = k.log_end_offset
        ), named AS (
            SELECT {_key("m")}, m.interval_start_ms, CAST({interval_ms} AS BIGINT) AS interval_ms, m.at_ms,
                m.committed_offset, m.log_end_offset, m.log_end_by,
                CASE WHEN m.log_end_offset IS NOT NULL AND m.committed_offset IS NOT NULL AND NOT m.is_outdated
                    THEN greatest(m.log_end_offset - m.committed_offset, 0) END AS lag,
                CASE WHEN m.committed_offset IS NULL THEN 'deleted'
                    WHEN m.log_end_offset IS NULL THEN 'end not observed'
                    WHEN m.is_outdated THEN 'committed after the end was observed' END AS lag_unknown,
                CASE WHEN m.passed_at_ms IS NOT NULL THEN greatest(m.at_ms - m.passed_at_ms, 0)
                    WHEN m.log_end_offset <= m.committed_offset AND NOT m.is_outdated THEN 0 END AS lag_ms,
                m.passed_at_ms AS behind_since_ms, m.commits,
                CASE WHEN m.committed_offset IS NOT NULL THEN m.commit_ms END AS last_commit_ms,
                m.place, m.committed_before, m.place_before, m.commit_before_ms
            FROM timed m
        )
        {_with_held("named", ", ".join(names), held, ", ".join(f"h.{name}" for name in LAG_HISTORY.names), since_ms)}"""


# ---- rates


def _known_production(held: Held | None) -> str:
    """What was produced, as published rows of `rates` tell it, by partition and interval."""
    if held is None:
        return """
            SELECT w.topic, w.partition, w.interval_start_ms, CAST(NULL AS BIGINT) AS produced,
                CAST(NULL AS BIGINT) AS produced_in_ms
            FROM stepped w WHERE FALSE"""
    return f"""
        SELECT h.topic, h.partition, h.interval_start_ms, max(h.produced) AS produced,
            max(h.produced_in_ms) AS produced_in_ms
        FROM {_still_holds(held)} AND h.produced IS NOT NULL
        GROUP BY h.topic, h.partition, h.interval_start_ms"""


def rates(
    moves: str,
    log_ends: str,
    interval_ms: int = INTERVAL_MS,
    since_ms: int = 0,
    before: str | None = None,
    held: Held | None = None,
) -> str:
    """What a group consumed and how often it committed, by partition and interval in which it did; and what was
    produced meanwhile. `moves` are rows of `moved`.

    Steps go from commit to commit in log order; the first of an interval starts from what was in force before it. A
    step back is a rewind and no consumption. A deletion is where steps end: the commit after it has none.
    """
    earlier = f"(PARTITION BY {_key('c')} ORDER BY c.interval_start_ms {UNTIL_BEFORE})"
    names = ("place", "committed_offset", "at_ms", "first_place", "first_offset", "first_ms", "steps", "forward",
             "back", "rewinds", "distances_ms", "longest_ms")  # fmt: skip
    states = (
        ""
        if before is None
        else f"""UNION ALL SELECT {_key("b")}, b.interval_start_ms, 0, b.place, b.committed_offset, b.at_ms,
            NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL FROM ({_states_before(before)}) b"""
    )

    def names_of(rows: str) -> str:
        return ", ".join(f"{rows}.{name}" for name in RATES.names)

    at_the_end = _observed_spots(moves, "m.interval_start_ms", "observed")
    at_the_start = _observed_spots(moves, f"(m.interval_start_ms - {interval_ms})", "observed")
    is_joined = "j.place_before % 2 = 1 AND j.first_place % 2 = 1"
    has_risen = "e.era = b.era AND b.at_ms = w.interval_start_ms AND e.log_end_offset >= b.log_end_offset"
    return f"""
        WITH counted AS (
            SELECT {_key("m")}, m.interval_start_ms, m.commits, {", ".join(f"m.{name}" for name in names)}
            FROM {moves} m
            {states}
        ), joined AS (
            SELECT c.*, max(c.place) OVER {earlier} AS place_before,
                max_by(c.committed_offset, c.place) OVER {earlier} AS committed_before,
                max_by(c.at_ms, c.place) OVER {earlier} AS before_ms
            FROM counted c
        ), stepped AS (
            SELECT j.*, CASE WHEN {is_joined} THEN 1 ELSE 0 END AS is_joined,
                CASE WHEN {is_joined} THEN j.first_offset - j.committed_before ELSE 0 END AS step,
                CASE WHEN {is_joined} THEN greatest(j.first_ms - j.before_ms, 0) END AS distance_ms
            FROM joined j WHERE j.interval_start_ms >= {since_ms}
        ), observations AS ({_observations(log_ends, interval_ms, since_ms)}
        ), looks AS ({_looks("observations", interval_ms)}
        ), observed AS ({_first_looks("looks")}
        ), ends AS ({_ends(f"{at_the_end} UNION {at_the_start}", "looks", interval_ms)}
        ), named AS (
            SELECT {_key("w")}, w.interval_start_ms, CAST({interval_ms} AS BIGINT) AS interval_ms, w.commits,
                CASE WHEN w.steps + w.is_joined > 0 THEN w.forward + greatest(w.step, 0) END AS consumed,
                CASE WHEN w.steps + w.is_joined > 0 THEN w.rewinds + CASE WHEN w.step < 0 THEN 1 ELSE 0 END END
                    AS rewinds,
                CASE WHEN w.steps + w.is_joined > 0 THEN w.back + greatest(-w.step, 0) END AS rewound,
                CASE WHEN w.steps + w.is_joined > 0 THEN floor(CAST(w.distances_ms + coalesce(w.distance_ms, 0)
                    AS DOUBLE) / CAST(w.steps + w.is_joined AS DOUBLE)) END AS mean_distance_ms,
                greatest(w.longest_ms, w.distance_ms) AS longest_distance_ms,
                CASE WHEN k.produced IS NOT NULL THEN k.produced WHEN {has_risen}
                    THEN e.log_end_offset - b.log_end_offset END AS produced,
                CASE WHEN k.produced IS NOT NULL THEN k.produced_in_ms WHEN {has_risen}
                    THEN e.at_ms - b.at_ms END AS produced_in_ms
            FROM stepped w
            LEFT JOIN ends e ON w.topic = e.topic AND w.partition = e.partition
                AND w.interval_start_ms = e.interval_start_ms
            LEFT JOIN ends b ON w.topic = b.topic AND w.partition = b.partition
                AND w.interval_start_ms = b.interval_start_ms + {interval_ms}
            LEFT JOIN ({_known_production(held)}) k ON {_same_log("w", "k")}
                AND w.interval_start_ms = k.interval_start_ms
            WHERE w.commits > 0
        )
        {_with_held("named", names_of("n"), held, names_of("h"), since_ms)}"""


# ---- group_hours


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


# ---- from run to run


def states_before(lag_history: str, offsets: str, since_ms: int) -> str:
    """What was in force right before `since_ms`, with the columns of `BEFORE`: of what the last run published.

    A key that has rows from there on says in the first of them what was before it; for any other, what was in force at
    the end of that run was so at `since_ms` already.
    """
    first = f"""
        SELECT {_key("p")}, min(p.interval_start_ms) AS interval_start_ms FROM {lag_history} p
        WHERE p.interval_start_ms >= {since_ms} GROUP BY {_key("p")}"""
    return f"""
        SELECT {_key("h")}, h.log_offset_before AS log_offset, h.committed_before AS committed_offset,
            h.commit_before_ms AS commit_ms
        FROM {lag_history} h JOIN ({first}) f ON {_same_key("h", "f")} AND h.interval_start_ms = f.interval_start_ms
        UNION ALL
        SELECT {_key("o")}, o.log_offset, o.committed_offset,
            coalesce(o.timestamp_ms, o.commit_timestamp_ms, 0) AS commit_ms
        FROM {offsets} o LEFT JOIN ({first}) f ON {_same_key("o", "f")} WHERE f.group_id IS NULL"""


def states_at(commits: str, since_ms: int) -> str:
    """The same of all commits that there are, where published rows do not tell it."""
    return f"""
        SELECT {_key("m")}, CAST({_log_offset("m.place")} AS BIGINT) AS log_offset,
            CASE WHEN m.place % 2 = 1 THEN m.committed_offset END AS committed_offset, m.at_ms AS commit_ms
        FROM (
            SELECT {_key("a")}, max(a.place) AS place, max_by(a.committed_offset, a.place) AS committed_offset,
                max_by(a.at_ms, a.place) AS at_ms
            FROM ({_moves(commits, INTERVAL_MS, 0)}) a WHERE a.at_ms < {since_ms} GROUP BY {_key("a")}
        ) m"""


def hours_before(group_hours: str, since_ms: int) -> str:
    """The last row of each group before `since_ms`, of what the last run published."""
    return f"""
        SELECT h.group_id, h.hour_ms, h.members, h.last_commit_ms FROM {group_hours} h JOIN (
            SELECT p.group_id, max(p.hour_ms) AS hour_ms FROM {group_hours} p
            WHERE p.hour_ms < {since_ms} AND p.hour_ms >= {since_ms - LOOK_BACK_HOURS * HOUR_MS} GROUP BY p.group_id
        ) n ON h.group_id = n.group_id AND h.hour_ms = n.hour_ms"""


def first_change(new_commits: str) -> str:
    """The earliest time of these commits."""
    return f"SELECT min({AT}) FROM {new_commits} c"


def committed_since(new_commits: str, interval_ms: int = INTERVAL_MS) -> str:
    """Of each key that has new commits, the interval (`since_ms`) of the earliest."""
    return f"""
        SELECT {_key("c")}, min({AT} - {AT} % {interval_ms}) AS since_ms
        FROM {new_commits} c GROUP BY {_key("c")}"""


def observed_since(log_ends: str, after_run: int, interval_ms: int = INTERVAL_MS) -> str:
    """Of each partition that later runs have observed, the interval (`since_ms`) from which on that is something new:
    that of the observation before, and no further away than `LOOK_BACK_MS`.
    """
    return f"""
        SELECT w.topic, w.partition, w.new_ms - w.new_ms % {interval_ms} AS since_ms FROM (
            SELECT n.topic, n.partition,
                greatest(coalesce(max(b.observed_at_ms), n.observed_at_ms), n.observed_at_ms - {LOOK_BACK_MS}) AS new_ms
            FROM (
                SELECT r.topic, r.partition, min(r.observed_at_ms) AS observed_at_ms FROM {log_ends} r
                WHERE r.log_end_offset IS NOT NULL AND r.run_number > {after_run} GROUP BY r.topic, r.partition
            ) n LEFT JOIN (
                SELECT r.topic, r.partition, r.observed_at_ms FROM {log_ends} r
                WHERE r.log_end_offset IS NOT NULL AND coalesce(r.run_number, -1) <= {after_run}
            ) b ON {_same_log("n", "b")} AND n.observed_at_ms > b.observed_at_ms
            GROUP BY n.topic, n.partition, n.observed_at_ms
        ) w WHERE w.new_ms IS NOT NULL"""


def first_observed(log_ends: str, after_run: int) -> str:
    """From when on the observations of later runs say something new of any partition. Those of a day before them are
    needed.
    """
    return f"SELECT min(o.since_ms) FROM ({observed_since(log_ends, after_run, 1)}) o"


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
