"""Whether a partition is part of a transaction, for those who write to it: batches, and offsets.

Clients of transactions version 2 add a partition by writing to it. The record that adds it is safe before anything is
written: else a crash could leave records of a transaction that knows nothing of their partition, and would never end
them. Older clients have added it before, and it is waited for in the same way. In both cases it is looked up once more
in the turn in which something is appended, because the transaction may have ended while its record was on its way to
the disk. What comes while the end of the transaction before is under way waits for that first (`ends.py`).

A batch that goes on with what its producer has open in a log needs no looking up: the marker is not there yet.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from muster.codec.error_codes import ErrorCode
from muster.core.outcome import Outcome
from muster.core.transactions.events import AddAnswer, AddPartitions, Asker
from muster.segments.checkpoints import TopicPartition
from muster.server.led_partitions import LedTransactions
from muster.server.records.data_partitions import DataPartitions
from muster.server.records.produce import Produced, ProduceRequest
from muster.server.transactions.ends import Ends
from muster.server.waiting_replies import Callback

FIRST_PRODUCE_THAT_ADDS = 12
_TRY_AGAIN = frozenset({
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip
NOTHING_REFUSED: Mapping[TopicPartition, Produced] = {}


class Verification:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, transactions: LedTransactions, ends: Ends, is_enabled: bool) -> None:
        self._transactions = transactions
        self._ends = ends
        self._is_enabled = is_enabled

    def prepare(
        self, asked: AddPartitions, then: Callable[[AddAnswer], None], fail: Callable[[Exception], None]
    ) -> None:
        """Add what is to be added; `then` is called when all that the coordinator has written is safe, perhaps at once.

        The answer says what was refused.
        """
        if not asked.verify_only:
            self._ends.when_over(asked, partial(self._add, asked, Callback(then, fail)))
            return
        transactions = self._transactions
        led = transactions.by_number.get(transactions.router.partition_of(asked))

        def go_on() -> None:
            then(AddAnswer(ErrorCode.NONE))

        if led is None or led.coordinator is None:
            go_on()
        else:
            transactions.when_safe(led, go_on, go_on)

    def _add(self, asked: AddPartitions, reply: Callback) -> None:
        try:
            self._transactions.submit(asked, reply)
        except Exception as error:
            reply.fail(error)

    def look(self, asked: AddPartitions) -> AddAnswer:
        """What there is now, safe or not."""
        if not self._is_enabled:
            return AddAnswer(ErrorCode.NONE)
        out = Outcome()
        self._transactions.router.handle(replace(asked, verify_only=True), self._transactions.now(), out)
        answer: AddAnswer = out.replies[0][1]
        return answer


class TransactionalBatches:
    """Batches of transactions, before they go into their logs."""

    def __init__(self, verification: Verification, records: DataPartitions) -> None:
        self._verification = verification
        self._records = records
        records.verify = self.verify

    def prepare(
        self,
        request: ProduceRequest,
        go_on: Callable[[Mapping[TopicPartition, Produced]], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Call `go_on` with what is refused, when the rest of a request may be appended; perhaps at once."""
        beginning = self._records.beginning(request)
        if not beginning.partitions:
            go_on(NOTHING_REFUSED)
            return
        asked = _asked(request, beginning.producer_id, beginning.producer_epoch, *beginning.partitions)

        def answered(answer: AddAnswer) -> None:
            errors = zip(beginning.partitions, answer.of_each(asked), strict=True)
            go_on({key: _refused(request, error) for key, error in errors if error is not ErrorCode.NONE})

        self._verification.prepare(asked, answered, fail)

    def verify(
        self, request: ProduceRequest, producer_id: int, producer_epoch: int, key: TopicPartition
    ) -> Produced | None:
        """Why a batch that would begin something in a log may not; None if it may. To be asked in the same turn."""
        answer = self._verification.look(_asked(request, producer_id, producer_epoch, key))
        error = answer.error if answer.errors is None else answer.errors[0]
        return None if error is ErrorCode.NONE else _refused(request, error)


def _asked(request: ProduceRequest, producer_id: int, producer_epoch: int, *keys: TopicPartition) -> AddPartitions:
    partitions = tuple([(key.topic, key.partition) for key in keys])
    return AddPartitions(
        None, request.transactional_id or "", producer_id, producer_epoch, partitions, Asker.PRODUCE, request.version,
        verify_only=request.version < FIRST_PRODUCE_THAT_ADDS,
    )  # fmt: skip


def _refused(request: ProduceRequest, error: ErrorCode) -> Produced:
    """An error as a producer knows it: older ones try again at NOT_ENOUGH_REPLICAS without asking for metadata."""
    is_under_way = error is ErrorCode.CONCURRENT_TRANSACTIONS and request.version < FIRST_PRODUCE_THAT_ADDS
    if error in _TRY_AGAIN or is_under_way:
        why = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return Produced(ErrorCode.NOT_ENOUGH_REPLICAS, message=why)
    is_not_added = error is ErrorCode.INVALID_TXN_STATE
    return Produced(error, message="Partition was not added to the transaction" if is_not_added else None)
