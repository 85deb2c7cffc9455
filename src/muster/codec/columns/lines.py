"""Lines of text made from columns: what the text and the JSON of `muster dump` have in common.

A line is a join of fixed texts and columns of strings,

    joined("| offset: ", numbers(offsets), " keySize: ", numbers(key_lengths), ...)

and Arrow makes thousands of lines in one call. Nearly every record of the topic is an offset commit. Those of one
*shape* (the same version, with or without a topic id) are joined together; a record of another kind is written by the
row-wise codec, in Python. `in_order` puts the lines where they belong.

Arrays are made from buffers here: `pa.array` would import pandas, which takes longer than most dumps.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray

from muster.codec.columns.arrow import Array, RecordColumns
from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_KIND, C_TOPIC_ID, C_TYPE, C_VERSION, K_COMMIT_TOMBSTONE
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_CRC,
    B_MAGIC,
    B_POSITION,
    B_SIZE,
    B_STATE,
    BAD_COMPRESSION,
    BAD_CRC,
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    R_BATCH,
    R_KEY_LENGTH,
    R_VALUE_LENGTH,
)
from muster.codec.compression import codec_name
from muster.codec.kafka_json import jackson_text

Flags = NDArray[np.bool_]
Part = Any  # an Arrow column of strings, or one text for all rows

STRETCH_BYTES = 12 << 20
"""The most bytes of lines that are made at a time, by an estimate that is three times too high for most records."""
AT_ONCE = 2
LONGEST_ESCAPE = 6
FIXED_BYTES = 800
"""More than a line takes beside the strings of its record."""

TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
CODECS = tuple(map(codec_name, range(CODEC_MASK + 1)))


class Stretch(NamedTuple):
    """Rows whose lines are made together, and the batches that begin among them; with their places among the lines."""

    rows: Longs
    row_places: Longs
    batches: Longs
    batch_places: Longs


def stretches(chunk: Chunk, rows: Longs | None) -> Iterator[Stretch]:
    """A chunk in order. `rows` are the records to show, ascending; None stands for all, and for batches without any."""
    chosen = np.arange(len(chunk.records)) if rows is None else rows
    owners = chunk.records[chosen, R_BATCH]
    batches = np.arange(len(chunk.batches)) if rows is None else np.unique(owners)
    begins = np.searchsorted(owners, batches)
    lengths = np.maximum(chunk.records[chosen, R_KEY_LENGTH], 0) + np.maximum(chunk.records[chosen, R_VALUE_LENGTH], 0)
    ends = np.cumsum(FIXED_BYTES + LONGEST_ESCAPE * lengths)
    start, is_last = 0, not len(batches)
    while not is_last:
        limit = STRETCH_BYTES + (ends[start - 1] if start else 0)
        stop = max(int(np.searchsorted(ends, limit)), start + 1)
        is_last = stop >= len(chosen)
        first, past = np.searchsorted(begins, [start, len(chosen) + 1 if is_last else stop])
        row_places = np.arange(start, min(stop, len(chosen)))
        row_places += np.searchsorted(begins, row_places, "right")
        batch_places = begins[first:past] + np.arange(first, past)
        yield Stretch(chosen[start:stop], row_places, batches[first:past], batch_places)
        start = stop


def made_ahead(make: Callable[[Stretch], bytes], some: Iterable[Stretch]) -> Iterator[bytes]:
    """The lines of stretches, in order, two of them in the making: Arrow works outside of the interpreter's lock."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: deque[Future[bytes]] = deque()
        for stretch in some:
            waiting.append(pool.submit(make, stretch))
            if len(waiting) > AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_order(*some: tuple[Array, Longs]) -> bytes:
    """Lines with their places, in the order of these."""
    order = np.argsort(np.concatenate([places for _, places in some]), kind="stable")  # quick on parts in order
    lines = pa.concat_arrays([lines for lines, _ in some]).take(longs(order))
    ends = np.frombuffer(lines.buffers()[1], np.int32)
    return memoryview(lines.buffers()[2])[: ends[len(lines)]].tobytes()


def alike(shapes: Longs) -> Iterator[Longs]:
    """Places with the same number, which is small and not negative; those of -1 are left out."""
    for shape in np.flatnonzero(np.bincount(shapes + 1)[1:]).tolist():
        yield np.flatnonzero(shapes == shape)


# --- columns of strings ---


def joined(*parts: Part) -> Array:
    """Columns and texts as one column. At least one part is a column."""
    merged: list[Part] = [""]
    for part in parts:
        if isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return pc.binary_join_element_wise(*map(_value, merged), _value(""))


def _value(part: Part) -> Any:
    """A part as Arrow takes it. (`pa.scalar` of a text would import pandas.)"""
    return texts([part])[0] if isinstance(part, str) else part


def longs(values: NDArray[Any]) -> Array:
    data = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def numbers(values: NDArray[Any]) -> Array:
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low < len(values) // 4:  # few of them: looking up is quicker
        return texts(map(str, range(low, high + 1))).take(longs(values - low))
    return longs(values).cast(pa.string())


def repeated(values: NDArray[Any]) -> Part:
    """Numbers that are mostly all the same, and then one text."""
    return str(values[0]) if len(values) and (values == values[0]).all() else numbers(values)


def named(names: Sequence[str], choices: NDArray[Any]) -> Part:
    """One of a few names for each row."""
    if len(choices) and (choices == choices[0]).all():
        return names[choices[0]]
    return texts(names).take(longs(choices))


def texts(values: Iterable[str]) -> Array:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def either(flags: Flags, yes: Part, no: Part) -> Part:
    if flags.all():
        return yes
    return pc.if_else(_booleans(flags), _value(yes), _value(no)) if flags.any() else no


def _booleans(flags: Flags) -> Array:
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(np.packbits(flags, bitorder="little"))])


def escaped(names: Array) -> Array:
    """What goes between the quotes of JSON strings: nearly always the names themselves."""
    if names.null_count == len(names):
        return names
    ends = np.frombuffer(names.buffers()[1], np.int32)
    data = np.frombuffer(names.buffers()[2], np.uint8)[: ends[len(names)]]
    if not ((data < 0x20) | (data == ord('"')) | (data == ord("\\"))).any():
        return names
    distinct = names.dictionary_encode()
    return texts(jackson_text(name)[1:-1] for name in distinct.dictionary.to_pylist()).take(distinct.indices)


# --- batches and records ---


def attribute(batches: Longs, bit: int) -> Flags:
    """Which batches have an attribute that only the newest format knows."""
    flags: Flags = (batches[:, B_MAGIC] == 2) & ((batches[:, B_ATTRIBUTES] & bit) != 0)
    return flags


def timestamp_types(chunk: Chunk, batches: Longs) -> Part:
    is_of_broker = (chunk.batches[batches, B_ATTRIBUTES] & LOG_APPEND_TIME_BIT) != 0
    return named(TIMESTAMP_TYPES, np.where(chunk.batches[batches, B_MAGIC] == 0, 0, np.where(is_of_broker, 2, 1)))


def codecs(batches: Longs) -> Part:
    return named(CODECS, batches[:, B_ATTRIBUTES] & CODEC_MASK)


def sequences(chunk: Chunk, batches: Longs, offsets: Longs) -> Longs:
    """The sequence numbers of these offsets, each in its batch. They wrap to 0 behind the largest int32."""
    base, difference = chunk.batches[:, B_BASE_SEQUENCE], offsets - chunk.batches[batches, B_BASE_OFFSET]
    return np.where(base[batches] >= 0, (base[batches] + difference) & 0x7FFFFFFF, -1)


def checksums_right(chunk: Chunk, batches: Longs) -> Part:
    right = batches[:, B_STATE] != BAD_CRC
    # What cannot be unpacked may have a bad checksum as well, and the table has room for one fault.
    for number in np.flatnonzero(batches[:, B_STATE] == BAD_COMPRESSION).tolist():
        position, size, crc = batches[number, [B_POSITION, B_SIZE, B_CRC]].tolist()
        right[number] = crc32c(chunk.buffer[position + 21 : position + size].tobytes()) == crc
    return either(right, "true", "false")


def commit_shapes(chunk: Chunk, rows: Longs, among: Flags) -> Iterator[Longs]:
    """The places of offset commits among these rows, those of one shape at a time."""
    classes = chunk.classes[rows]
    is_old = chunk.batches[chunk.records[rows, R_BATCH], B_MAGIC] < 2
    shape = classes[:, C_VERSION] + 1  # 0 is a tombstone
    for distinction in (classes[:, C_TYPE] == 0, classes[:, C_TOPIC_ID] > 0, is_old):
        shape = 2 * shape + distinction
    return alike(np.where(among, shape, -1))


def commit_parts(chunk: Chunk, rows: Longs, quote: str) -> tuple[list[Part], list[Part]]:
    """Keys and values, as JSON, of offset commits of one shape; no value of tombstones.

    `quote` stands round the numbers of types and versions.
    """
    columns = RecordColumns(chunk, rows)
    count, strings = columns.count, columns.of_commits()
    record_type, version, kind, topic_id = chunk.classes[rows[0], [C_TYPE, C_VERSION, C_KIND, C_TOPIC_ID]].tolist()
    key: list[Part] = [
        f'{{"type":{quote}{record_type}{quote},"data":{{"group":"', escaped(strings["group_id"]),
        '","topic":"', escaped(strings["topic"]),
        '","partition":', numbers(columns.partitions[:count]),
        "}}",
    ]  # fmt: skip
    if kind == K_COMMIT_TOMBSTONE:
        return key, []
    value: list[Part] = [
        f'{{"version":{quote}{version}{quote},"data":{{"offset":', numbers(columns.committed[:count]),
        *((',"leaderEpoch":', numbers(columns.leader_epochs[:count])) if version >= 3 else ()),
        ',"metadata":"', escaped(strings["metadata"]),
        '","commitTimestamp":', numbers(columns.commit_times[:count]),
        *((',"expireTimestamp":', numbers(columns.expire_times[:count])) if version == 1 else ()),
        *((',"topicId":"', strings["topic_id"], '"') if topic_id > 0 else ()),
        "}}",
    ]  # fmt: skip
    return key, value
