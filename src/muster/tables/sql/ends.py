"""SQL for the ends of logs at any moment, from observations of them; in the dialect that Spark and duckdb share.

The end of a log at a moment is on the straight line between the observations before and after it, if both are less than
a day away. Behind the newest observation it is unknown; so the last row of a series is of the moment of that
observation (`at_ms`), and a later run makes it one of the interval's end. Where ends fall or the topic's id changes (it
was made anew under its old name) there is no line. Many moments are found by windows over all observations
(`at_intervals`), a single one by aggregates over those around it (`ends_at`), which is quicker.
"""

from muster.tables.sql.queries import UNTIL_HERE

LOOK_BACK_MS = 86_400_000
"""How far from a moment an observation of a log's end says anything about it."""


def same_log(left: str, right: str) -> str:
    return f"{left}.topic = {right}.topic AND {left}.partition = {right}.partition"


def _risen(left: str, next: str, left_ms: str, next_ms: str, at_ms: str) -> str:
    """By how much a number that was `left` and became `next` had risen at a moment between, on the straight line."""
    return (
        f"CAST(floor(CAST({next} - {left} AS DOUBLE) * CAST({at_ms} - {left_ms} AS DOUBLE) "
        f"/ CAST({next_ms} - {left_ms} AS DOUBLE)) AS BIGINT)"
    )


def newest_ends(log_ends: str, run_number: int | None = None) -> str:
    """What the last run observed, or one run; of rows without a run's number, the latest by time.

    By run, since clocks step back and records of any time come and go. `log_end_most` is what the end cannot have been
    beyond, `last_stable_most` the same of the last stable offset; `next_ms` is there where an end is drawn: when it was
    observed where it is drawn to.
    """
    run = "coalesce({0}.run_number, -1)"
    chosen = "" if run_number is None else f"WHERE r.run_number = {int(run_number)}"
    return f"""
        SELECT e.topic, e.partition, max(e.observed_at_ms) AS observed_at_ms,
            max(e.log_start_offset) AS log_start_offset, max(e.log_end_offset) AS log_end_offset,
            max(e.log_end_offset) AS log_end_most,
            CASE WHEN max(e.log_end_offset) IS NOT NULL THEN 'observed' END AS log_end_by,
            max(e.last_stable_offset) AS last_stable_offset, max(e.last_stable_offset) AS last_stable_most,
            max(e.data_end_offset) AS data_end_offset, CAST(NULL AS BIGINT) AS next_ms
        FROM {log_ends} e JOIN (
            SELECT {run.format("r")} AS run_number, max(r.observed_at_ms) AS observed_at_ms FROM {log_ends} r {chosen}
            GROUP BY {run.format("r")} ORDER BY run_number DESC LIMIT 1
        ) n ON {run.format("e")} = n.run_number AND (n.run_number >= 0 OR e.observed_at_ms = n.observed_at_ms)
        GROUP BY e.topic, e.partition"""


OF_AN_END = ("log_start_offset", "log_end_offset", "log_end_most", "log_end_by", "last_stable_offset",
             "last_stable_most", "data_end_offset", "next_ms")  # fmt: skip


def ends_at(log_ends: str, at_ms: int) -> str:
    """Where logs ended at a moment, with the columns of `newest_ends`: on the line between the observations around it,
    as in `at_intervals`; where there is none, what the last run before the moment observed.

    Where a log begins is what the observation before tells: that something is lost is never guessed.
    """
    moment = int(at_ms)
    before = f"(SELECT * FROM {log_ends} b WHERE b.observed_at_ms <= {moment})"
    return f"""
        SELECT coalesce(l.topic, e.topic) AS topic, coalesce(l.partition, e.partition) AS partition,
            CASE WHEN l.topic IS NULL THEN e.observed_at_ms ELSE {moment} END AS observed_at_ms,
            {", ".join(f"CASE WHEN l.topic IS NULL THEN e.{name} ELSE l.{name} END AS {name}" for name in OF_AN_END)}
        FROM ({newest_ends(before)}) e FULL JOIN ({_lines(log_ends, moment)}) l ON {same_log("e", "l")}"""


def _lines(log_ends: str, moment: int) -> str:
    """Ends of the logs that were observed both before a moment (or right then) and after it, and did not fall."""
    numbers = ("log_start_offset", "log_end_offset", "last_stable_offset", "data_end_offset")
    none = dict.fromkeys(numbers, "-1") | {"topic_id": "''"}  # with NULL, engines differ on `max_by`
    around = ", ".join(
        f"{of}(coalesce(o.{name}, {none[name]}), o.{side}_ms) AS {side}_{name}"
        for name in none
        for of, side in (("max_by", "left"), ("min_by", "next"))
    )
    known = ", ".join(
        f"nullif(k.{side}_{name}, {none[name]}) AS {side}_{name}" for name in none for side in ("left", "next")
    )

    def drawn(name: str) -> str:
        left, next = f"l.left_{name}", f"l.next_{name}"
        return (
            f"CASE WHEN l.left_ms = {moment} OR {next} = {left} THEN {left} "
            f"WHEN {next} > {left} THEN {left} + {_risen(left, next, 'l.left_ms', 'l.next_ms', str(moment))} END"
        )

    is_between = f"l.left_ms < {moment} AND l.next_log_end_offset > l.left_log_end_offset"
    return f"""
        SELECT l.topic, l.partition, l.left_log_start_offset AS log_start_offset,
            {drawn("log_end_offset")} AS log_end_offset,
            CASE WHEN {is_between} THEN l.next_log_end_offset ELSE l.left_log_end_offset END AS log_end_most,
            CASE WHEN {is_between} THEN 'interpolated' ELSE 'observed' END AS log_end_by,
            {drawn("last_stable_offset")} AS last_stable_offset,
            CASE WHEN l.left_ms < {moment} THEN l.next_last_stable_offset ELSE l.left_last_stable_offset END
                AS last_stable_most,
            {drawn("data_end_offset")} AS data_end_offset, CASE WHEN {is_between} THEN l.next_ms END AS next_ms
        FROM (
            SELECT k.topic, k.partition, k.left_ms, k.next_ms, {known}
            FROM (
                SELECT o.topic, o.partition, max(o.left_ms) AS left_ms, min(o.next_ms) AS next_ms, {around}
                FROM (
                    SELECT r.topic, r.partition, max(r.topic_id) AS topic_id,
                        {", ".join(f"max(r.{name}) AS {name}" for name in numbers)},
                        CASE WHEN r.observed_at_ms <= {moment} THEN r.observed_at_ms END AS left_ms,
                        CASE WHEN r.observed_at_ms > {moment} THEN r.observed_at_ms END AS next_ms
                    FROM {log_ends} r WHERE r.log_end_offset IS NOT NULL
                        AND r.observed_at_ms >= {moment - LOOK_BACK_MS} AND r.observed_at_ms < {moment + LOOK_BACK_MS}
                    GROUP BY r.topic, r.partition, r.observed_at_ms
                ) o GROUP BY o.topic, o.partition
            ) k
        ) l WHERE l.next_log_end_offset >= l.left_log_end_offset
            AND coalesce(l.left_topic_id = l.next_topic_id, TRUE)"""


def observations(log_ends: str, interval_ms: int = 1, since_ms: int = LOOK_BACK_MS) -> str:
    """Every observation of a log's end with the one before it and the one after it.

    `era` counts how often the topic had been made anew, by its id or by an end that fell: within one, ends only rise.
    `next_end` is of a topic of the same id.
    """
    window = "PARTITION BY {0}.topic, {0}.partition ORDER BY {0}.observed_at_ms"
    return f"""
        SELECT n.topic, n.partition, n.observed_at_ms, n.log_end_offset, n.interval_start_ms, n.next_ms,
            CASE WHEN coalesce(n.next_id = n.topic_id, TRUE) THEN n.next_end END AS next_end,
            sum(CASE WHEN n.previous_end > n.log_end_offset OR n.previous_id <> n.topic_id THEN 1 ELSE 0 END) OVER (
                {window.format("n")} {UNTIL_HERE}) AS era
        FROM (
            SELECT o.topic, o.partition, o.topic_id, o.observed_at_ms, o.log_end_offset,
                lag(o.topic_id) OVER ({window.format("o")}) AS previous_id,
                lead(o.topic_id) OVER ({window.format("o")}) AS next_id,
                o.observed_at_ms - o.observed_at_ms % {interval_ms} AS interval_start_ms,
                lag(o.log_end_offset) OVER ({window.format("o")}) AS previous_end,
                lead(o.observed_at_ms) OVER ({window.format("o")}) AS next_ms,
                lead(o.log_end_offset) OVER ({window.format("o")}) AS next_end
            FROM (
                SELECT r.topic, r.partition, r.observed_at_ms, max(r.topic_id) AS topic_id,
                    max(r.log_end_offset) AS log_end_offset
                FROM {log_ends} r
                WHERE r.log_end_offset IS NOT NULL AND r.observed_at_ms >= {since_ms - LOOK_BACK_MS}
                GROUP BY r.topic, r.partition, r.observed_at_ms
            ) o
        ) n"""


def of_topics_now(log_ends: str) -> str:
    """Rows of `log_ends` without those of topics that were made anew since, as far as ids tell that.

    What came later is told by runs: clocks step back, and two copies of a disk may be of one moment. Rows of before
    runs had numbers are the earliest.
    """
    place = f"coalesce({{0}}.run_number, {{0}}.observed_at_ms - {1 << 60})"
    return f"""
        SELECT e.* FROM {log_ends} e LEFT JOIN (
            SELECT o.topic, max({place.format("o")}) AS last FROM {log_ends} o JOIN (
                SELECT r.topic, max_by(r.topic_id, {place.format("r")}) AS topic_id FROM {log_ends} r
                WHERE r.topic_id IS NOT NULL AND r.observed_at_ms IS NOT NULL GROUP BY r.topic
            ) n ON o.topic = n.topic AND o.topic_id <> n.topic_id GROUP BY o.topic
        ) g ON e.topic = g.topic WHERE g.topic IS NULL OR {place.format("e")} > g.last"""


def looks(observations: str, interval_ms: int) -> str:
    """The last observation of each interval that has one, and whether it is another end than at the one before, or the
    first for a day."""
    window = "PARTITION BY l.topic, l.partition ORDER BY l.interval_start_ms"
    before = f"l.interval_start_ms - {LOOK_BACK_MS}"
    return f"""
        SELECT l.*, coalesce(lag(l.log_end_offset) OVER ({window}) <> l.log_end_offset
            OR lag(l.observed_at_ms) OVER ({window}) < {before}, TRUE) AS is_change
        FROM {observations} l WHERE l.next_ms IS NULL OR l.next_ms >= l.interval_start_ms + {interval_ms}"""


def first_looks(looks: str) -> str:
    """Since when the end of a log is observed: before that there is none to be found."""
    return f"""
        SELECT l.topic, l.partition, min(l.interval_start_ms) AS first_ms
        FROM {looks} l GROUP BY l.topic, l.partition"""


def observed_spots(moves: str, starts: str, observed: str) -> str:
    """Intervals (`starts`, of rows `m`) in which the end of a log is asked for, and may be known."""
    return f"""
        SELECT m.topic, m.partition, {starts} AS interval_start_ms
        FROM {moves} m JOIN {observed} o ON m.topic = o.topic AND m.partition = o.partition
        WHERE {starts} >= o.first_ms"""


def at_intervals(spots: str, looks: str, interval_ms: int) -> str:
    """Where a log ended at the ends of intervals: of spots (`topic`, `partition`, `interval_start_ms`).

    `at_ms` is the interval's end, or that of the last observation in the interval if no line leads on from there.
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
            CASE WHEN {has_line} THEN f.left_end + {_risen("f.left_end", "f.next_end", "f.left_ms", "f.next_ms", over)}
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


def passed(behind: str, observations: str) -> str:
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


def observed_since(log_ends: str, after_run: int, interval_ms: int) -> str:
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
            ) b ON {same_log("n", "b")} AND n.observed_at_ms > b.observed_at_ms
            GROUP BY n.topic, n.partition, n.observed_at_ms
        ) w WHERE w.new_ms IS NOT NULL"""


def first_observed(log_ends: str, after_run: int) -> str:
    """From when on the observations of later runs say something new of any partition. Those of a day before them are
    needed.
    """
    return f"SELECT min(o.since_ms) FROM ({observed_since(log_ends, after_run, 1)}) o"
