"""Kernels for offset commits, which are nearly all of the topic: what each record is, and the columns of a commit.

`classify` looks at every record and agrees to the letter with the row-wise codec on what is readable: a record it
calls `K_COMMIT` or `K_GROUP` decodes there too, and one it calls `K_BAD` raises there (the message comes from there).
"""

import numpy as np
from numba import types

from muster.codec.columns.groups import group_is_readable
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_FIRST_RECORD,
    B_MAGIC,
    B_OUTCOME,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    CONTROL_BIT,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE,
    R_VALUE_LENGTH,
    uvarint,
)
from muster.codec.columns.words import (
    BYTES,
    INTS,
    LONGS,
    TABLE,
    copy_bytes,
    inlined,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    load_word,
)

# What a record is.
K_COMMIT = 0  # an offset commit whose value is readable
K_COMMIT_TOMBSTONE = 1
K_GROUP = 2  # classic group metadata
K_GROUP_TOMBSTONE = 3
K_NEWER = 4  # types 3 to 23: the row-wise codec reads the value
K_NEWER_TOMBSTONE = 5
K_CONTROL = 6
K_UNKNOWN = 7  # a type that no release up to 4.3 writes
K_BAD = 8  # a known type whose bytes cannot be read

# Columns of the classification; the lengths are of the strings inside.
C_KIND = 0
C_TYPE = 1  # record type; -1 where there is none (control records, keys too short)
C_VERSION = 2  # value version; -1 for a tombstone
C_GROUP = 3  # byte position of the group id; 0 with length -1 where there is none
C_GROUP_LENGTH = 4
C_METADATA = 5  # of a readable commit: byte position and length of the metadata
C_METADATA_LENGTH = 6
C_TOPIC_ID = 7  # and of the topic id, 0 where there is none
CLASS_COLUMNS = 8

# What a row has, as flags; bit n becomes bitmap n.
F_COMMIT = 1
F_KEY = 2  # the key of an offset commit
F_GROUP = 4
F_TOMBSTONE = 8
F_TYPE = 16
F_VERSION = 32
F_LEADER_EPOCH = 64
F_PRODUCER = 128
# And more of them.
F2_TIMESTAMP = 1
F2_EXPIRES = 2
F2_TOPIC_ID = 4

# Totals that `classify` returns: bytes of the string columns to allocate.
T_GROUP = 0
T_TOPIC = 1
T_METADATA = 2
T_COMMITS = 3  # commits and their tombstones
T_TOPIC_IDS = 4
TOTALS = 5

NEWEST_TYPE = 23
RESERVED_TYPE = 18

shorts = types.Array(types.int16, 1, "C")


@inlined
def has_second_name(record_type):  # type: ignore[no-untyped-def]
    """Types whose key has a member id, or a regular expression, behind the group id."""
    return (
        record_type == 5
        or record_type == 7
        or record_type == 8
        or record_type == 10
        or record_type == 13
        or record_type == 14
        or record_type == 16
        or record_type == 19
        or record_type == 21
        or record_type == 22
    )


@inlined
def string_end(buffer, position, end):  # type: ignore[no-untyped-def]
    """Behind an int16-prefixed string, or -1."""
    if end - position < 2:
        return np.int64(-1)
    length = load_be16(buffer, position)
    if length < 0 or length > end - position - 2:
        return np.int64(-1)
    return position + 2 + length


@inlined
def topic_id_position(buffer, position, end):  # type: ignore[no-untyped-def]
    """Walk a version-4 value's tagged fields: where the topic id is, 0 if there is none, -1 if they are broken."""
    if end - position >= 19 and load_be32(buffer, position - 1) & 0xFFFFFF == 0x010010:  # one field, tag 0, 16 bytes
        position += 3
        return position if (load_word(buffer, position) | load_word(buffer, position + 8)) != 0 else np.int64(0)
    found = np.int64(0)
    fields, position = uvarint(buffer, position, end)
    if position < 0:
        return np.int64(-1)
    while fields > 0:
        tag, position = uvarint(buffer, position, end)
        if position < 0:
            return np.int64(-1)
        size, position = uvarint(buffer, position, end)
        if position < 0 or size > end - position:
            return np.int64(-1)
        if tag == 0:
            if size != 16:
                return np.int64(-1)
            if load_word(buffer, position) != 0 or load_word(buffer, position + 8) != 0:
                found = position
        position += size
        fields -= 1
    return found


@inlined
def commit_metadata(buffer, value, end, version):  # type: ignore[no-untyped-def]
    """Where the metadata of a commit value is and how long it is, with everything before and behind it in bounds.

    Length -1: the value is not readable.
    """
    position = value + 10 + (4 if version >= 3 else 0)
    if position > end:
        return np.int64(0), np.int64(-1)
    if version == 4:
        length, position = uvarint(buffer, position, end)
        length -= 1
        if position < 0:
            return np.int64(0), np.int64(-1)
    else:
        if end - position < 2:
            return np.int64(0), np.int64(-1)
        length = load_be16(buffer, position)
        position += 2
    if length < 0 or length > end - position - (16 if version == 1 else 8):
        return np.int64(0), np.int64(-1)
    return position, length


@kernel(types.void(BYTES, TABLE, TABLE, types.int64, types.int64, TABLE, LONGS, TABLE))
def classify(buffer, batches, records, first, last, classes, totals, scratch):  # type: ignore[no-untyped-def]
    """Say of each record what it is, and add up what the string columns will need."""
    for number in range(first, last):
        classes[number, C_TYPE] = -1
        classes[number, C_VERSION] = -1
        classes[number, C_GROUP] = 0
        classes[number, C_GROUP_LENGTH] = -1
        key, key_length = records[number, R_KEY], records[number, R_KEY_LENGTH]
        value, value_length = records[number, R_VALUE], records[number, R_VALUE_LENGTH]
        batch = records[number, R_BATCH]
        if (batches[batch, B_ATTRIBUTES] & CONTROL_BIT) != 0 and batches[batch, B_MAGIC] == 2:
            classes[number, C_KIND] = K_CONTROL
            continue
        if key_length < 2:
            classes[number, C_KIND] = K_BAD
            continue
        record_type = load_be16(buffer, key)
        classes[number, C_TYPE] = record_type
        if value_length >= 2:
            classes[number, C_VERSION] = load_be16(buffer, value)
        if record_type < 0 or record_type > NEWEST_TYPE or record_type == RESERVED_TYPE:
            classes[number, C_KIND] = K_UNKNOWN
            continue
        key_end = key + key_length
        group_end = string_end(buffer, key + 2, key_end)
        classes[number, C_KIND] = K_BAD
        if group_end < 0:
            continue
        classes[number, C_GROUP] = key + 4
        classes[number, C_GROUP_LENGTH] = group_end - key - 4
        totals[T_GROUP] += group_end - key - 4
        if record_type <= 1:
            topic_end = string_end(buffer, group_end, key_end)
            if topic_end < 0 or key_end - topic_end < 4:
                continue
            if value_length < 0:
                classes[number, C_KIND] = K_COMMIT_TOMBSTONE
            else:
                version = classes[number, C_VERSION]
                if value_length < 2 or version < 0 or version > 4:
                    continue
                value_end = value + value_length
                metadata, length = commit_metadata(buffer, value, value_end, version)
                if length < 0:
                    continue
                topic_id = np.int64(0)
                if version == 4:
                    topic_id = topic_id_position(buffer, metadata + length + 8, value_end)
                    if topic_id < 0:
                        continue
                    totals[T_TOPIC_IDS] += 1 if topic_id > 0 else 0
                classes[number, C_METADATA] = metadata
                classes[number, C_METADATA_LENGTH] = length
                classes[number, C_TOPIC_ID] = topic_id
                totals[T_METADATA] += length
                classes[number, C_KIND] = K_COMMIT
            totals[T_TOPIC] += topic_end - group_end - 2
            totals[T_COMMITS] += 1
        elif record_type == 2:
            if value_length < 0:
                classes[number, C_KIND] = K_GROUP_TOMBSTONE
            elif group_is_readable(buffer, value, value + value_length, scratch):
                classes[number, C_KIND] = K_GROUP
        elif not has_second_name(record_type) or string_end(buffer, group_end, key_end) >= 0:
            classes[number, C_KIND] = K_NEWER_TOMBSTONE if value_length < 0 else K_NEWER


BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)


@inlined
def write_uuid(buffer, start, target, position):  # type: ignore[no-untyped-def]
    """Sixteen bytes as Kafka prints ids: 22 characters of URL-safe base64 without padding."""
    for triple in range(5):
        at = start + 3 * triple
        word = (np.int64(buffer[at]) << 16) | (np.int64(buffer[at + 1]) << 8) | np.int64(buffer[at + 2])
        out = position + 4 * triple
        target[out] = BASE64[word >> 18]
        target[out + 1] = BASE64[(word >> 12) & 63]
        target[out + 2] = BASE64[(word >> 6) & 63]
        target[out + 3] = BASE64[word & 63]
    last = np.int64(buffer[start + 15])
    target[position + 20] = BASE64[last >> 2]
    target[position + 21] = BASE64[(last & 3) << 4]


@kernel(
    types.void(
        BYTES, TABLE, TABLE, LONGS,
        INTS, BYTES, INTS, BYTES, INTS, BYTES, INTS, BYTES,
        INTS, LONGS, INTS, LONGS, LONGS, BYTES, BYTES,
    )
)  # fmt: skip
def fill_commits(  # type: ignore[no-untyped-def]
    buffer, records, classes, rows,
    group_offsets, group_data, topic_offsets, topic_data, metadata_offsets, metadata_data, id_offsets, id_data,
    partitions, committed_offsets, leader_epochs, commit_timestamps, expire_timestamps, flags, more_flags,
):  # fmt: skip
    """Write the columns of the chosen rows, and into the flags what they have; the rest is masked by those."""
    group_used, topic_used = np.int64(0), np.int64(0)
    metadata_used, id_used = np.int64(0), np.int64(0)
    last_id_high, last_id_low = np.uint64(0), np.uint64(0)
    for number in range(len(rows)):
        row = rows[number]
        group_offsets[number] = group_used
        topic_offsets[number] = topic_used
        metadata_offsets[number] = metadata_used
        id_offsets[number] = id_used
        group, group_length = classes[row, C_GROUP], classes[row, C_GROUP_LENGTH]
        if group_length > 0:
            copy_bytes(buffer, group, group_length, group_data, group_used)
            group_used += group_length
        kind = classes[row, C_KIND]
        if kind > K_COMMIT_TOMBSTONE:
            continue
        topic = group + group_length + 2
        topic_length = load_be16(buffer, topic - 2)
        copy_bytes(buffer, topic, topic_length, topic_data, topic_used)
        topic_used += topic_length
        partitions[number] = load_be32(buffer, topic + topic_length)
        if kind == K_COMMIT_TOMBSTONE:
            continue
        value, version = records[row, R_VALUE], classes[row, C_VERSION]
        metadata, metadata_length = classes[row, C_METADATA], classes[row, C_METADATA_LENGTH]
        committed_offsets[number] = load_be64(buffer, value + 2)
        if version >= 3:
            leader_epoch = load_be32(buffer, value + 10)
            leader_epochs[number] = leader_epoch
            flags[number] |= F_LEADER_EPOCH if leader_epoch >= 0 else 0
        if metadata_length > 0:
            copy_bytes(buffer, metadata, metadata_length, metadata_data, metadata_used)
            metadata_used += metadata_length
        commit_timestamps[number] = load_be64(buffer, metadata + metadata_length)
        if version == 1:
            expires = load_be64(buffer, metadata + metadata_length + 8)
            expire_timestamps[number] = expires
            more_flags[number] |= F2_EXPIRES if expires >= 0 else 0
        topic_id = classes[row, C_TOPIC_ID]
        if topic_id > 0:
            high, low = load_word(buffer, topic_id), load_word(buffer, topic_id + 8)
            if id_used > 0 and high == last_id_high and low == last_id_low:
                copy_bytes(id_data, id_used - 22, 22, id_data, id_used)  # runs of one topic are the rule
            else:
                write_uuid(buffer, topic_id, id_data, id_used)
                last_id_high, last_id_low = high, low
            id_used += 22
            more_flags[number] |= F2_TOPIC_ID
    group_offsets[len(rows)] = group_used
    topic_offsets[len(rows)] = topic_used
    metadata_offsets[len(rows)] = metadata_used
    id_offsets[len(rows)] = id_used


@kernel(
    types.Tuple((types.int64, types.int64))(
        TABLE, TABLE, TABLE, LONGS, LONGS, LONGS, LONGS, shorts, shorts, LONGS, shorts, BYTES, BYTES, LONGS, LONGS
    )
)
def fill_log(  # type: ignore[no-untyped-def]
    batches, records, classes, rows,
    log_offsets, timestamps, batch_offsets, record_types, versions, producer_ids, producer_epochs,
    flags, more_flags, special, transactional,
):  # fmt: skip
    """Write the columns that every record has, and into the flags what it has.

    `special` receives the places of the records that are not offset commits, `transactional` those in transactions;
    returns how many of each.
    """
    specials, transactionals = np.int64(0), np.int64(0)
    for number in range(len(rows)):
        row = rows[number]
        batch = records[row, R_BATCH]
        log_offsets[number] = records[row, R_OFFSET]
        timestamps[number] = records[row, R_TIMESTAMP]
        # The newest-per-key table makes up batches of one record (position -1); their base offset is the answer.
        made_up = batches[batch, B_POSITION] < 0
        batch_offsets[number] = (
            batches[batch, B_BASE_OFFSET] if made_up else records[batches[batch, B_FIRST_RECORD], R_OFFSET]
        )
        record_type, version, kind = classes[row, C_TYPE], classes[row, C_VERSION], classes[row, C_KIND]
        producer_id, outcome = batches[batch, B_PRODUCER_ID], batches[batch, B_OUTCOME]
        record_types[number] = record_type
        versions[number] = version
        producer_ids[number] = producer_id
        producer_epochs[number] = batches[batch, B_PRODUCER_EPOCH]
        flags[number] = (
            (F_COMMIT if kind == K_COMMIT else 0)
            | (F_KEY if kind <= K_COMMIT_TOMBSTONE else 0)
            | (F_GROUP if classes[row, C_GROUP_LENGTH] >= 0 else 0)
            | (F_TOMBSTONE if records[row, R_VALUE_LENGTH] < 0 else 0)
            | (F_TYPE if record_type >= 0 else 0)
            | (F_VERSION if version >= 0 else 0)
            | (F_PRODUCER if producer_id >= 0 else 0)
        )
        more_flags[number] = F2_TIMESTAMP if timestamps[number] >= 0 else 0
        special[specials] = number
        specials += kind > K_COMMIT_TOMBSTONE
        transactional[transactionals] = number
        transactionals += outcome != 0
    return specials, transactionals


BITS_SET = np.array([byte.bit_count() for byte in range(256)], np.uint8)


@kernel(types.void(BYTES, types.int64, types.Array(types.uint8, 2, "C"), LONGS))
def flags_to_bitmaps(flags, count, bitmaps, counts):  # type: ignore[no-untyped-def]
    """Turn one byte of flags per row into Arrow's eight bitmaps, eight rows at a time; counts what is set in each.

    An 8 by 8 matrix of bits is transposed in three steps (Hacker's Delight, 7-3). Flags are zero behind the last row.
    """
    for block in range((count + 7) >> 3):
        word = load_word(flags, 8 * block)
        swap = (word ^ (word >> np.uint64(7))) & np.uint64(0x00AA00AA00AA00AA)
        word ^= swap ^ (swap << np.uint64(7))
        swap = (word ^ (word >> np.uint64(14))) & np.uint64(0x0000CCCC0000CCCC)
        word ^= swap ^ (swap << np.uint64(14))
        swap = (word ^ (word >> np.uint64(28))) & np.uint64(0x00000000F0F0F0F0)
        word ^= swap ^ (swap << np.uint64(28))
        for flag in range(8):
            byte = (word >> np.uint64(8 * flag)) & np.uint64(0xFF)
            bitmaps[flag, block] = byte
            counts[flag] += BITS_SET[byte]
