"""DescribeProducers, version 0: who has written to a partition with an id, and how far they got.

Partitions are answered in the order of the request, one named twice two times. Sentences are Kafka's, which has one
for an unknown topic and none for an unknown partition. A partition that finds no room in an answer is POLICY_VIOLATION.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.log.partition import DiskLog
from muster.log.producers import Producer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import name_problem
from muster.server.slices import Slices, in_slices

PRODUCER_BYTES = 40
"""In an answer."""
NO_ROOM = "The producers of this partition find no room in an answer of muster.max.response.bytes."
NOT_HOSTED = "This server does not host this topic-partition."


class DescribeProducersRequest(NamedTuple):
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class ProducersDescribed(NamedTuple):
    partition: int
    error: ErrorCode
    message: str | None = None
    producers: Collection[Producer] = ()


class DescribeProducersAnswer(NamedTuple):
    topics: tuple[tuple[str, tuple[ProducersDescribed, ...]], ...]


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DescribeProducersRequest:
    body = decode_request(ApiKey.DESCRIBE_PRODUCERS, version, data, position, end)
    return DescribeProducersRequest(tuple([(one["name"], tuple(one["partitionIndexes"])) for one in body["topics"]]))


@in_slices
def describe_producers(
    request: DescribeProducersRequest, cluster: Cluster, log_of: Callable[[TopicPartition], DiskLog | None]
) -> Slices[DescribeProducersAnswer]:
    left = cluster.config.muster_max_response_bytes // PRODUCER_BYTES
    topics = []
    for name, numbers in request.topics:
        described = []
        for number in numbers:
            one = _described(TopicPartition(name, number), cluster, log_of)
            if len(one.producers) > left:
                one = ProducersDescribed(number, ErrorCode.POLICY_VIOLATION, NO_ROOM)
            left -= len(one.producers) + 1
            described.append(one._replace(producers=list(one.producers)))
            yield
        topics.append((name, tuple(described)))
    return DescribeProducersAnswer(tuple(topics))


def _described(
    key: TopicPartition, cluster: Cluster, log_of: Callable[[TopicPartition], DiskLog | None]
) -> ProducersDescribed:
    problem = name_problem(key.topic)
    if problem is not None:
        return ProducersDescribed(key.partition, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = cluster.topics.get(key.topic)
    if topic is None:
        return ProducersDescribed(key.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
    if not 0 <= key.partition < topic.partitions:
        return ProducersDescribed(key.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = log_of(key)
    if log is None:
        return ProducersDescribed(key.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return ProducersDescribed(key.partition, ErrorCode.NONE, None, log.producers.producers.values())


def encode(version: int, correlation_id: int, answer: DescribeProducersAnswer) -> bytes:
    topics = [{"name": name, "partitions": [_encoded(one) for one in described]} for name, described in answer.topics]
    return encode_response(ApiKey.DESCRIBE_PRODUCERS, version, correlation_id, {"topics": topics})


def _encoded(described: ProducersDescribed) -> dict[str, Any]:
    return {
        "partitionIndex": described.partition,
        "errorCode": described.error,
        "errorMessage": described.message,
        "activeProducers": [
            {
                "producerId": one.producer_id,
                "producerEpoch": one.epoch,
                "lastSequence": one.last_sequence,
                "lastTimestamp": one.last_timestamp_ms,
                "coordinatorEpoch": one.coordinator_epoch,
                "currentTxnStartOffset": one.transaction_first_offset,
            }
            for one in described.producers
        ],
    }
