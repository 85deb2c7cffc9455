"""Small files joined into large ones, and observations of ends thinned out as they grow old.

Every run adds a file or a few to each history table, and to each table by interval. Files are sorted into *sizes*, each
sixteen times the one before; where more than sixteen of a size have come together, they are joined into one of the
next. So a row is rewritten two or three times, up to files of 16 to 64 MB, and a table has a few dozen small files
at most, however many runs it took; by hand they are joined up to 128 MB. (A day would be no good measure: a quiet
cluster writes 100 KB in one, and years are thousands of days.)

Rows stay what they are, but for `log_ends`. A joined file is in the order of partitions of the offsets topic and of
groups, so that one group's history lies side by side, and bounds of the others say that it is not there. A commit to
Delta's log takes the small files out and the large ones in, as part of a run: readers see it when that is published.

Of tables by interval, rows of the hour that is still open are left in files of their own, since the next run replaces
them. Every run looks at the last week of `group_hours`: what is in it and what is older are joined apart.

A file that cannot be read is no reason to lose a run, nor is a full disk: the table keeps its files, what was written
is removed, and the run tells why.

`log_ends`: time lag is interpolated between observations, and every run reads them. All of the last hour are kept; of
earlier ones so many that no two lie farther apart than an eighth of their age or most of a day, always whole runs; the
first of all; and for two days the last one of every partition, which the next one is going to be compared with.
So the time lag that is interpolated from what is left is off by an eighth at most, and a year of observing each minute
leaves about seven hundred. That takes joining large files too: one is joined with all that are newer when its last
observation is two hours old and an eighth of the time that it covers, since then there is less to keep.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.errors import MusterError
from muster.tables.clocks import is_ahead
from muster.tables.relations import add_relation
from muster.tables.schemas import ANALYTICS, HISTORY
from muster.tables.sql.ends import LOOK_BACK_MS
from muster.tables.sql.hours import LOOK_BACK_HOURS
from muster.tables.storage.changes import Run, begin_run
from muster.tables.storage.files import FILE_BYTES, TableWriter, WrittenFile
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import remove

ENOUGH = 16
"""Files of one size; one more, and they are joined."""
SIZE_FACTOR = 16
FIRST_SIZE = 64 * 1024
LARGE_BYTES = 4 * FIRST_SIZE * SIZE_FACTOR
"""A file of this size is left as it is by a run on its way, but for observations that can be thinned again: a log
that is read for the first time leaves a few dozen, and sorting all of it again would cost more than reading it did."""
MOST_BYTES = ENOUGH * LARGE_BYTES
"""Of all files that are joined by one run on its way, those of `log_ends` not counted; by hand there is no limit."""
MEMORY, MEMORY_ON_THE_WAY = "1GB", "256MB"
"""What sorting takes before it goes to disk."""
BATCH_ROWS = 1 << 17
HOUR_MS = 3_600_000
OF_AGE = 8
WIDEST_MS = 20 * HOUR_MS
"""Analytics look for observations within a day (`ends.LOOK_BACK_MS`)."""
THINNED_AGAIN_MS = 2 * HOUR_MS
LAST_MS = 2 * LOOK_BACK_MS
"""Between two observations that are farther apart no moment is known."""

_BY_GROUP = "offsets_partition, group_id, log_offset"
ORDERS = {
    "commits": _BY_GROUP,
    "group_records": _BY_GROUP,
    "markers": "offsets_partition, log_offset",
    "rebalances": _BY_GROUP,
    "log_ends": "topic, partition, observed_at_ms",
    "lag_history": "group_id, topic, partition, interval_start_ms",
    "rates": "group_id, topic, partition, interval_start_ms",
    "group_hours": "group_id, hour_ms",
    "verdicts": "group_id, topic, partition, at_ms",
}
JOINED = HISTORY | ANALYTICS
_STARTS = {"lag_history": "interval_start", "rates": "interval_start", "group_hours": "hour"}


CANNOT = (MusterError, OSError, duckdb.Error, pa.ArrowException)
"""Files that cannot be read or written."""

Advance = Callable[[int, int], None]
"""Told of bytes that are done, and of how many there are."""


class Small(NamedTuple):
    """A file that may be joined with others."""

    name: str
    size_bytes: int
    rows: int


class JoinWork(NamedTuple):
    """Files of one table that are to be joined."""

    table: str
    files: tuple[Small, ...]
    address: str
    """Of the tables."""
    storage_options: tuple[tuple[str, str], ...]
    run_id: str
    memory: str

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Made(NamedTuple):
    """The files that a work left; or why there are none."""

    files: tuple[WrittenFile, ...]
    trouble: str | None = None


Each = Callable[[Callable[[JoinWork], Made], Sequence[JoinWork]], Iterable[Made]]
"""Does a task for every work, here or elsewhere; the answers are in the order of the works."""


class Joined(NamedTuple):
    """What became of one table."""

    files_before: int
    files: int
    size_bytes: int


def compact(store: TableStore, advance: Advance | None = None) -> dict[str, Joined]:
    """Join all small files of all tables, as a run of its own; by table, where there were any."""
    with begin_run(store) as run:
        if run.manifest is None:
            return {}
        source = run.manifest.source
        joining = Joining(run, (source.get("analytics") or {}).get("newest_ms"), by_hand=True, advance=advance)
        joining.do()
        if joining.done:
            run.publish(run.manifest.progress, _gone_on(source, run.number))
    return joining.done


def _gone_on(source: Mapping[str, Any], run_number: int) -> dict[str, Any]:
    """The source as the last run told it; what analytics have seen, and what was judged, holds for this one too: it
    brings no rows.
    """
    told, analysed = dict(source), source.get("analytics")
    if analysed and analysed["run_number"] == run_number - 1:
        told["analytics"] = {**analysed, "run_number": run_number}
    if source.get("judged") == run_number - 1:
        told["judged"] = run_number
    return told


def join_small_files(
    run: Run,
    newest_ms: int | None = None,
    each: Each = map,
    storage_options: tuple[tuple[str, str], ...] | None = None,
) -> list[str]:
    """Join files of the tables that this run has opened, where enough have come together; sentences on what failed.

    `newest_ms` is the newest moment that tables by interval know; without it they are left alone. `each` does the work,
    with `storage_options` as they may travel to it: those of the run's own store unless told.
    """
    joining = Joining(run, newest_ms, each=each, storage_options=storage_options)
    joining.do()
    return joining.notes


class Joining:
    """Files of a run's tables are joined: where enough have come together, or by hand all small ones."""

    def __init__(
        self,
        run: Run,
        newest_ms: int | None,
        *,
        by_hand: bool = False,
        advance: Advance | None = None,
        each: Each = map,
        storage_options: tuple[tuple[str, str], ...] | None = None,
    ) -> None:
        self._run, self._newest_ms, self._by_hand, self._advance, self._each = run, newest_ms, by_hand, advance, each
        self._options = tuple(run.store.storage_options.items()) if storage_options is None else storage_options
        self.done: dict[str, Joined] = {}
        self.notes: list[str] = []

    def do(self) -> None:
        works = self._works()
        done, size_bytes = 0, sum(work.size_bytes for work in works)
        for work, made in zip(works, self._made(works), strict=True):
            self._take(work, made)
            done += work.size_bytes
            if self._advance is not None:
                self._advance(done, size_bytes)

    def _made(self, works: Sequence[JoinWork]) -> Iterable[Made]:
        """What becomes of the works; of a run on its way, whatever happens to its tasks (a worker that is killed)."""
        if self._by_hand:
            return self._each(join, works)
        try:
            return list(self._each(tried, works))
        except MusterError as error:
            return [Made((), reason(error))] * len(works)

    def _works(self) -> list[JoinWork]:
        opened = [table for table in JOINED if (self._by_hand or self._run.has_opened(table)) and self._run.has(table)]
        works = [self._work(table, files) for table in opened for files in self._due(table)]
        if self._by_hand:
            return works
        ends = [work for work in works if work.table == "log_ends"]  # so much of them as there is, it becomes less
        return ends + _within([work for work in works if work.table != "log_ends"], MOST_BYTES)

    def _work(self, table: str, files: Sequence[Small]) -> JoinWork:
        memory = MEMORY if self._by_hand else MEMORY_ON_THE_WAY
        return JoinWork(table, tuple(files), self._run.store.address, self._options, self._run.run_id, memory)

    def _take(self, work: JoinWork, made: Made) -> None:
        """Put the new files in the place of the small ones, or tell why there are none."""
        table = work.table
        if made.trouble is not None:
            self.notes.append(
                f"small files of {table} were not joined: {made.trouble}. The table keeps them as they are; if one is "
                f"damaged, its rows cannot be read until it is restored. `muster pipeline compact --tables "
                f"{work.address}` tells when that is mended."
            )
            return
        self._run.swap(table, [file.name for file in work.files], made.files, same_rows=table != "log_ends")
        before = self.done.get(table, Joined(0, 0, 0))
        self.done[table] = Joined(
            before.files_before + len(work.files), before.files + len(made.files), before.size_bytes + work.size_bytes
        )

    def _due(self, table: str) -> list[list[Small]]:
        """Files to be joined, in lots; the files of a lot lie beside each other in time."""
        if table == "log_ends":
            return self._observations_due()
        least = 1 if self._by_hand else ENOUGH
        lots: list[list[Small]] = []
        for small in self._pools(table):
            by_size: dict[int, list[Small]] = {}
            for file in small:
                by_size.setdefault(0 if self._by_hand else _size(file.size_bytes), []).append(file)
            enough = [files for files in by_size.values() if len(files) > least]
            lots += [lot for files in enough for lot in _lots(files, FILE_BYTES if self._by_hand else MOST_BYTES)]
        return lots

    def _observations_due(self) -> list[list[Small]]:
        """Files of `log_ends`: all from the first on that has grown old enough to be thinned again; else the small ones
        if there are enough, by hand all.
        """
        facts = self._run.facts("log_ends")
        spans = _spans_ms(facts)
        places = sorted(range(len(spans)), key=lambda place: spans[place][1])
        files = _small(facts.take(places))
        if self._by_hand:
            return [files] if len(files) > 1 else []
        now_ms = _now_ms(sorted({last_ms for _, last_ms in spans}, reverse=True))
        for number, place in enumerate(places):
            if files[number].size_bytes >= LARGE_BYTES and _grew_old(*spans[place], now_ms):
                return [files[number:]]
        small = [file for file in files if file.size_bytes < LARGE_BYTES]
        most_of_a_size = max(Counter(_size(file.size_bytes) for file in small).values(), default=0)
        return [small] if most_of_a_size > ENOUGH else []

    def _pools(self, table: str) -> list[list[Small]]:
        """Small files, oldest first, apart where they are not to be joined with each other."""
        facts, most_bytes = self._run.facts(table), FILE_BYTES // 2 if self._by_hand else LARGE_BYTES
        places = pc.sort_indices(facts, [("modification_time", "ascending")])
        facts = facts.take(places).filter(pc.less(facts["size_bytes"].take(places), most_bytes))
        if table not in _STARTS:
            return [_small(facts)]
        column = f"max.{_STARTS[table]}"
        if self._newest_ms is None or column not in facts.column_names:
            return []
        starts = facts[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        open_ms = self._newest_ms - self._newest_ms % HOUR_MS
        recent_ms = open_ms - (LOOK_BACK_HOURS * HOUR_MS if table == "group_hours" else 0)
        is_over, is_recent = (pc.less(starts, open_ms * 1000), pc.greater_equal(starts, recent_ms * 1000))
        return [
            _small(facts.filter(pc.and_(is_over, is_recent))),
            _small(facts.filter(pc.and_(is_over, pc.invert(is_recent)))),
        ]


def _spans_ms(facts: pa.Table) -> list[tuple[int, int]]:
    """Of each file the first and the last moment of all that were written with it: a large join is cut by topics, and
    of topics that are gone nothing grows old any more.
    """
    runs = [name.rpartition("-")[0] for name in facts["path"].to_pylist()]
    first, last = (_moments_ms(facts, f"{bound}.observed_at") for bound in ("min", "max"))
    spans: dict[str, tuple[int, int]] = {}
    for run, first_ms, last_ms in zip(runs, first, last, strict=True):
        if first_ms:
            known = spans.get(run, (first_ms, last_ms))
            spans[run] = min(first_ms, known[0]), max(last_ms, known[1])
    return [spans.get(run, (0, 0)) for run in runs]


def _moments_ms(facts: pa.Table, column: str) -> list[int]:
    """A bound of each file, 0 where it has none."""
    if column not in facts.column_names:
        return [0] * facts.num_rows
    micros = facts[column].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [0 if each is None else each // 1000 for each in micros]


def _now_ms(moments: Sequence[int]) -> int:
    """Where ages are counted from, of moments with the newest first: an hour behind the second of them at most, since
    one look by a clock that was far ahead would make all others old.
    """
    return min(moments[0], moments[1] + HOUR_MS) if len(moments) > 1 else max(moments, default=0)


def _grew_old(first_ms: int, last_ms: int, now_ms: int) -> bool:
    """Whether of observations that were all that there was once many can go now."""
    return now_ms - last_ms >= max(THINNED_AGAIN_MS, (last_ms - first_ms) // OF_AGE)


def _small(facts: pa.Table) -> list[Small]:
    columns = (facts[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    return [Small(*values) for values in zip(*columns, strict=True)]


def _size(size_bytes: int) -> int:
    number = 0
    while size_bytes >= FIRST_SIZE:
        size_bytes, number = size_bytes // SIZE_FACTOR, number + 1
    return number


def _lots(files: Sequence[Small], most_bytes: int) -> list[list[Small]]:
    lots: list[list[Small]] = [[]]
    for file in files:
        if sum(each.size_bytes for each in lots[-1]) + file.size_bytes > most_bytes:
            lots.append([])
        lots[-1].append(file)
    return [lot for lot in lots if len(lot) > 1]


def _within(works: Sequence[JoinWork], most_bytes: int) -> list[JoinWork]:
    """The works that so many bytes are enough for; one that is too large leaves room for those behind it."""
    found: list[JoinWork] = []
    for work in works:
        if work.size_bytes <= most_bytes:
            found.append(work)
            most_bytes -= work.size_bytes
    return found


def tried(work: JoinWork) -> Made:
    """The same as `join`, for a run that does not fail because of it."""
    try:
        return join(work)
    except CANNOT as error:
        return Made((), reason(error))


def join(work: JoinWork) -> Made:
    """Write the rows of some files into as few as possible."""
    store = TableStore(work.address, dict(work.storage_options))
    with new_files(store, work.table, work.run_id) as writer:
        _write_in_order(store, work, writer)
        before, after = sum(file.rows for file in work.files), sum(file.rows for file in writer.files)
        if after != before and work.table != "log_ends":
            raise MusterError(f"{after} rows of {work.table} came out of {before} when its files were joined")
    return Made(tuple(writer.files))


@contextmanager
def new_files(store: TableStore, table: str, run_id: str) -> Iterator[TableWriter]:
    """A writer of rows of a table; if the block fails, everything that it has written is removed."""
    options = tuple(store.storage_options.items())
    writer = TableWriter(table, JOINED[table], f"{store.address}/{table}", options, run_id)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        remove(store.place, [f"{table}/{name}" for name in writer.names])
        raise


def reason(error: Exception) -> str:
    """The first line of what an error says, without its full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _write_in_order(store: TableStore, work: JoinWork, writer: TableWriter) -> None:
    table, schema = work.table, JOINED[work.table]
    paths = [f"{store.address}/{table}/{file.name}" for file in work.files]
    with tempfile.TemporaryDirectory() as spill, closing(duckdb.connect(config=_config(spill, work.memory))) as opened:
        add_relation(opened, "small", schema, paths, store.address, store.storage_options)
        names = ", ".join(f'"{name}"' for name in schema.names)
        condition = kept_observations(opened, "small") if table == "log_ends" else "TRUE"
        sql = f"SELECT {names} FROM small WHERE {condition} ORDER BY {ORDERS[table]}"
        for batch in opened.sql(sql).to_arrow_reader(BATCH_ROWS):
            writer.append(pa.Table.from_batches([batch]).cast(schema))
        writer.close()


def _config(spill: str, memory: str) -> dict[str, str | int]:
    return {"temp_directory": spill, "threads": 1, "memory_limit": memory}


def kept_observations(connection: Any, log_ends: str) -> str:
    """A condition on rows of `log_ends`: those of the runs that are kept."""
    sql = f"""
        SELECT e.run_number, max(e.observed_at_ms) AS at_ms FROM {log_ends} e
        GROUP BY e.run_number, CASE WHEN e.run_number IS NULL THEN e.observed_at_ms END
        ORDER BY e.run_number DESC NULLS LAST, at_ms DESC"""
    found = connection.execute(sql).fetchall()
    dated = [(number, at_ms) for number, at_ms in found if at_ms is not None]
    kept = thinned(dated) + [(number, at_ms) for number, at_ms in found if at_ms is None]
    if dated:
        kept += connection.execute(_last_of_each(log_ends, _now_ms([at_ms for _, at_ms in dated]) - LAST_MS)).fetchall()
    runs = ", ".join(str(number) for number, _ in kept if number is not None)
    moments = ", ".join(str(at_ms) for number, at_ms in kept if number is None and at_ms is not None)
    return f"(run_number IN ({runs or 'NULL'}) OR (run_number IS NULL AND observed_at_ms IN ({moments or 'NULL'})))"


def _last_of_each(log_ends: str, since_ms: int) -> str:
    """The runs, and their moments, that observed some partition last."""
    return f"""
        SELECT DISTINCT e.run_number, e.observed_at_ms FROM {log_ends} e JOIN (
            SELECT r.topic, r.partition, max(r.observed_at_ms) AS last_ms FROM {log_ends} r
            WHERE r.log_end_offset IS NOT NULL GROUP BY r.topic, r.partition
        ) n ON e.topic = n.topic AND e.partition = n.partition AND e.observed_at_ms = n.last_ms
        WHERE n.last_ms >= {since_ms}"""


def _is_wide(later_ms: int, earlier_ms: int, now_ms: int) -> bool:
    """Whether nothing between two moments is too little."""
    return later_ms - earlier_ms > min((now_ms - earlier_ms) // OF_AGE, WIDEST_MS)


def thinned(runs: Sequence[tuple[int | None, int]]) -> list[tuple[int | None, int]]:
    """The runs whose observations are kept, of all by number and moment, newest first.

    A look by a clock that was far ahead is kept, and is no neighbour of those around it.
    """
    now_ms = _now_ms([at_ms for _, at_ms in runs])
    near = [run for run in runs if not is_ahead(run[1], now_ms)]
    kept: list[tuple[int | None, int]] = []
    for place, (number, at_ms) in enumerate(near):
        is_last = place == len(near) - 1
        if not kept or now_ms - at_ms <= HOUR_MS or is_last or _is_wide(kept[-1][1], near[place + 1][1], now_ms):
            kept.append((number, at_ms))
    if len(near) == len(runs):
        return kept
    left = set(kept)
    return [run for run in runs if run in left or is_ahead(run[1], now_ms)]
