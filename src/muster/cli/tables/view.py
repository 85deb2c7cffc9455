"""Tables as people see them: some columns of each, times as times. Programs get all columns and plain numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.groups.rows import Column, Kind, Shown, Table
from muster.cli.people import shown_time

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
    "rebalances": "group_id at_ms generation cause members partitions_moved commit_gap_ms who",
    "lag": "group_id topic partition committed_offset log_end_offset lag lost_records stable_lag lag_ms lag_ms_by "
    "lag_unknown member_id",
    "log_ends": "topic partition observed_at_ms log_start_offset log_end_offset last_stable_offset newest_timestamp_ms",
    "group_records": _RECORD,
    "group_state": _RECORD,
    "markers": "offsets_partition log_offset timestamp_ms producer_id producer_epoch type coordinator_epoch",
    "activity": "group_id first_commit_ms last_commit_ms",
}

WHO = ("joined", "left", "replaced")
"""Columns of `rebalances` that people see as one."""
_STYLE: Mapping[str, Column] = {
    "group_id": Column("GROUP", "group"),
    "member_id": Column("CONSUMER-ID", "consumer_id", Kind.MEMBER, short="CONSUMER", spare=1),
    "instance_id": Column("INSTANCE-ID", "group_instance_id", short="INSTANCE", spare=4),
    "client_id": Column("CLIENT-ID", "client_id", short="CLIENT", spare=3),
    "client_host": Column("HOST", "host", spare=2),
    "type": Column("TYPE", "type", spare=5),
    "state": Column("STATE", "state", Kind.STATE),
    "generation": Column("GENERATION", "generation", Kind.NUMBER, short="GEN"),
    "protocol": Column("PROTOCOL", "protocol", spare=4),
    "assignment": Column("ASSIGNMENT", "current_assignment"),
    "offsets_partition": Column("LOG", "offsets_partition", Kind.NUMBER),
    "log_offset": Column("LOG-OFFSET", "log_offset", Kind.NUMBER, short="OFFSET"),
    "txn_outcome": Column("TRANSACTION", "txn_outcome", short="TXN", spare=2),
    "producer_id": Column("PRODUCER-ID", "producer_id", Kind.NUMBER, short="PRODUCER"),
    "is_tombstone": Column("DELETED", "is_tombstone"),
    "record_type": Column("RECORD-TYPE", "record_type", Kind.NUMBER, short="TYPE"),
    "metadata": Column("METADATA", "metadata", spare=1),
    "problem": Column("PROBLEM", "problem", spare=1),
    "partition": Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    "committed_offset": Column("COMMITTED-OFFSET", "committed_offset", Kind.NUMBER, short="COMMITTED"),
    "committed_partitions": Column("COMMITTED-PARTITIONS", "committed_partitions", Kind.NUMBER, short="PARTS", spare=2),
    "leader_epoch": Column("LEADER-EPOCH", "leader_epoch", Kind.NUMBER, short="EPOCH", spare=3),
    "log_start_offset": Column("LOG-START-OFFSET", "log_start_offset", Kind.NUMBER, short="START"),
    "log_end_offset": Column("LOG-END-OFFSET", "log_end_offset", Kind.NUMBER, short="END"),
    "last_stable_offset": Column("LAST-STABLE-OFFSET", "last_stable_offset", Kind.NUMBER, short="STABLE", spare=1),
    "lag": Column("LAG", "lag", Kind.LAG),
    "lost_records": Column("LOST", "lost_records", Kind.LAG, Shown.IF_ANY),
    "stable_lag": Column("STABLE-LAG", "stable_lag", Kind.LAG, short="STABLE", spare=3),
    "lag_ms": Column("LAG-TIME", "lag_ms", Kind.LENGTH_MS, short="TIME"),
    "lag_ms_by": Column("TIME-BY", "lag_ms_by", spare=4),
    "lag_unknown": Column("LAG-UNKNOWN", "lag_unknown", shown=Shown.IF_ANY, spare=5),
    "members": Column("MEMBERS", "members", Kind.NUMBER, spare=1),
    "partitions_moved": Column("MOVED", "partitions_moved", Kind.NUMBER, spare=2),
    "commit_gap_ms": Column("COMMIT-GAP", "commit_gap_ms", Kind.LENGTH_MS, short="GAP"),
    "who": Column("WHO", "who", Kind.MEMBERS),
}
"""How some columns look; the keys are those by which `tabular` knows which of them may be cut on a terminal."""


def view(table: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows of a table for people, on a terminal or in a pipe."""
    names = SHOWN[table].split()
    filled = [row | {"who": _who(row)} if table == "rebalances" else row for row in map(dict, rows)]
    columns = tuple(_column(name, filled) for name in names)
    return Table(columns, [tuple(_cell(name, row[name]) for name in names) for row in filled])


def _who(row: Mapping[str, Any]) -> list[str]:
    """Who came, who went, and who returned under a name of its own."""
    joined, left, replaced = (row[name] or () for name in WHO)
    return [*(f"+{one}" for one in joined), *(f"-{one}" for one in left), *replaced]


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


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> Column:
    if name in _STYLE:
        return _STYLE[name]
    if name.endswith("_ms"):
        title = name.removesuffix("_ms").removesuffix("_timestamp") or "time"
        return Column(title.replace("_", "-").upper(), name, Kind.TIME_MS)
    is_number = any(isinstance(row[name], int) and not isinstance(row[name], bool) for row in rows)
    return Column(name.replace("_", "-").upper(), name, Kind.NUMBER if is_number else Kind.TEXT)


def _cell(name: str, value: Any) -> Any:
    if value is None or value == [] or (name == "lost_records" and value == 0):
        return None
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, list) and name != "who":
        return len(value) if name == "members" else ";".join(map(_item, value))
    return value


def _item(value: Any) -> str:
    """A topic with its partitions as kafka-consumer-groups writes it, or a name."""
    if isinstance(value, dict):
        return f"{value['topic'] or value['topic_id']}:{','.join(map(str, value['partitions'] or []))}"
    return str(value)
