"""Metadata, DescribeCluster and DescribeTopicPartitions: the nodes, and topics with their partitions.

Metadata is the first thing every client asks, and asks again.

Versions
    0     an empty list asks for all topics; later null does, and an empty list asks for none
    1     rack, controller, whether a topic is internal
    2, 3  cluster id; throttle time
    4     the client says whether asking may make a topic; before, it may
    5, 7  offline replicas; leader epochs
    8     authorized operations on request, up to 10 also those of the cluster
    9     flexible
    10    topic ids in the answer. A request has room for them too, but only 12 and later may use it
    12    topics by id; if one id is in a request, names in it are ignored
    13    an error for the whole request

A topic that is made by being asked for is answered with UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, and is there the next
time. Of the internal topics only `__consumer_offsets` is made this way. One request makes `MOST_MADE` at most;
a client that asks for more asks again anyway, and finds the next ones made.

DescribeCluster has the nodes alone. Admin clients ask this where consumers ask Metadata.

Versions
    0  flexible from the start
    1  whether brokers or controllers are meant; we have brokers
    2  fenced brokers too, which a cluster of one node does not have

DescribeTopicPartitions has topics in order of their names, so many partitions at a time, and a cursor for the rest.
Version 0, flexible. No names asks for all topics. The cursor says where to go on; it must be one of the topics asked
for, or, when all are, anything: then the next name there is. An answer has at least one partition, whatever limit the
client sets, or it would never come to an end.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    NO_TOPIC_ID,
    NOT_ASKED,
    Cluster,
    ClusterApi,
)
from muster.server.cluster.topics import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    NO_CONFIGS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Happened,
    Outcome,
    Plan,
    Topic,
    TopicChange,
    name_problem,
)
from muster.server.slices import Slices, in_slices

_FIRST_WITH_IDS = 12
MOST_MADE = 100
MOST_PARTITIONS_MADE = 1_000
"""Topics, and partitions of them together, that asking once may make; one topic may have more."""


class TopicAsked(NamedTuple):
    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class MetadataRequest(NamedTuple):
    version: int
    topics: tuple[TopicAsked, ...] | None
    """None for all of them, whatever the version."""
    may_create: bool = True
    wants_cluster_operations: bool = False
    wants_topic_operations: bool = False


class TopicDescribed(NamedTuple):
    error: ErrorCode
    name: str | None
    topic_id: bytes = NO_TOPIC_ID
    leader_epochs: tuple[int, ...] = ()
    """One for each partition."""
    operations: int = NOT_ASKED


class MetadataAnswer(NamedTuple):
    """Without a cluster where the request made no sense: then no nodes are named either."""

    topics: tuple[TopicDescribed, ...]
    cluster: Cluster | None
    operations: int = NOT_ASKED
    error: ErrorCode = ErrorCode.NONE


def decode_metadata(version: int, data: Buffer, position: int = 0, end: int | None = None) -> MetadataRequest:
    body = decode_request(ApiKey.METADATA, version, data, position, end)
    topics = body["topics"]
    asks_for_all = topics is None or (version == 0 and not topics)
    return MetadataRequest(
        version,
        None if asks_for_all else tuple([TopicAsked(topic["name"], topic["topicId"]) for topic in topics]),
        body["allowAutoTopicCreation"],
        body["includeClusterAuthorizedOperations"],
        body["includeTopicAuthorizedOperations"],
    )


@in_slices
def plan_metadata(request: MetadataRequest, cluster: Cluster) -> Slices[Plan]:
    """The answer, and the topics to make before it goes out.

    While Kafka makes a topic it says that there is none, and clients ask again after a pause. With
    `muster.tell.new.topics` they hear at once what they would hear then.
    """
    problem = _request_problem(request)
    if problem is not ErrorCode.NONE:
        refused = _refused(request, problem)
        return Plan((), lambda outcomes: refused)
    known, unknown_ids, unknown_names = _looked_up(request, cluster)
    operations = ALL_TOPIC_OPERATIONS if request.wants_topic_operations else NOT_ASKED
    described = [TopicDescribed(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id in unknown_ids]
    for topic in known:
        yield
        described.append(_described(topic, cluster, operations))
    for name in unknown_names:
        yield
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        described.append(TopicDescribed(error, name, operations=operations))
    cluster_operations = ALL_CLUSTER_OPERATIONS if request.wants_cluster_operations else NOT_ASKED
    may_create = request.may_create and cluster.config.auto_create_topics_enable
    made, not_made = _made_by_asking(unknown_names, cluster) if may_create else ((), ())

    def answer(outcomes: Sequence[Outcome]) -> MetadataAnswer:
        told_of = made if cluster.config.muster_tell_new_topics else ()
        new = {one.topic.name: one.topic for one, error in zip(told_of, outcomes, strict=False) if error is None}
        told = [_described(new[one.name], cluster, operations) if one.name in new else one for one in described]
        return MetadataAnswer(tuple(told), cluster, cluster_operations)

    return Plan(made, answer, not_made)


def _request_problem(request: MetadataRequest) -> ErrorCode:
    topics = request.topics or ()
    if request.version < _FIRST_WITH_IDS:
        has_ids = any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in topics)
        return ErrorCode.INVALID_REQUEST if has_ids else ErrorCode.NONE
    # Neither a name nor an id, and no id elsewhere that would make it be ignored: Kafka trips over its own null.
    by_name = not any(topic.topic_id != NO_TOPIC_ID for topic in topics)
    is_nothing = by_name and any(topic.name is None for topic in topics)
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_nothing else ErrorCode.NONE


def _refused(request: MetadataRequest, problem: ErrorCode) -> MetadataAnswer:
    topics = [TopicDescribed(problem, topic.name or "", topic.topic_id) for topic in request.topics or ()]
    return MetadataAnswer(tuple(topics), cluster=None, error=problem)


def _looked_up(request: MetadataRequest, cluster: Cluster) -> tuple[list[Topic], list[bytes], list[str]]:
    """Topics that are there, ids of none, names of none; each once."""
    if request.topics is None:
        return cluster.topics.in_order(), [], []
    ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != NO_TOPIC_ID)
    if ids:
        found = {topic_id: cluster.topics.by_id(topic_id) for topic_id in ids}
        unknown_ids = [topic_id for topic_id, topic in found.items() if topic is None]
        return [topic for topic in found.values() if topic is not None], unknown_ids, []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    by_name = {name: cluster.topics.get(name) for name in names}
    unknown_names = [name for name, topic in by_name.items() if topic is None]
    return [topic for topic in by_name.values() if topic is not None], [], unknown_names


def _described(topic: Topic, cluster: Cluster, operations: int) -> TopicDescribed:
    epochs = tuple([cluster.partition_of(topic, partition).leader_epoch for partition in range(topic.partitions)])
    return TopicDescribed(ErrorCode.NONE, topic.name, topic.topic_id, epochs, operations)


def _made_by_asking(names: Sequence[str], cluster: Cluster) -> tuple[Sequence[TopicChange], Sequence[tuple[str, str]]]:
    """Topics that are made because a client asked about them, the first few of them; those that cannot be, and why."""
    config = cluster.config
    if config.default_replication_factor != 1:
        why = f"default.replication.factor is {config.default_replication_factor}, and this is one node"
        return (), [(name, why) for name in names]
    made: list[TopicChange] = []
    not_made = []
    count = 0
    for name in names:
        partitions = config.num_partitions
        configs: Mapping[str, str] = NO_CONFIGS
        if name == OFFSETS_TOPIC:
            partitions, configs = config.offsets_topic_num_partitions, offsets_topic_configs(cluster)
        elif name == TRANSACTIONS_TOPIC:
            partitions = config.transaction_state_log_num_partitions
            configs = transactions_topic_configs(cluster)
        elif name in INTERNAL_TOPICS or name == METADATA_TOPIC or name_problem(name):
            continue
        if cluster.topics.partition_count + count + partitions > config.muster_max_partitions:
            why = f"it has {partitions} partitions, there are {cluster.topics.partition_count + count}, and "
            not_made.append((name, f"{why}muster.max.partitions is {config.muster_max_partitions}"))
            continue
        if made and (len(made) == MOST_MADE or count + partitions > MOST_PARTITIONS_MADE):
            break
        made.append(TopicChange(Happened.CREATED, Topic(name, cluster.fresh_topic_id(), partitions, configs)))
        count += partitions
    return made, not_made


def offsets_topic_configs(cluster: Cluster) -> dict[str, str]:
    """What Kafka sets for `__consumer_offsets` when it makes it."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(cluster.config.offsets_topic_segment_bytes),
    }


def transactions_topic_configs(cluster: Cluster) -> dict[str, str]:
    """What Kafka sets for `__transaction_state` when it makes it."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(cluster.config.transaction_state_log_segment_bytes),
    }


def encode_metadata(version: int, correlation_id: int, answer: MetadataAnswer) -> bytes:
    cluster = answer.cluster
    node = None if cluster is None else cluster.node
    body: dict[str, Any] = {
        "topics": [_encoded_topic(topic, -1 if node is None else node.node_id) for topic in answer.topics],
        "clusterAuthorizedOperations": answer.operations,
        "errorCode": answer.error,
    }
    if cluster is not None and node is not None:
        body["brokers"] = [{"nodeId": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}]
        body["clusterId"] = cluster.cluster_id
        body["controllerId"] = node.node_id
    return encode_response(ApiKey.METADATA, version, correlation_id, body)


def _elements(answer: MetadataAnswer) -> int:
    return sum(1 + len(topic.leader_epochs) for topic in answer.topics)


def _encoded_topic(topic: TopicDescribed, leader: int) -> dict[str, Any]:
    return {
        "errorCode": topic.error,
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.name in INTERNAL_TOPICS,
        "partitions": [_encoded_partition(number, epoch, leader) for number, epoch in enumerate(topic.leader_epochs)],
        "topicAuthorizedOperations": topic.operations,
    }


def _encoded_partition(partition: int, epoch: int, leader: int) -> dict[str, Any]:
    return {
        "partitionIndex": partition,
        "leaderId": leader,
        "leaderEpoch": epoch,
        "replicaNodes": [leader],
        "isrNodes": [leader],
    }


BROKERS, CONTROLLERS = 1, 2


class DescribeClusterRequest(NamedTuple):
    endpoint_type: int = BROKERS
    wants_operations: bool = False


class DescribeClusterAnswer(NamedTuple):
    error: ErrorCode
    message: str | None = None
    cluster: Cluster | None = None
    operations: int = NOT_ASKED


def decode_describe_cluster(
    version: int, data: Buffer, position: int = 0, end: int | None = None
) -> DescribeClusterRequest:
    body = decode_request(ApiKey.DESCRIBE_CLUSTER, version, data, position, end)
    return DescribeClusterRequest(body["endpointType"], body["includeClusterAuthorizedOperations"])


def describe_cluster(request: DescribeClusterRequest, cluster: Cluster) -> DescribeClusterAnswer:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterAnswer(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterAnswer(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    operations = ALL_CLUSTER_OPERATIONS if request.wants_operations else NOT_ASKED
    return DescribeClusterAnswer(ErrorCode.NONE, None, cluster, operations)


def encode_describe_cluster(version: int, correlation_id: int, answer: DescribeClusterAnswer) -> bytes:
    body: dict[str, Any] = {
        "errorCode": answer.error,
        "errorMessage": answer.message,
        "clusterAuthorizedOperations": answer.operations,
    }
    if answer.cluster is not None:
        node = answer.cluster.node
        body["clusterId"] = answer.cluster.cluster_id
        body["controllerId"] = node.node_id
        body["brokers"] = [{"brokerId": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}]
    return encode_response(ApiKey.DESCRIBE_CLUSTER, version, correlation_id, body)


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


class PartitionsOfTopic(NamedTuple):
    error: ErrorCode
    name: str
    topic_id: bytes = NO_TOPIC_ID
    partitions: tuple[PartitionDescribed, ...] = ()
    operations: int = ALL_TOPIC_OPERATIONS


class DescribeTopicPartitionsAnswer(NamedTuple):
    node_id: int
    topics: tuple[PartitionsOfTopic, ...]
    next: Cursor | None = None


def decode_topic_partitions(
    version: int, data: Buffer, position: int = 0, end: int | None = None
) -> DescribeTopicPartitionsRequest:
    body = decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, data, position, end)
    cursor = body["cursor"]
    return DescribeTopicPartitionsRequest(
        tuple([topic["name"] for topic in body["topics"]]),
        body["responsePartitionLimit"],
        None if cursor is None else Cursor(cursor["topicName"], cursor["partitionIndex"]),
    )


@in_slices
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, cluster: Cluster
) -> Slices[DescribeTopicPartitionsAnswer]:
    node_id = cluster.node.node_id
    asked = sorted(set(request.topics))
    cursor = request.cursor
    if cursor is not None and (cursor.partition < 0 or (asked and cursor.topic not in asked)):
        refused = [PartitionsOfTopic(ErrorCode.INVALID_REQUEST, name, operations=NOT_ASKED) for name in request.topics]
        return DescribeTopicPartitionsAnswer(node_id, tuple(refused))
    names = asked or [topic.name for topic in cluster.topics.in_order()]
    first = 0 if cursor is None else bisect_left(names, cursor.topic)
    room = max(1, min(request.limit, cluster.config.max_request_partition_size_limit))
    described: list[PartitionsOfTopic] = []
    for name in names[first:]:
        yield
        if room == 0:
            return DescribeTopicPartitionsAnswer(node_id, tuple(described), Cursor(name, 0))
        start = cursor.partition if cursor is not None and cursor.topic == name else 0
        described.append(_partitions_described(name, start, room, cluster))
        taken = len(described[-1].partitions)
        room -= taken
        topic = cluster.topics.get(name)
        if topic is not None and start + taken < topic.partitions:
            return DescribeTopicPartitionsAnswer(node_id, tuple(described), Cursor(name, start + taken))
    return DescribeTopicPartitionsAnswer(node_id, tuple(described))


def _partitions_described(name: str, start: int, room: int, cluster: Cluster) -> PartitionsOfTopic:
    topic = cluster.topics.get(name)
    if topic is None:
        is_bad = name_problem(name) is not None
        return PartitionsOfTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name
        )
    partitions = [
        PartitionDescribed(partition, cluster.partition_of(topic, partition).leader_epoch)
        for partition in range(start, min(start + room, topic.partitions))
    ]
    return PartitionsOfTopic(ErrorCode.NONE, name, topic.topic_id, tuple(partitions))


def encode_topic_partitions(version: int, correlation_id: int, answer: DescribeTopicPartitionsAnswer) -> bytes:
    body = {
        "topics": [_encoded_partitions(topic, answer.node_id) for topic in answer.topics],
        "nextCursor": None if answer.next is None else _encoded_cursor(answer.next),
    }
    return encode_response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, correlation_id, body)


def _encoded_partitions(topic: PartitionsOfTopic, leader: int) -> dict[str, Any]:
    # not null, which the format allows and Java's client does not
    no_replicas: dict[str, Any] = {"eligibleLeaderReplicas": [], "lastKnownElr": []}
    return {
        "errorCode": topic.error,
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.name in INTERNAL_TOPICS,
        "partitions": [_encoded_partition(number, epoch, leader) | no_replicas for number, epoch in topic.partitions],
        "topicAuthorizedOperations": topic.operations,
    }


def _encoded_cursor(cursor: Cursor) -> dict[str, Any]:
    return {"topicName": cursor.topic, "partitionIndex": cursor.partition}


APIS = {
    ApiKey.METADATA: ClusterApi(decode_metadata, encode_metadata, plan=plan_metadata, elements=_elements),
    ApiKey.DESCRIBE_CLUSTER: ClusterApi(decode_describe_cluster, encode_describe_cluster, answer=describe_cluster),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ClusterApi(
        decode_topic_partitions, encode_topic_partitions, answer=describe_topic_partitions
    ),
}
