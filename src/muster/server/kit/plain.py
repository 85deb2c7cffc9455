"""Bytes as values that JSON can hold: text where they are UTF-8, else `{"base64": ...}`."""

import base64
from typing import Any

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
