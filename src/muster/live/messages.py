"""The seven messages it takes to read a log from a cluster: requests to bytes, answers to values. No I/O. (Fetch is in
`fetch.py`.)

    API                 versions   what later ones add
    ApiVersions         0          asked in the version that every broker has to answer
    SaslHandshake       1
    SaslAuthenticate    0-2        1: how long the session lasts; 2: flexible
    Metadata            4-13       7: leader epochs; 9: flexible; 10: topic ids; 13: an error for all of it
    ListOffsets         2-11       4: leader epochs; 6: flexible; 10: a timeout
    OffsetForLeaderEpoch 2-4       3: who asks; 4: flexible
    Fetch               4-17       5: log start; 7: sessions; 9: leader epochs; 11: rack; 12: flexible; 13: topic ids;
                                   15: who asks moves

They are written by hand, over the primitives of `codec/`: seven are few, a Fetch's records can be left where they are,
and whatever an unknown broker sends is either read or refused with `Truncated` or `Malformed`. Tagged fields, known or
not, are stepped over; nothing here needs one.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.codec.primitives import Buffer, Reader
from muster.live.frames import Api, In, Out

TopicPartition = tuple[str, int]

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EARLIEST, LATEST = -2, -1
NO_TOPIC_ID = bytes(16)
CONSUMER = -1
NO_EPOCH = -1
_LIST_OFFSETS_TIMEOUT_MS = 10_000

UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58


# --- ApiVersions ---


class ApiVersions(NamedTuple):
    error: int
    versions: dict[int, tuple[int, int]]


def decode_api_versions(body: Buffer, position: int) -> ApiVersions:
    """Of version 0, which is also how a broker answers that knows no better."""
    reader = Reader(body, position)
    error = reader.int16()
    entries = [(reader.int16(), (reader.int16(), reader.int16())) for _ in range(reader.array_count())]
    return ApiVersions(error, dict(entries))


# --- SASL ---


class SaslHandshake(NamedTuple):
    error: int
    mechanisms: tuple[str, ...]


class SaslAuthenticate(NamedTuple):
    error: int
    message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


def encode_sasl_handshake(mechanism: str) -> bytes:
    out = Out(Api.SASL_HANDSHAKE, 1)
    out.string(mechanism)
    return out.writer.finish()


def decode_sasl_handshake(body: Buffer, position: int) -> SaslHandshake:
    answer = In(Api.SASL_HANDSHAKE, 1, body, position)
    return SaslHandshake(answer.reader.int16(), tuple([answer.string() for _ in range(answer.count())]))


def encode_sasl_authenticate(version: int, auth_bytes: bytes) -> bytes:
    out = Out(Api.SASL_AUTHENTICATE, version)
    out.bytes_(auth_bytes)
    out.tags()
    return out.writer.finish()


def decode_sasl_authenticate(version: int, body: Buffer, position: int) -> SaslAuthenticate:
    answer = In(Api.SASL_AUTHENTICATE, version, body, position)
    error = answer.reader.int16()
    message = answer.nullable_string()
    auth_bytes = answer.bytes_()
    return SaslAuthenticate(error, message, auth_bytes, answer.reader.int64() if version >= 1 else 0)


# --- Metadata ---


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int


class Partition(NamedTuple):
    error: int
    leader_id: int
    """-1: there is none at the moment."""
    leader_epoch: int


class Topic(NamedTuple):
    error: int
    name: str
    topic_id: bytes
    """Sixteen zeros from a cluster too old to have ids."""
    is_internal: bool
    partitions: dict[int, Partition]


class Metadata(NamedTuple):
    error: int
    throttle_ms: int
    cluster_id: str | None
    brokers: dict[int, Broker]
    topics: dict[str, Topic]


def encode_metadata(version: int, topics: Iterable[str] | None) -> bytes:
    """None asks for all topics. A topic that does not exist is never created by the question."""
    out = Out(Api.METADATA, version)
    names = None if topics is None else list(topics)
    out.count(None if names is None else len(names))
    for name in names or ():
        if version >= 10:
            out.writer.uuid(NO_TOPIC_ID)
        out.string(name)
        out.tags()
    out.writer.boolean(False)
    for _ in range((8 <= version <= 10) + (version >= 8)):
        out.writer.boolean(False)  # nobody needs to list our rights
    out.tags()
    return out.writer.finish()


def decode_metadata(version: int, body: Buffer, position: int) -> Metadata:
    answer = In(Api.METADATA, version, body, position)
    reader = answer.reader
    throttle_ms = reader.int32()
    brokers = [_decode_broker(answer) for _ in range(answer.count())]
    cluster_id = answer.nullable_string()
    reader.int32()  # the controller
    topics = [_decode_topic(answer, version) for _ in range(answer.count())]
    if 8 <= version <= 10:
        reader.int32()
    error = reader.int16() if version >= 13 else 0
    return Metadata(
        error,
        throttle_ms,
        cluster_id,
        {broker.node_id: broker for broker in brokers},
        {topic.name: topic for topic in topics},
    )


def _decode_broker(answer: In) -> Broker:
    broker = Broker(answer.reader.int32(), answer.string(), answer.reader.int32())
    answer.nullable_string()  # the rack
    answer.tags()
    return broker


def _decode_topic(answer: In, version: int) -> Topic:
    reader = answer.reader
    error = reader.int16()
    name = (answer.nullable_string() if version >= 12 else answer.string()) or ""
    topic_id = reader.uuid() if version >= 10 else NO_TOPIC_ID
    is_internal = reader.boolean()
    partitions = dict([_decode_partition(answer, version) for _ in range(answer.count())])
    if version >= 8:
        reader.int32()
    answer.tags()
    return Topic(error, name, topic_id, is_internal, partitions)


def _decode_partition(answer: In, version: int) -> tuple[int, Partition]:
    reader = answer.reader
    error, number, leader_id = reader.int16(), reader.int32(), reader.int32()
    leader_epoch = reader.int32() if version >= 7 else NO_EPOCH
    for _ in range(3 if version >= 5 else 2):
        answer.skip_int32s()  # replicas, those in sync, those offline
    answer.tags()
    return number, Partition(error, leader_id, leader_epoch)


# --- ListOffsets ---


class ListedOffset(NamedTuple):
    error: int
    offset: int
    leader_epoch: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def encode_list_offsets(
    version: int, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation_level: int
) -> bytes:
    """No partition may be named twice: Kafka refuses both then."""
    out = Out(Api.LIST_OFFSETS, version)
    out.writer.int32(CONSUMER)
    out.writer.int8(isolation_level)
    topics = by_topic(partitions)
    out.count(len(topics))
    for topic, numbers in topics.items():
        out.string(topic)
        out.count(len(numbers))
        for number in numbers:
            out.writer.int32(number)
            if version >= 4:
                out.writer.int32(NO_EPOCH)
            out.writer.int64(timestamp_ms)
            out.tags()
        out.tags()
    if version >= 10:
        out.writer.int32(_LIST_OFFSETS_TIMEOUT_MS)
    out.tags()
    return out.writer.finish()


def decode_list_offsets(version: int, body: Buffer, position: int) -> tuple[int, dict[TopicPartition, ListedOffset]]:
    """Throttle time in ms, and the offsets."""
    answer = In(Api.LIST_OFFSETS, version, body, position)
    reader = answer.reader
    throttle_ms = reader.int32()
    offsets: dict[TopicPartition, ListedOffset] = {}
    for _ in range(answer.count()):
        topic = answer.string()
        for _ in range(answer.count()):
            partition, error = reader.int32(), reader.int16()
            reader.int64()  # the timestamp found, which is -1 for the ends of a log
            offset = reader.int64()
            offsets[topic, partition] = ListedOffset(error, offset, reader.int32() if version >= 4 else NO_EPOCH)
            answer.tags()
        answer.tags()
    return throttle_ms, offsets


# --- OffsetForLeaderEpoch ---


class EpochEnd(NamedTuple):
    error: int
    leader_epoch: int
    """The largest epoch at or below the one asked for that the log has; -1 where all it has are older."""
    end_offset: int

    @property
    def is_defined(self) -> bool:
        return self.error != 0 or self.leader_epoch >= 0


def encode_epoch_ends(
    version: int, wanted: Mapping[TopicPartition, int], current: Mapping[TopicPartition, int]
) -> bytes:
    """`current` has the leader epoch that the caller knows of: a leader under another one refuses to answer."""
    out = Out(Api.OFFSET_FOR_LEADER_EPOCH, version)
    if version >= 3:
        out.writer.int32(CONSUMER)
    topics = by_topic(wanted)
    out.count(len(topics))
    for topic, numbers in topics.items():
        out.string(topic)
        out.count(len(numbers))
        for number in numbers:
            out.writer.int32(number)
            out.writer.int32(current[topic, number])
            out.writer.int32(wanted[topic, number])
            out.tags()
        out.tags()
    out.tags()
    return out.writer.finish()


def decode_epoch_ends(version: int, body: Buffer, position: int) -> tuple[int, dict[TopicPartition, EpochEnd]]:
    answer = In(Api.OFFSET_FOR_LEADER_EPOCH, version, body, position)
    reader = answer.reader
    throttle_ms = reader.int32()
    ends: dict[TopicPartition, EpochEnd] = {}
    for _ in range(answer.count()):
        topic = answer.string()
        for _ in range(answer.count()):
            error, partition = reader.int16(), reader.int32()
            ends[topic, partition] = EpochEnd(error, reader.int32(), reader.int64())
            answer.tags()
        answer.tags()
    return throttle_ms, ends
