"""The answer to OffsetFetch, versions 1 to 10.

    1-7   throttle_time_ms int32 (3+), topics, error int16 (2+)
    8+    throttle_time_ms int32, groups: group_id string, topics, error int16

    topics: name string (1-9) or topic_id uuid (10), partitions: index int32, offset int64, leader_epoch int32 (5+),
            metadata string or null, error int16

Version 6 is the first flexible one. Version 1 has no place for an error of the group: each partition asked for gets it.
Later versions then list no topics at all.

What the request said of groups and topics is kept as the bytes it said it in, so the answer repeats them.
"""

from collections.abc import Sequence
from struct import Struct

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Writer
from muster.core.answers import FetchAnswer, FetchedOffset
from muster.protocol.errors import BadBody
from muster.server.wire import Topics

FIRST_WITH_ERROR, FIRST_WITH_THROTTLE, FIRST_WITH_EPOCH, FIRST_FLEXIBLE, FIRST_WITH_GROUPS = 2, 3, 5, 6, 8
FIRST_WITH_TOPIC_IDS = 10

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


AskedTopic = tuple[bytes, tuple[int, ...]]
"""A topic of the request: its name or id and the number of partitions, as the answer has them; and the partitions."""
AskedGroup = tuple[bytes, Sequence[AskedTopic] | None, Sequence[AskedTopic]]
"""A group of the request: its id as the answer has it, its topics (None for all), and ids that no topic has."""
FetchReply = tuple[int, int, Sequence[AskedGroup]]
"""What is kept of a request until it can be answered: version, correlation id, groups. Plain tuples, made often."""


def offset_fetch_bytes(answer: FetchAnswer) -> int:
    """About how much the answer for one group takes on the wire, topics left out: those are the request's own."""
    return sum(_PARTITION_BYTES + len(metadata) for _, _, _, _, metadata, _ in answer.partitions)


def encode_offset_fetch(reply: FetchReply, answers: Sequence[FetchAnswer], topics: Topics) -> bytes:
    """The whole frame, from one answer for each event in its order.

    Where all partitions of a group were asked for by a client that knows topics by id, those of topics that are no more
    are left out, as Kafka leaves them out.
    """
    version, correlation_id, groups = reply
    if version >= FIRST_WITH_GROUPS:
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
        if version >= FIRST_FLEXIBLE:
            parts.append(b"\x00")
        if version >= FIRST_WITH_THROTTLE:
            parts.append(b"\x00\x00\x00\x00")
        _put_topics(parts, version, asked, refused, answer, topics)
        if version >= FIRST_WITH_ERROR:
            parts.append(_pack_error(answer.error))
        if version >= FIRST_FLEXIBLE:
            parts.append(b"\x00")
    body = b"".join(parts)
    return _pack_length(len(body)) + body


def _put_group(parts: list[bytes], version: int, group: AskedGroup, answer: FetchAnswer, topics: Topics) -> None:
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
    topics: Topics,
) -> None:
    """The array of topics of one group."""
    error, found = answer
    is_flexible = version >= FIRST_FLEXIBLE
    if error is not _NONE:
        if asked is None or version >= FIRST_WITH_ERROR:
            parts.append(_count(0, is_flexible))
            return
        found = _with_error(asked, error)
    elif asked is None:
        asked, found = _all_topics(version, found, topics)
    put_partitions = _put_flexible if is_flexible else _put_with_epoch if version >= FIRST_WITH_EPOCH else _put_without
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
    version: int, found: Sequence[FetchedOffset], topics: Topics
) -> tuple[list[AskedTopic], tuple[FetchedOffset, ...]]:
    """What was found, topic by topic, as if it had been asked for."""
    by_topic: dict[str, list[FetchedOffset]] = {}
    for partition in found:
        by_topic.setdefault(partition.topic, []).append(partition)
    asked: list[AskedTopic] = []
    kept: list[FetchedOffset] = []
    for name, partitions in by_topic.items():
        key: str | bytes = name
        if version >= FIRST_WITH_TOPIC_IDS:
            known = topics.by_name.get(name)
            if known is None:
                continue
            key = known[0]
        indexes = tuple([partition.partition for partition in partitions])
        asked.append((encoded_topic(version, key, len(indexes)), indexes))
        kept.extend(partitions)
    return asked, tuple(kept)


def encoded_topic(version: int, key: str | bytes, partitions: int) -> bytes:
    """A topic's name or id and the number of its partitions, as they are on the wire."""
    writer = Writer()
    if isinstance(key, bytes):
        writer.uuid(key)
    elif version >= FIRST_FLEXIBLE:
        writer.compact_string(key)
    else:
        writer.string(key)
    writer.raw(_count(partitions, version >= FIRST_FLEXIBLE))
    return writer.finish()


def _count(count: int, is_flexible: bool) -> bytes:
    return _uvarint(count + 1) if is_flexible else _pack_int32(count)


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    writer = Writer()
    writer.uvarint(value)
    return writer.finish()
