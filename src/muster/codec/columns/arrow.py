"""Chunks to Arrow: the door through which every other part of muster sees the topic.

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
    K_COMMIT_TOMBSTONE,
    K_CONTROL,
    K_GROUP,
    K_NEWER,
    K_NEWER_TOMBSTONE,
    K_UNKNOWN,
    T_EXPIRING,
    T_GROUP,
    T_METADATA,
    T_TOPIC,
    T_TOPIC_IDS,
    fill_commits,
    fill_log,
)
from muster.codec.columns.newer import newer_rows, unread_rows
from muster.codec.columns.scan import R_KEY, R_KEY_LENGTH, R_VALUE, R_VALUE_LENGTH, SCAN_FULL
from muster.codec.columns.strings import gather_bytes, gather_repaired, measure_repaired
from muster.codec.columns.words import SLACK, is_ascii
from muster.codec.records import COMMIT, CONTROL_TYPES
from muster.codec.transactions import OUTCOME_NAMES, Markers

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
    `muster.log.reader` for files, which streams and reports damage. Transactions are resolved by the markers given, or
    else by those in the bytes themselves.
    """
    buffer = with_slack(data)
    scratch = Scratch()
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
    from muster.codec.columns import markers as kernels
    from muster.codec.columns import scan

    table = np.empty((1 << 12, scan.BATCH_COLUMNS), np.int64)
    found = np.empty((1 << 12, kernels.MARKER_COLUMNS), np.int64)
    position, kept = 0, []
    while True:
        count, position, stop = scan.scan_batches(buffer, position, end, table, False)
        kept.append(found[: kernels.find_markers(buffer, table, count, found)].copy())
        if stop != SCAN_FULL:
            return Markers.of(np.concatenate(kept))


def to_arrow(chunk: Chunk, partition: int | None, rows: Longs | None = None) -> Array:
    """The records of a chunk (or only some rows of it) as a `pyarrow.RecordBatch` with the schema `schema.RECORDS`."""
    rows = _all_rows(len(chunk.records)) if rows is None else rows
    columns = _log_columns(chunk, rows)
    kinds = columns.pop("kinds")
    columns |= _commit_columns(chunk, rows, kinds)
    columns["offsets_partition"] = _partition_column(partition, len(rows))
    columns["group"] = _scatter(rows, kinds == K_GROUP, schema.GROUP, lambda some: group_column(chunk, some))
    newer = (kinds == K_NEWER) | (kinds == K_NEWER_TOMBSTONE)
    columns["newer"] = _scatter(rows, newer, schema.NEWER, lambda some: _structs(newer_rows(chunk, some), schema.NEWER))
    control = kinds == K_CONTROL
    columns["control"] = _scatter(rows, control, schema.CONTROL, lambda some: _control_column(chunk, some))
    # A newer kind's value is read by the row-wise codec, which may find it unreadable after all.
    suspects = (kinds == K_BAD) | (kinds == K_UNKNOWN) | (kinds == K_NEWER)
    columns["unread"] = _scatter(
        rows, suspects, schema.UNREAD, lambda some: _structs(unread_rows(chunk, some), schema.UNREAD)
    )
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.RECORDS.names], schema=schema.RECORDS)


@lru_cache(maxsize=2)
def _row_numbers(power: int) -> Longs:
    return np.arange(1 << power, dtype=np.int64)


def _all_rows(count: int) -> Longs:
    return _row_numbers(max(16, count.bit_length()))[:count]


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
    return _null_array(kind, max(16, count.bit_length())).slice(0, count)


def _masked(values: NDArray[Any], kind: Array, valid: NDArray[Any], count: int, valid_count: int) -> Array:
    """All null, some null, or none null: each as cheap as it can be."""
    if valid_count == 0:
        return _nulls(kind, count)
    return _fixed(values, kind, count, None if valid_count == count else valid)


def _log_columns(chunk: Chunk, rows: Longs) -> dict[str, Any]:
    count = len(rows)
    log_offsets, timestamps = _buffer(count, np.int64), _buffer(count, np.int64)
    batch_offsets, producer_ids = _buffer(count, np.int64), _buffer(count, np.int64)
    record_types, versions = _buffer(count, np.int16), _buffer(count, np.int16)
    producer_epochs, tombstones = _buffer(count, np.int16), np.empty(count, np.uint8)
    outcomes, kinds = np.empty(count, np.uint8), np.empty(count, np.uint8)
    timed, produced, transactional = fill_log(
        chunk.batches, chunk.records, chunk.classes, rows, log_offsets, timestamps, batch_offsets,
        record_types, versions, tombstones, producer_ids, producer_epochs, outcomes, kinds,
    )  # fmt: skip
    known = kinds != K_CONTROL
    with_type = known & (record_types[:count] >= 0) if count else known
    with_version = known & (versions[:count] >= 0) & (tombstones == 0)
    with_producer = producer_ids[:count] >= 0
    return {
        "kinds": kinds,
        "log_offset": _fixed(log_offsets, pa.int64(), count),
        "timestamp_ms": _masked(timestamps, pa.int64(), timestamps[:count] >= 0, count, timed),
        "batch_offset": _fixed(batch_offsets, pa.int64(), count),
        "record_type": _masked(record_types, pa.int16(), with_type, count, int(with_type.sum())),
        "value_version": _masked(versions, pa.int16(), with_version, count, int(with_version.sum())),
        "is_tombstone": pa.Array.from_buffers(pa.bool_(), count, [None, _bitmap(tombstones)]),
        "producer_id": _masked(producer_ids, pa.int64(), with_producer, count, produced),
        "producer_epoch": _masked(producer_epochs, pa.int16(), with_producer, count, produced),
        "txn_outcome": _outcome_column(outcomes) if transactional else _nulls(pa.string(), count),
    }


def _partition_column(partition: int | None, count: int) -> Array:
    if partition is None:
        return _nulls(pa.int32(), count)
    return _fixed(np.full(count, partition, np.int32), pa.int32(), count)


def _outcome_column(outcomes: NDArray[np.uint8]) -> Array:
    places = np.flatnonzero(outcomes)
    return _spread(_chosen_names(_OUTCOMES, outcomes[places]), places, len(outcomes))


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


def _commit_columns(chunk: Chunk, rows: Longs, kinds: NDArray[np.uint8]) -> dict[str, Any]:
    count = len(rows)
    totals = chunk.totals
    offsets = [_buffer(count + 1, np.int32) for _ in range(4)]
    sizes = (totals[T_GROUP], totals[T_TOPIC], totals[T_METADATA], 22 * totals[T_TOPIC_IDS])
    data = [_buffer(int(size), np.uint8) for size in sizes]
    partitions, leader_epochs = _buffer(count, np.int32), _buffer(count, np.int32)
    committed, commit_times, expire_times = (_buffer(count, np.int64) for _ in range(3))
    fill_commits(
        chunk.buffer, chunk.records, chunk.classes, rows,
        offsets[0], data[0], offsets[1], data[1], offsets[2], data[2], offsets[3], data[3],
        partitions, committed, leader_epochs, commit_times, expire_times,
    )  # fmt: skip
    is_commit = kinds == K_COMMIT
    is_key = kinds <= K_COMMIT_TOMBSTONE
    commits, keys = int(is_commit.sum()), int(is_key.sum())
    with_epoch = leader_epochs[:count] >= 0
    with_group = is_key if keys == count else chunk.classes[rows, C_GROUP_LENGTH] >= 0
    text = pa.string()
    columns = {
        "group_id": _text(offsets[0], data[0], count, None if with_group.all() else with_group, text),
        "topic": _text(offsets[1], data[1], count, None if keys == count else is_key, text),
        "metadata": _text(offsets[2], data[2], count, None if commits == count else is_commit, text),
        "partition": _masked(partitions, pa.int32(), is_key, count, keys),
        "committed_offset": _masked(committed, pa.int64(), is_commit, count, commits),
        "leader_epoch": _masked(leader_epochs, pa.int32(), with_epoch, count, int(with_epoch.sum())),
        "commit_timestamp_ms": _masked(commit_times, pa.int64(), is_commit, count, commits),
        "expire_timestamp_ms": _nulls(pa.int64(), count),
        "topic_id": _nulls(text, count),
    }
    if totals[T_EXPIRING]:
        with_expiry = expire_times[:count] >= 0
        columns["expire_timestamp_ms"] = _masked(expire_times, pa.int64(), with_expiry, count, int(with_expiry.sum()))
    if totals[T_TOPIC_IDS]:
        with_id = np.diff(offsets[3][: count + 1]) > 0
        columns["topic_id"] = _text(offsets[3], data[3], count, with_id, text)
    for number, name in enumerate(("group_id", "topic", "metadata")):
        if not is_ascii(data[number], int(offsets[number][count])) and not _is_valid(columns[name]):
            columns[name] = _repaired(chunk, rows, name, columns[name])
    return columns


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


def _scatter(rows: Longs, chosen: NDArray[np.bool_], kind: Array, make: Callable[[Longs], Array]) -> Array:
    """A column that only the chosen rows fill, with what `make` makes of them."""
    places = np.flatnonzero(chosen)
    if not len(places):
        return _nulls(kind, len(rows))
    values = make(rows[places])
    if values.null_count == len(values):
        return _nulls(kind, len(rows))
    return _spread(values, places, len(rows))


def _spread(values: Array, places: Longs, count: int) -> Array:
    """A column of `count` rows with these values at these places and nulls elsewhere.

    Nulls take no bytes in strings and lists, so only offsets are laid anew; Arrow's own `take` copies everything and
    was the slowest part of the decoder.
    """
    kind = values.type
    valid = np.zeros(count, np.bool_)
    valid[places] = _validity(values)
    if pa.types.is_struct(kind):
        children = [_spread(values.field(number), places, count) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [_bitmap(valid)], children=children)
    buffers = values.buffers()
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind):
        repeats = np.diff(places, prepend=-1, append=count)
        few = np.zeros(len(values) + 1, np.int32) if buffers[1] is None else np.frombuffer(buffers[1], np.int32)
        offsets = pa.py_buffer(np.repeat(few[: len(values) + 1], repeats))
        if pa.types.is_list(kind):
            return pa.Array.from_buffers(kind, count, [_bitmap(valid), offsets], children=[values.values])
        return pa.Array.from_buffers(kind, count, [_bitmap(valid), offsets, buffers[2]])
    width = np.dtype(f"i{kind.bit_width // 8}")  # only integers are left
    spread = np.zeros(count, width)
    spread[places] = np.frombuffer(buffers[1], width)[: len(values)]
    return pa.Array.from_buffers(kind, count, [_bitmap(valid), pa.py_buffer(spread)])


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
    counts = g.locate_groups(chunk.buffer, chunk.records, rows, groups, members, topics, assigned, partitions)
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
