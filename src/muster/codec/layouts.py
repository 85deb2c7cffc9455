"""Kafka's layouts: a notation of one line a field, the tree it is parsed into, and the interpreter of that tree.

Requests and responses (`muster.protocol.schemas`), the newer records of __consumer_offsets (`group_records`) and the
blobs of the consumer protocol (`consumer_protocol`) are all written in it:

    OffsetCommitRequest 2-10 flexible 8+
      groupId string
      groupInstanceId string 7+ ? =null
      topics []struct
        name string 2-9
        topicId uuid 10+

Two blanks of indentation are one struct deeper. After name and type come, in any order and each only where it says
something: the versions that have the field (`7+`, `2-9`, `5`; without them those of the struct around it), the versions
in which it may be null (`?` all of them, `?2-7` some), its tag (`#0`; the field is then in the tagged section), and the
default if it is not zero, false or empty (`=-1`, `=null`). The names are those of Kafka's JSON.

A `Layout` is one version of a message, turned into a row of functions. It reads and writes a struct as a dict with
Kafka's field names. Reading gives every field of the message, whatever the version: those that the version does not
have hold their default. Writing takes any part of them: what is missing is written as its default, and what the version
does not have is left out, so the caller need not know versions. A name that no version knows is a mistake of the
caller's and a `TypeError`.

Arrays are lists, uuids 16 bytes, times plain numbers, text as `primitives` has it. Known tagged fields at their default
are not written, as in Kafka. Mind that the default of a nullable tagged field is empty, not null, unless the notation
says `=null`: null is written out then, as in `classicMemberMetadata` of every member of the consumer protocol. Unknown
tagged fields are skipped, as in Kafka; a layout that `keeps_tags` keeps them under `UNKNOWN_TAGS` and writes them back.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from muster.codec.primitives import Reader, Writer
from muster.errors import Malformed, Truncated

# The notation.

_INDENT = 2
_NO_END = 0x7FFF
_VERSIONS = re.compile(r"(\d+)(?:-(\d+)|(\+))?")
_EMPTY: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": None,
}


@dataclass(frozen=True, slots=True)
class Versions:
    """A range, both ends included."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message; `kind` is a scalar's name or "struct", `fields` those of a struct."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    fields: tuple["Field", ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


def parse_messages(text: str) -> dict[str, Message]:
    """All messages of a text, by name. A line that makes no sense is a mistake of ours, and a `ValueError`."""
    messages = {}
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, versions, word, flexible = head.split()
        if word != "flexible":
            raise ValueError(f"not the first line of a message: {head}")
        valid = _versions(versions)
        fields = _fields([(len(line) - len(line.lstrip()), line.split()) for line in lines], _INDENT, valid)
        messages[name] = Message(name, valid, NO_VERSIONS if flexible == "none" else _versions(flexible), fields)
    return messages


def _versions(text: str) -> Versions:
    match = _VERSIONS.fullmatch(text)
    if match is None:
        raise ValueError(f"not a range of versions: {text}")
    low, high, is_open = match.groups()
    return Versions(int(low), _NO_END if is_open else int(high or low))


def _fields(lines: list[tuple[int, list[str]]], indent: int, around: Versions) -> tuple[Field, ...]:
    return tuple([_field(words, inside, indent, around) for words, inside in _split(lines, indent)])


def _split(lines: list[tuple[int, list[str]]], indent: int) -> Iterator[tuple[list[str], list[tuple[int, list[str]]]]]:
    """Each line of this depth with the deeper ones that follow it."""
    starts = [number for number, (depth, _) in enumerate(lines) if depth == indent]
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start][1], lines[start + 1 : end]


def _field(words: list[str], inside: list[tuple[int, list[str]]], indent: int, around: Versions) -> Field:
    name, kind, *marks = words
    versions, nullable, tag, default = around, "", None, None
    for mark in marks:
        match mark[0]:
            case "?":
                nullable = mark
            case "#":
                tag = int(mark[1:])
            case "=":
                default = mark[1:]
            case _:
                versions = _versions(mark)
    is_array, base = kind.startswith("[]"), kind.removeprefix("[]")
    fields = _fields(inside, indent + _INDENT, versions)
    return Field(
        name,
        base,
        is_array,
        versions,
        versions if nullable == "?" else _versions(nullable[1:]) if nullable else NO_VERSIONS,
        tag,
        _default(base, is_array, default, fields),
        fields,
    )


def _default(kind: str, is_array: bool, text: str | None, fields: tuple[Field, ...]) -> Any:
    """What stands for a field that is not there; arrays and structs are made anew for each use, by `fresh`."""
    if text == "null":
        return None
    if is_array:
        return []
    if kind == "struct":
        return {field.name: field.default for field in fields}
    if kind not in _EMPTY:
        raise ValueError(f"no such type: {kind}")
    if text is None:
        return _EMPTY[kind]
    if kind == "bool":
        return text == "true"
    return text if kind == "string" else int(text)


# The interpreter.

StructData = dict[str, Any]
Read = Callable[[Reader], Any]
Write = Callable[[Writer, Any], None]

UNKNOWN_TAGS = "_unknownTags"

_FIXED: dict[str, tuple[Read, Write]] = {
    "bool": (Reader.boolean, Writer.boolean),
    "int8": (Reader.int8, Writer.int8),
    "int16": (Reader.int16, Writer.int16),
    "int32": (Reader.int32, Writer.int32),
    "int64": (Reader.int64, Writer.int64),
    "uint16": (Reader.uint16, Writer.uint16),
    "uuid": (Reader.uuid, Writer.uuid),
}
# By (is flexible, may be null).
_STRINGS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.string, Writer.string),
    (False, True): (Reader.nullable_string, Writer.nullable_string),
    (True, False): (Reader.compact_string, Writer.compact_string),
    (True, True): (Reader.compact_nullable_string, Writer.compact_nullable_string),
}
_BYTES: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.bytes_, Writer.bytes_),
    (False, True): (Reader.nullable_bytes, Writer.nullable_bytes),
    (True, False): (Reader.compact_bytes, Writer.compact_bytes),
    (True, True): (Reader.compact_nullable_bytes, Writer.compact_nullable_bytes),
}
# Kafka has no field of records that may not be null.
_RECORDS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, True): (Reader.nullable_records, Writer.nullable_bytes),
    (True, True): (Reader.compact_nullable_records, Writer.compact_nullable_bytes),
}
_VARIABLE = {"string": _STRINGS, "bytes": _BYTES, "records": _RECORDS}
_COUNTS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.array_count, Writer.array_count),
    (False, True): (Reader.nullable_array_count, Writer.nullable_array_count),
    (True, False): (Reader.compact_array_count, Writer.compact_array_count),
    (True, True): (Reader.compact_nullable_array_count, Writer.compact_nullable_array_count),
}
# The commonest array, read and written as a whole.
_INT32S: dict[bool, tuple[Read, Write]] = {
    False: (lambda reader: list(reader.int32_array()), Writer.int32_array),
    True: (lambda reader: list(reader.compact_int32_array()), Writer.compact_int32_array),
}


class Repeated(StructData):
    """A struct that stands several times in one message: it is encoded once."""

    __slots__ = ("encoded",)

    def __init__(self, data: StructData) -> None:
        super().__init__(data)
        self.encoded: bytes | None = None


class Layout:
    """A whole message in one version."""

    __slots__ = ("_read", "_write", "is_flexible", "message", "version")

    def __init__(self, message: Message, version: int, *, keeps_tags: bool = False) -> None:
        assert version in message.versions
        self.message = message
        self.version = version
        self.is_flexible = version in message.flexible
        self._read, self._write = _Compiler(version, self.is_flexible, keeps_tags).struct(message.fields)

    @property
    def name(self) -> str:
        return self.message.name

    def read(self, reader: Reader) -> StructData:
        return self._read(reader)  # type: ignore[no-any-return]

    def write(self, writer: Writer, body: StructData) -> None:
        self._write(writer, body)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Makes a reading and a writing function of every field; what differs between two layouts is in its fields."""

    version: int
    is_flexible: bool
    keeps_tags: bool

    def struct(self, fields: tuple[Field, ...]) -> tuple[Read, Write]:
        present = [field for field in fields if self.version in field.versions]
        plain = [(field.name, field.default, *self._field(field)) for field in present if field.tag is None]
        reads = [(name, read) for name, _, read, _ in plain]
        writes = [(name, default, write) for name, default, _, write in plain]
        tagged = {field.tag: (field, *self._field(field)) for field in present if field.tag is not None}
        by_tag = dict(sorted(tagged.items()))
        defaults = [(field.name, field.default) for field in fields if field not in present or field.tag is not None]
        names = frozenset([*(field.name for field in fields), *([UNKNOWN_TAGS] if self.keeps_tags else ())])
        is_flexible, keeps_tags = self.is_flexible, self.keeps_tags

        def read_struct(reader: Reader) -> StructData:
            data = {name: read(reader) for name, read in reads}
            for name, default in defaults:
                data[name] = _fresh(default)
            if is_flexible:
                for _ in range(reader.tagged_field_count()):
                    read_tagged(reader, data)
                if UNKNOWN_TAGS in data:
                    data[UNKNOWN_TAGS] = tuple(data[UNKNOWN_TAGS])
            return data

        def read_tagged(reader: Reader, data: StructData) -> None:
            tag, size = reader.uvarint(), reader.uvarint()
            if tag in by_tag:
                field, read, _ = by_tag[tag]
                if size > reader.remaining:
                    raise Truncated(
                        f"{size} bytes of {field.name} at byte {reader.position}, {reader.remaining} are left"
                    )
                end = reader.position + size
                data[field.name] = read(reader)
                if reader.position != end:
                    raise Malformed(f"{field.name}, tagged {tag}, should end at byte {end}, not {reader.position}")
            elif keeps_tags:
                data.setdefault(UNKNOWN_TAGS, []).append((tag, reader.raw(size)))
            else:
                reader.skip(size)

        def write_struct(writer: Writer, body: StructData) -> None:
            if type(body) is Repeated:
                if body.encoded is None:
                    once = Writer()
                    write_struct(once, dict(body))
                    body.encoded = once.finish()
                writer.raw(body.encoded)
                return
            if not body.keys() <= names:
                raise TypeError(f"no such field: {', '.join(sorted(body.keys() - names))}")
            for name, default, write in writes:
                write(writer, body.get(name, default))
            if is_flexible:
                write_tagged(writer, body)

        def write_tagged(writer: Writer, body: StructData) -> None:
            payloads = list(body.get(UNKNOWN_TAGS, ()))
            for tag, (field, _, write) in by_tag.items():
                value = _completed(body.get(field.name, field.default), field.default)
                if value != field.default:
                    payload = Writer()
                    write(payload, value)
                    payloads.append((tag, payload.finish()))
            writer.tagged_fields(tuple(payloads))

        return read_struct, write_struct

    def _field(self, field: Field) -> tuple[Read, Write]:
        is_nullable = self.version in field.nullable
        if not field.is_array:
            return self._single(field, is_nullable)
        if field.kind == "int32" and not is_nullable:
            return _INT32S[self.is_flexible]
        return _array(self._single(field, is_nullable=False), _COUNTS[self.is_flexible, is_nullable])

    def _single(self, field: Field, is_nullable: bool) -> tuple[Read, Write]:
        if field.kind == "struct":
            struct = self.struct(field.fields)
            return _nullable_struct(struct, is_tagged=field.tag is not None) if is_nullable else struct
        if field.kind in _FIXED:
            return _FIXED[field.kind]
        return _VARIABLE[field.kind][self.is_flexible, is_nullable]


def _fresh(default: Any) -> Any:
    """A default of the reader's own, which it may change."""
    if type(default) is list:
        return []
    if type(default) is dict:
        return {name: _fresh(value) for name, value in default.items()}
    return default


def _completed(value: Any, default: Any) -> Any:
    """A struct with its missing fields filled in, so that it can be compared with the default."""
    return {**default, **value} if type(value) is dict and type(default) is dict else value


def _array(element: tuple[Read, Write], count: tuple[Read, Write]) -> tuple[Read, Write]:
    read, write = element
    read_count, write_count = count

    def read_array(reader: Reader) -> list[Any] | None:
        size = read_count(reader)
        return None if size is None else [read(reader) for _ in range(size)]

    def write_array(writer: Writer, values: list[Any] | None) -> None:
        if values is None:
            write_count(writer, None)
            return
        write_count(writer, len(values))
        for value in values:
            write(writer, value)

    return read_array, write_array


def _nullable_struct(struct: tuple[Read, Write], is_tagged: bool) -> tuple[Read, Write]:
    """KIP-893: an int8 before the struct, negative for null; in the tagged section a varint instead, zero for null."""
    read, write = struct

    def read_nullable(reader: Reader) -> StructData | None:
        is_null = reader.uvarint() == 0 if is_tagged else reader.int8() < 0
        return None if is_null else read(reader)

    def write_nullable(writer: Writer, value: StructData | None) -> None:
        if value is None:
            writer.int8(0 if is_tagged else -1)
            return
        writer.int8(1)
        write(writer, value)

    return read_nullable, write_nullable
