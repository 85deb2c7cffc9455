"""Arrow columns of a chunk, with the schema of `schema.py`.

Columns that no row of a chunk fills are slices of one array of nulls, and columns that few rows fill (groups, newer
kinds, markers) are made for those rows alone and then spread out, so the common case pays nothing for the rare ones.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muster.codec.columns import groups as g
from muster.codec.columns import schema
from muster.codec.columns.chunks import Bytes, Chunk, Longs, Scratch, decode_chunk, with_slack
from muster.codec.columns.commits import (
    C_GROUP,
    C_GROUP_LENGTH,
    C_KIND,
    C_METADATA,
    K_BAD,
    K_COMMIT,
    K_CONTROL,
    K_GROUP,
    K_NEWER,
    K_NEWER_TOMBSTONE,
    K_UNKNOWN,
    T_GROUP,
    T_METADATA,
    T_TOPIC,
    T_TOPIC_IDS,
)
from muster.codec.columns.fill import (
    F2_EXPIRES,
    F2_TIMESTAMP,
    F2_TOPIC_ID,
    F_COMMIT,
    F_GROUP,
    F_KEY,
    F_LEADER_EPOCH,
    F_PRODUCER,
    F_TOMBSTONE,
    F_TYPE,
    F_VERSION,
    fill_commits,
    fill_log,
    flags_to_bitmaps,
    locate_groups,
)
from muster.codec.columns.kernels import SLACK, gather_bytes, gather_repaired, is_ascii, measure_repaired
from muster.codec.columns.rowwise import newer_rows, unread_rows
from muster.codec.columns.scan import B_OUTCOME, R_BATCH, R_KEY, R_KEY_LENGTH, R_VALUE, R_VALUE_LENGTH, SCAN_FULL
from muster.codec.records import COMMIT, CONTROL_TYPES
from muster.codec.transaction_outcomes import OUTCOME_NAMES, Markers

Array = Any  # pyarrow has no types of its own
Filler = Callable[[Bytes, Longs, Longs, NDArray[np.int32], Bytes], int]


def _names(names: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets and bytes of a few fixed strings. (`pa.array` of a list would import pandas, 40 MB of it.)"""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)


_OUTCOMES = _names(name or "" for name in OUTCOME_NAMES)
_CONTROLS = _names([*(CONTROL_TYPES[number] for number in sorted(CONTROL_TYPES)), "UNKNOWN"])


def decode(data: bytes | memoryview, *, partition: int | None = None, markers: Markers | None = None) -> Array:
    """All whole batches in these bytes as a `pyarrow.Table` with the schema `schema.RECORDS`.

    For bytes that fit into memory, such as a Fetch response. Batches that cannot be trusted are left out; ask
    `muster.segments.reader` for files, which streams and reports damage. Transactions are resolved by the markers
    given, or else by those in the bytes themselves.
    """
    buffer = with_slack(data)
    scratch = Scratch.for_bytes(len(data))
    position, batches = 0, []
    if markers is None:
        markers = markers_in(buffer, len(data))
    while True:
        chunk = decode_chunk(buffer, position, len(data), scratch, markers)
        batches.append(to_arrow(chunk, partition))
        if chunk.stop != SCAN_FULL:
            return pa.Table.from_batches(batches, schema.RECORDS)
        position = chunk.next_position


def markers_in(buffer: Bytes, end: int) -> Markers:
    """The transaction markers in a buffer."""
    from muster.codec.columns import scan

    room = min(1 << 12, end // scan.SMALLEST_ENTRY + 1)
    table = np.empty((room, scan.BATCH_COLUMNS), np.int64)
    found = np.empty((room, scan.MARKER_COLUMNS), np.int64)
    position, kept = 0, []
    while True:
        count, position, stop = scan.scan_batches(buffer, position, end, table, scan.ANY_NUMBER, False)
        kept.append(found[: scan.find_markers(buffer, table, count, found)].copy())
        if stop != SCAN_FULL:
            return Markers.of(np.concatenate(kept))


def to_arrow(chunk: Chunk, partition: int | None, rows: Longs | None = None) -> Array:
    """The records of a chunk (or only some rows of it) as a `pyarrow.RecordBatch` with the schema `schema.RECORDS`."""
    rows = _all_rows(len(chunk.records)) if rows is None else rows
    count = len(rows)
    columns = RecordColumns(chunk, rows)
    made = columns.of_the_log() | columns.of_commits()
    made["offsets_partition"] = _partition_column(partition, count)
    kinds = chunk.classes[rows[columns.special], C_KIND]

    def of_kinds(wanted: tuple[int, ...], kind: Array, make: Callable[[Longs], Array]) -> Array:
        return _scatter(columns.special[np.isin(kinds, wanted)], rows, kind, make)

    made["group"] = of_kinds((K_GROUP,), schema.GROUP, lambda some: group_column(chunk, some))
    made["newer"] = of_kinds(
        (K_NEWER, K_NEWER_TOMBSTONE), schema.NEWER, lambda some: _structs(newer_rows(chunk, some), schema.NEWER)
    )
    made["control"] = of_kinds((K_CONTROL,), schema.CONTROL, lambda some: _control_column(chunk, some))
    # A newer kind's value is read by the row-wise codec, which may find it unreadable after all.
    made["unread"] = of_kinds(
        (K_BAD, K_UNKNOWN, K_NEWER), schema.UNREAD, lambda some: _structs(unread_rows(chunk, some), schema.UNREAD)
    )
    return pa.RecordBatch.from_arrays([made[name] for name in schema.RECORDS.names], schema=schema.RECORDS)


@lru_cache(maxsize=2)
def _row_numbers(power: int) -> Longs:
    return np.arange(1 << power, dtype=np.int64)


def _all_rows(count: int) -> Longs:
    return _row_numbers(max(17, count.bit_length()))[:count]


def _buffer(count: int, kind: type[np.generic]) -> NDArray[Any]:
    """Memory for a column, with slack."""
    return np.empty(count + SLACK // np.dtype(kind).itemsize, kind)


def _bitmap(flags: NDArray[Any]) -> Array:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _fixed(values: NDArray[Any], kind: Array, count: int, valid: NDArray[Any] | None = None) -> Array:
    """A column of fixed width; `valid` None means no nulls."""
    bitmap = None if valid is None else _bitmap(valid)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(values)])


def _text(offsets: NDArray[Any], data: NDArray[Any], count: int, valid: NDArray[Any] | None, kind: Array) -> Array:
    bitmap = None if valid is None else _bitmap(valid)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


@lru_cache(maxsize=64)
def _null_array(kind: Array, power: int) -> Array:
    return pa.nulls(1 << power, kind)


def _nulls(kind: Array, count: int) -> Array:
    return _null_array(kind, max(17, count.bit_length())).slice(0, count)


class RecordColumns:
    """The columns that kernels write whole, and the flags that say which rows have what."""

    def __init__(self, chunk: Chunk, rows: Longs) -> None:
        count = len(rows)
        self.chunk, self.rows, self.count = chunk, rows, count
        self.log_offsets, self.timestamps, self.batch_offsets, self.producer_ids = (
            _buffer(count, np.int64) for _ in range(4)
        )
        self.record_types, self.versions, self.producer_epochs = (_buffer(count, np.int16) for _ in range(3))
        self.flags, self.more_flags = np.zeros(count + SLACK, np.uint8), np.zeros(count + SLACK, np.uint8)
        special, transactional = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
        specials, transactionals = fill_log(
            chunk.batches, chunk.records, chunk.classes, rows, self.log_offsets, self.timestamps, self.batch_offsets,
            self.record_types, self.versions, self.producer_ids, self.producer_epochs,
            self.flags, self.more_flags, special, transactional,
        )  # fmt: skip
        self.special, self.transactional = special[:specials], transactional[:transactionals]
        self._fill_commits()
        self._bitmaps, self._counts = _bitmaps(self.flags, count)
        self._more_bitmaps, self._more_counts = _bitmaps(self.more_flags, count)

    def _fill_commits(self) -> None:
        chunk, count = self.chunk, self.count
        totals = chunk.totals
        self.offsets = [_buffer(count + 1, np.int32) for _ in range(4)]
        sizes = (totals[T_GROUP], totals[T_TOPIC], totals[T_METADATA], 22 * totals[T_TOPIC_IDS])
        self.data = [_buffer(int(size), np.uint8) for size in sizes]
        self.partitions, self.leader_epochs = _buffer(count, np.int32), _buffer(count, np.int32)
        self.committed, self.commit_times, self.expire_times = (_buffer(count, np.int64) for _ in range(3))
        fill_commits(
            chunk.buffer, chunk.records, chunk.classes, self.rows,
            self.offsets[0], self.data[0], self.offsets[1], self.data[1],
            self.offsets[2], self.data[2], self.offsets[3], self.data[3],
            self.partitions, self.committed, self.leader_epochs, self.commit_times, self.expire_times,
            self.flags, self.more_flags,
        )  # fmt: skip

    def _made(self, kind: Array, flag: int, *buffers: NDArray[Any], more: bool = False) -> Array:
        """A column whose valid rows are those with a flag: all null, some null, or none, each as cheap as can be."""
        number = flag.bit_length() - 1
        valid = int((self._more_counts if more else self._counts)[number])
        if valid == 0:
            return _nulls(kind, self.count)
        bitmap = (self._more_bitmaps if more else self._bitmaps)[number] if valid < self.count else None
        return _column(kind, self.count, bitmap, *buffers)

    def of_the_log(self) -> dict[str, Any]:
        count = self.count
        tombstones = pa.py_buffer(self._bitmaps[F_TOMBSTONE.bit_length() - 1])
        return {
            "log_offset": _column(pa.int64(), count, None, self.log_offsets),
            "timestamp_ms": self._made(pa.int64(), F2_TIMESTAMP, self.timestamps, more=True),
            "batch_offset": _column(pa.int64(), count, None, self.batch_offsets),
            "record_type": self._made(pa.int16(), F_TYPE, self.record_types),
            "value_version": self._made(pa.int16(), F_VERSION, self.versions),
            "is_tombstone": pa.Array.from_buffers(pa.bool_(), count, [None, tombstones]),
            "producer_id": self._made(pa.int64(), F_PRODUCER, self.producer_ids),
            "producer_epoch": self._made(pa.int16(), F_PRODUCER, self.producer_epochs),
            "txn_outcome": self._outcomes(),
        }

    def _outcomes(self) -> Array:
        places = self.transactional
        if not len(places):
            return _nulls(pa.string(), self.count)
        batches = self.chunk.records[self.rows[places], R_BATCH]
        return _spread(_chosen_names(_OUTCOMES, self.chunk.batches[batches, B_OUTCOME]), places, self.count)

    def of_commits(self) -> dict[str, Any]:
        text, offsets, data = pa.string(), self.offsets, self.data
        columns = {
            "group_id": self._made(text, F_GROUP, offsets[0], data[0]),
            "topic": self._made(text, F_KEY, offsets[1], data[1]),
            "metadata": self._made(text, F_COMMIT, offsets[2], data[2]),
            "topic_id": self._made(text, F2_TOPIC_ID, offsets[3], data[3], more=True),
            "partition": self._made(pa.int32(), F_KEY, self.partitions),
            "committed_offset": self._made(pa.int64(), F_COMMIT, self.committed),
            "leader_epoch": self._made(pa.int32(), F_LEADER_EPOCH, self.leader_epochs),
            "commit_timestamp_ms": self._made(pa.int64(), F_COMMIT, self.commit_times),
            "expire_timestamp_ms": self._made(pa.int64(), F2_EXPIRES, self.expire_times, more=True),
        }
        for number, name in enumerate(("group_id", "topic", "metadata")):
            if not is_ascii(data[number], int(offsets[number][self.count])) and not _is_valid(columns[name]):
                columns[name] = _repaired(self.chunk, self.rows, name, columns[name])
        return columns


def _bitmaps(flags: NDArray[np.uint8], count: int) -> tuple[NDArray[np.uint8], Longs]:
    bitmaps, counts = np.empty((8, (count + 7) // 8), np.uint8), np.zeros(8, np.int64)
    flags_to_bitmaps(flags, count, bitmaps, counts)
    return bitmaps, counts


def _column(kind: Array, count: int, bitmap: NDArray[Any] | None, *buffers: NDArray[Any]) -> Array:
    valid = None if bitmap is None else pa.py_buffer(bitmap)
    return pa.Array.from_buffers(kind, count, [valid, *map(pa.py_buffer, buffers)])


def _partition_column(partition: int | None, count: int) -> Array:
    if partition is None:
        return _nulls(pa.int32(), count)
    return _fixed(np.full(count, partition, np.int32), pa.int32(), count)


def _chosen_names(names: tuple[NDArray[np.int32], NDArray[np.uint8]], choices: NDArray[Any]) -> Array:
    """A string column that repeats a few names."""
    offsets, data = names
    buffer = np.concatenate([data, np.zeros(SLACK, np.uint8)])
    starts = offsets[choices].astype(np.int64)
    return strings(buffer, starts, offsets[choices.astype(np.int64) + 1].astype(np.int64) - starts)


def _control_column(chunk: Chunk, rows: Longs) -> Array:
    """Type and coordinator epoch of control records, read straight from their bytes."""
    records, buffer = chunk.records[rows], chunk.buffer
    keyed = records[:, R_KEY_LENGTH] >= 4
    key = np.where(keyed, records[:, R_KEY], 0)
    version = buffer[key].astype(np.int64) << 8 | buffer[key + 1]
    kind = np.where(
        keyed & (version < 0x8000), buffer[key + 2].astype(np.int64) << 8 | buffer[key + 3], len(CONTROL_TYPES)
    )
    kind = np.minimum(kind, len(CONTROL_TYPES))
    with_epoch = (kind <= COMMIT) & (records[:, R_VALUE_LENGTH] >= 6)
    value = np.where(with_epoch, records[:, R_VALUE], 0)
    epochs = np.zeros(len(rows), np.int32)
    for byte in range(4):
        epochs = epochs << 8 | buffer[value + 2 + byte].astype(np.int32)
    epoch_column = _fixed(epochs, pa.int32(), len(rows), with_epoch)
    return pa.StructArray.from_arrays([_chosen_names(_CONTROLS, kind), epoch_column], fields=list(schema.CONTROL))


def _is_valid(text: Array) -> bool:
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _repaired(chunk: Chunk, rows: Longs, name: str, broken: Array) -> Array:
    """The same column with U+FFFD for bytes that are not UTF-8; rare enough to be made from scratch."""
    classes = chunk.classes[rows]
    starts = classes[:, C_GROUP]
    if name == "topic":
        starts = starts + classes[:, C_GROUP_LENGTH] + 2
    elif name == "metadata":
        starts = np.where(classes[:, C_KIND] == K_COMMIT, classes[:, C_METADATA], 0)
    valid = _validity(broken)
    ends = np.frombuffer(broken.buffers()[1], np.int32)[: len(rows) + 1]
    lengths = np.where(valid, np.diff(ends), -1).astype(np.int64)
    return strings(chunk.buffer, np.ascontiguousarray(starts), lengths)


def strings(buffer: Bytes, starts: Longs, lengths: Longs) -> Array:
    """A string column gathered from places in a buffer; length -1 is null."""
    size = int(lengths[lengths > 0].sum())
    column = _gathered(buffer, starts, lengths, size, gather_bytes, pa.string())
    if is_ascii(np.frombuffer(column.buffers()[2], np.uint8), size) or _is_valid(column):
        return column
    size = measure_repaired(buffer, starts, lengths)
    return _gathered(buffer, starts, lengths, size, gather_repaired, pa.string())


def binaries(buffer: Bytes, starts: Longs, lengths: Longs) -> Array:
    """The same for raw bytes."""
    return _gathered(buffer, starts, lengths, int(lengths[lengths > 0].sum()), gather_bytes, pa.binary())


def _gathered(buffer: Bytes, starts: Longs, lengths: Longs, size: int, gather: Filler, kind: Array) -> Array:
    count = len(starts)
    offsets, data = _buffer(count + 1, np.int32), _buffer(size, np.uint8)
    gather(buffer, starts, lengths, offsets, data)
    valid = lengths >= 0
    return _text(offsets, data, count, None if valid.all() else valid, kind)


def _scatter(places: Longs, rows: Longs, kind: Array, make: Callable[[Longs], Array]) -> Array:
    """A column that only the rows at these places fill, with what `make` makes of them."""
    if not len(places):
        return _nulls(kind, len(rows))
    values = make(rows[places])
    if values.null_count == len(values):
        return _nulls(kind, len(rows))
    return _spread(values, places, len(rows))


def _spread(values: Array, places: Longs, count: int, repeats: Longs | None = None) -> Array:
    """A column of `count` rows with these values at these places and nulls elsewhere.

    Nulls take no bytes in strings and lists, so only offsets are laid anew; Arrow's own `take` copies everything and
    was the slowest part of the decoder. The children of a struct (`repeats` given) are null wherever the struct is,
    and need a bitmap only for nulls of their own.
    """
    kind, buffers = values.type, values.buffers()
    bitmap = None
    if repeats is None or values.null_count:
        valid = np.zeros(count, np.bool_)
        valid[places] = _validity(values)
        bitmap = _bitmap(valid)
    if repeats is None:
        repeats = np.diff(places, prepend=-1, append=count)
    if pa.types.is_struct(kind):
        children = [_spread(values.field(number), places, count, repeats) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [bitmap], children=children)
    if not pa.types.is_primitive(kind):
        few = np.zeros(len(values) + 1, np.int32) if buffers[1] is None else np.frombuffer(buffers[1], np.int32)
        offsets = pa.py_buffer(np.repeat(few[: len(values) + 1], repeats))
        if pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, count, [bitmap, offsets], children=[values.values])
        return pa.Array.from_buffers(kind, count, [bitmap, offsets, buffers[2]])
    width = np.dtype(f"i{kind.bit_width // 8}")  # only integers are left
    spread = np.zeros(count, width)
    spread[places] = np.frombuffer(buffers[1], width)[: len(values)]
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(spread)])


def _validity(values: Array) -> NDArray[np.bool_]:
    bitmap = values.buffers()[0]
    if bitmap is None:
        return np.ones(len(values), np.bool_)
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=len(values), bitorder="little").astype(np.bool_)


def _structs(rows: Iterable[dict[str, Any] | None], kind: Array) -> Array:
    return pa.array(list(rows), kind)


def group_column(chunk: Chunk, rows: Longs) -> Array:
    """The nested column of these classic group records, all of which are readable."""
    room = int(chunk.records[rows, R_VALUE_LENGTH].sum())  # nothing inside can be more numerous than its bytes
    groups = np.empty((len(rows), g.GROUP_COLUMNS), np.int64)
    members = np.empty((room // 15 + 2, g.MEMBER_COLUMNS), np.int64)
    topics = np.empty((room // 2 + 1, g.TOPIC_COLUMNS), np.int64)
    assigned = np.empty((room // 6 + 1, g.ASSIGNED_COLUMNS), np.int64)
    partitions = np.empty(room // 4 + 1, np.int32)
    counts = locate_groups(chunk.buffer, chunk.records, rows, groups, members, topics, assigned, partitions)
    members, topics, assigned = members[: counts[0]], topics[: counts[1]], assigned[: counts[2]]
    buffer = chunk.buffer
    assigned_topics = pa.StructArray.from_arrays(
        [
            _strings_at(buffer, assigned, g.A_NAME),
            _lists(assigned, g.A_PARTITIONS, _fixed(partitions, pa.int32(), counts[3])),
        ],
        fields=list(schema.ASSIGNED),
    )
    member_column = pa.StructArray.from_arrays(
        [
            _strings_at(buffer, members, g.M_MEMBER_ID),
            _strings_at(buffer, members, g.M_INSTANCE_ID),
            _strings_at(buffer, members, g.M_CLIENT_ID),
            _strings_at(buffer, members, g.M_CLIENT_HOST),
            _ints(members, g.M_REBALANCE_TIMEOUT),
            _ints(members, g.M_SESSION_TIMEOUT),
            binaries(buffer, *_places(members, g.M_SUBSCRIPTION)),
            binaries(buffer, *_places(members, g.M_ASSIGNMENT)),
            _lists(members, g.M_TOPICS, _strings_at(buffer, topics, g.T_NAME)),
            _lists(members, g.M_ASSIGNED, assigned_topics),
        ],
        fields=list(schema.MEMBER),
    )
    state_times = np.ascontiguousarray(groups[:, g.G_STATE_TIMESTAMP])
    return pa.StructArray.from_arrays(
        [
            _strings_at(buffer, groups, g.G_PROTOCOL_TYPE),
            _ints(groups, g.G_GENERATION),
            _strings_at(buffer, groups, g.G_PROTOCOL),
            _strings_at(buffer, groups, g.G_LEADER),
            _fixed(state_times, pa.int64(), len(rows), state_times >= 0),
            _lists(groups, g.G_MEMBERS, member_column),
        ],
        fields=list(schema.GROUP),
    )


def _places(table: Longs, column: int) -> tuple[Longs, Longs]:
    return np.ascontiguousarray(table[:, column]), np.ascontiguousarray(table[:, column + 1])


def _ints(table: Longs, column: int) -> Array:
    return _fixed(table[:, column].astype(np.int32), pa.int32(), len(table))


def _strings_at(buffer: Bytes, table: Longs, column: int) -> Array:
    return strings(buffer, *_places(table, column))


def _lists(table: Longs, count_column: int, values: Array) -> Array:
    """A list column whose children lie in order behind one another; a count of -1 is a null list."""
    counts = table[:, count_column]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.maximum(counts, 0), out=offsets[1:])
    present = counts >= 0
    bitmap = None if present.all() else _bitmap(present)
    return pa.Array.from_buffers(pa.list_(values.type), len(counts), [bitmap, pa.py_buffer(offsets)], children=[values])
