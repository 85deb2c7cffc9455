"""Kernels of compaction: the newest offset of each key in a flat table, and batches written without some records.

The table has three longs a slot: two hashes of the key and its newest offset plus one; an empty slot is all zeros.
Seeds are random, so no log can be made to collide on purpose. Positions and tables are those of
`scan.py`, and as there nothing checks bounds: the scan has proven what is read, and the caller makes
enough room.
"""

import numpy as np
from numba import types

from muster.codec.columns.kernels import BYTES, FLAGS, LONGS, TABLE, copy_bytes, crc32c, inlined, kernel, load_be16
from muster.codec.columns.latest import BLOCK, seeded_hash
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_TIMESTAMP,
    B_BODY,
    B_BODY_END,
    B_FIRST_RECORD,
    B_LAST_OFFSET,
    B_MAGIC,
    B_MAX_TIMESTAMP,
    B_POSITION,
    B_RECORDS,
    B_SIZE,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE_LENGTH,
    varint,
    varlong,
)

SLOT_COLUMNS = 3

# What the kernels count.
N_KEYS = 0
N_LATEST = 1
N_KEYLESS = 2
COUNTS = 3

# What becomes of a batch.
DROP, COPY, EMPTY, REWRITE = range(4)

# Columns of what was written, a row for each batch.
W_SIZE, W_LAST_OFFSET, W_MAX_TIMESTAMP = range(3)
WRITTEN_COLUMNS = 3

LARGEST_GROWTH = 16
"""Bytes by which a record may grow when its batch gets a new base timestamp: a longer delta, a longer length."""

MERGED_IDENTITY = 1


@inlined
def _hash_key(buffer, records, number, merges, seeds, which):  # type: ignore[no-untyped-def]
    """One of two hashes of a key. Both types of offset key count as one where `merges` says so."""
    key, length = records[number, R_KEY], records[number, R_KEY_LENGTH]
    identity = length << 1
    if merges and length >= 2 and load_be16(buffer, key) <= 1 and load_be16(buffer, key) >= 0:
        key, length, identity = key + 2, length - 2, identity | MERGED_IDENTITY
    return seeded_hash(buffer, key, length, identity, seeds[2 * which], seeds[2 * which + 1])


@inlined
def _home(first_hash, slots):  # type: ignore[no-untyped-def]
    """Where the search for a key begins: the upper half of its hash, scaled to the table."""
    return np.int64(((np.uint64(first_hash) >> np.uint64(32)) * np.uint64(len(slots))) >> np.uint64(32))


@inlined
def _find(slots, first_hash, second_hash):  # type: ignore[no-untyped-def]
    """The slot of a key, or the empty one where it belongs."""
    slot = _home(first_hash, slots)
    while slots[slot, 2] != 0 and (slots[slot, 0] != first_hash or slots[slot, 1] != second_hash):
        slot += 1
        if slot == len(slots):
            slot = 0
    return slot


@inlined
def _look_ahead(buffer, records, first, last, merges, seeds, slots, ahead):  # type: ignore[no-untyped-def]
    """Hash the next keys and touch their slots: the loads do not wait for one another."""
    for number in range(first, last):
        row = number - first
        if records[number, R_KEY_LENGTH] >= 0:
            ahead[row, 0] = _hash_key(buffer, records, number, merges, seeds, 0)
            ahead[row, 1] = _hash_key(buffer, records, number, merges, seeds, 1)
        else:
            ahead[row, 0] = ahead[row, 1] = 0
    for row in range(last - first):
        ahead[row, 2] = slots[_home(ahead[row, 0], slots), 2]


SEEDS = types.Array(types.uint64, 1, "C")


@kernel(
    types.int64(
        BYTES, TABLE, TABLE, types.int64, FLAGS, types.int64, TABLE, LONGS, types.int64, TABLE, types.boolean, SEEDS
    )
)
def learn_keys(  # type: ignore[no-untyped-def]
    buffer, batches, records, first, skipped, first_offset, slots, counts, most_keys, ahead, merges, seeds
):
    """Enter the keys from row `first` on; returns the row reached, short of the last one where a new key has no room.

    Batches that are flagged as skipped contribute nothing. `counts` keeps the number of keys and the last offset taken.
    """
    keys, latest = counts[N_KEYS], counts[N_LATEST]
    number, looked, next_look = first, first, first
    while number < len(records):
        if number == next_look:
            looked, next_look = number, min(number + BLOCK, np.int64(len(records)))
            _look_ahead(buffer, records, looked, next_look, merges, seeds, slots, ahead)
        offset = records[number, R_OFFSET]
        if skipped[records[number, R_BATCH]] == 0 and records[number, R_KEY_LENGTH] >= 0 and offset >= first_offset:
            first_hash, second_hash = ahead[number - looked, 0], ahead[number - looked, 1]
            slot = _find(slots, first_hash, second_hash)
            if slots[slot, 2] == 0:
                if keys >= most_keys:
                    break
                keys += 1
                slots[slot, 0], slots[slot, 1] = first_hash, second_hash
            slots[slot, 2] = offset + 1
            latest = offset
        number += 1
    counts[N_KEYS], counts[N_LATEST] = keys, latest
    return np.int64(number)


@kernel(types.void(TABLE, TABLE))
def move_slots(old, new):  # type: ignore[no-untyped-def]
    """Enter everything into a larger table."""
    for position in range(len(old)):
        if old[position, 2] != 0:
            slot = _find(new, old[position, 0], old[position, 1])
            for column in range(SLOT_COLUMNS):
                new[slot, column] = old[position, column]


@kernel(
    types.void(
        BYTES, TABLE, TABLE, FLAGS, TABLE, LONGS, types.int64, types.int64, TABLE, types.boolean, SEEDS, FLAGS, TABLE
    )
)
def choose_records(  # type: ignore[no-untyped-def]
    buffer, batches, records, dropped, slots, counts, latest, now_ms, ahead, merges, seeds, keeps, tally
):
    """Flag the records that stay, and tally for each batch how many those are and how many are tombstones."""
    keyless = 0
    for number in range(len(batches)):
        tally[number, 0] = tally[number, 1] = 0
    looked, next_look = 0, 0
    for number in range(len(records)):
        if number == next_look:
            looked, next_look = number, min(number + BLOCK, len(records))
            _look_ahead(buffer, records, looked, next_look, merges, seeds, slots, ahead)
        batch = records[number, R_BATCH]
        attributes, is_new = batches[batch, B_ATTRIBUTES], batches[batch, B_MAGIC] == 2
        is_tombstone = records[number, R_VALUE_LENGTH] < 0
        if dropped[batch] != 0:
            stays = False
        elif (is_new and (attributes & CONTROL_BIT) != 0) or records[number, R_OFFSET] > latest:
            stays = True
        elif records[number, R_KEY_LENGTH] < 0:
            stays = False
            keyless += 1
        else:
            slot = _find(slots, ahead[number - looked, 0], ahead[number - looked, 1])
            stays = records[number, R_OFFSET] >= slots[slot, 2] - 1
            if is_tombstone and is_new and (attributes & DELETE_HORIZON_BIT) != 0:
                stays = stays and now_ms < batches[batch, B_BASE_TIMESTAMP]
        keeps[number] = stays
        if stays:
            tally[batch, 0] += 1
            tally[batch, 1] += is_tombstone
    counts[N_KEYLESS] += keyless


@inlined
def _store(out, position, value, width):  # type: ignore[no-untyped-def]
    """A big-endian number of so many bytes."""
    for place in range(width):
        out[position + place] = (value >> (8 * (width - 1 - place))) & 0xFF
    return position + width


@inlined
def _store_varlong(out, position, value):  # type: ignore[no-untyped-def]
    left = np.uint64((value << 1) ^ (value >> 63))
    while left > np.uint64(0x7F):
        out[position] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(left)
    return position + 1


@inlined
def _varlong_size(value):  # type: ignore[no-untyped-def]
    left = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while left > np.uint64(0x7F):
        left >>= np.uint64(7)
        size += 1
    return size


@inlined
def _write_records(buffer, batch, records, keeps, base_timestamp, out, position):  # type: ignore[no-untyped-def]
    """The records that stay, their timestamps relative to a new base; returns the position behind them."""
    source, end = batch[B_BODY], batch[B_BODY_END]
    first = batch[B_FIRST_RECORD]
    for number in range(first, first + batch[B_RECORDS]):
        length, source = varint(buffer, source, end)
        stop = source + length
        if keeps[number] != 0:
            _, rest = varlong(buffer, source + 1, stop)
            delta = records[number, R_TIMESTAMP] - base_timestamp
            position = _store_varlong(out, position, 1 + _varlong_size(delta) + stop - rest)
            out[position] = buffer[source]
            position = _store_varlong(out, position + 1, delta)
            copy_bytes(buffer, rest, stop - rest, out, position)
            position += stop - rest
        source = stop
    return position


@inlined
def _new_times(batch, records, keeps, horizon_ms):  # type: ignore[no-untyped-def]
    """Base and largest timestamp of the records that stay; the base is the delete horizon where there is one."""
    base, largest, is_first = np.int64(-1), np.int64(-1), True
    first = batch[B_FIRST_RECORD]
    for number in range(first, first + batch[B_RECORDS]):
        if keeps[number] != 0:
            if is_first:
                base, is_first = records[number, R_TIMESTAMP], False
                largest = base
            largest = max(largest, records[number, R_TIMESTAMP])
    if horizon_ms >= 0:
        base = horizon_ms
    return base, largest


@inlined
def _write_header(buffer, batch, attributes, base_timestamp, largest, count, out, start, end):  # type: ignore[no-untyped-def]
    """The header of a batch that now ends at `end`, checksum included; what is not given stays as it was."""
    copy_bytes(buffer, batch[B_POSITION], HEADER_SIZE - 32, out, start)  # no further: records may be there already
    for place in range(HEADER_SIZE - 32, HEADER_SIZE):
        out[start + place] = buffer[batch[B_POSITION] + place]
    _store(out, start + 8, end - start - 12, 4)
    _store(out, start + 21, attributes, 2)
    _store(out, start + 27, base_timestamp, 8)
    _store(out, start + 35, largest, 8)
    _store(out, start + 57, count, 4)
    _store(out, start + 17, crc32c(out, start + 21, end), 4)


@kernel(
    types.UniTuple(types.int64, 2)(
        BYTES, TABLE, TABLE, FLAGS, LONGS, LONGS, TABLE, types.int64, BYTES, types.int64, TABLE
    )
)
def write_batches(  # type: ignore[no-untyped-def]
    buffer, batches, records, keeps, actions, horizons, tally, first, out, position, written
):
    """Write the batches from row `first` on; returns the row reached and the position behind the last one.

    It stops at a batch that Python has to write: packed ones, and those of the old formats that lose something.
    """
    for number in range(first, len(batches)):
        batch = batches[number]
        action, start = actions[number], position
        row = written[number]
        row[W_LAST_OFFSET], row[W_MAX_TIMESTAMP] = batch[B_LAST_OFFSET], batch[B_MAX_TIMESTAMP]
        if action == COPY:
            copy_bytes(buffer, batch[B_POSITION], batch[B_SIZE], out, position)
            position += batch[B_SIZE]
        elif action == EMPTY:
            attributes = batch[B_ATTRIBUTES] & ~(CODEC_MASK | DELETE_HORIZON_BIT)
            position += HEADER_SIZE
            _write_header(buffer, batch, attributes, -1, batch[B_MAX_TIMESTAMP], 0, out, start, position)
        elif action == REWRITE:
            if batch[B_MAGIC] < 2 or (batch[B_ATTRIBUTES] & CODEC_MASK) != 0:
                return np.int64(number), np.int64(position)
            base, largest = _new_times(batch, records, keeps, horizons[number])
            position = _write_records(buffer, batch, records, keeps, base, out, position + HEADER_SIZE)
            attributes = batch[B_ATTRIBUTES]
            if horizons[number] >= 0:
                attributes |= DELETE_HORIZON_BIT
            _write_header(buffer, batch, attributes, base, largest, tally[number, 0], out, start, position)
            row[W_MAX_TIMESTAMP] = largest
        row[W_SIZE] = position - start
    return np.int64(len(batches)), np.int64(position)


@kernel(types.UniTuple(types.int64, 3)(BYTES, TABLE, types.int64, TABLE, FLAGS, types.int64, BYTES))
def write_body(buffer, batches, number, records, keeps, horizon_ms, out):  # type: ignore[no-untyped-def]
    """The unpacked records of one batch that stay, at the start of `out`; returns their size and the new times."""
    base, largest = _new_times(batches[number], records, keeps, horizon_ms)
    return _write_records(buffer, batches[number], records, keeps, base, out, 0), base, largest
