"""Requests and responses as plain dicts, to bytes and back, by the table in `schemas`.

    encode_request("Heartbeat", 4, 17, "client", {"group_id": "g", "generation_id": 1, "member_id": "m"})
    decode_response("Heartbeat", 4, frame)      {"throttle_time_ms": 0, "error_code": 25}

A field that a version does not have is left out on the way in and missing on the way back, whatever the dict says: so
`as_version` shows what is left of an answer in an older version.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.codec.primitives import Reader, Writer
from tests.diff.schemas import SCHEMAS

LATEST = 1_000
NEVER = LATEST + 1


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    """A primitive, `[]` and a primitive, or `[]` alone for an array of structs."""
    versions: range
    nullable: range
    default: Any
    fields: list["Field"]


@dataclass(slots=True)
class Api:
    name: str
    key: int
    first_flexible: int
    last_version: int
    request: list[Field] = field(default_factory=list)
    response: list[Field] = field(default_factory=list)


NO_DEFAULT = object()
DEFAULTS = {"null": None, "false": False}


def _versions(text: str) -> range:
    low, _, high = text.rstrip("+").partition("-")
    return range(int(low), (int(high) if high else LATEST if text.endswith("+") else int(low)) + 1)


def _field(line: str) -> Field:
    name, kind, *rest = line.split()
    versions, nullable, default = range(LATEST), range(0), NO_DEFAULT
    for part in rest:
        if part.startswith("?"):
            nullable = _versions(part[1:])
        elif part.startswith("="):
            default = DEFAULTS[part[1:]] if part[1:] in DEFAULTS else int(part[1:])
        else:
            versions = _versions(part)
    return Field(name, kind, versions, nullable, default, [])


def _apis(text: str) -> Iterator[Api]:
    for block in re.split(r"\n\n+", text.strip()):
        heading, *lines = block.split("\n")
        name, key, flexible, last = heading.split()
        api = Api(name, int(key), NEVER if flexible == "none" else int(flexible), int(last))
        levels: list[list[Field]] = []
        for line in lines:
            if line in (">", "<"):
                levels = [api.request if line == ">" else api.response]
                continue
            depth = (len(line) - len(line.lstrip())) // 2
            del levels[depth:]
            levels[-1].append(_field(line))
            levels.append(levels[-1][-1].fields)
        yield api


APIS = {api.name: api for api in _apis(SCHEMAS)}

_WRITE: dict[str, Callable[[Writer, Any], None]] = {
    "int8": Writer.int8, "int16": Writer.int16, "int32": Writer.int32, "int64": Writer.int64,
    "bool": Writer.boolean, "uuid": Writer.uuid,
}  # fmt: skip
_READ: dict[str, Callable[[Reader], Any]] = {
    "int8": Reader.int8, "int16": Reader.int16, "int32": Reader.int32, "int64": Reader.int64,
    "bool": Reader.boolean, "uuid": Reader.uuid,
}  # fmt: skip


@dataclass(slots=True)
class _Encoder:
    version: int
    flexible: bool
    out: Writer = field(default_factory=Writer)

    def struct(self, fields: list[Field], values: dict[str, Any]) -> None:
        for each in fields:
            if self.version in each.versions:
                value = values[each.name] if each.default is NO_DEFAULT else values.get(each.name, each.default)
                self.value(each, each.kind, value)
        if self.flexible:
            self.out.tagged_fields(())

    def value(self, of: Field, kind: str, value: Any) -> None:
        if value is None and self.version not in of.nullable:
            raise ValueError(f"{of.name} may not be null in version {self.version}")
        out = self.out
        if kind.startswith("[]"):
            count = None if value is None else len(value)
            (out.compact_nullable_array_count if self.flexible else out.nullable_array_count)(count)
            for item in value or ():
                if kind == "[]":
                    self.struct(of.fields, item)
                else:
                    self.value(of, kind[2:], item)
        elif kind == "string":
            (out.compact_nullable_string if self.flexible else out.nullable_string)(value)
        elif kind == "bytes":
            (out.compact_nullable_bytes if self.flexible else out.nullable_bytes)(value)
        else:
            _WRITE[kind](out, value)


@dataclass(slots=True)
class _Decoder:
    version: int
    flexible: bool
    data: Reader

    def struct(self, fields: list[Field]) -> dict[str, Any]:
        values = {each.name: self.value(each, each.kind) for each in fields if self.version in each.versions}
        if self.flexible:
            self.data.tagged_fields()
        return values

    def value(self, of: Field, kind: str) -> Any:
        data = self.data
        if kind.startswith("[]"):
            count = data.compact_nullable_array_count() if self.flexible else data.nullable_array_count()
            if count is None:
                return None
            return [self.struct(of.fields) if kind == "[]" else self.value(of, kind[2:]) for _ in range(count)]
        if kind == "string":
            return data.compact_nullable_string() if self.flexible else data.nullable_string()
        if kind == "bytes":
            return data.compact_nullable_bytes() if self.flexible else data.nullable_bytes()
        return _READ[kind](data)


def encode_request(name: str, version: int, correlation_id: int, client_id: str, body: dict[str, Any]) -> bytes:
    """A whole frame, size and header included."""
    api = APIS[name]
    flexible = version >= api.first_flexible
    encoder = _Encoder(version, flexible)
    for number in (api.key, version):
        encoder.out.int16(number)
    encoder.out.int32(correlation_id)
    encoder.out.nullable_string(client_id)
    if flexible:
        encoder.out.tagged_fields(())
    encoder.struct(api.request, body)
    frame = encoder.out.finish()
    return len(frame).to_bytes(4, "big") + frame


def decode_response(name: str, version: int, frame: bytes) -> dict[str, Any]:
    """The body of a frame that came without its size; raises `ValueError` if it says less or more than it should."""
    api = APIS[name]
    flexible = version >= api.first_flexible
    reader = Reader(frame, 4)
    if flexible:
        reader.tagged_fields()
    body = _Decoder(version, flexible, reader).struct(api.response)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes are left behind a {name} v{version} response")
    return body


def as_version(name: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """What somebody hears who is told this in that version of the protocol."""
    api = APIS[name]
    flexible = version >= api.first_flexible
    encoder = _Encoder(version, flexible)
    encoder.struct(api.response, body)
    return _Decoder(version, flexible, Reader(encoder.out.finish())).struct(api.response)
