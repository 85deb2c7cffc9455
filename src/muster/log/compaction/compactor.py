"""Compaction, a chunk at a time in kernels: which records stay, and the bytes of the batches that stay.

`Compactor` is fed the bytes of a log twice: `learn` enters the newest offset of each key into a table, `keep` hands on
what is still needed. The rules are in `rules.py`. Python looks only at batches that belong to transactions, are
compressed, or have an old format; the kernels do the rest without the interpreter's lock, so clients hardly notice a
round (decision 0011).

Importing this module takes two thirds of a second and 130 MB, for numba; the first round of a process does it.
`rows.py` is the same in plain Python, for servers without numba.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec import compression
from muster.codec.batches import assembled, decode_control, decode_records, read_header
from muster.codec.columns.chunks import Bytes, Chunk, Longs, Scratch, decode_chunk
from muster.codec.columns.compaction import (
    COPY,
    COUNTS,
    DROP,
    EMPTY,
    LARGEST_GROWTH,
    N_KEYLESS,
    N_KEYS,
    N_LATEST,
    REWRITE,
    SLOT_COLUMNS,
    W_LAST_OFFSET,
    W_MAX_TIMESTAMP,
    W_SIZE,
    WRITTEN_COLUMNS,
    choose_records,
    learn_keys,
    move_slots,
    write_batches,
    write_body,
)
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.latest import AHEAD_COLUMNS, BLOCK
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_BASE_TIMESTAMP,
    B_BODY,
    B_BODY_END,
    B_COUNT,
    B_CRC,
    B_FIRST_RECORD,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    B_RECORDS,
    B_SIZE,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    SCAN_FULL,
    SCAN_MORE,
    TRANSACTIONAL_BIT,
)
from muster.codec.legacy import encode_entry
from muster.codec.records import DELETE_HORIZON, BatchHeader, Record
from muster.errors import CodecError, ConfigError, Malformed
from muster.log.compaction.rules import (
    NO_TIMESTAMP,
    BatchJudge,
    CleanedBatches,
    CleanedCount,
    CleanedTransactions,
    CleaningRules,
)
from muster.segments.indexes import AbortedTransaction

HEADER_COLUMNS = [
    B_BASE_OFFSET, B_SIZE, B_LEADER_EPOCH, B_MAGIC, B_CRC, B_ATTRIBUTES, B_LAST_OFFSET, B_BASE_TIMESTAMP,
    B_MAX_TIMESTAMP, B_PRODUCER_ID, B_PRODUCER_EPOCH, B_BASE_SEQUENCE, B_COUNT,
]  # fmt: skip
"""The batch table in the order of `BatchHeader`."""

BYTES_PER_SLOT = 8 * SLOT_COLUMNS
FEWEST_SLOTS = 1 << 12
LOAD_FACTOR = 0.75

Flags = NDArray[np.uint8]


class KeyTable:
    """The newest offset of each key in a flat table that grows up to a limit; the old and the new one count together
    while it does."""

    def __init__(self, memory_bytes: int) -> None:
        self._most_slots = memory_bytes * 2 // 3 // BYTES_PER_SLOT
        if self._most_slots * LOAD_FACTOR < 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size is {memory_bytes}: not enough for a single key, so compaction would "
                f"never get anywhere"
            )
        self.slots: Longs = np.zeros((min(FEWEST_SLOTS, self._most_slots), SLOT_COLUMNS), np.int64)
        self.seeds = np.array([secrets.randbits(64) | 1 for _ in range(4)], np.uint64)

    @property
    def capacity(self) -> int:
        """Keys that fit before the table has to grow (or is full)."""
        return int(len(self.slots) * LOAD_FACTOR)

    def grow(self) -> bool:
        """Double the table, or fill the rest of its memory; False if it has all of it."""
        if len(self.slots) == self._most_slots:
            return False
        larger = np.zeros((min(2 * len(self.slots), self._most_slots), SLOT_COLUMNS), np.int64)
        move_slots(self.slots, larger)
        self.slots = larger
        return True


class _Verdicts(NamedTuple):
    """Of each batch; see `rules.Verdict`."""

    drops: Flags
    stays: Flags
    is_spent: Flags


class Compactor:
    """The two walks. Bytes that are wrong raise a `CodecError` before anything is made of them."""

    def __init__(self, rules: CleaningRules, aborted: Sequence[AbortedTransaction], memory_bytes: int) -> None:
        self._rules = rules
        self._keys = KeyTable(memory_bytes)
        self._learning = CleanedTransactions(rules.dirty(aborted))
        self._judge = BatchJudge(rules, aborted)
        last_offsets = [last.last_data_offset for last in rules.last_records.values()]
        self._last_offsets = np.array(sorted({offset for offset in last_offsets if offset is not None}), np.int64)
        self._counts: Longs = np.zeros(COUNTS, np.int64)
        self._ahead: Longs = np.empty((BLOCK, AHEAD_COLUMNS), np.int64)
        self._scratch = Scratch()
        self._out: Bytes = np.empty(0, np.uint8)
        self._body: Bytes = np.empty(0, np.uint8)
        self.chunk_bytes = 4 * 1024 * 1024
        """How much it likes to be given at a time."""
        self.latest_offset = rules.first_dirty_offset - 1
        """Records behind it have not been learnt and stay as they are."""
        self.is_full = False
        """The table takes no more keys: the first walk ends here."""
        self.count = CleanedCount()

    @property
    def keys(self) -> int:
        return int(self._counts[N_KEYS])

    # The first walk.

    def learn(self, buffer: bytearray, end: int) -> int:
        """Take in the whole batches of buffer[:end] (slack bytes follow it); returns how many bytes those are."""
        start = 0
        data = np.frombuffer(buffer, np.uint8)
        while not self.is_full:
            chunk = self._decoded(data, start, end)
            if not len(chunk.batches):
                break
            reached = self._learn_chunk(chunk)
            if self.is_full:
                return int(chunk.batches[reached, B_POSITION])
            start = chunk.next_position
            if chunk.stop != SCAN_FULL:
                break
        return start

    def _learn_chunk(self, chunk: Chunk) -> int:
        """The batch reached: the one of the first record that had no room."""
        attributes = chunk.batches[:, B_ATTRIBUTES]
        is_new = chunk.batches[:, B_MAGIC] == 2
        skipped = (is_new & (attributes & CONTROL_BIT != 0)).astype(np.uint8)
        looked_at = is_new & (attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != 0)
        looked_at &= chunk.batches[:, B_LAST_OFFSET] >= self._rules.first_dirty_offset
        for number, header, control_type in _headers(chunk, looked_at):
            if header.is_control:
                self._learning.on_control_batch(header, control_type)
            else:
                skipped[number] = self._learning.on_batch(header)
        self._counts[N_LATEST] = self.latest_offset
        row = 0
        while row < len(chunk.records):
            row = learn_keys(
                chunk.buffer, chunk.batches, chunk.records, row, skipped, self._rules.first_dirty_offset,
                self._keys.slots, self._counts, self._keys.capacity, self._ahead, self._rules.merges_offset_keys,
                self._keys.seeds,
            )  # fmt: skip
            if row < len(chunk.records) and not self._keys.grow():
                self.is_full = True
                reached = int(chunk.records[row, R_BATCH])
                before = chunk.batches[:reached, B_LAST_OFFSET].max(initial=self.latest_offset)
                self.latest_offset = max(int(self._counts[N_LATEST]), int(before))
                return reached
        self.latest_offset = max(self.latest_offset, int(chunk.batches[-1, B_LAST_OFFSET]))
        return len(chunk.batches)

    # The second walk.

    def keep(self, buffer: bytearray, end: int, cleaned: CleanedBatches) -> int:
        """Judge the whole batches of buffer[:end]; returns how many bytes those are."""
        start = 0
        data = np.frombuffer(buffer, np.uint8)
        while True:
            chunk = self._decoded(data, start, end)
            if len(chunk.batches):
                self._keep_chunk(chunk, cleaned)
            self.count.bytes_read += chunk.next_position - start
            start = chunk.next_position
            if chunk.stop != SCAN_FULL:
                return start

    def _keep_chunk(self, chunk: Chunk, cleaned: CleanedBatches) -> None:
        verdicts = self._judged(chunk)
        keeps = np.empty(len(chunk.records), np.uint8)
        tally = np.empty((len(chunk.batches), 2), np.int64)
        choose_records(
            chunk.buffer, chunk.batches, chunk.records, verdicts.drops, self._keys.slots, self._counts,
            self.latest_offset, self._rules.now_ms, self._ahead, self._rules.merges_offset_keys, self._keys.seeds,
            keeps, tally,
        )  # fmt: skip
        actions, horizons = self._actions(chunk, verdicts, tally)
        written = self._written(chunk, keeps, tally, actions, horizons, cleaned)
        self.count.records_read += len(chunk.records)
        self.count.records_kept += int(keeps.sum())
        self.count.bytes_kept += int(written[:, W_SIZE].sum())
        self.count.keyless_records = int(self._counts[N_KEYLESS])

    def _judged(self, chunk: Chunk) -> _Verdicts:
        """Python judges what has to do with transactions, and the few batches that may stay though they are empty."""
        batches = chunk.batches
        verdicts = _Verdicts(*(np.zeros(len(batches), np.uint8) for _ in range(3)))
        last_offsets = batches[:, B_LAST_OFFSET]
        looked_at = (batches[:, B_ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT) != 0) & (batches[:, B_MAGIC] == 2)
        looked_at |= last_offsets + 1 == self._rules.end_offset
        if len(self._last_offsets):
            places = np.searchsorted(self._last_offsets, last_offsets).clip(0, len(self._last_offsets) - 1)
            looked_at |= self._last_offsets[places] == last_offsets
        for number, header, control_type in _headers(chunk, looked_at):
            verdict = self._judge.judge(header, control_type)
            verdicts.drops[number], verdicts.stays[number], verdicts.is_spent[number] = verdict
        return verdicts

    def _actions(self, chunk: Chunk, verdicts: _Verdicts, tally: Longs) -> tuple[Longs, Longs]:
        """What becomes of each batch, and its delete horizon or -1."""
        batches, kept = chunk.batches, tally[:, 0]
        is_new = batches[:, B_MAGIC] == 2
        has_horizon = is_new & (batches[:, B_ATTRIBUTES] & DELETE_HORIZON_BIT != 0)
        gets_horizon = is_new & ~has_horizon & (kept > 0) & ((tally[:, 1] > 0) | (verdicts.is_spent != 0))
        horizons = np.where(has_horizon, batches[:, B_BASE_TIMESTAMP], -1)
        horizons[gets_horizon] = self._rules.now_ms + self._rules.delete_retention_ms
        actions = np.where((kept == batches[:, B_RECORDS]) & ~gets_horizon, COPY, REWRITE)
        actions[kept == 0] = DROP
        actions[(kept == 0) & (verdicts.stays != 0) & is_new] = EMPTY
        return actions, horizons

    def _written(
        self, chunk: Chunk, keeps: Flags, tally: Longs, actions: Longs, horizons: Longs, cleaned: CleanedBatches
    ) -> Longs:
        """Write what stays; what comes back are sizes, last offsets and largest timestamps."""
        written = np.zeros((len(chunk.batches), WRITTEN_COLUMNS), np.int64)
        grown = LARGEST_GROWTH * int(chunk.batches[actions == REWRITE, B_RECORDS].sum())
        out = self._room(int(chunk.batches[:, B_SIZE].sum()) + grown)
        pieces: list[bytes] = []
        row = 0
        while row < len(chunk.batches):
            row, end = write_batches(
                chunk.buffer, chunk.batches, chunk.records, keeps, actions, horizons, tally, row, out, 0, written
            )
            pieces.append(out[:end].tobytes())
            if row < len(chunk.batches):
                pieces.append(self._write_in_python(chunk, row, keeps, tally, horizons, written))
                row += 1
        stays = written[:, W_SIZE] > 0
        cleaned.add_table(pieces, written[stays])
        return written

    def _write_in_python(
        self, chunk: Chunk, number: int, keeps: Flags, tally: Longs, horizons: Longs, written: Longs
    ) -> bytes:
        data, header = _batch(chunk, number)
        row = written[number]
        if header.magic < 2:
            first = int(chunk.batches[number, B_FIRST_RECORD])
            records = decode_records(data, 0, header)
            kept = [record for place, record in enumerate(records) if keeps[first + place]]
            batch = encode_entry(header, kept)
            row[W_LAST_OFFSET], row[W_MAX_TIMESTAMP] = kept[-1].offset, max(record.timestamp_ms for record in kept)
        else:
            batch, row[W_MAX_TIMESTAMP] = self._compressed(chunk, number, header, keeps, tally, int(horizons[number]))
        row[W_SIZE] = len(batch)
        return batch

    def _compressed(
        self, chunk: Chunk, number: int, header: BatchHeader, keeps: Flags, tally: Longs, horizon_ms: int
    ) -> tuple[bytes, int]:
        row = chunk.batches[number]
        unpacked = self._body_room(int(row[B_BODY_END] - row[B_BODY] + LARGEST_GROWTH * row[B_RECORDS]))
        size, base_ms, largest_ms = write_body(
            chunk.buffer, chunk.batches, number, chunk.records, keeps, horizon_ms, unpacked
        )
        body = compression.compress(header.codec, unpacked[:size].tobytes())
        attributes = header.attributes | (DELETE_HORIZON if horizon_ms >= 0 else 0)
        return assembled(header, attributes, int(base_ms), int(largest_ms), int(tally[number, 0]), body), largest_ms

    def _room(self, size: int) -> Bytes:
        if len(self._out) < size + SLACK:
            self._out = np.empty(size + size // 4 + SLACK, np.uint8)
        return self._out

    def _body_room(self, size: int) -> Bytes:
        if len(self._body) < size + SLACK:
            self._body = np.empty(size + size // 4 + SLACK, np.uint8)
        return self._body

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transaction index of what was kept since it was last taken."""
        return self._judge.take_aborted()

    def _decoded(self, data: Bytes, start: int, end: int) -> Chunk:
        """The next chunk, all of it sound; `Malformed` where it is not."""
        chunk = decode_chunk(data, start, end, self._scratch)
        if chunk.problems:
            number, reason = chunk.problems[0]
            raise Malformed(f"batch {chunk.batches[number, B_BASE_OFFSET]} {reason}")
        if chunk.stop not in (SCAN_MORE, SCAN_FULL):
            read_header(data.data[start:end], chunk.next_position - start)  # knows what to say about it
        return chunk


def _headers(chunk: Chunk, looked_at: NDArray[np.bool_]) -> Iterator[tuple[int, BatchHeader, int | None]]:
    """Number, header and control type (None of data, and of an emptied marker) of these batches.

    There may be hundreds of thousands, so they are taken from the tables and not decoded again.
    """
    numbers = np.flatnonzero(looked_at)
    rows = chunk.batches[numbers]
    is_marker = (rows[:, B_ATTRIBUTES] & CONTROL_BIT != 0) & (rows[:, B_MAGIC] == 2) & (rows[:, B_RECORDS] > 0)
    first = chunk.records[np.where(is_marker, rows[:, B_FIRST_RECORD], 0)] if is_marker.any() else None
    keys = np.full((len(rows), 2), -1, np.int64) if first is None else first[:, [R_KEY, R_KEY_LENGTH]]
    for number, row, has_type, (key, length) in zip(
        numbers.tolist(), rows[:, HEADER_COLUMNS].tolist(), is_marker.tolist(), keys.tolist(), strict=True
    ):
        header = BatchHeader(*row)
        control_type = None
        if has_type:
            data = chunk.buffer[key : key + max(length, 0)].tobytes()
            try:
                control_type = decode_control(Record(header.base_offset, NO_TIMESTAMP, data, None)).type
            except CodecError as error:
                raise Malformed(f"batch {header.base_offset}: {error}") from None
        yield number, header, control_type


def _batch(chunk: Chunk, number: int) -> tuple[memoryview, BatchHeader]:
    start = int(chunk.batches[number, B_POSITION])
    data = chunk.buffer.data[start : start + int(chunk.batches[number, B_SIZE])]
    return data, read_header(data)
