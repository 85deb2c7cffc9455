"""What the server counts while it works, cheaply; `metrics.py` shows it to Prometheus when somebody asks."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from muster.core.outcome import Notice, NoticeKind
from muster.core.states import Cause

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


@dataclass(slots=True)
class Latency:
    """Counts by upper bound; the last is for everything above."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    @property
    def count(self) -> int:
        return sum(self.buckets)


class Stats:
    def __init__(self) -> None:
        self.requests: dict[int, Latency] = {}
        """By API key, from the first byte handled to the answer made; parked ones included."""
        self.flush = Latency()
        self.commits = 0
        self.rebalances: Counter[Cause] = Counter()
        self.expired_offsets = 0
        self.deleted_offsets = 0
        self.removed_groups = 0
        self.expired_members = 0
        self.connections = 0
        self.refused_connections = 0
        self.bad_requests = 0
        self.faults = 0
        self.compactions = 0
        self.compacted_bytes = 0
        self.compaction_s = 0.0

    def request(self, api_key: int, seconds: float, count: int = 1) -> None:
        latency = self.requests.get(api_key)
        if latency is None:
            latency = self.requests[api_key] = Latency()
        latency.observe(seconds, count)

    def note(self, notice: Notice) -> None:
        match notice.kind:
            case NoticeKind.STABLE:
                self.rebalances[notice.cause] += 1
            case NoticeKind.OFFSETS_EXPIRED:
                self.expired_offsets += notice.size
            case NoticeKind.OFFSETS_DELETED:
                self.deleted_offsets += notice.size
            case NoticeKind.REMOVED:
                self.removed_groups += 1
            case NoticeKind.EXPIRED:
                self.expired_members += 1
