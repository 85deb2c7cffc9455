"""Which times are believed. The writer of a record stamps it: one that counts in microseconds is of the year 58000.

No clock is trusted alone, that of this machine included. A time is not believed where what stands behind it in the log
is far earlier, or where it is far ahead of now while others are not.

`parse_time` reads the moments that people write.
"""

import re
import time
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as clock_time

AHEAD_MS = 3_600_000
"""How far clocks may differ, and step back."""


def is_ahead(time_ms: int, other_ms: int) -> bool:
    """Whether a time is so much later than another that clocks do not explain it."""
    return time_ms > other_ms + AHEAD_MS


def calendar_time(time_ms: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str | None:
    """A time by the clock on the wall here, to the second; None where it is beyond all calendars."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return None


def shown(time_ms: int) -> str:
    """A time for people, with its zone; the number where it is beyond all calendars."""
    return calendar_time(time_ms, "%Y-%m-%d %H:%M:%S %Z") or f"{time_ms} ms"


def iso_time(time_ms: int) -> str:
    """For programs, and as `parse_time` takes it: 2026-11-17T08:33:04.123Z; the number where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def zone_name() -> str:
    """How times without a zone are to be read here: `UTC`, or `CET/CEST` where clocks are changed."""
    return "/".join(dict.fromkeys(time.tzname))


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
DAYS_BACK = {"today": 0, "yesterday": 1}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NAMED_DAY = re.compile(rf"(?:({'|'.join(DAYS_BACK)})|(?:last\s+)?({'|'.join(WEEKDAYS)}))(?:\s+(.*))?", re.IGNORECASE)
CLOCK = re.compile(r"\d{1,2}:\d\d.*")


def parse_time(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """Epoch milliseconds of what people write: a date, a time, `14:05` (the last time that it was), `yesterday 14:05`,
    `last tuesday` (the one before today), a number of ms, or how long ago: `2h`, `5 min`. One without a zone is of
    `zone`; None: of this machine.

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
        return int(_written(_with_offset(text), now_ms, zone).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{text}' is not a time. Write 14:05, yesterday 14:05, last tuesday 9:30, 2026-01-31, 2026-01-31T12:30, "
            "2026-01-31T12:30+01:00, 1794805709859 (milliseconds), or how long ago: 90s, 5 min, 2h, 3 days, 1w"
        ) from None


def _with_offset(text: str) -> str:
    """`12:30 CET` as `12:30+01:00`: the zones that `shown` may have shown."""
    names = {"UTC": 0, "GMT": 0, time.tzname[0]: -time.timezone, time.tzname[1]: -time.altzone}
    told, _, name = text.rpartition(" ")
    if not told or name not in names:
        return text
    minutes = abs(names[name]) // 60
    return f"{told}{'-' if names[name] < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _written(text: str, now_ms: int, zone: tzinfo | None) -> datetime:
    """Without a zone of its own, and none given, it is naive: of this machine."""
    named = NAMED_DAY.fullmatch(text)
    if named is None and not CLOCK.fullmatch(text):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    clock = text if named is None else named[3] or "00:00"
    at = clock_time.fromisoformat(clock if clock[1:2] != ":" else f"0{clock}")
    now = datetime.fromtimestamp(now_ms / 1000, at.tzinfo or zone)
    days = 0 if named is None else _days_back(named, now)
    moment = datetime.combine(now.date() - timedelta(days=days), at, tzinfo=at.tzinfo or zone)
    return moment - timedelta(days=1) if named is None and moment > now else moment


def _days_back(named: re.Match[str], now: datetime) -> int:
    """A day of the week is the one before today, so 1 to 7 days ago."""
    if named[1]:
        return DAYS_BACK[named[1].lower()]
    return (now.weekday() - WEEKDAYS.index(named[2].lower()) - 1) % 7 + 1
