"""Keys and values of the records of __consumer_offsets: every type, every version.

A key begins with an int16 that says what *kind* of record this is (the record type); a value with an int16 that is the
version of that kind's layout. Neither is part of the struct that follows. No value at all (a null) is a tombstone and
never gets here.

    type 0, 1   an offset commit; 0 is the key of Kafka 0.8.2, both mean the same (group, topic, partition)
    type 2      a classic group: its generation, members and assignments
    type 3-23   the newer group protocols, by the layouts in `group_records`
    any other   unknown; kept as bytes, because the rest of the partition is still good

Bytes after the end of a struct are ignored, as Kafka's readers do, and so are not written back. Everything else that a
broker writes comes back byte for byte from the `encode_` functions, unknown tagged fields included.

Reading fills the gaps of old versions: -1 for a leader epoch, an expire timestamp or a state timestamp that is not
there, and a version 0 member's rebalance timeout is its session timeout. Writing an old version drops what it cannot
hold.
"""

import re
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from muster.codec.group_records import RECORD_TYPES, decode_struct, encode_struct
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer, Reader, TaggedFields, Writer
from muster.errors import BadInput, Malformed, Truncated, UnsupportedVersion

LEGACY_OFFSET_TYPE = 0
OFFSET_TYPE = 1
GROUP_TYPE = 2
OFFSET_TYPES = (OFFSET_TYPE, LEGACY_OFFSET_TYPE)

NO_TOPIC_ID = bytes(16)


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int
    record_type: int = OFFSET_TYPE


class GroupKey(NamedTuple):
    group_id: str

    @property
    def record_type(self) -> int:
        return GROUP_TYPE


class TypedKey(NamedTuple):
    """The key of a type 3 to 23; `fields` are its strings in order, the group id first."""

    record_type: int
    fields: tuple[str, ...]

    @property
    def group_id(self) -> str:
        return self.fields[0]

    @property
    def data(self) -> dict[str, str]:
        """The fields by their names: groupId, memberId, regularExpression."""
        return dict(zip(RECORD_TYPES[self.record_type].key_fields, self.fields, strict=True))


class UnknownKey(NamedTuple):
    """A kind of record this release does not know; `data` is the whole key, prefix included."""

    record_type: int
    data: bytes


Key = OffsetKey | GroupKey | TypedKey | UnknownKey


class OffsetValue(NamedTuple):
    """A committed offset. Type 1 values of any version, and those of type 0, read as this."""

    committed_offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID
    unknown_tags: TaggedFields = ()


class MemberValue(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes
    unknown_tags: TaggedFields = ()


class GroupValue(NamedTuple):
    """A classic group. `protocol_type` is "" for a group that never had members."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int = -1
    members: tuple[MemberValue, ...] = ()
    unknown_tags: TaggedFields = ()


class StructValue(NamedTuple):
    """The value of a type 3 to 23, with the field names of Kafka's JSON."""

    version: int
    data: StructData


Value = OffsetValue | GroupValue | StructValue

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_TWO_INT64 = Struct(">qq")
_OFFSET_SIZE = Struct(">qh")
_OFFSET_EPOCH = Struct(">qi")
_OFFSET_EPOCH_SIZE = Struct(">qih")


def offset_key(group_id: str, topic: str, partition: int) -> OffsetKey:
    """The key to write a commit under: type 1, also for a commit that was read under type 0."""
    return OffsetKey(group_id, topic, partition)


def decode_key(data: Buffer) -> Key:
    """Read the key of one record; a kind that is not known comes back as `UnknownKey`, not as an error."""
    data = bytes(data)
    if len(data) < 2:
        raise Truncated(f"a key of {len(data)} bytes has no room for its record type")
    record_type = _INT16.unpack_from(data)[0]
    if record_type in OFFSET_TYPES:
        return _decode_offset_key(data, record_type)
    reader = Reader(data, 2)
    if record_type == GROUP_TYPE:
        return GroupKey(reader.string())
    known = RECORD_TYPES.get(record_type)
    if known is None:
        return UnknownKey(record_type, data)
    return TypedKey(record_type, tuple([reader.string() for _ in known.key_fields]))


def _decode_offset_key(data: bytes, record_type: int) -> OffsetKey:
    # Slices are not checked one by one: a long string moves the cursor past the end, where the next number fails.
    try:
        (group_size,) = _INT16.unpack_from(data, 2)
        topic_start = group_size + 6
        (topic_size,) = _INT16.unpack_from(data, topic_start - 2) if group_size >= 0 else (-1,)
        if topic_size < 0:
            raise Malformed("an offset key with a null group or topic")
        topic_end = topic_start + topic_size
        (partition,) = _INT32.unpack_from(data, topic_end)
    except struct_error:
        raise Truncated(f"an offset key ends after {len(data)} bytes") from None
    group_id = data[4 : topic_start - 2].decode("utf-8", "surrogateescape")
    topic = data[topic_start:topic_end].decode("utf-8", "surrogateescape")
    return OffsetKey(group_id, topic, partition, record_type)


def encode_key(key: Key) -> bytes:
    """The exact inverse of `decode_key`, so a type 0 key stays type 0; commits are written under `offset_key`."""
    writer = Writer()
    if isinstance(key, UnknownKey):
        return key.data
    writer.int16(key.record_type)
    if isinstance(key, OffsetKey):
        writer.string(key.group_id)
        writer.string(key.topic)
        writer.int32(key.partition)
    else:
        for text in key.fields if isinstance(key, TypedKey) else key:
            writer.string(text)
    return writer.finish()


def decode_value(record_type: int, data: Buffer) -> tuple[int, Value]:
    """Read a value that is not a tombstone: its version, and what it says."""
    data = bytes(data)
    if len(data) < 2:
        raise Truncated(f"a value of {len(data)} bytes has no room for its version")
    version: int = _INT16.unpack_from(data)[0]
    if record_type in OFFSET_TYPES:
        return version, _decode_offset_value(data, version)
    if record_type == GROUP_TYPE:
        return version, _decode_group_value(Reader(data, 2), version)
    return version, StructValue(version, decode_struct(record_type, version, data, 2))


def _decode_offset_value(data: bytes, version: int) -> OffsetValue:
    if not 0 <= version <= 4:
        raise UnsupportedVersion(f"unknown offset commit version {version}")
    if version == 4:
        return _decode_usual_flexible_value(data) or _decode_flexible_offset_value(Reader(data, 2))
    leader_epoch = expire_timestamp_ms = -1
    try:
        if version == 3:
            committed_offset, leader_epoch, size = _OFFSET_EPOCH_SIZE.unpack_from(data, 2)
            start = 16
        else:
            committed_offset, size = _OFFSET_SIZE.unpack_from(data, 2)
            start = 12
        if size < 0:
            raise Malformed(f"the metadata of a commit has length {size}")
        end = start + size
        if version == 1:
            commit_timestamp_ms, expire_timestamp_ms = _TWO_INT64.unpack_from(data, end)
        else:
            (commit_timestamp_ms,) = _INT64.unpack_from(data, end)
    except struct_error:
        raise Truncated(f"a version {version} commit ends after {len(data)} bytes") from None
    metadata = data[start:end].decode("utf-8", "surrogateescape")
    return OffsetValue(committed_offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _decode_usual_flexible_value(data: bytes) -> OffsetValue | None:
    """The two shapes that brokers write, three times as fast: short metadata, and no tag or just the topic id."""
    if len(data) < 24 or not 0 < data[14] < 0x80:
        return None
    end = 14 + data[14]
    tags = data[end + 8 :]
    if tags == b"\x00":
        topic_id = NO_TOPIC_ID
    elif len(tags) == 19 and tags.startswith(b"\x01\x00\x10"):
        topic_id = tags[3:]
    else:
        return None
    committed_offset, leader_epoch = _OFFSET_EPOCH.unpack_from(data, 2)
    (commit_timestamp_ms,) = _INT64.unpack_from(data, end)
    metadata = data[15:end].decode("utf-8", "surrogateescape")
    return OffsetValue(committed_offset, leader_epoch, metadata, commit_timestamp_ms, -1, topic_id)


def _decode_flexible_offset_value(reader: Reader) -> OffsetValue:
    committed_offset, leader_epoch = _OFFSET_EPOCH.unpack(reader.raw(12))
    metadata = reader.compact_string()
    commit_timestamp_ms = reader.int64()
    topic_id = NO_TOPIC_ID
    unknown_tags = reader.tagged_fields()
    if unknown_tags:
        known = dict(unknown_tags)
        topic_id = known.get(0, NO_TOPIC_ID)
        if len(topic_id) != 16:
            raise Malformed(f"a topic id of {len(topic_id)} bytes")
        unknown_tags = tuple([tagged for tagged in unknown_tags if tagged[0] != 0])
    return OffsetValue(committed_offset, leader_epoch, metadata, commit_timestamp_ms, -1, topic_id, unknown_tags)


def encode_offset_value(value: OffsetValue, version: int) -> bytes:
    if version == 4 and len(value.metadata) < _SHORT_TEXT and value.metadata.isascii() and not value.unknown_tags:
        return _encode_usual_flexible_value(value)
    if not 0 <= version <= 4:
        raise UnsupportedVersion(f"unknown offset commit version {version}")
    writer = Writer()
    writer.int16(version)
    writer.int64(value.committed_offset)
    if version >= 3:
        writer.int32(value.leader_epoch)
    if version < 4:
        writer.string(value.metadata)
    else:
        writer.compact_string(value.metadata)
    writer.int64(value.commit_timestamp_ms)
    if version == 1:
        writer.int64(value.expire_timestamp_ms)
    if version >= 4:
        topic_id = () if value.topic_id == NO_TOPIC_ID else ((0, value.topic_id),)
        writer.tagged_fields((*topic_id, *value.unknown_tags))
    return writer.finish()


_SHORT_TEXT = 0x7F
_VERSION_OFFSET_EPOCH_SIZE = Struct(">hqiB")


def encode_plain_commit(committed_offset: int, leader_epoch: int, commit_timestamp_ms: int, topic_id: bytes) -> bytes:
    """Version 4 without metadata, in one pack."""
    if topic_id == NO_TOPIC_ID:
        return _PLAIN_COMMIT.pack(4, committed_offset, leader_epoch, 1, commit_timestamp_ms, 0)
    return _IDENTIFIED_COMMIT.pack(
        4, committed_offset, leader_epoch, 1, commit_timestamp_ms, 1, 0, _TOPIC_ID_BYTES, topic_id
    )


_TOPIC_ID_BYTES = 16
_PLAIN_COMMIT = Struct(">hqiBqB")
_IDENTIFIED_COMMIT = Struct(">hqiBqBBB16s")


def _encode_usual_flexible_value(value: OffsetValue) -> bytes:
    """Version 4 with short plain metadata: what nearly every commit is, in three packs."""
    text = value.metadata.encode()
    head = _VERSION_OFFSET_EPOCH_SIZE.pack(4, value.committed_offset, value.leader_epoch, len(text) + 1)
    tags = b"\0" if value.topic_id == NO_TOPIC_ID else b"\1\0\x10" + value.topic_id
    return head + text + _INT64.pack(value.commit_timestamp_ms) + tags


def _decode_group_value(reader: Reader, version: int) -> GroupValue:
    if not 0 <= version <= 4:
        raise UnsupportedVersion(f"unknown group metadata version {version}")
    flexible = version >= 4
    return GroupValue(
        protocol_type=reader.compact_string() if flexible else reader.string(),
        generation=reader.int32(),
        protocol=reader.compact_nullable_string() if flexible else reader.nullable_string(),
        leader=reader.compact_nullable_string() if flexible else reader.nullable_string(),
        state_timestamp_ms=reader.int64() if version >= 2 else -1,
        members=(
            tuple([_decode_flexible_member(reader) for _ in range(reader.compact_array_count())])
            if flexible
            else tuple([_decode_member(reader, version) for _ in range(reader.array_count())])
        ),
        unknown_tags=reader.tagged_fields() if flexible else (),
    )


def _decode_member(reader: Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    first_timeout_ms = reader.int32()
    session_timeout_ms = reader.int32() if version >= 1 else first_timeout_ms
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms=first_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.bytes_(),
        assignment=reader.bytes_(),
    )


def _decode_flexible_member(reader: Reader) -> MemberValue:
    return MemberValue(
        member_id=reader.compact_string(),
        instance_id=reader.compact_nullable_string(),
        client_id=reader.compact_string(),
        client_host=reader.compact_string(),
        rebalance_timeout_ms=reader.int32(),
        session_timeout_ms=reader.int32(),
        subscription=reader.compact_bytes(),
        assignment=reader.compact_bytes(),
        unknown_tags=reader.tagged_fields(),
    )


def encode_group_value(value: GroupValue, version: int) -> bytes:
    """Write a classic group. Members without a chosen protocol are refused: no broker may write that."""
    if not 0 <= version <= 4:
        raise UnsupportedVersion(f"unknown group metadata version {version}")
    if value.members and value.protocol is None:
        raise Malformed("a group with members has chosen no protocol; such a record must not be written")
    writer = Writer()
    writer.int16(version)
    if version >= 4:
        _write_flexible_group(writer, value)
    else:
        _write_group(writer, value, version)
    return writer.finish()


def _write_group(writer: Writer, value: GroupValue, version: int) -> None:
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.nullable_string(value.protocol)
    writer.nullable_string(value.leader)
    if version >= 2:
        writer.int64(value.state_timestamp_ms)
    writer.array_count(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        if version >= 3:
            writer.nullable_string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        if version >= 1:
            writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.bytes_(member.subscription)
        writer.bytes_(member.assignment)


def _write_flexible_group(writer: Writer, value: GroupValue) -> None:
    writer.compact_string(value.protocol_type)
    writer.int32(value.generation)
    writer.compact_nullable_string(value.protocol)
    writer.compact_nullable_string(value.leader)
    writer.int64(value.state_timestamp_ms)
    writer.compact_array_count(len(value.members))
    for member in value.members:
        writer.compact_string(member.member_id)
        writer.compact_nullable_string(member.instance_id)
        writer.compact_string(member.client_id)
        writer.compact_string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.compact_bytes(member.subscription)
        writer.compact_bytes(member.assignment)
        writer.tagged_fields(member.unknown_tags)
    writer.tagged_fields(value.unknown_tags)


def encode_struct_value(record_type: int, value: StructValue) -> bytes:
    """Write a type 3 to 23."""
    return encode_struct(record_type, value.version, value.data)


# Which value version a broker writes, given its `inter.broker.protocol.version`.
#
# The protocol version is what every broker of the cluster can read, so an old one makes a new broker write old layouts,
# and what they cannot hold is silently lost at the next restart: leader epochs below commit version 3, state timestamps
# below group version 2, instance ids below 3, rebalance timeouts at 0.
#
# A version reads `2.1-IV1`: a release, and a step of its development. Without a step it means the last one of the
# release. Releases before 1.0 have three numbers, later ones two, and whatever follows is ignored (`2.6.3` is `2.6`).

_PROTOCOL_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:-IV(\d+))?", re.ASCII)
_LAST_STEP = 1 << 31

ProtocolVersion = tuple[int, int, int, int]

_0_10_1_IV0: ProtocolVersion = (0, 10, 1, 0)
_2_1_IV0: ProtocolVersion = (2, 1, 0, 0)
_2_1_IV1: ProtocolVersion = (2, 1, 0, 1)
_2_3_IV0: ProtocolVersion = (2, 3, 0, 0)
_4_1_IV0: ProtocolVersion = (4, 1, 0, 0)


def parse_protocol_version(text: str) -> ProtocolVersion:
    """Release and step as a tuple that compares the way the versions follow each other."""
    match = _PROTOCOL_VERSION.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"inter.broker.protocol.version {text!r} is not a version; it looks like 2.1 or 2.1-IV1")
    major, minor = int(match[1]), int(match[2])
    patch = int(match[3] or 0) if major == 0 else 0
    return major, minor, patch, _LAST_STEP if match[4] is None else int(match[4])


def offset_value_version(inter_broker_protocol: str | None = None, has_expire_timestamp: bool = False) -> int:
    """The version to write a commit in; without a protocol version, what Kafka 4.3 writes.

    Version 1 is the only one with room for an expire timestamp, so a commit that has one always gets it.
    """
    if has_expire_timestamp:
        return 1
    if inter_broker_protocol is None:
        return 4
    protocol = parse_protocol_version(inter_broker_protocol)
    if protocol < _2_1_IV0:
        return 1
    if protocol < _2_1_IV1:
        return 2
    return 3 if protocol < _4_1_IV0 else 4


def group_value_version(inter_broker_protocol: str | None = None) -> int:
    """The version to write a classic group in. Version 4 can be read, but no release writes it."""
    if inter_broker_protocol is None:
        return 3
    protocol = parse_protocol_version(inter_broker_protocol)
    if protocol < _0_10_1_IV0:
        return 0
    if protocol < _2_1_IV0:
        return 1
    return 2 if protocol < _2_3_IV0 else 3
