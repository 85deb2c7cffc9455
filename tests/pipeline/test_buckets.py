"""Runs merge and rewrite the partitions of the offsets topic in which something is new, and no others."""

import shutil
from pathlib import Path
from random import Random

import pytest

from muster.pipeline import buckets, job
from muster.pipeline.buckets import HeldState, count_of, shares
from muster.tables.schemas import PUBLISHED, STATE, TABLES
from muster.tables.storage.store import TableStore
from tests.pipeline.test_job import sorted_rows, without
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked

IN_BUCKETS = [table for table in STATE if table != "lag"]


@pytest.mark.parametrize(
    ("rows", "held", "expected"),
    [
        (0, None, 1),
        (99, None, 1),
        (101, None, 2),
        (5_000, None, 7),  # partitions
        (150, 3, 3),
        (150, 4, 4),
        (150, 5, 2),  # far too many
        (301, 3, 4),  # too few
    ],
)
def test_there_are_as_many_as_the_rows_are_worth(
    rows: int, held: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "ROWS_A_BUCKET", 100)
    assert count_of(rows, 7, held) == expected


def test_what_is_merged_and_what_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "ROWS_A_BUCKET", 100)
    numbers = [0, 1, 2, 3, 4, 5, 8]
    assert shares(numbers, [5], 400, 4) == (4, {1: (1, 5)}, ((0, 4, 8, 2, 3),))
    assert shares(numbers, [], 400, 4) == (4, {}, ((0, 4, 8, 1, 5, 2, 3),))
    everything = {0: (0, 4, 8), 1: (1, 5), 2: (2,), 3: (3,)}
    assert shares(numbers, [5], 400, None) == (4, everything, ())
    assert shares(numbers, [5], 400, 9) == (4, everything, ())
    assert shares([0, 2], [0, 2], 200, None) == (2, {0: (0, 2)}, ())  # a bucket that no partition is in
    assert shares([], [], 0, None) == (1, {}, ())
    monkeypatch.setattr(buckets, "QUIET_AT_ONCE", 2)
    assert shares(numbers, [5], 400, 4).quiet == ((0, 4, 8, 2), (3,))


def test_files_that_may_have_rows_of_partitions() -> None:
    files = {"offsets": {0: ["a"], 1: ["b", "c"], 2: []}}
    assert HeldState(3, files).of("offsets", [4, 1]) == ("b", "c")
    assert HeldState(3, files).of("offsets", [0, 5]) == ("a",)
    assert HeldState(None, {"offsets": {0: ["a", "b"]}}).of("offsets", [7]) == ("a", "b")


def files_of(tables: Path) -> dict[str, set[str]]:
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    return {table: set(store.files(table, manifest.tables[table])) for table in STATE}


def grown(log: Path, folder: Path) -> GrowingLog:
    """Some of a log; the same whenever it is asked for."""
    growing = GrowingLog(log, folder / "growing", Random(5))
    growing.grow()
    return growing


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of four partitions."""
    return unpacked("k43-full", tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def run_once(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of some of it, with a bucket for each partition."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(buckets, "ROWS_A_BUCKET", 1)
        run_here(folder / "tables", grown(log, folder).target)
    return folder / "tables"


@pytest.fixture
def in_steps(log: Path, run_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrowingLog:
    """The log as it was when it was run over once, and in `in-steps` those tables."""
    monkeypatch.setattr(buckets, "ROWS_A_BUCKET", 1)
    shutil.copytree(run_once, tmp_path / "in-steps")
    return grown(log, tmp_path)


@pytest.mark.long
def test_quiet_partitions_keep_their_files_and_the_tables_are_the_same(in_steps: GrowingLog, tmp_path: Path) -> None:
    tables = tmp_path / "in-steps"
    assert len(files_of(tables)["offsets"]) == len(in_steps.partitions) == 4
    for number in in_steps.partitions[:2]:
        before = files_of(tables)
        in_steps.grow(all_of_it=True, only=number)
        assert run_here(tables, in_steps.target).records
        after = files_of(tables)
        for table in IN_BUCKETS:
            assert len(before[table] - after[table]) <= 1, table
            assert len(before[table] & after[table]) >= len(before[table]) - 1, table
        assert not before["lag"] & after["lag"]
    run_here(tmp_path / "at-once", in_steps.target)
    found, expected = (rows_of(tmp_path / each, *STATE) for each in ("in-steps", "at-once"))
    for table in STATE:
        rows = (without(each[table], *AS_OF_THE_LAST_RUN.get(table, ())) for each in (found, expected))
        assert sorted_rows(next(rows)) == sorted_rows(next(rows)), table


@pytest.mark.long
def test_a_column_that_came_later_is_filled_in_quiet_buckets_too(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "ROWS_A_BUCKET", 1)
    growing = grown(log, tmp_path)
    tables = tmp_path / "tables"
    with monkeypatch.context() as earlier:  # a release that did not have the column yet
        for schemas, name in ((TABLES, "last_commit_timestamp_ms"), (PUBLISHED, "last_commit_timestamp")):
            schema = schemas["groups"]
            earlier.setitem(schemas, "groups", schema.remove(schema.get_field_index(name)))
        run_here(tables, growing.target)
    growing.grow(all_of_it=True, only=0)
    assert run_here(tables, growing.target).records
    run_here(tmp_path / "at-once", growing.target)
    found, expected = (rows_of(each, "groups")["groups"] for each in (tables, tmp_path / "at-once"))
    assert sorted_rows(found) == sorted_rows(expected)


def test_a_definition_that_changed_makes_all_buckets_anew_once(
    in_steps: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "in-steps"
    monkeypatch.setattr(buckets, "VERSION", buckets.VERSION + 1)
    monkeypatch.setattr(job, "VERSION", buckets.VERSION)
    left = []
    for number in (0, 1):
        before = files_of(tables)["offsets"]
        in_steps.grow(all_of_it=True, only=number)
        assert run_here(tables, in_steps.target).records
        left.append(len(before & files_of(tables)["offsets"]))
    assert left == [0, 3]


AS_OF_THE_LAST_RUN = {"activity": ("first_commit_ms",)}


@pytest.mark.long
def test_buckets_that_become_others_lose_nothing(
    in_steps: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "in-steps"
    for rows_a_bucket in (10**9, 1):
        monkeypatch.setattr(buckets, "ROWS_A_BUCKET", rows_a_bucket)
        in_steps.grow(only=1)
        summary = run_here(tables, in_steps.target)
        manifest = TableStore(tables).manifest()
        assert manifest is not None
        assert {len(of_table) for of_table in manifest.upkeep.buckets.values()} == {4 if rows_a_bucket == 1 else 1}
    run_here(tmp_path / "at-once", in_steps.target)
    found, expected = (rows_of(tmp_path / each, *STATE) for each in ("in-steps", "at-once"))
    assert {table: len(found[table]) for table in STATE} == {table: len(expected[table]) for table in STATE}
    assert sorted_rows(found["offsets"]) == sorted_rows(expected["offsets"])
    assert (summary.rows["offsets"], summary.rows["lag"]) == (len(found["offsets"]), len(found["lag"]))
