"""Small files are joined: the same rows in fewer files, one group's side by side, and readers notice nothing."""

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.cli.status import Status
from muster.tables import compact as module
from muster.tables.compact import ENOUGH, HOUR_MS, OF_AGE, WIDEST_MS, compact, join_small_files, thinned
from muster.tables.queries import DUCKDB_EXPLODE, lag
from muster.tables.reading import open_tables
from muster.tables.schemas import LOG_ENDS, MEMBERS, OFFSETS
from muster.tables.store import TableStore
from muster.tables.upkeep import Keep
from tests.cli import run
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked
from tests.tables.history import asked
from tests.tables.made import made

GROUPS = 40
MINUTE_MS = 60_000


def commits(number: int) -> pa.Table:
    """A run's worth: each group commits now and then."""
    random = Random(number)
    rows = [
        {"offsets_partition": group % 5, "log_offset": 100 * number + place, "timestamp_ms": 1_000 * number + place,
         "group_id": f"group-{group:02}", "topic": "t", "committed_offset": number, "kind": "commit"}
        for place, group in enumerate(random.sample(range(GROUPS), 20))
    ]  # fmt: skip
    return made("commits", *rows)


def counted(store: TableStore, version: int | None = None) -> "Counter[tuple[Any, ...]]":
    """Rows of commits, each as often as it is there."""
    manifest = store.manifest()
    assert manifest is not None
    files = store.files("commits", manifest.tables["commits"] if version is None else version)
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return Counter(tuple(row.values()) for row in rows)


def append(store: TableStore, number: int, *, joins: bool = True) -> None:
    with store.run() as run:
        run.append_rows("commits", commits(number))
        if joins:
            join_small_files(run)
        run.publish({}, {})


def test_files_stay_few_and_rows_the_same(tmp_path: Path) -> None:
    store, plain = TableStore(tmp_path / "tables", keep=Keep(2, 0)), TableStore(tmp_path / "plain")
    most = 0
    for number in range(ENOUGH + 3):
        append(store, number)
        append(plain, number, joins=False)
        manifest = store.manifest()
        assert manifest is not None
        most = max(most, len(store.files("commits", manifest.tables["commits"])))
    assert most <= ENOUGH + 2
    assert counted(store) == counted(plain)
    assert sum(counted(store).values()) == (ENOUGH + 3) * 20


def test_by_hand_all_are_joined_and_readers_go_on_with_what_they_opened(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables")
    for number in range(6):
        append(store, number)
    opened = store.manifest()
    before = counted(store)
    assert opened is not None
    (joined,) = compact(store).values()
    assert joined[:2] == (6, 1)
    manifest = store.manifest()
    assert manifest is not None
    (file,) = store.files("commits", manifest.tables["commits"])
    rows = pq.ParquetFile(file).read(["offsets_partition", "group_id", "log_offset"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: tuple(row.values()))
    assert counted(store) == before == counted(store, opened.tables["commits"])
    assert (manifest.progress, manifest.source) == (opened.progress, opened.source)
    entry = max((Path(store.address) / "commits" / "_delta_log").glob("*.json")).read_text()
    assert '"dataChange":false' in entry
    assert '"dataChange":true' not in entry
    assert compact(store) == {}
    assert store.manifest() == manifest  # nothing to do, no run


def test_a_join_that_is_not_published_is_rolled_back(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(1, 0))
    for number in range(4):
        append(store, number)
    before = counted(store)
    with store.run() as run:
        join_small_files(run, by_hand=True)
        assert len(run.files("commits")) == 1
    assert counted(store) == before
    append(store, 4)
    assert counted(store) == before + counted_of(commits(4))
    assert sum(counted(store).values()) == 5 * 20


def counted_of(rows: pa.Table) -> "Counter[tuple[Any, ...]]":
    from muster.tables.schemas import published_form
    from muster.tables.times import published

    found = published(rows, published_form(rows.schema)).to_pylist()
    return Counter(tuple(row.values()) for row in found)


def test_rows_that_get_lost_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TableStore(tmp_path / "tables")
    for number in range(3):
        append(store, number)
    before = counted(store)
    monkeypatch.setitem(module.ORDERS, "commits", "log_offset LIMIT 7")
    with pytest.raises(Exception, match="7 rows of commits came out of 60"):
        compact(store)
    assert counted(store) == before


# Observations of ends.


def observed(runs: int, every_ms: int = MINUTE_MS) -> list[tuple[int | None, int]]:
    """Runs, newest first."""
    return [(number, number * every_ms) for number in reversed(range(runs))]


def test_a_year_of_minutes_leaves_some_hundred_observations() -> None:
    kept: list[tuple[int | None, int]] = []
    for day in range(0, 365, 5):  # as runs do it: what is new on top of what was left
        new = [(number, number * MINUTE_MS) for number in reversed(range(day * 1440, (day + 5) * 1440))]
        kept = thinned([*new, *kept])
    assert len(kept) <= 700
    assert kept[-1] == (0, 0)
    newest = kept[0][1]
    assert [at for _, at in kept[:61]] == [newest - minute * MINUTE_MS for minute in range(61)]
    for (_, later), (_, earlier) in pairwise(kept):
        assert later - earlier <= max(MINUTE_MS, min((newest - earlier) // OF_AGE, WIDEST_MS))


def test_rows_without_a_number_and_clocks_that_step_back() -> None:
    assert thinned([(2, 10), (1, 90_000_000), (None, 5)]) == [(2, 10), (1, 90_000_000), (None, 5)]
    assert thinned([(1, 5)]) == [(1, 5)]
    assert thinned([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_lag_in_time_from_what_is_left_is_off_by_an_eighth_at_most(seed: int) -> None:
    """Of a log that grows by fits and starts, at every offset a group may have committed."""
    random = Random(seed)
    runs, end, rows = 3_000, 0, []
    for number in range(runs):
        end += random.choice([0, 0, 0, 1, 5, 200]) if number % 700 < 500 else 0
        rows.append({"topic": "t", "observed_at_ms": number * MINUTE_MS, "log_end_offset": end, "run_number": number})
    left = {number for number, _ in thinned(observed(runs))}
    assert len(left) < 200
    groups = [{"group_id": f"{n:05}", "topic": "t", "committed_offset": random.randrange(end)} for n in range(300)]

    def times(some: list[dict[str, Any]]) -> list[int | None]:
        tables = {
            "offsets": pa.Table.from_pylist([{"partition": 0} | group for group in groups], schema=OFFSETS),
            "log_ends": pa.Table.from_pylist([{"partition": 0} | row for row in some], schema=LOG_ENDS),
            "members": MEMBERS.empty_table(),
        }
        found = asked(tables, lag("offsets", "log_ends", "members", explode=DUCKDB_EXPLODE)).to_pylist()
        return [row["lag_ms"] for row in sorted(found, key=lambda row: row["group_id"])]

    full, thin = times(rows), times([row for row in rows if row["run_number"] in left])
    assert None not in thin
    for whole, part in zip(full, thin, strict=True):
        assert whole is not None
        assert part is not None
        assert abs(whole - part) <= max(whole, part) / 8 + 2 * MINUTE_MS


def test_observations_are_thinned_when_their_files_are_joined(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(1, 0))
    for number in range(ENOUGH + 2):
        with store.run() as run:
            at_ms = 1_790_000_000_000 + number * HOUR_MS
            rows = [
                {"topic": "t", "partition": n, "observed_at_ms": at_ms, "log_end_offset": number, "run_number": number}
                for n in range(3)
            ]
            run.append_rows("log_ends", made("log_ends", *rows))
            join_small_files(run)
            run.publish({}, {})
    manifest = store.manifest()
    assert manifest is not None
    files = store.files("log_ends", manifest.tables["log_ends"])
    assert len(files) <= ENOUGH + 1
    found = Counter(row for file in files for row in pq.ParquetFile(file).read()["run_number"].to_pylist())
    assert len(found) < ENOUGH + 2
    assert {0, ENOUGH, ENOUGH + 1} <= set(found)
    assert set(found.values()) == {3}  # whole runs


# Many runs.


def many_runs(tmp_path: Path, runs: int) -> list[float]:
    """Runs over a growing log; CPU seconds of each. In the middle a reader opens the tables, and reads at the end."""
    corpus = unpacked("k26", tmp_path / "corpus")
    log = GrowingLog(corpus, tmp_path / "log", Random(7))
    tables, seconds = tmp_path / "tables", list[float]()
    store, most = TableStore(tables), Counter[str]()
    for number in range(runs):
        log.grow_a_little(1 / (runs - number))
        began = time.process_time()
        run_here(tables, log.target, keep=Keep(2, 0))
        seconds.append(time.process_time() - began)
        manifest = store.manifest()
        assert manifest is not None
        for table, version in manifest.tables.items():
            most[table] = max(most[table], len(store.files(table, version)))
            assert len(list((tables / table / "_delta_log").glob("*"))) <= 30, table
    assert all(most[table] <= 2 * (module.ENOUGH + 4) for table in most), most
    run_here(tmp_path / "once", corpus)
    names = ("commits", "offsets", "groups", "members", "markers", "rebalances", "open_commits")
    assert rows_of(tables, *names) == rows_of(tmp_path / "once", *names)
    return seconds


def test_many_runs_leave_what_one_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENOUGH", 4)
    many_runs(tmp_path, 12)


@pytest.mark.long
def test_a_thousand_runs_cost_what_a_few_cost(tmp_path: Path) -> None:
    seconds = many_runs(tmp_path, 1000)
    assert median(seconds[-100:]) <= 1.3 * median(seconds[10:60])


def test_a_reader_is_not_disturbed_by_joining_and_clearing_up(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(1, HOUR_MS))
    append(store, 0)
    with open_tables(store.address) as tables:
        for number in range(1, ENOUGH + 3):
            append(store, number)
        assert tables.read("commits").table().num_rows == 20
    with open_tables(store.address) as tables:
        assert tables.read("commits").table().num_rows == 20 * (ENOUGH + 3)


def test_by_hand_from_the_command_line(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    ran = run("pipeline", "compact", "--tables", tables)
    assert ran.status == Status.BAD_INPUT
    assert "there are no tables" in ran.err
    for number in range(3):
        append(TableStore(tables), number)
    ran = run("pipeline", "compact", "--tables", tables)
    assert ran.status == Status.OK
    assert "commits: 3 files" in ran.err
    assert "are 1 now" in ran.err
    assert "no small files to join" in run("pipeline", "compact", "--tables", tables).err
