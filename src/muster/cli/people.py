"""Values as people read them: members by their names, times as times; and text that is safe for a terminal.

A group's name can hold anything a client sent: an escape sequence that clears the screen or answers in the user's name,
a line break that forges a message, letters that run from right to left. Nothing of it is lost: such a character is
shown as its JSON escape.
"""

import re
from collections import Counter
from collections.abc import Iterable

from muster.extras import COLUMNS, is_installed
from muster.tables import clocks

_UNIQUE = re.compile(r"-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$")
"""What a broker adds to a client's name to make a member id of it."""
UNIQUE_LETTERS = 4


def short_members(member_ids: Iterable[str]) -> dict[str, str]:
    """Member ids without their unique part. Where two would look the same, a bit of it is left: `rdkafka-3f2a…`."""
    unique = {member_id: _UNIQUE.search(member_id) for member_id in dict.fromkeys(member_ids)}
    names = {member_id: member_id[: found.start()] if found else member_id for member_id, found in unique.items()}
    alike = Counter(names[member_id] for member_id, found in unique.items() if found)
    return {
        member_id: f"{name}-{found[1][:UNIQUE_LETTERS]}…" if found and alike[name] > 1 else name
        for (member_id, name), found in zip(names.items(), unique.values(), strict=True)
    }


def shown_time(timestamp_ms: int | None, *, with_year: bool = True) -> str:
    """To the second, by the clock on the wall here; times that no calendar has are shown as the number they are."""
    if timestamp_ms is None:
        return ""
    time = clocks.calendar_time(timestamp_ms, "%Y-%m-%d %H:%M:%S" if with_year else "%m-%d %H:%M:%S")
    return str(timestamp_ms) if time is None else time


def shown_moment(time_ms: int | None) -> str:
    """To the second, with its zone."""
    return "" if time_ms is None else clocks.shown(time_ms)


def shown_duration(length_ms: int) -> str:
    """`0.3 s`, `12 min 28 s`, `3 h 5 min`, `2 d 4 h`: two units, as people say it."""
    if length_ms < 0:
        return f"-{shown_duration(-length_ms)}"
    if length_ms < 60_000:
        return f"{length_ms / 1000:.1f} s"
    seconds = length_ms // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    for whole, unit, rest, lesser in (
        (days, "d", hours % 24, "h"), (hours, "h", minutes % 60, "min"), (minutes, "min", seconds % 60, "s"),
    ):  # fmt: skip
        if whole:
            return f"{whole:,} {unit} {rest} {lesser}" if rest else f"{whole:,} {unit}"
    raise AssertionError("a minute at least")


def counted(number: int, thing: str) -> str:
    """`1 record`, `4,210 records`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


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
    if len(lines) < LONG_BYTES or not is_installed(COLUMNS):
        return len(lines.translate(None, _C0)) != len(lines)
    import numpy as np  # is there already where so much is written, and six times as quick

    data = np.frombuffer(lines, np.uint8)
    return bool(np.count_nonzero(data < 0x20) != np.count_nonzero(data == 0x0A))


FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_cell(text: str, exact: bool) -> str:
    """A name as a cell. A spreadsheet takes one that begins like a formula for a formula, so an apostrophe stands in
    front of it unless the cell is to be `exact`.
    """
    return text if exact else f"'{shown(text)}" if text.startswith(FORMULA) else shown(text)
