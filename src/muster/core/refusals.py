"""Which error a client hears: when the log refuses a write, and when the one who asks has no seat."""

from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core.answers import (
    CommitAnswer,
    DescribeAnswer,
    FetchAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    OffsetDeleteAnswer,
    SyncAnswer,
)
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
from muster.core.group import Group

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


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE for one who sits where it says; a static member whose seat went to a successor is fenced."""
    if instance_id is not None:
        seated = group.static_members.get(instance_id)
        if seated is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if seated != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


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


def timed_out(event: Event, answer: Any) -> Any:
    """What goes out instead of an answer whose writes are not durable in time.

    Nothing is undone: the records are in the log and will very likely stay there. The client is told to ask again, and
    finds what it asked for done.
    """
    if isinstance(event, JoinGroup | SyncGroup):
        if answer.error is not ErrorCode.NONE:
            return answer
        return refusal(event, group_error(ErrorCode.REQUEST_TIMED_OUT))
    return refusal(event, commit_error(ErrorCode.REQUEST_TIMED_OUT))
