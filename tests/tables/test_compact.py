"""Small files are joined: the same rows in fewer files, one group's side by side, and readers notice nothing."""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.cli.status import Status
from muster.errors import MusterError
from muster.pipeline.engine import LocalEngine
from muster.pipeline.job import Request
from muster.pipeline.job import run as run_job
from muster.tables.reading import open_tables
from muster.tables.schemas import LOG_ENDS, MEMBERS, OFFSETS
from muster.tables.sql.ends import newest_ends
from muster.tables.sql.lag import lag
from muster.tables.sql.queries import DUCKDB_EXPLODE
from muster.tables.storage import compact as module
from muster.tables.storage import files as files_module
from muster.tables.storage.changes import begin_run
from muster.tables.storage.compact import (
    ENOUGH,
    HOUR_MS,
    OF_AGE,
    WIDEST_MS,
    Joining,
    JoinWork,
    Made,
    compact,
    join_small_files,
    thinned,
)
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import Keep
from tests.cli import run
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked
from tests.tables.history import asked
from tests.tables.made import made
from tests.tables.years import Years

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
    with begin_run(store) as run:
        run.append_rows("commits", commits(number))
        if joins:
            join_small_files(run)
        run.publish({}, {})


def test_by_hand_it_tells_how_far_it_is(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables")
    for number in range(3):
        append(store, number, joins=False)
    told: list[tuple[int, int]] = []
    done = compact(store, lambda *bytes_of: told.append(bytes_of))
    assert told == [(done["commits"].size_bytes, done["commits"].size_bytes)]


def test_a_run_leaves_large_files_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is read for the first time, sorting them again would take longer than reading it did."""
    monkeypatch.setattr(module, "LARGE_BYTES", 1)
    store = TableStore(tmp_path)
    with begin_run(store) as run:
        for number in range(ENOUGH + 1):
            run.append_rows("commits", commits(number))
        join_small_files(run)
        assert len(run.files("commits")) == ENOUGH + 1
        run.publish({}, {})
    assert compact(store)["commits"].files == 1


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
    with begin_run(store) as run:
        Joining(run, None, by_hand=True).do()
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


# Tables by interval.


def by_interval(table: str, *starts_ms: int) -> pa.Table:
    start = {"group_hours": "hour_ms"}.get(table, "interval_start_ms")
    return made(table, *({"group_id": "app", "topic": "t", start: start_ms} for start_ms in starts_ms))


@pytest.mark.parametrize("table", ["lag_history", "rates", "group_hours"])
def test_of_tables_by_interval_what_is_still_open_stays_apart(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENOUGH", 2)
    store = TableStore(tmp_path / "tables")
    hour = 1_000_000
    with begin_run(store) as run:
        for number in range(3):
            run.append_rows(table, by_interval(table, (hour - 9 + number) * HOUR_MS, (hour - 8 + number) * HOUR_MS))
        for number in range(2):
            run.append_rows(table, by_interval(table, (hour - 1 - number) * HOUR_MS, hour * HOUR_MS))
        run.append_rows(table, by_interval(table, (hour - 500) * HOUR_MS))
        held = set(run.files(table))
        assert join_small_files(run) == []
        assert set(run.files(table)) == held  # without a moment nothing is known to be over
        assert join_small_files(run, hour * HOUR_MS + 7) == []
        new = [file for file in run.files(table) if file not in held]
        assert len(new) == 1
        rows = pq.ParquetFile(new[0]).metadata.num_rows
        assert (rows, len(run.files(table))) == ((6, 4) if table == "group_hours" else (7, 3))  # a year ago is not now
        run.publish({}, {"analytics": {"run_number": 0, "newest_ms": hour * HOUR_MS + 7}})
    assert compact(store) == {}


# What cannot be read.


@pytest.mark.long
def test_a_file_that_cannot_be_joined_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENOUGH", 2)
    years = Years(tmp_path, rounds=4, records=400, days=1)
    tables = tmp_path / "tables"
    for _ in range(2):
        years.grow()
        run_here(tables, years.log)
    broken, *_ = (tables / "commits").glob("*.parquet")
    content = broken.read_bytes()
    broken.write_bytes(content[: len(content) // 2])
    years.grow()
    summary = run_here(tables, years.log)
    (note,) = (note for note in summary.notes if "not joined" in note)
    assert note.startswith("small files of commits were not joined: ")
    assert "if one is damaged, its rows cannot be read until it is restored" in note
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    assert manifest.run_id == summary.run_id
    assert len(list((tables / "commits").glob("*.parquet"))) == 3  # and nothing half done
    assert run("pipeline", "compact", "--tables", tables).status != Status.OK
    broken.write_bytes(content)
    years.grow()
    years.close()
    assert not [note for note in run_here(tables, years.log).notes if "joined" in note]
    run_here(tmp_path / "once", years.log)
    found, expected = (rows_of(each, "commits")["commits"] for each in (tables, tmp_path / "once"))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


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
        newest = f"({newest_ends('log_ends')})"
        found = asked(tables, lag("offsets", "log_ends", newest, "members", explode=DUCKDB_EXPLODE)).to_pylist()
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
        with begin_run(store) as run:
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


def test_observations_in_large_files_are_thinned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look each ten minutes, a file with those of each hour and a half."""
    monkeypatch.setattr(module, "LARGE_BYTES", 1)
    looks = [(number, 1_790_000_000_000 + number * 10 * MINUTE_MS) for number in range(20 * 9)]
    store = TableStore(tmp_path / "tables", keep=Keep(1, 0))
    joined, rows_left = 0, []
    for start in range(0, len(looks), 9):
        before, after = looked(store, looks[start : start + 9])
        joined += len(after) < before
        rows_left = after
    assert 0 < joined < 12
    assert len(rows_left) < 8
    least = len(thinned(looks[::-1]))
    assert least <= sum(rows_left) < 2 * least


def looked(
    store: TableStore, looks: Sequence[tuple[int, int]], topic: str = "t", partitions: int = 1
) -> tuple[int, list[int]]:
    """A run that adds a file with looks, by number and moment: how many files there were then, and the rows of each
    file that there are when small ones are joined.
    """
    rows = [
        {"topic": topic, "partition": n, "observed_at_ms": at_ms, "log_end_offset": number, "run_number": number}
        for number, at_ms in looks
        for n in range(partitions)
    ]
    with begin_run(store) as run:
        run.append_rows("log_ends", made("log_ends", *rows))
        before = run.facts("log_ends").num_rows
        join_small_files(run)
        run.publish({}, {})
        return before, run.facts("log_ends")["num_records"].to_pylist()


def test_one_look_by_a_clock_that_was_far_ahead_makes_no_other_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", 1)
    store, begin_ms = TableStore(tmp_path / "tables"), 1_790_000_000_000
    looked(store, [(number, begin_ms + number * MINUTE_MS) for number in range(180)])
    looked(store, [(180, begin_ms + 30 * 24 * HOUR_MS)])
    _, left = looked(store, [(181, begin_ms + 181 * MINUTE_MS)])
    assert sum(left) == 182


def test_a_look_that_was_far_ahead_is_no_neighbour_of_those_around_it() -> None:
    """Minutes of three days, thinned every 17 runs; the same with and without it."""
    ahead = (600, 600 * MINUTE_MS + 30 * 24 * HOUR_MS)
    found = []
    for looks in (observed(3 * 24 * 60)[::-1], [*observed(600)[::-1], ahead, *observed(3 * 24 * 60)[::-1][601:]]):
        kept: list[tuple[int | None, int]] = []
        for start in range(0, len(looks), 17):
            kept = thinned([*looks[start : start + 17][::-1], *kept])
        found.append(kept)
    well, with_one_ahead = found
    assert ahead in with_one_ahead
    assert abs(len(with_one_ahead) - len(well)) <= 2
    newest_ms = well[0][1]
    for (_, later), (_, earlier) in pairwise([look for look in with_one_ahead if look != ahead]):
        assert later - earlier <= max(2 * MINUTE_MS, min((newest_ms - earlier) // OF_AGE, WIDEST_MS))


def test_what_was_thinned_is_left_alone_though_some_of_its_files_are_of_topics_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each, name, value in (
        (module, "LARGE_BYTES", 1),
        (module, "BATCH_ROWS", 64),
        (files_module, "FILE_BYTES", 1),
        (files_module, "ROW_GROUP_ROWS", 50),
    ):
        monkeypatch.setattr(each, name, value)
    store, begin_ms = TableStore(tmp_path / "tables", keep=Keep(1, 0)), 1_790_000_000_000
    looked(store, [(number, begin_ms + number * HOUR_MS) for number in range(8)], "gone", 200)
    looked(store, [(number, begin_ms + number * HOUR_MS) for number in range(8, 40)], "there", 200)
    counts = [looked(store, [(40 + n, begin_ms + 60 * HOUR_MS + n * MINUTE_MS)], "there") for n in range(6)]
    joins = [number for number, (before, after) in enumerate(counts) if before != len(after)]
    assert len(joins) == 1
    assert len(counts[joins[0]][1]) > 2


def test_joined_files_tell_of_what_time_they_are(tmp_path: Path) -> None:
    """Rows without a time of their own, too: theirs is that of the commit, or of the commit that is gone."""
    store, day_ms = TableStore(tmp_path), 24 * HOUR_MS
    begin_ms = 1_790_000_000_000
    key = {"offsets_partition": 0, "group_id": "g", "topic": "t", "partition": 0}
    rows = [
        key | {"kind": "commit", "log_offset": 1, "timestamp_ms": begin_ms, "committed_offset": 1},
        key | {"kind": "vanished", "log_offset": 2, "previous_commit_timestamp_ms": begin_ms + day_ms},
        key | {"kind": "commit", "log_offset": 3, "commit_timestamp_ms": begin_ms + 2 * day_ms},
    ]
    for number, row in enumerate(rows):
        with begin_run(store) as changes:
            changes.append_rows("commits", made("commits", row))
            look = {"topic": "t", "partition": 0, "observed_at_ms": begin_ms + number, "log_end_offset": 1}
            changes.append_rows("log_ends", made("log_ends", look | {"run_number": number}))
            changes.publish({}, {})
    assert {"commits", "log_ends"} == set(compact(store))
    with begin_run(store) as changes:

        def left(table: str, columns: list[str], since_ms: int) -> int:
            return len(changes.files_since(table, columns, since_ms))

        times = ["timestamp", "commit_timestamp", "previous_commit_timestamp"]
        assert left("commits", times, begin_ms + 2 * day_ms) == 1
        assert left("commits", times, begin_ms + 2 * day_ms + 1) == 0
        assert left("commits", times[:1], begin_ms + 2 * day_ms + 1) == 1  # alone it does not tell
        assert left("log_ends", ["observed_at"], begin_ms + 2) == 1
        assert left("log_ends", ["observed_at"], begin_ms + 3) == 0


def test_a_run_joins_files_in_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sorts rows takes memory, and a driver has none to spare."""
    monkeypatch.setattr(module, "ENOUGH", 1)
    steps = Counter[str]()

    class Told(LocalEngine):
        def each(self, step: str, task: Callable[[Any], Any], works: Sequence[Any]) -> list[Any]:
            steps[step] += len(works)
            return super().each(step, task, works)

    log = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "log", Random(1))
    for share in (0.5, 1):
        log.grow_a_little(share)
        run_job(Told(), Request([str(log.target)], str(tmp_path / "tables"), analytics=False))
    assert steps["join small files"] >= 2
    manifest = TableStore(tmp_path / "tables").manifest()
    assert manifest is not None
    assert len(TableStore(tmp_path / "tables").files("group_records", manifest.tables["group_records"])) == 1


def test_tasks_that_are_killed_while_they_join_files_cost_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENOUGH", 1)

    class Lost(LocalEngine):
        def each(self, step: str, task: Callable[[Any], Any], works: Sequence[Any]) -> list[Any]:
            if step == "join small files" and works:
                raise MusterError("Spark could not finish the run: a worker was lost.")
            return super().each(step, task, works)

    log = GrowingLog(unpacked("mini-zstd-43", tmp_path), tmp_path / "log", Random(1))
    for share in (0.5, 1):
        log.grow_a_little(share)
        summary = run_job(Lost(), Request([str(log.target)], str(tmp_path / "tables"), analytics=False))
    manifest = TableStore(tmp_path / "tables").manifest()
    assert manifest is not None
    assert manifest.run_id == summary.run_id
    assert any("were not joined: Spark could not finish the run: a worker was lost." in note for note in summary.notes)


def test_a_key_of_the_store_does_not_travel_to_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    reference = {"aws_secret_access_key": "${env:A_KEY}"}
    store = TableStore(tmp_path, reference)
    assert store.storage_options["aws_secret_access_key"] == "secret"
    sent: list[bytes] = []

    def elsewhere(task: Callable[[JoinWork], Made], works: Sequence[JoinWork]) -> list[Made]:
        sent.append(pickle.dumps(works))
        return [task(work) for work in works]

    with begin_run(store) as run:
        for number in range(ENOUGH + 1):
            run.append_rows("commits", commits(number))
        assert join_small_files(run, None, elsewhere, tuple(reference.items())) == []
        assert len(run.files("commits")) == 1
    assert b"A_KEY" in sent[0]
    assert b"secret\x94" not in sent[0]


def test_a_reader_is_not_disturbed_by_joining_and_clearing_up(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(1, HOUR_MS))
    append(store, 0)
    with open_tables(store.address) as tables:
        for number in range(1, ENOUGH + 3):
            append(store, number)
        assert tables.read("commits").table().num_rows == 20
    with open_tables(store.address) as tables:
        assert tables.read("commits").table().num_rows == 20 * (ENOUGH + 3)


def test_by_hand_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tmp_path / "tables"
    ran = run("pipeline", "compact", "--tables", tables)
    assert ran.status == Status.BAD_INPUT
    assert "there are no tables" in ran.err
    assert "`muster pipeline run --source SOURCE --out" in ran.err
    assert "Missing option '--tables'" in run("pipeline", "compact").err
    for number in range(3):
        append(TableStore(tables), number)
    ran = run("pipeline", "compact", "--tables", tables)
    assert ran.status == Status.OK
    assert "commits: 3 files" in ran.err
    assert "are 1 now" in ran.err
    monkeypatch.setenv("MUSTER_TABLES", str(tables))
    assert "no small files to join" in run("pipeline", "compact").err
