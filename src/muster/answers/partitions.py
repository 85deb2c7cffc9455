"""The partitions of one group, now or as of a moment: where each stands, what is said of it, who has it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from muster.answers.status import verdicts_at
from muster.tables.reading import Tables


class PartitionLine(NamedTuple):
    """One partition of a group. What is None is not known, or there is none."""

    topic: str
    partition: int
    verdict: str | None
    since_ms: int | None
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_ms: int | None
    lag_unknown: str | None
    """Why `lag` is None."""
    last_commit_ms: int | None
    lost_records: int | None
    """Gone before they were read. Of now only."""
    expires_ms: int | None
    """When the offset will be deleted. Of now only."""
    rule: str | None
    member_id: str | None
    client_id: str | None
    client_host: str | None
    metadata: str | None


def partitions(tables: Tables, group_id: str, at_ms: int | None = None) -> list[PartitionLine]:
    """Those that a group has committed, or that are assigned to its members, by topic and number."""
    if at_ms is not None:
        return _as_of(tables, group_id, at_ms)
    return partitions_by_group(tables, "i.group_id = ?", [group_id])[group_id]


def partitions_by_group(
    tables: Tables, only: str = "TRUE", values: Sequence[str] = ()
) -> dict[str, list[PartitionLine]]:
    """The same of now, of all groups for which a condition holds."""
    found: dict[str, list[PartitionLine]] = defaultdict(list)
    rows = tables.asked(
        f"""
        SELECT l.group_id, l.topic, l.partition, s.verdict, s.verdict_since_ms, l.committed_offset, l.log_end_offset,
            l.lag, l.lag_ms, l.lag_unknown, l.commit_timestamp_ms, l.lost_records, e.expires_at_ms, e.rule,
            l.member_id, l.client_id, l.client_host, l.metadata
        FROM (SELECT * FROM {tables.relation("lag")} i WHERE {only}) l
        LEFT JOIN (SELECT * FROM {tables.relation("status")} i WHERE {only}) s
            ON l.group_id = s.group_id AND l.topic = s.topic AND l.partition = s.partition
        LEFT JOIN (SELECT * FROM {tables.relation("expiry")} i WHERE {only}) e
            ON l.group_id = e.group_id AND l.topic = e.topic AND l.partition = e.partition
        ORDER BY l.group_id, l.topic, l.partition""",
        [*values] * 3,
    )
    for group_id, *row in rows:
        found[group_id].append(PartitionLine(*row))
    return found


def _as_of(tables: Tables, group_id: str, at_ms: int) -> list[PartitionLine]:
    """As the last interval left them that was over then."""
    columns = ("committed_offset", "log_end_offset", "lag", "lag_ms", "lag_unknown", "last_commit_ms")
    said = verdicts_at(tables, "*", at_ms, "v.group_id = ?")
    rows = tables.asked(
        f"""
        SELECT q.topic, q.partition, nullif(s.verdict, ''), s.since_ms, {", ".join(f"q.row.{name}" for name in columns)}
        FROM (
            SELECT r.topic, r.partition, max_by(struct_pack({", ".join(f"{n} := r.{n}" for n in columns)}),
                r.interval_start_ms) AS row
            FROM {tables.relation("lag_history")} r
            WHERE r.group_id = ? AND r.interval_start_ms + r.interval_ms <= {int(at_ms)} GROUP BY r.topic, r.partition
        ) q LEFT JOIN ({said}) s ON q.topic = s.topic AND q.partition = s.partition
        WHERE q.row.committed_offset IS NOT NULL ORDER BY q.topic, q.partition""",
        [group_id, group_id],
    )
    return [PartitionLine(*row, *[None] * 7) for row in rows]
