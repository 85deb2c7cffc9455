"""Logs and tables that are not on this machine: an object store, and a live cluster's hook."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from muster.errors import BadInput
from muster.live import download as live
from muster.pipeline import job
from muster.pipeline.engine import LocalEngine
from muster.pipeline.extract.partition import extract
from muster.pipeline.model import LiveLog, PartitionWork, SegmentFiles
from muster.pipeline.packets import rows_of
from muster.tables.reading import open_tables
from muster.tables.storage.files import is_local, open_store
from tests.pipeline.extracting import context_in, run
from tests.pipeline.test_life import Life
from tests.pipeline.world import rows_of as rows_in
from tests.pipeline.world import run_here, unpacked
from tests.segments import batch

Options = tuple[tuple[str, str], ...]


@pytest.fixture
def bucket(object_store: dict[str, str]) -> Options:
    return tuple(object_store.items())


def test_a_log_and_tables_in_an_object_store(bucket: Options, tmp_path: Path) -> None:
    store, _ = open_store("s3://bucket", bucket)
    for base in (0, 4, 8):
        with store.open_output_stream(f"bucket/logs/__consumer_offsets-0/{base:020}.log") as file:
            file.write(batch(base, 2) + batch(base + 2, 2))
    source = SegmentFiles(("s3://bucket/logs/__consumer_offsets-0",), ((0, 0),), bucket)
    context = context_in(tmp_path, tables="s3://bucket/tables", storage_options=bucket)
    extracted = extract([PartitionWork(0, source, 5, 11, False, 0)], context)
    (report,) = extracted.reports
    assert (report.next_offset, report.records, report.gaps) == (10, 5, 0)
    paths = {file.table: file.path for file in extracted.files}
    rows = pq.read_table(f"bucket/tables/commits/{paths['commits']}", filesystem=store)
    assert rows.column("log_offset").to_pylist() == [5, 6, 7, 8, 9]
    winners = rows_of(extracted.packets, "winners_commits").read_all()
    assert winners.column("log_offset").to_pylist() == [9]


def test_a_live_log_is_downloaded_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def download(config: object, topic: str, partition: int, from_offset: int, to_offset: int, directory: Path) -> int:
        asked.append((config, topic, partition, from_offset, to_offset))
        (directory / f"{from_offset:020}.log").write_bytes(batch(2, 4) + batch(6, 2))  # begins before what was asked
        return to_offset

    monkeypatch.setattr(live, "download", download)
    source = LiveLog((("bootstrap.servers", "localhost:9"),), "__consumer_offsets")
    found = run([PartitionWork(3, source, 4, 8, False, 0)], context_in(tmp_path))
    assert asked == [({"bootstrap.servers": "localhost:9"}, "__consumer_offsets", 3, 4, 8)]
    assert found.offsets("commits") == [4, 5, 6, 7]
    assert (found.report.next_offset, found.report.gaps, found.report.damage) == (8, 0, ())


def test_whole_runs_into_an_object_store(bucket: Options, tmp_path: Path) -> None:
    """Twice, so that state is read back too; and from a log in the store."""
    log = unpacked("mini-zstd-43", tmp_path)
    options = dict(bucket)
    for _ in range(2):
        job.run(LocalEngine(), job.Request([str(log)], "s3://bucket/whole-run", options))
    job.run(LocalEngine(), job.Request([str(log)], str(tmp_path / "here"), analytics=False))
    system, _ = open_store("s3://bucket", bucket)
    fs.copy_files(str(log), "bucket/log", destination_filesystem=system)
    job.run(LocalEngine(), job.Request(["s3://bucket/log"], "s3://bucket/both", options, analytics=False))
    with open_tables("s3://bucket/whole-run", options) as there, open_tables(tmp_path / "here") as here:
        for table in ("offsets", "groups", "members", "commits", "rebalances", "lag"):
            assert there.read(table).table().equals(here.read(table).table()), table
    with open_tables("s3://bucket/both", options) as there, open_tables(tmp_path / "here") as here:
        assert there.read("offsets").table().equals(here.read("offsets").table())


def put(root: Path, address: str, bucket: Options) -> None:
    """The log as it is now, in place of whatever is there."""
    store, _ = open_store("s3://bucket", bucket)
    place = address.removeprefix("s3://")
    for info in store.get_file_info(fs.FileSelector(place, recursive=True, allow_not_found=True)):
        if info.is_file:
            store.delete_file(info.path)
    fs.copy_files(str(root), place, destination_filesystem=store)


@pytest.mark.parametrize("epoch", [0, 3])
def test_another_log_in_the_same_place_is_refused(epoch: int, bucket: Options, tmp_path: Path) -> None:
    """As on a disk: planning cannot look into it, so the task does that has fetched it."""
    address, tables = f"s3://bucket/replaced-{epoch}", tmp_path / "tables"
    life = Life(tmp_path / "log")
    other = Life(tmp_path / "other", now_ms=life.now_ms + 123)
    for number in range(20):
        life.commit(("app", number % 3), number)
        other.commit(("app", number % 3), number)
    put(life.root, address, bucket)
    run_here(tables, address, storage_options=dict(bucket))
    for number in range(20, 30):
        life.commit(("app", number % 3), number)
        other.log.leader_epoch = epoch
        other.commit(("app", number % 3), number)
    put(other.root, address, bucket)
    with pytest.raises(BadInput, match=r"log of partition 0 .* another record than was read before"):
        run_here(tables, address, storage_options=dict(bucket))
    put(life.root, address, bucket)
    assert run_here(tables, address, storage_options=dict(bucket)).records == 10
    assert [row["committed_offset"] for row in rows_in(tables, "commits")["commits"]] == list(range(30))
    life.log.close()
    other.log.close()


def test_an_older_copy_changes_nothing_and_is_told_of(bucket: Options, tmp_path: Path) -> None:
    address, tables = "s3://bucket/older", tmp_path / "tables"
    life = Life(tmp_path / "log")
    for number in range(20):
        life.commit(("app", number % 3), number)
    shutil.copytree(life.root, tmp_path / "copy")
    for number in range(20, 30):
        life.commit(("app", number % 3), number)
    put(life.root, address, bucket)
    assert run_here(tables, address, storage_options=dict(bucket)).notes == []
    before = rows_in(tables, "commits", "offsets")
    put(tmp_path / "copy", address, bucket)
    summary = run_here(tables, address, storage_options=dict(bucket))
    (note,) = summary.notes
    assert note.startswith("the copy of partition 0 ends at offset 20, and it was read up to 30: an older copy.")
    assert (summary.records, rows_in(tables, "commits", "offsets")) == (0, before)
    put(life.root, address, bucket)
    assert run_here(tables, address, storage_options=dict(bucket)).notes == []
    life.log.close()


def test_addresses() -> None:
    assert is_local("/logs")
    assert is_local("file:///logs")
    assert not is_local("s3://bucket/logs")
    assert open_store("file:///logs")[1] == "/logs"
    with pytest.raises(BadInput, match="cannot be opened"):
        open_store("nowhere://logs")
