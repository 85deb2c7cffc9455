"""Our requests are what Kafka's schemas say, and its answers are read as they were meant, in every version we speak.

The judge is the server's table of layouts, which is compared with Kafka's own definitions elsewhere; for SASL, which
the server does not do, it is `kio`.
"""

import io
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i64Timedelta

from muster.errors import Malformed
from muster.live import requests
from muster.live.requests import SPOKEN, FetchFrom, Response, error_name
from muster.protocol.apis import ApiKey
from muster.protocol.errors import WireError
from muster.protocol.messages import (
    decode_header,
    decode_request,
    decode_response_body,
    decode_response_header,
    encode_request,
    encode_response,
)

TOPIC_ID = bytes(range(16))
WANTED = [("orders", 0), ("orders", 7), ("paiements-é", 3)]


def versions(api: ApiKey) -> list[int]:
    low, high = SPOKEN[api]
    return list(range(low, high + 1))


def understood(api: ApiKey, version: int, body: Any) -> Any:
    """The request as a server takes it, header included; nothing may be left over."""
    frame = encode_request(api, version, 77, "me", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    *header, position = decode_header(frame[4:])
    assert header == [api, version, 77, "me"]
    for cut in range(position, len(frame) - 4):
        with pytest.raises(WireError):
            decode_request(api, version, frame[4:], position, cut)
    return decode_request(api, version, frame[4:], position)


def answered(api: ApiKey, version: int, body: Any) -> Response:
    """An answer as a server sends it, and as a connection hands it on."""
    frame = memoryview(encode_response(api, version, 77, body)[4:])
    correlation_id, position = decode_response_header(api, version, frame)
    assert correlation_id == 77
    return Response(frame, decode_response_body(api, version, frame, position, leaves_records=True), version)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata(version: int) -> None:
    asked = understood(ApiKey.METADATA, version, requests.metadata_request(["orders", "paiements-é"]))
    assert [topic["name"] for topic in asked["topics"]] == ["orders", "paiements-é"]
    assert asked["allowAutoTopicCreation"] is False
    assert understood(ApiKey.METADATA, version, requests.metadata_request(None))["topics"] is None

    partition = {
        "errorCode": 5, "partitionIndex": 3, "leaderId": 2, "leaderEpoch": 9,
        "replicaNodes": [1, 2], "isrNodes": [2], "offlineReplicas": [1],
    }  # fmt: skip
    topic = {
        "errorCode": 0, "name": "orders", "topicId": TOPIC_ID, "isInternal": True, "partitions": [partition],
        "topicAuthorizedOperations": 0,
    }  # fmt: skip
    response = answered(ApiKey.METADATA, version, {
        "throttleTimeMs": 12, "brokers": [{"nodeId": 2, "host": "h", "port": 9, "rack": "r"}], "clusterId": "c",
        "controllerId": 2, "topics": [topic], "clusterAuthorizedOperations": 0, "errorCode": 56,
    })  # fmt: skip
    read = requests.read_metadata(response)
    assert read == requests.Metadata(
        56 if version >= 13 else 0,
        "c",
        {2: requests.Broker(2, "h", 9)},
        {
            "orders": requests.Topic(
                0, "orders", TOPIC_ID if version >= 10 else bytes(16), True,
                {3: requests.Partition(5, 2, 9 if version >= 7 else -1)},
            )
        },
    )  # fmt: skip


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_settings_of_a_broker(version: int) -> None:
    asked = understood(ApiKey.DESCRIBE_CONFIGS, version, requests.broker_settings_request(3, ["offsets.x"]))
    (resource,) = asked["resources"]
    assert resource == {"resourceType": 4, "resourceName": "3", "configurationKeys": ["offsets.x"]}

    config = {
        "readOnly": False, "configSource": 5, "isSensitive": False, "synonyms": [], "configType": 3,
        "documentation": None,
    }  # fmt: skip
    told = [config | {"name": "offsets.x", "value": "7"}, config | {"name": "hidden", "value": None}]
    result = {"errorCode": 0, "errorMessage": None, "resourceType": 4, "resourceName": "3", "configs": told}
    refused = result | {"errorCode": 31, "configs": [config | {"name": "of another", "value": "8"}]}
    response = answered(ApiKey.DESCRIBE_CONFIGS, version, {"throttleTimeMs": 0, "results": [result, refused]})
    assert requests.read_settings(response) == {"offsets.x": "7"}


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets(version: int) -> None:
    body = requests.list_offsets_request(WANTED, requests.EARLIEST, requests.READ_COMMITTED)
    asked = understood(ApiKey.LIST_OFFSETS, version, body)
    assert (asked["replicaId"], asked["isolationLevel"]) == (-1, 1)
    found = [
        (topic["name"], one["partitionIndex"], one["timestamp"]) for topic in asked["topics"]
        for one in topic["partitions"]
    ]  # fmt: skip
    assert found == [(*wanted, -2) for wanted in WANTED]

    partition = {"partitionIndex": 7, "errorCode": 6, "timestamp": -1, "offset": 2**40, "leaderEpoch": 4}
    response = answered(
        ApiKey.LIST_OFFSETS, version, {"throttleTimeMs": 5, "topics": [{"name": "orders", "partitions": [partition]}]}
    )
    assert requests.read_list_offsets(response) == {
        ("orders", 7): requests.ListedOffset(6, 2**40, 4 if version >= 4 else -1)
    }


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_epoch_ends(version: int) -> None:
    current = {("orders", 7): 5, ("orders", 8): -1}
    body = requests.epoch_ends_request({("orders", 7): 3, ("orders", 8): 4}, current)
    asked = understood(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)["topics"][0]["partitions"]
    assert [(one["partition"], one["leaderEpoch"]) for one in asked] == [(7, 3), (8, 4)]
    assert [one["currentLeaderEpoch"] for one in asked] == [5, -1]

    partition = {"errorCode": 0, "partition": 7, "leaderEpoch": 3, "endOffset": 2**40}
    response = answered(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        version,
        {"throttleTimeMs": 5, "topics": [{"topic": "orders", "partitions": [partition]}]},
    )
    assert requests.read_epoch_ends(response) == {("orders", 7): requests.EpochEnd(0, 3, 2**40)}


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch(version: int) -> None:
    ids = {"orders": TOPIC_ID, "paiements-é": bytes(range(1, 17))}
    epoch = 3 if version >= 12 else -1
    wanted = {where: FetchFrom(100 + number, 50 + number, epoch) for number, where in enumerate(WANTED)}
    asked = understood(ApiKey.FETCH, version, requests.fetch_request(wanted, ids, 4711))
    assert (asked["maxBytes"], asked["maxWaitMs"], asked["minBytes"], asked["isolationLevel"]) == (4711, 0, 1, 0)
    if version >= 7:
        assert (asked["sessionId"], asked["sessionEpoch"]) == (0, -1)
    names = {topic_id: name for name, topic_id in ids.items()}
    found = {
        (topic["topic"] if version <= 12 else names[topic["topicId"]], one["partition"]):
            FetchFrom(one["fetchOffset"], one["partitionMaxBytes"], one.get("lastFetchedEpoch", -1))
        for topic in asked["topics"] for one in topic["partitions"]
    }  # fmt: skip
    assert found == wanted

    partition = {
        "partitionIndex": 7, "errorCode": 1, "highWatermark": 90, "lastStableOffset": 80, "logStartOffset": 10,
        "divergingEpoch": {"epoch": 1, "endOffset": 2}, "currentLeader": {"leaderId": 3, "leaderEpoch": 4},
        "snapshotId": {"endOffset": -1, "epoch": -1},
        "abortedTransactions": [{"producerId": 1, "firstOffset": 2}], "preferredReadReplica": -1, "records": b"abc",
    }  # fmt: skip
    response = answered(ApiKey.FETCH, version, {
        "throttleTimeMs": 5, "errorCode": 0, "sessionId": 0,
        "responses": [{"topic": "orders", "topicId": TOPIC_ID, "partitions": [partition]}],
        "nodeEndpoints": [{"nodeId": 3, "host": "h", "port": 1, "rack": None}],
    })  # fmt: skip
    error, partitions = requests.read_fetch(response, ids)
    assert error == 0
    fetched = partitions["orders", 7]
    assert (fetched.error, fetched.high_watermark) == (1, 90)
    assert fetched.log_start_offset == (10 if version >= 5 else -1)
    assert fetched.frame[fetched.start : fetched.end] == b"abc"
    assert fetched.diverging_offset == (2 if version >= 12 else None)


def test_records_that_are_null_are_none() -> None:
    partition = {
        "partitionIndex": 0, "errorCode": 0, "highWatermark": 0, "lastStableOffset": 0, "logStartOffset": 0,
        "divergingEpoch": {"epoch": -1, "endOffset": -1}, "currentLeader": {"leaderId": -1, "leaderEpoch": -1},
        "snapshotId": {"endOffset": -1, "epoch": -1}, "abortedTransactions": None, "preferredReadReplica": -1,
        "records": None,
    }  # fmt: skip
    for version in (11, 12):
        response = answered(ApiKey.FETCH, version, {
            "throttleTimeMs": 0, "errorCode": 0, "sessionId": 0,
            "responses": [{"topic": "t", "topicId": TOPIC_ID, "partitions": [partition]}], "nodeEndpoints": [],
        })  # fmt: skip
        fetched = requests.read_fetch(response, {"t": TOPIC_ID})[1]["t", 0]
        assert fetched.start == fetched.end


def test_an_answer_about_a_topic_that_was_not_asked_for() -> None:
    response = answered(ApiKey.FETCH, 13, {
        "throttleTimeMs": 0, "errorCode": 0, "sessionId": 0,
        "responses": [{"topic": "", "topicId": TOPIC_ID, "partitions": []}], "nodeEndpoints": [],
    })  # fmt: skip
    with pytest.raises(Malformed, match="not asked for"):
        requests.read_fetch(response, {"orders": bytes(16)})


def test_a_length_of_records_past_the_end_is_refused() -> None:
    partition = bytes.fromhex("00000000 0000 0000000000000000 0000000000000000 00000000 7fffffff")
    frame = bytes(4) + (1).to_bytes(4, "big") + b"\0\1t" + (1).to_bytes(4, "big") + partition
    with pytest.raises(WireError):
        decode_response_body(ApiKey.FETCH, 4, frame, 0, leaves_records=True)


def test_tagged_fields_that_nobody_knows_are_stepped_over() -> None:
    """A newer broker adds some; here one to each struct of ListOffsets."""
    tag = bytes([1, 99, 2]) + b"??"
    body = (
        bytes(4) + bytes([2, 2]) + b"t" + bytes([2])
        + bytes(4) + bytes(2) + bytes(8) + (5).to_bytes(8, "big") + bytes(4) + tag
        + tag + tag
    )  # fmt: skip
    frame = memoryview(bytes(4) + tag + body)
    _, position = decode_response_header(ApiKey.LIST_OFFSETS, 6, frame)
    assert position == 4 + len(tag)
    response = Response(frame, decode_response_body(ApiKey.LIST_OFFSETS, 6, frame, position), 6)
    assert requests.read_list_offsets(response)["t", 0].offset == 5


def test_api_versions() -> None:
    body = bytes.fromhex("0023 00000002 0001 0004 0011 0003 0000 000d")
    found = decode_response_body(ApiKey.API_VERSIONS, 0, body, 0)
    assert found["errorCode"] == 35
    assert [tuple(one.values())[:3] for one in found["apiKeys"]] == [(1, 4, 17), (3, 0, 13)]
    for cut in range(len(body)):
        with pytest.raises(WireError):
            decode_response_body(ApiKey.API_VERSIONS, 0, body[:cut], 0)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def body_of(api: ApiKey, version: int, body: Any) -> bytes:
    frame = encode_request(api, version, 77, "me", body)[4:]
    return frame[decode_header(frame)[-1] :]


def test_sasl_handshake() -> None:
    request = load_request_schema(ApiKey.SASL_HANDSHAKE, 1)
    assert body_of(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}) == kio_bytes(request(mechanism="PLAIN"))
    response = load_response_schema(ApiKey.SASL_HANDSHAKE, 1)
    body = kio_bytes(response(error_code=KioErrorCode.unsupported_sasl_mechanism, mechanisms=("PLAIN", "GSSAPI")))
    found = decode_response_body(ApiKey.SASL_HANDSHAKE, 1, body, 0)
    assert found == {"errorCode": 33, "mechanisms": ["PLAIN", "GSSAPI"]}


@pytest.mark.parametrize("version", versions(ApiKey.SASL_AUTHENTICATE))
def test_sasl_authenticate(version: int) -> None:
    request = load_request_schema(ApiKey.SASL_AUTHENTICATE, version)
    sent = body_of(ApiKey.SASL_AUTHENTICATE, version, {"authBytes": b"\0me\0pw"})
    assert sent == kio_bytes(request(auth_bytes=b"\0me\0pw"))
    response = load_response_schema(ApiKey.SASL_AUTHENTICATE, version)
    fields: dict[str, Any] = {"error_code": KioErrorCode.none, "error_message": None, "auth_bytes": b"v=xyz"}
    if version >= 1:
        fields["session_lifetime"] = i64Timedelta.parse(timedelta(minutes=1))
    found = decode_response_body(ApiKey.SASL_AUTHENTICATE, version, kio_bytes(response(**fields)), 0)
    assert found == {
        "errorCode": 0, "errorMessage": None, "authBytes": b"v=xyz", "sessionLifetimeMs": 60_000 if version else 0,
    }  # fmt: skip


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator(version: int) -> None:
    asked = understood(ApiKey.FIND_COORDINATOR, version, requests.find_coordinator_request("caf\u00e9"))
    assert asked["keyType"] == 0
    assert (asked["key"], asked["coordinatorKeys"]) == (("caf\u00e9", []) if version <= 3 else ("", ["caf\u00e9"]))
    place = {"nodeId": 2, "host": "h", "port": 9, "errorCode": 15}
    body = place if version <= 3 else {"coordinators": [place | {"key": "other"}, place | {"key": "caf\u00e9"}]}
    response = answered(ApiKey.FIND_COORDINATOR, version, body)
    found = requests.read_coordinator(response, "caf\u00e9")
    assert found == requests.Coordinator(15, requests.Broker(2, "h", 9))
    if version > 3:
        with pytest.raises(Malformed, match="does not name"):
            requests.read_coordinator(response, "another")


def test_offset_delete() -> None:
    asked = understood(ApiKey.OFFSET_DELETE, 0, requests.offset_delete_request("app", WANTED))
    assert asked["groupId"] == "app"
    found = [(topic["name"], one["partitionIndex"]) for topic in asked["topics"] for one in topic["partitions"]]
    assert found == WANTED
    parts = [{"partitionIndex": 0, "errorCode": 0}, {"partitionIndex": 7, "errorCode": 86}]
    response = answered(ApiKey.OFFSET_DELETE, 0, {"topics": [{"name": "orders", "partitions": parts}]})
    assert requests.read_offset_delete(response) == (0, {("orders", 0): 0, ("orders", 7): 86})
    assert requests.read_offset_delete(answered(ApiKey.OFFSET_DELETE, 0, {"errorCode": 30})) == (30, {})


def test_errors_have_kafkas_names_where_we_know_them() -> None:
    assert error_name(29) == "TOPIC_AUTHORIZATION_FAILED"
    assert error_name(999) == "error 999"
