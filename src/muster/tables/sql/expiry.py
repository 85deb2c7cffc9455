"""SQL for `expiry`: when a broker will delete offsets and groups, in the dialect that Spark and duckdb share.

The rules are those of Kafka 4.3 (`Group.offsetExpirationCondition`, `OffsetMetadataManager.cleanupExpiredOffsets`):

    an offset      goes once the retention has passed: of a classic group without members since it lost the last one, if
                   its record tells when; of all others since the commit. A commit with an expiry of its own goes then.
    is kept        while a member is subscribed to its topic, while a transaction that has not ended committed for it,
                   and in a classic group with members whose topics are not known (another protocol, or unreadable).
    a group        goes with the last of its offsets, if it has neither members nor an open transaction. Share groups
                   are never deleted for their age.

A rebalance of a classic group is in no log. While it lasts, nothing of the group expires.
"""

from muster.tables.schemas import EXPIRY
from muster.tables.sql.queries import SPARK_EXPLODE, TOPOLOGY, open_offsets

EXPRESSIONS = 16
"""Record type: which topics the regular expression of a consumer group matches."""
WEEK_MS = 7 * 24 * 3_600_000
"""Kafka's own `offsets.retention.minutes`."""


def expiry(
    offsets: str,
    groups: str,
    members: str,
    group_state: str,
    open_commits: str,
    at_ms: int | str,
    retention_ms: int | str,
    explode: str = SPARK_EXPLODE,
) -> str:
    """When each offset in force, and each group, will be deleted if nothing more happens.

    The moment and the retention are numbers, or queries in parentheses that give one.
    """
    return f"""
        WITH subscribed AS (
            SELECT DISTINCT t.group_id, t.topic FROM (
                SELECT m.group_id, {explode}(m.subscribed_topics) AS topic FROM {members} m
                WHERE m.type IN ('classic', 'consumer')
                UNION ALL
                SELECT s.group_id, {explode}(s.subscribed_topics) AS topic FROM {group_state} s
                WHERE s.record_type = {EXPRESSIONS}
            ) t
        ), topologies AS (
            SELECT s.group_id, max(s.json) AS json FROM {group_state} s WHERE s.record_type = {TOPOLOGY}
            GROUP BY s.group_id
        ), untold AS (
            SELECT m.group_id, count(*) AS members FROM {members} m
            WHERE m.type = 'classic' AND m.subscribed_topics IS NULL GROUP BY m.group_id
        ), pending AS (
            SELECT DISTINCT p.group_id, p.topic, p.partition FROM ({open_offsets(open_commits)}) p
        ), facts AS (
            SELECT o.group_id, o.topic, o.partition, o.committed_offset, o.expire_timestamp_ms, o.commit_timestamp_ms,
                CASE WHEN g.type = 'classic' AND g.members = 0 THEN g.state_timestamp_ms END AS emptied_ms,
                g.type = 'share' AS is_share, g.members > 0 AS has_members,
                g.type = 'classic' AND (coalesce(g.protocol_type, '') <> 'consumer' OR u.group_id IS NOT NULL)
                    AS is_untold,
                s.topic IS NOT NULL OR coalesce(instr(y.json, concat('"', o.topic, '"')), 0) > 0 AS is_subscribed,
                p.topic IS NOT NULL AS is_pending
            FROM {offsets} o
            LEFT JOIN {groups} g ON o.group_id = g.group_id
            LEFT JOIN untold u ON o.group_id = u.group_id
            LEFT JOIN topologies y ON o.group_id = y.group_id
            LEFT JOIN subscribed s ON o.group_id = s.group_id AND o.topic = s.topic
            LEFT JOIN pending p ON o.group_id = p.group_id AND o.topic = p.topic AND o.partition = p.partition
        ), ruled AS (
            SELECT f.*,
                CASE WHEN f.is_share THEN 'kept: share group'
                    WHEN f.has_members AND f.is_untold THEN 'kept: members'
                    WHEN f.has_members AND f.is_subscribed THEN 'kept: active subscription'
                    WHEN f.is_pending THEN 'kept: open transaction'
                    WHEN f.expire_timestamp_ms IS NOT NULL THEN 'own expiry'
                    WHEN f.emptied_ms IS NOT NULL THEN 'since group became empty'
                    WHEN f.has_members THEN 'not subscribed any more'
                    ELSE 'since last commit' END AS rule
            FROM facts f
        ), dated AS (
            SELECT r.*, CASE WHEN r.rule LIKE 'kept: %' THEN NULL WHEN r.rule = 'own expiry' THEN r.expire_timestamp_ms
                    ELSE coalesce(r.emptied_ms, r.commit_timestamp_ms, 0) + {retention_ms} END AS expires_at_ms,
                CASE WHEN r.rule LIKE 'kept: %' OR r.rule = 'own expiry' THEN NULL
                    ELSE coalesce(r.emptied_ms, r.commit_timestamp_ms) END AS since_ms
            FROM ruled r
        ), last AS (
            SELECT d.group_id, max(d.expires_at_ms) AS expires_at_ms,
                CASE WHEN max(d.since_ms) + {retention_ms} = max(d.expires_at_ms) THEN max(d.since_ms) END AS since_ms
            FROM dated d GROUP BY d.group_id
        ), waiting AS (
            SELECT DISTINCT p.group_id FROM pending p
        ), ended AS (
            SELECT g.group_id,
                CASE WHEN g.type = 'share' THEN 'kept: share group' WHEN g.members > 0 THEN 'kept: members'
                    WHEN w.group_id IS NOT NULL THEN 'kept: open transaction'
                    WHEN l.group_id IS NULL THEN 'nothing committed' ELSE 'with its last offset' END AS rule,
                l.expires_at_ms, l.since_ms
            FROM {groups} g LEFT JOIN last l ON g.group_id = l.group_id
            LEFT JOIN waiting w ON g.group_id = w.group_id
        ), told AS (
            SELECT d.group_id, d.topic, d.partition, d.expires_at_ms, d.rule, d.since_ms, d.committed_offset
            FROM dated d
            UNION ALL
            SELECT e.group_id, NULL, NULL,
                CASE WHEN e.rule = 'nothing committed' THEN {at_ms} WHEN e.rule LIKE 'kept: %' THEN NULL
                    ELSE e.expires_at_ms END,
                e.rule, CASE WHEN e.rule = 'with its last offset' THEN e.since_ms END, NULL
            FROM ended e
        )
        SELECT {", ".join(f"n.{name}" for name in EXPIRY.names)}
        FROM (SELECT t.*, {retention_ms} AS retention_ms, {at_ms} AS at_ms FROM told t) n"""
