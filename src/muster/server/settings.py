"""From names and values, as they stand in a file or on a command line, to settings.

    settings = settings_from([*parse_properties(text), ("num.partitions", "4")])
    settings.groups, settings.broker      the coordinator's and the broker's
    settings.ignored                      what was not understood, each with a sentence to warn with

Of two values for a name the later one counts. A value that cannot be is a `ConfigError`. A name that is not known is no
error, as it is none for Kafka: files are shared between versions, and carry settings for what is plugged into a broker.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from muster.config.broker import BrokerConfig, broker_settings
from muster.config.kafka_names import KAFKA_NAMES, KAFKA_PREFIXES
from muster.config.types import BadValue, ConfigType, Value, parse_value
from muster.core.config import GroupConfig
from muster.errors import ConfigError

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Other names of a setting; the one on the right counts where both are there."""

_LIKE_ENOUGH = 0.8
_TYPE_WORDS = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
}
GROUP_LONGS = frozenset({"offsets.retention.check.interval.ms"})
"""Those settings of the coordinator's that Kafka keeps in 64 bits."""


class Ignored(NamedTuple):
    """A name that was given and not used."""

    name: str
    is_kafkas: bool
    suggestion: str | None
    reason: str | None = None
    """Why its value is not used, of a setting that muster has."""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name} {self.reason}"
        if self.is_kafkas:
            return f"{self.name} is a setting of Kafka's that muster has no use for; it is ignored."
        hint = f" Did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.name} is not a setting of muster or Kafka; it is ignored.{hint}"


class Settings(NamedTuple):
    groups: GroupConfig
    broker: BrokerConfig
    ignored: tuple[Ignored, ...]


def settings_from(pairs: Iterable[tuple[str, str]] | Mapping[str, str]) -> Settings:
    """Read settings; what is not given has its default. Raises `ConfigError`."""
    given = dict(pairs)
    for alias, name in ALIASES.items():
        if alias in given:
            text = given.pop(alias)
            given.setdefault(name, text)
    groups: dict[str, Any] = {}
    broker: dict[str, Any] = {}
    ignored = []
    for name, text in given.items():
        if name in group_kinds():
            groups[GroupConfig.names()[name]] = _value(name, group_kinds()[name], text)
        elif name in BrokerConfig.names():
            field = BrokerConfig.names()[name]
            broker[field] = _value(name, broker_settings()[field].kind, text)
        else:
            ignored.append(_ignored(name))
    replicas = broker.get("default_replication_factor", 1)
    if replicas > 1:
        reason = (
            f"is {replicas}; it is ignored: this is one node, so topics made without saying how many have 1 replica."
        )
        ignored.append(Ignored("default.replication.factor", is_kafkas=True, suggestion=None, reason=reason))
        broker["default_replication_factor"] = 1
    return Settings(GroupConfig(**groups), BrokerConfig(**broker), tuple(ignored))


def unused(name: str) -> Ignored | None:
    """What would be said of a name that is not used; None for one that is."""
    return None if ALIASES.get(name, name) in {*group_kinds(), *BrokerConfig.names()} else _ignored(name)


@cache
def group_kinds() -> dict[str, ConfigType]:
    """The settings of the coordinator, and Kafka's type of each."""
    kinds = {}
    for field in fields(GroupConfig):
        name = field.name.replace("_", ".")
        is_number = isinstance(field.default, int)
        kinds[name] = ConfigType.LONG if name in GROUP_LONGS else ConfigType.INT if is_number else ConfigType.STRING
    return kinds


def _value(name: str, kind: ConfigType, text: str) -> Value:
    try:
        return parse_value(kind, text)
    except BadValue:
        raise ConfigError(f"{name} is {text[:80]!r}; it must be {_TYPE_WORDS[kind]}.") from None


def _ignored(name: str) -> Ignored:
    if name in KAFKA_NAMES or name.startswith(KAFKA_PREFIXES):
        return Ignored(name, is_kafkas=True, suggestion=None)
    # What muster has before what it only knows of: a suggestion that is then ignored too would be a poor one.
    for known in (sorted({*group_kinds(), *BrokerConfig.names()}), sorted(KAFKA_NAMES)):
        close = difflib.get_close_matches(name[:200].lower(), known, n=1, cutoff=_LIKE_ENOUGH)
        if close:
            return Ignored(name, is_kafkas=False, suggestion=close[0])
    return Ignored(name, is_kafkas=False, suggestion=None)
