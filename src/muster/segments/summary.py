"""What a log is made of, in one pass: fed chunk by chunk, in log order within a partition.

Batches and offsets are counted per partition, records per kind and group over everything. Three things that are easy to
get wrong:

- A gap between batches is compaction's work only between two whole batches; next to a damaged one it is the damage.
- Transactions are counted by their markers, one for each partition that took part. An emptied batch (the cleaner keeps
  the last one of each producer) has outlived its marker, and is not an open transaction.
- A log read while a broker writes, or one segment on its own, may lack a marker that exists: open means that none was
  read.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from muster.codec.columns import scan
from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_GROUP, C_GROUP_LENGTH
from muster.codec.columns.tally import KindCount, Tally
from muster.codec.compression import codec_name
from muster.codec.group_records import RECORD_TYPES
from muster.codec.records import ABORT, COMMIT, CONTROL_TYPES
from muster.codec.transaction_outcomes import OPEN
from muster.segments.reader import Damage, SegmentChunk

TYPE_NAMES = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    **{number: record_type.name for number, record_type in RECORD_TYPES.items()},
}
MARKER = "Marker"
BUSIEST_GROUPS = 5
GROUPS_OF_A_TRANSACTION = 8
"""Groups that are named of each open transaction; one is the rule."""


@dataclass(frozen=True, slots=True)
class RecordCount:
    """Records of one kind; a marker has neither type nor version, and its `marker` is COMMIT or ABORT."""

    record_type: int | None
    name: str
    value_version: int | None
    is_tombstone: bool
    marker: str | None
    magic: int
    codec: str
    records: int


@dataclass(frozen=True, slots=True)
class BatchCount:
    """Batches of one kind."""

    magic: int
    codec: str
    is_transactional: bool
    is_control: bool
    is_empty: bool
    is_damaged: bool
    batches: int


@dataclass(slots=True)
class PartitionSummary:
    """One partition's directory (or a segment on its own). Gaps are between batches; offsets are also missing inside
    of batches, wherever compaction has been."""

    name: str
    segments: int = 0
    batches: int = 0
    emptied_batches: int = 0
    damaged_batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    gaps: int = 0
    missing_between_batches: int = 0
    missing_inside_batches: int = 0


@dataclass(slots=True)
class OpenTransaction:
    """A transaction without a marker, so far as it was read."""

    partition: str
    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int | None
    batches: int = 0
    records: int = 0
    groups: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """Everything that was counted; `as_json` has the same names."""

    partitions: list[PartitionSummary]
    record_counts: list[RecordCount]
    batch_counts: list[BatchCount]
    distinct_groups: int
    busiest_groups: list[tuple[str, int]]
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    unknown_records: int
    unreadable_records: int
    open_transactions: list[OpenTransaction]
    damage: list[Damage]

    def _total(self, name: str) -> int:
        return sum(getattr(partition, name) for partition in self.partitions)

    @property
    def totals(self) -> dict[str, int]:
        """The counts of all partitions together."""
        names = [
            "segments", "batches", "emptied_batches", "damaged_batches", "records", "bytes",
            "gaps", "missing_between_batches", "missing_inside_batches",
        ]  # fmt: skip
        return {"partitions": len(self.partitions)} | {name: self._total(name) for name in names}

    @property
    def tombstones(self) -> int:
        return sum(count.records for count in self.record_counts if count.is_tombstone)

    @property
    def committed_transactions(self) -> int:
        return self._markers(COMMIT)

    @property
    def aborted_transactions(self) -> int:
        return self._markers(ABORT)

    def _markers(self, control_type: int) -> int:
        return sum(count.records for count in self.record_counts if count.marker == CONTROL_TYPES[control_type])

    def as_json(self) -> dict[str, Any]:
        return {
            **self.totals,
            "tombstones": self.tombstones,
            "distinct_groups": self.distinct_groups,
            "first_timestamp_ms": self.first_timestamp_ms,
            "last_timestamp_ms": self.last_timestamp_ms,
            "unknown_records": self.unknown_records,
            "unreadable_records": self.unreadable_records,
            "record_counts": [asdict(count) for count in self.record_counts],
            "batch_counts": [asdict(count) for count in self.batch_counts],
            "busiest_groups": [{"group": group, "records": records} for group, records in self.busiest_groups],
            "transactions": {
                "committed": self.committed_transactions,
                "aborted": self.aborted_transactions,
                "open": [asdict(transaction) for transaction in self.open_transactions],
            },
            "by_partition": [asdict(partition) for partition in self.partitions],
            "damage": [{**damage._asdict(), "sentence": str(damage)} for damage in self.damage],
        }


class Summary:
    """Feed it with `add`, in any order of partitions but in log order within each; ask for the `result` at any time."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._partitions: dict[Path, PartitionSummary] = {}
        self._expected: dict[Path, int | None] = {}  # the offset after the last batch; None where it was damaged
        self._batch_kinds: Longs = np.zeros(_BATCH_KINDS, np.int64)
        self._open: dict[tuple[Path, int], OpenTransaction] = {}

    def add(self, piece: SegmentChunk) -> None:
        directory, chunk = piece.segment.path.parent, piece.chunk
        name = piece.segment.name.rpartition("/")[0] or str(piece.segment.path)
        partition = self._partitions.setdefault(directory, PartitionSummary(name))
        partition.segments += piece.is_first
        if not len(chunk.batches):
            return
        self._tally.add(chunk)
        self._count_batches(partition, chunk.batches)
        partition.records += len(chunk.records)
        self._count_offsets(directory, partition, chunk.batches)
        self._note_open(directory, partition.name, chunk)

    def _count_batches(self, partition: PartitionSummary, batches: Longs) -> None:
        partition.batches += len(batches)
        partition.bytes += int(batches[:, scan.B_SIZE].sum())
        kinds = _batch_kinds(batches)
        self._batch_kinds += np.bincount(kinds, minlength=_BATCH_KINDS)
        partition.emptied_batches += int((kinds & _EMPTY != 0).sum())
        partition.damaged_batches += int((kinds & _DAMAGED != 0).sum())

    def _count_offsets(self, directory: Path, partition: PartitionSummary, batches: Longs) -> None:
        good = batches[:, scan.B_STATE] == scan.GOOD
        first, last = batches[:, scan.B_BASE_OFFSET], batches[:, scan.B_LAST_OFFSET]
        inside = last - first + 1 - batches[:, scan.B_RECORDS]
        partition.missing_inside_batches += int(inside[good].sum())
        between = first[1:] - last[:-1] - 1
        between = between[good[1:] & good[:-1]]
        expected = self._expected.get(directory)
        if expected is not None and good[0]:
            between = np.append(between, first[0] - expected)
        between = between[between > 0]
        partition.gaps += len(between)
        partition.missing_between_batches += int(between.sum())
        self._expected[directory] = int(last[-1]) + 1 if good[-1] else None
        if good.any():
            if partition.first_offset is None:
                partition.first_offset = int(first[good][0])
            partition.next_offset = int(last[good][-1]) + 1

    def _note_open(self, directory: Path, name: str, chunk: Chunk) -> None:
        batches = chunk.batches
        is_open = (batches[:, scan.B_OUTCOME] == OPEN) & (batches[:, scan.B_RECORDS] > 0)
        is_open &= (batches[:, scan.B_ATTRIBUTES] & scan.CONTROL_BIT) == 0
        if not is_open.any():
            return
        numbers = np.flatnonzero(is_open)
        producers = batches[numbers, scan.B_PRODUCER_ID]
        for producer_id in np.unique(producers).tolist():
            written = numbers[producers == producer_id]
            transaction = self._open.get((directory, producer_id))
            if transaction is None:
                transaction = _opened(name, chunk, int(written[0]))
                self._open[directory, producer_id] = transaction
            transaction.batches += len(written)
            transaction.records += int(batches[written, scan.B_RECORDS].sum())
            for number in written[:GROUPS_OF_A_TRANSACTION].tolist():
                group = _group_of(chunk, number)
                if group not in transaction.groups and len(transaction.groups) < GROUPS_OF_A_TRANSACTION:
                    transaction.groups.append(group)

    def groups(self) -> set[str]:
        """The names of all groups."""
        return {group for group, _ in self._tally.busiest_groups(self._tally.distinct_groups)}

    def result(self, damage: Iterable[Damage] = ()) -> SummaryResult:
        tally = self._tally
        return SummaryResult(
            list(self._partitions.values()),
            [_record_count(kind) for kind in tally.kinds()],
            _batch_counts(self._batch_kinds),
            tally.distinct_groups,
            tally.busiest_groups(BUSIEST_GROUPS),
            tally.first_timestamp_ms,
            tally.last_timestamp_ms,
            tally.unknown_records,
            tally.unreadable_records,
            sorted(self._open.values(), key=lambda transaction: transaction.since_ms or 0),
            list(damage),
        )


# A kind of batch as a small number: codec (3 bits), magic (2 bits), and these flags.
_TRANSACTIONAL, _CONTROL, _EMPTY, _DAMAGED = 1 << 5, 1 << 6, 1 << 7, 1 << 8
_BATCH_KINDS = 1 << 9


def _batch_kinds(batches: Longs) -> Longs:
    attributes, magic = batches[:, scan.B_ATTRIBUTES], batches[:, scan.B_MAGIC]
    new = magic == 2
    kinds = (attributes & scan.CODEC_MASK) | magic << 3
    kinds |= np.where(new & (attributes & scan.TRANSACTIONAL_BIT != 0), _TRANSACTIONAL, 0)
    kinds |= np.where(new & (attributes & scan.CONTROL_BIT != 0), _CONTROL, 0)
    damaged = batches[:, scan.B_STATE] != scan.GOOD
    kinds |= np.where(~damaged & (batches[:, scan.B_COUNT] == 0), _EMPTY, 0)
    kinds |= np.where(damaged, _DAMAGED, 0)
    return kinds


def _batch_counts(counted: Longs) -> list[BatchCount]:
    return [
        BatchCount(
            kind >> 3 & 3,
            codec_name(kind & scan.CODEC_MASK),
            bool(kind & _TRANSACTIONAL),
            bool(kind & _CONTROL),
            bool(kind & _EMPTY),
            bool(kind & _DAMAGED),
            int(counted[kind]),
        )
        for kind in np.flatnonzero(counted).tolist()
    ]


def _record_count(kind: KindCount) -> RecordCount:
    codec = codec_name(kind.codec)
    if kind.is_control:
        marker = CONTROL_TYPES.get(kind.version, "UNKNOWN")
        return RecordCount(None, MARKER, None, False, marker, kind.magic, codec, kind.records)
    name = TYPE_NAMES.get(kind.record_type, "Unknown")
    record_type = kind.record_type if kind.record_type >= 0 else None
    version = kind.version if kind.version >= 0 else None
    return RecordCount(record_type, name, version, kind.is_tombstone, None, kind.magic, codec, kind.records)


def _opened(partition: str, chunk: Chunk, number: int) -> OpenTransaction:
    batch = chunk.batches[number]
    since_ms = int(chunk.records[batch[scan.B_FIRST_RECORD], scan.R_TIMESTAMP])
    return OpenTransaction(
        partition,
        int(batch[scan.B_PRODUCER_ID]),
        int(batch[scan.B_PRODUCER_EPOCH]),
        int(batch[scan.B_BASE_OFFSET]),
        since_ms if since_ms >= 0 else None,
    )


def _group_of(chunk: Chunk, number: int) -> str:
    """The group of a batch's first record; a transactional batch is one request, and so of one group."""
    row = chunk.batches[number, scan.B_FIRST_RECORD]
    start, length = chunk.classes[row, C_GROUP], chunk.classes[row, C_GROUP_LENGTH]
    return chunk.buffer[start : start + max(length, 0)].tobytes().decode("utf-8", "replace")
