"""Heartbeat by hand is Heartbeat by the book."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import Heartbeat
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody, WireError
from muster.protocol.messages import REQUEST, decode_request, encode_response
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from tests.protocol.strategies import bodies, int32s, patient
from tests.server.wire.requests import (
    body,
    changed_everywhere,
    cut_short,
    damaged,
    lengths_in_two_bytes,
    placed,
    tagged_body,
)

VERSIONS = range(5)
KEY = ApiKey.HEARTBEAT
versions = st.sampled_from(VERSIONS)


def by_the_book(version: int, data: bytes) -> Heartbeat:
    message = decode_request(KEY, version, data)
    names = ("groupId", "generationId", "memberId", "groupInstanceId")
    return Heartbeat(None, *[message[name] for name in names])


def messages(version: int) -> st.SearchStrategy[dict[str, Any]]:
    return bodies(KEY, version, REQUEST)


@patient
@given(st.data())
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_the_layout_says(version: int, data: st.DataObject) -> None:
    encoded = body(KEY, version, message := data.draw(messages(version)))
    expected = by_the_book(version, encoded)
    for buffer, position, end in placed(encoded):
        assert decode_heartbeat(version, buffer, position, end) == expected
    tagged = tagged_body(KEY, version, message)
    assert decode_heartbeat(version, tagged, 0, len(tagged)) == expected


@pytest.mark.parametrize("size", [125, 126, 127, 128, 200])
def test_a_length_of_two_bytes_is_not_taken_for_one(size: int) -> None:
    # With the right generation the rest of such a request looks as usual from one byte too early.
    for generation in range(12):
        for group_id, member_id in (("g" * size, "m"), ("g", "m" * size)):
            message = {"groupId": group_id, "generationId": generation, "memberId": member_id}
            encoded = body(KEY, 4, message)
            assert decode_heartbeat(4, encoded, 0, len(encoded)) == Heartbeat(None, group_id, generation, member_id)


@settings(patient, max_examples=20)
@given(st.data())
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_short_is_an_error(version: int, data: st.DataObject) -> None:
    message = data.draw(messages(version))
    for encoded in (body(KEY, version, message), tagged_body(KEY, version, message)):
        for buffer, position, end in cut_short(encoded):
            with pytest.raises(BadBody, match=f"HeartbeatRequest version {version}: "):
                decode_heartbeat(version, buffer, position, end)


def check_as_the_layout_sees_it(version: int, encoded: bytes) -> None:
    try:
        expected = by_the_book(version, encoded)
    except WireError:
        with pytest.raises(BadBody):
            decode_heartbeat(version, encoded, 0, len(encoded))
    else:
        assert decode_heartbeat(version, encoded, 0, len(encoded)) == expected


@patient
@given(st.data(), versions)
def test_damage_is_seen_as_the_layout_sees_it(data: st.DataObject, version: int) -> None:
    whole = messages(version).map(lambda message: body(KEY, version, message))
    check_as_the_layout_sees_it(version, data.draw(damaged(whole)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_changed_byte_is_seen_as_the_layout_sees_it(version: int) -> None:
    for instance_id in (None, "seat"):
        said = {"groupId": "group", "generationId": 3, "memberId": "member", "groupInstanceId": instance_id}
        for encoded in (*changed_everywhere(whole := body(KEY, version, said)), *lengths_in_two_bytes(whole)):
            check_as_the_layout_sees_it(version, encoded)


@patient
@given(versions, st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_error(version: int, data: bytes) -> None:
    with suppress(WireError):
        decode_heartbeat(version, data, 0, len(data))


@patient
@given(int32s, st.sampled_from(ErrorCode))
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_what_the_layout_says(version: int, correlation_id: int, error: ErrorCode) -> None:
    expected = encode_response(KEY, version, correlation_id, {"errorCode": error})
    assert encode_heartbeat((version, correlation_id), error) == expected
