"""What a partition remembers of its producers.

`ProducerStates` keeps enough to refuse a duplicate batch, a gap, and a batch of a fenced producer, and to know which
transactions are open. Of every producer it keeps the last five batches by sequence number (a snapshot keeps the newest
alone), its epoch, and where its open transaction began. The last stable offset follows from the open transactions: a
reader under read_committed reads up to the first record that is undecided, or whose marker is not yet durable.

`ProducerStates` is pure: batches and offsets go in, refusals and snapshot bytes come out. The rules are those of
Kafka's `ProducerStateManager` and `ProducerAppendInfo`; the coordinator's own appends have their epoch checked and not
their sequence.

A snapshot is Kafka's `.snapshot` file. The producers as of an offset are the newest snapshot at or before it, brought
forward over the headers of the batches in between (`newest_snapshot`, `replay`).
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from muster.codec.batches import decode_control, decode_records
from muster.codec.error_codes import ErrorCode
from muster.codec.records import COMMIT, BatchHeader
from muster.errors import CodecError, LogDamaged, Malformed
from muster.log.segment import SNAPSHOT, Segment, offset_in_name
from muster.log.validation import AppendRefused
from muster.segments.batches import walk_headers
from muster.segments.files import File, Files, read_file
from muster.segments.indexes import AbortedTransaction

BATCHES_REMEMBERED = 5
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
MAX_SEQUENCE = (1 << 31) - 1

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class BatchSequence(NamedTuple):
    """One batch of a producer, by its last sequence number and last offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 or self.last_sequence < 0 else first + MAX_SEQUENCE + 1

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """What is known of one producer id. `batches` are those of its current epoch."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    transaction_first_offset: int = NO_OFFSET
    batches: list[BatchSequence] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches = []
            self.epoch = epoch

    def add(self, batch: BatchSequence) -> None:
        self.batches = [*self.batches[1 - BATCHES_REMEMBERED :], batch]
        self.last_timestamp_ms = batch.timestamp_ms


class ProducerStates:
    """All producers of a partition, up to (not including) `end_offset`."""

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset of a transaction -> producer id; offsets rise
        self._undurable: dict[int, int] = {}  # first offset -> offset of a marker that may not be durable yet

    def __len__(self) -> int:
        return len(self.producers)

    def producer(self, producer_id: int) -> Producer:
        found = self.producers.get(producer_id)
        if found is None:
            found = self.producers[producer_id] = Producer(producer_id)
        return found

    def first_unstable_offset(self) -> int | None:
        """The first record whose fate is open, or not durably decided; None where all are decided."""
        first = next(iter(self._open), None)
        undurable = min(self._undurable, default=None)
        if first is None or undurable is None:
            return undurable if first is None else first
        return min(first, undurable)

    def first_undecided_offset(self) -> int | None:
        """The first record of the oldest open transaction: compaction stops here."""
        return next(iter(self._open), None)

    def durable_up_to(self, high_watermark: int) -> None:
        if self._undurable:
            self._undurable = {first: last for first, last in self._undurable.items() if last >= high_watermark}

    # What is asked before an append.

    def duplicate_of(self, header: BatchHeader) -> BatchSequence | None:
        """The batch that this one repeats: a client that missed the answer sends the same again."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise AppendRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}, and one with epoch {producer.epoch} has written since",
            )

    def check_data(self, header: BatchHeader, *, from_client: bool) -> None:
        """Refuse a batch of records that may not follow what its producer wrote before."""
        self.check_epoch(header.producer_id, header.producer_epoch)
        producer = self.producers.get(header.producer_id)
        if from_client:
            self._check_sequence(producer, header)
        if producer is not None and producer.transaction_first_offset >= 0 and not header.is_transactional:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} writes outside the transaction it has open",
            )

    def _check_sequence(self, producer: Producer | None, header: BatchHeader) -> None:
        if producer is None or producer.epoch == NO_EPOCH:
            return  # its records are gone, or it is new: any beginning will do
        if header.producer_epoch != producer.epoch:
            in_order = header.base_sequence == 0
        else:
            expected = 0 if producer.last_sequence == MAX_SEQUENCE else producer.last_sequence + 1
            in_order = header.base_sequence == expected
        if not in_order:
            raise AppendRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} (epoch {header.producer_epoch}) sends sequence {header.base_sequence}; "
                f"its last was {producer.last_sequence} (epoch {producer.epoch})",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        self.check_epoch(producer_id, epoch)
        producer = self.producers.get(producer_id)
        if producer is not None and coordinator_epoch < producer.coordinator_epoch:
            raise AppendRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker from transaction coordinator epoch {coordinator_epoch} for producer {producer_id}; "
                f"one of epoch {producer.coordinator_epoch} was there before",
            )

    # What an append changes.

    def append_data(self, header: BatchHeader) -> None:
        """Take a batch of records; nothing is checked any more."""
        producer = self.producer(header.producer_id)
        producer.take_epoch(header.producer_epoch)
        delta = header.last_offset - header.base_offset
        producer.add(BatchSequence(header.last_sequence, header.last_offset, delta, header.max_timestamp_ms))
        if header.is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = header.base_offset
            self._open[header.base_offset] = header.producer_id

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int, *, commit: bool
    ) -> AbortedTransaction | None:
        """End a producer's transaction; what to note in the transaction index, if it was aborted and had written."""
        producer = self.producer(producer_id)
        first_offset = producer.transaction_first_offset
        producer.take_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        producer.transaction_first_offset = NO_OFFSET
        if first_offset < 0:
            return None
        self._open.pop(first_offset, None)
        self._undurable[first_offset] = offset
        stable_offset = next(iter(self._open), offset + 1)
        return None if commit else AbortedTransaction(producer_id, first_offset, offset, stable_offset)

    def replay(self, header: BatchHeader, data: bytes | memoryview) -> AbortedTransaction | None:
        """Take a batch from the log (all of it for a control batch), which was checked when it was written."""
        self.end_offset = header.last_offset + 1
        if header.magic < 2 or header.producer_id < 0:
            return None
        if not header.is_control:
            self.append_data(header)
            return None
        try:
            records = decode_records(data, 0, header)
            if not records:  # compaction has emptied it: nothing of that transaction is left
                return None
            control = decode_control(records[0])
        except CodecError:
            return None  # a control record that cannot be read ends no transaction
        if control.coordinator_epoch is None:
            return None
        return self.append_marker(
            header.producer_id, header.producer_epoch, control.coordinator_epoch,
            header.base_offset, records[0].timestamp_ms, commit=control.type == COMMIT,
        )  # fmt: skip

    def forget_idle(self, now_ms: int, expiration_ms: int) -> None:
        """Drop producers that have been silent for `producer.id.expiration.ms`; open transactions keep theirs."""
        idle = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self.producers[producer_id]

    # Snapshots.

    def snapshot(self) -> bytes:
        """The state as a `.snapshot` file at `end_offset`."""
        body = struct.pack(">i", len(self.producers)) + b"".join(map(_encoded, self.producers.values()))
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes, end_offset: int) -> "ProducerStates":
        """`Malformed` where these bytes are no whole snapshot."""
        states = cls(end_offset)
        for producer in decode_snapshot(data):
            states.producers[producer.producer_id] = producer
        started = [one for one in states.producers.values() if one.transaction_first_offset >= 0]
        for producer in sorted(started, key=lambda one: one.transaction_first_offset):
            states._open[producer.transaction_first_offset] = producer.producer_id
        return states


def _encoded(producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else BatchSequence(NO_SEQUENCE, NO_OFFSET, 0, -1)
    return _SNAPSHOT_ENTRY.pack(
        producer.producer_id, producer.epoch, last.last_sequence, last.last_offset, last.offset_delta,
        producer.last_timestamp_ms, producer.coordinator_epoch, producer.transaction_first_offset,
    )  # fmt: skip


def decode_snapshot(data: bytes) -> Iterable[Producer]:
    if len(data) < _SNAPSHOT_HEAD.size:
        raise Malformed(f"a producer snapshot of {len(data)} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise Malformed(f"a producer snapshot of version {version}; {SNAPSHOT_VERSION} exists")
    if crc != crc32c(data[6:]):
        raise Malformed("a producer snapshot whose checksum is wrong")
    if _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size != len(data):
        raise Malformed(f"a producer snapshot that counts {count} producers in {len(data)} bytes")
    found = []
    for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first_offset = fields
        batches = [BatchSequence(sequence, offset, delta, timestamp_ms)] if offset >= 0 else []
        found.append(
            Producer(producer_id, epoch, coordinator_epoch, timestamp_ms, max(first_offset, NO_OFFSET), batches)
        )
    return found


# Snapshots on disk.


def snapshot_offsets(files: Files, directory: Path) -> list[int]:
    """The offsets of all snapshots, whole or not, rising."""
    return sorted(
        offset for entry in files.entries(directory) if (offset := offset_in_name(entry.name, SNAPSHOT)) is not None
    )


def write_snapshot(files: Files, directory: Path, offset: int, snapshot: bytes) -> File:
    """Write a snapshot, which is not synced yet; the caller closes the file."""
    file = files.open(directory / f"{offset:020}{SNAPSHOT}", create=True)
    file.truncate(0)
    file.pwrite(snapshot, 0)
    return file


def remove_snapshots(files: Files, directory: Path, which: Callable[[int], bool]) -> None:
    for entry in files.entries(directory):
        number = offset_in_name(entry.name, SNAPSHOT)
        if number is not None and which(number):
            files.unlink(directory / entry.name)


def newest_snapshot(files: Files, directory: Path, up_to_offset: int) -> ProducerStates:
    """The newest whole snapshot at or before an offset; nothing known at all where there is none.

    One that is torn (snapshots between rolls are not synced) is passed over.
    """
    for offset in reversed(snapshot_offsets(files, directory)):
        if offset <= up_to_offset:
            try:
                return ProducerStates.from_snapshot(read_file(files, directory / f"{offset:020}{SNAPSHOT}"), offset)
            except Malformed:
                continue
    return ProducerStates()


def replay(
    producers: ProducerStates, segments: Sequence[Segment], end_offset: int
) -> tuple[list[tuple[Segment, AbortedTransaction]], int]:
    """Bring producers forward to an offset; the aborted transactions that ended on the way, and the bytes stepped over.

    Only headers are read, and the few bytes of markers. Where the row of batches breaks off (damage below the recovery
    point, which recovery does not look for) the rest of that segment is left out.
    """
    aborted: list[tuple[Segment, AbortedTransaction]] = []
    stepped_over = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        try:
            found, size = _replay_segment(producers, segment, end_offset)
        except (CodecError, LogDamaged):
            continue
        aborted += [(segment, one) for one in found]
        stepped_over += size
    producers.end_offset = max(producers.end_offset, end_offset)
    return aborted, stepped_over


def _replay_segment(
    producers: ProducerStates, segment: Segment, end_offset: int
) -> tuple[list[AbortedTransaction], int]:
    aborted: list[AbortedTransaction] = []
    start = position = segment.start_of(producers.end_offset)
    with segment.opened() as log:
        for position, header in walk_headers(log, start, segment.size_bytes):
            if header.base_offset >= end_offset:
                break
            if header.last_offset >= producers.end_offset:
                data = log.pread(header.size_bytes, position) if header.is_control else b""
                found = producers.replay(header, data)
                if found is not None:
                    aborted.append(found)
    return aborted, position - start
