"""DeleteRecords: everything before an offset, in each partition named.

Versions 0 to 2, which are alike; 2 is flexible. Offset -1 stands for the high watermark: everything that readers see.

Of two offsets for one partition the last one counts. The records are gone for readers at once; their segments go when
retention looks at the log next. The answer comes when the new start of the log is durable.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.log.partition import DiskLog
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.cluster import NO_OFFSET, Cluster
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import INTERNAL_TOPICS

HIGH_WATERMARK = -1


class DeleteRecordsRequest(NamedTuple):
    offsets: dict[TopicPartition, int]
    """Records before these are to go."""


class Deleted(NamedTuple):
    error: ErrorCode
    start_offset: int = NO_OFFSET
    """Of the log, from now on."""


class DeleteRecordsAnswer(NamedTuple):
    partitions: dict[TopicPartition, Deleted]

    def failed(self) -> "DeleteRecordsAnswer":
        """What to say where the new starts could not be made durable."""
        refused = Deleted(ErrorCode.KAFKA_STORAGE_ERROR)
        return DeleteRecordsAnswer(
            {key: refused if one.error is ErrorCode.NONE else one for key, one in self.partitions.items()}
        )


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DeleteRecordsRequest:
    body = decode_request(ApiKey.DELETE_RECORDS, version, data, position, end)
    return DeleteRecordsRequest(
        {
            TopicPartition(topic["name"], one["partitionIndex"]): one["offset"]
            for topic in body["topics"]
            for one in topic["partitions"]
        }
    )


def delete_records(
    request: DeleteRecordsRequest, cluster: Cluster, log_of: Callable[[TopicPartition], DiskLog | None]
) -> DeleteRecordsAnswer:
    """Let the logs begin later; `log_of` has none for a partition that cannot be changed now."""
    return DeleteRecordsAnswer({key: _deleted(key, offset, cluster, log_of) for key, offset in request.offsets.items()})


def _deleted(
    key: TopicPartition, offset: int, cluster: Cluster, log_of: Callable[[TopicPartition], DiskLog | None]
) -> Deleted:
    topic = cluster.topics.get(key.topic)
    if topic is None or not 0 <= key.partition < topic.partitions:
        return Deleted(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.name in INTERNAL_TOPICS:
        return Deleted(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = log_of(key)
    if log is None:
        return Deleted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    policy = typed("cleanup.policy", topic.configs, cluster.config)
    if isinstance(policy, tuple) and "compact" in policy and "delete" not in policy:
        return Deleted(ErrorCode.POLICY_VIOLATION)
    start_offset = log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start_offset <= log.high_watermark:
        return Deleted(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.increase_start_offset(start_offset)
    return Deleted(ErrorCode.NONE, log.start_offset)


def encode(version: int, correlation_id: int, answer: DeleteRecordsAnswer) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for key, one in answer.partitions.items():
        told = {"partitionIndex": key.partition, "lowWatermark": one.start_offset, "errorCode": one.error}
        topics.setdefault(key.topic, []).append(told)
    body = {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}
    return encode_response(ApiKey.DELETE_RECORDS, version, correlation_id, body)
