"""A real broker understands what we write, we understand what it writes, and we write what it does, byte for byte."""

import itertools
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    ALL_COMMITTED,
    FetchAnswer,
    FetchedOffset,
    JoinAnswer,
    JoinedMember,
    LeaveAnswer,
    LeaveResult,
    OffsetDeleteAnswer,
    PartitionError,
    SyncAnswer,
)
from muster.protocol.apis import APIS, ApiKey
from muster.protocol.messages import decode_header, decode_response, encode_request, encode_response
from muster.server.wire import TopicNames
from muster.server.wire.discovery import (
    FindCoordinator,
    FoundCoordinator,
    KeyType,
    encode_find_coordinator,
    encode_improper,
    encode_unsupported,
    find_refusal,
)
from muster.server.wire.group_admin import decode_offset_delete, encode_offset_delete
from muster.server.wire.heartbeat import encode_heartbeat
from muster.server.wire.members import encode_join_group, encode_leave_group, encode_sync_group
from muster.server.wire.offset_commit import decode_offset_commit, encode_offset_commit
from muster.server.wire.offset_fetch import decode_offset_fetch, encode_offset_fetch
from tests.kit.kafka import KafkaBroker
from tests.protocol.strategies import versions_of

pytestmark = pytest.mark.kafka

NONE = ErrorCode.NONE
TOPIC, GONE_ID = "wire-orders", b"?" * 16


class Client:
    """One connection; every answer is read by its layout and written again, which must give the same bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._numbers = itertools.count(100)

    def exchange(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return (size := self._take(4)) + self._take(int.from_bytes(size, "big"))

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> tuple[bytes, bytes, int, dict[str, Any]]:
        """Request and answer as frames, correlation id, and the answer."""
        number = next(self._numbers)
        request = encode_request(api_key, version, number, "wire-test", body)
        answer = self.exchange(request)
        correlation_id, told = decode_response(api_key, version, answer)
        assert correlation_id == number
        assert encode_response(api_key, version, number, told) == answer
        return request, answer, number, told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def client(kafka: KafkaBroker) -> Iterator[Client]:
    client = Client(kafka.bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="module")
def topics(client: Client) -> TopicNames:
    """A topic of three partitions, ready to be used."""
    creation = {"topics": [{"name": TOPIC, "numPartitions": 3, "replicationFactor": 1}]}
    _, _, _, told = client.ask(ApiKey.CREATE_TOPICS, 7, creation)
    (topic,) = told["topics"]
    assert topic["errorCode"] == 0, topic
    wanted = {"topics": [{"name": TOPIC}]}
    while True:
        (described,) = client.ask(ApiKey.METADATA, 12, wanted)[3]["topics"]
        if len(described["partitions"]) == 3 and not any(one["errorCode"] for one in described["partitions"]):
            break
    while client.ask(ApiKey.FIND_COORDINATOR, 4, {"coordinatorKeys": ["wire"]})[3]["coordinators"][0]["errorCode"]:
        pass
    while fetch(client, 9, "wire", [])[3]["groups"][0]["errorCode"]:
        pass
    return TopicNames({TOPIC: (topic["topicId"], 3)}, {topic["topicId"]: TOPIC})


def where(frame: bytes) -> tuple[bytes, int, int]:
    """A request's bytes, where its body begins, where it ends."""
    return frame, decode_header(frame, 4)[4], len(frame)


def commit(client: Client, version: int, group_id: str, asked: list[tuple[str, bytes, list[int]]]) -> Any:
    some = [
        {
            "name": name,
            "topicId": topic_id,
            "partitions": [{"partitionIndex": index, "committedOffset": 40 + index} for index in indexes],
        }
        for name, topic_id, indexes in asked
    ]
    return client.ask(ApiKey.OFFSET_COMMIT, version, {"groupId": group_id, "topics": some})


def fetch(client: Client, version: int, group_id: str, asked: list[tuple[str, bytes, list[int]]] | None) -> Any:
    if asked is None:
        some = None
    elif version >= 8:
        some = [{"name": name, "topicId": key, "partitionIndexes": indexes} for name, key, indexes in asked]
    else:
        some = [{"name": name, "partitionIndexes": indexes} for name, _, indexes in asked]
    group = {"groupId": group_id, "topics": some}
    return client.ask(ApiKey.OFFSET_FETCH, version, {"groups": [group]} if version >= 8 else group)


# Sent as they are made from nothing but defaults. Left out: what takes no such request without a producer or records,
# what waits, and what the tests below ask with care.
HARMLESS = [
    ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.DELETE_TOPICS, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS,
    ApiKey.CREATE_PARTITIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.FETCH,
]  # fmt: skip
FILLED: dict[ApiKey, dict[str, Any]] = {
    ApiKey.LIST_OFFSETS: {"replicaId": -1, "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0}]}]},
    ApiKey.METADATA: {"topics": None},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "wire-gone"}], "topicNames": ["wire-gone"], "timeoutMs": 1000},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": TOPIC, "numPartitions": 1, "replicationFactor": 1}]},
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [{"resourceType": 2, "resourceName": TOPIC, "configurationKeys": None}],
        "includeSynonyms": True,
        "includeDocumentation": True,
    },
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": TOPIC, "count": 1, "assignments": None}], "timeoutMs": 1000},
    ApiKey.DESCRIBE_CLUSTER: {"includeClusterAuthorizedOperations": True},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}], "responsePartitionLimit": 1},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["wire-nobody", ""], "includeAuthorizedOperations": True},
    ApiKey.DELETE_GROUPS: {"groupsNames": ["wire-nobody"]},
    ApiKey.FIND_COORDINATOR: {"key": "wire", "coordinatorKeys": ["wire", "wire-2"]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leaderEpoch": 0}]}]},
    ApiKey.FETCH: {"maxWaitMs": 1, "topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]},
}


@pytest.mark.parametrize("api_key", HARMLESS, ids=lambda key: key.name)
def test_every_version_is_understood_both_ways(client: Client, topics: TopicNames, api_key: ApiKey) -> None:
    for version in versions_of(APIS[api_key]):
        said = FILLED.get(api_key, {})
        if api_key == ApiKey.METADATA and version == 0:
            said = {"topics": []}
        assert client.ask(api_key, version, said)[3], version


@pytest.mark.parametrize("version", range(10))
def test_the_life_of_a_member(client: Client, topics: TopicNames, version: int) -> None:
    """Joined, synced, heard of, described, gone: our codecs write the broker's answers from what they say."""
    group_id = f"wire-life-{version}"
    said = {
        "groupId": group_id,
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 10_000,
        "protocolType": "wire",
        "protocols": [{"name": "only", "metadata": b"meta"}],
    }
    _, answer, number, told = client.ask(ApiKey.JOIN_GROUP, version, said)
    if version >= 4:
        wanted = JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, told["memberId"])
        assert encode_join_group(version, number, wanted) == answer
        said["memberId"] = told["memberId"]
        _, answer, number, told = client.ask(ApiKey.JOIN_GROUP, version, said)
    member_id = told["memberId"]
    members = (JoinedMember(member_id, None, b"meta"),)
    joined = JoinAnswer(NONE, member_id, 1, "wire", "only", member_id, False, members)
    assert encode_join_group(version, number, joined) == answer

    sync_version = min(version, 5)
    seat = {"groupId": group_id, "generationId": 1, "memberId": member_id}
    assigned = {"protocolType": "wire", "protocolName": "only"} | {
        "assignments": [{"memberId": member_id, "assignment": b"all"}]
    }
    _, answer, number, _ = client.ask(ApiKey.SYNC_GROUP, sync_version, seat | assigned)
    assert encode_sync_group(sync_version, number, SyncAnswer(NONE, b"all", "wire", "only")) == answer

    beat_version = min(version, 4)
    for generation, error in ((1, NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
        said = seat | {"generationId": generation}
        _, answer, number, _ = client.ask(ApiKey.HEARTBEAT, beat_version, said)
        assert encode_heartbeat((beat_version, number), error) == answer

    described = client.ask(ApiKey.DESCRIBE_GROUPS, min(version, 6), {"groups": [group_id]})[3]["groups"][0]
    assert (described["groupState"], described["members"][0]["memberAssignment"]) == ("Stable", b"all")

    leave_version = min(version, 5)
    leaving = {"groupId": group_id, "memberId": member_id, "members": [{"memberId": member_id}, {"memberId": "who"}]}
    _, answer, number, _ = client.ask(ApiKey.LEAVE_GROUP, leave_version, leaving)
    left = (LeaveResult(member_id, None, NONE), LeaveResult("who", None, ErrorCode.UNKNOWN_MEMBER_ID))
    assert encode_leave_group(leave_version, number, LeaveAnswer(NONE, left)) == answer


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_answered_in_the_brokers_bytes(client: Client, topics: TopicNames, version: int) -> None:
    topic_id = topics.by_name[TOPIC][0]
    here, gone = (TOPIC, topic_id, [0, 2]), ("wire-gone", GONE_ID, [0, 1])
    for asked in (
        [here],
        [here, (TOPIC, topic_id, [1])],
        [here, gone],
        [gone],
        [],
        [(TOPIC, topic_id, [0, 9, 1]), gone, (TOPIC, topic_id, [2, -1])],
        [(TOPIC, topic_id, []), here],
        [("wire-gone", GONE_ID, []), here],
    ):
        request, answer, number, _ = commit(client, version, f"wire-commit-{version}", asked)
        data, position, end = where(request)
        _, reply = decode_offset_commit(version, number, data, position, end, topics)
        assert encode_offset_commit(reply, ALL_COMMITTED) == answer, asked


@pytest.mark.parametrize("version", range(1, 11))
def test_a_fetch_is_answered_in_the_brokers_bytes(client: Client, topics: TopicNames, version: int) -> None:
    topic_id = topics.by_name[TOPIC][0]
    group_id = f"wire-fetch-{version}"
    commit(client, 9, group_id, [(TOPIC, topic_id, [0, 1])])
    committed = {(TOPIC, index): 40 + index for index in (0, 1)}
    here, gone = (TOPIC, topic_id, [0, 2, 1]), ("wire-gone", GONE_ID, [5])
    for asked in ([here], [here, gone], [gone], [(TOPIC, topic_id, []), here], [gone, here, here], []):
        request, answer, number, _ = fetch(client, version, group_id, asked)
        data, position, end = where(request)
        (event,), reply = decode_offset_fetch(version, number, data, position, end, topics)
        assert event.partitions is not None
        found = [FetchedOffset(*one, committed.get(one, -1), -1, "", NONE) for one in event.partitions]
        assert encode_offset_fetch(reply, [FetchAnswer(NONE, tuple(found))], topics) == answer, asked
    if version >= 2:
        request, answer, number, told = fetch(client, version, group_id, None)
        data, position, end = where(request)
        _, reply = decode_offset_fetch(version, number, data, position, end, topics)
        listed = (told["groups"][0] if version >= 8 else told)["topics"][0]["partitions"]
        found = [FetchedOffset(TOPIC, one["partitionIndex"], one["committedOffset"], -1, "", NONE) for one in listed]
        assert encode_offset_fetch(reply, [FetchAnswer(NONE, tuple(found))], topics) == answer


def test_a_deletion_is_answered_in_the_brokers_bytes(client: Client, topics: TopicNames) -> None:
    commit(client, 9, "wire-delete", [(TOPIC, topics.by_name[TOPIC][0], [0, 1])])
    for group_id, error in (("wire-nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("wire-delete", NONE)):
        for asked in (
            [(TOPIC, [0, 7, 1]), ("wire-gone", [0])],
            [("wire-gone", [0]), (TOPIC, [0])],
            [(TOPIC, [1])],
            [("wire-gone", [])],
            [],
        ):
            some = [
                {"name": name, "partitions": [{"partitionIndex": index} for index in indexes]}
                for name, indexes in asked
            ]
            request, answer, number, _ = client.ask(ApiKey.OFFSET_DELETE, 0, {"groupId": group_id, "topics": some})
            data, position, end = where(request)
            event, refused = decode_offset_delete(0, data, position, end, topics)
            done = tuple([PartitionError(*one, NONE) for one in event.partitions]) if error is NONE else ()
            assert encode_offset_delete(0, number, refused, OffsetDeleteAnswer(error, done)) == answer, asked


# Version 0 has no kinds of keys, and share groups (2) do have a coordinator there from version 6 on.
KINDS = [
    (0, 0),
    *[(version, kind) for version in range(1, 7) for kind in (0, 1, 2, 3, -1) if (version, kind) != (6, 2)],
]


@pytest.mark.parametrize(("version", "key_type"), KINDS)
def test_a_coordinator_is_found_as_the_broker_finds_it(
    client: Client, topics: TopicNames, version: int, key_type: int
) -> None:
    said = {"key": "wire", "coordinatorKeys": ["wire"], "keyType": key_type}
    _, answer, number, told = client.ask(ApiKey.FIND_COORDINATOR, version, said)
    asked = FindCoordinator(key_type, ("wire",))
    one = told["coordinators"][0] if version >= 4 else told
    refused = NONE if key_type == KeyType.TRANSACTION else find_refusal(version, asked)  # they have one there
    error = refused or ErrorCode(one["errorCode"])
    found = FoundCoordinator(error, one["nodeId"], one["host"], one["port"])
    assert encode_find_coordinator(version, number, asked, [found]) == answer


def test_versions_of_apiversions(client: Client) -> None:
    for version in range(5):
        said = {"clientSoftwareName": "wire", "clientSoftwareVersion": "1"}
        _, _, _, told = client.ask(ApiKey.API_VERSIONS, version, said)
        theirs = {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in told["apiKeys"]}
        for api in APIS.values():
            low, high = theirs[api.key]
            assert low <= api.advertised_from, api.name
            assert api.max_version <= high, api.name
    for version in (3, 4):
        said = {"clientSoftwareName": "_", "clientSoftwareVersion": "1"}
        _, answer, number, _ = client.ask(ApiKey.API_VERSIONS, version, said)
        assert encode_improper(version, number) == answer
    for version in (b"\x00\x05", b"\xff\xff"):
        request = bytearray(encode_request(ApiKey.API_VERSIONS, 3 if version[0] == 0 else 2, 9, "wire", {}))
        request[6:8] = version
        assert client.exchange(bytes(request)) == encode_unsupported(9)
