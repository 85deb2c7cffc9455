"""One group over time: how far behind it was, in records and in time, and how much it committed."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.answers.totals import UNKNOWN, Lines, Numbers, Totals, carried_on
from muster.tables.reading import Tables
from muster.tables.sql.queries import added_up

MOST_POINTS = 240


class Series(NamedTuple):
    """Values by slot, slots of one length. None: not known."""

    start_ms: int
    slot_ms: int
    lag: list[int | None]
    """At the end of each slot, all partitions together."""
    lag_ms: list[int | None]
    """The longest of its partitions."""
    commits: list[int | None]
    """In each slot; None where nothing was in force yet, as far as is known, and in the last one, which is not over."""
    consumed: list[int | None]
    """Records from commit to commit in each slot."""


def group_series(tables: Tables, group_id: str, since_ms: int, until_ms: int, points: int = MOST_POINTS) -> Series:
    """A group between two moments, in slots of whole intervals."""
    interval_ms = tables.asked(
        f"SELECT coalesce(max(interval_ms), 300000) FROM {tables.relation('lag_history')} r WHERE group_id = ?",
        [group_id],
    )[0][0]
    slot_ms = max(-(-(until_ms - since_ms) // (points * interval_ms)), 1) * interval_ms
    start_ms = since_ms // slot_ms * slot_ms
    count = (until_ms - start_ms) // slot_ms + 1
    lag, lag_ms = _lags(tables, group_id, start_ms, until_ms, slot_ms, count)
    counts, consumed = _commits(tables, group_id, start_ms, until_ms, slot_ms, count)
    return _series(start_ms, slot_ms, lag, lag_ms, counts, consumed)


def _lags(
    tables: Tables, group_id: str, start_ms: int, until_ms: int, slot_ms: int, count: int
) -> tuple[list[int | None], list[int | None]]:
    found = tables.columns(
        f"""
        SELECT dense_rank() OVER (ORDER BY topic, partition) - 1 AS key,
            greatest((interval_start_ms - {start_ms}) // {slot_ms}, -1)::BIGINT AS slot,
            max_by(coalesce(lag, {UNKNOWN}), interval_start_ms) AS lag,
            max_by(coalesce(lag_ms, {UNKNOWN}), interval_start_ms) AS lag_ms
        FROM {tables.relation("lag_history")} r WHERE group_id = ? AND interval_start_ms + interval_ms <= {until_ms}
        GROUP BY topic, partition, slot""",
        [group_id],
    )
    keys, slots, lags, times = (found.column(place).to_numpy() for place in range(4))
    if not len(keys):
        return [None] * count, [None] * count
    number = int(keys.max()) + 1
    is_earlier, together = slots < 0, Lines.of(np.zeros(number, np.int64))

    def filled(values: Numbers) -> Numbers:
        before = np.full(number, UNKNOWN, np.int64)
        before[keys[is_earlier]] = values[is_earlier]
        return carried_on(keys[~is_earlier], slots[~is_earlier], values[~is_earlier], before, count)

    return _known(together.added_up(filled(lags))[0]), _known(together.longest(filled(times))[0])


def _known(values: Numbers) -> list[int | None]:
    return [None if value == UNKNOWN else value for value in values.tolist()]


def _commits(
    tables: Tables, group_id: str, start_ms: int, until_ms: int, slot_ms: int, count: int
) -> tuple[list[int], list[int | None]]:
    return committed(tables, start_ms, until_ms, slot_ms, count, "group_id = ?", [group_id])[group_id]


def committed(
    tables: Tables,
    start_ms: int,
    until_ms: int,
    slot_ms: int,
    count: int,
    only: str = "TRUE",
    values: Sequence[str] = (),
) -> dict[str, tuple[list[int], list[int | None]]]:
    """By group, commits in each slot and records consumed in it."""
    rows = tables.asked(
        f"""
        SELECT group_id, (interval_start_ms - {start_ms}) // {slot_ms} AS slot, sum(commits)::BIGINT,
            {added_up("consumed")}
        FROM {tables.relation("rates")} r
        WHERE {only} AND interval_start_ms >= {start_ms} AND interval_start_ms + interval_ms <= {until_ms}
        GROUP BY group_id, slot""",
        values,
    )
    found: dict[str, tuple[list[int], list[int | None]]] = defaultdict(lambda: ([0] * count, [None] * count))
    for group_id, slot, commits, consumed in rows:
        found[group_id][0][slot], found[group_id][1][slot] = commits, consumed
    return found


def all_series(
    tables: Tables, totals: Totals, since_ms: int, until_ms: int, points: int = MOST_POINTS
) -> dict[str, Series]:
    """Every group that has history, from what has been added up of it."""
    slot_ms = max(-(-(until_ms - since_ms) // (points * totals.interval_ms)), 1) * totals.interval_ms
    start_ms = since_ms // slot_ms * slot_ms
    count = (until_ms - start_ms) // slot_ms + 1
    ends = [min(start_ms + (slot + 1) * slot_ms, until_ms) for slot in range(count)]
    found = [totals.at(end_ms) for end_ms in ends]
    nothing = np.full(len(totals.lines), UNKNOWN, np.int64)
    lags, times = (np.stack([nothing if each is None else each[part] for each in found], axis=1) for part in (0, 1))
    numbers, groups = totals.by_group()
    lags, times = groups.added_up(lags), groups.longest(times)
    commits = committed(tables, start_ms, until_ms, slot_ms, count)
    return {
        group_id: _series(start_ms, slot_ms, _known(lags[number]), _known(times[number]), *commits[group_id])
        for group_id, number in numbers.items()
    }


def _series(
    start_ms: int,
    slot_ms: int,
    lag: list[int | None],
    lag_ms: list[int | None],
    counts: list[int],
    consumed: list[int | None],
) -> Series:
    """Where nothing was committed, nothing was read. The last slot is not over: what is committed in it is still to
    come, and as much as there is of it would look like a fall.
    """
    commits = [some or (None if known is None else 0) for some, known in zip(counts, lag, strict=True)]
    read = [0 if some == 0 else known for some, known in zip(commits, consumed, strict=True)]
    return Series(start_ms, slot_ms, lag, lag_ms, [*commits[:-1], None], [*read[:-1], None])
