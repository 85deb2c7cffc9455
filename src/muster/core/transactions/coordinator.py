"""One partition of `__transaction_state` as a state machine: `handle` decides, `appended` lets count what the log took.

It is made as the groups' one (`core/coordinator.py`): an event and the time go in, an outcome comes out. What the log
says changes in replay alone (`transactions.py`); what each request hears in each state is in `states.py`.

The end of a transaction, in the order that a crash cannot break:

1. EndTxn, a fence or a timeout decides: the outcome is a write of `Prepare*`.
2. The log has taken it: the answer and a `WriteMarkers` follow, which the shell carries out when that record is safe.
3. Every marker is safe: `MarkersWritten` decides on `Complete*`.

A load that finds `Prepare*` goes on at (2): `activate` asks for its markers again.

Producers are told apart by epochs. InitProducerId bumps it, so that an older producer with the same transactional id is
*fenced*: whatever it asks for is refused, by the epoch. Where its transaction is open, that is aborted first, with a
bump, and the new producer hears CONCURRENT_TRANSACTIONS until that is done. With version 2 of transactions every end
bumps the epoch, so that a late batch of one transaction cannot become part of the next.

All state is hard but one number. `_last_epochs` has the epoch before the last bump, where the one who asked for it may
not have heard of it: it may ask again with the old one and gets the same answer. A load forgets them, as in Kafka,
whose log has no place for them either; then such a producer is fenced by its own request and has to begin anew.
"""

from collections.abc import Callable
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionKey,
    TransactionValue,
    encode_transaction_key,
)
from muster.core.events import Instant
from muster.core.outcome import AnyWrite, Outcome, Reply
from muster.core.transactions.admin import TransactionAdmin
from muster.core.transactions.config import TransactionConfig
from muster.core.transactions.events import (
    LAST_EPOCH,
    AbortTimedOut,
    AddAnswer,
    AddPartitions,
    Asker,
    DescribeTransaction,
    EndAnswer,
    EndTxn,
    Event,
    ExpireTransactionalIds,
    InitAnswer,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    Request,
    is_used_up,
    known_to_client,
    log_error,
    refusal,
)
from muster.core.transactions.states import (
    ABORT,
    ABORT_2,
    AGAIN,
    AT_REST,
    COMMIT,
    COMMIT_2,
    PREPARED,
    PRODUCER,
    Served,
    TransactionState,
    served,
)
from muster.core.transactions.transactions import BUMPS_AT_END, OLDEST_VERSION, Transaction, TransactionTable
from muster.core.transactions.writes import Changed, Expired, TransactionWrite, WriteMarkers

MOST_TOMBSTONES = 1_000
"""In one write; a shell has other things to do between two of them."""
ROOM_FOR_END_BYTES = 100
"""What a batch and the fields that only an end has take, besides the key and value of an open transaction: 61 for the
header of a batch, up to 23 around a record, 14 for the next producer id and the version of the client."""
_FIRST_END_THAT_BUMPS = 5
_FIRST_ADD_OF_VERSION_2 = 4
_SERVER_VERSION = BUMPS_AT_END
"""Of transactions; an end that no client asked for is one of this version."""


class TransactionCoordinator:
    """All transactional ids of one partition. `coordinator_epoch` is that of its election; markers carry it."""

    def __init__(self, config: TransactionConfig | None = None, coordinator_epoch: int = 0) -> None:
        self.config = config or TransactionConfig()
        self.coordinator_epoch = coordinator_epoch
        self.table = TransactionTable()
        self.transactions = self.table.transactions
        self._last_epochs: dict[str, int] = {}
        admin = TransactionAdmin(self.transactions)
        self._handlers: dict[type, Callable[[Any, Instant, Outcome], None]] = {
            InitProducerId: self._init,
            AddPartitions: self._add,
            EndTxn: self._end,
            MarkersWritten: self._markers_written,
            DescribeTransaction: admin.describe,
            ListTransactions: admin.list_transactions,
            AbortTimedOut: self._abort_timed_out,
            ExpireTransactionalIds: self._expire,
        }

    def handle(self, event: Event, now: Instant, out: Outcome) -> None:
        """Decide what an event asks for."""
        self._handlers[type(event)](event, now, out)

    # The log.

    def replay(self, record: tuple[bytes, bytes | None], log_offset: int) -> None:
        """Let one record of the log count, before the coordinator is active."""
        self.table.replay(record, log_offset)

    def activate(self, now: Instant, out: Outcome) -> None:
        """The log has been read: ends that were decided are carried out, requests may come."""
        for transaction in self.transactions.values():
            self._go_on(transaction, out)

    def unload(self, out: Outcome) -> tuple[int, int]:
        """The partition moves elsewhere. Nothing is written; returns how many transactional ids were let go."""
        let_go = len(self.transactions)
        self.transactions.clear()
        self._last_epochs.clear()
        return let_go, 0

    def hard_state(self) -> dict[str, TransactionValue]:
        """What the log alone explains, for comparison with a replay of it."""
        return {transactional_id: each.record for transactional_id, each in self.transactions.items()}

    def appended(self, write: AnyWrite, base_offset: int, out: Outcome) -> None:
        """The log took a write, its first record at this offset."""
        assert isinstance(write, TransactionWrite)
        for log_offset, record in enumerate(write.records, base_offset):
            self.table.replay(record, log_offset)
        decision = write.decision
        if isinstance(decision, Changed):
            self._remember_last_epoch(decision)
            if decision.event is not None:
                out.replies.append(Reply(decision.event.reply_to, decision.answer))
            self._go_on(self.transactions[decision.transactional_id], out)
        else:
            for transactional_id in self._last_epochs.keys() - self.transactions.keys():
                del self._last_epochs[transactional_id]

    def refused(self, write: AnyWrite, error: ErrorCode, out: Outcome) -> None:
        """The log did not take a write, and nothing of it is there."""
        assert isinstance(write, TransactionWrite)
        decision = write.decision
        if isinstance(decision, Expired):
            if error is ErrorCode.MESSAGE_TOO_LARGE and len(write.records) > 1:
                half = len(write.records) // 2
                out.writes += [
                    TransactionWrite(part, decision) for part in (write.records[:half], write.records[half:])
                ]
            return
        if decision.event is not None:
            out.replies.append(Reply(decision.event.reply_to, refusal(decision.event, log_error(error))))
        transaction = self.transactions.get(decision.transactional_id)
        if transaction is not None:
            self._go_on(transaction, out)  # a refused Complete* is decided on again, behind the same markers

    def _change(
        self, changed: Transaction, out: Outcome, last_epoch: int, event: Request | None = None, answer: Any = None
    ) -> None:
        key, value = changed.encoded
        if changed.state is TransactionState.ONGOING and event is not None and not self._could_end(key, value):
            _refuse(event, log_error(ErrorCode.MESSAGE_TOO_LARGE), out)
            return
        decision = Changed(changed.transactional_id, last_epoch, event, answer)
        out.writes.append(TransactionWrite([(key, value)], decision))

    def _could_end(self, key: bytes, value: bytes) -> bool:
        """Whether the log would take the end of a transaction as well; otherwise it could never be ended."""
        return len(key) + len(value) + ROOM_FOR_END_BYTES <= self.config.max_batch_bytes

    def _go_on(self, transaction: Transaction, out: Outcome) -> None:
        """Ask for the markers of an end that is decided."""
        if transaction.state in PREPARED:
            record = transaction.record
            out.markers.append(
                WriteMarkers(
                    transaction.transactional_id,
                    record.producer_id,
                    record.producer_epoch,
                    transaction.state is TransactionState.PREPARE_COMMIT,
                    self.coordinator_epoch,
                    record.partitions,
                    record.client_version,
                )
            )

    def _remember_last_epoch(self, decision: Changed) -> None:
        if decision.last_epoch == NO_PRODUCER_EPOCH:
            self._last_epochs.pop(decision.transactional_id, None)
        else:
            self._last_epochs[decision.transactional_id] = decision.last_epoch

    def _last_epoch(self, transaction: Transaction) -> int:
        return self._last_epochs.get(transaction.transactional_id, NO_PRODUCER_EPOCH)

    # Producers begin.

    def _init(self, event: InitProducerId, now: Instant, out: Outcome) -> None:
        """Give a producer its id and epoch, and fence the one that had them before."""
        transaction = self.transactions.get(event.transactional_id)
        error = self._init_error(event, transaction)
        if error is not ErrorCode.NONE:
            _refuse(event, error, out)
        elif transaction is None:
            first = Transaction.new(event.transactional_id, event.fresh_producer_id, event.timeout_ms, now.wall_ms)
            self._initialise(event, first, NO_PRODUCER_EPOCH, out)
        elif transaction.state is TransactionState.ONGOING:
            aborted = transaction.prepared(False, _SERVER_VERSION, event.fresh_producer_id, now.wall_ms)
            answer = InitAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
            self._change(aborted, out, transaction.producer_epoch, event, answer)
        else:
            self._reinitialise(event, transaction, now, out)

    def _init_error(self, event: InitProducerId, transaction: Transaction | None) -> ErrorCode:
        """Why nothing is given, in Kafka's order; muster's own limit comes last."""
        is_half_known = (event.producer_id == NO_PRODUCER_ID) != (event.producer_epoch == NO_PRODUCER_EPOCH)
        if not event.transactional_id or is_half_known:
            return ErrorCode.INVALID_REQUEST
        if event.is_two_phase:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if event.keeps_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
        if not 0 < event.timeout_ms <= self.config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if transaction is None:
            has_room = len(self.transactions) < self.config.muster_max_transactional_ids
            return ErrorCode.NONE if has_room else ErrorCode.POLICY_VIOLATION
        if transaction.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if _is_its_producer(event, transaction) else ErrorCode.PRODUCER_FENCED

    def _reinitialise(self, event: InitProducerId, transaction: Transaction, now: Instant, out: Outcome) -> None:
        """Bump the epoch of a transactional id that is at rest, unless this is the same request again."""
        epoch, last_epoch = transaction.producer_epoch, self._last_epoch(transaction)
        is_new = event.producer_id == NO_PRODUCER_ID
        goes_on_from = NO_PRODUCER_EPOCH if is_new else epoch
        producer_id, given_epoch = transaction.producer_id, epoch + 1
        if is_new or event.producer_epoch == epoch:
            last_epoch = goes_on_from
            if transaction.is_used_up:
                producer_id, given_epoch = event.fresh_producer_id, 0
        elif transaction.is_used_up:
            _refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR, out)
            return
        elif event.producer_epoch == last_epoch:
            given_epoch = epoch
        else:
            _refuse(event, ErrorCode.PRODUCER_FENCED, out)
            return
        changed = transaction.initialised(producer_id, given_epoch, event.timeout_ms, now.wall_ms)
        self._initialise(event, changed, last_epoch, out)

    def _initialise(self, event: InitProducerId, changed: Transaction, last_epoch: int, out: Outcome) -> None:
        answer = InitAnswer(ErrorCode.NONE, changed.producer_id, changed.producer_epoch)
        self._change(changed, out, last_epoch, event, answer)

    # Partitions.

    def _add(self, event: AddPartitions, now: Instant, out: Outcome) -> None:
        """Add partitions to a transaction, which begins with the first ones; or say whether they were added."""
        transaction = self.transactions.get(event.transactional_id)
        if transaction is None:
            _refuse(event, _unknown(event), out)
            return
        error = _add_error(event, transaction)
        if error is not ErrorCode.NONE:
            _refuse(event, error, out)
        elif event.verify_only:
            _verify(event, transaction, out)
        elif transaction.state is TransactionState.ONGOING and {*event.partitions} <= {*transaction.partitions}:
            out.replies.append(Reply(event.reply_to, AddAnswer(ErrorCode.NONE)))
        else:
            changed = transaction.with_partitions(event.partitions, _version_of(event), now.wall_ms)
            self._change(changed, out, self._last_epoch(transaction), event, AddAnswer(ErrorCode.NONE))

    # Ends.

    def _end(self, event: EndTxn, now: Instant, out: Outcome) -> None:
        """Decide the end of a transaction, or answer for one that has ended."""
        transaction = self.transactions.get(event.transactional_id)
        if transaction is None:
            _refuse(event, _unknown(event), out)
            return
        bumps = event.version >= _FIRST_END_THAT_BUMPS
        answer = _answer_to_end_that_bumps(event, transaction) if bumps else _answer_to_end(event, transaction)
        if isinstance(answer, ErrorCode):
            _refuse(event, answer, out)
        elif answer is Served.AT_ONCE:
            out.replies.append(Reply(event.reply_to, _ended(transaction, bumps)))
        else:
            version = BUMPS_AT_END if bumps else OLDEST_VERSION
            decided = transaction.prepared(event.commit, version, event.fresh_producer_id, now.wall_ms)
            last_epoch = transaction.producer_epoch if bumps else self._last_epoch(transaction)
            self._change(decided, out, last_epoch, event, _ended(decided.completed(now.wall_ms), bumps))

    def _markers_written(self, event: MarkersWritten, now: Instant, out: Outcome) -> None:
        """All markers are safe: the end is complete. Of an end that was complete before, nothing follows."""
        transaction = self.transactions.get(event.transactional_id)
        if (
            transaction is not None
            and transaction.state in PREPARED
            and (event.producer_id, event.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        ):
            self._change(transaction.completed(now.wall_ms), out, self._last_epoch(transaction))

    # The clock.

    def timed_out(self, now: Instant) -> list[str]:
        """Transactions that are open for longer than their producers wanted: for each, `AbortTimedOut` is due."""
        return [
            transactional_id for transactional_id, each in self.transactions.items() if _is_timed_out(each, now.wall_ms)
        ]

    def _abort_timed_out(self, event: AbortTimedOut, now: Instant, out: Outcome) -> None:
        transaction = self.transactions.get(event.transactional_id)
        if transaction is not None and _is_timed_out(transaction, now.wall_ms):
            aborted = transaction.prepared(False, _SERVER_VERSION, event.fresh_producer_id, now.wall_ms)
            self._change(aborted, out, transaction.producer_epoch)

    def _expire(self, event: ExpireTransactionalIds, now: Instant, out: Outcome) -> None:
        oldest_ms = now.wall_ms - self.config.transactional_id_expiration_ms
        gone: list[tuple[bytes, bytes | None]] = [
            (encode_transaction_key(TransactionKey(transactional_id)), None)
            for transactional_id, each in self.transactions.items()
            if each.state in AT_REST and each.record.update_ms <= oldest_ms
        ]
        for start in range(0, len(gone), MOST_TOMBSTONES):
            out.writes.append(TransactionWrite(gone[start : start + MOST_TOMBSTONES], Expired()))


def _refuse(event: Request, error: ErrorCode, out: Outcome) -> None:
    out.replies.append(Reply(event.reply_to, refusal(event, error)))


def _unknown(event: AddPartitions | EndTxn) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if event.transactional_id else ErrorCode.INVALID_REQUEST


def _is_its_producer(event: InitProducerId, transaction: Transaction) -> bool:
    """Whether a producer that says who it is may go on: under the id in force, or under the one before if its epoch was
    used up, because the answer with the new id may never have come."""
    return event.producer_id in (NO_PRODUCER_ID, transaction.producer_id) or (
        event.producer_id == transaction.record.previous_producer_id and is_used_up(event.producer_epoch)
    )


def _version_of(event: AddPartitions) -> int:
    """The version of transactions of the client that adds partitions: one that adds them by writing has the newest."""
    match event.asker:
        case Asker.ADD_OFFSETS:
            return OLDEST_VERSION
        case Asker.ADD_PARTITIONS if event.version < _FIRST_ADD_OF_VERSION_2:
            return OLDEST_VERSION
        case _:
            return BUMPS_AT_END


def _add_error(event: AddPartitions, transaction: Transaction) -> ErrorCode:
    """Who asks comes first where partitions are verified, an end that is under way where they are added."""
    is_prepared = transaction.state in PREPARED
    if is_prepared and not event.verify_only:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.producer_id != event.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != event.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_prepared else ErrorCode.NONE


def _verify(event: AddPartitions, transaction: Transaction, out: Outcome) -> None:
    added = {*transaction.partitions}
    not_added = known_to_client(event, ErrorCode.TRANSACTION_ABORTABLE)
    errors = tuple([ErrorCode.NONE if partition in added else not_added for partition in event.partitions])
    first = next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
    out.replies.append(Reply(event.reply_to, AddAnswer(first, errors)))


def _answer_to_end(event: EndTxn, transaction: Transaction) -> ErrorCode | Served:
    if transaction.producer_id != event.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != event.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return served(COMMIT if event.commit else ABORT, PRODUCER, transaction.state)


def _answer_to_end_that_bumps(event: EndTxn, transaction: Transaction) -> ErrorCode | Served:
    """The epoch before the bump is that of the same request again. An end that is under way comes before all else."""
    if transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_replaced = _has_replaced(event, transaction)
    if transaction.producer_id != event.producer_id and not is_replaced:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    request = COMMIT_2 if event.commit else ABORT_2
    if is_replaced or transaction.producer_epoch == event.producer_epoch + 1:
        return served(request, AGAIN, transaction.state)
    if transaction.producer_epoch != event.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return served(request, PRODUCER, transaction.state)


def _has_replaced(event: EndTxn, transaction: Transaction) -> bool:
    """Whether the last end took a new producer id, because it used up the last epoch of the one that asks again."""
    return (
        transaction.record.previous_producer_id == event.producer_id
        and event.producer_epoch == LAST_EPOCH - 1
        and transaction.producer_epoch == 0
    )


def _ended(transaction: Transaction, bumps: bool) -> EndAnswer:
    """What a producer goes on with. An older one does so with what it has."""
    if not bumps:
        return EndAnswer(ErrorCode.NONE)
    return EndAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _is_timed_out(transaction: Transaction, wall_ms: int) -> bool:
    record = transaction.record
    return transaction.state is TransactionState.ONGOING and record.start_ms + record.timeout_ms < wall_ms
