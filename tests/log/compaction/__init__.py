"""Logs in the making and rounds of compaction over them, without a disk."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster.codec.batches import ReadBatch, encode_batch, encode_marker, iter_batches
from muster.codec.records import TRANSACTIONAL, Record
from muster.log.compaction.compactor import BYTES_PER_SLOT, LOAD_FACTOR, Compactor
from muster.log.compaction.rows import BYTES_PER_ENTRY, RowCompactor
from muster.log.compaction.rules import CleaningRules, LastRecord
from muster.log.segment import WrittenBatch
from muster.segments.indexes import AbortedTransaction

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
SLACK = 64
MEMORY_BYTES = 1 << 20

Content = tuple[bytes | None, bytes | None]
MakeCompactor = Callable[[CleaningRules, Sequence[AbortedTransaction], int], Any]

COMPACTORS: dict[str, MakeCompactor] = {"rows": RowCompactor, "columns": Compactor}


@dataclass(slots=True)
class History:
    """A log as a list of batches, and what a broker would know of its producers and transactions."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    aborted: list[AbortedTransaction] = field(default_factory=list)
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    """First offsets of open transactions, by producer."""
    _sequences: dict[int, int] = field(default_factory=dict)

    def write(
        self,
        *contents: Content,
        producer_id: int = -1,
        epoch: int = 0,
        transactional: bool = True,
        codec: int = 0,
        timestamp_ms: int | None = None,
        gap: int = 0,
    ) -> "History":
        """One batch; with a producer it is transactional unless said otherwise."""
        self.end += gap
        timestamp_ms = START_MS + self.end if timestamp_ms is None else timestamp_ms
        records = [
            Record(self.end + number, timestamp_ms + number, key, value) for number, (key, value) in enumerate(contents)
        ]
        has_producer = producer_id >= 0
        sequence = self._sequences.get(producer_id, 0)
        self.batches.append(
            encode_batch(
                records,
                leader_epoch=3,
                codec=codec,
                attributes=TRANSACTIONAL if has_producer and transactional else 0,
                producer_id=producer_id,
                producer_epoch=epoch if has_producer else -1,
                base_sequence=sequence if has_producer else -1,
            )
        )
        if has_producer:
            self._sequences[producer_id] = sequence + len(records)
            self.last_records[producer_id] = LastRecord(records[-1].offset, epoch)
            if transactional:
                self.open.setdefault(producer_id, self.end)
        self.end += len(records)
        return self

    def mark(self, producer_id: int, commit: bool = True, epoch: int = 0) -> "History":
        first = self.open.pop(producer_id, self.end)
        if not commit:
            self.aborted.append(
                AbortedTransaction(producer_id, first, self.end, min(self.open.values(), default=first))
            )
        known = self.last_records.get(producer_id)
        last = None if known is None or known.producer_epoch != epoch else known.last_data_offset
        self.last_records[producer_id] = LastRecord(last, epoch)
        marker = encode_marker(
            self.end, START_MS + self.end, producer_id, epoch, commit=commit, coordinator_epoch=0, leader_epoch=3
        )
        self.batches.append(marker)
        self.end += 1
        return self

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end)

    def rules(self, now_ms: int = START_MS, first_dirty_offset: int = 0, **more: Any) -> CleaningRules:
        """Everything from some offset up to the last stable one, with a retention of a day."""
        rules = CleaningRules(now_ms, DAY_MS, first_dirty_offset, self.last_stable_offset, self.last_records)
        return replace(rules, **more)


@dataclass(slots=True)
class Collected:
    """The batches that stay, with what the indexes would be told of them."""

    data: bytearray = field(default_factory=bytearray)
    facts: list[tuple[int, int, int]] = field(default_factory=list)
    """Size, last offset, largest timestamp."""

    def add(self, data: bytes, batch: WrittenBatch) -> None:
        self.data += data
        self.facts.append((batch.size_bytes, batch.last_offset, batch.max_timestamp_ms))

    def add_table(self, pieces: Sequence[bytes], batches: Any) -> None:
        self.data += b"".join(pieces)
        self.facts += map(tuple, batches.tolist())


@dataclass(slots=True)
class Round:
    """What came out of one."""

    data: bytes
    facts: list[tuple[int, int, int]]
    aborted: list[AbortedTransaction]
    compactor: Any

    @property
    def batches(self) -> list[ReadBatch]:
        read = list(iter_batches(self.data))
        assert all(batch.problem is None for batch in read)
        return read

    @property
    def records(self) -> list[Record]:
        """Data only."""
        return [record for batch in self.batches if not batch.header.is_control for record in batch.records]

    @property
    def values(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records]

    @property
    def markers(self) -> list[int]:
        """Offsets of control batches that still have their record."""
        return [batch.header.base_offset for batch in self.batches if batch.header.is_control and batch.records]


def compacted(
    batches: Iterable[bytes],
    rules: CleaningRules,
    aborted: Sequence[AbortedTransaction] = (),
    make: MakeCompactor = RowCompactor,
    memory_bytes: int = MEMORY_BYTES,
    chunk_bytes: int = 1 << 20,
) -> Round:
    """One round over a log that fits into memory. Only what lies below the end of the round is looked at."""
    below = [batch for batch in batches if base_offset(batch) < rules.end_offset]
    dirty = [batch for batch in below if last_offset(batch) >= rules.first_dirty_offset]
    compactor = make(rules, aborted, memory_bytes)
    feed(compactor.learn, b"".join(dirty), chunk_bytes, lambda: compactor.is_full)
    if not compactor.is_full:
        compactor.latest_offset = rules.end_offset - 1
    cleaned = Collected()
    feed(lambda buffer, end: compactor.keep(buffer, end, cleaned), b"".join(below), chunk_bytes)
    return Round(bytes(cleaned.data), cleaned.facts, compactor.take_aborted(), compactor)


def memory_for(make: MakeCompactor, keys: int) -> int:
    """As much as so many keys take, and no more."""
    if make is RowCompactor:
        return keys * BYTES_PER_ENTRY
    return -int(-keys // LOAD_FACTOR) * BYTES_PER_SLOT * 3 // 2


def feed(
    take: Callable[[bytearray, int], int], data: bytes, chunk_bytes: int, is_done: Callable[[], bool] = lambda: False
) -> None:
    """Hand over chunks, as a file would be read: what was not taken comes again, with more behind it."""
    position, size = 0, chunk_bytes
    while position < len(data) and not is_done():
        chunk = data[position : position + size]
        taken = take(bytearray(chunk) + bytes(SLACK), len(chunk))
        assert taken or size < len(data) or is_done()
        position += taken
        size = chunk_bytes if taken else 2 * size


def base_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def last_offset(batch: bytes) -> int:
    return base_offset(batch) + int.from_bytes(batch[23:27], "big") if batch[16] == 2 else base_offset(batch)


def split(data: bytes) -> list[bytes]:
    """Back to batches."""
    return [data[read.position : read.position + read.header.size_bytes] for read in iter_batches(data)]
