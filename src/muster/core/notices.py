"""What an operator may want to know of a group as it happens; clients never hear of it."""

from enum import StrEnum
from typing import NamedTuple


class What(StrEnum):
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

    what: What
    group_id: str
    cause: Cause = Cause.NONE
    member_id: str = ""
    reason: str = ""
    """The client's own words."""
    generation: int = -1
    size: int = 0
    duration_ms: int = 0
