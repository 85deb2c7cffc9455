"""What an exporter looks at, and how much of it: clients choose names and numbers, and memory must not follow them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from muster.patterns import regex

MOST_LEFT_OUT = 100_000
"""Groups and partitions that are told apart among those left out; from there on the count stands still."""


@dataclass(frozen=True, slots=True)
class Limits:
    groups: int = 20_000
    """That have committed or have members."""
    partitions: int = 200_000
    """Committed ones, of all groups together."""
    log_partitions: int = 50_000
    """Partitions of topics whose ends are asked for."""


@dataclass(slots=True)
class LeftOut:
    """What there was no room for, by what it is. Names are not kept, only their hashes."""

    _seen: dict[str, set[int]] = field(default_factory=lambda: {"groups": set(), "partitions": set()})

    def note(self, what: str, name: object) -> None:
        seen = self._seen[what]
        if len(seen) < MOST_LEFT_OUT:
            seen.add(hash(name))

    @property
    def counts(self) -> dict[str, int]:
        return {what: len(seen) for what, seen in self._seen.items()}


class Wanted:
    """Groups by their names, with `*` and `?`. No pattern: all of them."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        given = tuple(patterns)
        self._pattern = regex(given) if given else None

    def __contains__(self, group_id: str) -> bool:
        return self._pattern is None or self._pattern.fullmatch(group_id) is not None
