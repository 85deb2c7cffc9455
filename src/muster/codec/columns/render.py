"""Rendering in one kernel: lines of text made from a chunk by *programs*, straight into an output buffer.

A program says what a line looks like, as a list of steps: some fixed text, and what follows it,

    ("| offset: ", RECORD, R_OFFSET), (" ", TIMESTAMP_TYPE), (": ", RECORD, R_TIMESTAMP), ...

and a `LineFormat` holds one program for each kind of line (`dump_text.py` and `dump_json.py` write them). The kernel
runs the right one for each batch and record. A kernel for each format would take as long again to compile.

Nearly every record of the topic is an offset commit, and those the kernel writes itself, at millions a second. What
else a log holds is written by the row-wise codec, in Python, and spliced in: the kernel gets these *pieces* in the
order in which it will want them.

As in `words.py`, nothing here checks bounds. Before each line the kernel asks whether there is room for all the texts
and numbers of its format, six times the bytes of its strings (a control character takes six) and its piece.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from muster.codec.columns.chunks import Chunk, with_slack
from muster.codec.columns.commits import (
    C_GROUP,
    C_GROUP_LENGTH,
    C_KIND,
    C_METADATA,
    C_METADATA_LENGTH,
    C_TOPIC_ID,
    C_TYPE,
    C_VERSION,
    K_COMMIT_TOMBSTONE,
    write_uuid,
)
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_CRC,
    B_FIRST_RECORD,
    B_LAST_OFFSET,
    B_MAGIC,
    B_OUTCOME,
    B_POSITION,
    B_RECORDS,
    B_SIZE,
    B_STATE,
    BAD_COMPRESSION,
    BAD_CRC,
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    R_KEY_LENGTH,
    R_OFFSET,
    R_VALUE,
    R_VALUE_LENGTH,
)
from muster.codec.columns.strings import utf8_piece
from muster.codec.columns.words import (
    BYTES,
    FLAGS,
    LONGS,
    SLACK,
    TABLE,
    copy_bytes,
    crc32c,
    inlined,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    load_word,
    store_word,
)
from muster.codec.compression import codec_name
from muster.codec.records import Record

Bytes = NDArray[np.uint8]
Flags = NDArray[np.uint8]
Longs = NDArray[np.int64]

OUT_ROOM = 1 << 20
"""Bytes of text that are made at a time; small enough for a CPU's cache."""
PIECES_ROOM = 1 << 20
"""Bytes of Python-made pieces that are held at a time."""
LONGEST_ESCAPE = 6
LONGEST_NUMBER = 24  # more than a number or a topic id takes

# What a step writes behind its fixed text. Numbers:
END = 0
NOTHING = 1
BATCH = 2  # a column of the batch table
RECORD = 3  # a column of the record table
FILE_POSITION = 4
SEQUENCE = 5
LAST_SEQUENCE = 6
RECORD_TYPE = 7
PARTITION = 8
COMMITTED_OFFSET = 9
LEADER_EPOCH = 10
COMMIT_TIMESTAMP = 11
EXPIRE_TIMESTAMP = 12
LAST_NUMBER = 12
# Strings, escaped for JSON:
GROUP = 13
TOPIC = 14
METADATA = 15
LAST_STRING = 15
# One of a list of names:
TIMESTAMP_TYPE = 16
CODEC = 17
ATTRIBUTE = 18  # false, true by a bit of the attributes
CRC_IS_RIGHT = 19
OUTCOME = 20
LAST_NAME = 20
# And the others:
TOPIC_ID = 21
PIECE = 22
SKIP_UNLESS = 23  # leaves out the next step unless a bit of the attributes is set
BATCH_TAIL = 24  # the rest of the line is the same for all records of a batch: the program `TAIL`, run once and copied

# The programs of a format.
BATCH_LINE = 0
OLD_BATCH_LINE = 1
EMPTY_BATCH_LINE = 2
TAIL = 3
OLD_TAIL = 4
PIECE_LINE = 5
TOMBSTONE_LINE = 6
VERSION_LINES = 7  # and one for each version
TOPIC_ID_LINE = 12
OLD_FORMATS = 8  # added to the lines of records for those in batches of magic 0 and 1
PROGRAMS = 21
VERSIONS = range(5)

# Columns of a compiled program.
P_TEXT = 0
P_TEXT_LENGTH = 1
P_STEP = 2
P_ARGUMENT = 3
P_NAMES = 4  # row of the first of the step's names, whose texts are what is written

# Where the kernel stands: it is stopped and sent on with these.
AT_BATCH = 0
AT_ROW = 1  # index into the chosen rows
AT_PIECE = 2  # number of the next piece
IN_BATCH = 3  # 1 when what comes before the batch's first record is already written

TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
CODECS = tuple(map(codec_name, range(CODEC_MASK + 1)))
FLAG_NAMES = ("false", "true")


class Step(NamedTuple):
    """A fixed text and what follows it."""

    text: str
    step: int = NOTHING
    argument: int = 0
    names: tuple[str, ...] = ()


class LineFormat:
    """The programs of all lines, compiled; a line without a program is not written."""

    def __init__(self, programs: Mapping[int, list[Step]]) -> None:
        self._texts = bytearray()
        self._rows: list[list[int]] = []
        self._names: list[tuple[int, tuple[str, ...]]] = []
        self._add([Step("", END)])  # of the lines that there are not
        self.starts = np.zeros(PROGRAMS, np.int64)
        for program, steps in programs.items():
            self.starts[program] = len(self._rows)
            self._add([*steps, Step("", END)])
        self._add_names()
        self.program = np.array(self._rows, np.int64)
        self.texts = with_slack(bytes(self._texts))
        self.room = len(self._texts) + LONGEST_NUMBER * len(self._rows)  # no line takes a step twice

    def _add(self, steps: list[Step]) -> None:
        for step in steps:
            text = step.text.encode()
            if step.names:
                self._names.append((len(self._rows), step.names))
            self._rows.append([len(self._texts), len(text), step.step, step.argument, 0])
            self._texts += text

    def _add_names(self) -> None:
        for row, names in self._names:
            self._rows[row][P_NAMES] = len(self._rows)
            self._add([Step(name, END) for name in names])


@intrinsic
def _trailing_zeros(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


ZEROS = np.uint64(0x3030303030303030)
HIGH_BITS = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)


@inlined
def _digits(value):  # type: ignore[no-untyped-def]
    """The eight decimal digits of a number below 10**8, one per byte, the first in the lowest byte.

    All of them at once: the number is halved into lanes of four, two and one digits by multiplying with reciprocals.
    """
    top = value // np.uint64(10000)
    lanes = ((value - top * np.uint64(10000)) << np.uint64(32)) | top
    hundreds = ((lanes * np.uint64(10486)) >> np.uint64(20)) & np.uint64(0x0000007F0000007F)
    lanes = hundreds | ((lanes - np.uint64(100) * hundreds) << np.uint64(16))
    tens = ((lanes * np.uint64(103)) >> np.uint64(10)) & np.uint64(0x000F000F000F000F)
    return tens | ((lanes - np.uint64(10) * tens) << np.uint64(8))


@inlined
def _put_leading(target, position, value):  # type: ignore[no-untyped-def]
    """A number below 10**8 without leading zeros."""
    digits = _digits(value)
    zeros = _trailing_zeros(digits | (np.uint64(1) << np.uint64(56))) >> np.uint64(3)  # a zero keeps its last digit
    store_word(target, position, (digits | ZEROS) >> (zeros << np.uint64(3)))
    return position + 8 - np.int64(zeros)


@inlined
def put_long(target, position, value):  # type: ignore[no-untyped-def]
    """Write a number in decimal; returns the position behind it. Touches up to seven bytes more."""
    hundred_million = np.uint64(100000000)
    left = np.uint64(value)
    if value < 0:
        target[position] = 45
        position += 1
        left = np.uint64(0) - left
    if left < np.uint64(10):
        target[position] = np.uint8(left) + np.uint8(48)
        return position + 1
    if left < hundred_million:
        return _put_leading(target, position, left)
    high = left // hundred_million
    low = left - high * hundred_million
    if high < hundred_million:
        position = _put_leading(target, position, high)
    else:
        top = high // hundred_million
        position = _put_leading(target, position, top)
        store_word(target, position, _digits(high - top * hundred_million) | ZEROS)
        position += 8
    store_word(target, position, _digits(low) | ZEROS)
    return position + 8


REPLACEMENT = np.frombuffer("\ufffd".encode(), np.uint8)


def _short_escapes() -> Bytes:
    """What follows the backslash for each character of ASCII; 0 for those that need none."""
    table = np.zeros(128, np.uint8)
    table[:0x20] = ord("u")
    for character, escape in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True):
        table[ord(character)] = ord(escape)
    return table


SHORT_ESCAPES = _short_escapes()


@inlined
def _hex_digit(value):  # type: ignore[no-untyped-def]
    return np.uint8(value + (48 if value < 10 else 55))


@kernel(types.int64(BYTES, types.int64, BYTES, types.int64, types.int64))
def _put_escaped(target, position, buffer, start, end):  # type: ignore[no-untyped-def]
    """A JSON string as Jackson writes it, character by character; what is not UTF-8 becomes U+FFFD."""
    while start < end:
        byte = buffer[start]
        if byte >= 0x80:
            piece = utf8_piece(buffer, start, end)
            length = piece if piece > 0 else 3
            for step in range(length):
                target[position + step] = buffer[start + step] if piece > 0 else REPLACEMENT[step]
            start += abs(piece)
            position += length
            continue
        short = SHORT_ESCAPES[byte]
        if short == 0:
            target[position] = byte
            position += 1
        else:
            target[position] = 0x5C
            target[position + 1] = short
            position += 2
            if short == 0x75:  # u
                target[position] = 48
                target[position + 1] = 48
                target[position + 2] = _hex_digit(byte >> 4)
                target[position + 3] = _hex_digit(byte & 15)
                position += 4
        start += 1
    return position


@inlined
def _is_plain(word):  # type: ignore[no-untyped-def]
    """Whether eight characters go into JSON as they are: printable ASCII, no quote, no backslash."""
    quote = word ^ (np.uint64(0x22) * ONES)
    backslash = word ^ (np.uint64(0x5C) * ONES)
    # Subtracting borrows into the high bit of each byte that was too small; a few false alarms do no harm.
    below = (word - np.uint64(0x20) * ONES) | (quote - ONES) | (backslash - ONES)
    return ((below | word) & HIGH_BITS) == 0


@inlined
def put_string(target, position, buffer, start, length):  # type: ignore[no-untyped-def]
    """What goes between the quotes of a JSON string; nearly always a plain copy, eight bytes at a time."""
    done = 0
    while done < length:
        word = load_word(buffer, start + done)
        store_word(target, position + done, word)
        if length - done < 8:  # what follows the string does not count
            unused = np.uint64(8 * (8 - length + done))
            word = (word << unused) | ((np.uint64(0x61) * ONES) >> (np.uint64(64) - unused))
        if not _is_plain(word):
            return _put_escaped(target, position + done, buffer, start + done, start + length)
        done += 8
    return position + length


@inlined
def _number(step, argument, buffer, batches, number, records, classes, row, file_position):  # type: ignore[no-untyped-def]
    """What a step that writes a number writes."""
    if step == RECORD:
        return records[row, argument]
    if step == BATCH:
        return batches[number, argument]
    if step == FILE_POSITION:
        return file_position + batches[number, B_POSITION]
    if step <= LAST_SEQUENCE:
        base_sequence = batches[number, B_BASE_SEQUENCE]
        offset = records[row, R_OFFSET] if step == SEQUENCE else batches[number, B_LAST_OFFSET]
        # It wraps to 0 behind the largest int32.
        return (base_sequence + offset - batches[number, B_BASE_OFFSET]) & 0x7FFFFFFF if base_sequence >= 0 else -1
    if step == RECORD_TYPE:
        return classes[row, C_TYPE]
    if step == COMMITTED_OFFSET:
        return load_be64(buffer, records[row, R_VALUE] + 2)
    if step == LEADER_EPOCH:
        return load_be32(buffer, records[row, R_VALUE] + 10)
    if step == PARTITION:
        topic = classes[row, C_GROUP] + classes[row, C_GROUP_LENGTH] + 2
        return load_be32(buffer, topic + load_be16(buffer, topic - 2))
    behind = classes[row, C_METADATA] + classes[row, C_METADATA_LENGTH]
    return load_be64(buffer, behind + (8 if step == EXPIRE_TIMESTAMP else 0))


@inlined
def _string(step, buffer, classes, row):  # type: ignore[no-untyped-def]
    """Where the string of a step is, and its length."""
    if step == METADATA:
        return classes[row, C_METADATA], classes[row, C_METADATA_LENGTH]
    group, length = classes[row, C_GROUP], classes[row, C_GROUP_LENGTH]
    if step == GROUP:
        return group, length
    topic = group + length + 2
    return topic, load_be16(buffer, topic - 2)


@inlined
def _name(step, argument, buffer, batches, number):  # type: ignore[no-untyped-def]
    """Which of its names a step writes."""
    magic, attributes = batches[number, B_MAGIC], batches[number, B_ATTRIBUTES]
    if step == TIMESTAMP_TYPE:
        if magic == 0:
            return 0
        return 2 if (attributes & LOG_APPEND_TIME_BIT) != 0 else 1
    if step == CODEC:
        return attributes & CODEC_MASK
    if step == ATTRIBUTE:
        return np.int64(magic == 2 and (attributes & argument) != 0)
    if step == OUTCOME:
        return batches[number, B_OUTCOME]
    state = batches[number, B_STATE]
    if state != BAD_COMPRESSION:
        return np.int64(state != BAD_CRC)
    # What cannot be unpacked may have a bad checksum as well, and the table has room for one fault.
    position, size = batches[number, B_POSITION], batches[number, B_SIZE]
    return np.int64(crc32c(buffer, position + 21, position + size) == batches[number, B_CRC])


@inlined
def _line(classes, row, is_piece, magic):  # type: ignore[no-untyped-def]
    """The program for a record."""
    if is_piece:
        program = PIECE_LINE
    elif classes[row, C_KIND] == K_COMMIT_TOMBSTONE:
        program = TOMBSTONE_LINE
    elif classes[row, C_VERSION] == 4 and classes[row, C_TOPIC_ID] > 0:
        program = TOPIC_ID_LINE
    else:
        program = VERSION_LINES + classes[row, C_VERSION]
    return program if magic == 2 else program + OLD_FORMATS


@kernel(
    types.int64(
        BYTES, TABLE, TABLE, TABLE, LONGS, FLAGS, LONGS, BYTES, BYTES, TABLE, LONGS, BYTES, LONGS,
        types.int64, types.int64, types.int64, types.boolean,
    )
)  # fmt: skip
def _write_lines(  # type: ignore[no-untyped-def]
    buffer, batches, records, classes, rows, pieced, ends, pieces, texts, program, starts, out, cursor,
    fixed_room, last_batch, file_position, selective,
):  # fmt: skip
    """Write lines from where the cursor stands until all is done, or the output or the pieces run out."""
    number, at, piece = cursor[AT_BATCH], cursor[AT_ROW], cursor[AT_PIECE]
    in_batch = cursor[IN_BATCH] != 0
    position, row, piece_start = 0, 0, 0
    tail, tail_length = -1, 0  # where in the output the tail of this batch is already
    while number < last_batch:
        magic = batches[number, B_MAGIC]
        past = batches[number, B_FIRST_RECORD] + batches[number, B_RECORDS]
        has_row = at < len(rows) and rows[at] < past
        is_record = in_batch
        room = fixed_room
        if in_batch:
            if not has_row:
                number += 1
                in_batch = False
                tail = -1
                continue
            row = rows[at]
            is_piece = pieced[at] != 0
            if is_piece:
                if piece == len(ends):
                    break
                piece_start = ends[piece - 1] if piece > 0 else 0
                room += ends[piece] - piece_start
            else:
                room += LONGEST_ESCAPE * (max(records[row, R_KEY_LENGTH], 0) + max(records[row, R_VALUE_LENGTH], 0))
            step_at = starts[_line(classes, row, is_piece, magic)]
        elif has_row or not selective:
            step_at = starts[BATCH_LINE if magic == 2 else OLD_BATCH_LINE]
            if batches[number, B_RECORDS] == 0 and starts[EMPTY_BATCH_LINE] != 0:
                step_at = starts[EMPTY_BATCH_LINE]
        else:
            number += 1
            continue
        if len(out) - SLACK - position < room:
            break
        while True:
            copy_bytes(texts, program[step_at, P_TEXT], program[step_at, P_TEXT_LENGTH], out, position)
            position += program[step_at, P_TEXT_LENGTH]
            step, argument = program[step_at, P_STEP], program[step_at, P_ARGUMENT]
            step_at += 1
            if step == NOTHING:
                continue
            if step == END:
                break
            if step <= LAST_NUMBER:
                value = _number(step, argument, buffer, batches, number, records, classes, row, file_position)
                position = put_long(out, position, value)
            elif step <= LAST_STRING:
                start, length = _string(step, buffer, classes, row)
                position = put_string(out, position, buffer, start, length)
            elif step <= LAST_NAME:
                name = program[step_at - 1, P_NAMES] + _name(step, argument, buffer, batches, number)
                copy_bytes(texts, program[name, P_TEXT], program[name, P_TEXT_LENGTH], out, position)
                position += program[name, P_TEXT_LENGTH]
            elif step == TOPIC_ID:
                write_uuid(buffer, classes[row, C_TOPIC_ID], out, position)
                position += 22
            elif step == PIECE:
                copy_bytes(pieces, piece_start, ends[piece] - piece_start, out, position)
                position += ends[piece] - piece_start
                piece += 1
            elif step == SKIP_UNLESS:
                if magic < 2 or (batches[number, B_ATTRIBUTES] & argument) == 0:
                    step_at += 1
            elif tail >= 0:
                copy_bytes(out, tail, tail_length, out, position)
                position += tail_length
                break
            else:
                tail, tail_length = position, -1
                step_at = starts[TAIL if magic == 2 else OLD_TAIL]
        if is_record:
            at += 1
        if tail_length < 0:
            tail_length = position - tail
        in_batch = True
    cursor[AT_BATCH], cursor[AT_ROW], cursor[AT_PIECE], cursor[IN_BATCH] = number, at, piece, in_batch
    return position


def read_record(chunk: Chunk, row: int) -> Record:
    """A row of the record table as the row-wise codec knows records; headers are left out."""
    offset, timestamp_ms, key, key_length, value, value_length = chunk.records[row, : R_VALUE_LENGTH + 1].tolist()
    return Record(
        offset,
        timestamp_ms,
        None if key_length < 0 else chunk.buffer[key : key + key_length].tobytes(),
        None if value_length < 0 else chunk.buffer[value : value + value_length].tobytes(),
    )


def rendered(
    chunk: Chunk,
    line_format: LineFormat,
    rows: Longs | None,
    pieced: Flags,
    make_piece: Callable[[int], bytes],
    *,
    batches: range | None = None,
    file_position: int = 0,
) -> Iterator[bytes]:
    """The lines of a chunk (or of some of its batches), in stretches of whole lines.

    `rows` are the records to write, ascending, None for all; batches without any of them are then left out.
    `make_piece` makes what the step `PIECE` writes, for each record that `pieced` marks.
    """
    batches = range(len(chunk.batches)) if batches is None else batches
    if not batches:
        return
    chosen = np.arange(len(chunk.records)) if rows is None else np.ascontiguousarray(rows, np.int64)
    last = chunk.batches[batches[-1]]
    first_row = int(np.searchsorted(chosen, chunk.batches[batches.start, B_FIRST_RECORD]))
    last_row = int(np.searchsorted(chosen, last[B_FIRST_RECORD] + last[B_RECORDS]))
    wanted = iter(chosen[first_row:last_row][pieced[first_row:last_row] != 0].tolist())
    ends, pieces = _next_pieces(wanted, make_piece)
    cursor = np.array([batches.start, first_row, 0, 0], np.int64)
    out = np.empty(OUT_ROOM + SLACK, np.uint8)
    while cursor[AT_BATCH] < batches.stop:
        used = _write_lines(
            chunk.buffer, chunk.batches, chunk.records, chunk.classes, chosen, pieced, ends, pieces,
            line_format.texts, line_format.program, line_format.starts, out, cursor,
            line_format.room, batches.stop, file_position, rows is not None,
        )  # fmt: skip
        if used:
            yield out[:used].tobytes()
        if cursor[AT_ROW] < last_row and pieced[cursor[AT_ROW]] and cursor[AT_PIECE] == len(ends):
            ends, pieces = _next_pieces(wanted, make_piece)
            cursor[AT_PIECE] = 0
        elif not used:
            out = np.empty(2 * len(out), np.uint8)  # a single line that is longer than all the room


def _next_pieces(wanted: Iterator[int], make_piece: Callable[[int], bytes]) -> tuple[Longs, Bytes]:
    """The next pieces, and where each ends."""
    made: list[bytes] = []
    ends: list[int] = []
    size = 0
    for row in wanted:
        made.append(make_piece(row))
        size += len(made[-1])
        ends.append(size)
        if size >= PIECES_ROOM:
            break
    return np.array(ends, np.int64), with_slack(b"".join(made))
