"""Values as people read them: members by their names, times as times, lengths of time in words."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

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
    """To the second, in UTC; times that no calendar has are shown as the number they are."""
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if with_year else "%m-%d %H:%M:%S")


def shown_duration(length_ms: int) -> str:
    """`0.3 s`, `12 min 28 s`, `3 h 5 min`, `2 d 4 h`: two units, and no more than anybody would say."""
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
