"""The kernel behind the nested column of classic groups: the tables of `groups.py`, filled for many records at once.

Apart from the walk because it takes seconds to compile, and only columns need it.
"""

import numpy as np
from numba import types

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
from muster.codec.columns.scan import R_VALUE, R_VALUE_LENGTH
from muster.codec.columns.words import BYTES, INTS, LONGS, TABLE, called, kernel, load_be16, load_be32


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
