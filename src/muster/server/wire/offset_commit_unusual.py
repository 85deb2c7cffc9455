"""OffsetCommit as it seldom comes: old versions, long names, tagged fields, partitions that do not exist, damage.

Everything is read before anything is decided. What is refused here gets its error; the rest goes to the coordinator in
the order of the request. The answer has Kafka's order: first the topics with something refused, then the others, and
the partitions of one topic together. Where nothing is refused it repeats the request, topics named twice included; only
topics without partitions are left out.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Writer
from muster.core.events import CommittedPartition, OffsetCommit
from muster.errors import CodecError
from muster.protocol.errors import BadBody
from muster.protocol.reader import WireReader
from muster.server.wire.topics import Topics

CommitReply = tuple[int, bytes, list[int] | None]
"""Version, the frame that says all is well, and where the errors of the event's partitions go: None if everywhere."""

FIRST_WITH_THROTTLE = 3
FIRST_WITH_EPOCH = 6
FIRST_WITH_INSTANCE = 7
FIRST_FLEXIBLE = 8
FIRST_WITH_TOPIC_IDS = 10
LAST_WITH_RETENTION = 4

_NO_EPOCH = _DEFAULT_RETENTION = -1
_ERROR_SIZE = 2
_LENGTH_SIZE = 4

Asked = tuple[int, int, int, str | None]
"""A partition of the request: index, offset, leader epoch, metadata."""
Answered = tuple[int, ErrorCode, int | None]
"""A partition of the answer: index, error, and which of the event's partitions it is, if it is one."""
Key = str | bytes
"""What a topic is called: its name, or its id from version 10 on."""


def decode_unusual(
    version: int, correlation_id: int, reader: WireReader, topics: Topics
) -> tuple[OffsetCommit | None, CommitReply]:
    """As `decode_offset_commit`, for any request at all."""
    try:
        event, asked = _read_old(version, reader) if version < FIRST_FLEXIBLE else _read_flexible(version, reader)
    except CodecError as error:
        raise BadBody(f"OffsetCommitRequest version {version}: {error}") from error
    answered, committed = _sort_out(asked, topics)
    event.partitions = tuple(committed)
    frame, positions = _encode(version, correlation_id, answered, len(committed))
    return event if committed else None, (version, frame, positions)


def _read_old(version: int, reader: WireReader) -> tuple[OffsetCommit, list[tuple[Key, list[Asked]]]]:
    event = OffsetCommit(None, reader.string(), reader.int32(), reader.string(), (), version=version)
    if version >= FIRST_WITH_INSTANCE:
        event.instance_id = reader.nullable_string()
    if version <= LAST_WITH_RETENTION:
        event.retention_ms = reader.int64()
    has_epoch = version >= FIRST_WITH_EPOCH
    topics: list[tuple[Key, list[Asked]]] = []
    for _ in range(reader.array_count()):
        name = reader.string()
        partitions = [
            (
                reader.int32(),
                reader.int64(),
                reader.int32() if has_epoch else _NO_EPOCH,
                reader.nullable_string(),
            )
            for _ in range(reader.array_count())
        ]
        topics.append((name, partitions))
    return event, topics


def _read_flexible(version: int, reader: WireReader) -> tuple[OffsetCommit, list[tuple[Key, list[Asked]]]]:
    event = OffsetCommit(None, reader.compact_string(), reader.int32(), reader.compact_string(), (), version=version)
    event.instance_id = reader.compact_nullable_string()
    topics: list[tuple[Key, list[Asked]]] = []
    for _ in range(reader.compact_array_count()):
        name: Key = reader.uuid() if version >= FIRST_WITH_TOPIC_IDS else reader.compact_string()
        partitions: list[Asked] = []
        for _ in range(reader.compact_array_count()):
            partitions.append((reader.int32(), reader.int64(), reader.int32(), reader.compact_nullable_string()))
            reader.skip_tagged_fields()
        reader.skip_tagged_fields()
        topics.append((name, partitions))
    reader.skip_tagged_fields()
    return event, topics


def _sort_out(
    asked: list[tuple[Key, list[Asked]]], topics: Topics
) -> tuple[list[tuple[Key, list[Answered]]], list[CommittedPartition]]:
    """The answer, topic by topic, and what the coordinator is to commit."""
    refused: dict[Key, list[Answered]] = {}
    accepted: list[tuple[Key, list[Answered]]] = []
    committed: list[CommittedPartition] = []
    for key, partitions in asked:
        name = key if isinstance(key, str) else topics.by_id.get(key)
        known = None if name is None else topics.by_name.get(name)
        if name is None or known is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.setdefault(key, []).extend([(index, error, None) for index, _, _, _ in partitions])
            continue
        topic_id, partition_count = known
        kept: list[Answered] = []
        for index, offset, epoch, metadata in partitions:
            if 0 <= index < partition_count:
                kept.append((index, ErrorCode.NONE, len(committed)))
                committed.append(CommittedPartition(name, index, offset, epoch, metadata, topic_id))
            else:
                refused.setdefault(key, []).append((index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
        if kept:
            accepted.append((key, kept))
    return _merged(refused, accepted), committed


def _merged(
    refused: dict[Key, list[Answered]], accepted: list[tuple[Key, list[Answered]]]
) -> list[tuple[Key, list[Answered]]]:
    if not refused:
        return accepted
    for key, partitions in accepted:
        refused.setdefault(key, []).extend(partitions)
    return list(refused.items())


def _encode(
    version: int, correlation_id: int, answered: list[tuple[Key, list[Answered]]], committed: int
) -> tuple[bytes, list[int]]:
    """The frame with what is known so far, and where in it the errors of what is committed will go."""
    is_flexible = version >= FIRST_FLEXIBLE
    write_count = Writer.compact_array_count if is_flexible else Writer.array_count
    positions = [0] * committed
    writer = Writer()
    writer.int32(correlation_id)
    if is_flexible:
        writer.uvarint(0)
    if version >= FIRST_WITH_THROTTLE:
        writer.int32(0)
    write_count(writer, len(answered))
    for key, partitions in answered:
        _write_key(writer, key, is_flexible)
        write_count(writer, len(partitions))
        for index, error, ordinal in partitions:
            writer.int32(index)
            if ordinal is not None:
                positions[ordinal] = _LENGTH_SIZE + writer.position
            writer.int16(error)
            if is_flexible:
                writer.uvarint(0)
        if is_flexible:
            writer.uvarint(0)
    if is_flexible:
        writer.uvarint(0)
    encoded = writer.finish()
    return len(encoded).to_bytes(_LENGTH_SIZE, "big") + encoded, positions


def _write_key(writer: Writer, key: Key, is_flexible: bool) -> None:
    if isinstance(key, bytes):
        writer.uuid(key)
    elif is_flexible:
        writer.compact_string(key)
    else:
        writer.string(key)


def error_positions(version: int, frame: bytes) -> list[int]:
    """Where the errors are in a frame that repeats its request."""
    is_flexible = version >= FIRST_FLEXIBLE
    reader = WireReader(frame, _LENGTH_SIZE)
    reader.int32()
    if is_flexible:
        reader.skip_tagged_fields()
    if version >= FIRST_WITH_THROTTLE:
        reader.int32()
    positions = []
    for _ in range(reader.compact_array_count() if is_flexible else reader.array_count()):
        if version >= FIRST_WITH_TOPIC_IDS:
            reader.uuid()
        elif is_flexible:
            reader.compact_string()
        else:
            reader.string()
        for _ in range(reader.compact_array_count() if is_flexible else reader.array_count()):
            reader.int32()
            positions.append(reader.position)
            reader.skip(_ERROR_SIZE)
            if is_flexible:
                reader.skip_tagged_fields()
        if is_flexible:
            reader.skip_tagged_fields()
    return positions
