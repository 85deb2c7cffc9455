"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, and the offset of a time or an epoch.

ListOffsets
    1   the first one served
    2   isolation level: with read_committed, the end is the last stable offset; throttle time
    4   leader epochs
    6   flexible
    7   -3, the record with the largest timestamp
    8   -4, the first offset of the local log, which is the first of all here
    9   -5, the last offset in remote storage: there is none
    10  a timeout for remote storage
    11  -6, the first offset not yet in remote storage: there is none

A special timestamp that the version does not have is UNSUPPORTED_VERSION, before anything else is looked at.

OffsetForLeaderEpoch tells how far the records of an epoch go, so that a consumer notices when a log was cut behind it.
Version 2 is the first one served, 3 says who asks (which makes no difference here), 4 is flexible. Partitions are
answered in the order of the request, one named twice two times.
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.errors import CodecError, LogDamaged
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import (
    NO_EPOCH,
    NO_OFFSET,
    UNKNOWN_EPOCH_END,
    Cluster,
    ClusterApi,
    EpochEnd,
    FoundRecord,
    PartitionOffsets,
    epoch_problem,
)
from muster.server.slices import Slices, in_slices

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1
NO_TIMESTAMP = -1


class OffsetAsked(NamedTuple):
    partition: int
    timestamp: int
    """A time, or one of the special ones."""
    leader_epoch: int = NO_EPOCH


class ListOffsetsRequest(NamedTuple):
    version: int
    topics: tuple[tuple[str, tuple[OffsetAsked, ...]], ...]
    isolation_level: int = READ_UNCOMMITTED
    replica_id: int = CONSUMER


class OffsetListed(NamedTuple):
    partition: int
    error: ErrorCode
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH


class ListOffsetsAnswer(NamedTuple):
    topics: tuple[tuple[str, tuple[OffsetListed, ...]], ...]


def decode_list_offsets(version: int, data: Buffer, position: int = 0, end: int | None = None) -> ListOffsetsRequest:
    body = decode_request(ApiKey.LIST_OFFSETS, version, data, position, end)
    topics = []
    for topic in body["topics"]:
        asked = [
            OffsetAsked(one["partitionIndex"], one["timestamp"], one["currentLeaderEpoch"])
            for one in topic["partitions"]
        ]
        topics.append((topic["name"], tuple(asked)))
    return ListOffsetsRequest(version, tuple(topics), body["isolationLevel"], body["replicaId"])


@in_slices
def list_offsets(request: ListOffsetsRequest, cluster: Cluster) -> Slices[ListOffsetsAnswer]:
    """Answer each partition once, a topic's all together. A partition that is named twice is refused."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _nonsense(request)
    by_topic: dict[str, dict[int, OffsetListed]] = {}
    for name, asked in request.topics:
        for one in asked:
            listed = by_topic.setdefault(name, {})
            is_repeated = one.partition in listed
            listed[one.partition] = (
                OffsetListed(one.partition, ErrorCode.INVALID_REQUEST)
                if is_repeated
                else _listed(name, one, request, cluster)
            )
            yield
    return ListOffsetsAnswer(tuple([(name, tuple(listed.values())) for name, listed in by_topic.items()]))


def _nonsense(request: ListOffsetsRequest) -> ListOffsetsAnswer:
    """The request as it came, with an error everywhere."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    return ListOffsetsAnswer(
        tuple([(name, tuple([OffsetListed(one.partition, error) for one in asked])) for name, asked in request.topics])
    )


def _listed(name: str, asked: OffsetAsked, request: ListOffsetsRequest, cluster: Cluster) -> OffsetListed:
    partition = asked.partition
    if asked.timestamp < 0 and request.version < _FIRST_VERSION.get(asked.timestamp, request.version + 1):
        return OffsetListed(partition, ErrorCode.UNSUPPORTED_VERSION)
    topic = cluster.topics.get(name)
    if topic is None or not 0 <= partition < topic.partitions:
        return OffsetListed(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = cluster.partition_of(topic, partition)
    problem = epoch_problem(log, asked.leader_epoch)
    if problem is not ErrorCode.NONE:
        return OffsetListed(partition, problem)
    try:
        found = _found(asked.timestamp, _end(log, request), log)
    except (LogDamaged, CodecError):
        return OffsetListed(partition, ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None:
        return OffsetListed(partition, ErrorCode.NONE)
    return OffsetListed(partition, ErrorCode.NONE, found.timestamp_ms, found.offset, found.leader_epoch)


def _end(log: PartitionOffsets, request: ListOffsetsRequest) -> int:
    """How far this client may see."""
    if request.replica_id != CONSUMER:
        return log.end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _found(timestamp: int, end_offset: int, log: PartitionOffsets) -> FoundRecord | None:
    match timestamp:
        case -1:
            return FoundRecord(end_offset, NO_TIMESTAMP, log.leader_epoch)
        case -2 | -4:
            return FoundRecord(log.start_offset, NO_TIMESTAMP, log.epoch_at(log.start_offset))
        case -5 | -6:
            return None
        case -3:
            found = log.youngest()
        case _:
            found = log.first_since(timestamp)
    return found if found is not None and found.offset < end_offset else None


def encode_list_offsets(version: int, correlation_id: int, answer: ListOffsetsAnswer) -> bytes:
    topics = [{"name": name, "partitions": _encoded(listed)} for name, listed in answer.topics]
    return encode_response(ApiKey.LIST_OFFSETS, version, correlation_id, {"topics": topics})


def _encoded(partitions: Iterable[OffsetListed]) -> list[dict[str, int]]:
    return [
        {
            "partitionIndex": listed.partition,
            "errorCode": listed.error,
            "timestamp": listed.timestamp_ms,
            "offset": listed.offset,
            "leaderEpoch": listed.leader_epoch,
        }
        for listed in partitions
    ]


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


def decode_epoch_ends(
    version: int, data: Buffer, position: int = 0, end: int | None = None
) -> OffsetForLeaderEpochRequest:
    body = decode_request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, data, position, end)
    topics = []
    for topic in body["topics"]:
        asked = [
            EpochAsked(one["partition"], one["leaderEpoch"], one["currentLeaderEpoch"]) for one in topic["partitions"]
        ]
        topics.append((topic["topic"], tuple(asked)))
    return OffsetForLeaderEpochRequest(tuple(topics))


@in_slices
def find_epoch_ends(request: OffsetForLeaderEpochRequest, cluster: Cluster) -> Slices[OffsetForLeaderEpochAnswer]:
    topics = []
    for name, asked in request.topics:
        answered = []
        for one in asked:
            answered.append(_answered(name, one, cluster))
            yield
        topics.append((name, tuple(answered)))
    return OffsetForLeaderEpochAnswer(tuple(topics))


def _answered(name: str, asked: EpochAsked, cluster: Cluster) -> EpochAnswered:
    topic = cluster.topics.get(name)
    if topic is None or not 0 <= asked.partition < topic.partitions:
        return EpochAnswered(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = cluster.partition_of(topic, asked.partition)
    problem = epoch_problem(log, asked.current_leader_epoch)
    if problem is not ErrorCode.NONE:
        return EpochAnswered(asked.partition, problem)
    return EpochAnswered(asked.partition, ErrorCode.NONE, log.epoch_end(asked.leader_epoch))


def encode_epoch_ends(version: int, correlation_id: int, answer: OffsetForLeaderEpochAnswer) -> bytes:
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


APIS = {
    ApiKey.LIST_OFFSETS: ClusterApi(decode_list_offsets, encode_list_offsets, answer=list_offsets),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ClusterApi(decode_epoch_ends, encode_epoch_ends, answer=find_epoch_ends),
}
