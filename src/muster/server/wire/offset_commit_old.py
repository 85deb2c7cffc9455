"""OffsetCommit of versions 2 to 7, as it usually comes: read, and its answer made, in one pass."""

from struct import Struct
from typing import Any

from muster.codec.primitives import Buffer
from muster.core.events import OffsetCommit
from muster.protocol.reader import MAX_ELEMENTS
from muster.server.wire.offset_commit_unusual import (
    FIRST_WITH_EPOCH,
    FIRST_WITH_INSTANCE,
    FIRST_WITH_THROTTLE,
    LAST_WITH_RETENTION,
    CommitReply,
)
from muster.server.wire.topics import Topics

_read_size = Struct(">h").unpack_from
_read_count = Struct(">i").unpack_from
_read_int64 = Struct(">q").unpack_from
_generation_and_size = Struct(">ih").unpack_from
# Index, offset, leader epoch where there is one, and the length of the metadata.
_partition_with_epoch = Struct(">iqih").unpack_from
_partition_without = Struct(">iqh").unpack_from
_pack_start = Struct(">iiii").pack
_pack_start_without_throttle = Struct(">iii").pack
_pack_partition = Struct(">ih").pack


def decode_old(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetCommit, CommitReply] | None:
    """A request for partitions that exist. None if it is not one, or is not as it should be.

    A frame cut short is read on into whatever follows it in the buffer, up to the end of a partition.
    """
    has_epoch = version >= FIRST_WITH_EPOCH
    (size,) = _read_size(data, position)
    after_group = position + 2 + size
    generation, member_size = _generation_and_size(data, after_group)
    cursor = after_group + 6 + member_size
    if size < 0 or member_size < 0:
        return None
    group_id = str(data[position + 2 : after_group], "utf-8")
    member_id = str(data[after_group + 6 : cursor], "utf-8")
    instance_id = None
    if version >= FIRST_WITH_INSTANCE:
        (size,) = _read_size(data, cursor)
        cursor += 2
        if size >= 0:
            instance_id = str(data[cursor : cursor + size], "utf-8")
            cursor += size
        elif size < -1:
            return None
    retention_ms = -1
    if version <= LAST_WITH_RETENTION:
        (retention_ms,) = _read_int64(data, cursor)
        cursor += 8
    (topic_count,) = _read_count(data, cursor)
    cursor += 4
    if topic_count > MAX_ELEMENTS:
        return None
    partitions: list[Any] = []  # plain tuples: making a `CommittedPartition` takes four times as long
    parts: list[Buffer] = []
    for _ in range(topic_count):
        (size,) = _read_size(data, cursor)
        after_name = cursor + 2 + size
        (count,) = _read_count(data, after_name)
        if size < 0 or not 0 < count < MAX_ELEMENTS - len(parts):
            return None
        name = str(data[cursor + 2 : after_name], "utf-8")
        known = topics.by_name.get(name)
        if known is None:
            return None
        topic_id, partition_count = known
        parts.append(data[cursor : after_name + 4])
        cursor = after_name + 4
        for _ in range(count):
            if has_epoch:
                index, offset, epoch, size = _partition_with_epoch(data, cursor)
                cursor += 18
            else:
                index, offset, size = _partition_without(data, cursor)
                epoch = -1
                cursor += 14
            if size > 0:
                metadata: str | None = str(data[cursor : cursor + size], "utf-8")
                cursor += size
            else:
                metadata = None if size else ""
            if size < -1 or cursor > end or not 0 <= index < partition_count:
                return None
            partitions.append((name, index, offset, epoch, metadata, topic_id))
            parts.append(_pack_partition(index, 0))
    if not partitions:
        return None
    body = b"".join(parts)
    if version >= FIRST_WITH_THROTTLE:
        frame = _pack_start(len(body) + 12, correlation_id, 0, topic_count) + body
    else:
        frame = _pack_start_without_throttle(len(body) + 8, correlation_id, topic_count) + body
    event = OffsetCommit(None, group_id, generation, member_id, tuple(partitions), instance_id, retention_ms, version)
    return event, (version, frame, None)
