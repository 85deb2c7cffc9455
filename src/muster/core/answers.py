"""What clients are told, before any version of the protocol has shaped it."""

from typing import NamedTuple

from muster.codec.error_codes import ErrorCode

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
    """Errors in the order of the request's partitions; None where there is none at all, which is nearly always."""

    errors: tuple[ErrorCode, ...] | None = None


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
