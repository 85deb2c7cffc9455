"""`Ends`: who writes for a next transaction waits here while the end of the last one is being carried out.

EndTxn is answered when the decision is safe, and a producer goes on at once: its next batch often comes before the last
marker is safe. Clients of transactions version 2 would hear CONCURRENT_TRANSACTIONS for it and come again after a
pause, many times longer than the end takes. So such a batch is held, as in Kafka, for
`add.partitions.to.txn.retry.backoff.max.ms`. Offsets are held in the same way.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from muster.core.transactions.events import AddPartitions
from muster.core.transactions.states import PREPARED
from muster.server.led_partitions import LedTransactions


@dataclass(slots=True, eq=False)
class _Waiting:
    asked: AddPartitions
    go_on: Callable[[], None]
    too_long: asyncio.TimerHandle | None = None


class Ends:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, transactions: LedTransactions, patience_ms: int) -> None:
        self._transactions = transactions
        self._patience_s = patience_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[_Waiting]] = {}

    def when_over(self, asked: AddPartitions, go_on: Callable[[], None]) -> None:
        """Call `go_on` when no end of this transactional id is under way, or it takes too long; perhaps at once."""
        if not self._is_under_way(asked):
            go_on()
            return
        waiting = _Waiting(asked, go_on)
        waiting.too_long = self._loop.call_later(self._patience_s, self._let_go, waiting)
        self._waiting.setdefault(asked.transactional_id, []).append(waiting)

    def _is_under_way(self, asked: AddPartitions) -> bool:
        led = self._transactions.by_number.get(self._transactions.router.partition_of(asked))
        if led is None or led.coordinator is None:
            return False
        found = led.coordinator.transactions.get(asked.transactional_id)
        return found is not None and found.state in PREPARED

    def is_over(self, transactional_id: str) -> None:
        """An end has been carried out, or its log has refused to say so."""
        for waiting in self._waiting.get(transactional_id, ())[:]:
            if not self._is_under_way(waiting.asked):
                self._let_go(waiting)

    def _let_go(self, waiting: _Waiting) -> None:
        transactional_id = waiting.asked.transactional_id
        assert waiting.too_long is not None
        waiting.too_long.cancel()
        self._waiting[transactional_id].remove(waiting)
        if not self._waiting[transactional_id]:
            del self._waiting[transactional_id]
        waiting.go_on()
