"""OffsetCommit, versions 2 to 10: the hottest request, so its answer is made while it is read.

    request   group_id string, generation int32, member_id string, instance_id string or null (7+),
              retention_ms int64 (2-4), topics: name string (2-9) or topic_id uuid (10), partitions: index int32,
              offset int64, leader_epoch int32 (6+), metadata string or null
    response  throttle_time_ms int32 (3+), topics: name string (2-9) or topic_id uuid (10), partitions: index int32,
              error int16

Version 8 is the first flexible one. What a version lacks: no instance id, retention -1 (the group's default), leader
epoch -1 (unknown). Kafka writes the id of the topic into the record in every version, so it is looked up by name up to
version 9.

The theory. Nearly every commit is accepted as a whole, and then the answer says nothing that the request did not: the
same topics, the same partitions, no errors. So `decode_offset_commit` returns the event together with that answer, a
whole frame, and `encode_offset_commit` has nothing left to do but to put errors into it, should there be any.

Partitions that do not exist are refused before the coordinator hears of them, as in Kafka. That, and whatever else is
not as usual, is in `offset_commit_unusual`.
"""

from struct import Struct, error
from typing import Any

from muster.codec.primitives import Buffer
from muster.core.answers import CommitAnswer
from muster.core.events import OffsetCommit
from muster.server.wire.layout import WireReader
from muster.server.wire.offset_commit_old import decode_old
from muster.server.wire.offset_commit_unusual import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_IDS,
    CommitReply,
    decode_unusual,
    error_positions,
)
from muster.server.wire.topics import Topics

_TOPIC_ID_SIZE = 16
_UNUSUAL = (IndexError, UnicodeDecodeError, error)

_generation_and_byte = Struct(">iB").unpack_from
# Index, offset, leader epoch, length of the metadata, and the byte after that.
_read_partition = Struct(">iqiBB").unpack_from
# Length, correlation id, tagged fields, throttle time, topics.
_START_SIZE = 14
_pack_start = Struct(">iiBiB").pack
_pack_partition = Struct(">ihB").pack
_put_error = Struct(">h").pack_into


def decode_offset_commit(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetCommit | None, CommitReply]:
    """The event, without `reply_to`, and what to answer it with; no event if nothing is left for the coordinator."""
    decode = _decode_flexible if version >= FIRST_FLEXIBLE else decode_old
    try:
        decoded = decode(version, correlation_id, data, position, end, topics)
        if decoded is not None:
            return decoded
    except _UNUSUAL:
        pass
    return decode_unusual(version, correlation_id, WireReader(data, position, end), topics)


def encode_offset_commit(reply: CommitReply, answer: CommitAnswer) -> bytes:
    """The whole frame."""
    errors = answer.errors
    if errors is None:
        return reply[1]
    version, frame, positions = reply
    patched = bytearray(frame)
    for position, code in zip(error_positions(version, frame) if positions is None else positions, errors, strict=True):
        _put_error(patched, position, code)
    return bytes(patched)


def _decode_flexible(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetCommit, CommitReply] | None:
    """A request with lengths of one byte, no tagged fields, and partitions that exist. None if it is not one.

    A compact length is one more than it says, so adding it to its own position leads behind the text. A frame cut short
    is read on into whatever follows it in the buffer; that is found out at the end.
    """
    group_size = data[position]
    cursor = position + group_size
    group_id = str(data[position + 1 : cursor], "utf-8")
    generation, member_size = _generation_and_byte(data, cursor)
    after_member = cursor + 4 + member_size
    member_id = str(data[cursor + 5 : after_member], "utf-8")
    instance_size = data[after_member]
    if not group_size or not member_size or (group_size | member_size | instance_size) > 0x7F:
        return None
    if instance_size:
        cursor = after_member + instance_size
        instance_id = str(data[after_member + 1 : cursor], "utf-8")
    else:
        cursor = after_member + 1
        instance_id = None
    topic_count = data[cursor]
    if topic_count > 0x7F:
        return None
    cursor += 1
    by_name = topics.by_name
    partitions: list[Any] = []  # plain tuples: making a `CommittedPartition` takes four times as long
    parts: list[Buffer] = []
    for _ in range(topic_count - 1):
        if version >= FIRST_WITH_TOPIC_IDS:
            after_name = cursor + _TOPIC_ID_SIZE
            name = topics.by_id.get(bytes(data[cursor:after_name]))
            if name is None:
                return None
        else:
            name_size = data[cursor]
            after_name = cursor + name_size
            name = str(data[cursor + 1 : after_name], "utf-8")
            if not 0 < name_size < 0x80:
                return None
        known = by_name.get(name)
        count = data[after_name]
        if known is None or not 1 < count < 0x80:
            return None
        topic_id, partition_count = known
        parts.append(data[cursor : after_name + 1])
        cursor = after_name + 1
        for _ in range(count - 1):
            index, offset, epoch, metadata_size, following = _read_partition(data, cursor)
            if metadata_size < 2:
                metadata = "" if metadata_size else None
                cursor += 18
            elif metadata_size < 0x80:
                after_metadata = cursor + 16 + metadata_size
                metadata = str(data[cursor + 17 : after_metadata], "utf-8")
                following = data[after_metadata]
                cursor = after_metadata + 1
            else:
                return None
            if following or not 0 <= index < partition_count:
                return None
            partitions.append((name, index, offset, epoch, metadata, topic_id))
            parts.append(_pack_partition(index, 0, 0))
        if data[cursor]:
            return None
        cursor += 1
        parts.append(b"\x00")
    if data[cursor] or cursor >= end or not partitions:
        return None
    parts.append(b"\x00")
    body = b"".join(parts)
    frame = _pack_start(_START_SIZE - 4 + len(body), correlation_id, 0, 0, topic_count) + body
    event = OffsetCommit(None, group_id, generation, member_id, tuple(partitions), instance_id, -1, version)
    return event, (version, frame, None)
