"""The columns of a decoded record: one wide, stable schema for every kind of record (`docs/pipeline.md` explains each).

Offset commits, nearly all of the topic, have plain columns. Classic groups are one nested column. The newer kinds
(types 3 to 23) are one struct too: the fields that are flat and shared are typed, and `json` has the whole value as
Kafka's own converters print it, so that a new field in a new release is never lost.
"""

import pyarrow as pa

ASSIGNED = pa.struct([pa.field("topic", pa.string()), pa.field("partitions", pa.list_(pa.int32()))])

MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("subscription", pa.binary()),
        pa.field("assignment", pa.binary()),
        pa.field("subscribed_topics", pa.list_(pa.string())),
        pa.field("assigned_partitions", pa.list_(ASSIGNED)),
    ]
)

GROUP = pa.struct(
    [
        pa.field("protocol_type", pa.string()),
        pa.field("generation", pa.int32()),
        pa.field("protocol", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("state_timestamp_ms", pa.int64()),
        pa.field("members", pa.list_(MEMBER)),
    ]
)

NEWER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("regular_expression", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("previous_epoch", pa.int32()),
        pa.field("member_state", pa.int8()),
        pa.field("metadata_hash", pa.int64()),
        pa.field("assignment_timestamp_ms", pa.int64()),
        pa.field("instance_id", pa.string()),
        pa.field("rack_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("json", pa.string()),
    ]
)

CONTROL = pa.struct([pa.field("type", pa.string()), pa.field("coordinator_epoch", pa.int32())])

UNREAD = pa.struct(
    [pa.field("problem", pa.string()), pa.field("key", pa.binary()), pa.field("value", pa.binary())]
)  # fmt: skip

RECORDS = pa.schema(
    [
        pa.field("offsets_partition", pa.int32()),
        pa.field("log_offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("batch_offset", pa.int64()),
        pa.field("record_type", pa.int16()),
        pa.field("value_version", pa.int16()),
        pa.field("is_tombstone", pa.bool_()),
        pa.field("group_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed_offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("commit_timestamp_ms", pa.int64()),
        pa.field("expire_timestamp_ms", pa.int64()),
        pa.field("topic_id", pa.string()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("txn_outcome", pa.string()),
        pa.field("group", GROUP),
        pa.field("newer", NEWER),
        pa.field("control", CONTROL),
        pa.field("unread", UNREAD),
    ]
)
