"""JoinGroup, SyncGroup and LeaveGroup: what each version has, and what stands for what it has not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    JoinAnswer,
    JoinedMember,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Leaver,
    LeaveResult,
    SyncAnswer,
    SyncGroup,
)
from muster.protocol.apis import ApiKey
from muster.protocol.messages import REQUEST, decode_response
from muster.server.wire.members import (
    decode_join_group,
    decode_leave_group,
    decode_sync_group,
    encode_join_group,
    encode_leave_group,
    encode_sync_group,
    sync_refusal,
)
from tests.protocol.strategies import bodies, int32s, more_at_length, patient, texts
from tests.server.wire.requests import body, placed

JOIN_VERSIONS, SYNC_VERSIONS, LEAVE_VERSIONS = range(10), range(6), range(6)
NONE, NOT_A_MEMBER, REBALANCING = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS
WHO = {"client_id": "me", "client_host": "/10.0.0.5", "fresh_uuid": "5e81"}
errors = st.sampled_from(ErrorCode)


@settings(patient, max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize("version", JOIN_VERSIONS)
@more_at_length
def test_join_request(again: int, version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.JOIN_GROUP, version, REQUEST))
    expected = JoinGroup(
        None,
        version,
        said["groupId"],
        said["memberId"],
        "5e81",
        "me",
        "/10.0.0.5",
        said["sessionTimeoutMs"],
        said["rebalanceTimeoutMs"] if version >= 1 else said["sessionTimeoutMs"],
        said["protocolType"],
        tuple([(one["name"], one["metadata"]) for one in said["protocols"]]),
        said["groupInstanceId"] if version >= 5 else None,
        said["reason"][:255] if version >= 8 and said["reason"] is not None else None,
    )
    for buffer, position, end in placed(body(ApiKey.JOIN_GROUP, version, said)):
        assert decode_join_group(version, buffer, position, end, **WHO) == expected


@settings(patient, max_examples=30)
@given(
    answer=st.builds(
        JoinAnswer,
        errors,
        texts,
        int32s,
        st.none() | texts,
        st.none() | texts,
        texts,
        st.booleans(),
        st.lists(st.builds(JoinedMember, texts, st.none() | texts, st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    correlation_id=int32s,
)
@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_join_answer(version: int, answer: JoinAnswer, correlation_id: int) -> None:
    told = decode_response(ApiKey.JOIN_GROUP, version, encode_join_group(version, correlation_id, answer))
    assert told == (
        correlation_id,
        {
            "throttleTimeMs": 0,
            "errorCode": answer.error,
            "generationId": answer.generation,
            "protocolType": answer.protocol_type if version >= 7 else None,
            "protocolName": answer.protocol or (None if version >= 7 else ""),
            "leader": answer.leader,
            "skipAssignment": answer.skip_assignment and version >= 9,
            "memberId": answer.member_id,
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.instance_id if version >= 5 else None,
                    "metadata": member.metadata,
                }
                for member in answer.members
            ],
        },
    )


@settings(patient, max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize("version", SYNC_VERSIONS)
@more_at_length
def test_sync_request(again: int, version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.SYNC_GROUP, version, REQUEST))
    expected = SyncGroup(
        None,
        said["groupId"],
        said["generationId"],
        said["memberId"],
        {one["memberId"]: one["assignment"] for one in said["assignments"]},
        said["groupInstanceId"] if version >= 3 else None,
        said["protocolType"] if version >= 5 else None,
        said["protocolName"] if version >= 5 else None,
        version,
    )
    for buffer, position, end in placed(body(ApiKey.SYNC_GROUP, version, said)):
        assert decode_sync_group(version, buffer, position, end) == expected


@pytest.mark.parametrize("version", SYNC_VERSIONS)
@pytest.mark.parametrize(("protocol_type", "name"), [("consumer", "range"), (None, "range"), ("consumer", None)])
def test_from_version_5_on_a_sync_must_name_its_protocol(
    version: int, protocol_type: str | None, name: str | None
) -> None:
    event = SyncGroup(None, "g", 1, "m", {}, None, protocol_type, name, version)
    must_be_refused = version >= 5 and None in (protocol_type, name)
    assert sync_refusal(event) == (SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) if must_be_refused else None)


@settings(patient, max_examples=30)
@given(
    answer=st.builds(SyncAnswer, errors, st.binary(max_size=9), st.none() | texts, st.none() | texts),
    correlation_id=int32s,
)
@pytest.mark.parametrize("version", SYNC_VERSIONS)
def test_sync_answer(version: int, answer: SyncAnswer, correlation_id: int) -> None:
    told = decode_response(ApiKey.SYNC_GROUP, version, encode_sync_group(version, correlation_id, answer))
    assert told == (
        correlation_id,
        {
            "throttleTimeMs": 0,
            "errorCode": answer.error,
            "protocolType": answer.protocol_type if version >= 5 else None,
            "protocolName": answer.protocol if version >= 5 else None,
            "assignment": answer.assignment,
        },
    )


@settings(patient, max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize("version", LEAVE_VERSIONS)
@more_at_length
def test_leave_request(again: int, version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.LEAVE_GROUP, version, REQUEST))
    leavers = [Leaver(said["memberId"])] if version < 3 else [leaver(version, one) for one in said["members"]]
    for buffer, position, end in placed(body(ApiKey.LEAVE_GROUP, version, said)):
        event = decode_leave_group(version, buffer, position, end)
        assert event == LeaveGroup(None, said["groupId"], tuple(leavers))


def leaver(version: int, said: dict[str, Any]) -> Leaver:
    return Leaver(said["memberId"], said["groupInstanceId"], said["reason"] if version >= 5 else None)


LEFT = (LeaveResult("a", None, NONE), LeaveResult("", "seat-2", NOT_A_MEMBER))


@pytest.mark.parametrize("version", range(3, 6))
def test_leave_answer(version: int) -> None:
    for answer in (LeaveAnswer(NONE, LEFT), LeaveAnswer(NOT_A_MEMBER), LeaveAnswer(NONE)):
        _, told = decode_response(ApiKey.LEAVE_GROUP, version, encode_leave_group(version, 7, answer))
        assert told["errorCode"] == answer.error
        members = [(one["memberId"], one["groupInstanceId"], one["errorCode"]) for one in told["members"]]
        assert members == [tuple(result) for result in answer.members]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (LeaveAnswer(NONE, LEFT[:1]), NONE),
        (LeaveAnswer(NONE, LEFT[1:]), NOT_A_MEMBER),
        (LeaveAnswer(REBALANCING), REBALANCING),
        (LeaveAnswer(REBALANCING, LEFT[1:]), REBALANCING),
    ],
)
def test_an_old_leave_answer_has_one_error(version: int, answer: LeaveAnswer, error: ErrorCode) -> None:
    told = decode_response(ApiKey.LEAVE_GROUP, version, encode_leave_group(version, 7, answer))
    assert told == (7, {"throttleTimeMs": 0, "errorCode": error, "members": []})
