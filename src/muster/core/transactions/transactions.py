"""`Transaction`: what the log says of one transactional id. `TransactionTable`: all those of one partition.

A transaction is its last record, and nothing else. It never changes: another takes its place in
`TransactionTable.replay`. That is given what is in the log, record by record when the log is read, and again for each
record that the coordinator has just had appended. Each `Transaction` says which record may follow it (`initialised`,
`with_partitions`, `prepared`, `completed`); whether one does is decided in `coordinator.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from muster.codec.batches import ReadBatch
from muster.codec.transaction_log import (
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionKey,
    TransactionValue,
    UnknownTransactionKey,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from muster.core.groups import NO_PRODUCER, LoadReport, Progress, replay_all
from muster.core.transactions.events import is_used_up
from muster.core.transactions.states import AT_REST, LEGAL_MOVES, IllegalMove, TransactionState
from muster.errors import Malformed

BUMPS_AT_END = 2
"""The version of transactions with which every end bumps the epoch (KIP-890)."""
OLDEST_VERSION = 0
NOT_BEGUN = -1

_STATES = {int(state): state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class Transaction:
    """The last record of a transactional id; its names and numbers are those of the record."""

    transactional_id: str
    record: TransactionValue

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int) -> "Transaction":
        """The first record of a transactional id."""
        record = TransactionValue(
            producer_id, 0, timeout_ms, TransactionState.EMPTY, update_ms=wall_ms, previous_producer_id=producer_id
        )
        return cls(transactional_id, record)

    @property
    def state(self) -> TransactionState:
        return _STATES[self.record.status]

    @property
    def producer_id(self) -> int:
        return self.record.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.record.producer_epoch

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return self.record.partitions

    @property
    def is_used_up(self) -> bool:
        return is_used_up(self.record.producer_epoch)

    @property
    def encoded(self) -> tuple[bytes, bytes]:
        """As it goes into the log."""
        return encode_transaction_key(TransactionKey(self.transactional_id)), encode_transaction_value(self.record)

    def initialised(self, producer_id: int, producer_epoch: int, timeout_ms: int, wall_ms: int) -> "Transaction":
        """A producer begins, or goes on after an error."""
        return self._moved(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            update_ms=wall_ms,
            start_ms=NOT_BEGUN,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, wall_ms: int) -> "Transaction":
        """The producer is about to write to these as well; the first ones begin the transaction."""
        return self._moved(
            TransactionState.ONGOING,
            partitions=tuple(dict.fromkeys((*self.partitions, *partitions))),
            update_ms=wall_ms,
            start_ms=wall_ms if self.state in AT_REST else self.record.start_ms,
            client_version=client_version,
        )

    def prepared(self, commit: bool, client_version: int, fresh_producer_id: int, wall_ms: int) -> "Transaction":
        """The end is decided. Of version 2 the epoch is another from here on; a used-up one takes a new producer id,
        which counts when the markers are written. A transaction that never began may be aborted too."""
        bumps = client_version >= BUMPS_AT_END
        return self._moved(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + bumps,
            next_producer_id=fresh_producer_id if bumps and self.is_used_up else NO_PRODUCER_ID,
            update_ms=wall_ms,
            start_ms=wall_ms if self.state in AT_REST else self.record.start_ms,
            client_version=client_version,
        )

    def completed(self, wall_ms: int) -> "Transaction":
        """Every partition has its marker."""
        record = self.record
        is_committed = self.state is TransactionState.PREPARE_COMMIT
        is_replaced = record.next_producer_id != NO_PRODUCER_ID and record.client_version >= BUMPS_AT_END
        return self._moved(
            TransactionState.COMPLETE_COMMIT if is_committed else TransactionState.COMPLETE_ABORT,
            producer_id=record.next_producer_id if is_replaced else record.producer_id,
            producer_epoch=0 if is_replaced else record.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            update_ms=wall_ms,
        )

    def _moved(self, state: TransactionState, **changes: Any) -> "Transaction":
        if state not in LEGAL_MOVES[self.state]:
            raise IllegalMove(f"{self.transactional_id}: {self.state.name} to {state.name}")
        record = self.record._replace(status=int(state), previous_producer_id=self.producer_id, **changes)
        return Transaction(self.transactional_id, record)


class TransactionTable:
    """All transactional ids of one partition of `__transaction_state`."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.unknown_records = 0

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Let one record of the log count. An unknown kind is stepped over and counted; a bad one raises."""
        raw_key, raw_value = record
        key = decode_transaction_key(raw_key)
        if isinstance(key, UnknownTransactionKey):
            self.unknown_records += 1
        elif raw_value is None:
            self.transactions.pop(key.transactional_id, None)
        else:
            _, value = decode_transaction_value(raw_value)
            if value.status not in _STATES:
                raise Malformed(f"a transaction in state {value.status}")
            self.transactions[key.transactional_id] = Transaction(key.transactional_id, value)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Records of this log are in no transaction."""


def replay_transactions(
    table: TransactionTable, batches: Iterable[ReadBatch], *, strict: bool = False, progress: Progress | None = None
) -> LoadReport:
    """Let every record of these batches count, in log order; raises `LoadFailed`."""
    report = replay_all(table, batches, strict=strict, progress=progress)
    report.transactional_ids = len(table.transactions)
    return report
