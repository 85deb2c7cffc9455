"""OffsetForLeaderEpoch: how far the records of an epoch go, so that a consumer notices when a log was cut behind it.

Version 2 is the first one served, 3 says who asks (which makes no difference here), 4 is flexible. Partitions are
answered in the order of the request, one named twice two times.
"""

from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import NO_EPOCH, UNKNOWN_EPOCH_END, Cluster, EpochEnd, epoch_problem


class EpochAsked(NamedTuple):
    partition: int
    leader_epoch: int
    current_leader_epoch: int = NO_EPOCH


class OffsetForLeaderEpochRequest(NamedTuple):
    topics: tuple[tuple[str, tuple[EpochAsked, ...]], ...]


class EpochAnswered(NamedTuple):
    partition: int
    error: ErrorCode
    end: EpochEnd = UNKNOWN_EPOCH_END


class OffsetForLeaderEpochAnswer(NamedTuple):
    topics: tuple[tuple[str, tuple[EpochAnswered, ...]], ...]


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> OffsetForLeaderEpochRequest:
    body = decode_request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, data, position, end)
    topics = []
    for topic in body["topics"]:
        asked = [
            EpochAsked(one["partition"], one["leaderEpoch"], one["currentLeaderEpoch"]) for one in topic["partitions"]
        ]
        topics.append((topic["topic"], tuple(asked)))
    return OffsetForLeaderEpochRequest(tuple(topics))


def handle(request: OffsetForLeaderEpochRequest, cluster: Cluster) -> OffsetForLeaderEpochAnswer:
    return OffsetForLeaderEpochAnswer(
        tuple([(name, tuple([_answered(name, one, cluster) for one in asked])) for name, asked in request.topics])
    )


def _answered(name: str, asked: EpochAsked, cluster: Cluster) -> EpochAnswered:
    topic = cluster.topics.get(name)
    if topic is None or not 0 <= asked.partition < topic.partitions:
        return EpochAnswered(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = cluster.partition_of(topic, asked.partition)
    problem = epoch_problem(log, asked.current_leader_epoch)
    if problem is not ErrorCode.NONE:
        return EpochAnswered(asked.partition, problem)
    return EpochAnswered(asked.partition, ErrorCode.NONE, log.epoch_end(asked.leader_epoch))


def encode(version: int, correlation_id: int, answer: OffsetForLeaderEpochAnswer) -> bytes:
    topics = [
        {
            "topic": name,
            "partitions": [
                {
                    "errorCode": one.error,
                    "partition": one.partition,
                    "leaderEpoch": one.end.epoch,
                    "endOffset": one.end.end_offset,
                }
                for one in answered
            ],
        }
        for name, answered in answer.topics
    ]
    return encode_response(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, correlation_id, {"topics": topics})
