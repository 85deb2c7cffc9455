"""The settings a topic may have: all that Kafka knows, in its types, with its limits and its sentences.

muster goes by some of them and keeps the others, so that a tool which set one finds it again. A setting that was not
given has the value of a broker setting (`log.retention.hours` for `retention.ms`, say), or else a constant.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from muster.config.broker import MAX_LONG, BrokerConfig, broker_settings
from muster.config.types import BadValue, ConfigType, Value, parse_value, render_value

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

MIN_ISR = "min.insync.replicas"
"""Kafka sets this one for the whole cluster when that is made, so it is never a plain default."""

_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_LONGEST_VALUE = 32_767
"""Kafka hangs up on longer ones."""


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class TopicSetting(NamedTuple):
    name: str
    kind: ConfigType
    default: Value
    """Counts where no broker setting of ours stands behind it."""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    broker_fields: tuple[str, ...] = ()
    """Fields of `BrokerConfig` that give the default; the first that is set."""
    broker_value: Callable[[BrokerConfig], Value] | None = None
    """The default they give, in this setting's unit."""
    check: Callable[[str, Value], str | None] | None = None
    synonym: str | None = None
    """A broker setting of Kafka's that muster does not have; Kafka names it beside its default."""


class EffectiveConfig(NamedTuple):
    setting: TopicSetting
    value: str
    source: Source


def _from(field: str) -> Callable[[BrokerConfig], Value]:
    return lambda config: getattr(config, field)


def _broker(
    name: str, kind: ConfigType, field: str, least: float | None = None, most: float | None = None, **more: object
) -> TopicSetting:
    """A setting with one broker setting behind it."""
    default = broker_settings()[field].default
    return TopicSetting(name, kind, default, least, most, broker_fields=(field,), broker_value=_from(field), **more)  # type: ignore[arg-type]


def _gzip_level(name: str, value: Value) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return _invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _throttled_replicas(name: str, value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(_THROTTLED.fullmatch(replica) for replica in value):
        return None
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    words = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
    return f"Invalid value [{', '.join(value)}] for configuration {name}: {words}"


TOPIC_SETTINGS: dict[str, TopicSetting] = {
    setting.name: setting
    for setting in (
        _broker("cleanup.policy", LIST, "log_cleanup_policy", choices=("compact", "delete")),
        TopicSetting("compression.gzip.level", INT, -1, check=_gzip_level, synonym="compression.gzip.level"),
        TopicSetting("compression.lz4.level", INT, 9, 1, 17, synonym="compression.lz4.level"),
        TopicSetting(
            "compression.type", STRING, "producer", synonym="compression.type",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        TopicSetting("compression.zstd.level", INT, 3, -131_072, 22, synonym="compression.zstd.level"),
        _broker("delete.retention.ms", LONG, "log_cleaner_delete_retention_ms", 0),
        _broker("file.delete.delay.ms", LONG, "log_segment_delete_delay_ms", 0),
        TopicSetting("flush.messages", LONG, MAX_LONG, 1, synonym="log.flush.interval.messages"),
        TopicSetting("flush.ms", LONG, MAX_LONG, 0),
        TopicSetting("follower.replication.throttled.replicas", LIST, (), check=_throttled_replicas),
        _broker("index.interval.bytes", INT, "log_index_interval_bytes", 0),
        TopicSetting("leader.replication.throttled.replicas", LIST, (), check=_throttled_replicas),
        TopicSetting("local.retention.bytes", LONG, -2, -2, synonym="log.local.retention.bytes"),
        TopicSetting("local.retention.ms", LONG, -2, -2, synonym="log.local.retention.ms"),
        _broker("max.compaction.lag.ms", LONG, "log_cleaner_max_compaction_lag_ms", 1),
        _broker("max.message.bytes", INT, "message_max_bytes", 0),
        _broker("message.timestamp.after.max.ms", LONG, "log_message_timestamp_after_max_ms", 0),
        _broker("message.timestamp.before.max.ms", LONG, "log_message_timestamp_before_max_ms", 0),
        _broker(
            "message.timestamp.type", STRING, "log_message_timestamp_type", choices=("CreateTime", "LogAppendTime")
        ),
        _broker("min.cleanable.dirty.ratio", DOUBLE, "log_cleaner_min_cleanable_ratio", 0, 1),
        _broker("min.compaction.lag.ms", LONG, "log_cleaner_min_compaction_lag_ms", 0),
        _broker(MIN_ISR, INT, "min_insync_replicas", 1),
        TopicSetting("preallocate", BOOLEAN, False, synonym="log.preallocate"),
        TopicSetting("remote.log.copy.disable", BOOLEAN, False),
        TopicSetting("remote.log.delete.on.disable", BOOLEAN, False),
        TopicSetting("remote.storage.enable", BOOLEAN, False),
        _broker("retention.bytes", LONG, "log_retention_bytes"),
        TopicSetting(
            "retention.ms", LONG, 604_800_000, -1,
            broker_fields=("log_retention_ms", "log_retention_minutes", "log_retention_hours"),
            broker_value=lambda config: config.retention_ms,
        ),
        _broker("segment.bytes", INT, "log_segment_bytes", 1 << 20),
        _broker("segment.index.bytes", INT, "log_index_size_max_bytes", 4),
        TopicSetting("segment.jitter.ms", LONG, 0, 0),
        TopicSetting(
            "segment.ms", LONG, 604_800_000, 1,
            broker_fields=("log_roll_ms", "log_roll_hours"), broker_value=lambda config: config.roll_ms,
        ),
        TopicSetting("unclean.leader.election.enable", BOOLEAN, False, synonym="unclean.leader.election.enable"),
    )
}  # fmt: skip
"""By name, and in the order of their names."""


def config_problem(configs: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """Why a topic cannot have these settings, in Kafka's words; None if it can. The first reason found."""
    values = {}
    for name in configs:
        if name not in TOPIC_SETTINGS:
            return f"Unknown topic config name: {name}"
    for name, text in configs.items():
        if len(text) > _LONGEST_VALUE:
            return f"{name} is given in {len(text)} characters; {_LONGEST_VALUE} are the most."
        setting = TOPIC_SETTINGS[name]
        try:
            values[name] = parse_value(setting.kind, text)
        except BadValue as error:
            return _invalid(name, text, str(error))
        problem = _value_problem(setting, values[name])
        if problem is not None:
            return problem
    return _conflict(values, broker)


def _value_problem(setting: TopicSetting, value: Value) -> str | None:
    name = setting.name
    if setting.check is not None:
        return setting.check(name, value)
    if setting.choices:
        return _choice_problem(setting, value)
    if isinstance(value, int | float):
        if setting.least is not None and value < setting.least:
            return _invalid(name, value, f"Value must be at least {setting.least}")
        if setting.most is not None and value > setting.most:
            return _invalid(name, value, f"Value must be no more than {setting.most}")
    return None


def _choice_problem(setting: TopicSetting, value: Value) -> str | None:
    words = value if isinstance(value, tuple) else (value,)
    if "" in words and setting.kind is LIST:
        return f"Configuration '{setting.name}' values must not be empty."
    bad = next((word for word in words if word not in setting.choices), None)
    return None if bad is None else _invalid(setting.name, bad, f"String must be one of: {', '.join(setting.choices)}")


def _invalid(name: str, value: Value, reason: str) -> str:
    return f"Invalid value {render_value(value)} for configuration {name}: {reason}"


def _conflict(values: Mapping[str, Value], broker: BrokerConfig) -> str | None:
    least = values.get("min.compaction.lag.ms", broker.log_cleaner_min_compaction_lag_ms)
    most = values.get("max.compaction.lag.ms", broker.log_cleaner_max_compaction_lag_ms)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        return f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
    if values.get("remote.storage.enable") is True:
        words = "Tiered Storage functionality is disabled in the broker. "
        return words + "Topic cannot be configured with remote log storage."
    return None


def effective_configs(configs: Mapping[str, str], broker: BrokerConfig) -> list[EffectiveConfig]:
    """Every setting of a topic with the value in force, in order of their names; values as they were given."""
    return [_effective(setting, configs, broker) for setting in TOPIC_SETTINGS.values()]


def _effective(setting: TopicSetting, configs: Mapping[str, str], broker: BrokerConfig) -> EffectiveConfig:
    if setting.name in configs:
        return EffectiveConfig(setting, configs[setting.name], Source.TOPIC)
    value = _default(setting, broker)
    if setting.name == MIN_ISR:
        source = Source.DYNAMIC_DEFAULT_BROKER
    elif any(is_given(field, broker) for field in setting.broker_fields):
        source = Source.STATIC_BROKER
    else:
        source = Source.DEFAULT
    return EffectiveConfig(setting, render_value(value) or "", source)


def is_given(field: str, broker: BrokerConfig) -> bool:
    """Whether an operator set this to something else than the default; the same value again does not count."""
    return bool(getattr(broker, field) != broker_settings()[field].default)


def typed(name: str, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """The value in force of one setting.

    What a topic was given has been checked when it was made. A text that means nothing all the same, from an older
    release or written by hand, counts as not given.
    """
    setting = TOPIC_SETTINGS[name]
    if name in configs:
        try:
            value = parse_value(setting.kind, configs[name])
        except BadValue:
            return _default(setting, broker)
        # `offsets.topic.segment.bytes` goes lower than what a client may ask for.
        is_small_segment = name == "segment.bytes" and isinstance(value, int) and value > 0
        if is_small_segment or _value_problem(setting, value) is None:
            return value
    return _default(setting, broker)


def _default(setting: TopicSetting, broker: BrokerConfig) -> Value:
    return setting.default if setting.broker_value is None else setting.broker_value(broker)
