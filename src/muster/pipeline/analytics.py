"""The step of a run that brings `lag_history`, `rates` and `group_hours` up to the history that it has appended.

Here is decided what is made anew; tasks make it (`interval_task`), and only names of files come back.

A run makes the rows anew from the first interval on in which something is new (a commit, an observation of a log's
end, a rebalance): usually the one that was open when the last run ended. What was before it comes from what that run
has published, and so do the rows from there on of keys and partitions of which nothing is new (`intervals.Held`).
Everything is made anew where the last run did not make these tables, and after a truncation of the log; ends of logs
are taken from the published rows then too, since observations are thinned out meanwhile.

No row is made of the time before the horizon of `--keep-history`. Where something is new there, what was in force at
the horizon is found in the commits that are left.

Rows that the next run will replace go to files of their own, and so do those of the last hour and of the last day: the
files of all others are left alone.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.engine import Engine
from muster.pipeline.interval_task import (
    FROM_THE_START,
    STARTS,
    Keeping,
    Making,
    Place,
    Share,
    make,
)
from muster.tables.relations import add_relation
from muster.tables.schemas import ANALYTICS, TABLES, TIMESTAMP, published_name
from muster.tables.scratch import limited_duckdb
from muster.tables.sql import hours, intervals
from muster.tables.sql.ends import LOOK_BACK_MS, first_observed
from muster.tables.sql.hours import HOUR_MS, LOOK_BACK_HOURS
from muster.tables.sql.intervals import INTERVAL_MS
from muster.tables.sql.queries import all_rebalances
from muster.tables.storage.changes import Run
from muster.tables.storage.files import Options
from muster.tables.storage.retention import retained_of

BY_INTERVAL, BY_HOUR = ("lag_history", "rates"), ("group_hours",)
"""Tables that are made together, of the same rows."""
EDGES_MS = (0, HOUR_MS, 24 * HOUR_MS)
"""Before the interval that is still open."""
ROWS_A_TASK = 2_000_000
"""Commits. Of 5 M duckdb makes the tables in 20 CPU seconds, files included."""
WIDEST_FILE, MOST_PARTITIONS = 1000, 1 << 31
"""Partitions of the offsets topic. Bounds of a file that are farther apart than the first tell hardly anything."""
MEMORY_MB = 256
"""What duckdb may use on the driver: it looks at what is new."""


class Made(NamedTuple):
    """What a run did."""

    remembered: dict[str, Any]
    """What the next run must find in the manifest."""
    rows: dict[str, int]
    """Of each table the rows that are new, or made anew."""


def bring_up(
    changes: Run, engine: Engine, is_cut: bool, options: Options = (), interval_ms: int = INTERVAL_MS
) -> "Made":
    """Bring the tables up to date. `is_cut`: the log was truncated. `interval_ms` is for tables that are made for the
    first time: others keep theirs.
    """
    news = News(changes, is_cut, interval_ms)
    making, keeping, replaced = list[Making](), list[Keeping](), dict[str, list[str]]()
    store = changes.store
    for tables, since_ms in news.since_ms.items():
        edges_ms = tuple(_floored(news.newest_ms or 0, news.length_ms(tables)) - before_ms for before_ms in EDGES_MS)
        place = Place(store.address, tuple(options), changes.run_id, engine.task_memory_mb, edges_ms)
        making += news.works(tables, place)
        for table in tables:
            replaced[table], cut = _replaced(changes, table, since_ms)
            keeping += [Keeping(table, tuple(lot), since_ms, place) for lot in lots_of(cut)]
    answers = engine.each("lag_history, rates, group_hours", make, [*making, *keeping])
    new_rows = dict.fromkeys(ANALYTICS, 0)
    for file in (file for files in answers[: len(making)] for file in files):
        new_rows[file.table] += file.rows
    for table, names in replaced.items():
        files = [file for some in answers for file in some if file.table == table]
        if names or files:
            changes.swap(table, names, files, same_rows=False)
    remembered = {
        "run_number": changes.number,
        "observed_until": changes.number,
        "newest_ms": news.newest_ms,
        "interval_ms": news.interval_ms,
    }
    return Made(remembered, new_rows)


def _replaced(changes: Run, table: str, since_ms: int) -> tuple[list[str], dict[str, int]]:
    """Names of a table's files that have rows from a moment on; and of those that have earlier rows too their
    addresses, with how many rows they have.
    """
    column = published_name(STARTS[table])
    files = {_name(file): file for file in changes.files_since(table, [column], since_ms)}
    if since_ms <= FROM_THE_START or not files:
        return list(files), {}
    facts = changes.facts(table)
    is_cut = pa.repeat(True, len(facts))
    if f"min.{column}" in facts.column_names:
        is_cut = pc.less(facts[f"min.{column}"].cast(TIMESTAMP), pa.scalar(since_ms, pa.timestamp("ms", "UTC")))
    told = facts.filter(pc.fill_null(is_cut, True))
    rows = dict(zip(told["path"].to_pylist(), told["num_records"].to_pylist(), strict=True))
    return list(files), {files[name]: rows[name] for name in files if name in rows}


def lots_of(files: Mapping[str, int]) -> list[list[str]]:
    """Files in lots for one task each, by their rows."""
    lots: list[list[str]] = []
    left = 0
    for file, rows in files.items():
        if not lots or rows > left:
            lots.append([])
            left = ROWS_A_TASK
        lots[-1].append(file)
        left -= rows
    return lots


def last_analysed(changes: Run) -> dict[str, Any] | None:
    """What was remembered by the last run that made these tables, as of this one if nothing is new since; None if none
    has made them.

    `observed_until` stays: the observations of a run that makes no rows are for the next one that does.
    """
    last: dict[str, Any] | None = changes.manifest.source.get("analytics") if changes.manifest is not None else None
    if last is None or last["run_number"] != changes.number - 1:
        return last
    return {**last, "run_number": changes.number}


class Bounds(NamedTuple):
    """What is told of the rows of a file of commits, as far as it is."""

    rows: int
    first_partition: int | None
    last_partition: int | None
    earliest: datetime | None
    latest: datetime | None

    @property
    def partitions(self) -> tuple[int, int]:
        """The first and the last that it may have rows of."""
        return self.first_partition or 0, MOST_PARTITIONS if self.last_partition is None else self.last_partition

    def rows_since(self, since_ms: int) -> int:
        """About how many are of this moment or a later one, as if they came at a constant rate."""
        if self.earliest is None or self.latest is None or _ms(self.earliest) >= since_ms:
            return self.rows
        left_ms = max(_ms(self.latest) - since_ms, 0)
        return min(self.rows * left_ms // max(_ms(self.latest) - _ms(self.earliest), 1), self.rows)


class News:
    """What is new in a run, and from when on."""

    def __init__(self, changes: Run, is_cut: bool, interval_ms: int = INTERVAL_MS) -> None:
        self._changes = changes
        last = last_analysed(changes)
        self.interval_ms: int = interval_ms if last is None else last.get("interval_ms", INTERVAL_MS)
        self._goes_on = last is not None and last["run_number"] == changes.number and not is_cut
        retained = retained_of(changes.manifest.source.get("retention")) if changes.manifest is not None else None
        self._horizon_ms = FROM_THE_START
        if retained is not None and retained.since_ms is not None:  # which is later after a truncation into it
            self._horizon_ms = min(retained.since_ms, retained.horizon_ms)
        self._published_until_ms = None if last is None or is_cut else last["newest_ms"]
        self._is_first = last is None
        self._observed_until = -1 if last is None else last.get("observed_until", last["run_number"])
        with limited_duckdb(MEMORY_MB) as self._connection:
            self._view("ends", "log_ends", self._files("log_ends", "observed_at_ms", self._ends_since(last)))
            observed_ms = self._asked("SELECT max(observed_at_ms) FROM ends")
            self.newest_ms = self._newest_commit() if observed_ms is None else observed_ms
            """The newest observation: rows of the intervals from there on may still change. Without any, the newest
            commit.
            """
            first = self._first_news() if self._goes_on else {BY_INTERVAL: FROM_THE_START, BY_HOUR: FROM_THE_START}
        self._first = {tables: _floored(max(time, 0), self.length_ms(tables)) for tables, time in first.items()}
        self.since_ms = {tables: max(time, self._first_start(tables)) for tables, time in self._first.items()}
        """From when on tables are made anew; those of which nothing is new are not here."""

    def length_ms(self, tables: tuple[str, ...]) -> int:
        """Of the intervals of some tables."""
        return HOUR_MS if tables == BY_HOUR else self.interval_ms

    def _first_news(self) -> dict[tuple[str, ...], int]:
        """The earliest time at which something is new, of tables of which anything is."""
        self._view("new_commits", "commits", self._new("commits"))
        commits_ms = self._asked(intervals.first_change("new_commits"))
        ends_ms = self._asked(first_observed("ends", self._observed_until))
        times = {
            BY_INTERVAL: (commits_ms, self._first_deletion(), ends_ms),
            BY_HOUR: (commits_ms, self._first_rebalance()),
        }
        known = {tables: [time for time in some if time is not None] for tables, some in times.items()}
        return {tables: min(some) for tables, some in known.items() if some}

    def works(self, tables: tuple[str, ...], place: Place) -> list[Making]:
        """What makes some tables anew, in as many tasks as there is work for."""
        files = self._files_of(tables)
        return [
            Making(tables, self.since_ms[tables], self._of_share(files, share), share, place, self.interval_ms,
                   self._observed_until)
            for share in shared_out(self._rows(files["commits"], self.since_ms[tables]))
        ]  # fmt: skip

    def _files_of(self, tables: tuple[str, ...]) -> dict[str, Sequence[str]]:
        since_ms = self.since_ms[tables]
        is_told = self._goes_on and since_ms == self._first[tables]  # by what is published: nothing is new before
        files: dict[str, Sequence[str]] = {
            "commits": self._files("commits", "timestamp_ms", since_ms if is_told else 0)
        }
        if tables == BY_HOUR:
            files["rebalances"] = self._rebalances_since(since_ms)
            files["latest_rebalances"] = self._files("latest_rebalances")
            if since_ms > FROM_THE_START:
                since_ms -= LOOK_BACK_HOURS * HOUR_MS
                files["before_group_hours"] = self._files("group_hours", "hour_ms", since_ms)
            return files
        files["log_ends"] = self._files("log_ends", "observed_at_ms", since_ms - LOOK_BACK_MS)
        if not self._is_first:
            for table in tables:
                files[f"before_{table}"] = self._files(table, STARTS[table], since_ms)
                files[f"all_{table}"] = files[f"before_{table}"]
            files["all_commits"] = files["commits"]
            if self._goes_on:
                files["new_commits"] = self._new("commits")
            if is_told and since_ms > FROM_THE_START:
                files["before_offsets"] = self._published("offsets")
        return files

    def _rebalances_since(self, since_ms: int) -> list[str]:
        """Files that may have rebalances of this moment or a later one, or some after which groups committed then."""
        told = [["at"], ["first_commit_after", "at"]]
        return sorted({file for some in told for file in self._changes.files_since("rebalances", some, since_ms)})

    def _of_share(self, files: Mapping[str, Sequence[str]], share: Share) -> dict[str, Sequence[str]]:
        """The same files, of commits only those that may have some of the share."""
        ours = [file for file in files["commits"] if may_have(share, *self._bounds[_name(file)].partitions)]
        return {**files, "commits": ours}

    @cached_property
    def _bounds(self) -> dict[str, "Bounds"]:
        """Of files of commits, by name."""
        if not self._changes.has("commits"):
            return {}
        facts, moment = self._changes.facts("commits"), published_name(intervals.TIMES[0])
        names = ("num_records", *(f"{end}.{name}" for name in ("offsets_partition", moment) for end in ("min", "max")))
        told = {name: facts[name] if name in facts.column_names else pa.nulls(len(facts)) for name in names}
        known = [(each.cast(TIMESTAMP) if name.endswith(moment) else each).to_pylist() for name, each in told.items()]
        return {path: Bounds(*each) for path, *each in zip(facts["path"].to_pylist(), *known, strict=True)}

    def _rows(self, files: Sequence[str], since_ms: int) -> dict[int, int]:
        """About how many commits of each partition are in these files, from a moment on."""
        found = dict[int, int]()
        for bounds in (self._bounds[_name(file)] for file in files):
            first, last = bounds.partitions
            for number in range(first, min(last, first + WIDEST_FILE) + 1):
                found[number] = found.get(number, 0) + bounds.rows_since(since_ms) // (last - first + 1)
        return found

    def _newest_commit(self) -> int | None:
        """By the bounds of files; none that is dated after today."""
        times = [bounds.latest for bounds in self._bounds.values() if bounds.latest is not None]
        return min(_ms(max(times)), self._changes.started_at_ms) if times else None

    def _first_start(self, tables: tuple[str, ...]) -> int:
        """The first interval of which rows are made: what its rows are made of is all there.

        Hours are made of a week before them as well; rows of the first week are left as they were published.
        """
        begin_ms = _ceiled(self._horizon_ms, self.length_ms(tables))
        if tables != BY_HOUR or not self._horizon_ms or self._published_until_ms is None:
            return begin_ms
        whole_ms = min(self._horizon_ms + LOOK_BACK_HOURS * HOUR_MS, self._published_until_ms)
        return max(begin_ms, _floored(whole_ms, HOUR_MS))

    def _ends_since(self, last: Mapping[str, Any] | None) -> int:
        """From when on observations are looked at: they say something new of two days before them at most."""
        self._view("new_ends", "log_ends", self._new("log_ends"))
        first_ms = self._asked(f"SELECT min(observed_at_ms) FROM new_ends WHERE run_number = {self._changes.number}")
        if last is None:
            return 0
        known = [time for time in (first_ms, last["newest_ms"]) if time is not None]
        return min(known) - 2 * LOOK_BACK_MS if known else 0

    def _first_deletion(self) -> int | None:
        """The earliest time of deletions of commits that are new because their transaction has ended only now.

        Such a deletion may be published already and of a time long before (`vanished`): what is published right before
        the commit does not tell of it.
        """
        progress = {} if self._changes.manifest is None else self._changes.manifest.progress
        read = [{"offsets_partition": number, "next_offset": each.next_offset} for number, each in progress.items()]
        self._connection.register("read_before", pa.Table.from_pylist(read, _READ))
        self._connection.execute(f"CREATE TEMP TABLE late AS {intervals.late_commits('new_commits', 'read_before')}")
        lowest = self._asked("SELECT min(log_offset) FROM late")
        if lowest is None:
            return None
        self._view("commits_behind", "commits", self._behind(lowest))
        return self._asked(intervals.first_deletion("commits_behind", "late"))

    def _behind(self, log_offset: int) -> list[str]:
        """Files of commits whose bounds do not say that all are before this place."""
        facts = self._changes.facts("commits")
        if "max.log_offset" not in facts.column_names:
            return self._files("commits")
        is_before = pc.fill_null(pc.less_equal(facts["max.log_offset"], log_offset), False)
        before = set(facts["path"].filter(is_before).to_pylist())
        return [file for file in self._files("commits") if _name(file) not in before]

    def _first_rebalance(self) -> int | None:
        self._view("new_rebalances", "rebalances", self._new("rebalances"))
        self._view("latest_now", "latest_rebalances", self._files("latest_rebalances"))
        self._view("latest_before", "latest_rebalances", self._published("latest_rebalances"))
        both = all_rebalances("new_rebalances", "latest_now")
        return self._asked(hours.first_told(f"({both})", "latest_before"))

    def _asked(self, sql: str) -> int | None:
        (row,) = self._connection.execute(sql).fetchall()
        found: int | None = row[0]
        return found

    def _view(self, name: str, table: str, files: Sequence[str]) -> None:
        store = self._changes.store
        add_relation(self._connection, name, TABLES[table], files, store.address, store.storage_options)

    def _files(self, table: str, column: str = "", since_ms: int = 0) -> list[str]:
        columns = intervals.TIMES if table == "commits" and column else (column,)
        return self._changes.files_since(table, [published_name(name) for name in columns], since_ms)

    def _published(self, table: str) -> list[str]:
        """Files of a table as the last run published it."""
        manifest = self._changes.manifest
        if manifest is None or table not in manifest.tables:
            return []
        return self._changes.store.files(table, manifest.tables[table])

    def _new(self, table: str) -> list[str]:
        before = set(self._published(table))
        return [file for file in self._changes.files(table) if file not in before]


def shared_out(rows: Mapping[int, int]) -> list[Share]:
    """Tasks for so many rows of each partition of the offsets topic; the last one has all that is not told of, too."""
    large = {number: -(-count // ROWS_A_TASK) for number, count in rows.items() if count > 2 * ROWS_A_TASK}
    small = sorted(rows.keys() - large.keys(), key=lambda number: -rows[number])
    lots: list[list[int]] = [[] for _ in range(-(-sum(rows[number] for number in small) // ROWS_A_TASK) or 1)]
    for number in small:
        min(lots, key=lambda lot: sum(rows[other] for other in lot)).append(number)
    shares = [Share((number,), False, slot, slots) for number, slots in large.items() for slot in range(slots)]
    shares += [Share(tuple(lot), is_rest=False) for lot in lots[1:] if lot]
    return [*shares, Share(tuple(sorted({number for share in shares for number in share.partitions})))]


def may_have(share: Share, first: int, last: int) -> bool:
    """Whether a file whose partitions are between these two may have some of a share."""
    inside = sum(first <= number <= last for number in share.partitions)
    return inside < last - first + 1 if share.is_rest else inside > 0


def _name(file: str) -> str:
    return file.rsplit("/", 1)[1]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _floored(time_ms: int, length_ms: int) -> int:
    return time_ms - time_ms % length_ms


def _ceiled(time_ms: int, length_ms: int) -> int:
    return _floored(time_ms + length_ms - 1, length_ms)


_READ = pa.schema([("offsets_partition", pa.int64()), ("next_offset", pa.int64())])
