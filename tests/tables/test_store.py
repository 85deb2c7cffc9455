"""Tables change together or not at all, whoever is killed and whoever else writes."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from muster.errors import BadInput, MusterError
from muster.tables.schemas import COMMITS, MARKERS, published_form
from muster.tables.storage import disk
from muster.tables.storage.changes import RowsFile, Run, begin_run, vacuum
from muster.tables.storage.delta import TableMoved
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import CHECKPOINT_EVERY, Keep
from muster.tables.times import published
from tests.tables.made import made

PROGRESS = {0: PartitionProgress(10, 3, 0, 4, None, 1_000), 7: PartitionProgress(0, -1, 0, 0, None, None)}
SOURCE = {"cluster_id": "abc", "topics": {"id": "orders"}}


def commits(*offsets: int, partition: int = 0) -> pa.Table:
    rows = [{"offsets_partition": partition, "log_offset": offset, "timestamp_ms": offset * 10} for offset in offsets]
    return made("commits", *rows)


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def seen(store: TableStore, table: str = "commits") -> list[int]:
    """Offsets of the rows a reader is shown."""
    manifest = store.manifest()
    if manifest is None or table not in manifest.tables:
        return []
    files = store.files(table, manifest.tables[table])
    return sorted(
        offset for file in files for offset in pq.ParquetFile(file).read(["log_offset"])["log_offset"].to_pylist()
    )


def publish(store: TableStore, *offsets: int) -> None:
    with begin_run(store) as run:
        run.append_rows("commits", commits(*offsets))
        run.publish(PROGRESS, SOURCE)


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(tmp_path / "tables")


def test_what_is_published_is_read_back(store: TableStore) -> None:
    assert store.manifest() is None
    with begin_run(store, run_id="first", now_ms=5_000) as run:
        run.append_rows("commits", commits(1, 2))
        run.append_rows("commits", commits(3))
        run.replace("offsets", made("offsets", {"group_id": "g", "log_offset": 3}))
        run.append_rows("markers", MARKERS.empty_table())
        assert seen(store) == []
        published = run.publish(PROGRESS, SOURCE, now_ms=6_000)
    manifest = store.manifest()
    assert manifest == published
    assert manifest is not None
    assert (manifest.run_id, manifest.created_at_ms) == ("first", 6_000)
    assert manifest.tables == {"commits": 1, "offsets": 0}
    assert manifest.progress == PROGRESS
    assert manifest.source == SOURCE
    assert seen(store) == [1, 2, 3]
    assert seen(store, "offsets") == [3]


def test_files_that_tasks_wrote_are_committed_where_they_are(store: TableStore) -> None:
    folder = Path(store.address) / "commits"
    with begin_run(store) as run:
        folder.mkdir(parents=True)
        pq.write_table(published(commits(5, 9), published_form(COMMITS)), folder / "task-0.parquet")
        size = (folder / "task-0.parquet").stat().st_size
        run.append("commits", [RowsFile("task-0.parquet", size, 2)])
        assert run.files("commits") == [str(folder / "task-0.parquet")]
        run.publish({}, {})
    actions = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).to_pylist()
    assert actions[0]["num_records"] == 2
    assert (actions[0]["min.log_offset"], actions[0]["max.log_offset"]) == (5, 9)
    assert (actions[0]["min.timestamp"], actions[0]["max.timestamp"]) == (moment(50), moment(90))


def test_a_file_with_other_rows_than_reported_is_not_committed(store: TableStore) -> None:
    folder = Path(store.address) / "commits"
    with begin_run(store) as run:
        folder.mkdir(parents=True)
        pq.write_table(published(commits(5), published_form(COMMITS)), folder / "task-0.parquet")
        with pytest.raises(MusterError, match="has 1 rows where 2 were written"):
            run.append("commits", [RowsFile("task-0.parquet", 1, 2)])


def test_a_run_without_publish_changes_nothing_and_is_rolled_back(store: TableStore) -> None:
    publish(store, 1)
    before = store.manifest()
    with begin_run(store) as run:
        run.append_rows("commits", commits(2))
        run.append_rows("markers", made("markers", {"log_offset": 4}))
    assert store.manifest() == before
    assert seen(store) == [1]
    with begin_run(store) as run:
        assert len(run.files("commits")) == 1
        assert run.files("markers") == []  # a table that the manifest does not name is emptied
        run.append_rows("commits", commits(3))
        run.publish(PROGRESS, SOURCE)
    assert seen(store) == [1, 3]
    assert seen(store, "markers") == []


def test_replacing_leaves_the_earlier_version_to_those_who_read_it(store: TableStore) -> None:
    publish(store, 1, 2)
    earlier = store.manifest()
    assert earlier is not None
    with begin_run(store) as run:
        run.replace("commits", commits(8))
        run.publish({}, {})
    assert seen(store) == [8]
    assert len(store.files("commits", earlier.tables["commits"])) == 1
    assert [manifest.run_id for manifest in store.manifests(5)][1:] == [earlier.run_id]


def test_a_truncation_withdraws_rows(store: TableStore) -> None:
    publish(store, 1, 2, 3)
    with begin_run(store) as run:
        run.append_rows("commits", commits(2, partition=1))
        assert run.withdraw("commits", "offsets_partition = 0 AND log_offset >= 2") == 2
        assert run.withdraw("commits", "log_offset >= 100") == 0
        run.append_rows("commits", commits(7))
        run.publish({}, {})
    assert seen(store) == [1, 2, 7]


def test_a_second_run_is_told_who_is_at_work(store: TableStore) -> None:
    with begin_run(store):
        with pytest.raises(BadInput, match=rf"process {os.getpid()} on .*, since 20"), begin_run(store):
            pass
        with pytest.raises(BadInput, match="another run is writing"):
            vacuum(store)
    publish(store, 1)


class FullDisk:
    """`os`, on a disk that takes no byte more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_does_not_forget_that_the_last_run_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_lock").write_text('{"pid": 1}')  # as a run leaves it that was killed
    monkeypatch.setattr(disk, "os", FullDisk())
    with pytest.raises(OSError, match="No space left"), disk.locked(tmp_path, 0, lambda: True):
        pass
    assert disk.was_cut_short(tmp_path)
    monkeypatch.undo()
    with disk.locked(tmp_path, 0, lambda: True) as is_after_a_kill:
        assert is_after_a_kill
    assert not disk.was_cut_short(tmp_path)


MARKER = made("markers", {"log_offset": 4})
ACTS: dict[str, Callable[[Run], object]] = {
    "append": lambda run: run.append_rows("commits", commits(3)),
    "replace": lambda run: run.replace("commits", commits(3)),
    "withdraw": lambda run: run.withdraw("commits", "log_offset = 1"),
    "create": lambda run: run.append_rows("markers", MARKER),
    "publish": lambda run: run.publish({}, {}),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_table_that_moves_under_a_run_ends_it(store: TableStore, act: str) -> None:
    """As on an object store, where no lock keeps the other out."""
    publish(store, 1)
    run, other = Run(store, "mine", 0), Run(store, "other", 0)
    ACTS[act if act in ("publish", "create") else "append"](other)
    with pytest.raises(TableMoved, match="somebody else has written"):
        ACTS[act](run)
    assert seen(store) == [1]


def test_a_published_run_is_over(store: TableStore) -> None:
    with begin_run(store) as run:
        run.publish({}, {})
        with pytest.raises(MusterError, match="is over"):
            run.append_rows("commits", commits(1))


def test_a_newer_schema_adds_its_columns_to_an_older_table(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.tables.storage import changes as module

    older = {**module.PUBLISHED, "commits": pa.schema(list(module.PUBLISHED["commits"])[:-2])}
    with monkeypatch.context() as patch:
        patch.setattr(module, "PUBLISHED", older)
        publish(store, 1)
    with begin_run(store) as run:
        run.append_rows("commits", commits(2))
        run.append_rows("commits", commits(3))
        run.publish({}, {})
    assert seen(store) == [1, 2, 3]
    newest = DeltaTable(f"{store.address}/commits")
    assert [field.name for field in newest.schema().fields] == module.PUBLISHED["commits"].names
    assert newest.to_pyarrow_table().num_rows == 3


def test_clearing_up_behind_a_killed_first_run_leaves_room_for_the_next(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables")
    with suppress(KeyboardInterrupt), begin_run(store) as run:
        run.append_rows("commits", commits(1))
        raise KeyboardInterrupt
    assert disk.was_cut_short(tmp_path / "tables")
    vacuum(store)
    with begin_run(store) as run:
        run.append_rows("commits", commits(2))
        run.publish({}, {})
    vacuum(store)
    assert not disk.was_cut_short(tmp_path / "tables")


def test_vacuum_removes_what_no_kept_run_names(store: TableStore) -> None:
    for offset in range(5):
        with begin_run(store) as run:
            run.append_rows("commits", commits(offset))
            run.replace("offsets", made("offsets", {"log_offset": offset}))
            run.publish({}, {})
    with begin_run(store) as run:  # killed, say
        run.append_rows("commits", commits(99))
    stray = Path(store.address) / "commits" / "task-7.parquet"
    stray.write_bytes(b"half a file")
    removed = vacuum(store, keep_runs=2)
    assert removed.files == 3 + 3 + 2  # of offsets, of manifests; the killed run's commit, the stray file
    assert not stray.exists()
    assert seen(store) == [0, 1, 2, 3, 4]
    assert seen(store, "offsets") == [4]
    earlier = store.manifests(10)
    assert len(earlier) == 2
    assert [
        pq.read_table(file)["log_offset"].to_pylist() for file in store.files("offsets", earlier[1].tables["offsets"])
    ] == [[3]]
    assert DeltaTable(f"{store.address}/commits").to_pyarrow_table().num_rows == 5
    assert vacuum(store, keep_runs=2).files == 0


AT_ONCE = Keep(runs=2, grace_ms=0)


def found(store: TableStore, table: str) -> tuple[list[str], list[str]]:
    """Names of the files of a table, and of the entries of its log."""
    folder = Path(store.address) / table
    return sorted(path.name for path in folder.glob("*.parquet")), sorted(
        path.name for path in (folder / "_delta_log").glob("0*")
    )


def test_runs_clear_up_behind_themselves(tmp_path: Path) -> None:
    """After many runs there is no more to open, to list and to keep than after a few."""
    store = TableStore(tmp_path / "tables", keep=AT_ONCE)
    sizes = {}
    for number in range(1, 26):
        with begin_run(store) as run:
            run.append_rows("commits", commits(number))
            run.replace("offsets", made("offsets", {"log_offset": number}))
            run.publish(PROGRESS, SOURCE)
        assert seen(store, "offsets") == [number]
        sizes[number] = [len(names) for table in ("offsets", "_manifest") for names in found(store, table)]
        sizes[number].append(len(found(store, "commits")[1]))
    assert all(size <= 4 * CHECKPOINT_EVERY for number in sizes for size in sizes[number])
    assert sizes[25] == sizes[20] == sizes[15]
    assert len(found(store, "offsets")[0]) == 1 + 2  # the newest, and those of the runs that are kept
    assert [len(store.files("commits", each.tables["commits"])) for each in store.manifests(3)] == [25, 24, 23]
    assert seen(store) == list(range(1, 26))
    assert DeltaTable(f"{store.address}/commits").to_pyarrow_table().num_rows == 25


def test_a_reader_keeps_what_it_has_opened_for_a_while_whatever_runs_come_after_it(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(runs=1, grace_ms=60_000))

    def replaced(number: int, now_ms: int) -> None:
        with begin_run(store, now_ms=now_ms) as run:
            run.replace("offsets", made("offsets", {"log_offset": number}))
            run.publish(PROGRESS, SOURCE, now_ms=now_ms)

    replaced(0, 1_000)
    opened = store.manifest()
    assert opened is not None
    for number in range(1, 20):
        replaced(number, 2_000 + number)
    (file,) = store.files("offsets", opened.tables["offsets"])
    assert pq.ParquetFile(file).read()["log_offset"].to_pylist() == [0]
    replaced(20, 63_000)
    assert not Path(file).exists()
    assert len(found(store, "offsets")[0]) == 2
    assert seen(store, "offsets") == [20]


def test_what_was_removed_by_a_run_that_was_killed_is_removed_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(tmp_path / "tables", keep=AT_ONCE)
    for number in range(12):
        with begin_run(store) as run:
            run.replace("offsets", made("offsets", {"log_offset": number}))
            if number == 10:
                monkeypatch.setattr(run, "_sync", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    run.publish(PROGRESS, SOURCE)
                assert seen(store, "offsets") == [9]
            else:
                run.publish(PROGRESS, SOURCE)
                assert seen(store, "offsets") == [number]
    assert [manifest.run_id for manifest in store.manifests(2)] != []
    assert seen(store, "offsets") == [11]


def test_what_a_run_left_that_did_not_get_to_its_end_is_swept_away_by_the_next(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=AT_ONCE)
    publish(store, 1)
    stray = Path(store.address) / "commits" / "task-7.parquet"

    def broken() -> None:
        with begin_run(store) as run:
            run.append_rows("markers", MARKER)
            stray.write_bytes(b"half a file")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    publish(store, 2)
    assert not stray.exists()
    assert found(store, "markers")[0] == []
    assert DeltaTable(f"{store.address}/markers").to_pyarrow_table().num_rows == 0  # and nobody sees its commit
    stray.write_bytes(b"half a file")
    publish(store, 3)
    assert stray.exists()  # the last run ended well: there is no reason to look
    assert seen(store) == [1, 2, 3]


def test_what_a_failed_run_has_left_goes_before_the_next_one_writes(tmp_path: Path) -> None:
    """It may be what fills the disk."""
    store = TableStore(tmp_path / "tables")
    publish(store, 1)
    stray = Path(store.address) / "commits" / "task-7.parquet"

    def broken() -> None:
        with begin_run(store) as run:
            assert not stray.exists()
            run.append_rows("commits", commits(2))
            stray.write_bytes(b"half a file")
            raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            broken()
    publish(store, 3)
    assert seen(store) == [1, 3]


def test_a_clock_that_stepped_back_does_not_put_off_the_sweep_of_the_day(store: TableStore) -> None:
    now_ms = time.time_ns() // 1_000_000
    stray = Path(store.address) / "commits" / "task-7.parquet"
    for each_ms in (now_ms + 365 * 86_400_000, now_ms):
        with begin_run(store, now_ms=each_ms) as run:
            run.append_rows("commits", commits(1))
            run.publish(PROGRESS, SOURCE, each_ms)
        is_swept = not stray.exists()
        stray.write_bytes(b"of a task that was run twice")
    assert is_swept


def test_what_cannot_be_removed_is_told_and_the_run_is_published(tmp_path: Path) -> None:
    store = TableStore(tmp_path / "tables", keep=Keep(runs=1, grace_ms=0))

    def replaced(number: int) -> list[str]:
        with begin_run(store) as run:
            run.replace("offsets", made("offsets", {"log_offset": number}))
            run.publish(PROGRESS, SOURCE)
        return run.notes

    assert replaced(0) == []
    (first,) = (Path(store.address) / "offsets").glob("*.parquet")
    assert replaced(1) == []
    first.unlink()
    (first / "no file any more").mkdir(parents=True)
    manifests = set((Path(store.address) / "_manifest").glob("*.parquet"))
    (note,) = replaced(2)
    assert note.startswith("files that no run needs any more could not be removed: ")
    assert str(first) in note
    assert seen(store, "offsets") == [2]
    assert not manifests <= set((Path(store.address) / "_manifest").glob("*.parquet")), (
        "others are removed all the same"
    )


def test_a_manifest_without_its_log_is_no_reason_to_begin_anew(store: TableStore) -> None:
    publish(store, 1)
    log = Path(store.address) / "_manifest" / "_delta_log"
    elsewhere = log.rename(Path(store.address).parent / "elsewhere")
    with pytest.raises(BadInput, match=r"not their _manifest, which .* Put _manifest back"), begin_run(store):
        pass
    elsewhere.rename(log)
    assert seen(store) == [1]


def test_vacuum_shortens_the_log_behind_a_checkpoint(store: TableStore) -> None:
    for offset in range(2 * CHECKPOINT_EVERY + 4):
        publish(store, offset)
    before = len(found(store, "commits")[1])
    vacuum(store, keep_runs=2)
    assert len(found(store, "commits")[1]) < before
    offsets = list(range(2 * CHECKPOINT_EVERY + 4))
    assert seen(store) == offsets
    publish(store, 99)
    assert seen(store) == [*offsets, 99]
    count = len(offsets) + 1
    assert [len(store.files("commits", each.tables["commits"])) for each in store.manifests(3)] == [
        count,
        count - 1,
        count - 2,
    ]


def offsets_in(run: Run, *offsets: int) -> list[RowsFile]:
    return [run._write("offsets", made("offsets", *({"log_offset": offset} for offset in offsets)))] if offsets else []


def test_some_buckets_of_a_state_table_are_replaced_and_the_others_stay(store: TableStore) -> None:
    with begin_run(store) as run:
        assert run.bucket_files("offsets") is None
        run.replace("offsets", offsets_in(run, 7))
        run.publish({}, {})
    with begin_run(store) as run:
        assert run.bucket_files("offsets") is None
        run.replace_buckets("offsets", {0: offsets_in(run, 1), 1: offsets_in(run, 2)}, 3)
        run.publish({}, {})
    assert seen(store, "offsets") == [1, 2]
    earlier = store.manifest()
    with begin_run(store) as run:
        version = store.newest_version("offsets")
        held = run.bucket_files("offsets")
        assert held is not None
        assert {bucket: len(files) for bucket, files in held.items()} == {0: 1, 1: 1, 2: 0}
        run.replace_buckets("offsets", {1: offsets_in(run, 20), 2: [*offsets_in(run, 30), *offsets_in(run, 31)]}, 3)
        assert store.newest_version("offsets") == version + 1
        now = run.bucket_files("offsets")
        assert now is not None
        assert now[0] == held[0]
        run.replace_buckets("offsets", {}, 3)
        assert store.newest_version("offsets") == version + 1  # nothing new, nothing written
        run.publish({}, {})
    assert seen(store, "offsets") == [1, 20, 30, 31]
    assert earlier is not None
    assert len(store.files("offsets", earlier.tables["offsets"])) == 2
    with begin_run(store) as run:
        run.replace_buckets("offsets", {2: []}, 3)
    assert seen(store, "offsets") == [1, 20, 30, 31]
    with begin_run(store) as run:
        run.replace_buckets("offsets", {0: offsets_in(run, 5), 1: []}, 2)  # as many as there are now, and no more
        assert set(run.bucket_files("offsets") or ()) == {0, 1}
        run.publish({}, {})
    assert seen(store, "offsets") == [5]


def test_a_table_replaced_by_others_has_no_buckets(store: TableStore) -> None:
    for others in ("replace", "withdraw"):
        with begin_run(store) as run:
            run.replace_buckets("offsets", {0: offsets_in(run, 1), 1: offsets_in(run, 2, 3)}, 2)
            run.publish({}, {})
        with begin_run(store) as run:
            if others == "replace":
                run.replace("offsets", offsets_in(run, 2))
            else:
                run.withdraw("offsets", "log_offset <> 2")
            assert run.bucket_files("offsets") is None
            run.publish({}, {})
        with begin_run(store) as run:
            assert run.bucket_files("offsets") is None
            run.replace_buckets("offsets", {0: offsets_in(run, 8), 1: []}, 2)
            run.publish({}, {})
        assert seen(store, "offsets") == [8]


def test_at_least_one_run_is_kept(store: TableStore) -> None:
    with pytest.raises(BadInput, match="at least one"):
        vacuum(store, keep_runs=0)


@pytest.mark.parametrize(
    "address", ["http://host/x", "https://host/x", "ftp://host/x", "hdfs://name/x", "dbfs://x/y", "memory://x"]
)
def test_an_address_without_atomic_commits_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="Name a local or mounted directory, or an address of s3://"):
        TableStore(address)


def test_other_addresses_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadInput, match="is a file"):
        TableStore(file)
    with pytest.raises(BadInput, match="names no bucket"):
        TableStore("s3://")
    with pytest.raises(BadInput, match="overwrite each other"):
        TableStore("s3://bucket/x", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    assert TableStore(f"file://{tmp_path}/t/").address == f"{tmp_path}/t"


def test_a_file_system_without_hard_links_is_refused(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("muster.tables.storage.changes.link", refuse)
    with pytest.raises(BadInput, match="knows no hard links"), begin_run(store):
        pass


def test_tables_of_a_newer_muster_are_refused(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("muster.tables.storage.manifest.FORMAT_VERSION", 99)
        publish(store, 1)
    with pytest.raises(BadInput, match=r"layout 99, this muster knows 2\. Use a newer muster"):
        store.manifest()


ENDLESS_RUNS = """
import sys
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.tables.made import made
store = TableStore(sys.argv[1])
while True:
    with begin_run(store) as run:
        first = 0 if run.manifest is None else run.manifest.source["rows"]
        for offset in range(first, first + 3):
            run.append_rows("commits", made("commits", {"log_offset": offset}))
        run.replace("offsets", made("offsets", {"log_offset": first + 3}))
        run.publish({}, {"rows": first + 3})
        print("published", flush=True)
"""


def test_a_killed_run_leaves_what_was_published(store: TableStore) -> None:
    rows = 0
    for number in range(4):
        process = subprocess.Popen([sys.executable, "-c", ENDLESS_RUNS, store.address], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"published\n"
        time.sleep(0.017 * number)  # somewhere in the next run
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        manifest = store.manifest()
        assert manifest is not None
        assert manifest.source["rows"] >= rows + 3
        rows = manifest.source["rows"]
        assert seen(store) == list(range(rows))
        assert seen(store, "offsets") == [rows]
    with begin_run(store) as run:  # the lock died with its holder, and leftovers are rolled back
        assert len(run.files("commits")) == rows
