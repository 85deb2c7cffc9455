"""OffsetDelete, version 0, never flexible.

    request   group_id, topics: name, partitions
    response  error, throttle_time_ms (behind the error, here alone), topics: name, partitions: index, error

Partitions that do not exist get UNKNOWN_TOPIC_OR_PARTITION without the coordinator; but it is asked in any case,
because its error for the group as a whole wins, and then no topics are listed. The order is Kafka's: topics with
something refused first, the partitions of one topic together.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer
from muster.core.answers import OffsetDeleteAnswer, PartitionError
from muster.core.events import OffsetDelete
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.wire.topics import Topics

Refused = dict[str, list[PartitionError]]
"""What is refused already, by topic. A topic that does not exist is in it even if nothing of it was asked for."""


def decode_offset_delete(
    version: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetDelete, Refused]:
    """The event, without `reply_to`, and what the coordinator need not hear of."""
    body = decode_request(ApiKey.OFFSET_DELETE, version, data, position, end)
    refused: Refused = {}
    accepted: list[tuple[str, int]] = []
    for topic in body["topics"]:
        name = topic["name"]
        known = topics.by_name.get(name)
        if known is None:
            refused.setdefault(name, [])
        for partition in topic["partitions"]:
            index = partition["partitionIndex"]
            if known is not None and 0 <= index < known[1]:
                accepted.append((name, index))
            else:
                error = PartitionError(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                refused.setdefault(name, []).append(error)
    return OffsetDelete(None, body["groupId"], tuple(accepted)), refused


def encode_offset_delete(version: int, correlation_id: int, refused: Refused, answer: OffsetDeleteAnswer) -> bytes:
    """The whole frame."""
    body: StructData = {"errorCode": answer.error}
    if answer.error is ErrorCode.NONE:
        by_topic = {name: list(errors) for name, errors in refused.items()}
        for result in answer.partitions:
            by_topic.setdefault(result.topic, []).append(result)
        body["topics"] = [
            {
                "name": name,
                "partitions": [{"partitionIndex": one.partition, "errorCode": one.error} for one in results],
            }
            for name, results in by_topic.items()
        ]
    return encode_response(ApiKey.OFFSET_DELETE, version, correlation_id, body)
