"""What compaction knows of transactions while it walks over a log: Kafka's `CleanedTransactionMetadata`.

Aborted transactions come from the transaction index, because a batch must be judged long before its marker is met. A
marker has done its work when no batch of its transaction is left: then the producer's next reader finds nothing that
waits for it. The batches that count are those *read*, not those kept. So the round that removes the last batch keeps
the marker; the round after it gives it a delete horizon; and one after that, behind the horizon, removes it. A marker
that went with its data, or before it, would leave whoever has already read the data waiting for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from muster.codec.records import ABORT, COMMIT, BatchHeader
from muster.errors import Malformed
from muster.segments.txn_index import AbortedTransaction


@dataclass(slots=True)
class _Aborting:
    transaction: AbortedTransaction
    was_seen: bool = False


class CleanedTransactions:
    """Fed with every batch in log order; says which data is aborted and which markers nothing waits for any more.

    `index` collects the aborted transactions that still have a batch, for the cleaned segment; take them out at the end
    of each segment.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self.index: list[AbortedTransaction] = []
        self._to_come: list[tuple[int, AbortedTransaction]] = []
        self._aborting: dict[int, _Aborting] = {}
        self._committing: dict[int, bool] = {}  # producers with a batch read; whether any of it had records
        self.add_aborted(aborted)

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take in more of the index. One transaction may come more than once: segments share it."""
        for transaction in aborted:
            heappush(self._to_come, (transaction.first_offset, transaction))

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if self._to_come:
            self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborting = self._aborting.get(header.producer_id)
        if aborting is not None:
            aborting.was_seen = True
            return True
        has_records = header.record_count != 0
        self._committing[header.producer_id] = has_records or self._committing.get(header.producer_id, False)
        return False

    def on_control_batch(self, header: BatchHeader, control_type: int | None) -> bool:
        """Whether nothing waits for this marker any more; `control_type` is None for a batch that has been emptied."""
        self._begin_up_to(header.last_offset)
        if control_type is None:
            return True
        if control_type == ABORT:
            return self._on_abort(header)
        if control_type == COMMIT:
            return self._on_commit(header)
        return False

    def _on_abort(self, header: BatchHeader) -> bool:
        had_records = self._committing.pop(header.producer_id, None)
        if had_records:
            raise Malformed(
                f"the marker at offset {header.base_offset} aborts a transaction of producer {header.producer_id} "
                "that the transaction index does not know"
            )
        aborting = self._aborting.pop(header.producer_id, None)
        if aborting is None or not aborting.was_seen:
            return had_records is None  # batches that have been emptied wait for their marker too
        self.index.append(aborting.transaction)
        return False

    def _on_commit(self, header: BatchHeader) -> bool:
        aborting = self._aborting.get(header.producer_id)
        if aborting is not None and aborting.was_seen:
            raise Malformed(
                f"the marker at offset {header.base_offset} commits a transaction of producer {header.producer_id} "
                f"that the transaction index calls aborted at offset {aborting.transaction.last_offset}"
            )
        return self._committing.pop(header.producer_id, None) is None

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            _, transaction = heappop(self._to_come)
            self._aborting.setdefault(transaction.producer_id, _Aborting(transaction))
