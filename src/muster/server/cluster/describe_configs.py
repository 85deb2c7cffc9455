"""DescribeConfigs: the settings of topics and of this broker.

Versions
    1  where a value comes from, and what else would have given it ("synonyms") on request
    3  types, and documentation on request
    4  flexible

A broker's settings are those that muster has, not the several hundred of Kafka's. Documentation is muster's too, and
topics have none. Loggers, groups and client metrics are resources without any settings here.

A resource that is asked for twice, with the same keys, is INVALID_REQUEST the second time. (Kafka describes it again,
and so makes megabytes of a request of two thousand bytes.)
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.config.broker import MAX_INT, BrokerConfig, broker_settings
from muster.config.types import BadValue, ConfigType, Value, parse_value, render_value
from muster.core.config import GroupConfig
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import Cluster, ClusterApi
from muster.server.cluster.topic_configs import MIN_ISR, Source, TopicSetting, effective_configs, is_given
from muster.server.cluster.topics import Topic, name_problem
from muster.server.settings import group_kinds
from muster.server.slices import Slices, in_slices

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_BROKER_ID = re.compile(r"[+-]?\d{1,10}")
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
REPEATED = "The same resource was asked for with the same keys before, in this request."


class ResourceAsked(NamedTuple):
    kind: int
    name: str
    keys: tuple[str, ...] | None = None
    """Which settings; None and none at all both ask for every one."""


class DescribeConfigsRequest(NamedTuple):
    resources: tuple[ResourceAsked, ...]
    wants_synonyms: bool = False
    wants_documentation: bool = False


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigDescribed(NamedTuple):
    name: str
    value: str | None
    kind: ConfigType
    source: Source
    is_read_only: bool = False
    synonyms: Sequence[Synonym] = ()
    documentation: str | None = None


class ResourceDescribed(NamedTuple):
    kind: int
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    configs: Sequence[ConfigDescribed] = ()


class DescribeConfigsAnswer(NamedTuple):
    resources: tuple[ResourceDescribed, ...]


def decode_describe_configs(
    version: int, data: Buffer, position: int = 0, end: int | None = None
) -> DescribeConfigsRequest:
    body = decode_request(ApiKey.DESCRIBE_CONFIGS, version, data, position, end)
    resources = []
    for resource in body["resources"]:
        keys = resource["configurationKeys"]
        asked = None if keys is None else tuple(keys)
        resources.append(ResourceAsked(resource["resourceType"], resource["resourceName"], asked))
    return DescribeConfigsRequest(tuple(resources), body["includeSynonyms"], body["includeDocumentation"])


@in_slices
def describe_configs(request: DescribeConfigsRequest, cluster: Cluster) -> Slices[DescribeConfigsAnswer]:
    """Describe each resource; all settings of one are looked up once, however many of its keys are asked for."""
    looked_up: dict[tuple[int, str], ResourceDescribed] = {}
    seen: set[tuple[int, str, frozenset[str]]] = set()
    answers = []
    for kind, name, keys in request.resources:
        yield
        asked = kind, name, frozenset(keys or ())
        if asked in seen:
            answers.append(ResourceDescribed(kind, name, ErrorCode.INVALID_REQUEST, REPEATED))
            continue
        seen.add(asked)
        found = looked_up.get((kind, name))
        if found is None:
            found = looked_up[kind, name] = _described(kind, name, request, cluster)
        answers.append(_only(found, asked[2]))
    return DescribeConfigsAnswer(tuple(answers))


def _only(described: ResourceDescribed, keys: frozenset[str]) -> ResourceDescribed:
    """Those settings of a resource; all where no key is named."""
    if not keys:
        return described
    return described._replace(configs=[config for config in described.configs if config.name in keys])


def _described(kind: int, name: str, request: DescribeConfigsRequest, cluster: Cluster) -> ResourceDescribed:
    if kind == TOPIC:
        problem = name_problem(name)
        topic = cluster.topics.get(name)
        if problem is not None:
            return ResourceDescribed(kind, name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic is None:
            return ResourceDescribed(kind, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        configs = topic_configs(topic, cluster.config)
    else:
        message = _resource_problem(kind, name, cluster.node.node_id)
        if message is not None:
            return ResourceDescribed(kind, name, ErrorCode.INVALID_REQUEST, message)
        configs = broker_configs(cluster, only_dynamic=not name) if kind == BROKER else []
    if not request.wants_synonyms:
        configs = [config._replace(synonyms=()) for config in configs]
    if not request.wants_documentation:
        configs = [config._replace(documentation=None) for config in configs]
    return ResourceDescribed(kind, name, configs=configs)


def _resource_problem(kind: int, name: str, node_id: int) -> str | None:
    match kind:
        case 4 | 8 if name:
            or_empty = " or empty string," if kind == BROKER else ""
            if not _BROKER_ID.fullmatch(name) or abs(int(name)) > MAX_INT:
                return f"Broker id must be an integer, but it is: {name}"
            is_ours = int(name) == node_id
            return None if is_ours else f"Unexpected broker id, expected {node_id}{or_empty} but received {name}"
        case 4:
            return None
        case 8:
            return "Broker id must not be empty"
        case 16:
            return None if name else "Client metrics subscription name must not be empty"
        case 32:
            return None if name else "Group name must not be empty"
    return MALFORMED


def topic_configs(topic: Topic, broker: BrokerConfig) -> list[ConfigDescribed]:
    """All settings of a topic; values as Kafka understands them, not as they were given."""
    described = []
    for setting, text, source in effective_configs(topic.configs, broker):
        value = _canonical(setting.kind, text)
        synonyms = _broker_synonyms(setting, broker)
        if source is Source.TOPIC:
            synonyms = [Synonym(setting.name, value, source), *synonyms]
        # Where a setting in other units (`log.retention.hours`) decides, Kafka calls that a default.
        seen_as = synonyms[0].source if synonyms else Source.DEFAULT
        described.append(ConfigDescribed(setting.name, value, setting.kind, seen_as, synonyms=synonyms))
    return described


def _canonical(kind: ConfigType, text: str) -> str | None:
    try:
        return render_value(parse_value(kind, text))
    except BadValue:
        return text  # another program wrote it into the registry


def _broker_synonyms(setting: TopicSetting, broker: BrokerConfig) -> list[Synonym]:
    """What gives the default: first what an operator set, then what is so of itself."""
    if not setting.broker_fields:
        default = render_value(setting.default)
        return [] if setting.synonym is None else [Synonym(setting.synonym, default, Source.DEFAULT)]
    known = broker_settings()
    fields = setting.broker_fields
    synonyms = [
        Synonym(known[field].name, render_value(getattr(broker, field)), Source.STATIC_BROKER)
        for field in fields
        if is_given(field, broker)
    ]
    if setting.name == MIN_ISR:
        value = render_value(broker.min_insync_replicas)
        synonyms.insert(0, Synonym(MIN_ISR, value, Source.DYNAMIC_DEFAULT_BROKER))
    synonyms += [
        Synonym(known[field].name, render_value(known[field].default), Source.DEFAULT)
        for field in fields
        if known[field].default is not None
    ]
    # Kafka drops everything before the first setting's own entry, and so all of it if that has none.
    own = known[fields[0]].name
    while synonyms and synonyms[0].name != own:
        del synonyms[0]
    return synonyms


def broker_configs(cluster: Cluster, *, only_dynamic: bool) -> list[ConfigDescribed]:
    """All settings of this broker by name; or only those that are set for the whole cluster, of which there is one."""
    described = [
        _broker_config(setting.name, setting.kind, getattr(cluster.config, field), setting.default, setting.is_dynamic)
        ._replace(documentation=setting.help)
        for field, setting in broker_settings().items()
    ]  # fmt: skip
    described += _group_configs(cluster.groups)
    wanted: Iterable[ConfigDescribed] = described
    if only_dynamic:
        wanted = [config for config in described if config.source is Source.DYNAMIC_DEFAULT_BROKER]
        wanted = [config._replace(synonyms=config.synonyms[:1]) for config in wanted]
    return sorted(wanted)


def _group_configs(groups: GroupConfig) -> list[ConfigDescribed]:
    defaults = GroupConfig()
    fields = GroupConfig.names()
    return [
        _broker_config(name, kind, getattr(groups, fields[name]), getattr(defaults, fields[name]), is_dynamic=False)
        for name, kind in group_kinds().items()
    ]


def _broker_config(name: str, kind: ConfigType, value: Value, default: Value, is_dynamic: bool) -> ConfigDescribed:
    text = render_value(value)
    synonyms = [Synonym(name, text, Source.STATIC_BROKER)] if value != default else []
    if name == MIN_ISR:
        synonyms.insert(0, Synonym(name, text, Source.DYNAMIC_DEFAULT_BROKER))
    if default is not None:
        synonyms.append(Synonym(name, render_value(default), Source.DEFAULT))
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return ConfigDescribed(name, text, kind, source, not is_dynamic, synonyms)


def encode_describe_configs(version: int, correlation_id: int, answer: DescribeConfigsAnswer) -> bytes:
    results = [
        {
            "errorCode": resource.error,
            "errorMessage": resource.message,
            "resourceType": resource.kind,
            "resourceName": resource.name,
            "configs": [_encoded(config) for config in resource.configs],
        }
        for resource in answer.resources
    ]
    return encode_response(ApiKey.DESCRIBE_CONFIGS, version, correlation_id, {"results": results})


def _encoded(config: ConfigDescribed) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "readOnly": config.is_read_only,
        "configSource": config.source,
        "synonyms": [{"name": name, "value": value, "source": source} for name, value, source in config.synonyms],
        "configType": config.kind,
        "documentation": config.documentation,
    }


APIS = {ApiKey.DESCRIBE_CONFIGS: ClusterApi(decode_describe_configs, encode_describe_configs, answer=describe_configs)}
