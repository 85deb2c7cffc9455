"""Everything that can happen to a coordinator.

Requests carry `reply_to`, whatever the shell needs to find the client again; the coordinator only hands it back. Ids
that must be fresh arrive with the event, because the core makes nothing up. Plain slotted classes: one is made for
every request, and a frozen one costs five times as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode


class Instant(NamedTuple):
    """Two clocks: the monotonic one for sessions and deadlines, the wall for what is written down."""

    monotonic_ms: int
    wall_ms: int


@dataclass(slots=True)
class JoinGroup:
    reply_to: Any
    version: int
    group_id: str
    member_id: str
    fresh_uuid: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class SyncGroup:
    reply_to: Any
    group_id: str
    generation: int
    member_id: str
    assignments: dict[str, bytes] = field(default_factory=dict)
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    version: int = 5


@dataclass(slots=True)
class Heartbeat:
    reply_to: Any
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class LeaveGroup:
    reply_to: Any
    group_id: str
    members: tuple[Leaver, ...]


class CommittedPartition(NamedTuple):
    """One partition of a commit; `topic_id` is 16 zero bytes where none is known."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = bytes(16)


@dataclass(slots=True)
class OffsetCommit:
    reply_to: Any
    group_id: str
    generation: int
    member_id: str
    partitions: tuple[CommittedPartition, ...]
    instance_id: str | None = None
    retention_ms: int = -1
    version: int = 9


@dataclass(slots=True)
class TxnOffsetCommit:
    reply_to: Any
    group_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[CommittedPartition, ...]
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    verification_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class EndTransaction:
    """A marker was written to this partition of the offsets topic."""

    producer_id: int
    producer_epoch: int
    commit: bool


@dataclass(slots=True)
class OffsetFetch:
    """`partitions` None asks for all of them."""

    reply_to: Any
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None = None
    require_stable: bool = False
    topic_ids: dict[str, bytes] | None = None


@dataclass(slots=True)
class OffsetDelete:
    reply_to: Any
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class DescribeGroup:
    reply_to: Any
    group_id: str
    version: int = 6


@dataclass(slots=True)
class ListGroups:
    reply_to: Any
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(slots=True)
class DeleteGroup:
    reply_to: Any
    group_id: str


@dataclass(slots=True)
class TopicsDeleted:
    """Topics, or single partitions of them, have gone from the cluster."""

    partitions: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class ExpireOffsets:
    """Time for the expiration job: for all groups, or for some, where a shell looks at a few at a time."""

    group_ids: Sequence[str] | None = None


class TimerKind(StrEnum):
    """What a timer is for: the end of joining, of syncing, of a member's session, of an id that was handed out."""

    JOIN = "join"
    SYNC = "sync"
    SESSION = "session"
    PENDING = "pending"


class TimerKey(NamedTuple):
    """Which timer. Those of a whole group name no member."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(slots=True)
class TimerFired:
    """A timer of ours; a late or early one is harmless, because the core looks at the time before it acts."""

    key: TimerKey


Event = (
    JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | TxnOffsetCommit | EndTransaction | OffsetFetch
    | OffsetDelete | DescribeGroup | ListGroups | DeleteGroup | TopicsDeleted | ExpireOffsets | TimerFired
)  # fmt: skip
