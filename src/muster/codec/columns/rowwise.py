"""Records of a chunk through the row-wise codec: the newer kinds, and what cannot be read. Both are rare."""

import re
from collections.abc import Iterator
from typing import Any

from muster.codec import kafka_json, offsets_topic
from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.scan import R_KEY, R_KEY_LENGTH, R_OFFSET, R_TIMESTAMP, R_VALUE, R_VALUE_LENGTH
from muster.codec.kafka_json import Flavour
from muster.codec.offsets_topic import StructValue, TypedKey, UnknownKey
from muster.codec.primitives import java_text
from muster.codec.records import Record
from muster.errors import CodecError, Malformed

# Columns of `newer`, and which of Kafka's fields fill them.
_SAME_NAME = {
    "metadata_hash": "metadataHash",
    "assignment_timestamp_ms": "assignmentTimestamp",
    "previous_epoch": "previousMemberEpoch",
    "member_state": "state",
    "instance_id": "instanceId",
    "rack_id": "rackId",
    "client_id": "clientId",
    "client_host": "clientHost",
    "rebalance_timeout_ms": "rebalanceTimeoutMs",
}
_EPOCHS = ("epoch", "assignmentEpoch", "memberEpoch")
_VALUE_PREFIX = re.compile(r'^\{"version":-?\d+,"data":')


def record_at(chunk: Chunk, row: int) -> Record:
    """One record of a chunk, copied out of it."""
    place = chunk.records[row].tolist()
    key_start, key_length = place[R_KEY], place[R_KEY_LENGTH]
    value_start, value_length = place[R_VALUE], place[R_VALUE_LENGTH]
    key = None if key_length < 0 else chunk.buffer[key_start : key_start + key_length].tobytes()
    value = None if value_length < 0 else chunk.buffer[value_start : value_start + value_length].tobytes()
    return Record(place[R_OFFSET], place[R_TIMESTAMP], key, value)


def newer_rows(chunk: Chunk, rows: Longs) -> Iterator[dict[str, Any] | None]:
    """Records of types 3 to 23; None where the value cannot be read."""
    for row in rows.tolist():
        record = record_at(chunk, row)
        try:
            yield _newer_row(record)
        except CodecError:
            yield None


def _newer_row(record: Record) -> dict[str, Any]:
    key = offsets_topic.decode_key(record.key or b"")
    assert isinstance(key, TypedKey)
    names = key.data
    columns: dict[str, Any] = {
        "member_id": _shown(names.get("memberId")),
        "regular_expression": _shown(names.get("regularExpression")),
    }
    if record.value is None:
        return columns
    version, value = offsets_topic.decode_value(key.record_type, record.value)
    assert isinstance(value, StructValue)
    for column, name in _SAME_NAME.items():
        columns[column] = _shown(value.data.get(name))
    columns["epoch"] = next((value.data[name] for name in _EPOCHS if name in value.data), None)
    text = kafka_json.value_json(key.record_type, version, value, Flavour.FORMATTER)
    columns["json"] = _VALUE_PREFIX.sub("", text)[:-1]
    return columns


def _shown(value: Any) -> Any:
    return java_text(value) if isinstance(value, str) else value


def unread_rows(chunk: Chunk, rows: Longs) -> Iterator[dict[str, Any] | None]:
    """What is wrong with records that could not be read, and their bytes; None for those that could."""
    for row in rows.tolist():
        record = record_at(chunk, row)
        problem = problem_with(record)
        yield None if problem is None else {"problem": problem, "key": record.key, "value": record.value}


def problem_with(record: Record) -> str | None:
    """Why the row-wise codec cannot make sense of a record, or None if it can."""
    try:
        if record.key is None:
            raise Malformed("a record without a key")
        key = offsets_topic.decode_key(record.key)
        if isinstance(key, UnknownKey):
            return f"unknown record type {key.record_type}"
        if record.value is not None:
            offsets_topic.decode_value(key.record_type, record.value)
    except CodecError as error:
        return str(error)
    return None
