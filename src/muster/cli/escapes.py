"""What clients wrote, made safe for a terminal.

A group's name can hold whatever a client sent: an escape sequence that clears the screen or answers in the user's name,
a line break that forges a message, letters that run from right to left. Nothing here is lost: such a character is shown
as its JSON escape.
"""

import re

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL and C1 (U+009B begins an escape sequence by itself), what turns the direction of text, other line breaks, and
halves of surrogate pairs."""
_CONTROLS_BUT_LINES = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_C0 = bytes(set(range(0x20)) - {0x0A})
_IN_UTF8 = re.compile(
    rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)

LONG_BYTES = 1 << 16


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04X}"


def shown(text: str) -> str:
    """One line of text without a character that a terminal would obey."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(_escape, text)


def shown_lines(text: str) -> str:
    """The same for text of several lines, a traceback say."""
    return _CONTROLS_BUT_LINES.sub(_escape, text)


def shown_bytes(lines: bytes) -> bytes:
    """The same for lines in UTF-8; quick where there is nothing to do, which is nearly always.

    JSON stays the JSON it is: there such characters stand in strings only.
    """
    if lines.isascii() and b"\x7f" not in lines and not _has_controls(lines):
        return lines
    return _IN_UTF8.sub(lambda found: f"\\u{ord(found[0].decode()):04X}".encode(), lines)


def _has_controls(lines: bytes) -> bool:
    if len(lines) < LONG_BYTES:
        return len(lines.translate(None, _C0)) != len(lines)
    import numpy as np  # is there already where so much is written, and six times as quick

    return bool(np.count_nonzero(np.frombuffer(lines, np.uint8) < 0x20) != lines.count(b"\n"))


FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_cell(text: str, exact: bool) -> str:
    """A name as a cell. A spreadsheet takes one that begins like a formula for a formula, so an apostrophe stands in
    front of it unless the cell is to be `exact`.
    """
    return text if exact else f"'{shown(text)}" if text.startswith(FORMULA) else shown(text)
