"""Kernels that classify records and find the parts of an offset commit. `fill.py` writes the columns.

`classify` looks at every record and agrees to the letter with the row-wise codec on what is readable: a record it
calls `K_COMMIT` or `K_GROUP` decodes there too, and one it calls `K_BAD` raises there (the message comes from there).
"""

import numpy as np
from numba import types

from muster.codec.columns.groups import group_is_readable
from muster.codec.columns.kernels import (
    BYTES,
    LONGS,
    TABLE,
    inlined,
    kernel,
    load_be16,
    load_be32,
    load_word,
)
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_MAGIC,
    CONTROL_BIT,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_VALUE,
    R_VALUE_LENGTH,
    uvarint,
)
from muster.codec.primitives import MAX_STRING_BYTES

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

# Totals that `classify` returns: bytes of the string columns to allocate.
T_GROUP = 0
T_TOPIC = 1
T_METADATA = 2
T_COMMITS = 3  # commits and their tombstones
T_TOPIC_IDS = 4
TOTALS = 5

NEWEST_TYPE = 23
RESERVED_TYPE = 18


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
        return -1
    length = load_be16(buffer, position)
    if length < 0 or length > end - position - 2:
        return -1
    return position + 2 + length


@inlined
def topic_id_position(buffer, position, end):  # type: ignore[no-untyped-def]
    """Walk a version-4 value's tagged fields: where the topic id is, 0 if there is none, -1 if they are broken."""
    if end - position >= 19 and load_be32(buffer, position - 1) & 0xFFFFFF == 0x010010:  # one field, tag 0, 16 bytes
        position += 3
        return position if (load_word(buffer, position) | load_word(buffer, position + 8)) != 0 else 0
    found = 0
    fields, position = uvarint(buffer, position, end)
    if position < 0:
        return -1
    while fields > 0:
        tag, position = uvarint(buffer, position, end)
        if position < 0:
            return -1
        size, position = uvarint(buffer, position, end)
        if position < 0 or size > end - position:
            return -1
        if tag == 0:
            if size != 16:
                return -1
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
        return 0, -1
    if version == 4:
        length, position = uvarint(buffer, position, end)
        length -= 1
        if position < 0 or length > MAX_STRING_BYTES:
            return 0, -1
    else:
        if end - position < 2:
            return 0, -1
        length = load_be16(buffer, position)
        position += 2
    if length < 0 or length > end - position - (16 if version == 1 else 8):
        return 0, -1
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
                topic_id = 0
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
