"""ApiVersions, versions 0 to 4: what a client asks before anything else, perhaps in a version from the future.

    request   software_name (3+), software_version (3+)
    response  error, apis: key, min_version, max_version; throttle_time_ms (1+); tagged (3+): supported features,
              epoch of the finalized features, finalized features

Version 3 is the first flexible one, but the header of the answer never is. Two things are answered that would close the
connection elsewhere: a version that is not served gets UNSUPPORTED_VERSION in the form of version 0, with ApiVersions
itself as the one entry, so that the client can ask again; and a client whose software has no proper name gets
INVALID_REQUEST and an empty list.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.codec.primitives import Buffer
from muster.protocol.apis import APIS, Api, ApiKey, advertised
from muster.protocol.messages import decode_request, encode_response

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
    """The whole frame; `handled` are the keys of the APIs that have somebody to answer them."""
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
