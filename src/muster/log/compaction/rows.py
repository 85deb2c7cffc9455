"""Compaction row by row, in plain Python: where the columnar libraries are not installed, and the judge of the kernels.

It shares the verdicts over batches (`rules.py`) with `Compactor`, and nothing else: keys are kept in a dictionary,
records are decoded one by one, batches are written by `encode_batch`. Tests hold both to the same bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from muster.codec.batches import assembled, computed_crc, decode_control, decode_records, encode_batch, read_header
from muster.codec.legacy import encode_entry
from muster.codec.records import CODEC_MASK, DELETE_HORIZON, BatchHeader, Record
from muster.errors import CodecError, ConfigError, Malformed, Truncated
from muster.log.compaction.rules import (
    NO_TIMESTAMP,
    BatchJudge,
    CleanedBatches,
    CleanedCount,
    CleanedTransactions,
    CleaningRules,
    Verdict,
)
from muster.log.segment import WrittenBatch
from muster.segments.indexes import AbortedTransaction

DIGEST_BYTES = 16
BYTES_PER_ENTRY = 176
"""Digest, offset and their share of the dictionary, at the moment when it has just grown."""
NOT_FOUND = -1


class OffsetMap:
    """A dictionary from keys to offsets that takes no new key once it holds as many as its memory allows."""

    def __init__(self, memory_bytes: int, *, merges_offset_keys: bool = False) -> None:
        self.capacity = memory_bytes // BYTES_PER_ENTRY
        if self.capacity < 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size is {memory_bytes}: not enough for a single key, so compaction would "
                f"never get anywhere; it takes {BYTES_PER_ENTRY} bytes a key"
            )
        self._merges_offset_keys = merges_offset_keys
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Take an offset that is newer than all before it; False for a new key that there is no room for."""
        digest = self._digest(key)
        if len(self._offsets) >= self.capacity and digest not in self._offsets:
            return False
        self._offsets[digest] = offset
        return True

    def get(self, key: bytes) -> int:
        return self._offsets.get(self._digest(key), NOT_FOUND)

    def _digest(self, key: bytes) -> bytes:
        if self._merges_offset_keys:
            key = offset_key_identity(key)
        return blake2b(key, digest_size=DIGEST_BYTES).digest()


def offset_key_identity(key: bytes) -> bytes:
    """The same bytes for both types of key that an offset commit may have (see `codec/offsets_topic.py`)."""
    return b"\0\1" + key[2:] if key[:2] == b"\0\0" else key


class RowCompactor:
    """Record by record. Its methods are those of `Compactor`."""

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
            cleaned.add(bytes(batch), WrittenBatch(len(batch), header.base_offset, *_last_of(header, records, kept)))

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


def _last_of(header: BatchHeader, records: Sequence[Record], kept: Sequence[Record]) -> tuple[int, int]:
    """Last offset and largest timestamp of a batch as it stays, for the indexes."""
    if len(kept) == len(records) or not kept:
        return header.last_offset, header.max_timestamp_ms
    last_offset = header.last_offset if header.magic == 2 else kept[-1].offset
    return last_offset, max(record.timestamp_ms for record in kept)
