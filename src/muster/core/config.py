"""Settings of the coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass, fields

from muster.errors import ConfigError

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A member that never completed a join is dropped after this; a constant in Kafka too."""


_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
_RANGES = {
    "group_min_session_timeout_ms": (0, _MAX_INT),
    "group_max_session_timeout_ms": (0, _MAX_INT),
    "group_initial_rebalance_delay_ms": (0, _MAX_INT),
    "group_max_size": (1, _MAX_INT),
    "offsets_retention_minutes": (1, _MAX_INT),
    "offsets_retention_check_interval_ms": (1, _MAX_LONG),
    "offsets_commit_timeout_ms": (1, _MAX_INT),
    "offsets_commit_required_acks": (-1, 1),
    "offsets_topic_compression_codec": (0, 4),
    "offsets_load_buffer_size": (1, _MAX_INT),
    "muster_max_groups": (1, _MAX_INT),
    "muster_max_members": (1, _MAX_INT),
    "muster_max_pending_offsets": (1, _MAX_INT),
    "muster_max_member_bytes": (1, _MAX_INT),
    "muster_max_group_bytes": (1, _MAX_INT),
    "muster_max_membership_bytes": (1, _MAX_LONG),
}


def _range(least: int, most: int) -> str:
    return f"at least {least}" if most in (_MAX_INT, _MAX_LONG) else f"between {least} and {most}"


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
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    offsets_topic_compression_codec: int = 0
    offsets_load_buffer_size: int = 5_242_880
    inter_broker_protocol_version: str | None = None
    # Kafka has no limit on these; each is for one partition of the offsets topic.
    muster_max_groups: int = 1_000_000
    muster_max_members: int = 1_000_000
    muster_max_pending_offsets: int = 1_000_000
    muster_max_membership_bytes: int = 268_435_456
    # And these for one group and for one member.
    muster_max_group_bytes: int = 67_108_864
    muster_max_member_bytes: int = 4_194_304

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"{name.replace('_', '.')} is {value}; it must be {_range(least, most)}.")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def names(cls) -> dict[str, str]:
        """Kafka's name of each setting, and the field that holds it."""
        return {field.name.replace("_", "."): field.name for field in fields(cls)}
