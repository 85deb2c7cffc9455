"""DeleteGroups, versions 0 to 2.

    request   group ids
    response  throttle_time_ms, results: group_id, error

Version 2 is the first flexible one. A group that is named twice is deleted, and answered, once.
"""

from collections.abc import Sequence

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.core.events import DeleteGroup
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response


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
