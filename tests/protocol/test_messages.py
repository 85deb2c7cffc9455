"""Any message in any version: through and back, and what becomes of bytes that are not one."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.primitives import Writer
from muster.errors import Malformed
from muster.protocol.apis import APIS, Api, ApiKey
from muster.protocol.errors import BadBody, BadHeader, NotServed, WireError
from muster.protocol.messages import (
    REQUEST,
    RESPONSE,
    decode_header,
    decode_request,
    decode_response,
    decode_response_body,
    decode_response_header,
    encode_request,
    encode_response,
    layout,
)
from muster.protocol.reader import WireReader
from tests.protocol.strategies import bodies, every_api, message, more_at_length, patient, versions_of

INT64_MAX = 2**63 - 1
some = settings(patient, max_examples=12)


def a_version(api: Api, data: st.DataObject) -> int:
    return data.draw(st.integers(api.min_version, api.max_version))


def body_of(frame: bytes) -> int:
    """Where the body of a request begins."""
    return decode_header(frame, 4)[4]


def defaults(api_key: int, direction: str) -> dict[str, Any]:
    return {field.name: field.default for field in message(api_key, direction).fields}


def filled(body: Any, fields: Any) -> Any:
    """The body with the defaults of fields that its version does not have."""
    whole = {}
    for field in fields:
        value = body.get(field.name, field.default)
        if field.fields and value is not None and field.name in body:
            value = [filled(one, field.fields) for one in value] if field.is_array else filled(value, field.fields)
        whole[field.name] = value
    return whole


@settings(some, max_examples=6)
@given(data=st.data())
@every_api
@more_at_length
def test_a_request_comes_back_as_it_went(again: int, api: Api, data: st.DataObject) -> None:
    api_key, version = api.key, a_version(api, data)
    body = data.draw(bodies(api_key, version, REQUEST))
    frame = encode_request(api_key, version, 7, "me", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    decoded = decode_request(api_key, version, frame, body_of(frame))
    assert decoded == filled(body, message(api_key, REQUEST).fields)
    assert encode_request(api_key, version, 7, "me", decoded) == frame


@settings(some, max_examples=6)
@given(data=st.data())
@every_api
@more_at_length
def test_a_response_comes_back_as_it_went(again: int, api: Api, data: st.DataObject) -> None:
    api_key, version = api.key, a_version(api, data)
    body = data.draw(bodies(api_key, version, RESPONSE))
    frame = encode_response(api_key, version, -7, body)
    correlation_id, decoded = decode_response(api_key, version, frame)
    assert correlation_id == -7
    assert decoded == filled(body, message(api_key, RESPONSE).fields)


@every_api
def test_a_response_is_read_without_its_length_too(api: Api) -> None:
    for version in versions_of(api):
        frame = encode_response(api.key, version, 7, {})
        correlation_id, position = decode_response_header(api.key, version, memoryview(frame)[4:])
        assert (correlation_id, position) == (7, 4 + api.response_header_version(version)), version
        body = decode_response_body(api.key, version, memoryview(frame)[4:], position)
        assert (correlation_id, body) == decode_response(api.key, version, frame), version
        with pytest.raises(BadHeader):
            decode_response_header(api.key, version, frame[4 : 3 + position])


@pytest.mark.parametrize("version", range(4, 19))
def test_a_client_may_leave_records_where_they_are(version: int) -> None:
    partitions = [{"records": b"first"}, {"records": None}, {"records": b"second batch"}]
    frame = encode_response(ApiKey.FETCH, version, 7, {"responses": [{"partitions": partitions}]})
    _, position = decode_response_header(ApiKey.FETCH, version, frame, 4)
    body = decode_response_body(ApiKey.FETCH, version, frame, position, leaves_records=True)
    first, none, second = [one["records"] for one in body["responses"][0]["partitions"]]
    assert (frame[first], none, frame[second]) == (b"first", None, b"second batch")
    with pytest.raises(BadBody):
        decode_response_body(ApiKey.FETCH, version, frame[: second.stop - 1], position, leaves_records=True)


@every_api
def test_nothing_said_is_the_default(api: Api) -> None:
    for version in versions_of(api):
        frame = encode_request(api.key, version, 7, None, {})
        assert decode_request(api.key, version, frame, body_of(frame)) == defaults(api.key, REQUEST), version
        answer = encode_response(api.key, version, 7, {})
        assert decode_response(api.key, version, answer)[1] == defaults(api.key, RESPONSE), version


@settings(some, max_examples=4)
@given(data=st.data())
@every_api
@more_at_length
def test_a_request_cut_short_anywhere_is_an_error(again: int, api: Api, data: st.DataObject) -> None:
    api_key, version = api.key, a_version(api, data)
    frame = encode_request(api_key, version, 7, "me", data.draw(bodies(api_key, version, REQUEST)))
    start = body_of(frame)
    for end in range(start, len(frame)):
        with pytest.raises(BadBody):
            decode_request(api_key, version, frame, start, end)
        with pytest.raises(BadBody):
            decode_request(api_key, version, frame[start:end])


@every_api
def test_bytes_after_the_end_are_ignored(api: Api) -> None:
    for version in versions_of(api):
        frame = encode_request(api.key, version, 7, "me", {}) + b"\xff\xff\xff"
        assert decode_request(api.key, version, frame, body_of(frame)) == defaults(api.key, REQUEST), version


@settings(some, max_examples=60)
@given(data=st.data(), some_bytes=st.binary(max_size=200))
@every_api
@more_at_length
def test_any_bytes_are_a_message_or_an_error(api: Api, again: int, data: st.DataObject, some_bytes: bytes) -> None:
    with suppress(WireError):
        decode_request(api.key, a_version(api, data), some_bytes)


def with_unknown_tags(api_key: int, version: int, body: dict[str, Any]) -> bytes:
    """A request whose every struct carries two unknown tagged fields."""

    class Tagging(Writer):
        def tagged_fields(self, fields: Any) -> None:
            super().tagged_fields((*fields, (70, b"what"), (3000, b"")))

    writer = Tagging()
    layout(api_key, version, REQUEST).write(writer, body)
    return writer.finish()


@settings(some, max_examples=6)
@given(data=st.data())
@every_api
@more_at_length
def test_unknown_tagged_fields_are_skipped(again: int, api: Api, data: st.DataObject) -> None:
    api_key, version = api.key, a_version(api, data)
    body = data.draw(bodies(api_key, version, REQUEST))
    tagged = with_unknown_tags(api_key, version, body)
    plain = encode_request(api_key, version, 7, "me", body)
    assert decode_request(api_key, version, tagged) == decode_request(api_key, version, plain, body_of(plain))
    if version >= APIS[api_key].flexible_from:
        assert len(tagged) > len(plain) - body_of(plain)


def test_tagged_fields_at_their_default_are_not_written_and_others_are() -> None:
    plain = encode_response(ApiKey.FETCH, 12, 7, {"responses": [{"partitions": [{}]}]})
    default = {"currentLeader": {"leaderId": -1}, "divergingEpoch": {}}
    assert encode_response(ApiKey.FETCH, 12, 7, {"responses": [{"partitions": [default]}]}) == plain
    other = {"currentLeader": {"leaderEpoch": 5}}
    _, decoded = decode_response(
        ApiKey.FETCH, 12, encode_response(ApiKey.FETCH, 12, 7, {"responses": [{"partitions": [other]}]})
    )
    assert decoded["responses"][0]["partitions"][0]["currentLeader"] == {"leaderId": -1, "leaderEpoch": 5}


def test_a_known_tagged_field_of_the_wrong_length_is_an_error() -> None:
    # A Fetch request whose tag 0, the cluster id, says it has five bytes and has three.
    head = decode_request(ApiKey.FETCH, 12, (plain := encode_request(ApiKey.FETCH, 12, 7, None, {})), body_of(plain))
    assert head["clusterId"] is None
    body = plain[body_of(plain) : -1]
    assert decode_request(ApiKey.FETCH, 12, body + b"\x01\x00\x03\x03ab")["clusterId"] == "ab"
    with pytest.raises(BadBody, match="clusterId"):
        decode_request(ApiKey.FETCH, 12, body + b"\x01\x00\x05\x03abcd")


def test_a_name_that_is_not_utf8_survives() -> None:
    body = b"\x00\x02\xff\xfe" + b"\x00\x00\x00\x05" + b"\x00\x01\xc3"
    decoded = decode_request(ApiKey.HEARTBEAT, 0, body)
    assert decoded["groupId"].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    frame = encode_request(ApiKey.HEARTBEAT, 0, 7, "me", decoded)
    assert frame.endswith(body)


def test_times_are_numbers_however_large() -> None:
    frame = encode_request(ApiKey.OFFSET_COMMIT, 3, 7, "me", {"retentionTimeMs": INT64_MAX})
    assert decode_request(ApiKey.OFFSET_COMMIT, 3, frame, body_of(frame))["retentionTimeMs"] == INT64_MAX


def test_null_where_it_may_not_be_is_an_error() -> None:
    with pytest.raises(BadBody, match="null"):
        decode_request(ApiKey.HEARTBEAT, 0, b"\xff\xff" + bytes(6))
    with pytest.raises(BadBody, match="null"):
        decode_request(ApiKey.HEARTBEAT, 4, b"\x00" + bytes(6))
    with pytest.raises(BadBody, match="null"):
        decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff")
    assert decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")["topics"] is None


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    cursor = {"topicName": "t", "partitionIndex": 3}
    for value in (None, cursor):
        frame = encode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 7, "me", {"cursor": value})
        decoded = decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, frame, body_of(frame))
        assert decoded["cursor"] == value


def test_what_the_version_does_not_have_is_left_out_and_what_no_version_has_is_a_mistake() -> None:
    with_reason = encode_request(ApiKey.JOIN_GROUP, 7, 7, "me", {"reason": "why not"})
    assert with_reason == encode_request(ApiKey.JOIN_GROUP, 7, 7, "me", {})
    with pytest.raises(TypeError, match="raeson"):
        encode_request(ApiKey.JOIN_GROUP, 7, 7, "me", {"raeson": "why not"})


@pytest.mark.parametrize("version", [4, 5])
def test_text_longer_than_kafka_writes_it_is_an_error(version: int) -> None:
    assert encode_response(ApiKey.DESCRIBE_GROUPS, version, 7, {"groups": [{"groupId": "x" * 0x7FFF}]})
    with pytest.raises(BadBody, match="32768"):
        encode_response(ApiKey.DESCRIBE_GROUPS, version, 7, {"groups": [{"groupId": "x" * 0x8000}]})


def test_defaults_are_not_shared_between_messages() -> None:
    frame = encode_request(ApiKey.FETCH, 4, 7, "me", {})
    first = decode_request(ApiKey.FETCH, 4, frame, body_of(frame))
    first["forgottenTopicsData"].append("mine")
    first["replicaState"]["replicaId"] = 99
    second = decode_request(ApiKey.FETCH, 4, frame, body_of(frame))
    assert second["forgottenTopicsData"] == []
    assert second["replicaState"]["replicaId"] == -1


@pytest.mark.parametrize(("key", "version"), [(99, 0), (8, 1), (8, 11), (0, 2)])
def test_there_is_no_layout_for_what_is_not_known(key: int, version: int) -> None:
    with pytest.raises(NotServed):
        decode_request(key, version, b"")


def test_a_frame_of_another_length_than_it_says_is_an_error() -> None:
    frame = encode_response(ApiKey.HEARTBEAT, 4, 7, {})
    for wrong in (frame[:-1], frame + b"\x00", b"", b"\x00\x00\x00\x00", b"\x00\x00\x00\x05\x00\x00\x00\x07\x80"):
        with pytest.raises(BadHeader):
            decode_response(ApiKey.HEARTBEAT, 4, wrong)


def test_an_array_that_claims_more_than_there_is_costs_nothing() -> None:
    # A DescribeGroups request for two billion groups in four bytes.
    with pytest.raises(BadBody, match="2147483647"):
        decode_request(ApiKey.DESCRIBE_GROUPS, 0, b"\x7f\xff\xff\xff")


def test_there_is_a_limit_on_elements_of_all_arrays_together() -> None:
    groups = b"\x00\x00\x00\x04" + 4 * b"\x00\x00"
    assert len(decode_request(ApiKey.DESCRIBE_GROUPS, 0, groups, max_elements=4)["groups"]) == 4
    with pytest.raises(BadBody, match="limit"):
        decode_request(ApiKey.DESCRIBE_GROUPS, 0, groups, max_elements=3)
    nested = encode_request(
        ApiKey.OFFSET_DELETE, 0, 7, None, {"topics": [{"partitions": [{}, {}]}, {"partitions": [{}, {}]}]}
    )
    assert decode_request(ApiKey.OFFSET_DELETE, 0, nested, body_of(nested), max_elements=6)
    with pytest.raises(BadBody, match="limit"):
        decode_request(ApiKey.OFFSET_DELETE, 0, nested, body_of(nested), max_elements=5)


def test_tagged_fields_count_as_elements() -> None:
    tagged = b"\x02" + 2 * b"\x07\x00"
    reader = WireReader(tagged, max_elements=2)
    reader.skip_tagged_fields()
    assert reader.remaining == 0
    with pytest.raises(Malformed, match="limit"):
        WireReader(tagged, max_elements=1).skip_tagged_fields()
    with pytest.raises(BadBody, match="limit"):
        decode_request(ApiKey.API_VERSIONS, 3, b"\x01\x01" + tagged, max_elements=1)
