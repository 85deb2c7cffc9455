"""ListGroups, versions 0 to 5.

    request   states (4+), types (5+)
    response  throttle_time_ms (1+), error, groups: group_id, protocol_type, state (4+), type (5+)

Version 3 is the first flexible one. No filter, and an empty one, let everything through.
"""

from muster.codec.primitives import Buffer
from muster.core.answers import ListAnswer
from muster.core.events import ListGroups
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

_GROUP_BYTES = 24  # of lengths, the state and the type


def decode_list_groups(version: int, data: Buffer, position: int, end: int) -> ListGroups:
    """The event, without `reply_to`."""
    body = decode_request(ApiKey.LIST_GROUPS, version, data, position, end)
    return ListGroups(None, tuple(body["statesFilter"]), tuple(body["typesFilter"]))


def list_groups_bytes(answer: ListAnswer) -> int:
    """About how much an answer takes on the wire."""
    return sum(_GROUP_BYTES + len(group.group_id) + len(group.protocol_type) for group in answer.groups)


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
