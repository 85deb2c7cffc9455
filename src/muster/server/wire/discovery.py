"""How a client finds its way: ApiVersions, then FindCoordinator. Any node answers them; no coordinator is asked."""

import re
from collections.abc import Container, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer
from muster.protocol.apis import APIS, Api, ApiKey, advertised
from muster.protocol.messages import decode_request, encode_response

# ApiVersions, versions 0 to 4; 3 is the first flexible one, but the header of the response never is.
#
# Two requests are answered that would close the connection for any other API. A version that is not served gets
# UNSUPPORTED_VERSION in the form of version 0, with ApiVersions as the one entry, so that the client can ask again. A
# client whose software has no proper name gets INVALID_REQUEST and an empty list.

_FIRST_WITH_SOFTWARE, _FIRST_WITH_MIN_VERSION_0 = 3, 4
_FALLBACK_VERSION = 0
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Software(NamedTuple):
    """Who the client says it is; empty before version 3."""

    name: str
    version: str


class Features(NamedTuple):
    """What the cluster can do (lowest and highest level by name) and has agreed on (level by name)."""

    supported: Mapping[str, tuple[int, int]] = {}
    finalized: Mapping[str, int] = {}
    epoch: int = -1


NO_FEATURES = Features()
FEATURES = Features({"group.version": (0, 1), "transaction.version": (0, 2)}, {"transaction.version": 2}, epoch=1)
"""Those of muster. `group.version` is at 0, which is not told: groups of the newer protocol are not served."""


def is_served(version: int) -> bool:
    """Whether a request can be read at all; if not, the answer is `encode_unsupported`."""
    api = APIS[ApiKey.API_VERSIONS]
    return api.min_version <= version <= api.max_version


def decode_api_versions(version: int, data: Buffer, position: int, end: int) -> Software:
    """Who asks. Anything from version 3 on that `is_proper` does not like is to be refused."""
    body = decode_request(ApiKey.API_VERSIONS, version, data, position, end)
    return Software(body["clientSoftwareName"], body["clientSoftwareVersion"])


def is_proper(version: int, software: Software) -> bool:
    """Letters, digits, dots and dashes, and a letter or digit at either end; anything before version 3."""
    return version < _FIRST_WITH_SOFTWARE or all(_SOFTWARE.fullmatch(part) for part in software)


def encode_api_versions(
    version: int, correlation_id: int, handled: Container[int], features: Features = NO_FEATURES
) -> bytes:
    """The whole frame; `handled` are the keys of the APIs that have a handler."""
    body: StructData = {"apiKeys": _entries(advertised(handled)), **_features(version, features)}
    return encode_response(ApiKey.API_VERSIONS, version, correlation_id, body)


def encode_improper(version: int, correlation_id: int) -> bytes:
    """The whole frame for a client whose software has no proper name."""
    return encode_response(ApiKey.API_VERSIONS, version, correlation_id, {"errorCode": ErrorCode.INVALID_REQUEST})


def encode_unsupported(correlation_id: int) -> bytes:
    """The whole frame for a version that is not served."""
    body = {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "apiKeys": _entries([APIS[ApiKey.API_VERSIONS]])}
    return encode_response(ApiKey.API_VERSIONS, _FALLBACK_VERSION, correlation_id, body)


def _entries(apis: Sequence[Api]) -> list[StructData]:
    return [{"apiKey": api.key, "minVersion": api.advertised_from, "maxVersion": api.max_version} for api in apis]


def _features(version: int, features: Features) -> StructData:
    """Clients of version 3 choke on a lowest level of 0, so Kafka does not tell them of such features."""
    return {
        "supportedFeatures": [
            {"name": name, "minVersion": low, "maxVersion": high}
            for name, (low, high) in features.supported.items()
            if low > 0 or version >= _FIRST_WITH_MIN_VERSION_0
        ],
        "finalizedFeaturesEpoch": features.epoch,
        "finalizedFeatures": [
            {"name": name, "maxVersionLevel": level, "minVersionLevel": level}
            for name, level in features.finalized.items()
            if level > 0
        ],
    }


# FindCoordinator, versions 0 to 6; 3 is the first flexible one. Version 0 can only ask for groups.
#
# The message is Kafka's: "NONE" for no error in versions 1 to 3; from version 4 on always "", unless the type of key is
# unknown.

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
    """NONE for the keys of groups and transactions; muster coordinates nothing else."""
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
