"""The same store against moto's server, which answers as S3 does."""

import json
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from muster.errors import BadInput
from muster.pipeline.engine import LocalEngine
from muster.pipeline.job import Request
from muster.pipeline.job import run as run_job
from muster.pipeline.migrate import migrate
from muster.tables.reading import open_tables
from muster.tables.schemas import COMMITS
from muster.tables.storage.addresses import filesystem
from muster.tables.storage.changes import Run, begin_run, vacuum
from muster.tables.storage.compact import ENOUGH
from muster.tables.storage.delta import TableMoved
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import LONGEST_RUN_MS, Keep, remove
from tests.tables.years import Years

LAYOUT_1 = Path(__file__).parent / "layout-1.tar.zst"


@pytest.fixture
def options(object_store: dict[str, str]) -> dict[str, str]:
    return object_store


def commits(*offsets: int) -> pa.Table:
    row = {"offsets_partition": 0, "kind": "commit", "group_id": "g", "topic": "t", "partition": 0}
    given = [row | {"log_offset": n, "timestamp_ms": n, "committed_offset": n} for n in offsets]
    return pa.Table.from_pylist(given, schema=COMMITS)


def seen(address: str, options: dict[str, str]) -> list[int]:
    with open_tables(address, options) as tables:
        return [row["log_offset"] for row in tables.read("commits").table().to_pylist()]


def test_tables_of_layout_1_are_rewritten(options: dict[str, str], tmp_path: Path) -> None:
    with pa.input_stream(str(LAYOUT_1), compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        tar.extractall(tmp_path, filter="data")
    address = "s3://bucket/old/tables"
    files, path = filesystem(address, options)
    fs.copy_files(str(tmp_path / "tables"), path, destination_filesystem=files)
    with pytest.raises(BadInput, match=f"`muster pipeline migrate --tables {address}` rewrites them"):
        open_tables(address, options)
    done = migrate(address, options)
    assert len(seen(address, options)) == done.rows["commits"] > 1000
    assert migrate(address, options).rows == {}


def test_a_run_is_published_whole_or_not_at_all(options: dict[str, str]) -> None:
    address = "s3://bucket/whole/tables"
    store = TableStore(address, options)
    with pytest.raises(BadInput, match="there are no tables"):
        open_tables(address, options)
    with begin_run(store) as run:
        run.append_rows("commits", commits(1, 2, 3))
        run.withdraw("commits", "log_offset = 2")
        run.publish({}, {"cluster_id": "abc"})
    assert seen(address, options) == [1, 3]
    with begin_run(store) as run:
        run.append_rows("commits", commits(4))
    assert seen(address, options) == [1, 3]
    with begin_run(store) as run:
        assert len(run.files("commits")) == 1
        run.append_rows("commits", commits(5))
        run.publish({}, {})
    assert seen(address, options) == [1, 3, 5]
    with open_tables(address, options) as tables:
        assert [row["committed_offset"] for row in tables.read("offsets", as_of_ms=4).table().to_pylist()] == [3]


def test_tables_without_their_manifest_are_not_begun_anew(options: dict[str, str]) -> None:
    """But those of a first run that was killed are: there was nothing before."""
    killed, store = TableStore("s3://bucket/killed", options), TableStore("s3://bucket/lost", options)
    with begin_run(killed) as run:
        run.append_rows("commits", commits(1))
    with begin_run(killed) as run:
        assert run.files("commits") == []
    for offset in range(6):
        with begin_run(store) as run:
            run.append_rows("commits", commits(offset))
            run.publish({}, {})
    manifest = [f"_manifest/{info.path.partition('/_manifest/')[2]}" for info in listed(store, "_manifest")]
    remove(store.place, manifest)
    with begin_run(store) as run, pytest.raises(BadInput, match=r"not their _manifest, which .* Put _manifest back"):
        run.files("commits")


def listed(store: TableStore, folder: str) -> list[fs.FileInfo]:
    found = store.filesystem.get_file_info(fs.FileSelector(f"{store.root}/{folder}", recursive=True))
    return [info for info in found if info.type == fs.FileType.File]


def test_two_runs_at_once_do_not_mix(options: dict[str, str]) -> None:
    store = TableStore("s3://bucket/two", options)
    with begin_run(store) as run:
        run.append_rows("commits", commits(1))
        run.publish({}, {})
    one, other = Run(store, "one", 0), Run(store, "other", 0)
    one.append_rows("commits", commits(2))
    with pytest.raises(TableMoved, match="somebody else has written"):
        other.append_rows("commits", commits(3))
    one.publish({}, {})
    with pytest.raises(TableMoved, match="somebody else has written"):
        other.publish({}, {})
    assert seen(store.address, options) == [1, 2]


def test_vacuum_leaves_what_is_young(options: dict[str, str]) -> None:
    store = TableStore("s3://bucket/vacuum", options)
    for offset in (1, 2, 3):
        with begin_run(store) as run:
            run.replace("commits", commits(offset))
            run.publish({}, {})
    assert vacuum(store, keep_runs=1).files == 0
    assert vacuum(store, keep_runs=1, leftovers_after_ms=-60_000).files == 2 + 2  # of commits, and of manifests
    assert seen(store.address, options) == [3]


def requests(options: dict[str, str]) -> list[tuple[str, str]]:
    with urllib.request.urlopen(f"{options['AWS_ENDPOINT_URL']}/__requests", timeout=10) as answer:
        return [(method, path) for method, path in json.load(answer)]


def test_a_run_asks_no_more_of_the_store_the_more_runs_were_before_it(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = 2
    monkeypatch.setattr("muster.tables.storage.upkeep.CHECKPOINT_EVERY", every)
    store = TableStore("s3://bucket/many", options, Keep(runs=2, grace_ms=0))
    asked: list[int] = []
    for number in range(10):
        before = len(requests(options))
        with begin_run(store) as run:
            run.append_rows("commits", commits(number))
            run.replace("open_commits", commits(number))
            run.publish({}, {})
        asked.append(len(requests(options)) - before)
    assert sorted(asked[-2 * every : -every]) == sorted(asked[-every:])
    assert max(asked) <= 50 * 3  # of three tables, the manifest among them
    files, root = filesystem(store.address, options)
    left = files.get_file_info(fs.FileSelector(root, recursive=True))
    assert len([info for info in left if info.is_file and "/open_commits/" in info.path]) <= 4 + 3 * every
    assert seen(store.address, options) == list(range(10))


@pytest.mark.long
def test_whole_runs_ask_no_more_of_the_store_the_more_were_before(options: dict[str, str], tmp_path: Path) -> None:
    """With analytics, joining and clean-up; every table changes in every run.

    Requests rise from run to run until small files are joined, and begin again: so whole rounds of that are compared.
    """
    cycle = ENOUGH + 1
    years = Years(tmp_path, 3 * cycle, records=6_000, days=2)
    asked: list[int] = []
    for _ in range(3 * cycle):
        years.grow()
        before = len(requests(options))
        request = Request([str(years.log)], "s3://bucket/years", storage_options=options, keep=Keep(2, 0))
        run_job(LocalEngine(), request)
        asked.append(len(requests(options)) - before)
    years.close()
    print("requests of each run:", asked)
    second, third = asked[cycle : 2 * cycle], asked[2 * cycle :]
    assert sum(third) <= 1.1 * sum(second)
    assert max(third) <= 1.1 * max(second)


def test_a_run_that_took_days_is_not_published(options: dict[str, str]) -> None:
    """Its first files could be taken for leavings by another that cleans up."""
    store = TableStore("s3://bucket/long", options)
    with begin_run(store) as run:
        run.append_rows("commits", commits(1))
        run._opened_at_ms -= LONGEST_RUN_MS + 1
        with pytest.raises(BadInput, match="took more than 2 days"):
            run.publish({}, {})
    assert store.manifest() is None


def test_a_store_in_which_nothing_may_be_deleted_keeps_tables_all_the_same(options: dict[str, str]) -> None:
    store = TableStore("s3://bucket/for-good/tables", options, Keep(runs=1, grace_ms=0))
    for offset in range(3):
        with begin_run(store) as run:
            run.replace("commits", commits(offset))
            run.publish({}, {})
    (note,) = run.notes
    assert note.startswith("files that no run needs any more could not be removed: ")
    assert seen(store.address, options) == [2]


def test_an_unreachable_store_is_a_sentence(options: dict[str, str]) -> None:
    store = TableStore("s3://no-such-bucket/tables", options)
    with (
        pytest.raises(BadInput, match="Check the address, the rights on it and the storage options"),
        begin_run(store) as run,
    ):
        run.publish({}, {})


def test_spark_s_tasks_read_the_published_rows(options: dict[str, str]) -> None:
    """Options of a data source begin with `storage.`, and Spark makes their names lower case."""
    from muster.pipeline.datasource import OffsetsTopic

    address = "s3://bucket/spark"
    store = TableStore(address, options)
    with begin_run(store) as run:
        run.append_rows("commits", commits(1, 2))
        run.publish({}, {})
    given = {f"storage.{name.lower()}": value for name, value in options.items()}
    source = OffsetsTopic({"path": address, "table": "commits", **given})
    reader: Any = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [offset for batch in batches for offset in batch["log_offset"].to_pylist()] == [1, 2]
