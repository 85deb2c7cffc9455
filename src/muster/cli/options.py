"""What people write on the command line, turned into numbers: times, and types of records."""

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache

AGO = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)(?:\s+ago)?")
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
FEWEST_DIGITS_OF_MS = 11
"""Epoch milliseconds since 1973; fewer digits are a date such as 20260131, or seconds by mistake."""

CONTROL = "control"
NEWEST_TYPE_NUMBER = 24


def parse_time(text: str, now_ms: int) -> int:
    """Epoch milliseconds of a date, a time (UTC unless it has a zone), a number of ms, or `2h` before now.

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
            f"'{text}' is not a time. Write 2026-01-31, 2026-01-31T12:30, 1794805709859 (milliseconds) or 2h (ago)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


@cache
def type_numbers() -> dict[str, int]:
    """Names for `--type`: Kafka's own with hyphens, and `control` for transaction markers."""
    from muster.codec.offsets_schemas import RECORD_TYPES  # half of the time that help would take

    return {
        CONTROL: -1,
        "legacy-offset-commit": 0,
        "offset-commit": 1,
        "group-metadata": 2,
        **{_kebab(record_type.name): number for number, record_type in RECORD_TYPES.items()},
    }


def parse_type(text: str) -> int:
    """The number of a record type, by number or by name; case, hyphens and underscores do not matter."""
    text = text.strip()
    if text.isdigit() and int(text) <= NEWEST_TYPE_NUMBER:
        return int(text)
    squeezed = {name.replace("-", ""): number for name, number in type_numbers().items()}
    wanted = re.sub(r"[-_ ]", "", text).lower()
    if wanted in squeezed:
        return squeezed[wanted]
    near = get_close_matches(text.lower(), type_numbers(), n=1)
    hint = f"Did you mean '{near[0]}'" if near else f"Write 0 to {NEWEST_TYPE_NUMBER}, or a name like offset-commit"
    raise ValueError(f"'{text}' is not a record type. {hint}")


def complete_type(incomplete: str) -> list[tuple[str, str]]:
    """Names that begin like this, for the shell."""
    return [
        (name, "transaction markers" if name == CONTROL else f"type {number}")
        for name, number in type_numbers().items()
        if name.startswith(incomplete.lower())
    ]
