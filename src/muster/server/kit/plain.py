"""Values that JSON can hold: bytes are text where they are UTF-8, else `{"base64": ...}`; objects have known keys."""

import base64
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, get_args, get_origin

from muster.errors import ConfigError


def packed(data: bytes | None) -> Any:
    """Bytes as a value of JSON."""
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def unpacked(value: Any, what: str) -> bytes | None:
    """The bytes that a value of JSON means. Raises `ConfigError`."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{what} is not base64: {error}.") from error
    raise ConfigError(f'{what} is {value!r}; it should be text, or {{"base64": "..."}}, or null.')


RECORD_KEYS = ("key", "value", "headers", "partition", "timestamp_ms")
COMMIT_KEYS = ("topic", "partition", "offset", "metadata")


def check_keys(given: Mapping[str, Any], known: Iterable[str], needed: Iterable[str], what: str) -> None:
    """Refuse an object with an unknown key, or without one that is needed. Raises `ConfigError`."""
    known = tuple(known)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{what} is {given!r}; it should be an object of {', '.join(known)}.")
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
            raise ConfigError(f"{what} has no {name!r}. {hint}")
    for name in needed:
        if name not in given:
            raise ConfigError(f"{what} has no {name!r}, and needs one: {dict(given)!r}.")


def whole(value: Any, what: str) -> int:
    """A whole number that is not negative. Raises `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{what} is {value!r}; it should be a whole number from 0 on.")
    return value


def pairs(headers: Any) -> list[tuple[str, Any]]:
    """Headers, given by name or as a list of pairs. Raises `ConfigError`."""
    listed = list(headers.items() if isinstance(headers, Mapping) else headers) if _is_many(headers) else [headers]
    for pair in listed:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ConfigError(f'{pair!r} is no header; headers are written {{"name": "value"}}, or as a list of pairs.')
    return [(name, value) for name, value in listed]


_WORDS = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null",
    Mapping: "an object", Iterable: "a list",
}  # fmt: skip


def check_types(parameters: Mapping[str, Any], arguments: Mapping[str, Any], what: str) -> None:
    """Refuse arguments that are of another type than the annotations of their parameters. Raises `ConfigError`."""
    for name, value in arguments.items():
        annotation = parameters[name]
        of = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        kinds = [get_origin(one) or one for one in of]
        if not any(_is_a(value, kind) for kind in kinds):
            words = " or ".join(_WORDS[kind] for kind in kinds)
            raise ConfigError(f"{what}: {name} is {value!r}; it should be {words}.")


def _is_a(value: Any, kind: Any) -> bool:
    if kind is Iterable:
        return _is_many(value) and not isinstance(value, Mapping)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _is_many(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)
