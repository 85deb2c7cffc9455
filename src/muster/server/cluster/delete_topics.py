"""DeleteTopics: topics with all their records, by name or by id.

Versions
    1  the first one served
    3  says that deletion is turned off with an error of its own; before, with INVALID_REQUEST
    4  flexible
    5  a sentence beside the error
    6  by name or by id, never both at once; both in the answer

`__consumer_offsets` cannot be deleted: all groups live in it. (Kafka does it when asked.)
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import NO_TOPIC_ID, Cluster, ClusterApi
from muster.server.cluster.topics import COORDINATED_TOPICS, Happened, Outcome, Plan, Topic, TopicChange, refusal_of

_FIRST_WITH_DISABLED = 3


class TopicNamed(NamedTuple):
    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsRequest(NamedTuple):
    version: int
    topics: tuple[TopicNamed, ...]


class TopicDeleted(NamedTuple):
    name: str | None
    topic_id: bytes
    error: ErrorCode
    message: str | None = None


class DeleteTopicsAnswer(NamedTuple):
    topics: tuple[TopicDeleted, ...]


def decode_delete_topics(version: int, data: Buffer, position: int = 0, end: int | None = None) -> DeleteTopicsRequest:
    body = decode_request(ApiKey.DELETE_TOPICS, version, data, position, end)
    by_name = [TopicNamed(name) for name in body["topicNames"]]
    return DeleteTopicsRequest(
        version, tuple(by_name + [TopicNamed(topic["name"], topic["topicId"]) for topic in body["topics"]])
    )


def plan_delete_topics(request: DeleteTopicsRequest, cluster: Cluster) -> Plan:
    """What can be deleted, and the answer when it is."""
    if not cluster.config.delete_topic_enable:
        is_old = request.version < _FIRST_WITH_DISABLED
        error = ErrorCode.INVALID_REQUEST if is_old else ErrorCode.TOPIC_DELETION_DISABLED
        refused = DeleteTopicsAnswer(tuple([TopicDeleted(*topic, error) for topic in request.topics]))
        return Plan((), lambda outcomes: refused)
    answers: list[TopicDeleted] = []
    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for name, topic_id in request.topics:
        if name is None and topic_id == NO_TOPIC_ID:
            answers.append(_invalid(None, NO_TOPIC_ID, "Neither topic name nor id were specified."))
        elif name is None:
            ids[topic_id] += 1
        elif topic_id == NO_TOPIC_ID:
            names[name] += 1
        else:
            answers.append(_invalid(name, topic_id, "You may not specify both topic name and topic id."))
    answers += [_invalid(name, NO_TOPIC_ID, "Duplicate topic name.") for name, times in names.items() if times > 1]
    answers += [_invalid(None, topic_id, "Duplicate topic id.") for topic_id, times in ids.items() if times > 1]
    chosen = _chosen_by_id(ids, cluster, answers)
    chosen = _chosen_by_name(names, ids, chosen, cluster, answers)
    changes = [
        TopicChange(Happened.DELETED, topic) for topic in chosen.values() if topic.name not in COORDINATED_TOPICS
    ]
    answers += [
        _invalid(topic.name, topic.topic_id, f"{topic.name} holds the {held}, and cannot be deleted.")
        for topic in chosen.values()
        if (held := COORDINATED_TOPICS.get(topic.name)) is not None
    ]
    return Plan(changes, partial(_answered, changes, answers))


def _answered(
    changes: Sequence[TopicChange], answers: Sequence[TopicDeleted], outcomes: Sequence[Outcome]
) -> DeleteTopicsAnswer:
    deleted = [
        TopicDeleted(topic.name, topic.topic_id, *((ErrorCode.NONE, None) if error is None else refusal_of(error)))
        for (_, topic), error in zip(changes, outcomes, strict=True)
    ]
    return DeleteTopicsAnswer((*answers, *deleted))


def _invalid(name: str | None, topic_id: bytes, message: str) -> TopicDeleted:
    return TopicDeleted(name, topic_id, ErrorCode.INVALID_REQUEST, message)


def _chosen_by_id(ids: Counter[bytes], cluster: Cluster, answers: list[TopicDeleted]) -> dict[bytes, Topic]:
    chosen = {}
    for topic_id in [topic_id for topic_id, times in ids.items() if times == 1]:
        topic = cluster.topics.by_id(topic_id)
        if topic is None:
            message = "This server does not host this topic ID."
            answers.append(TopicDeleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, message))
        else:
            chosen[topic_id] = topic
    return chosen


def _chosen_by_name(
    names: Counter[str], ids: Counter[bytes], by_id: dict[bytes, Topic], cluster: Cluster, answers: list[TopicDeleted]
) -> dict[bytes, Topic]:
    """Those chosen by id and by name; a topic chosen in both ways, or twice by its id, is not."""
    chosen = dict(by_id)
    for name in [name for name, times in names.items() if times == 1]:
        topic = cluster.topics.get(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            answers.append(TopicDeleted(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
        elif topic.topic_id in ids:
            chosen.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            answers.append(_invalid(name, topic.topic_id, message))
        else:
            chosen[topic.topic_id] = topic
    return chosen


def encode_delete_topics(version: int, correlation_id: int, answer: DeleteTopicsAnswer) -> bytes:
    responses = [
        {
            "name": topic.name,
            "topicId": topic.topic_id,
            "errorCode": topic.error,
            "errorMessage": topic.message,
        }
        for topic in answer.topics
    ]
    return encode_response(ApiKey.DELETE_TOPICS, version, correlation_id, {"responses": responses})


APIS = {ApiKey.DELETE_TOPICS: ClusterApi(decode_delete_topics, encode_delete_topics, plan=plan_delete_topics)}
