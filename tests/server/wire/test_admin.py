"""DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, FindCoordinator: versions and their defaults."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    DeleteGroup,
    DescribeAnswer,
    DescribedMember,
    DescribeGroup,
    ListAnswer,
    ListedGroup,
    ListGroups,
    OffsetDelete,
    OffsetDeleteAnswer,
    PartitionError,
)
from muster.protocol.apis import ApiKey
from muster.protocol.messages import REQUEST, decode_response
from muster.server.wire.discovery import (
    FindCoordinator,
    FoundCoordinator,
    decode_find_coordinator,
    encode_find_coordinator,
    find_refusal,
)
from muster.server.wire.group_admin import (
    decode_delete_groups,
    decode_describe_groups,
    decode_list_groups,
    decode_offset_delete,
    encode_delete_groups,
    encode_describe_groups,
    encode_list_groups,
    encode_offset_delete,
)
from tests.protocol.strategies import bodies, patient
from tests.server.wire.requests import TOPICS, body, placed

INT32_MIN = -(2**31)
NONE = ErrorCode.NONE
some = settings(patient, max_examples=30)

# Describe.

STABLE = DescribeAnswer(
    NONE, "Stable", "consumer", "range", (DescribedMember("m-1", "seat", "me", "/10.0.0.5", b"topics", b"parts"),)
)
MISSING = DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, "Dead", message="Group b not found.")


@some
@given(data=st.data())
@pytest.mark.parametrize("version", range(7))
def test_describe_request(version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.DESCRIBE_GROUPS, version, REQUEST))
    for buffer, position, end in placed(body(ApiKey.DESCRIBE_GROUPS, version, said)):
        events, has_operations = decode_describe_groups(version, buffer, position, end)
        assert events == tuple([DescribeGroup(None, group_id, version) for group_id in said["groups"]])
        assert has_operations == (said["includeAuthorizedOperations"] if version >= 3 else False)


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("has_operations", [True, False])
def test_describe_answer(version: int, has_operations: bool) -> None:
    events = [DescribeGroup(None, "a", version), DescribeGroup(None, "b", version)]
    frame = encode_describe_groups(version, 7, events, has_operations, [STABLE, MISSING])
    _, told = decode_response(ApiKey.DESCRIBE_GROUPS, version, frame)
    assert told == {
        "throttleTimeMs": 0,
        "groups": [
            {
                "errorCode": 0,
                "errorMessage": None,
                "groupId": "a",
                "groupState": "Stable",
                "protocolType": "consumer",
                "protocolData": "range",
                "members": [
                    {
                        "memberId": "m-1",
                        "groupInstanceId": "seat" if version >= 4 else None,
                        "clientId": "me",
                        "clientHost": "/10.0.0.5",
                        "memberMetadata": b"topics",
                        "memberAssignment": b"parts",
                    }
                ],
                "authorizedOperations": 3400 if has_operations and version >= 3 else INT32_MIN,
            },
            {
                "errorCode": 69,
                "errorMessage": "Group b not found." if version >= 6 else None,
                "groupId": "b",
                "groupState": "Dead",
                "protocolType": "",
                "protocolData": "",
                "members": [],
                "authorizedOperations": INT32_MIN,
            },
        ],
    }


def test_every_group_asked_for_is_answered() -> None:
    with pytest.raises(ValueError, match="zip"):
        encode_describe_groups(6, 7, [DescribeGroup(None, "a", 6)], False, [])


# List.


@some
@given(data=st.data())
@pytest.mark.parametrize("version", range(6))
def test_list_request(version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.LIST_GROUPS, version, REQUEST))
    expected = ListGroups(None, tuple(said.get("statesFilter", ())), tuple(said.get("typesFilter", ())))
    assert ("statesFilter" in said, "typesFilter" in said) == (version >= 4, version >= 5)
    for buffer, position, end in placed(body(ApiKey.LIST_GROUPS, version, said)):
        assert decode_list_groups(version, buffer, position, end) == expected


@pytest.mark.parametrize("version", range(6))
def test_list_answer(version: int) -> None:
    listed = ListAnswer(NONE, (ListedGroup("g", "consumer", "Stable", "classic"),))
    for answer in (listed, ListAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)):
        _, told = decode_response(ApiKey.LIST_GROUPS, version, encode_list_groups(version, 7, answer))
        assert told == {
            "throttleTimeMs": 0,
            "errorCode": answer.error,
            "groups": [
                {
                    "groupId": group.group_id,
                    "protocolType": group.protocol_type,
                    "groupState": group.state if version >= 4 else "",
                    "groupType": group.type if version >= 5 else "",
                }
                for group in answer.groups
            ],
        }


# Delete.


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(version: int) -> None:
    data = body(ApiKey.DELETE_GROUPS, version, {"groupsNames": ["a", "b", "a", ""]})
    for buffer, position, end in placed(data):
        events = decode_delete_groups(version, buffer, position, end)
        assert events == (DeleteGroup(None, "a"), DeleteGroup(None, "b"), DeleteGroup(None, ""))
    answers = [NONE, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    _, told = decode_response(ApiKey.DELETE_GROUPS, version, encode_delete_groups(version, 7, events, answers))
    assert [(one["groupId"], one["errorCode"]) for one in told["results"]] == [("a", 0), ("b", 68), ("", 69)]


def deletion(*asked: tuple[str, list[int]]) -> bytes:
    topics = [{"name": name, "partitions": [{"partitionIndex": index} for index in indexes]} for name, indexes in asked]
    return body(ApiKey.OFFSET_DELETE, 0, {"groupId": "g", "topics": topics})


def told_of(frame: bytes) -> tuple[int, list[tuple[str, list[tuple[int, int]]]]]:
    _, told = decode_response(ApiKey.OFFSET_DELETE, 0, frame)
    topics = [
        (topic["name"], [(one["partitionIndex"], one["errorCode"]) for one in topic["partitions"]])
        for topic in told["topics"]
    ]
    return told["errorCode"], topics


def test_offset_delete_refuses_what_is_not_there_and_asks_for_the_rest() -> None:
    data = deletion(("orders", [0, 3, 1]), ("gone", [0]), ("clicks", [2]), ("clicks", []), ("never", []))
    for buffer, position, end in placed(data):
        event, refused = decode_offset_delete(0, buffer, position, end, TOPICS)
        assert event == OffsetDelete(None, "g", (("orders", 0), ("orders", 1), ("clicks", 2)))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    deleted = (
        PartitionError("orders", 0, subscribed),
        PartitionError("orders", 1, subscribed),
        PartitionError("clicks", 2, NONE),
    )
    error, topics = told_of(encode_offset_delete(0, 7, refused, OffsetDeleteAnswer(NONE, deleted)))
    assert error == 0
    assert topics == [
        ("orders", [(3, 3), (0, 86), (1, 86)]),
        ("gone", [(0, 3)]),
        ("never", []),
        ("clicks", [(2, 0)]),
    ]


def test_the_groups_error_wins_over_those_of_its_partitions() -> None:
    data = deletion(("gone", [0]))
    event, refused = decode_offset_delete(0, data, 0, len(data), TOPICS)
    assert event == OffsetDelete(None, "g", ())
    frame = encode_offset_delete(0, 7, refused, OffsetDeleteAnswer(ErrorCode.GROUP_ID_NOT_FOUND))
    assert told_of(frame) == (69, [])


# Find.

HERE = FoundCoordinator(NONE, 1, "localhost", 9092)
AWAY = FoundCoordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@some
@given(data=st.data())
@pytest.mark.parametrize("version", range(7))
def test_find_request(version: int, data: st.DataObject) -> None:
    said = data.draw(bodies(ApiKey.FIND_COORDINATOR, version, REQUEST))
    keys = said["coordinatorKeys"] if version >= 4 else [said["key"]]
    for buffer, position, end in placed(body(ApiKey.FIND_COORDINATOR, version, said)):
        found = decode_find_coordinator(version, buffer, position, end)
        assert found == FindCoordinator(said["keyType"] if version >= 1 else 0, tuple(keys))


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    ("found", "message"), [(HERE, "NONE"), (AWAY, "The coordinator is not available.")], ids=["here", "away"]
)
def test_find_answer_for_one_key(version: int, found: FoundCoordinator, message: str) -> None:
    frame = encode_find_coordinator(version, 7, FindCoordinator(0, ("g",)), [found])
    _, told = decode_response(ApiKey.FIND_COORDINATOR, version, frame)
    assert told == {
        "throttleTimeMs": 0,
        "errorCode": found.error,
        "errorMessage": message if version >= 1 else "",
        "nodeId": found.node_id,
        "host": found.host,
        "port": found.port,
        "coordinators": [],
    }


@pytest.mark.parametrize("version", range(4, 7))
def test_find_answer_for_many_keys(version: int) -> None:
    frame = encode_find_coordinator(version, 7, FindCoordinator(1, ("a", "b")), [HERE, AWAY])
    _, told = decode_response(ApiKey.FIND_COORDINATOR, version, frame)
    assert told["coordinators"] == [
        {"key": "a", "nodeId": 1, "host": "localhost", "port": 9092, "errorCode": 0, "errorMessage": ""},
        {"key": "b", "nodeId": -1, "host": "", "port": -1, "errorCode": 15, "errorMessage": ""},
    ]


def test_only_an_unheard_of_kind_of_key_has_a_message_from_version_4_on() -> None:
    refused = [FoundCoordinator(ErrorCode.INVALID_REQUEST)]
    for key_type, is_told in ((2, False), (3, True), (-1, True)):
        frame = encode_find_coordinator(4, 7, FindCoordinator(key_type, ("a",)), refused)
        _, told = decode_response(ApiKey.FIND_COORDINATOR, 4, frame)
        assert told["coordinators"][0]["errorMessage"].startswith("This most likely") == is_told


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [(0, 0, 0), (6, 0, 0), (1, 1, 0), (6, 1, 0), (5, 2, 42), (6, 2, 15), (6, 3, 42), (6, -1, 42)],
)
def test_kinds_of_keys(version: int, key_type: int, error: int) -> None:
    assert find_refusal(version, FindCoordinator(key_type, ("k",))) == error


def test_an_answer_has_a_place_for_any_error() -> None:
    found: list[Any] = [FoundCoordinator(ErrorCode.UNKNOWN_SERVER_ERROR)]
    frame = encode_find_coordinator(1, 7, FindCoordinator(0, ("g",)), found)
    assert decode_response(ApiKey.FIND_COORDINATOR, 1, frame)[1]["errorMessage"] == "UNKNOWN_SERVER_ERROR"
