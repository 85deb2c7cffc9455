"""Whole runs: what brokers answered, in one go and in steps."""

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from muster.errors import BadInput
from muster.pipeline.plan import Look
from muster.pipeline.sources.offsets_topic import LogDirectories, open_source
from muster.tables.schemas import TABLES
from muster.tables.storage.store import TableStore
from tests.cli import corpus
from tests.codec.corpus_records import NAMES
from tests.pipeline.world import GrowingLog, Rows, rows_of, run_here, unpacked
from tests.tables.history import answers, state_at_the_end

WHOLE = [name for name in NAMES if not name.startswith("damaged")]
AS_OTHERS = {"k43-all", "k43-kill"}
"""The first is run in steps below, the second tells what k36-gzip tells in batches of another codec."""
STATE = ("offsets", "open_commits", "group_state", "groups", "members")
HISTORY = ("commits", "group_records", "markers", "rebalances")


def sorted_rows(rows: Rows) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def without(rows: Rows, *columns: str) -> Rows:
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in AS_OTHERS else ()) for name in WHOLE]
)
def test_a_run_over_a_corpus_gives_what_the_broker_answered(name: str, tmp_path: Path) -> None:
    log = unpacked(name, tmp_path)
    summary = run_here(tmp_path / "tables", log)
    tables = rows_of(tmp_path / "tables", *STATE, "lag")
    # That these are the broker's own answers is shown where they are made, in tests/tables/test_queries.py.
    expected = state_at_the_end(name)
    for table in ("offsets", "groups", "members"):
        assert sorted_rows(tables[table]) == sorted_rows(expected[table].to_pylist()), table
    assert not summary.damaged
    check_lag(name, log, tables["lag"])


def check_lag(name: str, log: Path, lag: Rows) -> None:
    """Ends minus commits under both isolation levels, as the broker told ends; and no lag behind a marker alone."""
    told = answers(name)["topics"]
    measured = 0
    for row in lag:
        topic, where = told.get(row["topic"]), f"{row['topic']}-{row['partition']}"
        if topic is None or row["committed_offset"] is None or not (log / where).exists():
            assert row["lag"] is None  # deleted, nothing committed, or left out of the corpus: nobody knows
            continue
        end, stable = (topic[level][where]["offset"] for level in ("endReadUncommitted", "endReadCommitted"))
        assert (row["log_end_offset"], row["last_stable_offset"]) == (end, stable)
        assert row["offset_lag"] == end - row["committed_offset"]
        assert row["stable_lag"] == stable - row["committed_offset"]
        if row["group_id"].endswith("-ledger"):
            assert (row["offset_lag"], row["lag"]) == (1, 0)
        measured += 1
    assert measured


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("k43-all", 0),
        ("k26-full", 1),
        *(pytest.param(name, seed, marks=pytest.mark.long) for name in WHOLE for seed in range(2, 4)),
    ],
)
def test_in_steps_it_is_the_same_as_in_one_go(name: str, seed: int, tmp_path: Path) -> None:
    random = Random(f"{name} {seed}")
    growing = GrowingLog(unpacked(name, tmp_path), tmp_path / "growing", random)
    for _ in range(random.randint(2, 5)):
        growing.grow()
        run_here(tmp_path / "in-steps", growing.target)
    growing.grow(all_of_it=True)
    run_here(tmp_path / "in-steps", growing.target)
    run_here(tmp_path / "at-once", growing.target)
    in_steps, at_once = (rows_of(tmp_path / each, *STATE, *HISTORY) for each in ("in-steps", "at-once"))
    told = _first_commits(in_steps["group_records"]), _first_commits(at_once["group_records"])
    assert told[0].items() <= told[1].items(), "as far as the run that read the record had read"
    for table in (*STATE, *HISTORY):
        rows = (without(each[table], *FOUND_LATER.get(table, ())) for each in (in_steps, at_once))
        assert sorted_rows(next(rows)) == sorted_rows(next(rows)), table


FOUND_LATER = {"group_records": ("first_commit_after_ms",)}
"""What the run that reads a record may not know yet; the rebalance of that record has it."""


def _first_commits(group_records: Rows) -> dict[tuple[int, int], int]:
    return {
        (row["offsets_partition"], row["log_offset"]): row["first_commit_after_ms"]
        for row in group_records
        if row["first_commit_after_ms"] is not None
    }


def versions(tables: Path) -> dict[str, int]:
    manifest = TableStore(tables).manifest()
    assert manifest is not None
    return dict(manifest.tables)


def test_nothing_new_nothing_read_twice_and_nothing_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, tables = unpacked("k43-all", tmp_path), tmp_path / "tables"
    first = run_here(tables, log)
    before, looked, rows = versions(tables), LogDirectories.look, rows_of(tables, *STATE, *HISTORY)
    again = run_here(tables, log)
    assert versions(tables) == before
    assert rows_of(tables, *STATE, *HISTORY) == rows
    assert (first.records, again.records) == (2294, 0)
    assert (again.rows, set(again.new_rows)) == (first.rows, set(first.new_rows))
    assert not any(again.new_rows.values())
    manifest = TableStore(tables).manifest()
    assert manifest is not None
    assert manifest.run_id == again.run_id, "that the source was looked at is told"

    # The end of a partition of data moves: lag is another, though the offsets topic has nothing new.
    def moved(self: LogDirectories, *known: Any) -> Look:
        found = looked(self, *known)
        ends = found.log_ends.column("log_end_offset").to_pylist()
        place = found.log_ends.schema.get_field_index("log_end_offset")
        more = pa.array([ends[0] + 7, *ends[1:]], pa.int64())
        return found._replace(log_ends=found.log_ends.set_column(place, found.log_ends.schema.field(place), more))

    monkeypatch.setattr(LogDirectories, "look", moved)
    run_here(tables, log)
    after = versions(tables)
    assert after["lag"] > before["lag"]
    assert after["log_ends"] > before["log_ends"]
    run_here(tables, log)
    assert versions(tables) == after

    # In a live cluster the lag in time of a group that is behind grows with the clock.
    monkeypatch.setattr(LogDirectories, "look", lambda self, known: moved(self, known)._replace(is_live=True))
    run_here(tables, log)
    assert versions(tables)["lag"] > after["lag"]


def test_state_alone_is_the_state_of_a_whole_run(tmp_path: Path) -> None:
    log = unpacked("k43-full", tmp_path)
    run_here(tmp_path / "whole", log)
    random = Random(3)
    growing = GrowingLog(log, tmp_path / "growing", random)
    for last in (False, False, True):
        growing.grow(last)
        run_here(tmp_path / "state", growing.target, history=False)
    whole, alone = (rows_of(tmp_path / each, *STATE) for each in ("whole", "state"))
    for table in STATE:
        columns = ("last_commit_before_ms", "first_commit_after_ms")
        assert sorted_rows(without(alone[table], *columns)) == sorted_rows(without(whole[table], *columns)), table
    assert not any(rows_of(tmp_path / "state", "commits", "group_records", "markers", "rebalances").values())


def test_state_alone_would_leave_a_hole_in_history(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    run_here(tmp_path / "tables", log)
    with pytest.raises(BadInput, match="leave a hole"):
        run_here(tmp_path / "tables", log, history=False)
    run_here(tmp_path / "state", log, history=False)
    with pytest.raises(BadInput, match="are of state alone"):  # its log would not be read again
        run_here(tmp_path / "state", log)


def test_archives_are_told_by_their_own_names() -> None:
    archives = [corpus(name) for name in ("mini-zstd-43", "k43-kill")]
    with pytest.raises(BadInput, match="not of one cluster") as told:
        open_source(archives, {}, {})
    assert all(each in str(told.value) for each in archives)
    assert tempfile.gettempdir() + "/muster-" not in str(told.value)


def test_another_cluster_is_refused_and_the_tables_stay(tmp_path: Path) -> None:
    logs = {}
    for name in ("mini-zstd-43", "k43-kill"):
        (tmp_path / name).mkdir()
        logs[name] = unpacked(name, tmp_path / name)
    run_here(tmp_path / "tables", logs["mini-zstd-43"])
    before = rows_of(tmp_path / "tables", *STATE)
    with pytest.raises(BadInput, match="are of cluster"):
        run_here(tmp_path / "tables", logs["k43-kill"])
    with pytest.raises(BadInput, match="not of one cluster"):
        run_here(tmp_path / "both", *logs.values())
    assert rows_of(tmp_path / "tables", *STATE) == before


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nothing/here", "does not exist"),
        ("", "no segments of __consumer_offsets"),
        ("kafka://127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_a_source_that_is_none(source: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    path: Any = source if "://" in source else tmp_path / "empty" / source
    with pytest.raises(BadInput, match=sentence):
        run_here(tmp_path / "tables", path)
    assert not (tmp_path / "tables" / "_manifest").exists()


def test_every_table_has_a_place_in_the_summary(tmp_path: Path) -> None:
    summary = run_here(tmp_path / "tables", unpacked("mini-zstd-43", tmp_path), analytics=True)
    assert {*summary.rows, *summary.new_rows} == set(TABLES)
