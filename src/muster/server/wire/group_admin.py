"""Groups seen from outside: ListGroups, DescribeGroups, DeleteGroups, OffsetDelete.

`muster.protocol.schemas` has the layouts; here is what follows from the versions. Events come without `reply_to`, which
`LedPartitions.submit` sets. Every `encode_` function returns a whole frame.
"""

from collections.abc import Sequence

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import Repeated, StructData
from muster.codec.primitives import Buffer
from muster.core.events import (
    DeleteGroup,
    DescribeAnswer,
    DescribedMember,
    DescribeGroup,
    ListAnswer,
    ListGroups,
    OffsetDelete,
    OffsetDeleteAnswer,
    PartitionError,
)
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.server.wire import TopicNames

# ListGroups, versions 0 to 5; 3 is the first flexible one. An empty filter lets every group through.

_LISTED_BYTES = 24  # of lengths, the state and the type


def decode_list_groups(version: int, data: Buffer, position: int, end: int) -> ListGroups:
    """The event, without `reply_to`."""
    body = decode_request(ApiKey.LIST_GROUPS, version, data, position, end)
    return ListGroups(None, tuple(body["statesFilter"]), tuple(body["typesFilter"]))


def list_groups_bytes(answer: ListAnswer) -> int:
    """About how much an answer takes on the wire."""
    return sum(_LISTED_BYTES + len(group.group_id) + len(group.protocol_type) for group in answer.groups)


def encode_list_groups(version: int, correlation_id: int, answer: ListAnswer) -> bytes:
    """The whole frame."""
    body = {
        "errorCode": answer.error,
        "groups": [
            {
                "groupId": group.group_id,
                "protocolType": group.protocol_type,
                "groupState": group.state,
                "groupType": group.type,
            }
            for group in answer.groups
        ],
    }
    return encode_response(ApiKey.LIST_GROUPS, version, correlation_id, body)


# DescribeGroups, versions 0 to 6; 5 is the first flexible one.
#
# A group that does not exist is Dead up to version 5 and an error in version 6; the coordinator decides that, with the
# version in the event. Authorized operations are INT32_MIN ("not asked for") unless they were asked for and there is no
# error; then all of them are listed, because muster has no ACLs.

NOT_ASKED_FOR = -(2**31)
_DESCRIBED_BYTES, _MEMBER_BYTES = 64, 40  # of lengths, numbers and short texts
# Read, Delete, Describe, DescribeConfigs, AlterConfigs: one bit each, by Kafka's numbers.
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def decode_describe_groups(
    version: int, data: Buffer, position: int, end: int
) -> tuple[tuple[DescribeGroup, ...], bool]:
    """An event for each group, without `reply_to`, and whether authorized operations are asked for.

    A group that is named twice is answered twice, as in Kafka, and has one event, which is there twice.
    """
    body = decode_request(ApiKey.DESCRIBE_GROUPS, version, data, position, end)
    events = {group_id: DescribeGroup(None, group_id, version) for group_id in body["groups"]}
    return tuple([events[group_id] for group_id in body["groups"]]), body["includeAuthorizedOperations"]


def describe_groups_bytes(answer: DescribeAnswer) -> int:
    """About how much an answer takes on the wire."""
    return _DESCRIBED_BYTES + sum(
        _MEMBER_BYTES
        + len(member.member_id)
        + len(member.instance_id or "")
        + len(member.client_id)
        + len(member.metadata)
        + len(member.assignment)
        for member in answer.members
    )


def encode_describe_groups(
    version: int,
    correlation_id: int,
    events: Sequence[DescribeGroup],
    has_operations: bool,
    answers: Sequence[DescribeAnswer],
) -> bytes:
    """The whole frame, from one answer for each event in its order."""
    described: dict[tuple[str, int], Repeated] = {}
    groups = []
    for event, answer in zip(events, answers, strict=True):
        same = event.group_id, id(answer)
        if same not in described:
            described[same] = Repeated(_group(event.group_id, has_operations, answer))
        groups.append(described[same])
    return encode_response(ApiKey.DESCRIBE_GROUPS, version, correlation_id, {"groups": groups})


def _group(group_id: str, has_operations: bool, answer: DescribeAnswer) -> StructData:
    are_told = has_operations and answer.error is ErrorCode.NONE
    return {
        "errorCode": answer.error,
        "errorMessage": answer.message,
        "groupId": group_id,
        "groupState": answer.state,
        "protocolType": answer.protocol_type,
        "protocolData": answer.protocol,
        "members": [_member(member) for member in answer.members],
        "authorizedOperations": ALL_GROUP_OPERATIONS if are_told else NOT_ASKED_FOR,
    }


def _member(member: DescribedMember) -> StructData:
    return {
        "memberId": member.member_id,
        "groupInstanceId": member.instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "memberMetadata": member.metadata,
        "memberAssignment": member.assignment,
    }


# DeleteGroups, versions 0 to 2; 2 is the first flexible one. A group that is named twice is deleted, and answered,
# once.


def decode_delete_groups(version: int, data: Buffer, position: int, end: int) -> tuple[DeleteGroup, ...]:
    """An event for each group, without `reply_to`."""
    body = decode_request(ApiKey.DELETE_GROUPS, version, data, position, end)
    return tuple([DeleteGroup(None, group_id) for group_id in dict.fromkeys(body["groupsNames"])])


def encode_delete_groups(
    version: int, correlation_id: int, events: Sequence[DeleteGroup], answers: Sequence[ErrorCode]
) -> bytes:
    """The whole frame, from one answer for each event in its order."""
    results = [{"groupId": event.group_id, "errorCode": error} for event, error in zip(events, answers, strict=True)]
    return encode_response(ApiKey.DELETE_GROUPS, version, correlation_id, {"results": results})


# OffsetDelete, version 0, never flexible.
#
# Partitions that do not exist get UNKNOWN_TOPIC_OR_PARTITION without the coordinator. The coordinator is asked in any
# case, because its error for the whole group wins, and then no topics are listed. The order is Kafka's: topics with
# something refused first, the partitions of one topic together.

Refused = dict[str, list[PartitionError]]
"""What is refused already, by topic. A topic that does not exist is in it even if nothing of it was asked for."""


def decode_offset_delete(
    version: int, data: Buffer, position: int, end: int, topics: TopicNames
) -> tuple[OffsetDelete, Refused]:
    """The event, without `reply_to`, and what the coordinator need not hear of."""
    body = decode_request(ApiKey.OFFSET_DELETE, version, data, position, end)
    refused: Refused = {}
    accepted: list[tuple[str, int]] = []
    for topic in body["topics"]:
        name = topic["name"]
        known = topics.by_name.get(name)
        if known is None:
            refused.setdefault(name, [])
        for partition in topic["partitions"]:
            index = partition["partitionIndex"]
            if known is not None and 0 <= index < known[1]:
                accepted.append((name, index))
            else:
                error = PartitionError(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                refused.setdefault(name, []).append(error)
    return OffsetDelete(None, body["groupId"], tuple(accepted)), refused


def encode_offset_delete(version: int, correlation_id: int, refused: Refused, answer: OffsetDeleteAnswer) -> bytes:
    """The whole frame."""
    body: StructData = {"errorCode": answer.error}
    if answer.error is ErrorCode.NONE:
        by_topic = {name: list(errors) for name, errors in refused.items()}
        for result in answer.partitions:
            by_topic.setdefault(result.topic, []).append(result)
        body["topics"] = [
            {
                "name": name,
                "partitions": [{"partitionIndex": one.partition, "errorCode": one.error} for one in results],
            }
            for name, results in by_topic.items()
        ]
    return encode_response(ApiKey.OFFSET_DELETE, version, correlation_id, body)
