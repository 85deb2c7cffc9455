"""A whole partition through the columnar reader: the newest of each key, as the values a coordinator is restored from.

Two passes. The first streams the log through the newest-per-key table, and counts on the way what the table will not
remember. The second walks over what is left. Offset commits, nearly all of it, become Python values column by column;
the few others go through the row-wise codec one by one.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from muster.codec.batches import NO_PRODUCER_ID
from muster.codec.columns.arrow import binaries
from muster.codec.columns.chunks import Bytes, Chunk, Longs, Scratch
from muster.codec.columns.commits import (
    C_GROUP,
    C_GROUP_LENGTH,
    C_KIND,
    C_METADATA,
    C_METADATA_LENGTH,
    C_TOPIC_ID,
    C_VERSION,
    K_BAD,
    K_COMMIT,
    K_COMMIT_TOMBSTONE,
    K_CONTROL,
    K_GROUP,
    K_GROUP_TOMBSTONE,
    K_NEWER_TOMBSTONE,
    K_UNKNOWN,
)
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import (
    B_OUTCOME,
    B_PRODUCER_ID,
    B_SIZE,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_VALUE,
    R_VALUE_LENGTH,
)
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    decode_key,
    decode_value,
)
from muster.codec.partition_state import (
    FIXED_BYTES,
    CommitColumns,
    LoadedPartition,
    OpenCommit,
    encode_commit,
    no_collections,
)
from muster.codec.transaction_outcomes import ABORTED, NO_TRANSACTION, OPEN
from muster.errors import CodecError, UnsupportedVersion
from muster.segments.reader import Damage, read_partition
from muster.segments.sources import SourcePartition

MOST_PROBLEMS_KEPT = 20

Flags = NDArray[np.bool_]
_COMMIT_BYTES = np.dtype(
    [
        ("log_offset", ">i8"),
        ("offset", ">i8"),
        ("leader_epoch", ">i4"),
        ("commit_ms", ">i8"),
        ("expire_ms", ">i8"),
        ("topic_id", "u1", 16),
    ]
)
assert _COMMIT_BYTES.itemsize == FIXED_BYTES


Progress = Callable[[int, int], None]
"""Called with the records and bytes read so far, chunk by chunk."""


def load_latest(partition: SourcePartition, progress: Progress | None = None) -> LoadedPartition:
    """Read a partition from beginning to end. Nothing is raised for what is in it: `fatal` and `problems` tell.

    A segment that is gone is another matter (`FileNotFoundError`): without it, it is not known what was committed.
    """
    with no_collections():
        return _load_latest(partition, progress)


def _load_latest(partition: SourcePartition, progress: Progress | None) -> LoadedPartition:
    damage: list[Damage] = []
    table, walk = LatestTable(), _Walk()
    for piece in read_partition(partition, Scratch(), damage, must_exist=True):
        walk.update(piece.chunk)
        table.update(piece.chunk)
        if progress is not None:
            progress(int(walk.kinds.sum()), walk.size_bytes)
    left = _Left(walk.tombstones)
    for chunk in table.survivors():
        left.update(chunk)
    del table
    problems = [*map(str, damage[:MOST_PROBLEMS_KEPT]), *walk.problems]
    tombstone_kinds = [K_COMMIT_TOMBSTONE, K_GROUP_TOMBSTONE, K_NEWER_TOMBSTONE]
    return LoadedPartition(
        left.commits,
        left.open_commits,
        left.tombstones,
        {group_id: value for group_id, value in left.groups.items() if value is not None},
        sorted(left.newer.values(), key=lambda record: record[2]),
        records=int(walk.kinds.sum() - walk.kinds[K_CONTROL]),
        size_bytes=walk.size_bytes,
        control_records=int(walk.kinds[K_CONTROL]),
        tombstone_records=int(walk.kinds[tombstone_kinds].sum()),
        unknown_records=int(walk.kinds[K_UNKNOWN]),
        bad_records=int(walk.kinds[K_BAD]),
        bad_batches=len(damage),
        problems=tuple(problems[:MOST_PROBLEMS_KEPT]),
        fatal=walk.fatal,
    )


class _Walk:
    """What has to be noticed while the log streams by."""

    def __init__(self) -> None:
        self.kinds: Longs = np.zeros(K_BAD + 1, np.int64)
        self.size_bytes = 0
        self.problems: list[str] = []
        self.fatal: str | None = None
        self.tombstones: dict[tuple[str, str, int], int] = {}
        self._open: set[tuple[str, str, int]] = set()

    def update(self, chunk: Chunk) -> None:
        """Look at a chunk before the table takes it in."""
        kinds = np.ascontiguousarray(chunk.classes[:, C_KIND])
        counts = np.bincount(kinds, minlength=len(self.kinds))
        self.kinds += counts
        self.size_bytes += int(chunk.batches[:, B_SIZE].sum())
        if counts[K_BAD] or counts[K_UNKNOWN]:
            self._step_over(chunk, kinds)
        if self._open or (chunk.batches[:, B_OUTCOME] == OPEN).any():
            self._watch_open_commits(chunk, kinds)

    def _step_over(self, chunk: Chunk, kinds: Longs) -> None:
        """Keep what cannot be read from replacing the readable record before it: the table skips control records."""
        for row in np.flatnonzero(kinds == K_BAD).tolist():
            key, value = _key_and_value(chunk, row)
            self._tell(int(chunk.records[row, R_OFFSET]), key, value)
        chunk.classes[(kinds == K_BAD) | (kinds == K_UNKNOWN), C_KIND] = K_CONTROL

    def _tell(self, log_offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            self.fatal = self.fatal or f"the record at offset {log_offset} has no key, which no broker writes"
            return
        try:
            record_type = decode_key(key).record_type
            if value is not None:
                decode_value(record_type, value)
        except UnsupportedVersion as error:
            self.fatal = self.fatal or f"the record at offset {log_offset} is of a newer broker: {error}"
        except CodecError as error:
            if len(self.problems) < MOST_PROBLEMS_KEPT:
                self.problems.append(f"the record at offset {log_offset} cannot be read: {error}")

    def _watch_open_commits(self, chunk: Chunk, kinds: Longs) -> None:
        """Remember tombstones of keys with a commit in an open transaction: an ordinary commit may replace them."""
        open_rows = (kinds == K_COMMIT) & (chunk.batches[chunk.records[:, R_BATCH], B_OUTCOME] == OPEN)
        self._open.update(key for _, key in _offset_keys(chunk, open_rows))
        for log_offset, key in _offset_keys(chunk, kinds == K_COMMIT_TOMBSTONE):
            if key in self._open:
                self.tombstones[key] = log_offset


class _Left:
    """What the table has left, sorted by what becomes of it. Pieces come in log order."""

    def __init__(self, tombstones: dict[tuple[str, str, int], int]) -> None:
        self.commits: list[CommitColumns] = []
        self.open_commits: list[OpenCommit] = []
        self.tombstones = tombstones
        self.groups: dict[str, GroupValue | None] = {}
        self.newer: dict[bytes, tuple[bytes, bytes, int]] = {}
        self._texts: dict[bytes, str] = {}
        self._first_transactional: int | None = None

    def update(self, chunk: Chunk) -> None:
        kinds = chunk.classes[:, C_KIND]
        batches = chunk.batches[chunk.records[:, R_BATCH]]
        transactional = batches[:, B_OUTCOME] != NO_TRANSACTION
        waits = batches[:, B_PRODUCER_ID] != NO_PRODUCER_ID  # for a marker; without a producer none can come
        is_open = waits & (batches[:, B_OUTCOME] == OPEN)
        counts = (kinds == K_COMMIT) & ~is_open & ~(waits & (batches[:, B_OUTCOME] == ABORTED))
        has_transactions = bool(transactional.any())
        if counts.any():
            self._take_commits(chunk, np.flatnonzero(counts), has_transactions)
        if has_transactions:
            self._take_open(chunk, np.flatnonzero((kinds == K_COMMIT) & is_open))
            if self._first_transactional is None:
                self._first_transactional = int(chunk.records[np.argmax(transactional), R_OFFSET])
        if self._first_transactional is not None:  # a tombstone is else the only record of its key
            late = chunk.records[:, R_OFFSET] >= self._first_transactional
            for log_offset, key in _offset_keys(chunk, (kinds == K_COMMIT_TOMBSTONE) & late):
                self.tombstones[key] = max(log_offset, self.tombstones.get(key, -1))
        for row in np.flatnonzero((kinds >= K_GROUP) & (kinds <= K_NEWER_TOMBSTONE)).tolist():
            self._take_other(chunk, row)

    def _take_open(self, chunk: Chunk, rows: Longs) -> None:
        for row in rows.tolist():
            key, value = _decoded(chunk, row)
            assert isinstance(key, OffsetKey)
            producer_id = int(chunk.batches[chunk.records[row, R_BATCH], B_PRODUCER_ID])
            log_offset = int(chunk.records[row, R_OFFSET])
            self.open_commits.append(
                OpenCommit(producer_id, key.group_id, (key.topic, key.partition), log_offset, value)
            )

    def _take_other(self, chunk: Chunk, row: int) -> None:
        raw_key, raw_value = _key_and_value(chunk, row)
        assert raw_key is not None
        key = decode_key(raw_key)
        if isinstance(key, GroupKey):
            value = None if raw_value is None else decode_value(key.record_type, raw_value)[1]
            assert value is None or isinstance(value, GroupValue)
            self.groups[key.group_id] = value
            return
        assert isinstance(key, TypedKey)
        if raw_value is None:
            self.newer.pop(raw_key, None)
        else:
            self.newer[raw_key] = raw_key, raw_value, int(chunk.records[row, R_OFFSET])

    def _take_commits(self, chunk: Chunk, rows: Longs, has_transactions: bool) -> None:
        """Whole columns at a time: what is done for each row in Python is only what has to be a Python object."""
        buffer, classes = chunk.buffer, chunk.classes[rows]
        topics = classes[:, C_GROUP] + classes[:, C_GROUP_LENGTH] + 2
        topic_lengths = _numbers(buffer, topics - 2, ">i2")
        partitions = _numbers(buffer, topics + topic_lengths, ">i4")
        group_ids, group_codes = self._coded(buffer, classes[:, C_GROUP], classes[:, C_GROUP_LENGTH])
        topic_names, topic_codes = self._coded(buffer, topics, topic_lengths)
        if has_transactions:  # the only way to have a key more than once
            order = _last_of_each(group_codes * len(topic_names) + topic_codes, partitions)
            order = order[np.argsort(group_codes[order], kind="stable")]
        else:
            order = np.argsort(group_codes, kind="stable")
        rows, group_codes = rows[order], group_codes[order]
        sizes = np.bincount(group_codes, minlength=len(group_ids)).tolist()
        self.commits.append(
            CommitColumns(
                [(group_id, size) for group_id, size in zip(group_ids, sizes, strict=True) if size],
                _shared_partitions(topic_names, topic_codes[order], partitions[order]),
                self._commit_bytes(chunk, rows),
            )
        )

    def _commit_bytes(self, chunk: Chunk, rows: Longs) -> list[bytes]:
        """The layout of `muster.codec.partition_state`, filled column by column."""
        buffer, classes, versions = chunk.buffer, chunk.classes[rows], chunk.classes[rows, C_VERSION]
        value, metadata_length = chunk.records[rows, R_VALUE], classes[:, C_METADATA_LENGTH]
        behind = classes[:, C_METADATA] + metadata_length
        table = np.zeros(len(rows), _COMMIT_BYTES)
        table["log_offset"] = chunk.records[rows, R_OFFSET]
        table["offset"] = _windows(buffer, 8)[value + 2].view(">i8")[:, 0]
        table["leader_epoch"] = np.where(versions >= 3, _windows(buffer, 4)[value + 10].view(">i4")[:, 0], -1)
        table["commit_ms"] = _windows(buffer, 8)[behind].view(">i8")[:, 0]
        table["expire_ms"] = -1
        if (versions == 1).any():
            expire_ms = _numbers(buffer, np.where(versions == 1, behind + 8, 0), ">i8")
            table["expire_ms"] = np.where(versions == 1, expire_ms, -1)
        topic_ids = classes[:, C_TOPIC_ID]
        if topic_ids.any():
            with_id = np.flatnonzero(topic_ids)
            table["topic_id"][with_id] = _windows(buffer, 16)[topic_ids[with_id]]
        raw, width = table.tobytes(), table.itemsize
        commit_bytes = [raw[start : start + width] for start in range(0, len(raw), width)]
        for place in np.flatnonzero(metadata_length > 0).tolist():
            commit_bytes[place] += buffer[classes[place, C_METADATA] : behind[place]].tobytes()
        for place in np.flatnonzero(_is_unusual(chunk, rows)).tolist():
            row = int(rows[place])
            commit_bytes[place] = encode_commit(int(chunk.records[row, R_OFFSET]), _decoded(chunk, row)[1])
        return commit_bytes

    def _coded(self, buffer: Bytes, starts: Longs, lengths: Longs) -> tuple[list[str], Longs]:
        """The distinct strings at these places, and for each place which of them it is."""
        encoded = binaries(buffer, np.ascontiguousarray(starts), np.ascontiguousarray(lengths)).dictionary_encode()
        return [self._text(raw) for raw in encoded.dictionary.to_pylist()], encoded.indices.to_numpy().astype(np.int64)

    def _text(self, raw: bytes) -> str:
        text = self._texts.get(raw)
        if text is None:
            text = self._texts[raw] = raw.decode("utf-8", "surrogateescape")
        return text


def _windows(buffer: Bytes, width: int) -> Bytes:
    return np.lib.stride_tricks.sliding_window_view(buffer, width)


def _numbers(buffer: Bytes, positions: Longs, kind: str) -> Longs:
    """Big-endian integers at these places."""
    width = np.dtype(kind).itemsize
    return _windows(buffer, width)[positions].view(kind)[:, 0].astype(np.int64)


def _spread(names: list[str], codes: Longs) -> list[str]:
    if len(names) == 1:
        return names * len(codes)
    table = np.empty(len(names), object)
    table[:] = names
    spread: list[str] = table[codes].tolist()
    return spread


def _shared_partitions(names: list[str], codes: Longs, partitions: Longs) -> list[tuple[str, int]]:
    """A tuple for each place, the same object where it says the same: many groups read the same topics."""
    both, places = np.unique((codes << 32) | (partitions & 0xFFFFFFFF), return_inverse=True)
    numbers = (both & 0xFFFFFFFF).astype(np.int32).tolist()
    table = np.empty(len(both), object)
    table[:] = [(names[code], number) for code, number in zip((both >> 32).tolist(), numbers, strict=True)]
    spread: list[tuple[str, int]] = table[places].tolist()
    return spread


def _last_of_each(names: Longs, partitions: Longs) -> Longs:
    """Rows that no later row has the key of, in order."""
    keys = np.empty((len(names), 2), np.int64)
    keys[:, 0], keys[:, 1] = names[::-1], partitions[::-1]
    _, first = np.unique(keys.view("i8,i8")[:, 0], return_index=True)
    last: Longs = np.sort(len(names) - 1 - first)
    return last


def _is_unusual(chunk: Chunk, rows: Longs) -> Flags:
    """Values with tagged fields that we do not know, or anything else unusual: those the row-wise codec reads."""
    classes = chunk.classes[rows]
    flexible: Flags = classes[:, C_VERSION] == 4
    if not flexible.any():
        return flexible
    length = classes[:, C_METADATA_LENGTH]
    prefix = 1 + np.searchsorted(np.array([1 << 7, 1 << 14, 1 << 21, 1 << 28]), length + 1, "right")
    usual = 14 + prefix + length + 9 + np.where(classes[:, C_TOPIC_ID] > 0, 18, 0)
    more: Flags = flexible & (chunk.records[rows, R_VALUE_LENGTH] != usual)
    return more


def _key_and_value(chunk: Chunk, row: int) -> tuple[bytes | None, bytes | None]:
    record = chunk.records[row]
    key, key_length, value, value_length = record[[R_KEY, R_KEY_LENGTH, R_VALUE, R_VALUE_LENGTH]].tolist()
    return (
        None if key_length < 0 else chunk.buffer[key : key + key_length].tobytes(),
        None if value_length < 0 else chunk.buffer[value : value + value_length].tobytes(),
    )


def _decoded(chunk: Chunk, row: int) -> tuple[OffsetKey, OffsetValue]:
    raw_key, raw_value = _key_and_value(chunk, row)
    assert raw_key is not None
    assert raw_value is not None
    key = decode_key(raw_key)
    value = decode_value(key.record_type, raw_value)[1]
    assert isinstance(key, OffsetKey)
    assert isinstance(value, OffsetValue)
    return key, value


def _offset_keys(chunk: Chunk, flags: Flags) -> Iterator[tuple[int, tuple[str, str, int]]]:
    """Log offset and key of these commits or their tombstones."""
    for row in np.flatnonzero(flags).tolist():
        key = decode_key(_key_and_value(chunk, row)[0] or b"")
        assert isinstance(key, OffsetKey)
        yield int(chunk.records[row, R_OFFSET]), (key.group_id, key.topic, key.partition)
