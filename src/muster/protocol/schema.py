"""Kafka's message layouts in a notation of one line a field, and the tree that it is read into.

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
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_INDENT = 2
_NO_END = 0x7FFF
_VERSIONS = re.compile(r"(\d+)(?:-(\d+)|(\+))?")
_EMPTY: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
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
