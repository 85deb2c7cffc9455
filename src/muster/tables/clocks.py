"""Which times are believed. The writer of a record stamps it: one that counts in microseconds is of the year 58000.

No clock is trusted alone, that of this machine included. A time is not believed where what stands behind it in the log
is far earlier, or where it is far ahead of now while others are not.
"""

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
