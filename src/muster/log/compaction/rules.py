"""What compaction keeps: the rules of Kafka's cleaner (4.3), batch by batch, with no file in sight.

A round of compaction walks over the log twice. First over the dirty part, to *learn* the newest offset of each key;
then over everything from the start, to *keep* what is still needed:

- a record stays if no newer record of its key was learnt. Without a key it goes, and aborted data goes;
- a tombstone stays too, at first: its batch is given a *delete horizon* (KIP-534: bit 6 of the attributes, the time in
  place of the base timestamp), and a round behind that time removes it. A reader that was faster than that has seen it
  (the formats before magic 2 have no place for a horizon: there tombstones stay for good);
- a marker stays until nothing waits for it (`compaction_transactions.py`), and then as long as a tombstone;
- offsets never change. A batch keeps its base and last offset, whatever is left between;
- the last batch of each producer that may still write stays, emptied if need be, for its sequence and epoch; so does
  the last batch of the round, for its offset.

A batch that loses nothing is copied byte by byte. `RowCompactor` is the readable version of all this;
`compaction_columns.py` has the fast one.

Aborted transactions come from the transaction index, because a batch must be judged long before its marker is met
(`CleanedTransactions`, Kafka's `CleanedTransactionMetadata`). A marker has done its work when no batch of its
transaction is left: then the producer's next reader finds nothing that waits for it. The batches that count are those
*read*, not those kept. So the round that removes the last batch keeps the marker; the round after it gives it a delete
horizon; and one after that, behind the horizon, removes it. If a marker went with its data, or before it, a reader that
has read the data already would wait for the marker for ever.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from crc32c import crc32c

from muster.codec.batches import (
    NO_PRODUCER_ID,
    computed_crc,
    decode_control,
    decode_records,
    encode_batch,
    read_header,
)
from muster.codec.records import ABORT, CODEC_MASK, COMMIT, DELETE_HORIZON, BatchHeader, Record
from muster.errors import CodecError, Malformed, Truncated
from muster.log.compaction.legacy import encode_entry
from muster.log.compaction.offset_map import OffsetMap
from muster.segments.indexes import AbortedTransaction


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

    def add(self, batch: bytes | memoryview, last_offset: int, max_timestamp_ms: int) -> None: ...

    def add_many(self, pieces: Sequence[bytes], batches: Any) -> None:
        """Many batches at once: their bytes, cut anywhere, and a table of (size, last offset, largest timestamp)."""


@dataclass(slots=True)
class CleanedCount:
    """What was read and kept in the second walk."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    keyless_records: int = 0
    """Dropped: a compacted log has no use for them."""


class Compactor(Protocol):
    """The two walks. Whatever is wrong with the bytes raises a `CodecError` before anything is made of them."""

    chunk_bytes: int
    """How much it likes to be given at a time."""
    latest_offset: int
    """Records behind it have not been learnt and stay as they are."""
    is_full: bool
    """The map takes no more keys: the first walk ends here."""
    count: CleanedCount

    @property
    def keys(self) -> int: ...

    def learn(self, buffer: bytearray, end: int) -> int:
        """Take in the whole batches of buffer[:end] (slack bytes follow it); returns how many bytes those are."""

    def keep(self, buffer: bytearray, end: int, cleaned: CleanedBatches) -> int:
        """Judge the whole batches of buffer[:end]; returns how many bytes those are."""

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transaction index of what was kept since it was last taken."""


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


class RowCompactor:
    """Record by record, in plain Python: 20 µs each for both walks together."""

    def __init__(self, rules: CleaningRules, aborted: Sequence[AbortedTransaction], memory_bytes: int) -> None:
        self._rules = rules
        self._map = OffsetMap(memory_bytes, merges_offset_keys=rules.merges_offset_keys)
        self._learning = CleanedTransactions(rules.dirty(aborted))
        self._judge = BatchJudge(rules, aborted)
        self.chunk_bytes = 256 * 1024
        self.latest_offset = rules.first_dirty_offset - 1
        self.is_full = False
        self.count = CleanedCount()

    @property
    def keys(self) -> int:
        return len(self._map)

    def learn(self, buffer: bytearray, end: int) -> int:
        reached = 0
        for data, header in whole_batches(buffer, end):
            with named(header):
                self._learn_batch(data, header)
            if self.is_full:
                break
            reached += header.size_bytes
        return reached

    def _learn_batch(self, data: memoryview, header: BatchHeader) -> None:
        first = self._rules.first_dirty_offset
        if header.last_offset < first:
            return
        if header.is_control:
            self._learning.on_control_batch(header, control_type(data, header))
        elif not self._learning.on_batch(header):
            for record in decode_records(data, 0, header):
                if record.key is not None and record.offset >= first:
                    if not self._map.put(record.key, record.offset):
                        self.is_full = True
                        return
                    self.latest_offset = record.offset
        self.latest_offset = max(self.latest_offset, header.last_offset)

    def keep(self, buffer: bytearray, end: int, cleaned: CleanedBatches) -> int:
        reached = 0
        for data, header in whole_batches(buffer, end):
            with named(header):
                verdict = self._judge.judge(header, control_type(data, header) if header.is_control else None)
                self._keep_batch(data, header, verdict, cleaned)
            reached += header.size_bytes
        self.count.bytes_read += reached
        return reached

    def _keep_batch(self, data: memoryview, header: BatchHeader, verdict: Verdict, cleaned: CleanedBatches) -> None:
        records = decode_records(data, 0, header)
        self.count.records_read += len(records)
        if verdict.drops_records:
            kept = []
        elif header.is_control:
            kept = records
        else:
            kept = [record for record in records if self._stays(record, header)]
        batch = rewritten(data, header, records, kept, verdict, self._rules)
        if batch is not None:
            self.count.records_kept += len(kept)
            self.count.bytes_kept += len(batch)
            cleaned.add(batch, *_last_of(header, records, kept))

    def _stays(self, record: Record, header: BatchHeader) -> bool:
        if record.offset > self.latest_offset:
            return True
        if record.key is None:
            self.count.keyless_records += 1
            return False
        if record.offset < self._map.get(record.key):
            return False
        horizon_ms = header.delete_horizon_ms
        return record.value is not None or horizon_ms is None or self._rules.now_ms < horizon_ms

    def take_aborted(self) -> list[AbortedTransaction]:
        return self._judge.take_aborted()


def whole_batches(buffer: bytearray, end: int) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches that lie wholly in buffer[:end], each proven by its checksum; `Malformed` where one is not."""
    data = memoryview(buffer)[:end]
    position = 0
    while True:
        try:
            header = read_header(data, position)
        except Truncated:
            return
        crc = computed_crc(data, position, header)
        if crc != header.crc:
            raise Malformed(f"batch {header.base_offset} says CRC {header.crc:08x}, its bytes give {crc:08x}")
        yield data[position : position + header.size_bytes], header
        position += header.size_bytes


@contextmanager
def named(header: BatchHeader) -> Iterator[None]:
    """Say of which batch something is wrong."""
    try:
        yield
    except CodecError as error:
        raise Malformed(f"batch {header.base_offset}: {error}") from None


def control_type(data: memoryview, header: BatchHeader) -> int | None:
    """The type of the one record in a control batch; None if the batch has been emptied."""
    records = decode_records(data, 0, header)
    return decode_control(records[0]).type if records else None


def rewritten(
    data: memoryview,
    header: BatchHeader,
    records: Sequence[Record],
    kept: Sequence[Record],
    verdict: Verdict,
    rules: CleaningRules,
) -> bytes | memoryview | None:
    """The batch as it stays: itself, without some records, emptied, or not at all (None)."""
    if not kept:
        return emptied(header) if verdict.stays_when_empty and header.magic == 2 else None
    horizon_ms = delete_horizon(header, verdict, any(record.value is None for record in kept), rules)
    if len(kept) == len(records) and horizon_ms == header.delete_horizon_ms:
        return data
    if header.magic < 2:
        return encode_entry(header, kept)
    return encode_batch(
        kept,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        codec=header.codec,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON) | (0 if horizon_ms is None else DELETE_HORIZON),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        base_timestamp_ms=horizon_ms,
    )


def delete_horizon(header: BatchHeader, verdict: Verdict, has_tombstones: bool, rules: CleaningRules) -> int | None:
    """From when tombstones or the marker in a batch may go: set once, and never moved."""
    if header.magic < 2 or header.delete_horizon_ms is not None:
        return header.delete_horizon_ms
    if has_tombstones or verdict.is_spent_marker:
        return rules.now_ms + rules.delete_retention_ms
    return None


def emptied(header: BatchHeader) -> bytes:
    """What is left of a batch without records: 61 bytes. No codec, no horizon, no base timestamp."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assembled(header, attributes, NO_TIMESTAMP, header.max_timestamp_ms, 0, b"")


def assembled(
    header: BatchHeader, attributes: int, base_timestamp_ms: int, max_timestamp_ms: int, count: int, body: bytes
) -> bytes:
    """A batch with everything that is not given as it was, checksum included."""
    covered = struct.pack(
        ">hiqqqhii", attributes, header.last_offset - header.base_offset, base_timestamp_ms, max_timestamp_ms,
        header.producer_id, header.producer_epoch, header.base_sequence, count,
    ) + body  # fmt: skip
    return (
        struct.pack(">qiibI", header.base_offset, len(covered) + 9, header.leader_epoch, 2, crc32c(covered)) + covered
    )


def _last_of(header: BatchHeader, records: Sequence[Record], kept: Sequence[Record]) -> tuple[int, int]:
    """Last offset and largest timestamp of a batch as it stays, for the indexes."""
    if len(kept) == len(records) or not kept:
        return header.last_offset, header.max_timestamp_ms
    last_offset = header.last_offset if header.magic == 2 else kept[-1].offset
    return last_offset, max(record.timestamp_ms for record in kept)
