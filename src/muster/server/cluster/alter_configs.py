"""IncrementalAlterConfigs and AlterConfigs: other settings for topics that are there.

IncrementalAlterConfigs (0 and 1, which is flexible) sets and deletes single settings, and adds to lists or takes from
them. AlterConfigs (0 to 2, which is flexible) names all settings that a topic is to have; others go. A topic has its
new settings wholly or not at all, and its logs go by them from then on.

Only topics have settings that can be changed here. Those of the server are in its file, and its start reads them; so
are those of `__consumer_offsets`, which groups depend on. (Kafka takes any, and loses groups under some.)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.config.types import ConfigType
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import Cluster, ClusterApi
from muster.server.cluster.describe_configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from muster.server.cluster.topic_configs import TOPIC_SETTINGS, config_problem, effective_configs
from muster.server.cluster.topics import (
    COORDINATED_TOPICS,
    Happened,
    Outcome,
    Plan,
    Topic,
    TopicChange,
    name_problem,
    refusal_of,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
ONLY_TOPICS = "Settings of topics can be changed; those of the server are read from its file when it starts."
NOT_THIS_TOPIC = "{} has its settings from those of the server, which are read when it starts."


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


class ResourceToAlter(NamedTuple):
    kind: int
    name: str
    changes: tuple[Change, ...]


class AlterConfigsRequest(NamedTuple):
    resources: tuple[ResourceToAlter, ...]
    validate_only: bool
    is_incremental: bool


class ResourceAltered(NamedTuple):
    kind: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class AlterConfigsAnswer(NamedTuple):
    resources: tuple[ResourceAltered, ...]


def _decode(
    api_key: ApiKey, version: int, data: Buffer, position: int = 0, end: int | None = None
) -> AlterConfigsRequest:
    body = decode_request(api_key, version, data, position, end)
    is_incremental = api_key is ApiKey.INCREMENTAL_ALTER_CONFIGS
    resources = [
        ResourceToAlter(
            one["resourceType"],
            one["resourceName"],
            tuple(
                [
                    Change(config["name"], config["configOperation"] if is_incremental else SET, config["value"])
                    for config in one["configs"]
                ]
            ),
        )
        for one in body["resources"]
    ]
    return AlterConfigsRequest(tuple(resources), body["validateOnly"], is_incremental)


def plan_alter_configs(request: AlterConfigsRequest, cluster: Cluster) -> Plan:
    """What can be changed, and the answer when it is."""
    named = Counter((one.kind, one.name) for one in request.resources)
    answers: list[ResourceAltered] = []
    changes: list[TopicChange] = []
    for resource in request.resources:
        kind, name, _ = resource
        if named[kind, name] > 1:
            message = "Each resource must appear at most once."
            answers.append(ResourceAltered(kind, name, ErrorCode.INVALID_REQUEST, message))
            continue
        altered = _altered(resource, request.is_incremental, cluster)
        if isinstance(altered, Topic):
            changes.append(TopicChange(Happened.CONFIGURED, altered))
            answers.append(ResourceAltered(kind, name))
        else:
            answers.append(altered)
    return Plan([] if request.validate_only else changes, partial(_answered, changes, answers))


def _altered(resource: ResourceToAlter, is_incremental: bool, cluster: Cluster) -> Topic | ResourceAltered:
    kind, name, changes = resource

    def refused(error: ErrorCode, message: str | None = None) -> ResourceAltered:
        return ResourceAltered(kind, name, error, message)

    if kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP):
        return refused(ErrorCode.INVALID_REQUEST, ONLY_TOPICS)
    if kind != TOPIC:
        return refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    keys = Counter(change.name for change in changes)
    if len(keys) < len(changes):
        return refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if any(not SET <= change.operation <= SUBTRACT for change in changes):
        return refused(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka has it
    null = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if null:
        return refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(null)}")
    if not name:
        return refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = name_problem(name)
    if problem is not None:
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = cluster.topics.get(name)
    if topic is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if name in COORDINATED_TOPICS:
        return refused(ErrorCode.INVALID_REQUEST, NOT_THIS_TOPIC.format(name))
    configs = dict(topic.configs) if is_incremental else {}
    defaults = {one.setting.name: one.value for one in effective_configs({}, cluster.config)}
    for change in changes:
        problem = _apply(change, configs, defaults)
        if problem is not None:
            return refused(ErrorCode.INVALID_CONFIG, problem)
    problem = config_problem(configs, cluster.config)
    if problem is not None:
        return refused(ErrorCode.INVALID_CONFIG, problem)
    return topic._replace(configs=configs)


def _apply(change: Change, configs: dict[str, str], defaults: Mapping[str, str]) -> str | None:
    """Change one setting; why it cannot be, otherwise."""
    name, operation, value = change
    if operation == DELETE:
        configs.pop(name, None)
    elif operation == SET:
        configs[name] = value or ""
    else:
        setting = TOPIC_SETTINGS.get(name)
        if setting is None or setting.kind is not ConfigType.LIST:
            return f"Can't {_OPERATIONS[operation]} to key {name} because its type is not LIST."
        parts = [part for part in configs.get(name, defaults[name]).split(",") if part]
        given = (value or "").split(",")
        if operation == APPEND:
            parts = [*dict.fromkeys([*parts, *given])]
        else:
            taken = set(given)
            parts = [part for part in parts if part not in taken]
        configs[name] = ",".join(parts)
    return None


def _answered(
    changes: Sequence[TopicChange], answers: Sequence[ResourceAltered], outcomes: Sequence[Outcome]
) -> AlterConfigsAnswer:
    """The answers, with errors for those that could not be made after all."""
    failed = {
        change.topic.name: refusal_of(error)
        for change, error in zip(changes, outcomes, strict=False)
        if error is not None
    }
    return AlterConfigsAnswer(
        tuple(
            [
                ResourceAltered(one.kind, one.name, *failed[one.name])
                if one.kind == TOPIC and one.error is ErrorCode.NONE and one.name in failed
                else one
                for one in answers
            ]
        )
    )


def _encode(api_key: ApiKey, version: int, correlation_id: int, answer: AlterConfigsAnswer) -> bytes:
    responses: list[dict[str, Any]] = [
        {"errorCode": one.error, "errorMessage": one.message, "resourceType": one.kind, "resourceName": one.name}
        for one in answer.resources
    ]
    return encode_response(api_key, version, correlation_id, {"responses": responses})


APIS = {
    api_key: ClusterApi(partial(_decode, api_key), partial(_encode, api_key), plan=plan_alter_configs)
    for api_key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
}
