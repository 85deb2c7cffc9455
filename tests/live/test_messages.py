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

from muster.errors import CodecError, Malformed, Truncated
from muster.live import fetch, messages
from muster.live.fetch import FetchFrom
from muster.live.frames import SPOKEN, Api, decode_frame_header, encode_frame, error_name
from muster.protocol.errors import WireError
from muster.protocol.header import decode_header
from muster.protocol.messages import decode_request, encode_response

TOPIC_ID = bytes(range(16))
WANTED = [("orders", 0), ("orders", 7), ("paiements-é", 3)]


def versions(api: Api) -> list[int]:
    low, high = SPOKEN[api]
    return list(range(low, high + 1))


def understood(api: Api, version: int, body: bytes) -> Any:
    """The request as a server takes it, header included; nothing may be left over."""
    frame = encode_frame(api, version, 77, "me", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    *header, position = decode_header(frame[4:])
    assert header == [api, version, 77, "me"]
    for cut in range(position, len(frame) - 4):
        with pytest.raises(WireError):
            decode_request(api, version, frame[4:], position, cut)
    return decode_request(api, version, frame[4:], position)


def answered(api: Api, version: int, body: Any, **tags: Any) -> tuple[bytes, int]:
    """An answer as the server sends it, without its length, and where its body begins."""
    frame = encode_response(api, version, 77, body)[4:]
    correlation_id, position = decode_frame_header(api, version, frame)
    assert correlation_id == 77
    return frame, position


def cut_anywhere(decode: Any, frame: bytes, position: int) -> None:
    for cut in range(position, len(frame) - 1):
        with pytest.raises(CodecError):
            decode(frame[:cut])


@pytest.mark.parametrize("version", versions(Api.METADATA))
def test_metadata(version: int) -> None:
    asked = understood(Api.METADATA, version, messages.encode_metadata(version, ["orders", "paiements-é"]))
    assert [topic["name"] for topic in asked["topics"]] == ["orders", "paiements-é"]
    assert asked["allowAutoTopicCreation"] is False
    assert understood(Api.METADATA, version, messages.encode_metadata(version, None))["topics"] is None

    partition = {
        "errorCode": 5, "partitionIndex": 3, "leaderId": 2, "leaderEpoch": 9,
        "replicaNodes": [1, 2], "isrNodes": [2], "offlineReplicas": [1],
    }  # fmt: skip
    topic = {
        "errorCode": 0, "name": "orders", "topicId": TOPIC_ID, "isInternal": True, "partitions": [partition],
        "topicAuthorizedOperations": 0,
    }  # fmt: skip
    frame, position = answered(Api.METADATA, version, {
        "throttleTimeMs": 12, "brokers": [{"nodeId": 2, "host": "h", "port": 9, "rack": "r"}], "clusterId": "c",
        "controllerId": 2, "topics": [topic], "clusterAuthorizedOperations": 0, "errorCode": 56,
    })  # fmt: skip
    read = messages.decode_metadata(version, frame, position)
    assert read == messages.Metadata(
        56 if version >= 13 else 0,
        12,
        "c",
        {2: messages.Broker(2, "h", 9)},
        {
            "orders": messages.Topic(
                0, "orders", TOPIC_ID if version >= 10 else bytes(16), True,
                {3: messages.Partition(5, 2, 9 if version >= 7 else -1)},
            )
        },
    )  # fmt: skip
    if version < 8:  # what follows the topics is read no further than it is needed
        cut_anywhere(lambda data: messages.decode_metadata(version, data, position), frame, position)


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_list_offsets(version: int) -> None:
    body = messages.encode_list_offsets(version, WANTED, messages.EARLIEST, messages.READ_COMMITTED)
    asked = understood(Api.LIST_OFFSETS, version, body)
    assert (asked["replicaId"], asked["isolationLevel"]) == (-1, 1)
    found = [
        (topic["name"], one["partitionIndex"], one["timestamp"]) for topic in asked["topics"]
        for one in topic["partitions"]
    ]  # fmt: skip
    assert found == [(*wanted, -2) for wanted in WANTED]

    partition = {"partitionIndex": 7, "errorCode": 6, "timestamp": -1, "offset": 2**40, "leaderEpoch": 4}
    frame, position = answered(
        Api.LIST_OFFSETS, version, {"throttleTimeMs": 5, "topics": [{"name": "orders", "partitions": [partition]}]}
    )
    throttle_ms, offsets = messages.decode_list_offsets(version, frame, position)
    assert throttle_ms == 5
    assert offsets == {("orders", 7): messages.ListedOffset(6, 2**40, 4 if version >= 4 else -1)}


@pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))
def test_epoch_ends(version: int) -> None:
    current = {("orders", 7): 5, ("orders", 8): -1}
    body = messages.encode_epoch_ends(version, {("orders", 7): 3, ("orders", 8): 4}, current)
    asked = understood(Api.OFFSET_FOR_LEADER_EPOCH, version, body)["topics"][0]["partitions"]
    assert [(one["partition"], one["leaderEpoch"]) for one in asked] == [(7, 3), (8, 4)]
    assert [one["currentLeaderEpoch"] for one in asked] == [5, -1]

    partition = {"errorCode": 0, "partition": 7, "leaderEpoch": 3, "endOffset": 2**40}
    frame, position = answered(
        Api.OFFSET_FOR_LEADER_EPOCH,
        version,
        {"throttleTimeMs": 5, "topics": [{"topic": "orders", "partitions": [partition]}]},
    )
    assert messages.decode_epoch_ends(version, frame, position) == (
        5,
        {("orders", 7): messages.EpochEnd(0, 3, 2**40)},
    )


@pytest.mark.parametrize("version", versions(Api.FETCH))
def test_fetch(version: int) -> None:
    ids = {"orders": TOPIC_ID, "paiements-é": bytes(range(1, 17))}
    epoch = 3 if version >= 12 else -1
    wanted = {where: FetchFrom(100 + number, 50 + number, epoch) for number, where in enumerate(WANTED)}
    asked = understood(Api.FETCH, version, fetch.encode_fetch(version, wanted, ids, 4711, 250))
    assert (asked["maxBytes"], asked["maxWaitMs"], asked["minBytes"], asked["isolationLevel"]) == (4711, 250, 1, 0)
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
    frame, position = answered(Api.FETCH, version, {
        "throttleTimeMs": 5, "errorCode": 0, "sessionId": 0,
        "responses": [{"topic": "orders", "topicId": TOPIC_ID, "partitions": [partition]}],
        "nodeEndpoints": [{"nodeId": 3, "host": "h", "port": 1, "rack": None}],
    })  # fmt: skip
    throttle_ms, error, partitions = fetch.decode_fetch(version, frame, position, ids)
    assert (throttle_ms, error) == (5, 0)
    fetched = partitions["orders", 7]
    assert (fetched.error, fetched.high_watermark) == (1, 90)
    assert fetched.log_start_offset == (10 if version >= 5 else -1)
    assert frame[fetched.start : fetched.end] == b"abc"
    assert fetched.diverging_offset == (2 if version >= 12 else None)


def test_records_that_are_null_are_none() -> None:
    partition = {
        "partitionIndex": 0, "errorCode": 0, "highWatermark": 0, "lastStableOffset": 0, "logStartOffset": 0,
        "divergingEpoch": {"epoch": -1, "endOffset": -1}, "currentLeader": {"leaderId": -1, "leaderEpoch": -1},
        "snapshotId": {"endOffset": -1, "epoch": -1}, "abortedTransactions": None, "preferredReadReplica": -1,
        "records": None,
    }  # fmt: skip
    for version in (11, 12):
        frame, position = answered(Api.FETCH, version, {
            "throttleTimeMs": 0, "errorCode": 0, "sessionId": 0,
            "responses": [{"topic": "t", "topicId": TOPIC_ID, "partitions": [partition]}], "nodeEndpoints": [],
        })  # fmt: skip
        fetched = fetch.decode_fetch(version, frame, position, {})[2]["t", 0]
        assert fetched.start == fetched.end


def test_an_answer_about_a_topic_that_was_not_asked_for() -> None:
    frame, position = answered(Api.FETCH, 13, {
        "throttleTimeMs": 0, "errorCode": 0, "sessionId": 0,
        "responses": [{"topic": "", "topicId": TOPIC_ID, "partitions": []}], "nodeEndpoints": [],
    })  # fmt: skip
    with pytest.raises(Malformed, match="not asked for"):
        fetch.decode_fetch(13, frame, position, {"orders": bytes(16)})


def test_a_length_of_records_past_the_end_is_refused() -> None:
    partition = bytes.fromhex("00000000 0000 0000000000000000 0000000000000000 00000000 7fffffff")
    frame = bytes(4) + (1).to_bytes(4, "big") + b"\0\1t" + (1).to_bytes(4, "big") + partition
    with pytest.raises(Truncated):
        fetch.decode_fetch(4, frame, 0, {})


def test_tagged_fields_that_nobody_knows_are_stepped_over() -> None:
    """A newer broker adds some; here one to each struct of ListOffsets."""
    tag = bytes([1, 99, 2]) + b"??"
    body = (
        bytes(4) + bytes([2, 2]) + b"t" + bytes([2])
        + bytes(4) + bytes(2) + bytes(8) + (5).to_bytes(8, "big") + bytes(4) + tag
        + tag + tag
    )  # fmt: skip
    _, position = decode_frame_header(Api.LIST_OFFSETS, 6, bytes(4) + tag + body)
    assert position == 4 + len(tag)
    assert messages.decode_list_offsets(6, body, 0)[1]["t", 0].offset == 5


def test_api_versions() -> None:
    body = bytes.fromhex("0023 00000002 0001 0004 0011 0003 0000 000d")
    assert messages.decode_api_versions(body, 0) == messages.ApiVersions(35, {1: (4, 17), 3: (0, 13)})
    cut_anywhere(lambda data: messages.decode_api_versions(data, 0), body, 0)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def test_sasl_handshake() -> None:
    request = load_request_schema(Api.SASL_HANDSHAKE, 1)
    assert messages.encode_sasl_handshake("PLAIN") == kio_bytes(request(mechanism="PLAIN"))
    response = load_response_schema(Api.SASL_HANDSHAKE, 1)
    body = kio_bytes(response(error_code=KioErrorCode.unsupported_sasl_mechanism, mechanisms=("PLAIN", "GSSAPI")))
    assert messages.decode_sasl_handshake(body, 0) == messages.SaslHandshake(33, ("PLAIN", "GSSAPI"))


@pytest.mark.parametrize("version", versions(Api.SASL_AUTHENTICATE))
def test_sasl_authenticate(version: int) -> None:
    request = load_request_schema(Api.SASL_AUTHENTICATE, version)
    assert messages.encode_sasl_authenticate(version, b"\0me\0pw") == kio_bytes(request(auth_bytes=b"\0me\0pw"))
    response = load_response_schema(Api.SASL_AUTHENTICATE, version)
    fields: dict[str, Any] = {"error_code": KioErrorCode.none, "error_message": None, "auth_bytes": b"v=xyz"}
    if version >= 1:
        fields["session_lifetime"] = i64Timedelta.parse(timedelta(minutes=1))
    read = messages.decode_sasl_authenticate(version, kio_bytes(response(**fields)), 0)
    assert read == messages.SaslAuthenticate(0, None, b"v=xyz", 60_000 if version >= 1 else 0)


def test_errors_have_kafkas_names_where_we_know_them() -> None:
    assert error_name(29) == "TOPIC_AUTHORIZATION_FAILED"
    assert error_name(999) == "error 999"
