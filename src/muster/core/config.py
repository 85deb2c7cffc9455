"""Settings of the coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass, fields

from muster.errors import ConfigError

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that never completed a join is dropped after this; a constant in Kafka too."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What an operator may set. Field names are Kafka's, dots as underscores."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    inter_broker_protocol_version: str | None = None

    def __post_init__(self) -> None:
        for name in ("group_max_size", "offsets_retention_minutes", "offsets_retention_check_interval_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', '.')} is {getattr(self, name)}; it must be at least 1.")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def names(cls) -> dict[str, str]:
        """Kafka's name of each setting, and the field that holds it."""
        return {field.name.replace("_", "."): field.name for field in fields(cls)}
