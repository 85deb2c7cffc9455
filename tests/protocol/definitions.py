"""Kafka's own message definitions, from its clients' jar, in the terms of `muster.codec.layouts`."""

import json
import re
import zipfile
from typing import Any

from muster.codec.layouts import NO_VERSIONS, Field, Message, Versions
from tests.kit.kafka import Kafka

NO_END = 0x7FFF
SCALARS = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "uint16": 0, "uuid": bytes(16), "string": "",
    "bytes": b"", "records": None,
}  # fmt: skip


def definition(kafka: Kafka, name: str, jar_name: str = "kafka-clients") -> Message:
    """One message, as the release defines it."""
    with zipfile.ZipFile(kafka.libs / f"{jar_name}-{kafka.version}.jar") as jar:
        text = jar.read(f"common/message/{name}.json").decode()
    found = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    common = {struct["name"]: struct["fields"] for struct in found.get("commonStructs", ())}
    valid = _versions(found["validVersions"])
    return Message(name, valid, _versions(found["flexibleVersions"]), _fields(found["fields"], common, valid))


def _versions(text: str) -> Versions:
    if text == "none":
        return NO_VERSIONS
    low, _, high = text.rstrip("+").partition("-")
    return Versions(int(low), NO_END if text.endswith("+") else int(high or low))


def _fields(found: list[dict[str, Any]], common: dict[str, Any], around: Versions) -> tuple[Field, ...]:
    fields = [_field(one, common, around) for one in found]
    return tuple([field for field in fields if field.versions.low <= field.versions.high])


def _field(found: dict[str, Any], common: dict[str, Any], around: Versions) -> Field:
    kind = found["type"].removeprefix("[]")
    is_array = found["type"] != kind
    versions = _within(_versions(found.get("versions", "0+")), around)
    fields: tuple[Field, ...] = ()
    if kind not in SCALARS:
        fields, kind = _fields(found.get("fields") or common[kind], common, versions), "struct"
    if "tag" in found:
        assert _within(_versions(found["taggedVersions"]), around) == versions, "only some versions are tagged"
    return Field(
        found["name"][0].lower() + found["name"][1:],
        kind,
        is_array,
        versions,
        _within(_versions(found.get("nullableVersions", "none")), versions),
        found.get("tag"),
        _default(kind, is_array, found.get("default"), fields),
        fields,
    )


def _within(versions: Versions, around: Versions) -> Versions:
    return Versions(max(versions.low, around.low), min(versions.high, around.high))


def _default(kind: str, is_array: bool, given: Any, fields: tuple[Field, ...]) -> Any:
    if given == "null":
        return None
    if is_array:
        return []
    if kind == "struct":
        return {field.name: field.default for field in fields}
    if given is None:
        return SCALARS[kind]
    if kind == "bool":
        return str(given).lower() == "true"
    return given if kind == "string" else int(str(given), 0)


def limited(message: Message) -> Message:
    """The same with every range of versions cut to what the message has: ranges that mean the same become the same."""
    return Message(
        message.name,
        message.versions,
        _cut(message.flexible, message.versions),
        _limit(message.fields, message.versions),
    )


def _limit(fields: tuple[Field, ...], around: Versions) -> tuple[Field, ...]:
    return tuple(
        [
            Field(
                field.name,
                field.kind,
                field.is_array,
                (versions := _within(field.versions, around)),
                _cut(field.nullable, versions),
                field.tag,
                field.default,
                _limit(field.fields, versions),
            )
            for field in fields
        ]
    )


def _cut(versions: Versions, around: Versions) -> Versions:
    cut = _within(versions, around)
    return cut if cut.low <= cut.high else NO_VERSIONS
