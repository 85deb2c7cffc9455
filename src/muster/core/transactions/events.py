"""Events that a transaction coordinator handles, its answers, and which error a client of which version hears.

As for the groups, requests carry `reply_to`, which the coordinator only hands back, and ids that must be fresh arrive
with the event. A fresh producer id is needed in two cases: the transactional id is new, or its epoch `is_used_up`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

LAST_EPOCH = 2**15 - 1
NO_DURATION = -1
_NO_VERSION = 2**15


def is_used_up(producer_epoch: int) -> bool:
    """Whether the next bump of an epoch takes a new producer id. The last epoch is never given to a client: it is left
    for fencing the one that has the last but one."""
    return producer_epoch >= LAST_EPOCH - 1


@dataclass(slots=True)
class InitProducerId:
    """`producer_id` and `producer_epoch` are those of a producer that goes on after an error, or both -1."""

    reply_to: Any
    transactional_id: str
    timeout_ms: int
    fresh_producer_id: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    version: int = 5
    is_two_phase: bool = False
    keeps_prepared: bool = False


class Asker(StrEnum):
    """Whose request names the partitions of a transaction."""

    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    PRODUCE = "Produce"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"


@dataclass(slots=True)
class AddPartitions:
    """Partitions that a producer is about to write to, a partition of the offsets topic among them.

    `verify_only` adds nothing: it asks whether they were added before.
    """

    reply_to: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    asker: Asker
    version: int
    verify_only: bool = False


@dataclass(slots=True)
class EndTxn:
    """`fresh_producer_id` is needed where `producer_epoch` is used up."""

    reply_to: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int
    fresh_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class MarkersWritten:
    """Every partition of a `WriteMarkers` has its marker, safely.

    Told once, and only to the coordinator that asked for it: two ends of the older flow look alike.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class DescribeTransaction:
    reply_to: Any
    transactional_id: str


@dataclass(slots=True)
class ListTransactions:
    """An empty filter lets all pass. A pattern of ids is matched by the shell."""

    reply_to: Any
    states: tuple[str, ...] = ()
    producer_ids: frozenset[int] = frozenset()
    min_duration_ms: int = NO_DURATION


@dataclass(slots=True)
class AbortTimedOut:
    """A transaction that `TransactionCoordinator.timed_out` named: it is looked at again, and aborted."""

    transactional_id: str
    fresh_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class ExpireTransactionalIds:
    """Time to forget the transactional ids that were not used for long."""


Request = InitProducerId | AddPartitions | EndTxn | DescribeTransaction | ListTransactions
Event = Request | MarkersWritten | AbortTimedOut | ExpireTransactionalIds


# Answers. On an error the rest of them has these defaults.


class InitAnswer(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class AddAnswer(NamedTuple):
    """`error` is that of every partition, unless `errors` has one for each, in the order of the request."""

    error: ErrorCode
    errors: tuple[ErrorCode, ...] | None = None

    def of_each(self, event: AddPartitions) -> tuple[ErrorCode, ...]:
        return (self.error,) * len(event.partitions) if self.errors is None else self.errors


class EndAnswer(NamedTuple):
    """Producer id and epoch to go on with, for a client of transactions version 2; -1 for others."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class DescribedTransaction(NamedTuple):
    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsAnswer(NamedTuple):
    error: ErrorCode
    unknown_states: tuple[str, ...] = ()
    """Names among the filters that are no states."""
    transactions: tuple[ListedTransaction, ...] = ()


# Which error a client hears.

_FIRST_WITH_FENCED: dict[str, int] = {"InitProducerId": 4, "EndTxn": 2, Asker.ADD_PARTITIONS: 2, Asker.ADD_OFFSETS: 2}
"""The first version of each request whose clients know PRODUCER_FENCED; before, and for all that write records or
offsets, it is INVALID_PRODUCER_EPOCH."""
_FIRST_WITH_ABORTABLE: dict[str, int] = {Asker.PRODUCE: 11, Asker.TXN_OFFSET_COMMIT: 4}
"""The first version of each request whose clients know TRANSACTION_ABORTABLE; before, it is INVALID_TXN_STATE."""

_LOG_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def log_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when the log refused the record of its transaction."""
    return _LOG_ERRORS.get(error, error)


def known_to_client(event: InitProducerId | AddPartitions | EndTxn, error: ErrorCode) -> ErrorCode:
    """The error as the version of the request has it."""
    asker = event.asker if isinstance(event, AddPartitions) else type(event).__name__
    if error is ErrorCode.PRODUCER_FENCED and event.version < _FIRST_WITH_FENCED.get(asker, _NO_VERSION):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and event.version < _FIRST_WITH_ABORTABLE.get(asker, 0):
        return ErrorCode.INVALID_TXN_STATE
    return error


def refusal(event: Request, error: ErrorCode) -> Any:
    """The answer to a request that fails as a whole."""
    match event:
        case InitProducerId():
            return InitAnswer(known_to_client(event, error))
        case AddPartitions():
            return AddAnswer(known_to_client(event, error))
        case EndTxn():
            return EndAnswer(known_to_client(event, error))
        case DescribeTransaction():
            return DescribedTransaction(error)
        case ListTransactions():
            return ListTransactionsAnswer(error)
