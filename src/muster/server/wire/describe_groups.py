"""DescribeGroups, versions 0 to 6.

    request   groups, include_authorized_operations (3+)
    response  throttle_time_ms (1+), groups: error, message or null (6+), group_id, state, protocol_type, protocol,
              members: member_id, instance_id or null (4+), client_id, client_host, metadata, assignment;
              authorized_operations (3+)

Version 5 is the first flexible one. A group that does not exist is merely Dead up to version 5 and an error from then
on, which is the coordinator's doing: it knows the version from the event. Authorized operations are INT32_MIN, "not
asked for", unless they were asked for and there is no error; then, as nobody here forbids anything, all that there are.
"""

from collections.abc import Sequence

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import Repeated, StructData
from muster.codec.primitives import Buffer
from muster.core.answers import DescribeAnswer, DescribedMember
from muster.core.events import DescribeGroup
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

NOT_ASKED_FOR = -(2**31)
_GROUP_BYTES, _MEMBER_BYTES = 64, 40  # of lengths, numbers and short texts
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


def answer_bytes(answer: DescribeAnswer) -> int:
    """About how much an answer takes on the wire."""
    return _GROUP_BYTES + sum(
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
