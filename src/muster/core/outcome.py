"""Everything a coordinator can ask of its shell: append, then answer; arm or disarm timers; tell the operator.

A `Write` is a decision that the log has to take first. The shell appends its records and tells the coordinator how that
went, with `appended` (which replays them and may release further answers) or `refused` (nothing was written, and the
clients hear Kafka's error for it). It does so for the writes of one event before it handles the next, because every
decision is made on what the log has taken so far; making them durable can wait for the end of the turn. Answers in
`replies` of an `Outcome` may go as soon as everything appended before them is durable. Where that is not so within
`offsets.commit.timeout.ms`, they go as `refusals.timed_out` has them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode

NO_PRODUCER = -1


class NoticeKind(StrEnum):
    """What an operator may want to know of a group as it happens; clients never hear of it."""

    CREATED = "created"
    JOINED = "joined"
    REPLACED = "replaced"
    LEFT = "left"
    EXPIRED = "expired"
    REBALANCING = "rebalancing"
    STABLE = "stable"
    EMPTY = "empty"
    OFFSETS_EXPIRED = "offsets expired"
    OFFSETS_DELETED = "offsets deleted"
    REMOVED = "removed"
    MIXED_COMMITS = "mixed commits"
    TOO_LARGE = "too large"
    NOT_WRITTEN = "not written"
    """What was decided is not so, because the log refused the record of it; the error is the reason."""


class Cause(StrEnum):
    """Why a rebalance began, or a seat was taken away."""

    NONE = ""
    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member rejoined"
    STATIC_MEMBER_REPLACED = "static member replaced"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    DID_NOT_REJOIN = "did not rejoin in time"
    DID_NOT_SYNC = "did not sync in time"
    TOO_MANY_MEMBERS = "too many members"
    APPEND_REFUSED = "log refused the assignment"
    GROUP_DELETED = "group deleted"
    TOPIC_DELETED = "topic deleted"
    RETENTION = "retention passed"


class Notice(NamedTuple):
    """One line of the operator's log. `size` counts members, offsets or bytes; times and generations where they are."""

    kind: NoticeKind
    group_id: str
    cause: Cause = Cause.NONE
    member_id: str = ""
    reason: str = ""
    """The client's own words."""
    generation: int = -1
    size: int = 0
    duration_ms: int = 0


class OffsetsRecord(NamedTuple):
    """Key and value bytes as they go into the log; value None is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(NamedTuple):
    reply_to: Any
    answer: Any


class SetTimer(NamedTuple):
    """Fire once at this monotonic time; the same key again replaces it."""

    key: tuple[str, ...]
    deadline_ms: int


class CancelTimer(NamedTuple):
    key: tuple[str, ...]


StagedCommit = tuple[tuple[str, int], bytes]
"""What a record of a commit means, so that its replay need not decode what was just encoded: the partition, and the
packed offset, all but its place in the log, which is known once it is appended."""


@dataclass(slots=True)
class Write:
    """Records to append as one, and what to do then. Transactional ones carry their producer.

    Records and replies are plain tuples on the hot path: the constructor of a named one is Python code.
    Either `then` and `otherwise` say what follows; or `event` is answered: with `answer`, or with the log's error.
    Tombstones may be split: a write of many that the log has no room for becomes several, the last of which has what
    follows. `notices` are told once the log has taken the write, so that the operator hears of nothing that is not so.
    """

    records: list[tuple[bytes, bytes | None]]
    then: Callable[["Outcome"], None] | None = None
    otherwise: Callable[[ErrorCode, "Outcome"], None] | None = None
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    event: Any = None
    answer: Any = None
    staged: list[StagedCommit] | None = None
    may_be_split: bool = False
    notices: tuple[Notice, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What the shell does next: append the writes in order, arm timers, reply. One per turn of the loop."""

    writes: list[Write] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    replies: list[tuple[Any, Any]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
