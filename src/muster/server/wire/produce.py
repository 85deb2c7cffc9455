"""Produce, versions 3 to 13, as long as no records are kept: every partition is refused.

    request   transactional_id or null, acks, timeout_ms, topics: name (3-12) or topic_id (13), partitions: index,
              records
    response  topics: name or id, partitions: index, error, base_offset, append_time, start_offset (5+), errors of
              records and message or null (8+); throttle_time_ms

It is answered at all, and advertised, because a client that does not find it among the APIs does not say so: librdkafka
waits for `message.timeout.ms`, five minutes, and asks for the versions again and again.
"""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

MESSAGE = "muster keeps no records yet: it serves consumer groups and their offsets."
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
        "errorMessage": MESSAGE,
    }
    responses = [
        {"name": name, "topicId": topic_id, "partitionResponses": [{"index": index, **refused} for index in partitions]}
        for name, topic_id, partitions in asked.topics
    ]
    return encode_response(ApiKey.PRODUCE, version, correlation_id, {"responses": responses})
