"""What compaction keeps: the rules of Kafka's cleaner (4.3), batch by batch, without files.

A round of compaction walks over the log twice. First over the dirty part, to *learn* the newest offset of each key;
then over everything from the start, to *keep* what is still needed:

- a record stays if no newer record of its key was learnt. A record without a key goes, and aborted data goes;
- a tombstone stays at first: its batch is given a *delete horizon* (KIP-534: bit 6 of the attributes, the time in place
  of the base timestamp), and a round behind that time removes it. Until then readers have time to see it (the formats
  before magic 2 have no place for a horizon: there tombstones stay for good);
- a marker stays until nothing waits for it, and then as long as a tombstone;
- offsets never change. A batch keeps its base and last offset, whatever is left between;
- the last batch of each producer that may still write stays, emptied if need be, for its sequence and epoch; so does
  the last batch of the round, for its offset.

A batch that loses nothing is copied byte by byte. `compactor.py` applies the rules to records in kernels, `rows.py` one
by one; here are the rules for batches, and what a round is bound by.

Aborted transactions come from the transaction index, because a batch must be judged long before its marker is met
(`CleanedTransactions`, Kafka's `CleanedTransactionMetadata`). A marker has done its work when no batch of its
transaction is left: then the producer's next reader finds nothing that waits for it. The batches that count are those
*read*, not those kept. So the round that removes the last batch keeps the marker; the round after it gives it a delete
horizon; and one after that, behind the horizon, removes it. If a marker went with its data, or before it, a reader that
has read the data already would wait for the marker for ever.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol

from muster.codec.batches import NO_PRODUCER_ID
from muster.codec.records import ABORT, COMMIT, BatchHeader
from muster.errors import Malformed
from muster.segments.indexes import AbortedTransaction

if TYPE_CHECKING:
    from muster.codec.columns.chunks import Longs
    from muster.log.segment import WrittenBatch

NO_TIMESTAMP = -1


class LastRecord(NamedTuple):
    """The last thing that a producer wrote: the offset of its last record, or None if only a marker is left of it."""

    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """What a round is bound by."""

    now_ms: int
    delete_retention_ms: int
    first_dirty_offset: int
    end_offset: int
    """The round does not look at this offset and beyond; its last batch stays, emptied if need be."""
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    """By producer id, of every producer that may still write."""
    merges_offset_keys: bool = False
    """In the offsets topic: keys of types 0 and 1 are one key (docs/decisions/0006)."""

    def dirty(self, aborted: Sequence[AbortedTransaction]) -> list[AbortedTransaction]:
        """Those whose marker the first walk meets, or has still to come."""
        return [transaction for transaction in aborted if transaction.last_offset >= self.first_dirty_offset]


class Verdict(NamedTuple):
    """What is decided of a batch before its records are looked at."""

    drops_records: bool
    stays_when_empty: bool
    is_spent_marker: bool
    """Nothing waits for it any more: its delete horizon begins."""


class CleanedBatches(Protocol):
    """Where the batches go that stay."""

    def add(self, data: bytes, batch: "WrittenBatch") -> None:
        """One of them."""

    def add_table(self, pieces: Sequence[bytes], batches: "Longs") -> None:
        """Many: their bytes, cut anywhere, and a table of (size, last offset, largest timestamp)."""


@dataclass(slots=True)
class CleanedCount:
    """What was read and kept in the second walk."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    keyless_records: int = 0
    """Dropped: a compacted log has no use for them."""


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


class BatchJudge:
    """Verdicts, in log order. A batch may be judged once only, because markers depend on what came before."""

    def __init__(self, rules: CleaningRules, aborted: Sequence[AbortedTransaction]) -> None:
        self._rules = rules
        self.transactions = CleanedTransactions(aborted)

    def judge(self, header: BatchHeader, control_type: int | None) -> Verdict:
        """`control_type` is that of the one record of a control batch, None where it has been emptied."""
        if header.is_control:
            is_spent = self.transactions.on_control_batch(header, control_type)
            horizon_ms = header.delete_horizon_ms
            drops = is_spent and horizon_ms is not None and horizon_ms <= self._rules.now_ms
            return Verdict(drops, self._stays_when_empty(header), is_spent)
        is_aborted = self.transactions.on_batch(header)
        return Verdict(is_aborted, self._stays_when_empty(header), False)

    def take_aborted(self) -> list[AbortedTransaction]:
        taken, self.transactions.index = self.transactions.index, []
        return taken

    def _stays_when_empty(self, header: BatchHeader) -> bool:
        if header.last_offset + 1 == self._rules.end_offset:
            return True
        last = self._rules.last_records.get(header.producer_id) if header.producer_id != NO_PRODUCER_ID else None
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch
