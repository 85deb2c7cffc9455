"""Requests and responses by Kafka's own message definitions, which its clients' jar carries as JSON.

The judge of our codec: it shares nothing with it but the primitives. Messages are dicts with Kafka's field names.

    judge = Messages(require_kafka())
    body = judge.encode_request("Metadata", 13, {"Topics": None})          absent fields take Kafka's defaults
    judge.decode_response("Metadata", 13, body)                            {"ThrottleTimeMs": 0, "Brokers": [...], ...}
"""

import json
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from muster.codec.primitives import Reader, Writer
from tests.kit.kafka import Kafka

Schema = dict[str, Any]
NO_UUID = bytes(16)
ZEROS = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": NO_UUID}
LATEST = 1_000


def versions(text: str) -> range:
    if text == "none":
        return range(0)
    low, _, high = text.rstrip("+").partition("-")
    return range(int(low), (int(high) if high else LATEST if text.endswith("+") else int(low)) + 1)


def default_of(field: Schema) -> Any:
    """What Kafka takes a field for that nobody set."""
    given = field.get("default")
    kind: str = field["type"]
    if kind.startswith("[]"):
        return None if given == "null" else []
    if given is None:
        return ZEROS.get(kind, 0)
    if given == "null":
        return None
    return given if kind == "string" else given == "true" if kind == "bool" else int(str(given), 0)


class Messages:
    """Encodes and decodes any message of one Kafka release."""

    def __init__(self, kafka: Kafka) -> None:
        self._jar = kafka.libs / f"kafka-clients-{kafka.version}.jar"
        self._schemas: dict[str, Schema] = {}

    def schema(self, name: str) -> Schema:
        if name not in self._schemas:
            with zipfile.ZipFile(self._jar) as jar:
                text = jar.read(f"common/message/{name}.json").decode()
            self._schemas[name] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
        return self._schemas[name]

    def api_key(self, api: str) -> int:
        return int(self.schema(f"{api}Request")["apiKey"])

    def served(self, api: str) -> range:
        """The versions this release takes."""
        return versions(self.schema(f"{api}Request")["validVersions"])

    def is_flexible(self, name: str, version: int) -> bool:
        return version in versions(self.schema(name)["flexibleVersions"])

    def encode_request(self, api: str, version: int, message: Mapping[str, Any]) -> bytes:
        return self._encode(f"{api}Request", version, message)

    def decode_request(self, api: str, version: int, body: bytes) -> dict[str, Any]:
        return self._decode(f"{api}Request", version, body)

    def encode_response(self, api: str, version: int, message: Mapping[str, Any]) -> bytes:
        return self._encode(f"{api}Response", version, message)

    def decode_response(self, api: str, version: int, body: bytes) -> dict[str, Any]:
        return self._decode(f"{api}Response", version, body)

    def frame(self, api: str, version: int, correlation_id: int, body: bytes) -> bytes:
        """A request with its header and its size in front."""
        header = Writer()
        header.int16(self.api_key(api))
        header.int16(version)
        header.int32(correlation_id)
        header.nullable_string("judge")
        if self.is_flexible(f"{api}Request", version):
            header.uvarint(0)
        frame = header.finish() + body
        return len(frame).to_bytes(4, "big") + frame

    def body_of(self, api: str, version: int, frame: bytes) -> bytes:
        """A response frame without its header."""
        reader = Reader(frame, 4)
        if self.is_flexible(f"{api}Response", version):
            reader.tagged_fields()
        return frame[reader.position :]

    def _encode(self, name: str, version: int, message: Mapping[str, Any]) -> bytes:
        schema = self.schema(name)
        out = Writer()
        _Encoder(schema, version, self.is_flexible(name, version), out).struct(schema["fields"], message)
        return out.finish()

    def _decode(self, name: str, version: int, body: bytes) -> dict[str, Any]:
        schema = self.schema(name)
        reader = Reader(body)
        message = _Decoder(schema, version, self.is_flexible(name, version), reader).struct(schema["fields"])
        assert not reader.remaining, f"{reader.remaining} bytes are left behind {name} v{version}"
        return message


class _Walk:
    def __init__(self, schema: Schema, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.common = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}

    def fields_of(self, field: Schema, kind: str) -> list[Schema] | None:
        """The fields of a struct type; None for a primitive."""
        if "fields" in field and kind[0].isupper():
            return field["fields"]  # type: ignore[no-any-return]
        return self.common.get(kind)

    def tagged(self, field: Schema) -> bool:
        return self.version in versions(field.get("taggedVersions", "none"))

    def nullable(self, field: Schema) -> bool:
        return self.version in versions(field.get("nullableVersions", "none"))

    def has(self, field: Schema) -> bool:
        return self.version in versions(field["versions"])


class _Encoder(_Walk):
    def __init__(self, schema: Schema, version: int, flexible: bool, out: Writer) -> None:
        super().__init__(schema, version, flexible)
        self.schema = schema
        self.out = out

    def struct(self, fields: list[Schema], values: Mapping[str, Any]) -> None:
        unknown = set(values) - {field["name"] for field in fields}
        assert not unknown, f"{self.schema['name']} has no {unknown}"
        tagged = []
        for field in fields:
            if not self.has(field):
                continue
            value = values.get(field["name"], default_of(field))
            if not self.tagged(field):
                self.value(field, field["type"], value)
            elif field["name"] in values:
                inner = _Encoder(self.schema, self.version, self.flexible, Writer())
                inner.value(field, field["type"], value)
                tagged.append((field["tag"], inner.out.finish()))
        if self.flexible:
            self.out.tagged_fields(tuple(tagged))

    def value(self, field: Schema, kind: str, value: Any) -> None:
        out, flexible = self.out, self.flexible
        struct = self.fields_of(field, kind)
        if kind.startswith("[]"):
            (out.compact_nullable_array_count if flexible else out.nullable_array_count)(
                None if value is None else len(value)
            )
            for item in value or ():
                self.value({**field, "nullableVersions": "none"}, kind[2:], item)
        elif struct is not None:
            if self.nullable(field):
                out.int8(-1 if value is None else 1)
            if value is not None:
                self.struct(struct, value)
        elif kind == "string":
            (out.compact_nullable_string if flexible else out.nullable_string)(value)
        elif kind in ("bytes", "records"):
            (out.compact_nullable_bytes if flexible else out.nullable_bytes)(value)
        else:
            getattr(out, {"bool": "boolean"}.get(kind, kind))(value)


class _Decoder(_Walk):
    def __init__(self, schema: Schema, version: int, flexible: bool, reader: Reader) -> None:
        super().__init__(schema, version, flexible)
        self.schema = schema
        self.reader = reader

    def struct(self, fields: list[Schema]) -> dict[str, Any]:
        values = {}
        for field in fields:
            if self.has(field) and not self.tagged(field):
                values[field["name"]] = self.value(field, field["type"])
        if self.flexible:
            by_tag = {field["tag"]: field for field in fields if self.has(field) and self.tagged(field)}
            for tag, data in self.reader.tagged_fields():
                field = by_tag[tag]
                values[field["name"]] = _Decoder(self.schema, self.version, True, Reader(data)).value(
                    field, field["type"]
                )
        return values

    def value(self, field: Schema, kind: str) -> Any:
        reader, flexible = self.reader, self.flexible
        struct = self.fields_of(field, kind)
        value: Any
        if kind.startswith("[]"):
            count = reader.compact_nullable_array_count() if flexible else reader.nullable_array_count()
            if count is not None:
                inner = {**field, "nullableVersions": "none"}
                return [self.value(inner, kind[2:]) for _ in range(count)]
            value = None
        elif struct is not None:
            value = None if self.nullable(field) and reader.int8() < 0 else self.struct(struct)
        elif kind == "string":
            value = reader.compact_nullable_string() if flexible else reader.nullable_string()
        elif kind in ("bytes", "records"):
            value = reader.compact_nullable_bytes() if flexible else reader.nullable_bytes()
        else:
            return getattr(reader, {"bool": "boolean"}.get(kind, kind))()
        assert value is not None or self.nullable(field), f"{field['name']} is null and may not be"
        return value
