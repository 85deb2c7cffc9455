"""The header of a request as a server reads it: API, version, correlation id, client id.

Version 0 is the key, the version and the correlation id; version 1 adds the client id; version 2 adds tagged fields,
none of which mean anything yet. API and version determine the version of the header. The client id has no compact form
even in version 2, so that ApiVersions can be read before the two sides know each other's versions.
"""

from struct import Struct

from muster.codec.primitives import Buffer
from muster.errors import CodecError
from muster.protocol.apis import APIS
from muster.protocol.errors import BadHeader, NotServed
from muster.protocol.reader import WireReader

Header = tuple[int, int, int, str, int]
"""API key, version, correlation id, client id, and where the body begins. A plain tuple: one is made per request."""

_START = Struct(">hhih")
_HAS_CLIENT_ID, _HAS_TAGS = 1, 2
_MIN_VERSION, _MAX_VERSION = 0, 2


def decode_header(data: Buffer, position: int = 0, end: int | None = None) -> Header:
    """The header of a frame, of which `position` is the first byte after the length.

    A client id of null is "", as it is to Kafka. The version need not be one we serve: ApiVersions is answered whatever
    the version. An unknown API key is `NotServed`, since not even the form of its header is known.
    """
    if end is None:
        end = len(data)
    start = position + _START.size
    if start <= end:
        api_key, version, correlation_id, size = _START.unpack_from(data, position)
        api = APIS.get(api_key)
        if api is not None and size >= 0:
            body = start + size
            # Read past the end of the frame it would be the byte of another, and the comparison below says so.
            if version >= api.flexible_from:
                is_plain = body < end and data[body] == 0
                body += 1
            else:
                is_plain = True
            if is_plain and body <= end:
                return (
                    api_key,
                    version,
                    correlation_id,
                    str(data[start : start + size], "utf-8", "surrogateescape"),
                    body,
                )
    return _decode_slowly(data, position, end)


def _decode_slowly(data: Buffer, position: int, end: int) -> Header:
    """Null client ids, tagged fields, and everything that is wrong."""
    reader = WireReader(data, position, end)
    try:
        api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    except CodecError as error:
        raise BadHeader(f"the header of a request: {error}") from error
    api = APIS.get(api_key)
    if api is None:
        raise NotServed(f"API {api_key} is not known here")
    client_id = decode_rest(reader, api.request_header_version(version))
    return api_key, version, correlation_id, client_id, reader.position


def decode_rest(reader: WireReader, header_version: int) -> str:
    """What follows the correlation id, in any of the three versions of the header; returns the client id."""
    assert _MIN_VERSION <= header_version <= _MAX_VERSION
    client_id: str | None = None
    try:
        if header_version >= _HAS_CLIENT_ID:
            client_id = reader.nullable_string()
        if header_version >= _HAS_TAGS:
            reader.skip_tagged_fields()
    except CodecError as error:
        raise BadHeader(f"the header of a request: {error}") from error
    return client_id or ""
