"""CreateTopics and CreatePartitions: new topics, and more partitions of those there are, each taken or refused alone.

CreateTopics
    2  the first one served
    4  the number of partitions and of replicas may be left to the broker (-1); this broker does not mind before either
    5  flexible; the answer has the partitions, replicas and settings of the new topic
    6  may say that a quota is used up, which never happens here
    7  the answer has the topic's id

What is wrong is looked for in Kafka's order: a name that comes twice in the request, the name itself, a topic that is
there, null settings, bad settings, then assignment, replicas and partitions. Too many partitions in one request refuse
all of it. `muster.max.partitions` is our own limit.

The list of settings is empty rather than null in a refusal: Java's client does not take null.

CreatePartitions
    0, 1  the same
    2     flexible
    3     may say that a quota is used up, which never happens here

`__consumer_offsets` cannot have more: which of its partitions has a group depends on how many there are. (Kafka does
it, and every group is somewhere else from then on.) More than 10,000 new partitions in one request are refused. (Kafka
answers UNKNOWN_SERVER_ERROR, and makes the first 10,000 all the same.)
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import NO_TOPIC_ID, Cluster, ClusterApi
from muster.server.cluster.topic_configs import EffectiveConfig, config_problem, effective_configs
from muster.server.cluster.topics import (
    COORDINATED_TOPICS,
    METADATA_TOPIC,
    Happened,
    Outcome,
    Plan,
    Topic,
    TopicChange,
    assignment_problem,
    name_problem,
    refusal_of,
)

MOST_CHANGES = 10_000
"""Partitions in one request, and records that Kafka's controller would write for it."""
BROKERS_CHOICE = -1


class Assignment(NamedTuple):
    partition: int
    node_ids: tuple[int, ...]


class NewTopic(NamedTuple):
    name: str
    partitions: int = BROKERS_CHOICE
    replicas: int = BROKERS_CHOICE
    assignments: tuple[Assignment, ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class CreateTopicsRequest(NamedTuple):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class TopicCreated(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = -1
    replicas: int = -1
    configs: Sequence[EffectiveConfig] = ()


class CreateTopicsAnswer(NamedTuple):
    topics: tuple[TopicCreated, ...]


def decode_create_topics(version: int, data: Buffer, position: int = 0, end: int | None = None) -> CreateTopicsRequest:
    body = decode_request(ApiKey.CREATE_TOPICS, version, data, position, end)
    return CreateTopicsRequest(tuple([_decoded(topic) for topic in body["topics"]]), body["validateOnly"])


def _decoded(topic: dict[str, Any]) -> NewTopic:
    return NewTopic(
        topic["name"],
        topic["numPartitions"],
        topic["replicationFactor"],
        tuple([Assignment(one["partitionIndex"], tuple(one["brokerIds"])) for one in topic["assignments"]]),
        tuple([(config["name"], config["value"]) for config in topic["configs"]]),
    )


def plan_create_topics(request: CreateTopicsRequest, cluster: Cluster) -> Plan:
    """What can be made, and the answer when it is."""
    named = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if named[topic.name] == 1 and topic.name != METADATA_TOPIC]
    if sum(_partitions(topic, cluster) for topic in wanted) > MOST_CHANGES:
        return _nothing(_all_refused(request, "Excessively large number of partitions per request."))
    refused = {topic.name: _refusal(topic, cluster) for topic in wanted}
    accepted = [topic for topic in wanted if refused[topic.name] is None]
    if sum(1 + len(dict(topic.configs)) + _partitions(topic, cluster) for topic in accepted) > MOST_CHANGES:
        return _nothing(_all_refused(request, "Unable to perform excessively large batch operation."))
    made = _with_room(accepted, cluster)
    answers = [refused[topic.name] or _created(topic, made[topic.name], cluster) for topic in wanted]
    answers += [
        TopicCreated(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, times in named.items()
        if times > 1
    ]
    if named[METADATA_TOPIC] == 1:
        message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        answers.append(TopicCreated(METADATA_TOPIC, ErrorCode.INVALID_REQUEST, message))
    changes = [TopicChange(Happened.CREATED, topic) for topic in made.values() if topic is not None]
    return Plan([] if request.validate_only else changes, partial(_answered, changes, answers))


def _answered(
    changes: Sequence[TopicChange], answers: Sequence[TopicCreated], outcomes: Sequence[Outcome]
) -> CreateTopicsAnswer:
    """The answers, with errors for those that could not be made after all."""
    failed = {
        change.topic.name: TopicCreated(change.topic.name, *refusal_of(error))
        for change, error in zip(changes, outcomes, strict=False)
        if error is not None
    }
    return CreateTopicsAnswer(tuple([failed.get(answer.name, answer) for answer in answers]))


def _nothing(answer: CreateTopicsAnswer) -> Plan:
    return Plan((), lambda outcomes: answer)


def _all_refused(request: CreateTopicsRequest, message: str) -> CreateTopicsAnswer:
    return CreateTopicsAnswer(
        tuple([TopicCreated(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in request.topics])
    )


def _partitions(topic: NewTopic, cluster: Cluster) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return cluster.config.num_partitions if topic.partitions == BROKERS_CHOICE else max(topic.partitions, 0)


def _refusal(topic: NewTopic, cluster: Cluster) -> TopicCreated | None:
    """Why not, judged by the topics that were there before this request."""
    name = topic.name
    if name in cluster.topics:
        return TopicCreated(name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    problem = name_problem(name)
    if problem is not None:
        return TopicCreated(name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    clash = cluster.topics.clash(name)
    if clash is not None:
        message = f"Topic '{name}' collides with existing topic: {clash}"
        return TopicCreated(name, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    nulls = [config for config, value in topic.configs if value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        return TopicCreated(name, ErrorCode.INVALID_CONFIG, message)
    problem = config_problem(_configs(topic), cluster.config)
    if problem is not None:
        return TopicCreated(name, ErrorCode.INVALID_CONFIG, problem)
    error, message = _shape_problem(topic, cluster)
    return None if error is ErrorCode.NONE else TopicCreated(name, error, message)


def _configs(topic: NewTopic) -> dict[str, str]:
    return {name: value for name, value in topic.configs if value is not None}


def _shape_problem(topic: NewTopic, cluster: Cluster) -> tuple[ErrorCode, str]:
    """What is wrong with the partitions and replicas that are asked for."""
    if topic.assignments:
        return _assignments_problem(topic, cluster)
    if topic.replicas < BROKERS_CHOICE or topic.replicas == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    if topic.partitions < BROKERS_CHOICE or topic.partitions == 0:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    replicas = cluster.config.default_replication_factor if topic.replicas == BROKERS_CHOICE else topic.replicas
    if replicas > 1:
        return ErrorCode.INVALID_REPLICATION_FACTOR, (
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot "
            "be reached because only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
    return ErrorCode.NONE, ""


def _assignments_problem(topic: NewTopic, cluster: Cluster) -> tuple[ErrorCode, str]:
    given = "A manual partition assignment was specified, but "
    if topic.replicas != BROKERS_CHOICE:
        return ErrorCode.INVALID_REQUEST, given + "replication factor was not set to -1."
    if topic.partitions != BROKERS_CHOICE:
        return ErrorCode.INVALID_REQUEST, given + "numPartitions was not set to -1."
    seen: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition in seen:
            message = f"Found multiple manual partition assignments for partition {assignment.partition}"
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
        problem = assignment_problem(assignment.node_ids, cluster.node.node_id)
        if problem is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
        seen.add(assignment.partition)
    if seen != set(range(len(seen))):
        message = "partitions should be a consecutive 0-based integer sequence"
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return ErrorCode.NONE, ""


def _with_room(wanted: Sequence[NewTopic], cluster: Cluster) -> dict[str, Topic | None]:
    """The topics to make, by name; None for one that there is no room for behind those before it."""
    made: dict[str, Topic | None] = {}
    room = cluster.config.muster_max_partitions - cluster.topics.partition_count
    for topic in wanted:
        partitions = _partitions(topic, cluster)
        made[topic.name] = None
        if partitions <= room:
            made[topic.name] = Topic(topic.name, cluster.fresh_topic_id(), partitions, _configs(topic))
            room -= partitions
    return made


def _created(wanted: NewTopic, topic: Topic | None, cluster: Cluster) -> TopicCreated:
    if topic is None:
        limit = cluster.config.muster_max_partitions
        return TopicCreated(wanted.name, ErrorCode.POLICY_VIOLATION, f"muster.max.partitions is {limit}.")
    effective = effective_configs(topic.configs, cluster.config)
    return TopicCreated(topic.name, ErrorCode.NONE, None, topic.topic_id, topic.partitions, 1, effective)


def encode_create_topics(version: int, correlation_id: int, answer: CreateTopicsAnswer) -> bytes:
    topics = [
        {
            "name": topic.name,
            "topicId": topic.topic_id,
            "errorCode": topic.error,
            "errorMessage": topic.message,
            "numPartitions": topic.partitions,
            "replicationFactor": topic.replicas,
            "configs": [
                {"name": config.setting.name, "value": config.value, "configSource": config.source}
                for config in topic.configs
            ],
        }
        for topic in answer.topics
    ]
    return encode_response(ApiKey.CREATE_TOPICS, version, correlation_id, {"topics": topics})


class MorePartitions(NamedTuple):
    name: str
    total: int
    """How many there are to be in all."""
    assignments: tuple[tuple[int, ...], ...] | None = None


class CreatePartitionsRequest(NamedTuple):
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


class PartitionsCreated(NamedTuple):
    name: str
    error: ErrorCode
    message: str | None = None


class CreatePartitionsAnswer(NamedTuple):
    topics: tuple[PartitionsCreated, ...]


def decode_create_partitions(
    version: int, data: Buffer, position: int = 0, end: int | None = None
) -> CreatePartitionsRequest:
    body = decode_request(ApiKey.CREATE_PARTITIONS, version, data, position, end)
    return CreatePartitionsRequest(tuple([_decoded_growth(topic) for topic in body["topics"]]), body["validateOnly"])


def _decoded_growth(topic: dict[str, Any]) -> MorePartitions:
    assignments = topic["assignments"]
    chosen = None if assignments is None else tuple([tuple(one["brokerIds"]) for one in assignments])
    return MorePartitions(topic["name"], topic["count"], chosen)


def plan_create_partitions(request: CreatePartitionsRequest, cluster: Cluster) -> Plan:
    """What can be made, and the answer when it is."""
    named = Counter(topic.name for topic in request.topics)
    answers = [
        PartitionsCreated(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, times in named.items()
        if times > 1
    ]
    wanted = [topic for topic in request.topics if named[topic.name] == 1]
    refused = {topic.name: _growth_refusal(topic, cluster) for topic in wanted}
    accepted = [topic for topic in wanted if refused[topic.name] is None]
    if sum(_added(topic, cluster) for topic in accepted) > MOST_CHANGES:
        message = "Excessively large number of partitions per request."
        refused |= {
            topic.name: PartitionsCreated(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in accepted
        }
    changes: list[TopicChange] = []
    limit = cluster.config.muster_max_partitions
    room = limit - cluster.topics.partition_count
    for topic in wanted:
        refusal, known = refused[topic.name], cluster.topics.get(topic.name)
        if refusal is None and known is not None:
            added = topic.total - known.partitions
            if added <= room:
                room -= added
                changes.append(TopicChange(Happened.GROWN, known._replace(partitions=topic.total)))
            else:
                message = f"muster.max.partitions is {limit}."
                refusal = PartitionsCreated(topic.name, ErrorCode.POLICY_VIOLATION, message)
        answers.append(refusal or PartitionsCreated(topic.name, ErrorCode.NONE))
    return Plan([] if request.validate_only else changes, partial(_answered_growth, changes, answers))


def _answered_growth(
    changes: Sequence[TopicChange], answers: Sequence[PartitionsCreated], outcomes: Sequence[Outcome]
) -> CreatePartitionsAnswer:
    """The answers, with errors for those that could not be made after all."""
    failed = {
        change.topic.name: PartitionsCreated(change.topic.name, *refusal_of(error))
        for change, error in zip(changes, outcomes, strict=False)
        if error is not None
    }
    return CreatePartitionsAnswer(tuple([failed.get(answer.name, answer) for answer in answers]))


def _growth_refusal(wanted: MorePartitions, cluster: Cluster) -> PartitionsCreated | None:
    topic = cluster.topics.get(wanted.name)
    if topic is None:
        return PartitionsCreated(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error, message = _problem(wanted, topic, cluster)
    return None if error is ErrorCode.NONE else PartitionsCreated(wanted.name, error, message)


def _problem(wanted: MorePartitions, topic: Topic, cluster: Cluster) -> tuple[ErrorCode, str]:
    if wanted.total == topic.partitions:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s)."
    if wanted.total < topic.partitions:
        return ErrorCode.INVALID_PARTITIONS, (
            f"The topic {topic.name} currently has {topic.partitions} partition(s); {wanted.total} would not be an "
            "increase."
        )
    if topic.name in COORDINATED_TOPICS:
        held = COORDINATED_TOPICS[topic.name]
        message = f"The number of partitions of {topic.name} decides where {held} are, and cannot change."
        return ErrorCode.INVALID_REQUEST, message
    if wanted.assignments is None:
        return ErrorCode.NONE, ""
    added = wanted.total - topic.partitions
    if len(wanted.assignments) != added:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, (
            f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) were "
            "specified."
        )
    problems = (assignment_problem(node_ids, cluster.node.node_id) for node_ids in wanted.assignments)
    problem = next((problem for problem in problems if problem is not None), None)
    return (ErrorCode.NONE, "") if problem is None else (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _added(wanted: MorePartitions, cluster: Cluster) -> int:
    topic = cluster.topics.get(wanted.name)
    return 0 if topic is None else wanted.total - topic.partitions


def encode_create_partitions(version: int, correlation_id: int, answer: CreatePartitionsAnswer) -> bytes:
    results = [{"name": topic.name, "errorCode": topic.error, "errorMessage": topic.message} for topic in answer.topics]
    return encode_response(ApiKey.CREATE_PARTITIONS, version, correlation_id, {"results": results})


APIS = {
    ApiKey.CREATE_TOPICS: ClusterApi(decode_create_topics, encode_create_topics, plan=plan_create_topics),
    ApiKey.CREATE_PARTITIONS: ClusterApi(
        decode_create_partitions, encode_create_partitions, plan=plan_create_partitions
    ),
}
