"""`Outcome`: what a coordinator asks of the server: writes, timers, replies, notices, markers.

A write is a decision that the log has to take first. The shell appends its records and tells the coordinator how that
went: `appended` replays them and lets follow what the decision was about; `refused` means that nothing was written, and
the clients hear Kafka's error for it. It does so for the writes of one event before it handles the next, because every
decision is made on what the log has taken so far; making them durable can wait for the end of the turn. Answers in
`replies` of an `Outcome` may go as soon as everything appended before them is durable. Where that is not so within
`offsets.commit.timeout.ms`, they go as `events.timed_out` has them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from muster.core.events import (
    CommitAnswer,
    DeleteGroup,
    Instant,
    JoinGroup,
    OffsetCommit,
    OffsetDelete,
    TimerKey,
    TxnOffsetCommit,
)
from muster.core.groups import NO_PRODUCER, DecidedCommit, Group
from muster.core.seats import Member
from muster.core.states import Cause
from muster.core.transactions.writes import TransactionWrite, WriteMarkers


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

    key: TimerKey
    deadline_ms: int


class CancelTimer(NamedTuple):
    key: TimerKey


class Created(NamedTuple):
    """A group begins with a record of an empty one, as Kafka's does since 4.0; then the join goes on."""

    request: JoinGroup
    now: Instant


class Assigned(NamedTuple):
    """The leader has sent the assignment of a generation."""

    group: Group
    generation: int
    assignments: dict[str, bytes]
    now: Instant


class Renamed(NamedTuple):
    """A static member restarted in a Stable group: its successor has its seat, under a new id."""

    group: Group
    member: Member
    member_id: str
    request: JoinGroup
    now: Instant


class Emptied(NamedTuple):
    """The last member is gone."""


class Deleted(NamedTuple):
    """Offsets are deleted or expired, and with `group` the group itself.

    Half of the tombstones do no harm without the rest: a write that the log has no room for becomes several.
    """

    group: Group | None = None
    notices: tuple[Notice, ...] = ()
    event: OffsetDelete | DeleteGroup | None = None
    """Whom to answer, if a client asked."""
    answer: Any = None


Decision = Created | Assigned | Renamed | Emptied | Deleted


@dataclass(slots=True)
class Write:
    """Records to append as one, and the decision that they are the record of: `Coordinator` knows what follows."""

    records: list[tuple[bytes, bytes | None]]
    decision: Decision
    producer_id: ClassVar[int] = NO_PRODUCER
    producer_epoch: ClassVar[int] = -1

    @property
    def may_be_split(self) -> bool:
        return isinstance(self.decision, Deleted)

    @property
    def event(self) -> JoinGroup | OffsetDelete | DeleteGroup | None:
        """The request that is answered when this is taken or refused, if that is so."""
        match self.decision:
            case Created() | Renamed():
                return self.decision.request
            case Deleted():
                return self.decision.event
            case _:
                return None


@dataclass(slots=True)
class CommitWrite:
    """A write of the hot path: the offsets of one commit, which is then answered. Its records are plain tuples."""

    records: list[tuple[bytes, bytes | None]]
    event: OffsetCommit | TxnOffsetCommit
    answer: CommitAnswer
    commits: list[DecidedCommit]
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1


AnyWrite = Write | CommitWrite | TransactionWrite
"""A coordinator of groups or one of transactions decides on it, and gets back its own."""


@dataclass(slots=True)
class Outcome:
    """What the shell does next: append the writes in order, arm timers, reply, tell the operator. One per event.

    The markers are written when everything that was appended before them is safe, like the replies.
    """

    writes: list[AnyWrite] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    replies: list[tuple[Any, Any]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)
