"""What the manifest names is on the disk before the manifest is."""

import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from muster.tables.storage.delta import OneTable
from muster.tables.storage.store import TableStore
from tests.pipeline.test_life import Life
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked


class Disk:
    """A disk that knows what was synced, and looks at what a manifest names in the moment it is committed."""

    def __init__(self, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables = tables
        self.synced: dict[Path, int] = {}
        """When each file or directory was last changed before it was synced."""
        self.checked = 0
        fsync, commit = os.fsync, OneTable._commit

        def remembered(descriptor: int) -> None:
            fsync(descriptor)
            self.synced[Path(os.readlink(f"/proc/self/fd/{descriptor}"))] = os.fstat(descriptor).st_mtime_ns

        def watched(table: OneTable, *arguments: Any) -> None:
            if table.name == "_manifest":
                self.check()
            commit(table, *arguments)

        monkeypatch.setattr(os, "fsync", remembered)
        monkeypatch.setattr(OneTable, "_commit", watched)

    def check(self) -> None:
        """Everything that lies in the tables would be there after a power cut, but for what only a run needs."""
        found = {path for path in self.tables.rglob("*") if "_staging" not in path.parts and path.name != "_lock"}
        named = {path for path in found if path.suffix in (".parquet", ".json") or path.is_dir()}
        assert self.tables in self.synced
        assert {str(path) for path in named if not self.has(path)} == set()
        self.checked += 1

    def has(self, path: Path) -> bool:
        return self.synced.get(path) == path.stat().st_mtime_ns


def test_a_manifest_names_only_what_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = GrowingLog(unpacked("k26", tmp_path / "corpus"), tmp_path / "log", Random(2))
    disk = Disk(tmp_path / "tables", monkeypatch)
    for number in range(1, 4):
        log.grow(all_of_it=number == 3)
        run_here(disk.tables, log.target)
        assert disk.checked == number
        log_of_manifest = disk.tables / "_manifest" / "_delta_log"
        assert all(map(disk.has, (log_of_manifest, log_of_manifest.parent, *log_of_manifest.glob("*"))))
        assert TableStore(disk.tables).manifest() is not None


def test_what_a_truncation_leaves_of_a_file_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path / "log")
    disk = Disk(tmp_path / "tables", monkeypatch)
    for number in range(5):
        life.commit(("app", 0), number)
    run_here(disk.tables, life.root)
    life.log.truncate_to(3)
    life.log.leader_epoch += 1
    life.commit(("app", 1), 9)
    (note,) = run_here(disk.tables, life.root).notes
    assert "truncated at offset 3" in note
    assert disk.checked == 2
    life.log.close()


@pytest.mark.parametrize("table", ["commits", "_manifest"])
def test_a_commit_that_a_power_cut_left_empty_is_no_commit(table: str, tmp_path: Path) -> None:
    life = Life(tmp_path / "log")
    tables = tmp_path / "tables"
    for number in range(2):
        life.commit(("app", 0), number)
        run_here(tables, life.root)
    life.log.close()
    log = tables / table / "_delta_log"
    newest = max(log.glob("*.json"))
    if table == "_manifest":
        newest.write_bytes(b"")
        expected = [0]
    else:
        (log / f"{int(newest.stem) + 1:020}.json").write_bytes(b"")
        expected = [0, 1]
    assert [row["committed_offset"] for row in rows_of(tables, "commits")["commits"]] == expected
    run_here(tables, life.root)
    assert [row["committed_offset"] for row in rows_of(tables, "commits")["commits"]] == [0, 1]


def test_tasks_describe_their_files_and_the_driver_opens_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = GrowingLog(unpacked("k26", tmp_path / "corpus"), tmp_path / "log", Random(2))
    log.grow(all_of_it=True)
    monkeypatch.setattr("muster.tables.storage.delta.pq.read_metadata", lambda *_: pytest.fail("a footer was read"))
    run_here(tmp_path / "tables", log.target)
    facts = pa.table(DeltaTable(str(tmp_path / "tables" / "commits")).get_add_actions(flatten=True))
    rows = rows_of(tmp_path / "tables", "commits")["commits"]
    assert sum(facts["num_records"].to_pylist()) == len(rows)
    for column in ("group_id", "log_offset"):
        assert min(facts[f"min.{column}"].to_pylist()) == min(row[column] for row in rows)
        assert max(facts[f"max.{column}"].to_pylist()) == max(row[column] for row in rows)
    facts = pa.table(DeltaTable(str(tmp_path / "tables" / "group_records")).get_add_actions(flatten=True))
    unknown = sum(row["group_id"] is None for row in rows_of(tmp_path / "tables", "group_records")["group_records"])
    assert sum(facts["null_count.group_id"].to_pylist()) == unknown
