"""OffsetFetch, versions 1 to 10: one group up to version 7, any number from version 8 on.

Version 6 is the first flexible one, 10 the first that has topic ids instead of names. Null topics ask for all there
are. What a version lacks: `require_stable` is false (7+). The member of version 9 belongs to the newer group protocol
and means nothing to a classic group.

A name that no topic has is asked for like any other, and has no offset. An id that no topic has is refused here, as in
Kafka, because the coordinator knows names only.

The response repeats groups and topics in the bytes of the request, so those are kept until the answer comes. Version 1
has no place for an error of the group: each partition asked for gets it. Later versions list no topics then.

`decode_offset_fetch` reads any request by its layout; before that, from version 8 on, it tries the usual request by
hand, at the end of this file. Responses are written by hand in all versions.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer, Writer
from muster.core.events import FetchAnswer, FetchedOffset, OffsetFetch
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody
from muster.protocol.messages import decode_request
from muster.server.wire import TopicNames

Key = str | bytes
"""What a topic is called: its name, or its id from version 10 on."""
AskedTopic = tuple[bytes, tuple[int, ...]]
"""A topic of the request: its name or id and the number of partitions, as the answer has them; and the partitions."""
AskedGroup = tuple[bytes, Sequence[AskedTopic] | None, Sequence[AskedTopic]]
"""A group of the request: its id as the answer has it, its topics (None for all), and ids that no topic has."""
FetchReply = tuple[int, int, Sequence[AskedGroup]]
"""What is kept of a request until it can be answered: version, correlation id, groups. Plain tuples, made often."""

_FIRST_WITH_ERROR, _FIRST_WITH_THROTTLE, _FIRST_WITH_EPOCH, _FIRST_FLEXIBLE = 2, 3, 5, 6
_FIRST_WITH_GROUPS, _FIRST_WITH_MEMBER, _FIRST_WITH_TOPIC_IDS = 8, 9, 10


def decode_offset_fetch(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[tuple[OffsetFetch, ...], FetchReply]:
    """An event for each group, without `reply_to`, and what to keep for the answer.

    A group that is asked the same twice is answered twice, as in Kafka, and has one event, which is there twice.
    """
    if version >= _FIRST_WITH_GROUPS:
        try:
            decoded = _decode_usual(version, correlation_id, data, position, end, topics)
            if decoded is not None:
                return decoded
        except _UNUSUAL:
            pass
    body = decode_request(ApiKey.OFFSET_FETCH, version, data, position, end)
    key_name = "topicId" if version >= _FIRST_WITH_TOPIC_IDS else "name"
    known: dict[Any, tuple[OffsetFetch, AskedGroup]] = {}
    groups = []
    for group in body["groups"] if version >= _FIRST_WITH_GROUPS else [body]:
        wanted = None
        if group["topics"] is not None:
            wanted = tuple([(topic[key_name], tuple(topic["partitionIndexes"])) for topic in group["topics"]])
        same = group["groupId"], wanted
        if same not in known:
            known[same] = _sort_out(version, group["groupId"], wanted, topics)
            known[same][0].require_stable = body["requireStable"]
        groups.append(known[same])
    return tuple([event for event, _ in groups]), (version, correlation_id, [kept for _, kept in groups])


def _sort_out(
    version: int, group_id: str, wanted: tuple[tuple[Key, tuple[int, ...]], ...] | None, topics: TopicNames
) -> tuple[OffsetFetch, AskedGroup]:
    encoded_id = b""
    if version >= _FIRST_WITH_GROUPS:
        writer = Writer()
        writer.compact_string(group_id)
        encoded_id = writer.finish()
    if wanted is None:
        return OffsetFetch(None, group_id, None), (encoded_id, None, ())
    asked: list[AskedTopic] = []
    refused: list[AskedTopic] = []
    partitions: list[tuple[str, int]] = []
    topic_ids: dict[str, bytes] = {}
    for key, indexes in wanted:
        name = key if isinstance(key, str) else topics.by_id.get(key)
        topic = (_encoded_topic(version, key, len(indexes)), indexes)
        if name is None:
            refused.append(topic)
            continue
        asked.append(topic)
        partitions.extend([(name, index) for index in indexes])
        if isinstance(key, bytes):
            topic_ids[name] = key
    has_ids = version >= _FIRST_WITH_TOPIC_IDS
    event = OffsetFetch(None, group_id, tuple(partitions), topic_ids=topic_ids if has_ids else None)
    return event, (encoded_id, asked, refused)


# The response.

_NONE = ErrorCode.NONE
_pack_length = Struct(">i").pack
_pack_int32 = Struct(">i").pack
_pack_error = Struct(">h").pack
_pack_plain = Struct(">iqiBhB").pack  # a partition without metadata, flexible
_pack_before_metadata = Struct(">iqi").pack
_pack_after_metadata = Struct(">hB").pack
_pack_with_epoch = Struct(">iqih").pack
_pack_without_epoch = Struct(">iqh").pack
_END_OF_TOPIC = b"\x00"
_MAX_OLD_TEXT_BYTES = 0x7FFF
_PARTITION_BYTES = 24


def offset_fetch_bytes(answer: FetchAnswer) -> int:
    """About how much the answer for one group takes on the wire, topics left out: those are the request's own."""
    return sum(_PARTITION_BYTES + len(metadata) for _, _, _, _, metadata, _ in answer.partitions)


def encode_offset_fetch(reply: FetchReply, answers: Sequence[FetchAnswer], topics: TopicNames) -> bytes:
    """The whole frame, from one answer for each event in its order.

    Where a client that knows topics by id asked for all partitions of a group, those of deleted topics are left out, as
    in Kafka.
    """
    version, correlation_id, groups = reply
    if version >= _FIRST_WITH_GROUPS:
        parts = [_pack_length(correlation_id), b"\x00\x00\x00\x00\x00", _uvarint(len(groups) + 1)]
        if len(groups) == 1:
            _put_group(parts, version, groups[0], answers[0], topics)
        else:
            encoded: dict[tuple[int, int], bytes] = {}  # what is there several times is the same object each time
            for group, answer in zip(groups, answers, strict=True):
                same = id(group), id(answer)
                if same not in encoded:
                    of_one: list[bytes] = []
                    _put_group(of_one, version, group, answer, topics)
                    encoded[same] = b"".join(of_one)
                parts.append(encoded[same])
        parts.append(b"\x00")
    else:
        ((_, asked, refused),), (answer,) = groups, answers
        parts = [_pack_length(correlation_id)]
        if version >= _FIRST_FLEXIBLE:
            parts.append(b"\x00")
        if version >= _FIRST_WITH_THROTTLE:
            parts.append(b"\x00\x00\x00\x00")
        _put_topics(parts, version, asked, refused, answer, topics)
        if version >= _FIRST_WITH_ERROR:
            parts.append(_pack_error(answer.error))
        if version >= _FIRST_FLEXIBLE:
            parts.append(b"\x00")
    body = b"".join(parts)
    return _pack_length(len(body)) + body


def _put_group(parts: list[bytes], version: int, group: AskedGroup, answer: FetchAnswer, topics: TopicNames) -> None:
    encoded_id, asked, refused = group
    parts.append(encoded_id)
    _put_topics(parts, version, asked, refused, answer, topics)
    parts.append(_pack_after_metadata(answer.error, 0))


def _put_topics(
    parts: list[bytes],
    version: int,
    asked: Sequence[AskedTopic] | None,
    refused: Sequence[AskedTopic],
    answer: FetchAnswer,
    topics: TopicNames,
) -> None:
    """The array of topics of one group."""
    error, found = answer
    is_flexible = version >= _FIRST_FLEXIBLE
    if error is not _NONE:
        if asked is None or version >= _FIRST_WITH_ERROR:
            parts.append(_count(0, is_flexible))
            return
        found = _with_error(asked, error)
    elif asked is None:
        asked, found = _all_topics(version, found, topics)
    put_partitions = _put_flexible if is_flexible else _put_with_epoch if version >= _FIRST_WITH_EPOCH else _put_without
    parts.append(_count(len(asked) + len(refused), is_flexible))
    start = 0
    for encoded, partitions in asked:
        parts.append(encoded)
        end = start + len(partitions)
        put_partitions(parts, found[start:end])
        start = end
        if is_flexible:
            parts.append(_END_OF_TOPIC)
    for topic in refused:
        parts.append(topic[0])
        put_partitions(parts, _with_error([topic], ErrorCode.UNKNOWN_TOPIC_ID))
        parts.append(_END_OF_TOPIC)


def _put_flexible(parts: list[bytes], found: Sequence[FetchedOffset]) -> None:
    for _, index, offset, epoch, metadata, error in found:
        if not metadata:
            parts.append(_pack_plain(index, offset, epoch, 1, error, 0))
        else:
            parts.append(_pack_before_metadata(index, offset, epoch))
            encoded = metadata.encode("utf-8", "surrogateescape")
            parts.append(_uvarint(len(encoded) + 1))
            parts.append(encoded)
            parts.append(_pack_after_metadata(error, 0))


def _put_with_epoch(parts: list[bytes], found: Sequence[FetchedOffset]) -> None:
    for _, index, offset, epoch, metadata, error in found:
        encoded = _old_text(metadata)
        parts.append(_pack_with_epoch(index, offset, epoch, len(encoded)))
        parts.append(encoded)
        parts.append(_pack_error(error))


def _put_without(parts: list[bytes], found: Sequence[FetchedOffset]) -> None:
    for _, index, offset, _, metadata, error in found:
        encoded = _old_text(metadata)
        parts.append(_pack_without_epoch(index, offset, len(encoded)))
        parts.append(encoded)
        parts.append(_pack_error(error))


def _old_text(metadata: str) -> bytes:
    encoded = metadata.encode("utf-8", "surrogateescape")
    if len(encoded) > _MAX_OLD_TEXT_BYTES:
        raise BadBody(f"OffsetFetchResponse: metadata of {len(encoded)} bytes does not fit a version below 6")
    return encoded


def _with_error(asked: Sequence[AskedTopic], error: ErrorCode) -> tuple[FetchedOffset, ...]:
    return tuple([FetchedOffset("", index, -1, -1, "", error) for _, indexes in asked for index in indexes])


def _all_topics(
    version: int, found: Sequence[FetchedOffset], topics: TopicNames
) -> tuple[list[AskedTopic], tuple[FetchedOffset, ...]]:
    """What was found, topic by topic, as if it had been asked for."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for partition in found:
        by_topic.setdefault(partition.topic, []).append(partition)
    asked: list[AskedTopic] = []
    kept: list[FetchedOffset] = []
    for name, partitions in by_topic.items():
        key: str | bytes = name
        if version >= _FIRST_WITH_TOPIC_IDS:
            known = topics.by_name.get(name)
            if known is None:
                continue
            key = known[0]
        indexes = tuple([partition.partition for partition in partitions])
        asked.append((_encoded_topic(version, key, len(indexes)), indexes))
        kept.extend(partitions)
    return asked, tuple(kept)


def _encoded_topic(version: int, key: str | bytes, partitions: int) -> bytes:
    """A topic's name or id and the number of its partitions, as they are on the wire."""
    writer = Writer()
    if isinstance(key, bytes):
        writer.uuid(key)
    elif version >= _FIRST_FLEXIBLE:
        writer.compact_string(key)
    else:
        writer.string(key)
    writer.raw(_count(partitions, version >= _FIRST_FLEXIBLE))
    return writer.finish()


def _count(count: int, is_flexible: bool) -> bytes:
    return _uvarint(count + 1) if is_flexible else _pack_int32(count)


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    writer = Writer()
    writer.uvarint(value)
    return writer.finish()


# The usual request, versions 8 to 10: one group, lengths of one byte, no member, no tagged fields.
#
# A compact length is one more than it says, so adding it to its own position leads behind the text. A frame cut short
# is read on into whatever follows it in the buffer; that is found out at the end.

_UNUSUAL = (IndexError, UnicodeDecodeError, struct_error)
_TOPIC_ID_SIZE = 16
_read_int32s = [Struct(f">{count}i").unpack_from for count in range(0x7F)]


def _decode_usual(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[tuple[OffsetFetch, ...], FetchReply] | None:
    group_size = data[position + 1]
    group_start = position + 1
    cursor = group_start + group_size
    if data[position] != 2 or not 0 < group_size < 0x80:
        return None
    encoded_id = bytes(data[group_start:cursor])
    if version >= _FIRST_WITH_MEMBER:
        if data[cursor]:
            return None
        cursor += 5
    topic_count = data[cursor]
    if not 0 < topic_count < 0x80:
        return None
    cursor += 1
    wanted: list[tuple[str, int]] = []
    asked: list[AskedTopic] = []
    topic_ids: dict[str, bytes] | None = {} if version >= _FIRST_WITH_TOPIC_IDS else None
    for _ in range(topic_count - 1):
        if topic_ids is not None:
            after_name = cursor + _TOPIC_ID_SIZE
            topic_id = bytes(data[cursor:after_name])
            name = topics.by_id.get(topic_id)
            if name is None:
                return None
            topic_ids[name] = topic_id
        else:
            name_size = data[cursor]
            after_name = cursor + name_size
            name = str(data[cursor + 1 : after_name], "utf-8")
            if not 0 < name_size < 0x80:
                return None
        count = data[after_name] - 1
        if not 0 <= count < 0x7F:
            return None
        indexes = _read_int32s[count](data, after_name + 1)
        asked.append((bytes(data[cursor : after_name + 1]), indexes))
        wanted += zip((name,) * count, indexes, strict=True)
        cursor = after_name + 1 + 4 * count
        if data[cursor]:
            return None
        cursor += 1
    if data[cursor] or data[cursor + 2] or cursor + 3 > end:
        return None
    event = OffsetFetch(None, str(encoded_id[1:], "utf-8"), tuple(wanted), data[cursor + 1] != 0, topic_ids)
    return (event,), (version, correlation_id, ((encoded_id, asked, ()),))
