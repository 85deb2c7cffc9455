"""The states of a classic group: where each may lead, and what a request hears in each.

Both are data. `Seats.move` asks `LEGAL_MOVES` for every move, the one to Dead included. `RULES` says what each
request hears in each state; `SYNC_ERRORS`, `HEARTBEAT_ERRORS`, `COMMIT_ERRORS` and `DELETE_GROUP_ERRORS` are rows of it
that the decisions use, and `tests/core/test_states.py` puts every request to a group in every state and compares. The
diagram and the table in docs/architecture.md are drawn from here.
"""

from enum import StrEnum
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)


class State(StrEnum):
    """Kafka's names, as they go over the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.PREPARING_REBALANCE, State.DEAD),
    State.PREPARING_REBALANCE: (State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE, State.STABLE, State.DEAD),
    State.STABLE: (State.PREPARING_REBALANCE, State.DEAD),
    State.DEAD: (State.DEAD,),
}
"""From where to where; anything else is a bug."""


class IllegalMove(AssertionError):
    """A state was left for one that cannot follow it."""


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


class Served(StrEnum):
    """How a request is served that no error stops."""

    AT_ONCE = "answered"
    WRITTEN = "written, then answered"
    PARKED = "parked"
    REBALANCES = "starts a rebalance, parked"


class Rule(NamedTuple):
    """What one kind of request hears. `who` asks it: a member always names the current generation."""

    who: str
    empty: ErrorCode | Served
    preparing: ErrorCode | Served
    completing: ErrorCode | Served
    stable: ErrorCode | Served
    dead: ErrorCode | Served

    def by_state(self) -> dict[State, ErrorCode | Served]:
        return dict(zip(State, self[1:], strict=True))


_AT_ONCE, _WRITTEN, _PARKED, _REBALANCES = Served
_UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND

NEW_MEMBER, LEADER, MEMBER, NO_MEMBER, ANY_CLIENT = "a new member", "the leader", "a member", "no member", "any client"

RULES: tuple[tuple[type, Rule], ...] = (
    (JoinGroup, Rule(NEW_MEMBER, _REBALANCES, _PARKED, _REBALANCES, _REBALANCES, _NOT_AVAILABLE)),
    (JoinGroup, Rule(LEADER, _UNKNOWN_MEMBER, _PARKED, _AT_ONCE, _REBALANCES, _NOT_AVAILABLE)),
    (JoinGroup, Rule(MEMBER, _UNKNOWN_MEMBER, _PARKED, _AT_ONCE, _AT_ONCE, _NOT_AVAILABLE)),
    (SyncGroup, Rule(LEADER, _UNKNOWN_MEMBER, _REBALANCING, _WRITTEN, _AT_ONCE, _NOT_AVAILABLE)),
    (SyncGroup, Rule(MEMBER, _UNKNOWN_MEMBER, _REBALANCING, _PARKED, _AT_ONCE, _NOT_AVAILABLE)),
    (Heartbeat, Rule(MEMBER, _UNKNOWN_MEMBER, _REBALANCING, _AT_ONCE, _AT_ONCE, _NOT_AVAILABLE)),
    (LeaveGroup, Rule(MEMBER, _UNKNOWN_MEMBER, _AT_ONCE, _AT_ONCE, _AT_ONCE, _NOT_AVAILABLE)),
    (OffsetCommit, Rule(MEMBER, _UNKNOWN_MEMBER, _WRITTEN, _REBALANCING, _WRITTEN, _NOT_AVAILABLE)),
    (OffsetCommit, Rule(NO_MEMBER, _WRITTEN, _UNKNOWN_MEMBER, _UNKNOWN_MEMBER, _UNKNOWN_MEMBER, _NOT_AVAILABLE)),
    (TxnOffsetCommit, Rule(MEMBER, _UNKNOWN_MEMBER, _WRITTEN, _WRITTEN, _WRITTEN, _NOT_AVAILABLE)),
    (TxnOffsetCommit, Rule(NO_MEMBER, _WRITTEN, _WRITTEN, _WRITTEN, _WRITTEN, _NOT_AVAILABLE)),
    (OffsetFetch, Rule(ANY_CLIENT, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE)),
    (OffsetDelete, Rule(ANY_CLIENT, _WRITTEN, _WRITTEN, _WRITTEN, _WRITTEN, _NOT_FOUND)),
    (DescribeGroup, Rule(ANY_CLIENT, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE, _NOT_FOUND)),
    (DeleteGroup, Rule(ANY_CLIENT, _WRITTEN, _NON_EMPTY, _NON_EMPTY, _NON_EMPTY, _NOT_FOUND)),
)
"""Every request about one group, once for each kind of client that may ask it. OffsetDelete is for a group of consumers
and a topic that no member is subscribed to. What is answered for a group that does not exist is in the decisions."""


def _errors(request: type, who: str) -> dict[State, ErrorCode]:
    """A row of the table with NONE where the request is served."""
    (rule,) = [rule for asked, rule in RULES if asked is request and rule.who == who]
    return {
        state: answer if isinstance(answer, ErrorCode) else ErrorCode.NONE for state, answer in rule.by_state().items()
    }


SYNC_ERRORS = _errors(SyncGroup, LEADER)
HEARTBEAT_ERRORS = _errors(Heartbeat, MEMBER)
COMMIT_ERRORS = _errors(OffsetCommit, MEMBER)
DELETE_GROUP_ERRORS = _errors(DeleteGroup, ANY_CLIENT)
