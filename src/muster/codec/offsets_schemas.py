"""The layouts of record types 3 to 23 as a table, and the small interpreter that reads and writes by it.

These are the records of the newer group protocols: consumer groups (KIP-848), share groups and streams groups. A
coordinator of classic groups never touches them, so clarity comes before speed here. All of them are version 0 and
flexible: compact encodings, and a section of tagged fields at the end of every struct.

A decoded struct is a dict with the field names of Kafka's own JSON. Uuids are 16 raw bytes, arrays are lists. A tagged
field that was not written holds Kafka's default, and a field holding its default is not written. Mind that the default
of a nullable tagged field is *not* null but empty: null is written out (`classicMemberMetadata` of every member of the
consumer protocol is such an explicit null). Tags unknown here are kept under `UNKNOWN_TAGS` and written back.

Kafka changed two layouts without a new version: types 11 and 15 have one layout in 4.0 and another from 4.1 on. They
stand here newest first; whoever decodes takes the first that uses up the value exactly.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from muster.codec.primitives import Reader, TaggedFields, Writer
from muster.errors import Malformed

StructData = dict[str, Any]

UNKNOWN_TAGS = "_unknownTags"


class Kind(Protocol):
    """How one kind of field is read and written."""

    def read(self, reader: Reader, /) -> Any: ...

    def write(self, writer: Writer, value: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Scalar:
    name: str
    reads: Callable[[Reader], Any]
    writes: Callable[[Writer, Any], None]

    def read(self, reader: Reader) -> Any:
        return self.reads(reader)

    def write(self, writer: Writer, value: Any) -> None:
        self.writes(writer, value)


INT8 = Scalar("int8", Reader.int8, Writer.int8)
INT16 = Scalar("int16", Reader.int16, Writer.int16)
UINT16 = Scalar("uint16", Reader.uint16, Writer.uint16)
INT32 = Scalar("int32", Reader.int32, Writer.int32)
INT64 = Scalar("int64", Reader.int64, Writer.int64)
UUID = Scalar("uuid", Reader.uuid, Writer.uuid)
BYTES = Scalar("bytes", Reader.compact_bytes, Writer.compact_bytes)
STRING = Scalar("string", Reader.compact_string, Writer.compact_string)
NULLABLE_STRING = Scalar("string?", Reader.compact_nullable_string, Writer.compact_nullable_string)


@dataclass(frozen=True, slots=True)
class Array:
    of: Kind

    def read(self, reader: Reader) -> list[Any]:
        return [self.of.read(reader) for _ in range(reader.compact_array_count())]

    def write(self, writer: Writer, value: list[Any]) -> None:
        writer.compact_array_count(len(value))
        for item in value:
            self.of.write(writer, item)


@dataclass(frozen=True, slots=True)
class NullableArray:
    of: Kind

    def read(self, reader: Reader) -> list[Any] | None:
        count = reader.compact_nullable_array_count()
        return None if count is None else [self.of.read(reader) for _ in range(count)]

    def write(self, writer: Writer, value: list[Any] | None) -> None:
        writer.compact_nullable_array_count(None if value is None else len(value))
        for item in value or ():
            self.of.write(writer, item)


@dataclass(frozen=True, slots=True)
class Tagged:
    """A field of the tagged section."""

    name: str
    kind: Kind
    default: Any


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order, then the tagged section; `tagged` is in order of tag, from 0 and without gaps."""

    fields: dict[str, Kind]
    tagged: tuple[Tagged, ...] = field(default=())

    def read(self, reader: Reader) -> StructData:
        data: StructData = {name: kind.read(reader) for name, kind in self.fields.items()}
        for known in self.tagged:
            data[known.name] = deepcopy(known.default)
        unknown: list[tuple[int, bytes]] = []
        for tag, payload in reader.tagged_fields():
            if tag < len(self.tagged):
                data[self.tagged[tag].name] = read_whole(self.tagged[tag].kind, payload)
            else:
                unknown.append((tag, payload))
        if unknown:
            data[UNKNOWN_TAGS] = tuple(unknown)
        return data

    def write(self, writer: Writer, value: StructData) -> None:
        for name, kind in self.fields.items():
            kind.write(writer, value[name])
        writer.tagged_fields(self._tags_to_write(value))

    def _tags_to_write(self, value: StructData) -> TaggedFields:
        known = [
            (tag, written(tagged.kind, value[tagged.name]))
            for tag, tagged in enumerate(self.tagged)
            if value[tagged.name] != tagged.default
        ]
        return (*known, *value.get(UNKNOWN_TAGS, ()))

    def names(self) -> set[str]:
        return {*self.fields, *(tagged.name for tagged in self.tagged)}


@dataclass(frozen=True, slots=True)
class NullableStruct:
    """A struct that may be null: led by an int8, negative for null."""

    of: Struct

    def read(self, reader: Reader) -> StructData | None:
        return None if reader.int8() < 0 else self.of.read(reader)

    def write(self, writer: Writer, value: StructData | None) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            self.of.write(writer, value)


@dataclass(frozen=True, slots=True)
class TaggedNullableStruct:
    """A struct that may be null, in a tagged field: led by a varint there, zero for null."""

    of: Struct

    def read(self, reader: Reader) -> StructData | None:
        return None if reader.uvarint() == 0 else self.of.read(reader)

    def write(self, writer: Writer, value: StructData | None) -> None:
        writer.uvarint(0 if value is None else 1)
        if value is not None:
            self.of.write(writer, value)


def read_whole(kind: Kind, payload: bytes) -> Any:
    """Read a tagged field, which has to fill its payload: Kafka reads on from wherever the field ends."""
    reader = Reader(payload)
    value = kind.read(reader)
    if reader.remaining:
        raise Malformed(f"a tagged field of {len(payload)} bytes ends after {reader.position}")
    return value


def written(kind: Kind, value: Any) -> bytes:
    writer = Writer()
    kind.write(writer, value)
    return writer.finish()


_STRINGS = Array(STRING)
_INT16S = Array(INT16)
_INT32S = Array(INT32)
_KEY_VALUES = Array(Struct({"key": STRING, "value": STRING}))
_ASSIGNMENT_EPOCHS = Tagged("assignmentEpochs", NullableArray(INT32), [])  # from 4.2 (type 22) and 4.3 (type 8)
_ASSIGNMENT_TIMESTAMP = Tagged("assignmentTimestamp", INT64, 0)  # from 4.3

_PARTITION_METADATA = Struct({
    "topics": Array(Struct({
        "topicId": UUID,
        "topicName": STRING,
        "numPartitions": INT32,
        "partitionMetadata": Array(Struct({"partition": INT32, "racks": _STRINGS})),
    })),
})  # fmt: skip
_TARGET_EPOCH = Struct({"assignmentEpoch": INT32}, (_ASSIGNMENT_TIMESTAMP,))
_TOPIC_PARTITIONS: dict[str, Kind] = {"topicId": UUID, "partitions": _INT32S}
_TARGET_MEMBER = Struct({"topicPartitions": Array(Struct(_TOPIC_PARTITIONS))})
_OWNED = Array(Struct(_TOPIC_PARTITIONS, (_ASSIGNMENT_EPOCHS,)))
_SHARE_TOPICS = Array(Struct({"topicId": UUID, "topicName": STRING, "partitions": _INT32S}))
_DELETING_TOPICS = Array(Struct({"topicId": UUID, "topicName": STRING}))
_TASKS: dict[str, Kind] = {"subtopologyId": STRING, "partitions": _INT32S}
_TARGET_TASKS = Array(Struct(_TASKS))
_OWNED_TASKS = Array(Struct(_TASKS, (_ASSIGNMENT_EPOCHS,)))
_TOPIC_INFOS = Array(Struct({
    "name": STRING,
    "partitions": INT32,
    "replicationFactor": INT16,
    "topicConfigs": _KEY_VALUES,
}))  # fmt: skip

_CONSUMER_GROUP = Struct({"epoch": INT32}, (Tagged("metadataHash", INT64, 0),))  # the hash from 4.1
_CONSUMER_MEMBER = Struct(
    {
        "instanceId": NULLABLE_STRING,
        "rackId": NULLABLE_STRING,
        "clientId": STRING,
        "clientHost": STRING,
        "subscribedTopicNames": _STRINGS,
        "subscribedTopicRegex": NULLABLE_STRING,
        "rebalanceTimeoutMs": INT32,
        "serverAssignor": NULLABLE_STRING,
    },
    (
        Tagged(
            "classicMemberMetadata",
            TaggedNullableStruct(Struct({
                "sessionTimeoutMs": INT32,
                "supportedProtocols": Array(Struct({"name": STRING, "metadata": BYTES})),
            })),
            {"sessionTimeoutMs": 0, "supportedProtocols": []},
        ),
    ),
)  # fmt: skip
_CONSUMER_CURRENT = Struct({
    "memberEpoch": INT32,
    "previousMemberEpoch": INT32,
    "state": INT8,
    "assignedPartitions": _OWNED,
    "partitionsPendingRevocation": _OWNED,
})  # fmt: skip
_REGULAR_EXPRESSION = Struct({"topics": _STRINGS, "version": INT64, "timestamp": INT64})

_SHARE_MEMBER = Struct({
    "rackId": NULLABLE_STRING,
    "clientId": STRING,
    "clientHost": STRING,
    "subscribedTopicNames": _STRINGS,
})  # fmt: skip
_SHARE_GROUP = Struct({"epoch": INT32, "metadataHash": INT64})
_SHARE_GROUP_4_0 = Struct({"epoch": INT32})
_SHARE_CURRENT = Struct({
    "memberEpoch": INT32,
    "previousMemberEpoch": INT32,
    "state": INT8,
    "assignedPartitions": Array(Struct(_TOPIC_PARTITIONS)),
})  # fmt: skip
_SHARE_STATE = Struct({
    "initializingTopics": _SHARE_TOPICS,
    "initializedTopics": _SHARE_TOPICS,
    "deletingTopics": _DELETING_TOPICS,
})  # fmt: skip
_SHARE_STATE_4_0 = Struct({"initializedTopics": _SHARE_TOPICS, "deletingTopics": _DELETING_TOPICS})

_STREAMS_GROUP = Struct(
    {"epoch": INT32, "metadataHash": INT64},
    (  # from 4.2
        Tagged("validatedTopologyEpoch", INT32, -1),
        Tagged("lastAssignmentConfigs", NullableArray(_KEY_VALUES.of), []),
    ),
)
_STREAMS_MEMBER = Struct({
    "instanceId": NULLABLE_STRING,
    "rackId": NULLABLE_STRING,
    "clientId": STRING,
    "clientHost": STRING,
    "rebalanceTimeoutMs": INT32,
    "topologyEpoch": INT32,
    "processId": STRING,
    "userEndpoint": NullableStruct(Struct({"host": STRING, "port": UINT16})),
    "clientTags": _KEY_VALUES,
})  # fmt: skip
_STREAMS_TARGET_MEMBER = Struct({
    "activeTasks": _TARGET_TASKS,
    "standbyTasks": _TARGET_TASKS,
    "warmupTasks": _TARGET_TASKS,
})  # fmt: skip
_STREAMS_CURRENT = Struct({
    "memberEpoch": INT32,
    "previousMemberEpoch": INT32,
    "state": INT8,
    "activeTasks": _OWNED_TASKS,
    "standbyTasks": _OWNED_TASKS,
    "warmupTasks": _OWNED_TASKS,
    "activeTasksPendingRevocation": _OWNED_TASKS,
    "standbyTasksPendingRevocation": _OWNED_TASKS,
    "warmupTasksPendingRevocation": _OWNED_TASKS,
})  # fmt: skip
_STREAMS_TOPOLOGY = Struct({
    "epoch": INT32,
    "subtopologies": Array(Struct({
        "subtopologyId": STRING,
        "sourceTopics": _STRINGS,
        "sourceTopicRegex": _STRINGS,
        "stateChangelogTopics": _TOPIC_INFOS,
        "repartitionSinkTopics": _STRINGS,
        "repartitionSourceTopics": _TOPIC_INFOS,
        "copartitionGroups": Array(Struct({
            "sourceTopics": _INT16S,
            "sourceTopicRegex": _INT16S,
            "repartitionSourceTopics": _INT16S,
        })),
    })),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordType:
    """One line of the registry: what the key holds after its prefix (strings only), and the layouts of the value."""

    name: str
    key_fields: tuple[str, ...]
    layouts: tuple[Struct, ...]

    def layout_of(self, data: StructData) -> Struct:
        """The layout these fields belong to."""
        names = data.keys() - {UNKNOWN_TAGS}
        for layout in self.layouts:
            if layout.names() == names:
                return layout
        raise Malformed(f"{self.name} has no layout with the fields {', '.join(sorted(names))}")


_GROUP = ("groupId",)
_MEMBER = ("groupId", "memberId")

RECORD_TYPES: dict[int, RecordType] = {
    3: RecordType("ConsumerGroupMetadata", _GROUP, (_CONSUMER_GROUP,)),
    4: RecordType("ConsumerGroupPartitionMetadata", _GROUP, (_PARTITION_METADATA,)),
    5: RecordType("ConsumerGroupMemberMetadata", _MEMBER, (_CONSUMER_MEMBER,)),
    6: RecordType("ConsumerGroupTargetAssignmentMetadata", _GROUP, (_TARGET_EPOCH,)),
    7: RecordType("ConsumerGroupTargetAssignmentMember", _MEMBER, (_TARGET_MEMBER,)),
    8: RecordType("ConsumerGroupCurrentMemberAssignment", _MEMBER, (_CONSUMER_CURRENT,)),
    9: RecordType("ShareGroupPartitionMetadata", _GROUP, (_PARTITION_METADATA,)),
    10: RecordType("ShareGroupMemberMetadata", _MEMBER, (_SHARE_MEMBER,)),
    11: RecordType("ShareGroupMetadata", _GROUP, (_SHARE_GROUP, _SHARE_GROUP_4_0)),
    12: RecordType("ShareGroupTargetAssignmentMetadata", _GROUP, (_TARGET_EPOCH,)),
    13: RecordType("ShareGroupTargetAssignmentMember", _MEMBER, (_TARGET_MEMBER,)),
    14: RecordType("ShareGroupCurrentMemberAssignment", _MEMBER, (_SHARE_CURRENT,)),
    15: RecordType("ShareGroupStatePartitionMetadata", _GROUP, (_SHARE_STATE, _SHARE_STATE_4_0)),
    16: RecordType("ConsumerGroupRegularExpression", ("groupId", "regularExpression"), (_REGULAR_EXPRESSION,)),
    17: RecordType("StreamsGroupMetadata", _GROUP, (_STREAMS_GROUP,)),
    19: RecordType("StreamsGroupMemberMetadata", _MEMBER, (_STREAMS_MEMBER,)),
    20: RecordType("StreamsGroupTargetAssignmentMetadata", _GROUP, (_TARGET_EPOCH,)),
    21: RecordType("StreamsGroupTargetAssignmentMember", _MEMBER, (_STREAMS_TARGET_MEMBER,)),
    22: RecordType("StreamsGroupCurrentMemberAssignment", _MEMBER, (_STREAMS_CURRENT,)),
    23: RecordType("StreamsGroupTopology", _GROUP, (_STREAMS_TOPOLOGY,)),
}
"""Types 18 and 24 are in no release up to 4.3 and stay unknown."""
