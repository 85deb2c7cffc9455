"""Every message in every version is what `kio`, which somebody else wrote, makes of it.

It is asked only what it can answer: it knows no text that is not UTF-8, no error code that Kafka does not have, no
retention of three hundred thousand years, and stamps of whole seconds only.
"""

import io
from dataclasses import fields as fields_of
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from muster.codec.error_codes import ErrorCode
from muster.core.answers import ALL_COMMITTED, CommitAnswer, FetchAnswer, FetchedOffset
from muster.core.events import Heartbeat
from muster.protocol.apis import APIS, Api, ApiKey
from muster.protocol.header import decode_header
from muster.protocol.messages import REQUEST, RESPONSE, decode_request, encode_request, encode_response
from muster.protocol.schema import Field
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from muster.server.wire.offset_commit import decode_offset_commit, encode_offset_commit
from muster.server.wire.offset_fetch import decode_offset_fetch
from muster.server.wire.offset_fetch_reply import encode_offset_fetch
from muster.server.wire.topics import Topics
from tests.server.wire.strategies import bodies, long_names, message, names, patient

text = names | long_names
LONGEST_MS = 10**14
NEWEST_S = 4 * 10**9
SCHEMAS = {REQUEST: load_request_schema, RESPONSE: load_response_schema}


def special(field: Field) -> st.SearchStrategy[Any] | None:
    """Values for what kio takes for more than a number."""
    if field.name.lower().endswith("errorcode"):
        return st.sampled_from([int(code) for code in KioErrorCode])
    if field.name == "retentionTimeMs":
        return st.integers(-LONGEST_MS, LONGEST_MS)
    if field.name == "logAppendTimeMs":
        return st.just(-1) | st.integers(0, NEWEST_S).map(lambda seconds: 1000 * seconds)
    return None


def entity(kind: Any, fields: tuple[Field, ...], version: int, body: dict[str, Any]) -> Any:
    """One of kio's objects with the values of one of our dicts; their fields are ours, in our order."""
    ours = [field for field in fields if version in field.versions]
    theirs = fields_of(kind)
    assert [plain(field.name) for field in theirs] == [plain(field.name) for field in ours]
    values = {
        theirs.name: value_of(theirs, ours, version, body[ours.name]) for theirs, ours in zip(theirs, ours, strict=True)
    }
    return kind(**values)


def plain(name: str) -> str:
    """`throttleTimeMs` and `throttle_time` are the same name."""
    return name.lower().replace("_", "").removesuffix("ms")


def value_of(theirs: Any, ours: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if ours.is_array:
        return tuple([single(theirs, ours, version, one) for one in value])
    return single(theirs, ours, version, value)


def single(theirs: Any, ours: Field, version: int, value: Any) -> Any:
    match theirs.metadata.get("kafka_type"):
        case None:
            return entity(innermost(theirs.type), ours.fields, version, value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value // 1000, UTC)
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return UUID(bytes=value) if any(value) else None
        case _:
            return value


def innermost(kind: Any) -> Any:
    """`X` of `tuple[X, ...]`, `X | None` and both together."""
    if get_origin(kind) in (tuple, UnionType):
        return innermost(next(one for one in get_args(kind) if one not in (NoneType, Ellipsis)))
    return kind


def written_by_kio(api_key: int, version: int, direction: str, body: dict[str, Any]) -> tuple[Any, bytes]:
    kind = SCHEMAS[direction](api_key, version)
    made = entity(kind, message(api_key, direction).fields, version, body)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, made)
    return made, buffer.getvalue()


def read_by_kio(api_key: int, version: int, direction: str, data: bytes) -> Any:
    made, size = entity_reader(SCHEMAS[direction](api_key, version))(data, 0)
    assert size == len(data), "kio left something over"
    return made


def body_of(api_key: int, version: int, direction: str, frame: bytes) -> bytes:
    if direction == REQUEST:
        return frame[decode_header(frame, 4)[4] :]
    return frame[8 + APIS[api_key].response_header_version(version) :]


def encode(api_key: int, version: int, direction: str, body: dict[str, Any]) -> bytes:
    if direction == REQUEST:
        return body_of(api_key, version, direction, encode_request(api_key, version, 7, "me", body))
    return body_of(api_key, version, direction, encode_response(api_key, version, 7, body))


@settings(patient, max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_message_is_the_same(api: Api, direction: str, data: st.DataObject) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    body = data.draw(bodies(api.key, version, direction, text, special))
    made, theirs = written_by_kio(api.key, version, direction, body)
    ours = encode(api.key, version, direction, body)
    assert ours == theirs
    assert read_by_kio(api.key, version, direction, ours) == made


@settings(patient, max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("version", range(5))
def test_heartbeat_by_hand(version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.HEARTBEAT, version, REQUEST, text))
    made, theirs = written_by_kio(ApiKey.HEARTBEAT, version, REQUEST, body)
    expected = Heartbeat(None, made.group_id, made.generation_id, made.member_id)
    expected.instance_id = made.group_instance_id if version >= 3 else None
    assert decode_heartbeat(version, theirs, 0, len(theirs)) == expected
    error = data.draw(st.sampled_from(ErrorCode))
    answer = body_of(ApiKey.HEARTBEAT, version, RESPONSE, encode_heartbeat((version, 7), error))
    assert read_by_kio(ApiKey.HEARTBEAT, version, RESPONSE, answer).error_code == int(error)


@settings(patient, max_examples=50)
@given(data=st.data())
@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_by_hand(version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.OFFSET_COMMIT, version, REQUEST, text, special))
    for number, topic in enumerate(body["topics"]):
        for index, one in enumerate(topic["partitions"]):
            one["partitionIndex"] = index
        if "topicId" in topic:
            topic["topicId"] = bytes([number + 1]) * 16
    made, theirs = written_by_kio(ApiKey.OFFSET_COMMIT, version, REQUEST, body)
    keys = [(topic.get("name", f"t{number}"), topic.get("topicId", b"")) for number, topic in enumerate(body["topics"])]
    topics = Topics({name: (key, 9) for name, key in keys}, {key: name for name, key in keys})
    event, reply = decode_offset_commit(version, 7, theirs, 0, len(theirs), topics)
    wanted = [(topic, one) for topic in made.topics for one in topic.partitions]
    if event is None:
        assert not wanted
        return
    assert (event.group_id, event.member_id) == (made.group_id, made.member_id)
    assert event.generation == made.generation_id_or_member_epoch
    assert event.instance_id == (made.group_instance_id if version >= 7 else None)
    assert event.retention_ms == (made.retention_time // timedelta(milliseconds=1) if version <= 4 else -1)
    assert [(where[1], where[2], where[4]) for where in event.partitions] == [
        (one.partition_index, one.committed_offset, one.committed_metadata) for _, one in wanted
    ]
    if version >= 6:
        assert [where[3] for where in event.partitions] == [one.committed_leader_epoch for _, one in wanted]
    codes = data.draw(st.lists(st.sampled_from(ErrorCode), min_size=len(wanted), max_size=len(wanted)))
    for answer, expected in ((ALL_COMMITTED, [0] * len(wanted)), (CommitAnswer(tuple(codes)), codes)):
        frame = encode_offset_commit(reply, answer)
        told = read_by_kio(
            ApiKey.OFFSET_COMMIT, version, RESPONSE, body_of(ApiKey.OFFSET_COMMIT, version, RESPONSE, frame)
        )
        assert [int(one.error_code) for topic in told.topics for one in topic.partitions] == expected
        key = "topic_id" if version >= 10 else "name"
        assert [(getattr(topic, key), one.partition_index) for topic in told.topics for one in topic.partitions] == [
            (getattr(topic, key), one.partition_index) for topic, one in wanted
        ]


@settings(patient, max_examples=50)
@given(data=st.data())
@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch_by_hand(version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.OFFSET_FETCH, version, REQUEST, text))
    groups = body["groups"] if version >= 8 else [body]
    by_id = {}
    for group in groups:
        for topic in group["topics"] or ():
            if "topicId" in topic:
                by_id[topic["topicId"]] = topic["topicId"].hex()
    _, theirs = written_by_kio(ApiKey.OFFSET_FETCH, version, REQUEST, body)
    assert decode_request(ApiKey.OFFSET_FETCH, version, theirs)
    topics = Topics({}, by_id)
    events, reply = decode_offset_fetch(version, 7, theirs, 0, len(theirs), topics)
    assert [event.group_id for event in events] == [group["groupId"] for group in groups]
    assert {event.require_stable for event in events} <= {body.get("requireStable", False)}
    wanted = [
        None
        if group["topics"] is None
        else tuple(
            [
                (by_id[topic["topicId"]] if version >= 10 else topic["name"], index)
                for topic in group["topics"]
                for index in topic["partitionIndexes"]
            ]
        )
        for group in groups
    ]
    assert [event.partitions for event in events] == wanted
    answers = [
        FetchAnswer(
            ErrorCode.NONE,
            tuple([FetchedOffset(*where, 5, 6, "seen", ErrorCode.NONE) for where in event.partitions or ()]),
        )
        for event in events
    ]
    frame = encode_offset_fetch(reply, answers, topics)
    told = read_by_kio(ApiKey.OFFSET_FETCH, version, RESPONSE, body_of(ApiKey.OFFSET_FETCH, version, RESPONSE, frame))
    for group, one in zip(groups, told.groups if version >= 8 else [told], strict=True):
        found = [
            (partition.partition_index, partition.committed_offset, partition.metadata)
            for topic in one.topics
            for partition in topic.partitions
        ]
        asked = [(index, 5, "seen") for topic in group["topics"] or () for index in topic["partitionIndexes"]]
        assert found == asked
