"""Keys and values as the JSON that Kafka's own tools print, character for character.

Two tools, two flavours:

    FORMATTER   kafka-console-consumer with its formatters: {"type":1,...}, {"version":3,...}; a tombstone is null
    DUMP_LOG    kafka-dump-log --offsets-decoder: {"type":"1",...}, {"version":"3",...}; a tombstone is <DELETE>

A field appears if the version of the value has it, a tagged field only if it differs from its default; unknown tags are
never shown. Bytes are base64, uuids base64 in the URL alphabet without padding. In groups of protocol type `consumer`
dump-log shows subscriptions and assignments as objects, and as base64 where it cannot read them. There it is not quite
the reader that consumers are: a negative version is read like version 0, and in a version above 3 any topic in the
list of partitions is too much for it.

The tools differ from Python's json in one point, the upper case of \\u001F. Names that are not UTF-8 are shown as Java
shows them.
"""

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from json import JSONEncoder
from typing import Any

from muster.codec.consumer_protocol import ASSIGNMENT, NEWEST_VERSION, SUBSCRIPTION, blob_layout, decode_blob
from muster.codec.group_records import layout_for
from muster.codec.layouts import Field, Layout, StructData
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    GroupKey,
    GroupValue,
    Key,
    MemberValue,
    OffsetKey,
    OffsetValue,
    StructValue,
    TypedKey,
    Value,
)
from muster.codec.primitives import java_text
from muster.errors import CodecError


class Flavour(Enum):
    FORMATTER = "formatter"
    DUMP_LOG = "dump-log"


Json = dict[str, Any]

_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_ESCAPE = re.compile(r"\\(?:u00[0-9a-f]{2}|.)")


def key_json(key: Key, flavour: Flavour) -> str:
    """The key of a record. Kafka's tools print no JSON for a kind they do not know; ours says "unknown" as its data."""
    return jackson_text({"type": _number(key.record_type, flavour), "data": _key_data(key)})


def value_json(record_type: int, version: int, value: Value | None, flavour: Flavour) -> str:
    """The value of a record as `decode_value` gave it; None is a tombstone."""
    if value is None:
        return "null" if flavour is Flavour.FORMATTER else "<DELETE>"
    return jackson_text(
        {"version": _number(version, flavour), "data": _value_data(record_type, version, value, flavour)}
    )


def unknown_type_text(record_type: int, log_offset: int) -> str:
    """What dump-log prints in place of a key and payload of a kind it does not know."""
    return f"Unknown record type {record_type} at offset {log_offset}, skipping."


def _number(value: int, flavour: Flavour) -> int | str:
    return value if flavour is Flavour.FORMATTER else str(value)


def jackson_text(json: Json | str) -> str:
    """JSON as Kafka's tools print it, by Jackson: escapes in capitals, and characters of Java."""
    text = _encode(json)
    if "\\u00" in text:
        text = _ESCAPE.sub(_jackson_escape, text)
    # The quotes round every string keep broken characters of one from running into the next.
    return java_text(text)


def _jackson_escape(match: re.Match[str]) -> str:
    escape = match[0]
    return escape[:2] + escape[2:].upper()


def _key_data(key: Key) -> Json | str:
    match key:
        case OffsetKey():
            return {"group": key.group_id, "topic": key.topic, "partition": key.partition}
        case GroupKey():
            return {"group": key.group_id}
        case TypedKey():
            return dict(key.data)
        case _:
            return "unknown"


def _value_data(record_type: int, version: int, value: Value, flavour: Flavour) -> Json:
    match value:
        case OffsetValue():
            return _offset_data(value, version)
        case GroupValue():
            return _group_data(value, version, nested=flavour is Flavour.DUMP_LOG and value.protocol_type == "consumer")
        case StructValue():
            return _message_json(layout_for(record_type, value.data), value.data)


def _offset_data(value: OffsetValue, version: int) -> Json:
    data: Json = {"offset": value.committed_offset}
    if version >= 3:
        data["leaderEpoch"] = value.leader_epoch
    data["metadata"] = value.metadata
    data["commitTimestamp"] = value.commit_timestamp_ms
    if version == 1:
        data["expireTimestamp"] = value.expire_timestamp_ms
    if value.topic_id != NO_TOPIC_ID:
        data["topicId"] = _uuid(value.topic_id)
    return data


def _group_data(value: GroupValue, version: int, nested: bool) -> Json:
    data: Json = {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
    }
    if version >= 2:
        data["currentStateTimestamp"] = value.state_timestamp_ms
    data["members"] = [_member_data(member, version, nested) for member in value.members]
    return data


def _member_data(member: MemberValue, version: int, nested: bool) -> Json:
    data: Json = {"memberId": member.member_id}
    if version >= 3:
        data["groupInstanceId"] = member.instance_id
    data["clientId"] = member.client_id
    data["clientHost"] = member.client_host
    if version >= 1:
        data["rebalanceTimeout"] = member.rebalance_timeout_ms
    data["sessionTimeout"] = member.session_timeout_ms
    data["subscription"] = _blob(member.subscription, SUBSCRIPTION) if nested else _base64(member.subscription)
    data["assignment"] = _blob(member.assignment, ASSIGNMENT) if nested else _base64(member.assignment)
    return data


def _blob(data: bytes, name: str) -> Json | str:
    """A blob as dump-log shows it: the object if it can be read, else base64 (an empty one is "")."""
    return _remembered_blob(data, name) if len(data) <= SMALL_BLOB else _read_blob(data, name)


def _read_blob(data: bytes, name: str) -> Json | str:
    is_negative = data[:1] >= b"\x80"  # a version that dump-log reads like the oldest
    try:
        version, body = decode_blob(name, b"\0\0" + data[2:] if is_negative else data)
    except CodecError:
        return _base64(data)
    if version > NEWEST_VERSION and (body.get("ownedPartitions") or body.get("assignedPartitions")):
        return _base64(data)
    return _message_json(blob_layout(name, version), body)


# Members of a group repeat theirs from one rebalance to the next. Large ones are not kept: as Python objects they are
# twenty times the size of their bytes.
SMALL_BLOB = 300
_remembered_blob = lru_cache(maxsize=1024)(_read_blob)


def _message_json(layout: Layout, data: StructData) -> Json:
    return _struct_json(layout.message.fields, layout.version, data)


def _struct_json(fields: tuple[Field, ...], version: int, data: StructData) -> Json:
    shown = [field for field in fields if version in field.versions]
    json = {field.name: _field_json(field, version, data[field.name]) for field in shown if field.tag is None}
    for field in shown:
        if field.tag is not None and data[field.name] != field.default:
            json[field.name] = _field_json(field, version, data[field.name])
    return json


def _field_json(field: Field, version: int, value: Any) -> Any:
    if value is None or field.kind not in _SHOWN:
        return value
    if field.is_array:
        return [_SHOWN[field.kind](field, version, item) for item in value]
    return _SHOWN[field.kind](field, version, value)


_SHOWN: dict[str, Callable[[Field, int, Any], Any]] = {
    "struct": lambda field, version, value: _struct_json(field.fields, version, value),
    "uuid": lambda field, version, value: _uuid(value),
    "bytes": lambda field, version, value: _base64(value),
}
"""How what JSON does not have is shown; numbers and text are shown as they are."""


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _uuid(data: bytes) -> str:
    return urlsafe_b64encode(data).decode("ascii").rstrip("=")
