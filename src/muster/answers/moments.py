"""All partitions of all groups at some moments of the past, in one go: what a file holds that can ask nothing later."""

from typing import Any, NamedTuple

import numpy as np

from muster.answers.totals import UNKNOWN, Numbers, Totals, carried_on
from muster.tables.reading import Tables

COLUMNS = ("committed_offset", "log_end_offset", "lag", "lag_ms")


class Moments(NamedTuple):
    """Moments of the past at equal distances, the last one before now."""

    first_ms: int
    step_ms: int
    number: int

    @property
    def all_ms(self) -> list[int]:
        return [self.first_ms + number * self.step_ms for number in range(self.number)]


class Past(NamedTuple):
    """Partitions by number, and matrices of partitions by moments (`UNKNOWN` where nothing is known)."""

    keys: list[tuple[str, str, int]]
    values: dict[str, Numbers]
    """By names of `COLUMNS`."""


def moments_of(totals: Totals, until_ms: int, count: int) -> Moments:
    """So many moments from the first interval that was over to shortly before `until_ms`."""
    if totals.first_ms is None or count < 1:
        return Moments(until_ms, 1, 0)
    first_ms = totals.first_ms + totals.interval_ms
    step_ms = max((until_ms - first_ms) // count, 1)
    return Moments(first_ms, step_ms, min(count, max((until_ms - first_ms) // step_ms, 0)))


def past(tables: Tables, moments: Moments) -> Past:
    """What each partition had at each of the moments, as the last interval left it that was over then."""
    chosen = ", ".join(f"max_by(coalesce({name}, {UNKNOWN}), interval_start_ms)" for name in COLUMNS)
    found = tables.columns(f"""
        SELECT group_id, topic, partition, greatest(
            (interval_start_ms + interval_ms - {moments.first_ms} + {moments.step_ms - 1}) // {moments.step_ms}, 0
        )::BIGINT AS slot, {chosen}
        FROM {tables.relation("lag_history")} r
        WHERE interval_start_ms + interval_ms <= {moments.first_ms + (moments.number - 1) * moments.step_ms}
        GROUP BY group_id, topic, partition, slot ORDER BY group_id, topic, partition""")
    names = zip(*(found.column(place).to_pylist() for place in range(3)), strict=True)
    numbers: dict[Any, int] = {}
    keys = np.fromiter((numbers.setdefault(name, len(numbers)) for name in names), np.int64, len(found))
    slots, nothing = found.column(3).to_numpy(), np.full(len(numbers), UNKNOWN, np.int64)
    return Past(list(numbers), {
        name: carried_on(keys, slots, found.column(4 + place).to_numpy(), nothing, moments.number)
        for place, name in enumerate(COLUMNS)
    })  # fmt: skip
