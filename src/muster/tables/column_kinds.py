"""`Column`, and the types that columns have."""

from typing import NamedTuple

import pyarrow as pa

NEVER = "never"


class Column(NamedTuple):
    name: str
    kind: pa.DataType
    what: str
    null: str = NEVER
    """What NULL means."""


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

BYTE, SHORT, INT, LONG, DOUBLE = pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()
STRING, BOOL, BINARY = pa.string(), pa.bool_(), pa.binary()
STRINGS, ASSIGNMENT, CLASSIC_MEMBERS = pa.list_(pa.string()), pa.list_(ASSIGNED), pa.list_(CLASSIC_MEMBER)
