"""Tables as people see them: some columns of each, times as times. Programs get all columns and plain numbers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from muster.cli.groups_rows import Column, Kind, Table
from muster.cli.table import shown_time

if TYPE_CHECKING:
    from muster.tables.reading import TableFacts

_COMMIT = (
    "offsets_partition log_offset timestamp_ms kind group_id topic partition committed_offset txn_outcome metadata"
)
_RECORD = "offsets_partition log_offset timestamp_ms record_type group_id member_id epoch is_tombstone members problem"

SHOWN: Mapping[str, str] = {
    "commits": _COMMIT,
    "open_commits": f"{_COMMIT} producer_id",
    "offsets": "group_id topic partition committed_offset leader_epoch commit_timestamp_ms metadata",
    "groups": "group_id type state generation protocol members committed_partitions last_commit_timestamp_ms",
    "members": "group_id type member_id instance_id client_id client_host generation assignment",
    "rebalances": "group_id generation at_ms cause members joined left replaced partitions_moved commit_gap_ms",
    "lag": "group_id topic partition committed_offset log_end_offset lag stable_lag lag_ms lag_ms_by member_id",
    "log_ends": "topic partition observed_at_ms log_start_offset log_end_offset last_stable_offset newest_timestamp_ms",
    "group_records": _RECORD,
    "group_state": _RECORD,
    "markers": "offsets_partition log_offset timestamp_ms producer_id producer_epoch type coordinator_epoch",
    "activity": "group_id first_commit_ms last_commit_ms",
}

TITLES = {
    "group_id": "GROUP",
    "member_id": "CONSUMER-ID",
    "client_host": "HOST",
    "offsets_partition": "LOG",
    "txn_outcome": "TRANSACTION",
    "is_tombstone": "DELETED",
}
KEYS = {"group_id": "group", "member_id": "consumer_id", "client_host": "host", "assignment": "current_assignment"}
"""Names by which `groups_view` knows which columns may be cut on a terminal."""
DURATIONS = {"lag_ms", "commit_gap_ms"}
KINDS = {"lag": Kind.LAG, "stable_lag": Kind.LAG, "state": Kind.STATE}


def view(table: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows of a table for a terminal or a pipe."""
    names = SHOWN[table].split()
    filled = list(rows)
    columns = tuple(_column(name, filled) for name in names)
    return Table(columns, [tuple(_cell(name, row[name]) for name in names) for row in filled])


def facts_view(facts: Iterable["TableFacts"]) -> Table:
    """The list of tables."""
    columns = (
        Column("TABLE", "table"),
        Column("ROWS", "rows", Kind.NUMBER),
        Column("VERSION", "version", Kind.NUMBER),
        Column("FILES", "files", Kind.NUMBER),
        Column("NEWEST (UTC)", "newest"),
    )
    rows = [
        (one.table, one.rows, None if one.version < 0 else one.version, one.files, shown_time(one.newest_ms) or None)
        for one in facts
    ]
    return Table(columns, rows)


def _column(name: str, rows: list[Mapping[str, Any]]) -> Column:
    is_time = _is_time(name)
    title = TITLES.get(name) or name.removesuffix("_timestamp_ms" if is_time else "").replace("_", "-").upper()
    if is_time:
        title = title.removesuffix("-MS")
    is_number = not is_time and any(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows)
    return Column(title, KEYS.get(name, name), KINDS.get(name, Kind.NUMBER if is_number else Kind.TEXT))


def _is_time(name: str) -> bool:
    return name.endswith("_ms") and name not in DURATIONS


def _cell(name: str, value: Any) -> Any:
    if value is None or value == []:
        return None
    if _is_time(name):
        return shown_time(value)
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, list):
        return len(value) if name == "members" else ";".join(map(_item, value))
    return value


def _item(value: Any) -> str:
    """A topic with its partitions as kafka-consumer-groups writes it, or a name."""
    if isinstance(value, dict):
        return f"{value['topic'] or value['topic_id']}:{','.join(map(str, value['partitions'] or []))}"
    return str(value)
