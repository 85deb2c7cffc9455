"""Kernels that write columns: those of every record, of offset commits, and the tables of classic groups.

`arrow.py` makes arrays of them. They stand apart from `commits.py` and `groups.py`, which say where things are, because
only columns need them, and they take seconds to compile.
"""

import numpy as np
from numba import types

from muster.codec.columns.commits import (
    C_GROUP,
    C_GROUP_LENGTH,
    C_KIND,
    C_METADATA,
    C_METADATA_LENGTH,
    C_TOPIC_ID,
    C_TYPE,
    C_VERSION,
    K_COMMIT,
    K_COMMIT_TOMBSTONE,
    write_uuid,
)
from muster.codec.columns.groups import (
    A_FIRST_PARTITION,
    A_NAME,
    A_PARTITIONS,
    G_PROTOCOL_TYPE,
    M_ASSIGNED,
    M_ASSIGNMENT,
    M_FIRST_ASSIGNED,
    M_FIRST_TOPIC,
    M_SUBSCRIPTION,
    M_TOPICS,
    T_NAME,
    place,
    walk_group,
)
from muster.codec.columns.kernels import (
    BYTES,
    INTS,
    LONGS,
    TABLE,
    called,
    copy_bytes,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    load_word,
)
from muster.codec.columns.scan import (
    B_BASE_OFFSET,
    B_FIRST_RECORD,
    B_OUTCOME,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    R_BATCH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE,
    R_VALUE_LENGTH,
)

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

shorts = types.Array(types.int16, 1, "C")


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
    group_used, topic_used = 0, 0
    metadata_used, id_used = 0, 0
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
    specials, transactionals = 0, 0
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


@called
def _walk_subscription(buffer, start, length, topics, first):  # type: ignore[no-untyped-def]
    """Note the topics of a subscription, by the part that all its versions share; how many, or -1 if not readable."""
    end = start + length
    if length < 6 or load_be16(buffer, start) < 0:
        return -1
    count = load_be32(buffer, start + 2)
    position = start + 6
    if count < 0 or count > (end - position) // 2:
        return -1
    for number in range(count):
        at, size, position = place(buffer, position, end, False, False)
        if position < 0 or size < 0:
            return -1
        topics[first + number, T_NAME] = at
        topics[first + number, T_NAME + 1] = size
    _, _, position = place(buffer, position, end, False, True)
    return count if position >= 0 else -1


@called
def _walk_assignment(buffer, start, length, assigned, first, partitions, first_partition):  # type: ignore[no-untyped-def]
    """Note the topics and partitions of an assignment; how many of each, -1 topics if not readable."""
    end = start + length
    nothing = -1, 0
    if length < 6 or load_be16(buffer, start) < 0:
        return nothing
    count = load_be32(buffer, start + 2)
    position = start + 6
    if count < 0 or count > (end - position) // 6:
        return nothing
    used = 0
    for number in range(count):
        at, size, position = place(buffer, position, end, False, False)
        if position < 0 or size < 0 or end - position < 4:
            return nothing
        many = load_be32(buffer, position)
        position += 4
        if many < 0 or many > (end - position) // 4:
            return nothing
        row = assigned[first + number]
        row[A_NAME] = at
        row[A_NAME + 1] = size
        row[A_FIRST_PARTITION] = first_partition + used
        row[A_PARTITIONS] = many
        for step in range(many):
            partitions[first_partition + used + step] = load_be32(buffer, position + 4 * step)
        used += many
        position += 4 * many
    _, _, position = place(buffer, position, end, False, True)
    return (count, used) if position >= 0 else nothing


CONSUMER = np.frombuffer(b"consumer", np.uint8)


@called
def _is_consumer(buffer, position, length):  # type: ignore[no-untyped-def]
    if length != 8:
        return False
    different = False
    for number in range(8):
        different |= buffer[position + number] != CONSUMER[number]
    return not different


@kernel(
    types.Tuple((types.int64, types.int64, types.int64, types.int64))(
        BYTES, TABLE, LONGS, TABLE, TABLE, TABLE, TABLE, INTS
    )
)
def locate_groups(buffer, records, rows, groups, members, topics, assigned, partitions):  # type: ignore[no-untyped-def]
    """Fill the tables of all levels for these readable group records; returns the rows used below the first level."""
    member_count, topic_count = 0, 0
    assigned_count, partition_count = 0, 0
    for number in range(len(rows)):
        record, group = records[rows[number]], groups[number]
        end = record[R_VALUE] + record[R_VALUE_LENGTH]
        count = walk_group(buffer, record[R_VALUE], end, group, members, member_count)
        consumer = _is_consumer(buffer, group[G_PROTOCOL_TYPE], group[G_PROTOCOL_TYPE + 1])
        for member in range(member_count, member_count + count):
            row = members[member]
            row[M_FIRST_TOPIC], row[M_FIRST_ASSIGNED] = topic_count, assigned_count
            row[M_TOPICS], row[M_ASSIGNED] = -1, -1
            if consumer:
                row[M_TOPICS] = _walk_subscription(
                    buffer, row[M_SUBSCRIPTION], row[M_SUBSCRIPTION + 1], topics, topic_count
                )
                row[M_ASSIGNED], used = _walk_assignment(
                    buffer,
                    row[M_ASSIGNMENT],
                    row[M_ASSIGNMENT + 1],
                    assigned,
                    assigned_count,
                    partitions,
                    partition_count,
                )
                partition_count += used
            topic_count += max(row[M_TOPICS], 0)
            assigned_count += max(row[M_ASSIGNED], 0)
        member_count += count
    return member_count, topic_count, assigned_count, partition_count
