"""Classic group metadata in kernels: a walk over a value notes where everything is.

Values nest (groups have members, members have topics, topics have partitions), so the walk fills one table per level
and each row says where its children begin. A blob that is not the consumer protocol's has -1 children: a null list.
"""

from muster.codec.columns.kernels import called, load_be16, load_be32, load_be64
from muster.codec.columns.scan import uvarint
from muster.codec.primitives import MAX_STRING_BYTES

# Columns of the group table: strings are pairs of position and length, length -1 for null.
G_PROTOCOL_TYPE = 0
G_PROTOCOL = 2
G_LEADER = 4
G_GENERATION = 6
G_STATE_TIMESTAMP = 7
G_FIRST_MEMBER = 8
G_MEMBERS = 9
GROUP_COLUMNS = 10

# Columns of the member table.
M_MEMBER_ID = 0
M_INSTANCE_ID = 2
M_CLIENT_ID = 4
M_CLIENT_HOST = 6
M_SUBSCRIPTION = 8
M_ASSIGNMENT = 10
M_REBALANCE_TIMEOUT = 12
M_SESSION_TIMEOUT = 13
M_FIRST_TOPIC = 14
M_TOPICS = 15
M_FIRST_ASSIGNED = 16
M_ASSIGNED = 17
MEMBER_COLUMNS = 18

# Columns of the tables of subscribed topics, and of assigned topics.
T_NAME = 0
TOPIC_COLUMNS = 2
A_NAME = 0
A_FIRST_PARTITION = 2
A_PARTITIONS = 3
ASSIGNED_COLUMNS = 4

NEWEST_VERSION = 4


@called
def place(buffer, position, end, flexible, wide):  # type: ignore[no-untyped-def]
    """A string (or, if wide, bytes): where it begins, its length or -1 for null, and where it ends or -1 if broken."""
    if flexible:
        length, position = uvarint(buffer, position, end)
        length -= 1
        if position < 0 or (length > MAX_STRING_BYTES and not wide):
            return position, -1, -1
    elif wide:
        if end - position < 4:
            return position, -1, -1
        length = load_be32(buffer, position)
        position += 4
    else:
        if end - position < 2:
            return position, -1, -1
        length = load_be16(buffer, position)
        position += 2
    if length < -1 or length > end - position:
        return position, -1, -1
    return position, length, position + max(length, 0)


@called
def _skip_tags(buffer, position, end):  # type: ignore[no-untyped-def]
    """Behind a section of tagged fields, or -1. This value defines none, so all are skipped."""
    fields, position = uvarint(buffer, position, end)
    while position >= 0 and fields > 0:
        _, position = uvarint(buffer, position, end)
        if position < 0:
            return position
        size, position = uvarint(buffer, position, end)
        if position < 0 or size > end - position:
            return -1
        position += size
        fields -= 1
    return position


@called
def _walk_member(buffer, position, end, version, row):  # type: ignore[no-untyped-def]
    """Note one member; returns the position behind it, or -1."""
    flexible = version == 4
    for column in (M_MEMBER_ID, M_INSTANCE_ID, M_CLIENT_ID, M_CLIENT_HOST):
        if column == M_INSTANCE_ID and version < 3:
            row[M_INSTANCE_ID] = 0
            row[M_INSTANCE_ID + 1] = -1
            continue
        start, length, position = place(buffer, position, end, flexible, False)
        if position < 0 or (length < 0 and column != M_INSTANCE_ID):
            return -1
        row[column] = start
        row[column + 1] = length
    if end - position < (8 if version >= 1 else 4):
        return -1
    row[M_REBALANCE_TIMEOUT] = load_be32(buffer, position)
    position += 4
    row[M_SESSION_TIMEOUT] = row[M_REBALANCE_TIMEOUT]
    if version >= 1:
        row[M_SESSION_TIMEOUT] = load_be32(buffer, position)
        position += 4
    for column in (M_SUBSCRIPTION, M_ASSIGNMENT):
        start, length, position = place(buffer, position, end, flexible, True)
        if position < 0 or length < 0:
            return -1
        row[column] = start
        row[column + 1] = length
    if flexible:
        position = _skip_tags(buffer, position, end)
    return position


@called
def walk_group(buffer, value, end, group, members, first_member):  # type: ignore[no-untyped-def]
    """Note one group value and its members; how many there are, or -1 if the value cannot be read.

    With a one-row member table every member is written over the last: that is how readability alone is asked.
    """
    if end - value < 2:
        return -1
    version = load_be16(buffer, value)
    if version < 0 or version > NEWEST_VERSION:
        return -1
    flexible = version == 4
    position = value + 2
    for column in (G_PROTOCOL_TYPE, G_PROTOCOL, G_LEADER):
        start, length, position = place(buffer, position, end, flexible, False)
        if position < 0 or (length < 0 and column == G_PROTOCOL_TYPE):
            return -1
        group[column] = start
        group[column + 1] = length
        if column == G_PROTOCOL_TYPE:
            if end - position < 4:
                return -1
            group[G_GENERATION] = load_be32(buffer, position)
            position += 4
    group[G_STATE_TIMESTAMP] = -1
    if version >= 2:
        if end - position < 8:
            return -1
        group[G_STATE_TIMESTAMP] = load_be64(buffer, position)
        position += 8
    if flexible:
        count, position = uvarint(buffer, position, end)
        if position < 0:
            return -1
        count -= 1
    else:
        if end - position < 4:
            return -1
        count = load_be32(buffer, position)
        position += 4
    if count < 0 or count > end - position:
        return -1
    group[G_FIRST_MEMBER] = first_member
    group[G_MEMBERS] = count
    only_asking = members.shape[0] == 1
    for number in range(count):
        position = _walk_member(
            buffer, position, end, version, members[0] if only_asking else members[first_member + number]
        )
        if position < 0:
            return -1
    if flexible and _skip_tags(buffer, position, end) < 0:
        return -1
    return count


@called
def group_is_readable(buffer, value, end, scratch):  # type: ignore[no-untyped-def]
    """Whether a group value can be read to its end; the scratch table has one row for the group, one for a member."""
    return walk_group(buffer, value, end, scratch[0], scratch[1:2], 0) >= 0
