"""The states of a transaction: where each may lead, and what a request hears in each.

Both are data. Every decision asks `LEGAL_MOVES`; replay does not, because a compacted log leaves states out. `RULES`
says what each request hears in each state: the decisions about EndTxn look it up (`served`), and
`tests/core/transactions/test_states.py` puts every request to a transaction in every state and compares. The diagram
and the table in docs/architecture.md are drawn from here.
"""

from enum import IntEnum, StrEnum
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode


class TransactionState(IntEnum):
    """The number goes into the log. Kafka has two more, which its log never has: 6 (Dead) and 7 (PrepareEpochFence)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """As it goes over the wire."""
        return KAFKA_NAMES[self]


KAFKA_NAMES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"
)  # fmt: skip
"""By number, those that are no states here included: a client may ask for transactions in them, and hears of none."""

_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState

LEGAL_MOVES: dict[TransactionState, tuple[TransactionState, ...]] = {
    _EMPTY: (_EMPTY, _ONGOING, _PREPARE_ABORT),
    _ONGOING: (_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT),
    _PREPARE_COMMIT: (_COMPLETE_COMMIT,),
    _PREPARE_ABORT: (_COMPLETE_ABORT,),
    _COMPLETE_COMMIT: (_EMPTY, _ONGOING, _PREPARE_ABORT),
    _COMPLETE_ABORT: (_EMPTY, _ONGOING, _PREPARE_ABORT),
}
"""From where to where; anything else is a bug. Expiration forgets what is Empty or complete."""


class IllegalMove(AssertionError):
    """A state was left for one that cannot follow it."""


PREPARED = (_PREPARE_COMMIT, _PREPARE_ABORT)
AT_REST = (_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT)


class Served(StrEnum):
    """How a request is served that no error stops. Events of the shell have no answer."""

    AT_ONCE = "answered"
    WRITTEN = "written, then answered"
    ENDS = "decided, answered; markers follow"
    ABORTS = "aborted, `CONCURRENT_TRANSACTIONS`"
    COMPLETES = "written"
    TIMES_OUT = "decided; markers follow"
    FORGOTTEN = "forgotten"
    NOTHING = "nothing"


class Rule(NamedTuple):
    """What one kind of request hears: from whom, of a transactional id that is not known, and in each state."""

    request: str
    who: str
    unknown: ErrorCode | Served
    empty: ErrorCode | Served
    ongoing: ErrorCode | Served
    prepare_commit: ErrorCode | Served
    prepare_abort: ErrorCode | Served
    complete_commit: ErrorCode | Served
    complete_abort: ErrorCode | Served

    def by_state(self) -> dict[TransactionState | None, ErrorCode | Served]:
        return dict(zip((None, *TransactionState), self[2:], strict=True))


INIT, ADD, VERIFY = "InitProducerId", "AddPartitions", "AddPartitions, to verify"
COMMIT, ABORT, COMMIT_2, ABORT_2 = "EndTxn 0-4, commit", "EndTxn 0-4, abort", "EndTxn 5, commit", "EndTxn 5, abort"
DESCRIBE, MARKERS, TIME_OUT, EXPIRE = (
    "DescribeTransaction", "MarkersWritten", "AbortTimedOut", "ExpireTransactionalIds"
)  # fmt: skip
NEW, PRODUCER, AGAIN, FENCED_PRODUCER = "a new producer", "the producer", "the producer, again", "a fenced producer"
ANY_CLIENT, SHELL = "any client", "the shell"

_AT_ONCE, _WRITTEN, _ENDS, _ABORTS, _COMPLETES, _TIMES_OUT, _FORGOTTEN, _NOTHING = Served
_UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_FENCED = ErrorCode.PRODUCER_FENCED
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE
_NOT_ADDED = ErrorCode.TRANSACTION_ABORTABLE
_NOT_FOUND = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

RULES: tuple[Rule, ...] = (
    Rule(INIT, NEW, _WRITTEN, _WRITTEN, _ABORTS, _CONCURRENT, _CONCURRENT, _WRITTEN, _WRITTEN),
    Rule(INIT, PRODUCER, _WRITTEN, _WRITTEN, _ABORTS, _CONCURRENT, _CONCURRENT, _WRITTEN, _WRITTEN),
    Rule(INIT, FENCED_PRODUCER, _WRITTEN, _FENCED, _ABORTS, _CONCURRENT, _CONCURRENT, _FENCED, _FENCED),
    Rule(ADD, PRODUCER, _UNKNOWN, _WRITTEN, _WRITTEN, _CONCURRENT, _CONCURRENT, _WRITTEN, _WRITTEN),
    Rule(ADD, FENCED_PRODUCER, _UNKNOWN, _FENCED, _FENCED, _CONCURRENT, _CONCURRENT, _FENCED, _FENCED),
    Rule(VERIFY, PRODUCER, _UNKNOWN, _NOT_ADDED, _NOT_ADDED, _CONCURRENT, _CONCURRENT, _NOT_ADDED, _NOT_ADDED),
    Rule(VERIFY, FENCED_PRODUCER, _UNKNOWN, _FENCED, _FENCED, _FENCED, _FENCED, _FENCED, _FENCED),
    Rule(COMMIT, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _AT_ONCE, _INVALID),
    Rule(ABORT, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _INVALID, _AT_ONCE),
    Rule(COMMIT, FENCED_PRODUCER, _UNKNOWN, _FENCED, _FENCED, _FENCED, _FENCED, _FENCED, _FENCED),
    Rule(COMMIT_2, PRODUCER, _UNKNOWN, _INVALID, _ENDS, _CONCURRENT, _CONCURRENT, _INVALID, _INVALID),
    Rule(ABORT_2, PRODUCER, _UNKNOWN, _ENDS, _ENDS, _CONCURRENT, _CONCURRENT, _ENDS, _ENDS),
    Rule(COMMIT_2, AGAIN, _UNKNOWN, _FENCED, _FENCED, _CONCURRENT, _CONCURRENT, _AT_ONCE, _INVALID),
    Rule(ABORT_2, AGAIN, _UNKNOWN, _FENCED, _FENCED, _CONCURRENT, _CONCURRENT, _INVALID, _AT_ONCE),
    Rule(COMMIT_2, FENCED_PRODUCER, _UNKNOWN, _FENCED, _FENCED, _CONCURRENT, _CONCURRENT, _FENCED, _FENCED),
    Rule(DESCRIBE, ANY_CLIENT, _NOT_FOUND, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE),
    Rule(MARKERS, SHELL, _NOTHING, _NOTHING, _NOTHING, _COMPLETES, _COMPLETES, _NOTHING, _NOTHING),
    Rule(TIME_OUT, SHELL, _NOTHING, _NOTHING, _TIMES_OUT, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
    Rule(EXPIRE, SHELL, _NOTHING, _FORGOTTEN, _NOTHING, _NOTHING, _NOTHING, _FORGOTTEN, _FORGOTTEN),
)
"""A fenced producer has the producer id and an epoch of long ago. One that asks again (EndTxn 5) has the epoch before
the bump. To verify is asked of a partition that was not added. The transaction is past its timeout, the id past its
expiration, and the markers are those of this transaction."""

_BY_REQUEST = {(rule.request, rule.who): rule.by_state() for rule in RULES}


def served(request: str, who: str, state: TransactionState) -> ErrorCode | Served:
    """A cell of the table."""
    return _BY_REQUEST[request, who][state]
