"""OffsetCommit, versions 2 to 10: the hottest request, so its response is made while it is read.

Version 8 is the first flexible one, 10 the first that has topic ids instead of names. What a version lacks: no instance
id (7+), retention -1 (2-4; the group's default), leader epoch -1 (6+; unknown). Kafka writes the id of the topic into
the record in every version, so it is looked up by name up to version 9.

The theory. Nearly every commit is accepted as a whole, and then the response says nothing that the request did not: the
same topics, the same partitions, no errors. So `decode_offset_commit` returns the event together with that response, a
whole frame, and `encode_offset_commit` has nothing left to do but to put errors into it, should there be any.

Partitions that do not exist are refused before the coordinator hears of them, as in Kafka. The others go to the
coordinator in the order of the request. The response has Kafka's order: first the topics with something refused, then
the others, and the partitions of one topic together. Where nothing is refused it repeats the request, topics named
twice included; only topics without partitions are left out.

`decode_plain` reads any request by its layout. Before it, `decode_offset_commit` tries the readers at the end of this
file, which know the usual request only: names in UTF-8 (short ones from version 8 on), no tagged fields, partitions
that exist. For everything else, damage included, they return None or raise one of `_UNUSUAL`.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer
from muster.core.events import CommitAnswer, CommittedPartition, OffsetCommit
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, decode_response, encode_response
from muster.protocol.reader import MAX_ELEMENTS
from muster.server.wire import TopicNames

CommitReply = tuple[int, bytes, list[int] | None]
"""Version; the frame that says all is well but for what is refused already; and for each partition in it without an
error, in its order, which of the event's partitions it is. None where the orders are the same."""

_FIRST_WITH_THROTTLE, _FIRST_WITH_EPOCH, _FIRST_WITH_INSTANCE, _FIRST_FLEXIBLE, _FIRST_WITH_TOPIC_IDS = 3, 6, 7, 8, 10
_LAST_WITH_RETENTION = 4


def decode_offset_commit(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[OffsetCommit | None, CommitReply]:
    """The event, without `reply_to`, and what to answer it with; no event if nothing is left for the coordinator."""
    decode_usual = _decode_usual_flexible if version >= _FIRST_FLEXIBLE else _decode_usual_old
    try:
        decoded = decode_usual(version, correlation_id, data, position, end, topics)
        if decoded is not None:
            return decoded
    except _UNUSUAL:
        pass
    return decode_plain(version, correlation_id, data, position, end, topics)


def encode_offset_commit(reply: CommitReply, answer: CommitAnswer) -> bytes:
    """The whole frame."""
    errors = answer.errors
    if errors is None:
        return reply[1]
    version, frame, order = reply
    correlation_id, body = decode_response(ApiKey.OFFSET_COMMIT, version, frame)
    accepted = [one for topic in body["topics"] for one in topic["partitions"] if not one["errorCode"]]
    if isinstance(errors, ErrorCode):
        errors = (errors,) * len(accepted)
    for one, place in zip(accepted, range(len(errors)) if order is None else order, strict=True):
        one["errorCode"] = errors[place]
    return encode_response(ApiKey.OFFSET_COMMIT, version, correlation_id, body)


# Any request, by its layout.


def decode_plain(
    version: int,
    correlation_id: int,
    data: Buffer,
    position: int,
    end: int,
    topics: TopicNames,
    max_elements: int = MAX_ELEMENTS,
) -> tuple[OffsetCommit | None, CommitReply]:
    """As `decode_offset_commit`, for any request at all."""
    body = decode_request(ApiKey.OFFSET_COMMIT, version, data, position, end, max_elements=max_elements)
    refused: dict[str | bytes, list[StructData]] = {}
    accepted: list[tuple[str | bytes, list[StructData]]] = []
    committed: list[CommittedPartition] = []
    places: dict[int, int] = {}
    key_name = "topicId" if version >= _FIRST_WITH_TOPIC_IDS else "name"
    for topic in body["topics"]:
        key = topic[key_name]
        name: Any = topics.by_id.get(key) if version >= _FIRST_WITH_TOPIC_IDS else key
        known = topics.by_name.get(name)
        if known is None:
            refused.setdefault(key, [])
        topic_id, partition_count = known or (b"", 0)
        error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        kept: list[StructData] = []
        for one in topic["partitions"]:
            index = one["partitionIndex"]
            if 0 <= index < partition_count:
                kept.append({"partitionIndex": index})
                places[id(kept[-1])] = len(committed)
                committed.append(
                    CommittedPartition(
                        name,
                        index,
                        one["committedOffset"],
                        one["committedLeaderEpoch"],
                        one["committedMetadata"],
                        topic_id,
                    )
                )
            else:
                refused.setdefault(key, []).append({"partitionIndex": index, "errorCode": error})
        if kept:
            accepted.append((key, kept))
    answered = _in_kafkas_order(refused, accepted)
    response = {"topics": [{key_name: key, "partitions": partitions} for key, partitions in answered]}
    frame = encode_response(ApiKey.OFFSET_COMMIT, version, correlation_id, response)
    order = [places[id(one)] for _, partitions in answered for one in partitions if id(one) in places]
    event = OffsetCommit(
        None,
        body["groupId"],
        body["generationIdOrMemberEpoch"],
        body["memberId"],
        tuple(committed),
        body["groupInstanceId"],
        body["retentionTimeMs"],
        version,
    )
    return event if committed else None, (version, frame, order)


def _in_kafkas_order(
    refused: dict[str | bytes, list[StructData]], accepted: list[tuple[str | bytes, list[StructData]]]
) -> list[tuple[str | bytes, list[StructData]]]:
    if not refused:
        return accepted
    for key, partitions in accepted:
        refused.setdefault(key, []).extend(partitions)
    return list(refused.items())


# The usual request. A frame cut short is read on into whatever follows it in the buffer; that is found out at the end.

_UNUSUAL = (IndexError, UnicodeDecodeError, struct_error)

# Versions 2 to 7.

_read_size = Struct(">h").unpack_from
_read_count = Struct(">i").unpack_from
_read_int64 = Struct(">q").unpack_from
_generation_and_size = Struct(">ih").unpack_from
# Index, offset, leader epoch where there is one, and the length of the metadata.
_partition_with_epoch = Struct(">iqih").unpack_from
_partition_without_epoch = Struct(">iqh").unpack_from
_pack_old_start = Struct(">iiii").pack
_pack_old_start_without_throttle = Struct(">iii").pack
_pack_old_partition = Struct(">ih").pack


def _decode_usual_old(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[OffsetCommit, CommitReply] | None:
    has_epoch = version >= _FIRST_WITH_EPOCH
    (size,) = _read_size(data, position)
    after_group = position + 2 + size
    generation, member_size = _generation_and_size(data, after_group)
    cursor = after_group + 6 + member_size
    if size < 0 or member_size < 0:
        return None
    group_id = str(data[position + 2 : after_group], "utf-8")
    member_id = str(data[after_group + 6 : cursor], "utf-8")
    instance_id = None
    if version >= _FIRST_WITH_INSTANCE:
        (size,) = _read_size(data, cursor)
        cursor += 2
        if size >= 0:
            instance_id = str(data[cursor : cursor + size], "utf-8")
            cursor += size
        elif size < -1:
            return None
    retention_ms = -1
    if version <= _LAST_WITH_RETENTION:
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
                index, offset, size = _partition_without_epoch(data, cursor)
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
            parts.append(_pack_old_partition(index, 0))
    if not partitions:
        return None
    body = b"".join(parts)
    if version >= _FIRST_WITH_THROTTLE:
        frame = _pack_old_start(len(body) + 12, correlation_id, 0, topic_count) + body
    else:
        frame = _pack_old_start_without_throttle(len(body) + 8, correlation_id, topic_count) + body
    event = OffsetCommit(None, group_id, generation, member_id, tuple(partitions), instance_id, retention_ms, version)
    return event, (version, frame, None)


# Versions 8 to 10. A compact length is one more than it says, so adding it to its own position leads behind the text.
#
# Most commits are of one topic, and those of one consumer are alike up to their partitions: that part, the *head*, can
# be kept, and `decode_partitions` called for the next commit that begins with the same bytes.

_TOPIC_ID_SIZE = 16
_generation_and_byte = Struct(">iB").unpack_from
# Index, offset, leader epoch, length of the metadata, and the byte after that.
_read_partition = Struct(">iqiBB").unpack_from
# The same for the last partition of a request: then come the tagged fields of the partition, of topic and of request.
_read_only_partition = Struct(">iqiBBH").unpack_from
# Length, correlation id, tagged fields, throttle time, topics.
_START_SIZE = 14
_pack_start = Struct(">iiBiB").pack
_pack_partition = Struct(">ihB").pack

CommitHead = tuple[int, str, int, str, str | None, str, int, bytes]
"""Version, group, generation, member, instance, topic, how many partitions follow, topic and count as answered."""


def _decode_usual_flexible(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[OffsetCommit, CommitReply] | None:
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


def _decode_topic(version: int, data: Buffer, cursor: int, topics: TopicNames) -> tuple[str, int, bytes, int] | None:
    """A topic that exists: its name, how many partitions follow, both as the answer has them, and what is behind."""
    if version >= _FIRST_WITH_TOPIC_IDS:
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


def decode_commit_head(
    version: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[CommitHead, int] | None:
    """The head of a commit for one topic, and where its partitions begin. None if it is not that, or not as usual."""
    if version < _FIRST_FLEXIBLE:
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
    head: CommitHead, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
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
