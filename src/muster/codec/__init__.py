"""Bytes to values and back, without I/O: record batches, the records of `__consumer_offsets`, and their columns.

The names here are the ones to use from outside; `docs/python.md` has examples. The columnar ones load numba and pyarrow
when first asked for, and nothing else does.
"""

from typing import Any

from muster.codec.batches import (
    ReadBatch,
    decode_control,
    decode_records,
    encode_batch,
    encode_marker,
    iter_batches,
    read_header,
)
from muster.codec.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from muster.codec.kafka_json import Flavour, key_json, value_json
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    StructValue,
    TypedKey,
    UnknownKey,
    decode_key,
    decode_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
    encode_struct_value,
    group_value_version,
    offset_key,
    offset_value_version,
)
from muster.codec.partitioning import java_string_hash, partition_for
from muster.codec.records import BatchHeader, ControlRecord, Record

__all__ = [
    "Assignment",
    "BatchHeader",
    "ControlRecord",
    "Flavour",
    "GroupKey",
    "GroupValue",
    "MemberValue",
    "OffsetKey",
    "OffsetValue",
    "ReadBatch",
    "Record",
    "StructValue",
    "Subscription",
    "TopicPartitions",
    "TypedKey",
    "UnknownKey",
    "decode_assignment",
    "decode_columns",
    "decode_control",
    "decode_key",
    "decode_records",
    "decode_subscription",
    "decode_value",
    "encode_assignment",
    "encode_batch",
    "encode_group_value",
    "encode_key",
    "encode_marker",
    "encode_offset_value",
    "encode_struct_value",
    "encode_subscription",
    "group_value_version",
    "iter_batches",
    "java_string_hash",
    "key_json",
    "offset_key",
    "offset_value_version",
    "partition_for",
    "read_header",
    "value_json",
]


def decode_columns(data: bytes | memoryview, *, partition: int | None = None) -> Any:
    """All whole batches in these bytes as a `pyarrow.Table` with the columns of `docs/pipeline.md`."""
    from muster.codec.columns.arrow import decode

    return decode(data, partition=partition)
