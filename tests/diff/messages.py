"""Requests and responses as plain dicts, to bytes and back by the layouts of `muster.protocol`.

    encode_request("Heartbeat", 4, 17, "client", {"group_id": "g", "generation_id": 1, "member_id": "m"})
    decode_response("Heartbeat", 4, frame)      {"throttle_time_ms": 0, "error_code": 25}

Names are in Python's manner: `group_id`, not `groupId`. A field that a version does not have is left out on the way in
and missing on the way back, whatever the dict says: so `as_version` shows what is left of an answer in an older
version. The layouts are compared with Kafka's own, and with `kio`, in `tests/protocol`.
"""

import re
from functools import cache
from typing import Any

from muster.codec.layouts import Field
from muster.codec.primitives import Writer
from muster.protocol import messages
from muster.protocol.apis import APIS as BY_KEY
from muster.protocol.messages import REQUEST, RESPONSE, decode_response_header, layout
from muster.protocol.reader import WireReader

APIS = {api.name: api for api in BY_KEY.values()}
EMPTY = (0, "", b"", [])
OPTIONAL = {"throttle_time_ms", "require_stable", "include_authorized_operations", "validate_only"}
"""Fields that scripts and answers may leave out, although their default is only zero or false."""


def encode_request(name: str, version: int, correlation_id: int, client_id: str, body: dict[str, Any]) -> bytes:
    """A whole frame, size and header included."""
    key = APIS[name].key
    request = _kafkas(layout(key, version, REQUEST).message.fields, version, body)
    return messages.encode_request(key, version, correlation_id, client_id, request)


def decode_response(name: str, version: int, frame: bytes) -> dict[str, Any]:
    """The body of a frame that came without its size; raises `ValueError` if it says more than it should."""
    _, position = decode_response_header(APIS[name].key, version, frame)
    return _decoded(name, version, WireReader(frame, position))


def as_version(name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """What a client is told by this answer in that version of the protocol."""
    form = layout(APIS[name].key, version, RESPONSE)
    writer = Writer()
    form.write(writer, _kafkas(form.message.fields, version, body))
    return _decoded(name, version, WireReader(writer.finish()))


def _decoded(name: str, version: int, reader: WireReader) -> dict[str, Any]:
    form = layout(APIS[name].key, version, RESPONSE)
    body = form.read(reader)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes are left behind a {name} v{version} response")
    return _pythons(form.message.fields, version, body)


def _kafkas(fields: tuple[Field, ...], version: int, body: dict[str, Any]) -> dict[str, Any]:
    """The same with Kafka's names. A field that has no default but zero must be given, else it is a `KeyError`."""
    named = {}
    for field in fields:
        name = snake(field.name)
        must_be_given = field.tag is None and field.default in EMPTY and name not in OPTIONAL
        if version in field.versions and (name in body or must_be_given):
            named[field.name] = _each(field, body[name], lambda inner, struct: _kafkas(inner, version, struct))
    return named


def _pythons(fields: tuple[Field, ...], version: int, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that the version has, with names in Python's manner; tagged ones are left out."""
    return {
        snake(field.name): _each(field, body[field.name], lambda inner, struct: _pythons(inner, version, struct))
        for field in fields
        if version in field.versions and field.tag is None
    }


def _each(field: Field, value: Any, convert: Any) -> Any:
    if field.kind != "struct" or value is None:
        return value
    return [convert(field.fields, one) for one in value] if field.is_array else convert(field.fields, value)


@cache
def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
