"""Records by which a log is known again: offset and time of some of those that were read. Pure.

Offsets alone do not tell one log from another. A directory may be of another cluster, or an older copy that went on by
itself; then it has another record where one was read before. What the cleaner has taken since tells nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

Landmark = tuple[int, int]
"""Offset and timestamp of a record."""


class Parting(NamedTuple):
    """Where a log differs from what was read."""

    log_offset: int
    """The first landmark that it has another record at."""
    agreed_until: int
    """Behind the last landmark before that; 0 where there is none."""


def thinned(landmarks: Iterable[Landmark]) -> tuple[Landmark, ...]:
    """The newest, and in every distance twice as far from it one: some thirty of any log, rising."""
    rising = sorted(set(landmarks))
    kept: dict[int, Landmark] = {}
    for landmark in rising:
        kept.setdefault((rising[-1][0] - landmark[0]).bit_length(), landmark)
    return tuple(kept.values())


def spread(count: int) -> list[int]:
    """Places in a list of so many records from which landmarks may be taken: the first, and more towards the end."""
    return sorted({0, *(count - (1 << power) for power in range(count.bit_length()))}) if count else []
