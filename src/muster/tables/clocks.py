"""Which times are believed. The writer of a record stamps it: one that counts in microseconds is of the year 58000.

No clock is trusted alone, that of this machine included. A time is not believed where what stands behind it in the log
is far earlier, or where it is far ahead of now while others are not.

`parse_time` reads the moments that people write.
"""

import re
from datetime import UTC, datetime

AHEAD_MS = 3_600_000
"""How far clocks may differ, and step back."""


def is_ahead(time_ms: int, other_ms: int) -> bool:
    """Whether a time is so much later than another that clocks do not explain it."""
    return time_ms > other_ms + AHEAD_MS


def calendar_time(time_ms: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str | None:
    """A time in UTC, to the second; None where it is beyond all calendars."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return None


def shown(time_ms: int) -> str:
    """A time for people; the number where it is beyond all calendars."""
    time = calendar_time(time_ms)
    return f"{time_ms} ms" if time is None else f"{time} UTC"


_UNITS = {
    1: ("ms", "millisecond", "milliseconds"),
    1000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hr", "hrs", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
    604_800_000: ("w", "week", "weeks"),
}
UNIT_MS = {word: unit_ms for unit_ms, words in _UNITS.items() for word in words}
AGO = re.compile(rf"(\d+)\s*({'|'.join(UNIT_MS)})(?:\s+ago)?")
FEWEST_DIGITS_OF_MS = 11
"""Epoch milliseconds since 1973; fewer digits are a date such as 20260131, or seconds by mistake."""


def parse_time(text: str, now_ms: int) -> int:
    """Epoch milliseconds of a date, a time (UTC unless it has a zone), a number of ms, or how long ago: `2h`, `5 min`.

    Raises ValueError with a sentence.
    """
    text = text.strip()
    ago = AGO.fullmatch(text)
    if ago:
        return now_ms - int(ago[1]) * UNIT_MS[ago[2]]
    if text.isdigit() and len(text) >= FEWEST_DIGITS_OF_MS:
        return int(text)
    try:
        if text.isdigit() and len(text) != len("20260131"):
            raise ValueError(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is not a time. Write 2026-01-31, 2026-01-31T12:30, 1794805709859 (milliseconds), or how long "
            "ago: 90s, 5 min, 2h, 3 days, 1w"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
