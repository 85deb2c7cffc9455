"""Any message in any version we serve: bytes to a dict and back. For all that is not hot.

    request = decode_request(ApiKey.METADATA, 12, frame, position)    # {"topics": None, "allowAutoTopicCreation": ...}
    answer = encode_response(ApiKey.METADATA, 12, correlation_id, {"brokers": [...], "topics": [...]})

How a dict stands for a message is told in `layout`; the names in it are in `schemas`, one line a field. A layout is
made on first use, an API and a version at a time, which takes a millisecond or two, and kept.

Bytes that are not what they should be are a `WireError`, whatever is wrong with them. Bytes after the end are ignored,
as Kafka ignores them.
"""

from functools import cache
from importlib import import_module
from struct import Struct

from muster.codec.primitives import Buffer, Writer
from muster.errors import CodecError
from muster.protocol.apis import APIS
from muster.protocol.errors import MAX_ELEMENTS, BadBody, BadHeader, NotServed
from muster.protocol.layout import Layout, StructData, WireReader
from muster.protocol.schema import Message, parse_messages

REQUEST, RESPONSE = "Request", "Response"

_RESPONSE_START = Struct(">ii")
_NO_TAGS = b"\x00"


@cache
def messages(module: str) -> dict[str, Message]:
    """All layouts of one module of `schemas`, by name."""
    text: str = import_module(f"muster.protocol.schemas.{module}").MESSAGES
    return parse_messages(text)


@cache
def layout(api_key: int, version: int, direction: str) -> Layout:
    """How a message is laid out; `NotServed` if there is none in that version, also where Kafka once had one."""
    api = APIS.get(api_key)
    if api is None:
        raise NotServed(f"API {api_key} is not known here")
    message = messages(api.schemas)[api.name + direction]
    if version not in message.versions:
        raise NotServed(f"{message.name} has no version {version} here")
    return Layout(message, version)


def decode_request(
    api_key: int,
    version: int,
    data: Buffer,
    position: int = 0,
    end: int | None = None,
    *,
    max_elements: int = MAX_ELEMENTS,
) -> StructData:
    """The body of a request, which begins at `position`: right behind its header."""
    return _decode(layout(api_key, version, REQUEST), WireReader(data, position, end, max_elements))


def encode_response(api_key: int, version: int, correlation_id: int, body: StructData) -> bytes:
    """A whole frame: length, header, body."""
    encoded = _encode(layout(api_key, version, RESPONSE), body)
    if APIS[api_key].response_header_version(version):
        return _RESPONSE_START.pack(len(encoded) + 5, correlation_id) + _NO_TAGS + encoded
    return _RESPONSE_START.pack(len(encoded) + 4, correlation_id) + encoded


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: StructData) -> bytes:
    """A whole frame as a client sends it: for tests, and for talking to others."""
    writer = Writer()
    writer.int16(api_key)
    writer.int16(version)
    writer.int32(correlation_id)
    writer.nullable_string(client_id)
    if APIS[api_key].request_header_version(version) > 1:
        writer.raw(_NO_TAGS)
    writer.raw(_encode(layout(api_key, version, REQUEST), body))
    encoded = writer.finish()
    return len(encoded).to_bytes(4, "big") + encoded


def decode_response(
    api_key: int, version: int, frame: Buffer, *, max_elements: int = MAX_ELEMENTS
) -> tuple[int, StructData]:
    """Correlation id and body of an answer; the frame begins with its length."""
    reader = WireReader(frame, max_elements=max_elements)
    try:
        size = reader.int32()
        if size != reader.remaining:
            raise BadHeader(f"a frame of {size} bytes has {reader.remaining}")
        correlation_id = reader.int32()
        if APIS[api_key].response_header_version(version):
            reader.skip_tagged_fields()
    except CodecError as error:
        raise BadHeader(f"the header of an answer: {error}") from error
    return correlation_id, _decode(layout(api_key, version, RESPONSE), reader)


def _decode(form: Layout, reader: WireReader) -> StructData:
    try:
        return form.read(reader)
    except CodecError as error:
        raise BadBody(f"{form.name} version {form.version}: {error}") from error


def _encode(form: Layout, body: StructData) -> bytes:
    writer = Writer()
    try:
        form.write(writer, body)
    except CodecError as error:
        raise BadBody(f"{form.name} version {form.version}: {error}") from error
    return writer.finish()
