"""DescribeTopicPartitions: topics in order of their names, so many partitions at a time, and a cursor for the rest.

Version 0, flexible. No names asks for all topics. The cursor says where to go on; it must be one of the topics asked
for, or, when all are, anything: then the next name there is. An answer has at least one partition, whatever limit the
client sets, or it would never come to an end.
"""

from bisect import bisect_left
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import ALL_TOPIC_OPERATIONS, NO_TOPIC_ID, NOT_ASKED, Cluster
from muster.server.cluster.topics import INTERNAL_TOPICS, name_problem


class Cursor(NamedTuple):
    topic: str
    partition: int


class DescribeTopicPartitionsRequest(NamedTuple):
    topics: tuple[str, ...]
    limit: int = 2_000
    cursor: Cursor | None = None


class PartitionDescribed(NamedTuple):
    partition: int
    leader_epoch: int


class TopicDescribed(NamedTuple):
    error: ErrorCode
    name: str
    topic_id: bytes = NO_TOPIC_ID
    partitions: tuple[PartitionDescribed, ...] = ()
    operations: int = ALL_TOPIC_OPERATIONS


class DescribeTopicPartitionsAnswer(NamedTuple):
    node_id: int
    topics: tuple[TopicDescribed, ...]
    next: Cursor | None = None


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DescribeTopicPartitionsRequest:
    body = decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, data, position, end)
    cursor = body["cursor"]
    return DescribeTopicPartitionsRequest(
        tuple([topic["name"] for topic in body["topics"]]),
        body["responsePartitionLimit"],
        None if cursor is None else Cursor(cursor["topicName"], cursor["partitionIndex"]),
    )


def handle(request: DescribeTopicPartitionsRequest, cluster: Cluster) -> DescribeTopicPartitionsAnswer:
    node_id = cluster.node.node_id
    asked = sorted(set(request.topics))
    cursor = request.cursor
    if cursor is not None and (cursor.partition < 0 or (asked and cursor.topic not in asked)):
        refused = [TopicDescribed(ErrorCode.INVALID_REQUEST, name, operations=NOT_ASKED) for name in request.topics]
        return DescribeTopicPartitionsAnswer(node_id, tuple(refused))
    names = asked or [topic.name for topic in cluster.topics.in_order()]
    first = 0 if cursor is None else bisect_left(names, cursor.topic)
    room = max(1, min(request.limit, cluster.config.max_request_partition_size_limit))
    described: list[TopicDescribed] = []
    for name in names[first:]:
        if room == 0:
            return DescribeTopicPartitionsAnswer(node_id, tuple(described), Cursor(name, 0))
        start = cursor.partition if cursor is not None and cursor.topic == name else 0
        described.append(_described(name, start, room, cluster))
        taken = len(described[-1].partitions)
        room -= taken
        topic = cluster.topics.get(name)
        if topic is not None and start + taken < topic.partitions:
            return DescribeTopicPartitionsAnswer(node_id, tuple(described), Cursor(name, start + taken))
    return DescribeTopicPartitionsAnswer(node_id, tuple(described))


def _described(name: str, start: int, room: int, cluster: Cluster) -> TopicDescribed:
    topic = cluster.topics.get(name)
    if topic is None:
        is_bad = name_problem(name) is not None
        return TopicDescribed(
            ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name
        )
    partitions = [
        PartitionDescribed(partition, cluster.partition_of(topic, partition).leader_epoch)
        for partition in range(start, min(start + room, topic.partitions))
    ]
    return TopicDescribed(ErrorCode.NONE, name, topic.topic_id, tuple(partitions))


def encode(version: int, correlation_id: int, answer: DescribeTopicPartitionsAnswer) -> bytes:
    body = {
        "topics": [_encoded(topic, answer.node_id) for topic in answer.topics],
        "nextCursor": None if answer.next is None else _encoded_cursor(answer.next),
    }
    return encode_response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, correlation_id, body)


def _encoded(topic: TopicDescribed, leader: int) -> dict[str, Any]:
    replicas = [leader]
    return {
        "errorCode": topic.error,
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            {
                "partitionIndex": partition,
                "leaderId": leader,
                "leaderEpoch": epoch,
                "replicaNodes": replicas,
                "isrNodes": replicas,
                "eligibleLeaderReplicas": [],  # not null, which the format allows and Java's client does not
                "lastKnownElr": [],
            }
            for partition, epoch in topic.partitions
        ],
        "topicAuthorizedOperations": topic.operations,
    }


def _encoded_cursor(cursor: Cursor) -> dict[str, Any]:
    return {"topicName": cursor.topic, "partitionIndex": cursor.partition}
