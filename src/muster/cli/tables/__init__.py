"""`muster table`: the pipeline's tables, read without Spark. `command.py` makes a `Request`, `run.py` fulfils it."""

from dataclasses import dataclass
from pathlib import Path

from muster.cli.options import Format

NAMES = {
    "commits": "every commit and deletion, with the outcome of its transaction",
    "offsets": "what is committed, by group, topic and partition",
    "open_commits": "commits whose transaction has not ended",
    "groups": "groups of every kind, their state and size",
    "members": "members with subscription and assignment",
    "rebalances": "every generation: who joined, who left, why",
    "lag": "how far behind, in records and in time",
    "log_ends": "where topics began and ended, by time",
    "group_records": "every record about groups, as it was written",
    "group_state": "the newest record of each key about groups",
    "markers": "ends of transactions",
    "activity": "when each group first and last committed",
    "lag_history": "how far behind each group was, by interval of five minutes",
    "rates": "consumption and commits, by interval of five minutes",
    "group_hours": "members, rebalances and silence of each group, by hour",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked and complete. `limit` None is none; `name` None asks for the list of tables.
    `out` None is standard output."""

    name: str | None
    tables: str
    storage_options: dict[str, str]
    as_of_ms: int | None
    where: dict[str, list[str]]
    limit: int | None
    format: Format
    out: Path | None = None
    is_parquet: bool = False
    is_forced: bool = False
