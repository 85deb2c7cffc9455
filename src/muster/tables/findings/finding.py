"""The form of a finding: what its kind is told, and what its query gives. `findings` has the kinds."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from muster.tables.sql.dialects import SPARK, Dialect
from muster.tables.sql.sentences import DAY_MS, json_object

LOOK_BACK_MS = DAY_MS
"""How far kinds look back that look at history: what ended earlier is no longer to be looked at, and a run costs what a
day holds, however long history is.
"""

ERROR, WARNING, INFO = "error", "warning", "info"
"""Severities: data is lost or not read by any member; it will come to that, or costs too much; good to know."""

Relations = Mapping[str, str]
"""By table, the name of a relation with its inner columns, or a query in parentheses."""


class Asked(NamedTuple):
    """What is asked of the tables, and in whose dialect."""

    at_ms: int
    """Of which moment findings are."""
    lists_all_topics: bool = False
    """Whether the source tells all topics of its cluster: the directories of some brokers do not."""
    dialect: Dialect = SPARK

    @property
    def since_ms(self) -> int:
        """Where looking back ends."""
        return self.at_ms - LOOK_BACK_MS


class Threshold(NamedTuple):
    """A number that decides, and its reason."""

    value: int
    what: str
    """What is compared with it; `_ms` counts milliseconds."""
    why: str
    is_ms: bool = False


class Kind(NamedTuple):
    """One kind of finding."""

    name: str
    severities: tuple[str, ...]
    """The worst first; where there are several, `when` says which it is."""
    when: str
    """When it is raised, in words."""
    what_to_do: str
    """One step, with GROUP and the like for names: those come from clients, and commands are copied."""
    needs: tuple[str, ...]
    """The tables that it is found in."""
    query: Callable[[Relations, Asked], str]
    thresholds: tuple[Threshold, ...] = ()


NO_TEXT, NO_NUMBER = "CAST(NULL AS STRING)", "CAST(NULL AS INT)"


def row(
    severity: str,
    evidence: Mapping[str, str],
    sentence: str,
    since_ms: str,
    group_id: str = NO_TEXT,
    topic: str = NO_TEXT,
    partition: str = NO_NUMBER,
    member_id: str = NO_TEXT,
) -> str:
    """What the query of a kind selects; all are expressions but for the names of evidence."""
    return f"""{severity} AS severity, {group_id} AS group_id, {topic} AS topic, {partition} AS partition,
        {member_id} AS member_id, CAST({since_ms} AS BIGINT) AS since_ms, {json_object(evidence)} AS evidence,
        {sentence} AS sentence"""


def literal(severity: str) -> str:
    return f"'{severity}'"
