"""What is due by the clock: transactions that are open for too long are aborted, unused transactional ids forgotten."""

from functools import partial

from muster.core.transactions.events import AbortTimedOut, ExpireTransactionalIds, is_used_up
from muster.server.led_partitions import LedTransaction, LedTransactions
from muster.server.records.producer_ids import NO_ID, ProducerIds
from muster.server.server_log import RateLimitedLog, Stats
from muster.server.transactions.steps import Step, Steps

LONGEST_ID = 200


class Timeouts:
    """Everything here runs in the thread of the event loop."""

    def __init__(
        self,
        transactions: LedTransactions,
        producer_ids: ProducerIds,
        steps: Steps,
        timed_out: RateLimitedLog,
        stats: Stats,
    ) -> None:
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._steps = steps
        self._timed_out = timed_out
        self._stats = stats

    def abort_timed_out(self) -> None:
        now = self._transactions.now()
        for led in list(self._transactions.by_number.values()):
            coordinator = led.coordinator
            for transactional_id in [] if coordinator is None else coordinator.timed_out(now):
                if coordinator is None or led.coordinator is not coordinator:  # the abort of another one has ended it
                    break
                if is_used_up(coordinator.transactions[transactional_id].producer_epoch):
                    self._producer_ids.take(partial(self._abort_with, led, transactional_id))
                else:
                    self._abort(led, transactional_id, NO_ID)

    def _abort_with(self, led: LedTransaction, transactional_id: str, fresh_producer_id: int) -> None:
        """The epoch is used up: without a fresh id the abort waits for the next round."""
        if fresh_producer_id != NO_ID:
            self._abort(led, transactional_id, fresh_producer_id)

    def _abort(self, led: LedTransaction, transactional_id: str, fresh_producer_id: int) -> None:
        self._steps.reached(Step.BEFORE_PREPARE)
        self._timed_out.say(
            f"transactional id {transactional_id[:LONGEST_ID]!r}: its transaction is open for longer than its "
            "timeout, and is aborted",
            transactional_id=transactional_id[:LONGEST_ID],
        )
        self._stats.timed_out_transactions += 1
        self._transactions.apply(led, AbortTimedOut(transactional_id, fresh_producer_id))

    def forget_unused(self) -> None:
        for led in list(self._transactions.by_number.values()):
            self._transactions.apply(led, ExpireTransactionalIds())
