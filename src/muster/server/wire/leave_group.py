"""LeaveGroup, versions 0 to 5.

    request   group_id, member_id (0-2), members (3+): member_id, instance_id or null, reason or null (5+)
    response  throttle_time_ms (1+), error, members (3+): member_id, instance_id or null, error

Version 4 is the first flexible one. Up to version 2 one member leaves, and the one error of the answer is the group's
if there is one, else the member's.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.core.answers import LeaveAnswer
from muster.core.events import LeaveGroup, Leaver
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

_FIRST_WITH_MEMBERS = 3


def decode_leave_group(version: int, data: Buffer, position: int, end: int) -> LeaveGroup:
    """The event, without `reply_to`."""
    body = decode_request(ApiKey.LEAVE_GROUP, version, data, position, end)
    if version < _FIRST_WITH_MEMBERS:
        return LeaveGroup(None, body["groupId"], (Leaver(body["memberId"]),))
    members = [Leaver(member["memberId"], member["groupInstanceId"], member["reason"]) for member in body["members"]]
    return LeaveGroup(None, body["groupId"], tuple(members))


def encode_leave_group(version: int, correlation_id: int, answer: LeaveAnswer) -> bytes:
    """The whole frame."""
    error = answer.error
    if version < _FIRST_WITH_MEMBERS and error is ErrorCode.NONE and answer.members:
        error = answer.members[0].error
    body = {
        "errorCode": error,
        "members": [
            {"memberId": member.member_id, "groupInstanceId": member.instance_id, "errorCode": member.error}
            for member in answer.members
        ],
    }
    return encode_response(ApiKey.LEAVE_GROUP, version, correlation_id, body)
