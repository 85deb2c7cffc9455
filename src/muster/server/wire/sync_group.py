"""SyncGroup, versions 0 to 5.

    request   group_id, generation, member_id, instance_id or null (3+), protocol_type or null (5+),
              protocol_name or null (5+), assignments: member_id, assignment
    response  throttle_time_ms (1+), error, protocol_type or null (5+), protocol_name or null (5+), assignment

Version 4 is the first flexible one. From version 5 on protocol type and name may be null on the wire and may not be in
truth: `sync_refusal` has what Kafka answers then, before anybody looks at the group.
"""

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.core.answers import SyncAnswer
from muster.core.events import SyncGroup
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

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
