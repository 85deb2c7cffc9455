"""The blobs that consumers put into group records: what a member subscribes to, and what it was given.

They are opaque to the coordinator's protocol; only groups of protocol type `consumer` use these layouts. Both begin
with an int16 version. Fields are only ever appended, so a version newer than ours is read with our newest layout and
its tail ignored; a negative version is refused. A blob of zero bytes is legal and means that nothing was provided: it
reads as None.

`version` is kept so that a blob can be written back as it came; what a version cannot hold is left out when written.
"""

from functools import cache
from typing import NamedTuple

from muster.codec.layouts import Layout, StructData, parse_messages
from muster.codec.primitives import Buffer, Reader, Writer
from muster.errors import UnsupportedVersion

NEWEST_VERSION = 3
SUBSCRIPTION, ASSIGNMENT = "ConsumerProtocolSubscription", "ConsumerProtocolAssignment"
MESSAGES = """
ConsumerProtocolSubscription 0-3 flexible none
  topics []string
  userData bytes ? =null
  ownedPartitions []struct 1+
    topic string
    partitions []int32
  generationId int32 2+ =-1
  rackId string 3+ ? =null

ConsumerProtocolAssignment 0-3 flexible none
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes ? =null
"""


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
    version, body = decode_blob(SUBSCRIPTION, data)
    return Subscription(
        version,
        tuple(body["topics"]),
        body["userData"],
        _topic_partitions(body["ownedPartitions"]),
        body["generationId"],
        body["rackId"],
    )


def decode_assignment(data: Buffer) -> Assignment | None:
    if len(data) == 0:
        return None
    version, body = decode_blob(ASSIGNMENT, data)
    return Assignment(version, _topic_partitions(body["assignedPartitions"]), body["userData"])


def encode_subscription(subscription: Subscription | None) -> bytes:
    if subscription is None:
        return b""
    version, topics, user_data, owned_partitions, generation_id, rack_id = subscription
    body = {
        "topics": topics,
        "userData": user_data,
        "ownedPartitions": [owned._asdict() for owned in owned_partitions],
        "generationId": generation_id,
        "rackId": rack_id,
    }
    return _encode_blob(SUBSCRIPTION, version, body)


def encode_assignment(assignment: Assignment | None) -> bytes:
    if assignment is None:
        return b""
    version, assigned_partitions, user_data = assignment
    body = {"assignedPartitions": [given._asdict() for given in assigned_partitions], "userData": user_data}
    return _encode_blob(ASSIGNMENT, version, body)


def decode_blob(name: str, data: Buffer) -> tuple[int, StructData]:
    """The version of a blob, and its fields with Kafka's names."""
    reader = Reader(data)
    version = _read_version(reader, name)
    return version, blob_layout(name, version).read(reader)


def subscribed_topics(subscription: Buffer) -> list[str]:
    """The topics of a subscription, read as version 0: all that Kafka's coordinator reads of one."""
    reader = Reader(subscription)
    _read_version(reader, SUBSCRIPTION)
    topics = [reader.string() for _ in range(reader.array_count())]
    reader.nullable_bytes()
    return topics


def blob_layout(name: str, version: int) -> Layout:
    """The layout that a version is read and written by."""
    return _layouts(name)[max(0, min(version, NEWEST_VERSION))]


@cache
def _layouts(name: str) -> list[Layout]:
    message = parse_messages(MESSAGES)[name]
    return [Layout(message, version) for version in range(NEWEST_VERSION + 1)]


def _read_version(reader: Reader, name: str) -> int:
    version = reader.int16()
    if version < 0:
        what = name.removeprefix("ConsumerProtocol").lower()
        raise UnsupportedVersion(f"unknown consumer {what} version {version}")
    return version


def _encode_blob(name: str, version: int, body: StructData) -> bytes:
    writer = Writer()
    writer.int16(version)
    blob_layout(name, version).write(writer, body)
    return writer.finish()


def _topic_partitions(topics: list[StructData]) -> tuple[TopicPartitions, ...]:
    return tuple([TopicPartitions(topic["topic"], tuple(topic["partitions"])) for topic in topics])
