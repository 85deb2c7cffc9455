"""Members of a group: JoinGroup, SyncGroup, LeaveGroup. Requests to events of the core, its answers to frames.

`muster.protocol.schemas` has the layouts; here is what follows from the versions. Events come without `reply_to`, which
`LedPartitions.submit` sets. Every `encode_` function returns a whole frame.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.core.events import JoinAnswer, JoinGroup, LeaveAnswer, LeaveGroup, Leaver, SyncAnswer, SyncGroup
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

# JoinGroup, versions 0 to 9; 6 is the first flexible one.
#
# In version 0 the session timeout is the rebalance timeout too. From version 4 on the coordinator first gives a new
# member an id (MEMBER_ID_REQUIRED); the event carries the version for that. A response without a protocol says ""
# before version 7, and null from then on.

LONGEST_REASON = 255
"""Characters; clients cut it there themselves. It is for the log alone."""
_FIRST_WITH_REBALANCE_TIMEOUT, _FIRST_WITH_NULL_PROTOCOL = 1, 7


def decode_join_group(
    version: int, data: Buffer, position: int, end: int, *, client_id: str, client_host: str, fresh_uuid: str
) -> JoinGroup:
    """The event, without `reply_to`. The host is the peer's address with a slash before it, as Kafka prints it."""
    body = decode_request(ApiKey.JOIN_GROUP, version, data, position, end)
    has_timeout = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    return JoinGroup(
        None,
        version,
        body["groupId"],
        body["memberId"],
        fresh_uuid,
        client_id,
        client_host,
        body["sessionTimeoutMs"],
        body["rebalanceTimeoutMs" if has_timeout else "sessionTimeoutMs"],
        body["protocolType"],
        tuple([(protocol["name"], protocol["metadata"]) for protocol in body["protocols"]]),
        body["groupInstanceId"],
        None if body["reason"] is None else body["reason"][:LONGEST_REASON],
    )


def encode_join_group(version: int, correlation_id: int, answer: JoinAnswer) -> bytes:
    """The whole frame."""
    no_protocol = None if version >= _FIRST_WITH_NULL_PROTOCOL else ""
    body = {
        "errorCode": answer.error,
        "generationId": answer.generation,
        "protocolType": answer.protocol_type,
        "protocolName": answer.protocol or no_protocol,
        "leader": answer.leader,
        "skipAssignment": answer.skip_assignment,
        "memberId": answer.member_id,
        "members": [
            {"memberId": member.member_id, "groupInstanceId": member.instance_id, "metadata": member.metadata}
            for member in answer.members
        ],
    }
    return encode_response(ApiKey.JOIN_GROUP, version, correlation_id, body)


# SyncGroup, versions 0 to 5; 4 is the first flexible one.
#
# From version 5 on the layout lets protocol type and name be null, and Kafka refuses such a request before it looks at
# the group: `sync_refusal`.

_FIRST_WITH_PROTOCOL = 5


def decode_sync_group(version: int, data: Buffer, position: int, end: int) -> SyncGroup:
    """The event, without `reply_to`. A member that is named twice gets what is said last."""
    body = decode_request(ApiKey.SYNC_GROUP, version, data, position, end)
    return SyncGroup(
        None,
        body["groupId"],
        body["generationId"],
        body["memberId"],
        {assigned["memberId"]: assigned["assignment"] for assigned in body["assignments"]},
        body["groupInstanceId"],
        body["protocolType"],
        body["protocolName"],
        version,
    )


def sync_refusal(event: SyncGroup) -> SyncAnswer | None:
    """The answer to a request that must not reach the coordinator; None if it may."""
    if event.version >= _FIRST_WITH_PROTOCOL and (event.protocol_type is None or event.protocol_name is None):
        return SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None


def encode_sync_group(version: int, correlation_id: int, answer: SyncAnswer) -> bytes:
    """The whole frame."""
    body = {
        "errorCode": answer.error,
        "protocolType": answer.protocol_type,
        "protocolName": answer.protocol,
        "assignment": answer.assignment,
    }
    return encode_response(ApiKey.SYNC_GROUP, version, correlation_id, body)


# LeaveGroup, versions 0 to 5; 4 is the first flexible one.
#
# Up to version 2 one member leaves, and the one error of the response is the group's if there is one, else the
# member's.

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
