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

Most commits are of one topic, and a consumer's are alike up to their partitions: that part, the *head*, can be kept and
`decode_partitions` called for the next commit that begins with the same bytes.

Partitions that do not exist are refused before the coordinator hears of them, as in Kafka. That, and whatever else is
not as usual, is in `offset_commit_unusual`.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct, error
from typing import Any

from muster.codec.primitives import Buffer
from muster.core.answers import CommitAnswer
from muster.core.events import OffsetCommit
from muster.protocol.reader import WireReader
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
# As above, for the last partition of a request: the tagged fields of the partition, and those of topic and request.
_read_only_partition = Struct(">iqiBBH").unpack_from

CommitHead = tuple[int, str, int, str, str | None, str, int, bytes]
"""Version, group, generation, member, instance, topic, how many partitions follow, topic and count as answered."""


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


def decode_commit_head(
    version: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[CommitHead, int] | None:
    """The head of a commit for one topic, and where its partitions begin. None if it is not that, or not as usual."""
    if version < FIRST_FLEXIBLE:
        return None
    try:
        start = _decode_start(data, position)
        if start is None or start[4] != 2:
            return None
        topic = _decode_topic(version, data, start[5], topics)
    except _UNUSUAL:
        return None
    if topic is None or topic[3] > end:
        return None
    name, count, encoded, after_topic = topic
    return (version, *start[:4], name, count, encoded), after_topic


def decode_partitions(
    head: CommitHead, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetCommit, CommitReply] | None:
    """The rest of a commit; None if something in it is not as usual. As `decode_offset_commit` otherwise."""
    version, group_id, generation, member_id, instance_id, name, count, encoded = head
    known = topics.by_name.get(name)
    if known is None:
        return None
    partitions: list[Any] = []
    try:
        if count == 1:
            # By far the most common, and so without a loop: one partition, no metadata, no tagged fields.
            index, offset, epoch, metadata_size, partition_tags, tags = _read_only_partition(data, position)
            if metadata_size < 2 and not partition_tags and not tags and position + 20 <= end:
                if not 0 <= index < known[1]:
                    return None
                frame = _answer_of_one(len(encoded))(
                    len(encoded) + 19, correlation_id, 0, 0, 2, encoded, index, 0, 0, 0, 0
                )
                partition: Any = (name, index, offset, epoch, "" if metadata_size else None, known[0])
                event = OffsetCommit(None, group_id, generation, member_id, (partition,), instance_id, -1, version)
                return event, (version, frame, None)
        parts: list[Buffer] = [encoded]
        cursor = _decode_topic_partitions(data, position, name, count, known, partitions, parts)
        if cursor is None or data[cursor] or cursor >= end:
            return None
    except _UNUSUAL:
        return None
    parts.append(b"\x00")
    body = b"".join(parts)
    frame = _pack_start(_START_SIZE - 4 + len(body), correlation_id, 0, 0, 2) + body
    event = OffsetCommit(None, group_id, generation, member_id, tuple(partitions), instance_id, -1, version)
    return event, (version, frame, None)


@lru_cache(maxsize=256)
def _answer_of_one(topic_bytes: int) -> Callable[..., bytes]:
    """Packs the answer to a commit of one partition: all there is before the topic, the topic, and what follows."""
    return Struct(f">iiBiB{topic_bytes}sihBBB").pack


def _decode_flexible(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[OffsetCommit, CommitReply] | None:
    """A request with lengths of one byte, no tagged fields, and partitions that exist. None if it is not one.

    A compact length is one more than it says, so adding it to its own position leads behind the text. A frame cut short
    is read on into whatever follows it in the buffer; that is found out at the end.
    """
    start = _decode_start(data, position)
    if start is None:
        return None
    group_id, generation, member_id, instance_id, topic_count, cursor = start
    partitions: list[Any] = []  # plain tuples: making a `CommittedPartition` takes four times as long
    parts: list[Buffer] = []
    for _ in range(topic_count - 1):
        topic = _decode_topic(version, data, cursor, topics)
        if topic is None:
            return None
        name, count, encoded, cursor = topic
        parts.append(encoded)
        after_topic = _decode_topic_partitions(data, cursor, name, count, topics.by_name[name], partitions, parts)
        if after_topic is None:
            return None
        cursor = after_topic
    if data[cursor] or cursor >= end or not partitions:
        return None
    parts.append(b"\x00")
    body = b"".join(parts)
    frame = _pack_start(_START_SIZE - 4 + len(body), correlation_id, 0, 0, topic_count) + body
    event = OffsetCommit(None, group_id, generation, member_id, tuple(partitions), instance_id, -1, version)
    return event, (version, frame, None)


def _decode_start(data: Buffer, position: int) -> tuple[str, int, str, str | None, int, int] | None:
    """Group, generation, member, instance, the byte that counts topics, and what is behind it; None if unusual."""
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
    return group_id, generation, member_id, instance_id, topic_count, cursor + 1


def _decode_topic(version: int, data: Buffer, cursor: int, topics: Topics) -> tuple[str, int, bytes, int] | None:
    """A topic that exists: its name, how many partitions follow, both as the answer has them, and what is behind."""
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
    count = data[after_name]
    if name not in topics.by_name or not 1 < count < 0x80:
        return None
    return name, count - 1, bytes(data[cursor : after_name + 1]), after_name + 1


def _decode_topic_partitions(
    data: Buffer, cursor: int, name: str, count: int, known: tuple[bytes, int], partitions: list[Any], parts: list[Any]
) -> int | None:
    """Read the partitions of a topic, and put down what they say and what is answered; returns what is behind them."""
    topic_id, partition_count = known
    for _ in range(count):
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
    parts.append(b"\x00")
    return cursor + 1
