"""The blobs that consumers put into group records: what a member subscribes to, and what it was given.

They are opaque to the coordinator's protocol; only groups of protocol type `consumer` use this layout. Both begin with
an int16 version. Fields are only ever appended, so a version newer than ours is read with our newest layout and its
tail ignored; a negative version is refused. A blob of zero bytes is legal and means that nothing was provided: None.

Assignments of versions 1 to 3 have the layout of version 0. `version` is kept so that a blob can be written back as it
came; what a version cannot hold is left out when written.
"""

from typing import NamedTuple

from muster.codec.primitives import Buffer, Reader, Writer
from muster.errors import UnsupportedVersion

NEWEST_VERSION = 3


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartitions, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class Assignment(NamedTuple):
    version: int
    assigned_partitions: tuple[TopicPartitions, ...]
    user_data: bytes | None = None


def decode_subscription(data: Buffer) -> Subscription | None:
    if len(data) == 0:
        return None
    reader = Reader(data)
    version = _read_version(reader, "subscription")
    return Subscription(
        version,
        topics=tuple([reader.string() for _ in range(reader.array_count())]),
        user_data=reader.nullable_bytes(),
        owned_partitions=_read_topic_partitions(reader) if version >= 1 else (),
        generation_id=reader.int32() if version >= 2 else -1,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def encode_subscription(subscription: Subscription | None) -> bytes:
    if subscription is None:
        return b""
    writer = Writer()
    writer.int16(subscription.version)
    writer.array_count(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    writer.nullable_bytes(subscription.user_data)
    if subscription.version >= 1:
        _write_topic_partitions(writer, subscription.owned_partitions)
    if subscription.version >= 2:
        writer.int32(subscription.generation_id)
    if subscription.version >= 3:
        writer.nullable_string(subscription.rack_id)
    return writer.finish()


def decode_assignment(data: Buffer) -> Assignment | None:
    if len(data) == 0:
        return None
    reader = Reader(data)
    version = _read_version(reader, "assignment")
    return Assignment(version, _read_topic_partitions(reader), reader.nullable_bytes())


def encode_assignment(assignment: Assignment | None) -> bytes:
    if assignment is None:
        return b""
    writer = Writer()
    writer.int16(assignment.version)
    _write_topic_partitions(writer, assignment.assigned_partitions)
    writer.nullable_bytes(assignment.user_data)
    return writer.finish()


def _read_version(reader: Reader, what: str) -> int:
    version = reader.int16()
    if version < 0:
        raise UnsupportedVersion(f"unknown consumer {what} version {version}")
    return version


def _read_topic_partitions(reader: Reader) -> tuple[TopicPartitions, ...]:
    return tuple([TopicPartitions(reader.string(), reader.int32_array()) for _ in range(reader.array_count())])


def _write_topic_partitions(writer: Writer, topics: tuple[TopicPartitions, ...]) -> None:
    writer.array_count(len(topics))
    for topic, partitions in topics:
        writer.string(topic)
        writer.int32_array(partitions)
