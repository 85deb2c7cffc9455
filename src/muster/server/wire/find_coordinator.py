"""FindCoordinator, versions 0 to 6. The coordinator itself is not asked: any node knows.

    request   key (0-3), key_type (1+), keys (4+)
    response  throttle_time_ms (1+), error (0-3), message or null (1-3), node_id, host, port (0-3),
              coordinators (4+): key, node_id, host, port, error, message or null

Version 3 is the first flexible one. Version 0 can only ask for groups. The message is Kafka's: "NONE" for no error in
versions 1 to 3; from version 4 on always "", unless the kind of key is one that nobody has heard of.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response

_FIRST_WITH_KEYS, _FIRST_WITH_SHARE_GROUPS = 4, 6
# Kafka's own words, for the errors that a single answer can carry.
_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library "
    "or the message was sent to an incompatible broker. See the broker logs for more details.",
}


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_KEY_TYPES = frozenset(KeyType)


class FindCoordinator(NamedTuple):
    """What is asked for; `key_type` is a plain number, because a client may say anything."""

    key_type: int
    keys: tuple[str, ...]


class FoundCoordinator(NamedTuple):
    """Who coordinates a key; on an error the defaults."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


def decode_find_coordinator(version: int, data: Buffer, position: int, end: int) -> FindCoordinator:
    """The keys asked for; one up to version 3."""
    body = decode_request(ApiKey.FIND_COORDINATOR, version, data, position, end)
    keys = body["coordinatorKeys"] if version >= _FIRST_WITH_KEYS else [body["key"]]
    return FindCoordinator(body["keyType"], tuple(keys))


def find_refusal(version: int, asked: FindCoordinator) -> ErrorCode:
    """NONE for keys that somebody may coordinate. Nobody coordinates share groups here."""
    if asked.key_type in (KeyType.GROUP, KeyType.TRANSACTION):
        return ErrorCode.NONE
    if asked.key_type == KeyType.SHARE and version >= _FIRST_WITH_SHARE_GROUPS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_REQUEST


def encode_find_coordinator(
    version: int, correlation_id: int, asked: FindCoordinator, found: Sequence[FoundCoordinator]
) -> bytes:
    """The whole frame, from one answer for each key in its order."""
    body: StructData
    if version >= _FIRST_WITH_KEYS:
        is_unknown = asked.key_type not in _KEY_TYPES
        body = {
            "coordinators": [
                {
                    "key": key,
                    "nodeId": one.node_id,
                    "host": one.host,
                    "port": one.port,
                    "errorCode": one.error,
                    "errorMessage": _message(one.error) if is_unknown else "",
                }
                for key, one in zip(asked.keys, found, strict=True)
            ]
        }
    else:
        (one,) = found
        body = {
            "errorCode": one.error,
            "errorMessage": _message(one.error),
            "nodeId": one.node_id,
            "host": one.host,
            "port": one.port,
        }
    return encode_response(ApiKey.FIND_COORDINATOR, version, correlation_id, body)


def _message(error: ErrorCode) -> str:
    return _MESSAGES.get(error, error.name)
