"""Record types 3 to 23 of __consumer_offsets: the newer group protocols, in the notation of `layouts`.

These are the records of consumer groups (KIP-848), share groups and streams groups. A coordinator of classic groups
only keeps them. All of them are version 0 and flexible. A decoded value is a dict with the field names of Kafka's own
JSON; tagged fields that are unknown here are kept under `UNKNOWN_TAGS` and written back.

Kafka changed two layouts without a new version: types 11 and 15 have one layout in 4.0 and another from 4.1 on. Reading
takes the first that uses up the value exactly, the newest first.
"""

from functools import cache
from typing import NamedTuple

from muster.codec.layouts import UNKNOWN_TAGS, Layout, Message, StructData, parse_messages
from muster.codec.primitives import Reader, Writer
from muster.errors import CodecError, Malformed, UnsupportedVersion

_GROUP = ("groupId",)
_MEMBER = ("groupId", "memberId")


class RecordType(NamedTuple):
    """One line of the registry; `key_fields` are what the key holds after its prefix, all of them strings."""

    name: str
    key_fields: tuple[str, ...]
    older_layouts: tuple[str, ...] = ()


RECORD_TYPES: dict[int, RecordType] = {
    3: RecordType("ConsumerGroupMetadata", _GROUP),
    4: RecordType("ConsumerGroupPartitionMetadata", _GROUP),
    5: RecordType("ConsumerGroupMemberMetadata", _MEMBER),
    6: RecordType("ConsumerGroupTargetAssignmentMetadata", _GROUP),
    7: RecordType("ConsumerGroupTargetAssignmentMember", _MEMBER),
    8: RecordType("ConsumerGroupCurrentMemberAssignment", _MEMBER),
    9: RecordType("ShareGroupPartitionMetadata", _GROUP),
    10: RecordType("ShareGroupMemberMetadata", _MEMBER),
    11: RecordType("ShareGroupMetadata", _GROUP, ("ShareGroupMetadataValue@4.0",)),
    12: RecordType("ShareGroupTargetAssignmentMetadata", _GROUP),
    13: RecordType("ShareGroupTargetAssignmentMember", _MEMBER),
    14: RecordType("ShareGroupCurrentMemberAssignment", _MEMBER),
    15: RecordType("ShareGroupStatePartitionMetadata", _GROUP, ("ShareGroupStatePartitionMetadataValue@4.0",)),
    16: RecordType("ConsumerGroupRegularExpression", ("groupId", "regularExpression")),
    17: RecordType("StreamsGroupMetadata", _GROUP),
    19: RecordType("StreamsGroupMemberMetadata", _MEMBER),
    20: RecordType("StreamsGroupTargetAssignmentMetadata", _GROUP),
    21: RecordType("StreamsGroupTargetAssignmentMember", _MEMBER),
    22: RecordType("StreamsGroupCurrentMemberAssignment", _MEMBER),
    23: RecordType("StreamsGroupTopology", _GROUP),
}
"""Types 18 and 24 are in no release up to 4.3 and stay unknown."""


@cache
def layouts_of(record_type: int) -> tuple[Layout, ...]:
    """The layouts that values of a type have had, the newest first."""
    known = RECORD_TYPES[record_type]
    messages = _messages()
    return tuple([Layout(messages[name], 0, keeps_tags=True) for name in (f"{known.name}Value", *known.older_layouts)])


def layout_for(record_type: int, data: StructData) -> Layout:
    """The layout that these fields belong to."""
    names = data.keys() - {UNKNOWN_TAGS}
    for layout in layouts_of(record_type):
        if {field.name for field in layout.message.fields} == names:
            return layout
    raise Malformed(f"{RECORD_TYPES[record_type].name} has no layout with the fields {', '.join(sorted(names))}")


def decode_struct(record_type: int, version: int, data: bytes, position: int) -> StructData:
    """Read by the first layout that uses the value up exactly, else by the first that can read it at all."""
    _check_version(record_type, version)
    readable: StructData | None = None
    problem: CodecError | None = None
    for layout in layouts_of(record_type):
        reader = Reader(data, position)
        try:
            struct = layout.read(reader)
        except CodecError as error:
            problem = problem or error
            continue
        if reader.remaining == 0:
            return struct
        readable = readable or struct
    if readable is None:
        assert problem is not None
        raise problem
    return readable


def encode_struct(record_type: int, version: int, data: StructData) -> bytes:
    """Version and value. Which of two layouts a type 11 or 15 has follows from the fields in `data`."""
    _check_version(record_type, version)
    writer = Writer()
    writer.int16(version)
    layout_for(record_type, data).write(writer, data)
    return writer.finish()


def _check_version(record_type: int, version: int) -> None:
    known = RECORD_TYPES.get(record_type)
    if known is None:
        raise Malformed(f"values of record type {record_type} have no known layout")
    if version != 0:
        raise UnsupportedVersion(f"unknown {known.name} version {version}")


@cache
def _messages() -> dict[str, Message]:
    return parse_messages(MESSAGES)


MESSAGES = """
ConsumerGroupMetadataValue 0 flexible 0+
  epoch int32
  metadataHash int64 #0

ConsumerGroupPartitionMetadataValue 0 flexible 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string

ConsumerGroupMemberMetadataValue 0 flexible 0+
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string ?
  rebalanceTimeoutMs int32 =-1
  serverAssignor string ?
  classicMemberMetadata struct ? #0
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes

ConsumerGroupTargetAssignmentMetadataValue 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0

ConsumerGroupTargetAssignmentMemberValue 0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32

ConsumerGroupCurrentMemberAssignmentValue 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0

ShareGroupPartitionMetadataValue 0 flexible 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string

ShareGroupMemberMetadataValue 0 flexible 0+
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string

ShareGroupMetadataValue 0 flexible 0+
  epoch int32
  metadataHash int64

ShareGroupMetadataValue@4.0 0 flexible 0+
  epoch int32

ShareGroupTargetAssignmentMetadataValue 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0

ShareGroupTargetAssignmentMemberValue 0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32

ShareGroupCurrentMemberAssignmentValue 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32

ShareGroupStatePartitionMetadataValue 0 flexible 0+
  initializingTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string

ShareGroupStatePartitionMetadataValue@4.0 0 flexible 0+
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string

ConsumerGroupRegularExpressionValue 0 flexible 0+
  topics []string
  version int64
  timestamp int64

StreamsGroupMetadataValue 0 flexible 0+
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 #0 =-1
  lastAssignmentConfigs []struct ? #1
    key string
    value string

StreamsGroupMemberMetadataValue 0 flexible 0+
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  rebalanceTimeoutMs int32 =-1
  topologyEpoch int32
  processId string
  userEndpoint struct ? =null
    host string
    port uint16
  clientTags []struct
    key string
    value string

StreamsGroupTargetAssignmentMetadataValue 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0

StreamsGroupTargetAssignmentMemberValue 0 flexible 0+
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32

StreamsGroupCurrentMemberAssignmentValue 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  standbyTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  warmupTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  activeTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  standbyTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0
  warmupTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0

StreamsGroupTopologyValue 0 flexible 0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    copartitionGroups []struct
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
"""
