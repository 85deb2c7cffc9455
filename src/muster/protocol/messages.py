"""Any message in any version of the table: bytes to a dict and back, for servers and for clients.

A server reads requests and writes responses:

    api_key, version, correlation_id, client_id, position = decode_header(frame, 4)
    request = decode_request(ApiKey.METADATA, 12, frame, position)    # {"topics": None, "allowAutoTopicCreation": ...}
    frame = encode_response(ApiKey.METADATA, 12, correlation_id, {"brokers": [...], "topics": [...]})

A client writes requests and reads responses:

    frame = encode_request(ApiKey.METADATA, 12, correlation_id, "my-client", {"topics": None})
    correlation_id, response = decode_response(ApiKey.METADATA, 12, frame)

or, where the length was read before the rest of the frame, and where the records of a Fetch are to stay in the frame:

    correlation_id, position = decode_response_header(ApiKey.FETCH, 12, frame)
    response = decode_response_body(ApiKey.FETCH, 12, frame, position, leaves_records=True)

`muster.codec.layouts` says how a dict stands for a message; its names are those of `schemas`. The layout of an API and
a version is made on first use, which takes a millisecond or two, and kept. Bytes that do not fit are a `WireError`.
Bytes after the end are ignored, as Kafka ignores them.
"""

from functools import cache
from struct import Struct

from muster.codec.layouts import Layout, Message, StructData, parse_messages
from muster.codec.primitives import Buffer, Writer
from muster.errors import CodecError
from muster.protocol.apis import APIS
from muster.protocol.errors import BadBody, BadHeader, NotServed
from muster.protocol.reader import MAX_ELEMENTS, MAX_RESPONSE_ELEMENTS, WireReader
from muster.protocol.schemas import message_texts

REQUEST, RESPONSE = "Request", "Response"

_LENGTH_BYTES = 4
_RESPONSE_START = Struct(">ii")
_NO_TAGS = b"\x00"


@cache
def message(api_key: int, direction: str) -> Message:
    """A message of the table, in all its versions."""
    api = APIS.get(api_key)
    if api is None:
        raise NotServed(f"API {api_key} is not known here")
    name = api.name + direction
    return parse_messages(message_texts()[name])[name]


@cache
def layout(api_key: int, version: int, direction: str) -> Layout:
    """How a message is laid out; `NotServed` if the table does not have that version, even where Kafka once had it."""
    described = message(api_key, direction)
    if version not in described.versions:
        raise NotServed(f"{described.name} has no version {version} here")
    return Layout(described, version)


# Requests.


def decode_request(
    api_key: int,
    version: int,
    data: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    max_elements: int = MAX_ELEMENTS,
    leaves_records: bool = False,
) -> StructData:
    """The body of a request, which begins at `position`: right behind its header (`decode_header`).

    With `leaves_records`, records are not copied: `data[body[...]["records"]]` has them.
    """
    return _decode(layout(api_key, version, REQUEST), WireReader(data, position, end, max_elements, leaves_records))


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: StructData) -> bytes:
    """A whole frame: length, header, body."""
    encoded = _encode(layout(api_key, version, REQUEST), body)
    writer = Writer()
    writer.int16(api_key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    if APIS[api_key].request_header_version(version) > 1:
        writer.raw(_NO_TAGS)
    writer.raw(encoded)
    return writer.position.to_bytes(_LENGTH_BYTES, "big") + writer.finish()


# Responses.


def encode_response(api_key: int, version: int, correlation_id: int, body: StructData) -> bytes:
    """A whole frame: length, header, body."""
    encoded = _encode(layout(api_key, version, RESPONSE), body)
    if APIS[api_key].response_header_version(version):
        return _RESPONSE_START.pack(len(encoded) + 5, correlation_id) + _NO_TAGS + encoded
    return _RESPONSE_START.pack(len(encoded) + 4, correlation_id) + encoded


def decode_response(
    api_key: int, version: int, frame: Buffer, *, max_elements: int = MAX_RESPONSE_ELEMENTS
) -> tuple[int, StructData]:
    """Correlation id and body of a response; the frame begins with its length."""
    size = int.from_bytes(frame[:_LENGTH_BYTES], "big", signed=True)
    if len(frame) < _LENGTH_BYTES or size != len(frame) - _LENGTH_BYTES:
        raise BadHeader(f"a frame of {size} bytes has {len(frame) - _LENGTH_BYTES}")
    correlation_id, position = decode_response_header(api_key, version, frame, _LENGTH_BYTES)
    return correlation_id, decode_response_body(api_key, version, frame, position, max_elements=max_elements)


def decode_response_header(api_key: int, version: int, data: Buffer, position: int = 0) -> tuple[int, int]:
    """Correlation id of a response, and where its body begins; `position` is right behind the length."""
    reader = WireReader(data, position)
    try:
        correlation_id = reader.int32()
        if APIS[api_key].response_header_version(version):
            reader.skip_tagged_fields()
    except CodecError as error:
        raise BadHeader(f"the header of a response: {error}") from error
    return correlation_id, reader.position


def decode_response_body(
    api_key: int,
    version: int,
    data: Buffer,
    position: int,
    *,
    max_elements: int = MAX_RESPONSE_ELEMENTS,
    leaves_records: bool = False,
) -> StructData:
    """The body of a response. With `leaves_records`, records are not copied: `data[body[...]["records"]]` has them."""
    reader = WireReader(data, position, max_elements=max_elements, leaves_records=leaves_records)
    return _decode(layout(api_key, version, RESPONSE), reader)


def _decode(form: Layout, reader: WireReader) -> StructData:
    try:
        return form.read(reader)
    except CodecError as error:
        raise BadBody(f"{form.name} version {form.version}: {error}") from error


def _encode(form: Layout, body: StructData) -> bytearray:
    writer = Writer()
    try:
        form.write(writer, body)
    except CodecError as error:
        raise BadBody(f"{form.name} version {form.version}: {error}") from error
    return writer.finish_uncopied()


# The header of a request, as a server reads it.
#
# Version 0 is the key, the version and the correlation id; version 1 adds the client id; version 2 adds tagged fields,
# none of which mean anything yet. API and version determine the version of the header. The client id has no compact
# form even in version 2, so that ApiVersions can be read before the two sides know each other's versions.

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
