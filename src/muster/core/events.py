"""Events that a coordinator handles, its answers, and the error answers when a request fails as a whole.

Requests carry `reply_to`, whatever the shell needs to find the client again; the coordinator only hands it back. The
shell sets it as it hands an event over, because a request that a client repeats is one event, made once. Ids that must
be fresh arrive with the event, because the core makes nothing up. Plain slotted classes: one is made for
every request, and a frozen one costs five times as much. Answers are named tuples. Which error a client hears where the
log refuses a write, or a request fails as a whole, is at the end.
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


# Answers.

NO_GENERATION = -1


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """On an error all but `member_id` have these defaults; protocol None is "" before version 7."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class LeaveResult(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveAnswer(NamedTuple):
    error: ErrorCode
    members: tuple[LeaveResult, ...] = ()


class PartitionError(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


class CommitAnswer(NamedTuple):
    """Errors in the order of the request's partitions, or one for all; None where there is none, nearly always."""

    errors: tuple[ErrorCode, ...] | ErrorCode | None = None


ALL_COMMITTED = CommitAnswer()


class FetchedOffset(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class FetchAnswer(NamedTuple):
    error: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()


class OffsetDeleteAnswer(NamedTuple):
    error: ErrorCode
    partitions: tuple[PartitionError, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeAnswer(NamedTuple):
    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class ListAnswer(NamedTuple):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


# When a request fails as a whole: the log refused a write, or the partition is not served here.

_GROUP_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
# The log does not say 13 of itself: it is how the check of a transaction fails when its coordinator cannot be reached.
_COMMIT_ERRORS = {**_GROUP_ERRORS, ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def group_error(error: ErrorCode) -> ErrorCode:
    """What a joining or syncing member is told when the group record could not be written."""
    return _GROUP_ERRORS.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """The same for commits, for the check of a transaction before them, and for deletions."""
    return _COMMIT_ERRORS.get(error, error)


def refusal(event: Event, error: ErrorCode) -> Any:
    """The answer to a request that fails as a whole."""
    match event:
        case JoinGroup():
            return JoinAnswer(error, "")
        case SyncGroup():
            return SyncAnswer(error)
        case LeaveGroup():
            return LeaveAnswer(error)
        case OffsetCommit() | TxnOffsetCommit():
            return CommitAnswer((error,) * len(event.partitions))
        case OffsetFetch():
            return FetchAnswer(error)
        case OffsetDelete():
            return OffsetDeleteAnswer(error)
        case DescribeGroup():
            return DescribeAnswer(error)
        case ListGroups():
            return ListAnswer(error)
        case Heartbeat() | DeleteGroup():
            return error
        case _:
            raise AssertionError(f"{type(event).__name__} is not a request")


def failed(answer: Any, error: ErrorCode) -> Any:
    """What goes out instead of an answer that was made and must not go out: one of its kind, with an error."""
    match answer:
        case ErrorCode():
            return error
        case JoinAnswer():
            return JoinAnswer(error, "")
        case _:
            return type(answer)(error)


def timed_out(answer: Any) -> Any:
    """What goes out instead of an answer whose writes are not durable in time.

    Nothing is undone: the records are in the log and will very likely stay there. The client is told to ask again, and
    finds what it asked for done.
    """
    if isinstance(answer, JoinAnswer | SyncAnswer):
        if answer.error is not ErrorCode.NONE:
            return answer
        return failed(answer, group_error(ErrorCode.REQUEST_TIMED_OUT))
    return failed(answer, commit_error(ErrorCode.REQUEST_TIMED_OUT))
