"""Kernels that find batches and records in bytes, check CRCs, and resolve the outcomes of transactions.

A *batch table* has one row per batch and a *record table* one row per record; both are plain int64 matrices, so that
every later kernel takes one argument instead of twenty. All positions are byte positions in one buffer: the bytes of
the segment as read, followed by whatever had to be decompressed (`chunks.py` arranges that).
"""

import numpy as np
from numba import types

from muster.codec.columns.kernels import (
    BYTES,
    LONGS,
    TABLE,
    called,
    crc32c,
    inlined,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    load_beu32,
)
from muster.codec.transaction_outcomes import ABORTED, COMMITTED, NO_TRANSACTION, OPEN

# Columns of the batch table.
B_POSITION = 0  # of the batch, in the buffer
B_SIZE = 1
B_BASE_OFFSET = 2
B_LAST_OFFSET = 3
B_MAGIC = 4
B_ATTRIBUTES = 5
B_BASE_TIMESTAMP = 6
B_MAX_TIMESTAMP = 7
B_PRODUCER_ID = 8
B_PRODUCER_EPOCH = 9
B_BASE_SEQUENCE = 10
B_LEADER_EPOCH = 11
B_COUNT = 12  # as the header says; -1 in the old formats, which do not say
B_CRC = 13  # as the header says
B_STATE = 14  # one of the states below
B_BODY = 15  # where the records begin: behind the header, or where they were decompressed to
B_BODY_END = 16
B_FIRST_RECORD = 17  # row of its first record in the record table
B_RECORDS = 18  # how many of its records are in the record table
B_OUTCOME = 19  # one of the outcomes of `transactions`
BATCH_COLUMNS = 20

# States of a batch.
GOOD = 0
BAD_CRC = 1
BAD_RECORDS = 2
BAD_COMPRESSION = 3


# Why a scan stopped.
SCAN_MORE = 0  # the bytes end here, perhaps inside a batch
SCAN_FULL = 1  # the batch table is full
SCAN_BAD_LENGTH = 2  # a length that no batch can have: Kafka's reader gives up the segment here
SCAN_BAD_MAGIC = 3

# Columns of the record table.
R_OFFSET = 0
R_TIMESTAMP = 1
R_KEY = 2  # byte position
R_KEY_LENGTH = 3  # -1: null
R_VALUE = 4
R_VALUE_LENGTH = 5  # -1: null, a tombstone
R_BATCH = 6
R_HEADERS = 7  # byte position of the header count (0 in the old formats)
RECORD_COLUMNS = 8

HEADER_SIZE = 61
LEGACY_MIN_SIZE = 14
SMALLEST_ENTRY = LEGACY_MIN_SIZE + 12
SMALLEST_RECORD = 7
ANY_NUMBER = 1 << 62
CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40


@kernel(
    types.Tuple((types.int64, types.int64, types.int64))(
        BYTES, types.int64, types.int64, TABLE, types.int64, types.boolean
    )
)
def scan_batches(buffer, start, end, batches, record_room, verify):  # type: ignore[no-untyped-def]
    """Fill the batch table from buffer[start:end]; returns rows, the position reached, and why it stopped.

    It stops early, but not before the first batch, when their headers count more than `record_room` records. Old-format
    entries get position, size, offset, magic, attributes and stored CRC only: their checksum is of another kind and is
    left to the caller.
    """
    count = 0
    counted = 0
    position = start
    while True:
        if end - position < 17:
            return count, position, SCAN_MORE
        length = load_be32(buffer, position + 8)
        if length < LEGACY_MIN_SIZE:
            return count, position, SCAN_BAD_LENGTH
        size = length + 12
        magic = np.int64(np.int8(buffer[position + 16]))
        if magic < 0 or magic > 2:
            return count, position, SCAN_BAD_MAGIC
        if magic == 2 and size < HEADER_SIZE:
            return count, position, SCAN_BAD_LENGTH
        if position + size > end:
            return count, position, SCAN_MORE
        if magic == 2:
            counted += max(1, min(load_be32(buffer, position + 57), record_room))
        else:
            counted += 1
        if count == batches.shape[0] or (counted > record_room and count > 0):
            return count, position, SCAN_FULL
        row = batches[count]
        row[B_POSITION] = position
        row[B_SIZE] = size
        row[B_BASE_OFFSET] = load_be64(buffer, position)
        row[B_MAGIC] = magic
        row[B_STATE] = GOOD
        row[B_FIRST_RECORD] = 0
        row[B_RECORDS] = 0
        row[B_OUTCOME] = NO_TRANSACTION
        if magic == 2:
            row[B_LEADER_EPOCH] = load_be32(buffer, position + 12)
            row[B_CRC] = load_beu32(buffer, position + 17)
            row[B_ATTRIBUTES] = load_be16(buffer, position + 21)
            row[B_LAST_OFFSET] = row[B_BASE_OFFSET] + load_be32(buffer, position + 23)
            row[B_BASE_TIMESTAMP] = load_be64(buffer, position + 27)
            row[B_MAX_TIMESTAMP] = load_be64(buffer, position + 35)
            row[B_PRODUCER_ID] = load_be64(buffer, position + 43)
            row[B_PRODUCER_EPOCH] = load_be16(buffer, position + 51)
            row[B_BASE_SEQUENCE] = load_be32(buffer, position + 53)
            row[B_COUNT] = load_be32(buffer, position + 57)
            row[B_BODY] = position + HEADER_SIZE
            if verify and crc32c(buffer, position + 21, position + size) != row[B_CRC]:
                row[B_STATE] = BAD_CRC
            elif (row[B_ATTRIBUTES] & CODEC_MASK) == 0 and (
                row[B_COUNT] < 0 or row[B_COUNT] * SMALLEST_RECORD > size - HEADER_SIZE
            ):
                row[B_STATE] = BAD_RECORDS  # it cannot hold as many records as it says
        else:
            row[B_LEADER_EPOCH] = -1
            row[B_CRC] = load_beu32(buffer, position + 12)
            row[B_ATTRIBUTES] = np.int64(buffer[position + 17])
            row[B_LAST_OFFSET] = row[B_BASE_OFFSET]
            row[B_BASE_TIMESTAMP] = -1
            row[B_MAX_TIMESTAMP] = -1
            row[B_PRODUCER_ID] = -1
            row[B_PRODUCER_EPOCH] = -1
            row[B_BASE_SEQUENCE] = -1
            row[B_COUNT] = -1
            row[B_BODY] = position
        row[B_BODY_END] = position + size
        count += 1
        position += size


@called
def long_varint(buffer, position, end, bits):  # type: ignore[no-untyped-def]
    """Unsigned varint of so many bits: value and the position behind it, or position -1 where it ends late or never."""
    value = np.uint64(0)
    shift = 0
    while position < end and shift < bits:
        byte = np.int64(buffer[position])
        position += 1
        if shift + 7 > bits and byte >> (bits - shift) != 0:
            break
        value |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return value, position
        shift += 7
    return np.uint64(0), -1


@inlined
def _zigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@inlined
def varint(buffer, position, end):  # type: ignore[no-untyped-def]
    """Signed varint of 32 bits, with a short way for the one-byte values that nearly all of them are."""
    if position < end:
        byte = np.int64(buffer[position])
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = long_varint(buffer, position, end, 32)
    return _zigzag(value), position


@inlined
def varlong(buffer, position, end):  # type: ignore[no-untyped-def]
    """The same of 64 bits."""
    if position < end:
        byte = np.int64(buffer[position])
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = long_varint(buffer, position, end, 64)
    return _zigzag(value), position


@inlined
def uvarint(buffer, position, end):  # type: ignore[no-untyped-def]
    """Unsigned varint of 32 bits."""
    if position < end and buffer[position] < 0x80:
        return np.int64(buffer[position]), position + 1
    value, position = long_varint(buffer, position, end, 32)
    return np.int64(value), position


@called
def _skip_headers(buffer, position, end):  # type: ignore[no-untyped-def]
    """The position behind the headers, or -1."""
    headers, position = varint(buffer, position, end)
    if position < 0 or headers < 0:
        return -1
    while headers > 0:
        length, position = varint(buffer, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        length, position = varint(buffer, position + length, end)
        if position < 0 or length < -1 or length > end - position:
            return -1
        position += max(length, 0)
        headers -= 1
    return position


@inlined
def parse_batch(buffer, batch, batch_number, records, first):  # type: ignore[no-untyped-def]
    """Read the records of one magic-2 batch into the record table; returns how many, and whether all was well."""
    base_offset = batch[B_BASE_OFFSET]
    timestamp_base = batch[B_BASE_TIMESTAMP]
    append_time = (batch[B_ATTRIBUTES] & LOG_APPEND_TIME_BIT) != 0
    position = batch[B_BODY]
    end = batch[B_BODY_END]
    wanted = batch[B_COUNT]
    done = 0
    while done < wanted:
        length, position = varint(buffer, position, end)
        if position < 0 or length < 6 or length > end - position:
            return done, False
        stop = position + length
        timestamp_delta, position = varlong(buffer, position + 1, stop)
        if position < 0:
            return done, False
        offset_delta, position = varint(buffer, position, stop)
        if position < 0:
            return done, False
        key_length, key = varint(buffer, position, stop)
        if key < 0 or key_length < -1 or key_length > stop - key:
            return done, False
        value_length, value = varint(buffer, key + max(key_length, 0), stop)
        if value < 0 or value_length < -1 or value_length > stop - value:
            return done, False
        headers = value + max(value_length, 0)
        if headers < stop and buffer[headers] == 0:
            position = headers + 1
        else:
            position = _skip_headers(buffer, headers, stop)
        if position != stop:
            return done, False
        row = records[first + done]
        row[R_OFFSET] = base_offset + offset_delta
        row[R_TIMESTAMP] = batch[B_MAX_TIMESTAMP] if append_time else timestamp_base + timestamp_delta
        row[R_KEY] = key
        row[R_KEY_LENGTH] = key_length
        row[R_VALUE] = value
        row[R_VALUE_LENGTH] = value_length
        row[R_BATCH] = batch_number
        row[R_HEADERS] = headers
        done += 1
    return done, position == end


@kernel(types.int64(BYTES, TABLE, types.int64, types.int64, TABLE, types.int64, types.boolean))
def parse_batches(buffer, batches, first_batch, last_batch, records, first_record, forgiving):  # type: ignore[no-untyped-def]
    """Read the records of batches[first:last], all of magic 2, behind row `first_record`; returns the next free row.

    A batch that does not parse is marked and contributes nothing; `forgiving` keeps what came before the bad record,
    and reads batches with a bad checksum too, as kafka-dump-log does.
    """
    free = first_record
    for number in range(first_batch, last_batch):
        batch = batches[number]
        batch[B_FIRST_RECORD] = free
        batch[B_RECORDS] = 0
        if batch[B_STATE] == BAD_COMPRESSION or (batch[B_STATE] != GOOD and not forgiving):
            continue
        done, well = parse_batch(buffer, batch, number, records, free)
        if not well:
            if batch[B_STATE] == GOOD:
                batch[B_STATE] = BAD_RECORDS
            if not forgiving:
                continue
        batch[B_RECORDS] = done
        free += done
    return free


# --- transactions: the markers in a stretch of log, and the outcome that they give each batch ---

MARKER_COLUMNS = 3


@inlined
def _marker_type(buffer, body, end):  # type: ignore[no-untyped-def]
    """0 ABORT, 1 COMMIT, -1 neither (another control record, or one that cannot be read)."""
    length, position = varint(buffer, body, end)
    if position < 0 or length > end - position:
        return -1
    _, position = varlong(buffer, position + 1, end)
    if position < 0:
        return -1
    _, position = varint(buffer, position, end)
    if position < 0:
        return -1
    length, position = varint(buffer, position, end)
    if position < 0 or length < 4 or length > end - position or load_be16(buffer, position) < 0:
        return -1
    kind = load_be16(buffer, position + 2)
    return kind if kind <= 1 else -1


@kernel(types.int64(BYTES, TABLE, types.int64, TABLE))
def find_markers(buffer, batches, count, markers):  # type: ignore[no-untyped-def]
    """Collect (producer id, offset, commit) of the markers among these batches; the table has a row for each batch.

    The scan before it need not have checked checksums: here only the few control batches are checked.
    """
    found = 0
    for number in range(count):
        if batches[number, B_MAGIC] != 2 or (batches[number, B_ATTRIBUTES] & CONTROL_BIT) == 0:
            continue
        position, end = batches[number, B_POSITION], batches[number, B_BODY_END]
        if crc32c(buffer, position + 21, position + batches[number, B_SIZE]) != load_beu32(buffer, position + 17):
            continue
        kind = _marker_type(buffer, batches[number, B_BODY], end)
        if kind >= 0:
            markers[found, 0] = batches[number, B_PRODUCER_ID]
            markers[found, 1] = batches[number, B_BASE_OFFSET]
            markers[found, 2] = kind
            found += 1
    return found


@inlined
def _first_after(producer_ids, offsets, producer_id, offset):  # type: ignore[no-untyped-def]
    """The first row that is (producer_id, more than offset) or later, by binary search over both."""
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) >> 1
        smaller = producer_ids[middle] < producer_id or (
            producer_ids[middle] == producer_id and offsets[middle] <= offset
        )
        if smaller:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.void(TABLE, types.int64, types.int64, LONGS, LONGS, LONGS))
def resolve_outcomes(batches, first, last, producer_ids, offsets, commits):  # type: ignore[no-untyped-def]
    """Write the outcome of each transactional batch; markers themselves carry their own transaction's."""
    for number in range(first, last):
        batches[number, B_OUTCOME] = NO_TRANSACTION
        attributes = batches[number, B_ATTRIBUTES]
        if batches[number, B_MAGIC] != 2 or (attributes & TRANSACTIONAL_BIT) == 0 or batches[number, B_STATE] != GOOD:
            continue
        producer_id = batches[number, B_PRODUCER_ID]
        # A marker is its own answer: look from just before it.
        offset = batches[number, B_BASE_OFFSET] - (1 if (attributes & CONTROL_BIT) != 0 else 0)
        place = _first_after(producer_ids, offsets, producer_id, offset)
        if place == len(offsets) or producer_ids[place] != producer_id:
            batches[number, B_OUTCOME] = OPEN
        else:
            batches[number, B_OUTCOME] = COMMITTED if commits[place] == 1 else ABORTED
