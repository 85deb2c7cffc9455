"""What a broker will delete, and when: the forecast of `expiry` up to a moment."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.tables.reading import Tables


class Expiring(NamedTuple):
    group_id: str
    topic: str | None
    """None: the group itself."""
    partition: int | None
    expires_at_ms: int
    in_ms: int
    """How long that is from the moment asked for; below 0: it is due."""
    rule: str
    since_ms: int | None
    retention_ms: int
    committed_offset: int | None
    lag: int | None


def expiring(
    tables: Tables, until_ms: int, from_ms: int, groups: Sequence[str] = (), as_of_ms: int | None = None
) -> list[Expiring]:
    """Offsets and groups that will be deleted before a moment if nothing more happens; the soonest first."""
    expiry, lag = (tables.relation(name, as_of_ms, groups) for name in ("expiry", "lag"))
    rows = tables.asked(
        f"""
        SELECT e.group_id, e.topic, e.partition, e.expires_at_ms,
            e.expires_at_ms - ?, e.rule, e.since_ms, e.retention_ms,
            e.committed_offset, l.lag
        FROM {expiry} e LEFT JOIN {lag} l
            ON e.group_id = l.group_id AND e.topic = l.topic AND e.partition = l.partition
        WHERE e.expires_at_ms <= ?
        ORDER BY e.expires_at_ms, e.group_id, e.topic NULLS FIRST, e.partition""",
        [from_ms, until_ms],
    )
    return [Expiring(*row) for row in rows]
