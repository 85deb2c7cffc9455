"""APIs that muster does not serve and answers all the same: Produce and ConsumerGroupHeartbeat.

They are advertised and refused because clients that do not find them among the APIs wait without a word.
"""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

# Produce, versions 3 to 13: every partition is refused.
#
# A client that does not find Produce among the APIs does not say so: librdkafka waits for `message.timeout.ms`, five
# minutes, and asks for the versions again and again.

NO_RECORDS = "muster keeps no records yet: it serves consumer groups and their offsets."
NO_OFFSET = -1


class Produce(NamedTuple):
    acks: int
    topics: tuple[tuple[str, bytes, tuple[int, ...]], ...]
    """Name and id, of which a version has one, and partitions."""


def decode_produce(version: int, data: Buffer, position: int, end: int) -> Produce:
    body = decode_request(ApiKey.PRODUCE, version, data, position, end)
    topics = [
        (topic["name"], topic["topicId"], tuple([partition["index"] for partition in topic["partitionData"]]))
        for topic in body["topicData"]
    ]
    return Produce(body["acks"], tuple(topics))


def encode_produce(version: int, correlation_id: int, asked: Produce) -> bytes:
    """The whole frame: a refusal for each partition."""
    refused: dict[str, Any] = {
        "errorCode": ErrorCode.POLICY_VIOLATION,
        "baseOffset": NO_OFFSET,
        "errorMessage": NO_RECORDS,
    }
    responses = [
        {"name": name, "topicId": topic_id, "partitionResponses": [{"index": index, **refused} for index in partitions]}
        for name, topic_id, partitions in asked.topics
    ]
    return encode_response(ApiKey.PRODUCE, version, correlation_id, {"responses": responses})


# ConsumerGroupHeartbeat, versions 0 and 1: how a member of the newer group protocol (KIP-848) joins and stays.
#
# muster answers as a Kafka broker does whose newer protocol is switched off: with UNSUPPORTED_VERSION. Where the API is
# missing, librdkafka waits for ever without a word; at this response every client stops, with an error of its own.

CLASSIC_ONLY = "muster serves classic groups only: set group.protocol=classic."


def decode_consumer_group_heartbeat(version: int, data: Buffer, position: int, end: int) -> str:
    """The group, for the log."""
    group_id: str = decode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, data, position, end)["groupId"]
    return group_id


def encode_consumer_group_heartbeat(version: int, correlation_id: int, answer: None) -> bytes:
    """The whole frame: always the same refusal."""
    refused = {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "errorMessage": CLASSIC_ONLY}
    return encode_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, correlation_id, refused)
