"""Lag of every group at any interval of the past, added up a day at a time and kept.

`lag_history` has a row where something changed, and between rows nothing did. So the lag of a group at a moment is the
sum of the last row of each of its partitions, however long ago that was. A day is added up in one go from its rows and
from what was in force when it began. `Totals` belongs to a process that serves pages: a day is added up once, and a
newer run adds up those days alone in which it has changed something. When all of them together take too much memory,
the oldest are forgotten, and added up again when they are asked for (`recall`).
"""

import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from muster.tables.reading import Tables
from muster.tables.sql.intervals import INTERVAL_MS
from muster.tables.storage.addresses import is_local

Numbers = npt.NDArray[np.int64]

DAY_MS = 86_400_000
UNKNOWN = -1
"""In place of a lag that is not known, or that there is none of: the commit was deleted, or is yet to come."""
KEY_COLUMNS = "number BIGINT, group_id VARCHAR, topic VARCHAR, partition INTEGER"
LARGEST = 1 << 48
"""A lag above this is drawn and added up as this: ten thousand of them still are a number of 64 bits."""
HOLE = -2
"""Nothing is new in this interval."""
CELLS_AT_A_TIME = 8_000_000
MOST_BYTES = 1 << 30
LEVELS = "▁▂▃▄▅▆▇█"
NOT_KNOWN = " "


def carried_on(keys: Numbers, slots: Numbers, values: Numbers, before: Numbers, count: int) -> Numbers:
    """A matrix of keys by slots: each value holds from its slot on, until the key's next one.

    `before` is what held before the first slot. Of several values of a key in one slot the last holds.
    """
    filled = np.full((len(before), count + 1), HOLE, np.int64)
    filled[:, 0] = before
    filled[keys, slots + 1] = values
    places = np.where(filled == HOLE, 0, np.arange(count + 1, dtype=np.int32))
    np.maximum.accumulate(places, axis=1, out=places)
    return np.take_along_axis(filled, places, axis=1)[:, 1:]


class Lines(NamedTuple):
    """Which rows of a matrix belong together."""

    numbers: Numbers
    order: Numbers
    starts: Numbers

    @classmethod
    def of(cls, lines: Numbers) -> "Lines":
        """Of the line of each row."""
        order = np.argsort(lines, kind="stable")
        numbers, starts = np.unique(lines[order], return_index=True)
        return cls(numbers, order, starts)

    def added_up(self, lags: Numbers) -> Numbers:
        """Lags of each line together; what is unknown counts for nothing, and is unknown where nothing is known.

        A client may commit any number: one such partition does not make nonsense of the sum.
        """
        lags = lags[self.order]
        known = lags != UNKNOWN
        sums = np.add.reduceat(np.where(known, np.minimum(lags, LARGEST), 0), self.starts, axis=0)
        return np.where(np.logical_or.reduceat(known, self.starts, axis=0), sums, UNKNOWN)

    def longest(self, times_ms: Numbers) -> Numbers:
        """The longest time of each line."""
        found: Numbers = np.maximum.reduceat(times_ms[self.order], self.starts, axis=0)
        return found


def trends_of(lags: Numbers) -> list[str]:
    """Each row of lags as a line of blocks, the highest of them the full one; a space where nothing is known."""
    lags = np.minimum(lags, LARGEST)
    highest = np.maximum(lags.max(axis=1, initial=0, keepdims=True), 1)
    levels = np.where(lags < 0, len(LEVELS), lags * (len(LEVELS) - 1) // highest)
    blocks = np.array(list(LEVELS + NOT_KNOWN))[levels]
    joined: list[str] = blocks.view(f"U{lags.shape[1]}").ravel().tolist()
    return joined


class Day(NamedTuple):
    """Lines (a group and a topic) by intervals of one day."""

    lag: Numbers
    lag_ms: Numbers
    """The longest of the line's partitions."""

    @property
    def is_quiet(self) -> bool:
        """Nothing changed on this day: each line is one number."""
        return self.lag.strides[1] == 0

    @property
    def nbytes(self) -> int:
        return 0 if self.is_quiet else self.lag.nbytes + self.lag_ms.nbytes

    def as_quiet(self) -> "Day":
        """The same without a number for each interval."""
        return Day(*(np.broadcast_to(each[:, :1].copy(), each.shape) for each in self))


class _Held(NamedTuple):
    """What the keys had when a day began."""

    lag: Numbers
    lag_ms: Numbers


class Totals:
    """Totals of one run. `bring_up` adds up; everything else answers from what has been added up so far."""

    def __init__(self, tables: Tables, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self.run_id = tables.manifest.run_id
        self.lines: list[tuple[str, str]] = []
        """Group and topic by number."""
        self._files = tables.store.files("lag_history", version) if (version := _version(tables)) is not None else []
        rows, now_ms = tables.relation("lag_history"), tables.manifest.now_ms
        first, last, self.interval_ms = tables.asked(
            f"SELECT min(interval_start_ms), max(interval_start_ms), coalesce(max(interval_ms), {INTERVAL_MS}) "
            f"FROM {rows} r WHERE interval_start_ms <= {now_ms}"  # a client's clock may be centuries ahead
        )[0]
        self.first_ms: int | None = first
        """Where the first interval begins; None where there is no history."""
        self.last_ms: int | None = last
        self._first_day = 0 if first is None else first // DAY_MS
        self._count = 0 if last is None else last // DAY_MS - self._first_day + 1
        self._days: list[Day | None] = []
        """None: forgotten."""
        self._bytes = 0
        """Of all days that are not."""
        self._held = [_Held(np.empty(0, np.int64), np.empty(0, np.int64))]
        self._keys: list[tuple[str, str, int]] = []
        self._line_of_key: list[int] = []

    def begin_ms(self, until_ms: int) -> int:
        """From when on there is something to draw: an interval before the first commit, since members join before it;
        an hour before `until_ms` where nothing is known.
        """
        return until_ms - DAY_MS // 24 if self.first_ms is None else self.first_ms - self.interval_ms

    @property
    def is_complete(self) -> bool:
        return len(self._days) == self._count

    @property
    def done(self) -> tuple[int, int]:
        """Days that have been added up, of how many."""
        return len(self._days), self._count

    def go_on_from(self, before: Self, tables: Tables) -> None:
        """Take over the days of an earlier run in which nothing has changed since."""
        changed_ms = _changed_since(tables, before._files, self._files)
        if changed_ms is None or before._first_day != self._first_day or before.interval_ms != self.interval_ms:
            return
        kept = min(len(before._days), self._count, max(changed_ms // DAY_MS - self._first_day, 0))
        self.lines, self._keys = before.lines, before._keys
        self._line_of_key = before._line_of_key
        self._days, self._held = before._days[:kept], before._held[: kept + 1]
        self._bytes = sum(day.nbytes for day in self._days if day is not None)

    def bring_up(self, tables: Tables, is_over: Callable[[], bool] = lambda: False) -> None:
        """Add up the days that are left, the oldest first."""
        self._tell_all_keys(tables)
        rows = tables.relation("lag_history")
        eventful = {day for (day,) in tables.asked(f"SELECT DISTINCT interval_start_ms // {DAY_MS} FROM {rows} r")}
        while not self.is_complete and not is_over():
            day = self._first_day + len(self._days)
            self._add_day(tables, day * DAY_MS, day in eventful)

    def recall(self, tables: Tables, at_ms: int) -> None:
        """Add up the days again that are looked at for a moment, if they were forgotten."""
        last = at_ms // DAY_MS - self._first_day
        with self._lock:
            for number in range(max(last - 1, 0), min(last + 1, len(self._days))):
                if self._days[number] is None:
                    self._tell_all_keys(tables)
                    rows = self._rows(tables, (self._first_day + number) * DAY_MS)
                    self._days[number] = day = self._added(rows, self._held[number])[0]
                    self._bytes += day.nbytes
                    self._forget(spared=(number, number - 1))

    def so_far(self) -> Self:
        """What has been added up by now, for one answer: more may come while that is made."""
        now = copy(self)
        now._days = list(self._days)
        now.lines = self.lines  # after the days: none of them has more lines than there are
        return now

    # A day

    def _add_day(self, tables: Tables, start_ms: int, is_eventful: bool) -> None:
        """Days on which nothing changed are not asked for, nor is one of them like another: a commit with a wrong date
        makes decades of them.
        """
        before, held = self._days[-1] if self._days else None, self._held[-1]
        if is_eventful:
            self._find_keys(tables, self._relation(tables, start_ms))
            day, held = self._added(self._rows(tables, start_ms), held)
        elif before is not None and before.is_quiet:
            day = before
        else:
            day = self._added([np.empty(0, np.int64)] * 4, held)[0].as_quiet()
        with self._lock:
            self._held.append(held)
            self._days.append(day)
            self._bytes += day.nbytes
            self._forget(spared=(len(self._days) - 1, len(self._days) - 2))

    def _forget(self, spared: tuple[int, ...]) -> None:
        """The oldest days, until the rest is small enough."""
        if self._bytes <= self._most_bytes:
            return
        for number, day in enumerate(self._days):
            if self._bytes <= self._most_bytes:
                return
            if day is not None and not day.is_quiet and number not in spared:
                self._days[number] = None
                self._bytes -= day.nbytes

    def _relation(self, tables: Tables, start_ms: int) -> str:
        return f"""(SELECT * FROM {tables.relation("lag_history")} r
            WHERE r.interval_start_ms >= {start_ms} AND r.interval_start_ms < {start_ms + DAY_MS})"""

    def _rows(self, tables: Tables, start_ms: int) -> list[Numbers]:
        """Key, slot, lag and its time of the rows of a day."""
        found = tables.columns(f"""
            SELECT k.number, (r.interval_start_ms - {start_ms}) // {self.interval_ms} AS slot,
                coalesce(r.lag, {UNKNOWN}) AS lag, coalesce(r.lag_ms, {UNKNOWN}) AS lag_ms
            FROM {self._relation(tables, start_ms)} r JOIN totals_keys k
                ON r.group_id = k.group_id AND r.topic = k.topic AND r.partition = k.partition""")
        return [found.column(place).to_numpy() for place in range(4)]

    def _find_keys(self, tables: Tables, rows: str) -> None:
        new = tables.asked(f"""
            SELECT DISTINCT r.group_id, r.topic, r.partition FROM {rows} r LEFT JOIN totals_keys k
                ON r.group_id = k.group_id AND r.topic = k.topic AND r.partition = k.partition
            WHERE k.number IS NULL ORDER BY ALL""")
        known = {line: number for number, line in enumerate(self.lines)}
        lines, line_of_key = list(self.lines), list(self._line_of_key)
        for group_id, topic, _ in new:
            if (group_id, topic) not in known:
                known[group_id, topic] = len(lines)
                lines.append((group_id, topic))
            line_of_key.append(known[group_id, topic])
        self._tell_keys(tables, new, len(self._keys))
        self.lines, self._line_of_key, self._keys = lines, line_of_key, [*self._keys, *new]

    def _tell_all_keys(self, tables: Tables) -> None:
        tables.asked(f"CREATE OR REPLACE TEMP TABLE totals_keys ({KEY_COLUMNS})")
        self._tell_keys(tables, self._keys, 0)

    def _tell_keys(self, tables: Tables, keys: list[Any], first: int) -> None:
        """Make duckdb know them: as one value, since a statement for each would take minutes."""
        if keys:
            columns = [list(column) for column in zip(*keys, strict=True)]
            numbers = list(range(first, first + len(keys)))
            tables.asked(
                "INSERT INTO totals_keys SELECT unnest(?), unnest(?), unnest(?), unnest(?)", [numbers, *columns]
            )

    def _added(self, rows: Sequence[Numbers], held: _Held) -> tuple[Day, _Held]:
        keys, slots, lag, lag_ms = rows
        slots_a_day, count = DAY_MS // self.interval_ms, len(self._keys)
        lines = np.array(self._line_of_key, np.int64)
        before = _Held(*(np.pad(each, (0, count - len(each)), constant_values=UNKNOWN) for each in held))
        totals = Day(*(np.full((len(self.lines), slots_a_day), UNKNOWN, np.int64) for _ in range(2)))
        after = _Held(before.lag.copy(), before.lag_ms.copy())
        order = np.argsort(keys, kind="stable")
        keys, slots, lag, lag_ms = keys[order], slots[order], lag[order], lag_ms[order]
        for here in _lots(count, max(CELLS_AT_A_TIME // slots_a_day, 1)):
            first, last = np.searchsorted(keys, [here.start, here.stop])
            numbers, of_lot = keys[first:last] - here.start, Lines.of(lines[here])
            lags = carried_on(numbers, slots[first:last], lag[first:last], before.lag[here], slots_a_day)
            times = carried_on(numbers, slots[first:last], lag_ms[first:last], before.lag_ms[here], slots_a_day)
            after.lag[here], after.lag_ms[here] = lags[:, -1], times[:, -1]
            some = of_lot.numbers
            totals.lag[some] = _sum_of_known(totals.lag[some], of_lot.added_up(lags))
            totals.lag_ms[some] = np.maximum(totals.lag_ms[some], of_lot.longest(times))
        return totals, after

    # Answers

    def place(self, at_ms: int) -> tuple[int, int] | None:
        """The day and the slot of the last interval that was over at a moment; None: not known, or not yet."""
        start_ms = (at_ms // self.interval_ms - 1) * self.interval_ms
        if self.last_ms is None:
            return None
        start_ms = min(start_ms, self.last_ms)
        day = start_ms // DAY_MS - self._first_day
        return (day, start_ms % DAY_MS // self.interval_ms) if 0 <= day < len(self._days) else None

    def at(self, at_ms: int) -> tuple[Numbers, Numbers] | None:
        """Lag and its time of every line at a moment; lines that came later are unknown. None as `place`."""
        place = self.place(at_ms)
        day = None if place is None else self._days[place[0]]
        if place is None or day is None:
            return None
        slot = place[1]
        missing = len(self.lines) - len(day.lag)
        return tuple(np.pad(each[:, slot], (0, missing), constant_values=UNKNOWN) for each in day)  # type: ignore[return-value]

    def by_group(self) -> tuple[dict[str, int], Lines]:
        """The number of each group, and which lines are of it."""
        numbers: dict[str, int] = {}
        of_line = [numbers.setdefault(group_id, len(numbers)) for group_id, _ in self.lines]
        return numbers, Lines.of(np.array(of_line, np.int64))

    def before(self, at_ms: int, span_ms: int, points: int) -> Numbers:
        """Lags of every line at so many moments up to this one, as a matrix."""
        columns = []
        for number in range(points):
            found = self.at(at_ms - span_ms * (points - 1 - number) // max(points - 1, 1))
            columns.append(np.full(len(self.lines), UNKNOWN, np.int64) if found is None else found[0])
        return np.stack(columns, axis=1)


def _sum_of_known(one: Numbers, other: Numbers) -> Numbers:
    """Totals of a line whose partitions came in several lots."""
    return np.where((one != UNKNOWN) & (other != UNKNOWN), one + other, np.maximum(one, other))


def _lots(count: int, most: int) -> list[slice]:
    return [slice(first, min(first + most, count)) for first in range(0, count, most)]


def _version(tables: Tables) -> int | None:
    return tables.manifest.tables.get("lag_history")


def _changed_since(tables: Tables, before: list[str], now: list[str]) -> int | None:
    """The first interval of the files that are new; None where it cannot be told."""
    added = sorted(set(now) - set(before))
    if not added:
        return DAY_MS * (1 << 20)
    if not is_local(tables.store.address):
        return None
    sql = "SELECT epoch_ms(min(interval_start)) FROM read_parquet(?, hive_partitioning = FALSE)"
    found = tables.asked(sql, [added])
    changed_ms: int | None = found[0][0]
    return changed_ms
