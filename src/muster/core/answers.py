"""What clients are told, before any version of the protocol has shaped it; and which error, where something fails."""

from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)

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
