"""Which times are believed. Whoever writes a record stamps it: one that counts in microseconds is of the year 58000.

No clock is trusted alone, that of this machine included. A time is not believed where what stands behind it in the log
is far earlier, or where it is far ahead of now while others are not.
"""

from datetime import UTC, datetime

AHEAD_MS = 3_600_000
"""How far clocks may differ, and step back."""


def is_ahead(time_ms: int, other_ms: int) -> bool:
    """Whether a time is so much later than another that clocks do not explain it."""
    return time_ms > other_ms + AHEAD_MS


def shown(time_ms: int) -> str:
    """A time for people; the number where it is beyond all calendars."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
