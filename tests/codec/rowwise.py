"""What the columns of a log must hold, found out record by record: the slow, readable oracle of the columnar door."""

import base64
import bisect
import contextlib
from collections.abc import Iterator
from typing import Any

from muster.codec import offsets_topic
from muster.codec.batches import decode_control, iter_batches
from muster.codec.columns import schema
from muster.codec.consumer_protocol import decode_assignment
from muster.codec.kafka_json import Flavour, value_json
from muster.codec.offsets_topic import GroupKey, GroupValue, MemberValue, OffsetKey, OffsetValue, TypedKey, UnknownKey
from muster.codec.primitives import Reader, java_text
from muster.codec.records import BatchHeader, Record
from muster.errors import CodecError, Malformed, Truncated

Row = dict[str, Any]


def rows_of(data: bytes, partition: int | None = None) -> list[Row]:
    """One row a record, as `muster.codec.columns.arrow.decode` gives them; the end of the data may be torn."""
    batches = []
    try:
        for batch in iter_batches(data):
            batches.append(batch)  # noqa: PERF402 - what came before an error must be kept
    except (Truncated, Malformed):
        pass
    good = [batch for batch in batches if batch.problem is None]
    markers = sorted(_markers((batch.header, batch.records) for batch in good))
    rows = []
    for batch in good:
        for record in batch.records:
            row: Row = dict.fromkeys(schema.RECORDS.names)
            row |= _log_columns(batch.header, batch.records[0].offset, record, partition)
            row["txn_outcome"] = _outcome(batch.header, markers)
            row |= _control(record) if batch.header.is_control else _columns(record)
            rows.append(row)
    return rows


def _markers(batches: Iterator[tuple[BatchHeader, list[Record]]]) -> Iterator[tuple[int, int, str]]:
    for header, records in batches:
        if header.is_control and records:
            try:
                name = decode_control(records[0]).name
            except CodecError:
                continue
            if name in ("COMMIT", "ABORT"):
                yield header.producer_id, header.base_offset, name


def _outcome(header: BatchHeader, markers: list[tuple[int, int, str]]) -> str | None:
    if not header.is_transactional:
        return None
    place = bisect.bisect_left(markers, (header.producer_id, header.base_offset + (0 if header.is_control else 1), ""))
    if place == len(markers) or markers[place][0] != header.producer_id:
        return "open"
    return {"COMMIT": "committed", "ABORT": "aborted"}[markers[place][2]]


def _log_columns(header: BatchHeader, first_offset: int, record: Record, partition: int | None) -> Row:
    return {
        "offsets_partition": partition,
        "log_offset": record.offset,
        "timestamp_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "batch_offset": first_offset,
        "is_tombstone": record.value is None,
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "producer_epoch": header.producer_epoch if header.producer_id >= 0 else None,
    }


def _control(record: Record) -> Row:
    try:
        control = decode_control(record)
    except CodecError:
        return {"control": {"type": "UNKNOWN", "coordinator_epoch": None}}
    return {"control": {"type": control.name, "coordinator_epoch": control.coordinator_epoch}}


def _columns(record: Record) -> Row:
    row: Row = {}
    try:
        if record.key is None:
            raise Malformed("a record without a key")
        if len(record.key) >= 2:
            kind = int.from_bytes(record.key[:2], "big", signed=True)
            row["record_type"] = kind if kind >= 0 else None
            if 0 <= kind <= 23 and kind != 18:
                with contextlib.suppress(CodecError):  # decode_key finds the words for it
                    row["group_id"] = java_text(Reader(record.key, 2).string())
            if record.value is not None and len(record.value) >= 2:
                version = int.from_bytes(record.value[:2], "big", signed=True)
                row["value_version"] = version if version >= 0 else None
        key = offsets_topic.decode_key(record.key)
        if isinstance(key, UnknownKey):
            raise Malformed(f"unknown record type {key.record_type}")
        value = None if record.value is None else offsets_topic.decode_value(key.record_type, record.value)
    except CodecError as error:
        row["unread"] = {"problem": str(error), "key": record.key, "value": record.value}
        return row
    match key:
        case OffsetKey():
            row |= {"topic": java_text(key.topic), "partition": key.partition}
            if value is not None:
                assert isinstance(value[1], OffsetValue)
                row |= _commit(value[1])
        case GroupKey():
            if value is not None:
                assert isinstance(value[1], GroupValue)
                row["group"] = _group(value[1])
        case TypedKey():
            row["newer"] = _newer(key, value)
    return row


def _commit(value: OffsetValue) -> Row:
    return {
        "committed_offset": value.committed_offset,
        "leader_epoch": value.leader_epoch if value.leader_epoch >= 0 else None,
        "metadata": java_text(value.metadata),
        "commit_timestamp_ms": value.commit_timestamp_ms,
        "expire_timestamp_ms": value.expire_timestamp_ms if value.expire_timestamp_ms >= 0 else None,
        "topic_id": _uuid(value.topic_id),
    }


def _uuid(data: bytes) -> str | None:
    return base64.urlsafe_b64encode(data).decode().rstrip("=") if any(data) else None


def _text(value: str | None) -> str | None:
    return None if value is None else java_text(value)


def _group(value: GroupValue) -> Row:
    return {
        "protocol_type": java_text(value.protocol_type),
        "generation": value.generation,
        "protocol": _text(value.protocol),
        "leader": _text(value.leader),
        "state_timestamp_ms": value.state_timestamp_ms if value.state_timestamp_ms >= 0 else None,
        "members": [_member(member, value.protocol_type == "consumer") for member in value.members],
    }


def _member(member: MemberValue, consumer: bool) -> Row:
    return {
        "member_id": java_text(member.member_id),
        "instance_id": _text(member.instance_id),
        "client_id": java_text(member.client_id),
        "client_host": java_text(member.client_host),
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "session_timeout_ms": member.session_timeout_ms,
        "subscription": member.subscription,
        "assignment": member.assignment,
        "subscribed_topics": _topics(member.subscription) if consumer else None,
        "assigned_partitions": _assigned(member.assignment) if consumer else None,
    }


def _topics(blob: bytes) -> list[str] | None:
    """As the coordinator does: the version and what version 0 has, whatever follows."""
    try:
        reader = Reader(blob)
        if reader.int16() < 0:
            return None
        topics = [java_text(reader.string()) for _ in range(reader.array_count())]
        reader.nullable_bytes()
    except CodecError:
        return None
    return topics


def _assigned(blob: bytes) -> list[Row] | None:
    try:
        assignment = decode_assignment(blob)
    except CodecError:
        return None
    if assignment is None:
        return None
    return [
        {"topic": java_text(topic), "partitions": list(partitions)}
        for topic, partitions in assignment.assigned_partitions
    ]


def _newer(key: TypedKey, value: tuple[int, Any] | None) -> Row:
    row: Row = dict.fromkeys(field.name for field in schema.NEWER)
    row |= {"member_id": _text(key.data.get("memberId"))}
    row |= {"regular_expression": _text(key.data.get("regularExpression"))}
    if value is None:
        return row
    version, struct = value
    data = struct.data
    row["epoch"] = data.get("epoch", data.get("assignmentEpoch", data.get("memberEpoch")))
    row["previous_epoch"] = data.get("previousMemberEpoch")
    row["member_state"] = data.get("state")
    row["metadata_hash"] = data.get("metadataHash")
    row["assignment_timestamp_ms"] = data.get("assignmentTimestamp")
    row["rebalance_timeout_ms"] = data.get("rebalanceTimeoutMs")
    for column, name in (
        ("instance_id", "instanceId"),
        ("rack_id", "rackId"),
        ("client_id", "clientId"),
        ("client_host", "clientHost"),
    ):
        row[column] = _text(data.get(name))
    text = value_json(key.record_type, version, struct, Flavour.FORMATTER)
    row["json"] = text[text.index('"data":') + 7 : -1]
    return row
