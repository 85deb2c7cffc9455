"""`findings`: one row per thing to look at. Each kind is one query over tables, here they are put together.

A kind is found in the tables that it needs. Where one of them is not there (callers of `frames.findings` may
lack some) the kind is left out.
"""

from collections.abc import Mapping

from muster.tables.findings.finding import Asked, Kind
from muster.tables.findings.of_groups import OF_GROUPS
from muster.tables.findings.of_logs import OF_LOGS
from muster.tables.findings.of_offsets import OF_OFFSETS

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (*OF_OFFSETS, *OF_GROUPS, *OF_LOGS)}
"""By name."""

NEEDED = tuple(sorted({table for kind in KINDS.values() for table in kind.needs}))
"""What findings are found in: tables, and `damage` (`of_logs.DAMAGE`)."""

LOOKED_BACK = {
    "group_hours": "hour_ms",
    "rates": "interval_start_ms",
    "rebalances": "at_ms",
    "group_records": "timestamp_ms",
    "log_ends": "observed_at_ms",
}
"""Tables of which no more than the last day is asked (`finding.LOOK_BACK_MS`), and by which column."""


def findings(relations: Mapping[str, str], asked: Asked) -> str:
    """The rows of `findings`, of kinds whose tables are all among the relations."""
    found = [
        _of_kind(kind, relations, asked) for kind in KINDS.values() if all(name in relations for name in kind.needs)
    ]
    return " UNION ALL ".join(found)


def _of_kind(kind: Kind, relations: Mapping[str, str], asked: Asked) -> str:
    return f"""
        SELECT '{kind.name}' AS kind, q.severity, q.group_id, q.topic, q.partition, q.member_id, q.since_ms,
            CAST({asked.at_ms} AS BIGINT) AS at_ms, q.evidence, q.sentence, '{kind.what_to_do}' AS what_to_do
        FROM ({kind.query(relations, asked)}) q"""
