"""How the exporter itself does: what was answered, when, and how much of it."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Health:
    """How the exporter itself does. Times are of the monotonic clock; None: never yet."""

    is_up: bool = False
    is_cut_short: bool = True
    """Not all was asked in the last round: the cluster did not answer. What some of its brokers do not say is less."""
    read_at: dict[str, float | None] = field(
        default_factory=lambda: dict[str, float | None].fromkeys(("commits", "log_ends", "group_states"))
    )
    """When the oldest value of each kind on the page was asked for."""
    trouble: str | None = None
    """What was not answered in the last round, in a sentence."""
    rounds: int = 0
    failed_rounds: int = 0
    round_s: float | None = None
    records: int = 0
    unreadable: int = 0
    offsets_partitions: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    methods: dict[str, int] = field(default_factory=dict)
    tables_at: float | None = None
    """When the last run of the tables looked at the cluster."""
    tables_at_ms: int | None = None
    """The same by the clock on the wall."""
