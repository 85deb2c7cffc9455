"""JoinGroup, versions 0 to 9.

    request   group_id, session_timeout_ms, rebalance_timeout_ms (1+), member_id, instance_id or null (5+),
              protocol_type, protocols: name, metadata; reason or null (8+)
    response  throttle_time_ms (2+), error, generation, protocol_type or null (7+), protocol (null from 7), leader,
              skip_assignment (9+), member_id, members: member_id, instance_id or null (5+), metadata

Version 6 is the first flexible one. In version 0 the session timeout is the rebalance timeout too. From version 4 on a
new member without an id is sent away with one first (MEMBER_ID_REQUIRED), which is the coordinator's doing: it knows
the version from the event. Without a protocol the answer says "" before version 7, and null from then on.
"""

from muster.codec.primitives import Buffer
from muster.core.answers import JoinAnswer
from muster.core.events import JoinGroup
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

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
