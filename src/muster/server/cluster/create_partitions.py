"""CreatePartitions: more partitions for topics that are there.

Versions 0 and 1 are the same, 2 is flexible, 3 may say that a quota is used up, which never happens here.

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
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.create_topics import MOST_CHANGES
from muster.server.cluster.topics import (
    OFFSETS_TOPIC,
    Happened,
    Outcome,
    Plan,
    Topic,
    TopicChange,
    assignment_problem,
    refusal_of,
)


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


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> CreatePartitionsRequest:
    body = decode_request(ApiKey.CREATE_PARTITIONS, version, data, position, end)
    return CreatePartitionsRequest(tuple([_decoded(topic) for topic in body["topics"]]), body["validateOnly"])


def _decoded(topic: dict[str, Any]) -> MorePartitions:
    assignments = topic["assignments"]
    chosen = None if assignments is None else tuple([tuple(one["brokerIds"]) for one in assignments])
    return MorePartitions(topic["name"], topic["count"], chosen)


def handle(request: CreatePartitionsRequest, cluster: Cluster) -> CreatePartitionsAnswer:
    """Make what can be made, here and now."""
    answer: CreatePartitionsAnswer = cluster.topics.carry_out(plan(request, cluster))
    return answer


def plan(request: CreatePartitionsRequest, cluster: Cluster) -> Plan:
    """What can be made, and the answer when it is."""
    named = Counter(topic.name for topic in request.topics)
    answers = [
        PartitionsCreated(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, times in named.items()
        if times > 1
    ]
    wanted = [topic for topic in request.topics if named[topic.name] == 1]
    refused = {topic.name: _refusal(topic, cluster) for topic in wanted}
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
    return Plan([] if request.validate_only else changes, partial(_answered, changes, answers))


def _answered(
    changes: Sequence[TopicChange], answers: Sequence[PartitionsCreated], outcomes: Sequence[Outcome]
) -> CreatePartitionsAnswer:
    """The answers, with errors for those that could not be made after all."""
    failed = {
        change.topic.name: PartitionsCreated(change.topic.name, *refusal_of(error))
        for change, error in zip(changes, outcomes, strict=False)
        if error is not None
    }
    return CreatePartitionsAnswer(tuple([failed.get(answer.name, answer) for answer in answers]))


def _refusal(wanted: MorePartitions, cluster: Cluster) -> PartitionsCreated | None:
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
    if topic.name == OFFSETS_TOPIC:
        message = f"The number of partitions of {OFFSETS_TOPIC} decides where groups are, and cannot change."
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


def encode(version: int, correlation_id: int, answer: CreatePartitionsAnswer) -> bytes:
    results = [{"name": topic.name, "errorCode": topic.error, "errorMessage": topic.message} for topic in answer.topics]
    return encode_response(ApiKey.CREATE_PARTITIONS, version, correlation_id, {"results": results})
