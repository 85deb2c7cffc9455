"""OffsetFetch, versions 1 to 10: one group up to version 7, any number from version 8 on.

    1-7   group_id string, topics or null (2+), require_stable bool (7)
    8+    groups: group_id string, member_id string or null (9+), member_epoch int32 (9+), topics or null;
          require_stable bool

    topics: name string (1-9) or topic_id uuid (10), partitions int32s

Null topics ask for all there are. Version 6 is the first flexible one. What a version lacks: `require_stable` is false.
The member of version 9 belongs to the newer group protocol and means nothing to a classic group. The answer is in
`offset_fetch_reply`.

Nobody checks whether topics exist: a name that nobody knows has no offset. An id that nobody knows has no name even, so
its partitions are refused here, as in Kafka.
"""

from struct import Struct, error
from typing import Any

from muster.codec.primitives import Buffer, Writer
from muster.core.events import OffsetFetch
from muster.errors import CodecError
from muster.protocol.errors import BadBody
from muster.protocol.reader import WireReader
from muster.server.wire import Topics
from muster.server.wire.offset_fetch_reply import (
    FIRST_FLEXIBLE,
    FIRST_WITH_GROUPS,
    FIRST_WITH_TOPIC_IDS,
    AskedGroup,
    AskedTopic,
    FetchReply,
    encoded_topic,
)

_FIRST_WITH_NULL_TOPICS, _FIRST_WITH_REQUIRE_STABLE, _FIRST_WITH_MEMBER = 2, 7, 9
_TOPIC_ID_SIZE = 16
_UNUSUAL = (IndexError, UnicodeDecodeError, error)

_read_int32s = [Struct(f">{count}i").unpack_from for count in range(0x7F)]

Key = str | bytes
"""What a topic is called: its name, or its id from version 10 on."""
_Asked = tuple[str, list[tuple[Key, tuple[int, ...]]] | None]


def decode_offset_fetch(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[tuple[OffsetFetch, ...], FetchReply]:
    """An event for each group, without `reply_to`, and what to keep for the answer.

    A group that is asked the same twice is answered twice, as in Kafka, and has one event, which is there twice.
    """
    if version >= FIRST_WITH_GROUPS:
        try:
            decoded = _decode_usual(version, correlation_id, data, position, end, topics)
            if decoded is not None:
                return decoded
        except _UNUSUAL:
            pass
    reader = WireReader(data, position, end)
    try:
        if version >= FIRST_WITH_GROUPS:
            asked, require_stable = _read_groups(version, reader)
        else:
            asked, require_stable = _read_group(version, reader)
    except CodecError as error:
        raise BadBody(f"OffsetFetchRequest version {version}: {error}") from error
    known: dict[Any, tuple[OffsetFetch, AskedGroup]] = {}
    sorted_out = []
    for group_id, wanted in asked:
        same = group_id, None if wanted is None else tuple(wanted)
        if same not in known:
            known[same] = _sort_out(version, group_id, wanted, topics)
            known[same][0].require_stable = require_stable
        sorted_out.append(known[same])
    events, groups = tuple([event for event, _ in sorted_out]), [group for _, group in sorted_out]
    return events, (version, correlation_id, groups)


def _decode_usual(
    version: int, correlation_id: int, data: Buffer, position: int, end: int, topics: Topics
) -> tuple[tuple[OffsetFetch, ...], FetchReply] | None:
    """A request for one group with lengths of one byte, no member, no tagged fields. None if it is not one.

    A compact length is one more than it says, so adding it to its own position leads behind the text. A frame cut short
    is read on into whatever follows it in the buffer; that is found out at the end.
    """
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
    topic_ids: dict[str, bytes] | None = {} if version >= FIRST_WITH_TOPIC_IDS else None
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


def _read_group(version: int, reader: WireReader) -> tuple[list[_Asked], bool]:
    """Versions 1 to 7."""
    if version >= FIRST_FLEXIBLE:
        group_id, topics = reader.compact_string(), _read_topics(version, reader)
        require_stable = reader.boolean() if version >= _FIRST_WITH_REQUIRE_STABLE else False
        reader.skip_tagged_fields()
        return [(group_id, topics)], require_stable
    group_id = reader.string()
    count = reader.nullable_array_count() if version >= _FIRST_WITH_NULL_TOPICS else reader.array_count()
    if count is None:
        return [(group_id, None)], False
    return [(group_id, [(reader.string(), reader.int32_array()) for _ in range(count)])], False


def _read_groups(version: int, reader: WireReader) -> tuple[list[_Asked], bool]:
    """Versions 8 to 10."""
    groups: list[_Asked] = []
    for _ in range(reader.compact_array_count()):
        group_id = reader.compact_string()
        if version >= _FIRST_WITH_MEMBER:
            reader.compact_nullable_string()
            reader.int32()
        groups.append((group_id, _read_topics(version, reader)))
        reader.skip_tagged_fields()
    require_stable = reader.boolean()
    reader.skip_tagged_fields()
    return groups, require_stable


def _read_topics(version: int, reader: WireReader) -> list[tuple[Key, tuple[int, ...]]] | None:
    count = reader.compact_nullable_array_count()
    if count is None:
        return None
    topics: list[tuple[Key, tuple[int, ...]]] = []
    for _ in range(count):
        key = reader.uuid() if version >= FIRST_WITH_TOPIC_IDS else reader.compact_string()
        topics.append((key, reader.compact_int32_array()))
        reader.skip_tagged_fields()
    return topics


def _sort_out(
    version: int, group_id: str, wanted: list[tuple[Key, tuple[int, ...]]] | None, topics: Topics
) -> tuple[OffsetFetch, AskedGroup]:
    encoded_id = b""
    if version >= FIRST_WITH_GROUPS:
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
        topic = (encoded_topic(version, key, len(indexes)), indexes)
        if name is None:
            refused.append(topic)
            continue
        asked.append(topic)
        partitions.extend([(name, index) for index in indexes])
        if isinstance(key, bytes):
            topic_ids[name] = key
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    event = OffsetFetch(None, group_id, tuple(partitions), topic_ids=topic_ids if has_ids else None)
    return event, (encoded_id, asked, refused)
