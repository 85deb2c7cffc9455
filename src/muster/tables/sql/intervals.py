"""SQL for history by interval (`lag_history`, `rates`), in the dialect that Spark and duckdb share.

As in `queries`, functions take relations with inner columns and return a query with the columns of one table.

*What a row is of.* Time is cut into intervals of one length, counted from 1970. A commit belongs to the interval of its
record's time; one that has none, to that of its commit time, and a deletion that has none (`vanished`), to that of the
commit it ended. Commits of committed transactions count from when they were written. In force at an interval's end is
what has the highest place in the log of all that belongs to it or to an earlier one: clocks step back, places do not.
Where a log ended is told by observations (`ends`).

*In steps as in one go.* Each function gives the rows from `since_ms` on, and needs then only commits from there on, the
observations of `ends.LOOK_BACK_MS` before it, and the state right before it (`before`: columns of `BEFORE`). What is
further away than that counts as unknown in one go as well: two ways to the same row must not differ. `since_ms` is the
start of an interval.

*What is published stays.* Old observations are thinned out (`compact`), so most rows cannot be made a second time as
they were made at first. `Held` tells what is published and what is new since. Rows are made anew where something new
can change them: of a key from its first new commit on, of a partition from where its first new observation tells
something. All others are taken over. Where only a commit is new, the end of the log is that of the published rows of
the same partition and interval, whatever group they are of.

Aggregates are of fixed width, so Spark hashes them; what must be ordered (steps from commit to commit, states carried
on) is ordered once, by key. No row meets more rows of another relation than it becomes.
"""

from typing import NamedTuple

from muster.tables.schemas import LAG_HISTORY, RATES
from muster.tables.sql import ends
from muster.tables.sql.ends import LOOK_BACK_MS, same_log
from muster.tables.sql.queries import COUNTS, UNTIL_BEFORE, UNTIL_HERE, added_up, difference

INTERVAL_MS = 5 * 60_000
"""Of the published tables."""
NEVER_MS = (1 << 63) - 1

BEFORE = ("group_id", "topic", "partition", "log_offset", "committed_offset", "commit_ms")
"""What was in force: `committed_offset` NULL for a deletion, `commit_ms` its time."""

TIMES = ("timestamp_ms", "commit_timestamp_ms", "previous_commit_timestamp_ms")
"""Where the time of a commit is: in the first of these that is not NULL."""
AT = f"coalesce({', '.join(f'c.{name}' for name in TIMES)}, 0)"
"""The time of a row `c` of `commits`."""
KEY = "group_id, topic, partition"


class Held(NamedTuple):
    """Relations: what the last run published of a table, and from when on something is new since."""

    rows: str
    """Of the groups that rows are made of."""
    of_all: str
    """Of all groups: where a log ended, any of them tells."""
    commits: str
    """Rows of `commits` of all groups, with all deletions among them."""
    observed: str
    """Of `ends.observed_since`."""
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
    both = "p.place % 2 = 1 AND p.previous_place % 2 = 1"
    return f"""
        SELECT {_key("s")}, s.interval_start_ms, sum(s.place % 2) AS commits, max(s.place) AS place,
            max_by(s.committed_offset, s.place) AS committed_offset, max_by(s.at_ms, s.place) AS at_ms,
            min(s.place) AS first_place, min_by(s.committed_offset, s.place) AS first_offset,
            min_by(s.at_ms, s.place) AS first_ms,
            count(s.step) AS steps, coalesce({added_up("CASE WHEN s.step > 0 THEN s.step END")}, 0) AS forward,
            coalesce({added_up("CASE WHEN s.step < 0 THEN -s.step END")}, 0) AS back,
            sum(CASE WHEN s.step < 0 THEN 1 ELSE 0 END) AS rewinds,
            coalesce(sum(s.distance_ms), 0) AS distances_ms, max(s.distance_ms) AS longest_ms
        FROM (
            SELECT p.*, CASE WHEN {both} THEN {difference("p.committed_offset", "p.previous_offset")} END AS step,
                CASE WHEN {both} THEN greatest(p.at_ms - p.previous_ms, 0) END AS distance_ms
            FROM (
                SELECT m.*, lag(m.place) OVER ({inner}) AS previous_place,
                    lag(m.committed_offset) OVER ({inner}) AS previous_offset,
                    lag(m.at_ms) OVER ({inner}) AS previous_ms
                FROM ({_moves(commits, interval_ms, since_ms)}) m
            ) p
        ) s GROUP BY {_key("s")}, s.interval_start_ms"""


def _still_holds(held: Held, rows: str) -> str:
    """Published rows `h` of which no new observation changes the end of the log."""
    return f"""{rows} h LEFT JOIN {held.observed} t ON {same_log("h", "t")}
        WHERE h.interval_start_ms < coalesce(t.since_ms, {NEVER_MS})"""


def _with_held(made: str, names: str, held: Held | None, held_names: str, since_ms: int) -> str:
    """Rows `n` that were made, where something is new; all other rows as they are published."""
    if held is None or held.committed is None:
        return f"SELECT {names} FROM {made} n"

    def news(rows: str) -> str:
        return f"""LEFT JOIN {held.committed} k ON {_same_key(rows, "k")}
            LEFT JOIN {held.observed} t ON {same_log(rows, "t")}"""

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


# ---- lag_history


def _known_ends(held: Held | None, interval_ms: int, since_ms: int) -> str:
    """Ends of logs as published rows of `lag_history` tell them, by partition and interval.

    `is_look`: some row is there since another end was observed, and for nothing else: neither for a commit, nor for a
    deletion that came before the commit in force in the log.
    """
    if held is None:
        return """
            SELECT l.topic, l.partition, l.interval_start_ms, l.observed_at_ms AS at_ms, l.log_end_offset,
                CAST(NULL AS STRING) AS log_end_by, 0 AS is_look
            FROM looks l WHERE FALSE"""
    return f"""
        SELECT h.topic, h.partition, h.interval_start_ms, max(h.at_ms) AS at_ms,
            max_by(h.log_end_offset, h.at_ms) AS log_end_offset, max_by(h.log_end_by, h.at_ms) AS log_end_by,
            max(CASE WHEN h.commits = 0 AND h.committed_offset IS NOT NULL AND d.group_id IS NULL THEN 1 ELSE 0 END)
                AS is_look
        FROM (SELECT h.* FROM {_still_holds(held, held.of_all)}) h
        LEFT JOIN (
            SELECT DISTINCT {_key("c")}, {AT} - {AT} % {interval_ms} AS interval_start_ms
            FROM {held.commits} c WHERE c.kind <> 'commit'
        ) d ON {_same_key("h", "d")} AND h.interval_start_ms = d.interval_start_ms
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
        FROM {_still_holds(held, held.rows)} AND h.lag > 0"""


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
    spots = f"""{ends.observed_spots("moves", "m.interval_start_ms", "observed")}
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
        ), observations AS ({ends.observations(log_ends, interval_ms, since_ms)}
        ), looks AS ({ends.looks("observations", interval_ms)}
        ), observed AS ({ends.first_looks("looks")}
        ), known AS ({_known_ends(held, interval_ms, since_ms)}
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
            ) k JOIN changes c ON {same_log("k", "c")}
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
        ), drawn AS ({ends.at_intervals(spots, "looks", interval_ms)}
        ), ends AS (
            SELECT d.topic, d.partition, d.interval_start_ms, d.era, coalesce(k.at_ms, d.at_ms) AS at_ms,
                coalesce(k.log_end_offset, d.log_end_offset) AS log_end_offset,
                coalesce(k.log_end_by, d.log_end_by) AS log_end_by
            FROM drawn d LEFT JOIN known k ON {same_log("d", "k")} AND d.interval_start_ms = k.interval_start_ms
        ), measured AS (
            SELECT r.*, coalesce(e.at_ms, r.interval_start_ms + {interval_ms}) AS at_ms, e.era, e.log_end_by,
                e.log_end_offset,
                coalesce(r.commit_ms > e.at_ms AND r.committed_offset >= e.log_end_offset, FALSE) AS is_outdated,
                CASE WHEN e.log_end_offset > r.committed_offset THEN r.committed_offset END AS behind_at
            FROM rows_of r LEFT JOIN ends e ON r.topic = e.topic AND r.partition = e.partition
                AND r.interval_start_ms = e.interval_start_ms
        ), behind AS (
            SELECT DISTINCT m.topic, m.partition, m.era, m.behind_at FROM measured m WHERE m.behind_at IS NOT NULL
        ), passed AS ({ends.passed("behind", "observations")}
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
                    THEN greatest({difference("m.log_end_offset", "m.committed_offset")}, 0) END AS lag,
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
        FROM {_still_holds(held, held.of_all)} AND h.produced IS NOT NULL
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

    at_the_end = ends.observed_spots(moves, "m.interval_start_ms", "observed")
    at_the_start = ends.observed_spots(moves, f"(m.interval_start_ms - {interval_ms})", "observed")
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
                CASE WHEN {is_joined} THEN {difference("j.first_offset", "j.committed_before")} ELSE 0 END AS step,
                CASE WHEN {is_joined} THEN greatest(j.first_ms - j.before_ms, 0) END AS distance_ms
            FROM joined j WHERE j.interval_start_ms >= {since_ms}
        ), observations AS ({ends.observations(log_ends, interval_ms, since_ms)}
        ), looks AS ({ends.looks("observations", interval_ms)}
        ), observed AS ({ends.first_looks("looks")}
        ), ends AS ({ends.at_intervals(f"{at_the_end} UNION {at_the_start}", "looks", interval_ms)}
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
            LEFT JOIN ({_known_production(held)}) k ON {same_log("w", "k")}
                AND w.interval_start_ms = k.interval_start_ms
            WHERE w.commits > 0
        )
        {_with_held("named", names_of("n"), held, names_of("h"), since_ms)}"""


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


def first_change(new_commits: str) -> str:
    """The earliest time of these commits."""
    return f"SELECT min({AT}) FROM {new_commits} c"


def late_commits(new_commits: str, read_before: str) -> str:
    """Of each key the first of the new commits that an earlier run has read, before their transaction had ended.

    `read_before` has up to where (`next_offset`) partitions were read; of those that it lacks any commit may be one.
    """
    return f"""
        SELECT {_key("c")}, min(c.log_offset) AS log_offset
        FROM {new_commits} c LEFT JOIN {read_before} r ON c.offsets_partition = r.offsets_partition
        WHERE c.txn_outcome = 'committed' AND coalesce(c.log_offset < r.next_offset, TRUE)
        GROUP BY {_key("c")}"""


def first_deletion(commits: str, late: str) -> str:
    """The earliest time of the deletions behind late commits in the log: such a commit never came into force."""
    return f"""
        SELECT min({AT}) FROM {commits} c JOIN {late} l ON {_same_key("c", "l")} AND c.log_offset > l.log_offset
        WHERE c.kind <> 'commit'"""


def committed_since(new_commits: str, interval_ms: int = INTERVAL_MS) -> str:
    """Of each key that has new commits, the interval (`since_ms`) of the earliest."""
    return f"""
        SELECT {_key("c")}, min({AT} - {AT} % {interval_ms}) AS since_ms
        FROM {new_commits} c GROUP BY {_key("c")}"""
