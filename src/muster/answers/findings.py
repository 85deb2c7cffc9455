"""Things to look at: the rows of `findings`, the gravest first."""

from collections.abc import Sequence
from typing import NamedTuple

from muster.answers.levels import Level
from muster.tables.reading import Tables

LEVELS = {"error": Level.ERROR, "warning": Level.WARNING, "info": Level.WELL}


class Finding(NamedTuple):
    severity: str
    kind: str
    group_id: str | None
    topic: str | None
    partition: int | None
    member_id: str | None
    since_ms: int | None
    sentence: str
    what_to_do: str
    evidence: str | None
    """A JSON object."""
    at_ms: int


def findings(
    tables: Tables,
    groups: Sequence[str] = (),
    severities: Sequence[str] = tuple(LEVELS),
    as_of_ms: int | None = None,
) -> list[Finding]:
    """What is to be looked at, of groups that match one of the patterns (without one, also what is about no group)."""
    wanted = ", ".join("?" for _ in severities)
    rows = tables.asked(
        f"""
        SELECT f.severity, f.kind, f.group_id, f.topic, f.partition, f.member_id, f.since_ms, f.sentence, f.what_to_do,
            f.evidence, f.at_ms
        FROM {tables.relation("findings", as_of_ms, groups)} f WHERE f.severity IN ({wanted})
        ORDER BY CASE f.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, f.since_ms DESC NULLS LAST,
            f.kind, f.group_id, f.topic, f.partition, f.member_id""",
        list(severities),
    )
    return [Finding(*row) for row in rows]


def level_of_findings(found: Sequence[Finding]) -> Level:
    return max((LEVELS[each.severity] for each in found), default=Level.WELL)
