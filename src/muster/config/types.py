"""Kafka's types of settings: text to values and back, with Kafka's own sentences for a text that is no value.

Brokers, topics and `server.properties` share them. A value is taken with blanks around it, a number with a plus sign,
a boolean in any case; a number with underscores, which Python takes, is refused.
"""

import re
from enum import IntEnum
from math import inf, isinf, isnan, nan

Value = bool | int | float | str | tuple[str, ...] | None

_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's `trim` takes off: the space and everything below it."""

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?", re.ASCII)
_SPECIAL = {"NaN": nan, "Infinity": inf, "+Infinity": inf, "-Infinity": -inf}


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


class BadValue(ValueError):
    """The text is no value of its type; says why in Kafka's words."""


def parse_value(kind: ConfigType, text: str) -> Value:
    """The value that a text stands for. Raises `BadValue`."""
    trimmed = text.strip(_BLANKS)
    match kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise BadValue("Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.STRING:
            return trimmed
        case ConfigType.LIST:
            return tuple(re.split(r"\s*,\s*", trimmed)) if trimmed else ()
        case ConfigType.DOUBLE:
            return _parse_double(trimmed)
    number = int(trimmed) if _WHOLE.fullmatch(trimmed) and len(trimmed) < 100 else None
    if number is None or not -(1 << _BITS[kind] - 1) <= number < 1 << _BITS[kind] - 1:
        raise BadValue(f"Not a number of type {kind.name}")
    return number


def _parse_double(text: str) -> float:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not _DECIMAL.fullmatch(text):
        raise BadValue("Not a number of type DOUBLE")
    return float(text.rstrip("fFdD"))


def render_value(value: Value) -> str | None:
    """A value as Kafka writes it; None stays None."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return java_double(value)
    return str(value)


def java_double(number: float) -> str:
    """A double as Java writes it: plain from a thousandth up to ten million, else with one digit and an exponent."""
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    shortest = next(text for text in (f"{number:.{places}e}" for places in range(1, 17)) if float(text) == number)
    digits, _, exponent = shortest.partition("e")
    return f"{digits}E{int(exponent)}"
