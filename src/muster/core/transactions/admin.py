"""Questions about the transactions of one partition."""

from muster.codec.error_codes import ErrorCode
from muster.core.events import Instant
from muster.core.outcome import Outcome, Reply
from muster.core.transactions.events import (
    DescribedTransaction,
    DescribeTransaction,
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
)
from muster.core.transactions.states import KAFKA_NAMES
from muster.core.transactions.transactions import Transaction


class TransactionAdmin:
    """Tells what there is, and changes nothing."""

    def __init__(self, transactions: dict[str, Transaction]) -> None:
        self._transactions = transactions

    def describe(self, event: DescribeTransaction, now: Instant, out: Outcome) -> None:
        transaction = self._transactions.get(event.transactional_id)
        if transaction is not None:
            answer = _described(transaction)
        else:
            is_named = bool(event.transactional_id)
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_named else ErrorCode.INVALID_REQUEST
            answer = DescribedTransaction(error)
        out.replies.append(Reply(event.reply_to, answer))

    def list_transactions(self, event: ListTransactions, now: Instant, out: Outcome) -> None:
        """All that pass every filter. A duration counts from the begin, and for what has not begun it is endless."""
        states = frozenset(event.states)
        listed = [
            ListedTransaction(each.transactional_id, each.producer_id, each.state.kafka_name)
            for each in self._transactions.values()
            if _passes(event, states, each, now.wall_ms)
        ]
        unknown = tuple(dict.fromkeys(name for name in event.states if name not in KAFKA_NAMES))
        out.replies.append(Reply(event.reply_to, ListTransactionsAnswer(ErrorCode.NONE, unknown, tuple(listed))))


def _described(transaction: Transaction) -> DescribedTransaction:
    record = transaction.record
    return DescribedTransaction(
        ErrorCode.NONE,
        transaction.state.kafka_name,
        record.timeout_ms,
        record.start_ms,
        record.producer_id,
        record.producer_epoch,
        record.partitions,
    )


def _passes(event: ListTransactions, states: frozenset[str], transaction: Transaction, wall_ms: int) -> bool:
    if event.producer_ids and transaction.producer_id not in event.producer_ids:
        return False
    if states and transaction.state.kafka_name not in states:
        return False
    return event.min_duration_ms < 0 or not wall_ms - transaction.record.start_ms <= event.min_duration_ms
