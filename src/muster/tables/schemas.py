"""The columns of every table (`docs/pipeline.md` explains each, and what NULL means in it).

Columns are added at the end, never renamed or reused. Times are milliseconds since 1970 (UTC) in int64: NULL where the
log has -1 or nothing. `log_offset` is a place in `__consumer_offsets`, `committed_offset` one in the data.
"""

import pyarrow as pa

ASSIGNED = pa.struct(
    [pa.field("topic", pa.string()), pa.field("topic_id", pa.string()), pa.field("partitions", pa.list_(pa.int32()))]
)

CLASSIC_MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("subscribed_topics", pa.list_(pa.string())),
        pa.field("assignment", pa.list_(ASSIGNED)),
    ]
)


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns])


COMMITS = _schema(
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("kind", pa.string()),  # commit, deleted, expired, vanished
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("committed_offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("metadata", pa.string()),
    ("commit_timestamp_ms", pa.int64()),
    ("expire_timestamp_ms", pa.int64()),
    ("topic_id", pa.string()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("txn_outcome", pa.string()),  # committed, aborted, open (open_commits only), unknown
    ("txn_marker_offset", pa.int64()),
    ("previous_commit_timestamp_ms", pa.int64()),  # of a deletion: when what it deletes had been committed
)

OPEN_COMMITS = COMMITS

GROUP_RECORDS = _schema(
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("record_type", pa.int16()),
    ("value_version", pa.int16()),
    ("is_tombstone", pa.bool_()),
    ("group_id", pa.string()),
    ("member_id", pa.string()),  # of the key: kinds with a record per member
    ("regular_expression", pa.string()),  # of the key: type 16; of a member: its subscription
    ("epoch", pa.int32()),  # generation of a classic group, Kafka's epoch, assignmentEpoch or memberEpoch of the others
    ("previous_epoch", pa.int32()),
    ("member_state", pa.int8()),
    ("protocol_type", pa.string()),
    ("protocol", pa.string()),
    ("leader", pa.string()),
    ("state_timestamp_ms", pa.int64()),
    ("members", pa.list_(CLASSIC_MEMBER)),  # of a classic group
    ("instance_id", pa.string()),
    ("rack_id", pa.string()),
    ("client_id", pa.string()),
    ("client_host", pa.string()),
    ("rebalance_timeout_ms", pa.int32()),
    ("subscribed_topics", pa.list_(pa.string())),
    ("assignment", pa.list_(ASSIGNED)),  # target (7, 13, 21) or current (8, 14, 22) assignment
    ("json", pa.string()),  # the whole value of types 3 to 23, as Kafka prints it
    ("problem", pa.string()),  # why it could not be read
    ("raw_key", pa.binary()),
    ("raw_value", pa.binary()),
    ("last_commit_before_ms", pa.int64()),  # type 2: when this group last committed before this record
    ("first_commit_after_ms", pa.int64()),  # type 2: when it first did after, as far as this run has read
)

GROUP_STATE = GROUP_RECORDS

MARKERS = _schema(
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
    ("producer_id", pa.int64()),
    ("producer_epoch", pa.int16()),
    ("type", pa.string()),  # COMMIT, ABORT
    ("coordinator_epoch", pa.int32()),
)

OFFSETS = _schema(
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("committed_offset", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("metadata", pa.string()),
    ("commit_timestamp_ms", pa.int64()),
    ("expire_timestamp_ms", pa.int64()),
    ("topic_id", pa.string()),
    ("producer_id", pa.int64()),
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
)

GROUPS = _schema(
    ("group_id", pa.string()),
    ("type", pa.string()),  # classic, consumer, share, streams, simple
    ("state", pa.string()),
    ("generation", pa.int32()),  # or epoch
    ("protocol_type", pa.string()),
    ("protocol", pa.string()),
    ("leader", pa.string()),
    ("members", pa.int32()),
    ("committed_partitions", pa.int64()),
    ("state_timestamp_ms", pa.int64()),
    ("last_commit_timestamp_ms", pa.int64()),
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
)

MEMBERS = _schema(
    ("group_id", pa.string()),
    ("type", pa.string()),
    ("member_id", pa.string()),
    ("instance_id", pa.string()),
    ("client_id", pa.string()),
    ("client_host", pa.string()),
    ("rack_id", pa.string()),
    ("generation", pa.int32()),
    ("rebalance_timeout_ms", pa.int32()),
    ("session_timeout_ms", pa.int32()),
    ("subscribed_topics", pa.list_(pa.string())),
    ("regular_expression", pa.string()),
    ("assignment", pa.list_(ASSIGNED)),
    ("target_assignment", pa.list_(ASSIGNED)),
    ("offsets_partition", pa.int32()),
)

REBALANCES = _schema(
    ("group_id", pa.string()),
    ("generation", pa.int32()),
    ("at_ms", pa.int64()),
    ("cause", pa.string()),
    ("members", pa.int32()),
    ("joined", pa.list_(pa.string())),
    ("left", pa.list_(pa.string())),
    ("replaced", pa.list_(pa.string())),  # instance ids that came back under a new member id
    ("leader", pa.string()),
    ("leader_changed", pa.bool_()),
    ("protocol", pa.string()),
    ("protocol_changed", pa.bool_()),
    ("partitions_assigned", pa.int32()),
    ("partitions_moved", pa.int32()),
    ("since_last_ms", pa.int64()),
    ("last_commit_before_ms", pa.int64()),
    ("first_commit_after_ms", pa.int64()),
    ("commit_gap_ms", pa.int64()),
    ("previous_generation", pa.int32()),
    ("type", pa.string()),
    ("offsets_partition", pa.int32()),
    ("log_offset", pa.int64()),
)

LATEST_REBALANCES: pa.Schema = REBALANCES.append(
    pa.field("carry", pa.string())  # what a later run must know to go on from here (`pipeline/rebalance_state.py`)
)

LOG_ENDS = _schema(
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("observed_at_ms", pa.int64()),
    ("log_start_offset", pa.int64()),
    ("log_end_offset", pa.int64()),
    ("last_stable_offset", pa.int64()),
    ("data_end_offset", pa.int64()),  # after the last record that is no transaction marker
    ("newest_timestamp_ms", pa.int64()),
    ("topic_id", pa.string()),
    ("run_number", pa.int64()),  # rises from run to run: clocks do not always
)

LAG = _schema(
    ("group_id", pa.string()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("committed_offset", pa.int64()),
    ("log_end_offset", pa.int64()),
    ("last_stable_offset", pa.int64()),
    ("lag", pa.int64()),  # records still there to be read, markers at the end not counted where known
    ("offset_lag", pa.int64()),  # log_end_offset - committed_offset, as kafka-consumer-groups prints it
    ("stable_lag", pa.int64()),  # the same against the last stable offset (read_committed)
    ("lag_ms", pa.int64()),
    ("lag_ms_by", pa.string()),  # exact, interpolated; NULL where lag_ms is
    ("commit_timestamp_ms", pa.int64()),
    ("observed_at_ms", pa.int64()),
    ("leader_epoch", pa.int32()),
    ("metadata", pa.string()),
    ("member_id", pa.string()),
    ("client_id", pa.string()),
    ("client_host", pa.string()),
    ("log_start_offset", pa.int64()),
    ("lost_records", pa.int64()),  # committed_offset to log_start_offset: deleted before they were read
    ("lag_unknown", pa.string()),  # why lag is NULL
)

ACTIVITY = _schema(  # of every group that ever committed: what the next run needs to tell the gap across a rebalance
    ("group_id", pa.string()),
    ("offsets_partition", pa.int32()),
    ("first_commit_ms", pa.int64()),  # of the range that was read last; NULL if a record of the group came before it
    ("last_commit_ms", pa.int64()),
)

TIMES = _schema(  # the data's own clock: the timestamp of the first record at or after an offset
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp_ms", pa.int64()),
)

HISTORY: dict[str, pa.Schema] = {
    "commits": COMMITS,
    "group_records": GROUP_RECORDS,
    "markers": MARKERS,
    "rebalances": REBALANCES,
    "log_ends": LOG_ENDS,
}
"""Only ever appended to (but for what a truncation of the log withdraws)."""

STATE: dict[str, pa.Schema] = {
    "offsets": OFFSETS,
    "open_commits": OPEN_COMMITS,
    "group_state": GROUP_STATE,
    "groups": GROUPS,
    "members": MEMBERS,
    "latest_rebalances": LATEST_REBALANCES,  # the newest of each group: its row may still change
    "lag": LAG,
    "activity": ACTIVITY,
}
"""Replaced by every run."""

TABLES = HISTORY | STATE
