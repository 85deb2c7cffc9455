"""SQL for state and for moments in the past, in the dialect that Spark and duckdb share.

Each function takes *relations* (names of tables or views, or a whole query in parentheses) with the columns that
`schemas` gives the table of that name, and returns a query with the columns of the table it is called after; types are
those of the schema but for the width of counts, so cast at the end. `explode` is the one word here that the two do not
share: duckdb says `unnest` (all such words: `dialects`).

Log order decides everywhere, never a clock: the newest record is the one with the highest `log_offset`. Aggregates are
of fixed width (the highest offset, then back to its row), or Spark would sort instead of hashing.
"""

from muster.tables.clocks import AHEAD_MS
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MEMBERS, OFFSETS, REBALANCES

DUCKDB_EXPLODE = "unnest"
SPARK_EXPLODE = "explode"

COUNTS = "(kind <> 'commit' OR txn_outcome IS NULL OR txn_outcome = 'committed')"
"""Rows of `commits` that decide what is in force: plain commits, those of committed transactions, and deletions."""

FARTHEST = (1 << 61) - 1
"""An offset beyond this counts as this one in differences: clients commit any number of 64 bits."""
MOST = 2 * FARTHEST
"""So many records are between two offsets at most; and more than that are counted as this many."""

UNTIL_HERE = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
UNTIL_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"

HEADS = "(2, 3, 11, 17)"
"""Record types that say that there is a group: classic, consumer, share, streams."""
SEATS = "(5, 10, 19)"
"""One record for each member."""
TARGET_EPOCHS = "(6, 12, 20)"
TARGETS = "(7, 13, 21)"
CURRENTS = "(8, 14, 22)"
IS_STABLE = "coalesce({0}.member_state = CASE WHEN {0}.record_type = 22 THEN 1 ELSE 0 END, TRUE)"
"""Neither partitions to give up nor to wait for: Kafka counts member states from 0, and those of streams from 1."""
TOPOLOGY = 23


def difference(left: str, right: str) -> str:
    """How many records lie between two offsets, whatever they are; NULL where one of them is."""

    def within(offset: str) -> str:
        return f"least(greatest({offset}, {-FARTHEST}), {FARTHEST})"

    return f"CASE WHEN {left} IS NOT NULL AND {right} IS NOT NULL THEN {within(left)} - {within(right)} END"


def added_up(records: str) -> str:
    """An aggregate: numbers of records together, `MOST` at most; NULL where there is none."""
    total = f"sum(CAST({records} AS DECIMAL(38, 0)))"
    return f"CASE WHEN {total} > {MOST} THEN {MOST} ELSE CAST({total} AS BIGINT) END"


def _columns(names: list[str], relation: str) -> str:
    return ", ".join(f"{relation}.{name}" for name in names)


def _kind(record_type: str) -> str:
    """The type of a group, by the type of one of its records."""
    return (
        f"CASE WHEN {record_type} = 2 THEN 'classic' WHEN {record_type} BETWEEN 9 AND 15 THEN 'share' "
        f"WHEN {record_type} BETWEEN 17 AND 23 THEN 'streams' ELSE 'consumer' END"
    )


# ---- moments in the past


def prefix_ends(*history: str, as_of_ms: int) -> str:
    """Where the log as of a moment ends: `offsets_partition`, `end_offset` (the first record written later).

    `history` is everything that records went to: `commits`, `open_commits`, `group_records` and `markers`.
    A partition without a later record is not there: all of it counts. What comes behind the end was not there yet at
    that moment even if its own time is earlier, as clocks step back. But not by hours: a record that is dated so much
    later, with others behind it that were there at that moment, was stamped wrongly and ends nothing.
    """
    moment = int(as_of_ms)
    places = " UNION ALL ".join(
        f"SELECT offsets_partition, log_offset, timestamp_ms FROM {relation} r" for relation in history
    )
    return f"""
        SELECT q.offsets_partition,
            CASE WHEN q.there > q.later THEN least(q.little_later, q.there + 1) ELSE q.later END AS end_offset
        FROM (
            SELECT p.offsets_partition,
                max(CASE WHEN p.timestamp_ms <= {moment} THEN p.log_offset END) AS there,
                min(CASE WHEN p.timestamp_ms > {moment} THEN p.log_offset END) AS later,
                min(CASE WHEN p.timestamp_ms BETWEEN {moment + 1} AND {moment + AHEAD_MS} THEN p.log_offset END)
                    AS little_later
            FROM ({places}) p GROUP BY p.offsets_partition
        ) q WHERE q.later IS NOT NULL"""


def before(relation: str, names: list[str], ends: str) -> str:
    """The rows of a history table that the log held before its ends."""
    return f"""
        SELECT {_columns(names, "r")} FROM {relation} r LEFT JOIN {ends} e ON r.offsets_partition = e.offsets_partition
        WHERE e.end_offset IS NULL OR r.log_offset < e.end_offset"""


def commits_before(commits: str, open_commits: str, ends: str) -> str:
    """Commits and deletions as of a moment; a transaction whose marker came later was still `open` then.

    An outcome without a marker (no run has read it) stays what it is.
    """
    was_open = "r.txn_marker_offset >= e.end_offset"
    names = [
        f"CASE WHEN {was_open} THEN 'open' ELSE r.txn_outcome END AS txn_outcome"
        if name == "txn_outcome"
        else f"CASE WHEN {was_open} THEN NULL ELSE r.txn_marker_offset END AS txn_marker_offset"
        if name == "txn_marker_offset"
        else f"r.{name}"
        for name in COMMITS.names
    ]
    names_of_both = _columns(COMMITS.names, "c")
    both = (
        f"SELECT {names_of_both} FROM {commits} c "
        f"UNION ALL SELECT {names_of_both} FROM {open_commits} c WHERE c.txn_outcome = 'open'"
    )
    return f"""
        SELECT {", ".join(names)} FROM ({both}) r LEFT JOIN {ends} e ON r.offsets_partition = e.offsets_partition
        WHERE e.end_offset IS NULL OR r.log_offset < e.end_offset"""


# ---- offsets


def offsets(commits: str) -> str:
    """The commit in force of each group, topic and partition, of rows like those of `commits`.

    Open and aborted transactions do not count; a deletion counts and leaves no row, and ends also what a transaction
    had committed before it and confirms after it.
    """
    newest = _newest_places(commits, COUNTS)
    return f"""
        SELECT {_columns(OFFSETS.names, "c")} FROM {commits} c JOIN ({newest}) n
        ON c.group_id = n.group_id AND c.topic = n.topic AND c.partition = n.partition AND c.log_offset = n.log_offset
        WHERE c.kind = 'commit' AND {COUNTS}"""


def open_offsets(commits: str) -> str:
    """Commits of transactions that have not ended, and that no deletion has ended either.

    Of rows like those of `commits`, or of `open_commits` if that has deletions of the same keys beside them.
    """
    deleted = _newest_places(commits, "kind <> 'commit'")
    return f"""
        SELECT {_columns(COMMITS.names, "c")} FROM {commits} c LEFT JOIN ({deleted}) d
        ON c.group_id = d.group_id AND c.topic = d.topic AND c.partition = d.partition
        WHERE c.kind = 'commit' AND c.txn_outcome = 'open' AND (d.log_offset IS NULL OR d.log_offset < c.log_offset)"""


def _newest_places(commits: str, condition: str) -> str:
    return f"""
        SELECT r.group_id, r.topic, r.partition, max(r.log_offset) AS log_offset FROM {commits} r
        WHERE {condition} GROUP BY r.group_id, r.topic, r.partition"""


# ---- groups


def group_state(group_records: str) -> str:
    """The newest record of each key, if it is no deletion. What could not be read replaces nothing."""
    return f"""
        SELECT {_columns(GROUP_RECORDS.names, "r")} FROM {group_records} r JOIN (
            SELECT g.offsets_partition, max(g.log_offset) AS log_offset FROM {group_records} g
            WHERE g.record_type >= 2 AND g.problem IS NULL AND g.group_id IS NOT NULL
            GROUP BY g.offsets_partition, g.record_type, g.group_id, g.member_id,
                CASE WHEN g.record_type = 16 THEN g.regular_expression END
        ) n ON r.offsets_partition = n.offsets_partition AND r.log_offset = n.log_offset
        WHERE NOT r.is_tombstone"""


def members(group_state: str, explode: str = SPARK_EXPLODE) -> str:
    """Members of groups of every kind. `generation` is a member's own epoch where the kind has one.

    In a streams group the topic of an assignment is the id of a subtopology.
    """
    classic = f"""
        SELECT c.group_id, 'classic' AS type, c.m.member_id AS member_id, c.m.instance_id AS instance_id,
            c.m.client_id AS client_id, c.m.client_host AS client_host, NULL AS rack_id, c.epoch AS generation,
            c.m.rebalance_timeout_ms AS rebalance_timeout_ms, c.m.session_timeout_ms AS session_timeout_ms,
            c.m.subscribed_topics AS subscribed_topics, NULL AS regular_expression, c.m.assignment AS assignment,
            NULL AS target_assignment, c.offsets_partition
        FROM (SELECT s.group_id, s.epoch, s.offsets_partition, {explode}(s.members) AS m FROM {group_state} s
            WHERE s.record_type = 2) c"""
    newer = f"""
        SELECT b.group_id, {_kind("b.record_type")} AS type, b.member_id, b.instance_id, b.client_id, b.client_host,
            b.rack_id, c.epoch AS generation, b.rebalance_timeout_ms, NULL AS session_timeout_ms, b.subscribed_topics,
            b.regular_expression, c.assignment, t.assignment AS target_assignment, b.offsets_partition
        FROM {group_state} b
        LEFT JOIN (SELECT * FROM {group_state} x WHERE x.record_type IN {CURRENTS}) c
            ON b.group_id = c.group_id AND b.member_id = c.member_id
        LEFT JOIN (SELECT * FROM {group_state} y WHERE y.record_type IN {TARGETS}) t
            ON b.group_id = t.group_id AND b.member_id = t.member_id
        WHERE b.record_type IN {SEATS}"""
    return f"SELECT {', '.join(MEMBERS.names)} FROM ({classic} UNION ALL {newer}) u"


def groups(group_state: str, members: str, offsets: str, open_commits: str) -> str:
    """Groups of every kind, with the state that a coordinator would compute from its log.

    A group that only commits (no member ever joined) is `simple`, as `isSimpleConsumerGroup` of Kafka's admin client,
    also while its only commits wait for the end of a transaction. A rebalance under way in a classic group is in no
    log: such a group is Stable here, or Empty. A streams group whose topology was never written is NotReady.
    """
    return f"""
        WITH places AS (
            SELECT s.offsets_partition, s.group_id,
                coalesce(max(CASE WHEN s.record_type IN {HEADS} THEN s.log_offset END), max(s.log_offset)) AS log_offset
            FROM {group_state} s GROUP BY s.offsets_partition, s.group_id
        ), heads AS (
            SELECT s.*, {_kind("s.record_type")} AS kind, s.record_type IN {HEADS} AS is_head FROM {group_state} s
            JOIN places p ON s.offsets_partition = p.offsets_partition AND s.log_offset = p.log_offset
        ), targets AS (
            SELECT s.group_id, max(s.epoch) AS epoch, max(s.state_timestamp_ms) AS state_timestamp_ms
            FROM {group_state} s WHERE s.record_type IN {TARGET_EPOCHS} GROUP BY s.group_id
        ), unsettled AS (
            SELECT b.group_id, count(*) AS members FROM {group_state} b
            LEFT JOIN (SELECT * FROM {group_state} x WHERE x.record_type IN {CURRENTS}) c
                ON b.group_id = c.group_id AND b.member_id = c.member_id
            LEFT JOIN targets t ON b.group_id = t.group_id
            WHERE b.record_type IN {SEATS}
                AND NOT (coalesce(c.epoch, 0) = coalesce(t.epoch, 0) AND {IS_STABLE.format("c")})
            GROUP BY b.group_id
        ), topologies AS (
            SELECT DISTINCT s.group_id FROM {group_state} s WHERE s.record_type = {TOPOLOGY}
        ), counted AS (
            SELECT m.group_id, count(*) AS members FROM {members} m GROUP BY m.group_id
        ), held AS (
            SELECT o.group_id, count(*) AS partitions, max(o.commit_timestamp_ms) AS commit_timestamp_ms
            FROM {offsets} o GROUP BY o.group_id
        ), ids AS (
            SELECT i.group_id, max(i.offsets_partition) AS offsets_partition FROM (
                SELECT group_id, offsets_partition FROM places
                UNION ALL SELECT o.group_id, o.offsets_partition FROM {offsets} o
                UNION ALL SELECT w.group_id, w.offsets_partition FROM ({open_offsets(open_commits)}) w
            ) i GROUP BY i.group_id
        ), facts AS (
            SELECT i.group_id, coalesce(h.kind, 'simple') AS kind,
                CASE WHEN h.is_head THEN h.epoch END AS generation, h.protocol_type, h.protocol, h.leader,
                coalesce(c.members, 0) AS members, coalesce(o.partitions, 0) AS committed_partitions,
                coalesce(h.state_timestamp_ms, t.state_timestamp_ms) AS state_timestamp_ms,
                o.commit_timestamp_ms AS last_commit_timestamp_ms, i.offsets_partition, h.log_offset,
                coalesce(t.epoch, 0) AS target_epoch, coalesce(u.members, 0) AS unsettled,
                y.group_id IS NOT NULL AS has_topology
            FROM ids i
            LEFT JOIN heads h ON i.group_id = h.group_id
            LEFT JOIN targets t ON i.group_id = t.group_id
            LEFT JOIN counted c ON i.group_id = c.group_id
            LEFT JOIN held o ON i.group_id = o.group_id
            LEFT JOIN unsettled u ON i.group_id = u.group_id
            LEFT JOIN topologies y ON i.group_id = y.group_id
        )
        SELECT group_id,
            CASE WHEN kind = 'classic' AND members = 0 AND coalesce(protocol_type, '') = '' THEN 'simple'
                ELSE kind END AS type,
            CASE WHEN members = 0 THEN 'Empty'
                WHEN kind IN ('classic', 'share') THEN 'Stable'
                WHEN kind = 'streams' AND NOT has_topology THEN 'NotReady'
                WHEN generation > target_epoch THEN 'Assigning'
                WHEN unsettled > 0 THEN 'Reconciling'
                ELSE 'Stable' END AS state,
            generation,
            CASE WHEN kind IN ('consumer', 'share', 'streams') THEN kind ELSE protocol_type END AS protocol_type,
            protocol, leader, members, committed_partitions, state_timestamp_ms, last_commit_timestamp_ms,
            offsets_partition, log_offset
        FROM facts"""


def all_rebalances(rebalances: str, latest: str) -> str:
    """Rows of rebalances, with the newest of each group, which are kept apart."""
    names = ", ".join(f"r.{name}" for name in REBALANCES.names)
    return f"SELECT {names} FROM {rebalances} r UNION ALL SELECT {names} FROM {latest} r WHERE r.at_ms IS NOT NULL"
