"""Tables of layout 1, as the last muster of that layout left them, in today's layout.

`tests/tables/layout-1.tar.zst` is what two runs of it made of the corpus k43-full, as `GrowingLog` with the seed 7
shows it at first.
"""

import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.errors import BadInput
from muster.pipeline import migrate as module
from muster.pipeline.migrate import migrate
from muster.tables.reading import open_tables
from muster.tables.schemas import HISTORY, PUBLISHED, STATE
from muster.tables.storage.changes import Run, begin_run, vacuum
from muster.tables.storage.store import TableStore
from tests.cli import run as run_muster
from tests.pipeline.test_job import sorted_rows
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked

ARCHIVE = Path(__file__).parents[1] / "tables" / "layout-1.tar.zst"
KEPT = {name: schema for name, schema in (HISTORY | STATE).items() if name != "verdicts"}
"""The tables of layout 1."""
SHOWN = sorted(set(KEPT) - {"latest_rebalances"})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with pa.input_stream(str(ARCHIVE), compression="zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "tables"


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(unpacked("k43-full", tmp_path / "corpus"), tmp_path / "log", Random(7))


def assert_same(tables: Path, other: Path, came_later: Sequence[str] = ()) -> None:
    """But for the numbers of runs (a rewrite takes one), and for columns of `lag` that came later than the layout."""
    found, expected = rows_of(tables, *SHOWN), rows_of(other, *SHOWN)
    for row in found["lag"]:
        assert all(row[name] is None for name in came_later)
    for row in found["lag"] + expected["lag"]:
        for name in came_later:
            del row[name]
    for row in found["log_ends"] + expected["log_ends"]:
        del row["run_number"]
    for table in SHOWN:
        assert sorted_rows(found[table]) == sorted_rows(expected[table]), table
        assert found[table] or table == "markers", table


def files_of(tables: Path) -> dict[str, int]:
    """Everything there is below a directory but the lock."""
    return {
        str(path.relative_to(tables)): path.stat().st_size
        for path in sorted(tables.rglob("*"))
        if path.is_file() and path.name != "_lock"
    }


@pytest.mark.long
def test_tables_are_those_of_a_build_anew_and_go_on(old: Path, log: GrowingLog, tmp_path: Path) -> None:
    anew = tmp_path / "anew"
    for _ in range(2):
        log.grow()
        run_here(anew, log.target)
    told: list[tuple[int, int]] = []
    done = migrate(str(old), {}, lambda read, total: told.append((read, total)))
    assert (done.layout_before, done.layout) == (1, 2)
    assert done.rows == {table: len(stored(old, table)) for table in KEPT}
    assert told == sorted(told)
    assert told[-1] == (done.size_bytes, done.size_bytes)
    assert_same(old, anew, came_later=["log_end_by"])
    assert sorted_rows(stored(old, "latest_rebalances")) == sorted_rows(stored(anew, "latest_rebalances"))
    for table in KEPT:
        opened = TableStore(old).table(table)
        assert opened.open()
        assert opened.columns() == PUBLISHED[table].names
    log.grow(all_of_it=True)
    for tables in (old, anew):
        assert run_here(tables, log.target).records
    assert_same(old, anew)
    vacuum(TableStore(old), keep_runs=1)
    assert_same(old, anew)


def stored(tables: Path, table: str) -> list[dict[str, object]]:
    """The rows of a table's published version, as they lie in its files."""
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    return [
        row
        for file in store.files(table, manifest.tables[table])
        for row in pq.ParquetFile(file).read().to_pylist()
    ]  # fmt: skip


def test_layout_1_is_refused_with_the_command_that_rewrites_it(old: Path, log: GrowingLog) -> None:
    before = files_of(old)
    log.grow(all_of_it=True)
    sentence = rf"the tables at {old} have layout 1, .*`muster pipeline migrate --tables {old}` rewrites them\."
    with pytest.raises(BadInput, match=sentence):
        open_tables(old)
    with pytest.raises(BadInput, match=sentence):
        run_here(old, log.target)
    with pytest.raises(BadInput, match=sentence):
        vacuum(TableStore(old))
    assert files_of(old) == before


@contextmanager
def killed_at(table: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A rewrite that ends, without a word to anybody, when it comes to a table."""
    rewrite = Run.rewrite

    def ended(run: Run, name: str, *more: object) -> None:
        rewrite(run, name, *more)  # type: ignore[arg-type]
        if name == table:
            raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(Run, "rewrite", ended)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_a_rewrite_that_was_killed_is_repeated(old: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = files_of(old)
    for table in ("commits", "rebalances"):
        with killed_at(table, monkeypatch):
            migrate(str(old), {})
        store = TableStore(old)
        assert store.layout() == 1
        assert before.items() <= files_of(old).items()  # what the old muster reads is all there
    done = migrate(str(old), {})
    assert len(stored(old, "commits")) == done.rows["commits"] > 1000
    assert TableStore(old).layout() == 2
    with begin_run(TableStore(old)):  # finds nothing that it does not know
        pass


def test_older_files_lack_columns(tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array(["g"]), pa.array([7], pa.int64())], ["group_id", "commit_timestamp_ms"])
    (row,) = module._inner_rows(batch, KEPT["offsets"]).to_pylist()
    assert row == dict.fromkeys(KEPT["offsets"].names) | {"group_id": "g", "commit_timestamp_ms": 7}


def test_from_the_command_line(old: Path) -> None:
    assert "have layout 1" in run_muster("table", "groups", "--tables", old).err
    ran = run_muster("pipeline", "migrate", "--tables", old, "--json")
    assert ran.status == 0
    told = json.loads(ran.out)
    assert (told["layout_before"], told["layout"], told["rows"].keys()) == (
        1,
        2,
        KEPT.keys(),
    )
    assert run_muster("table", "groups", "--tables", old, "--json").status == 0
    again = run_muster("pipeline", "migrate", "--tables", old)
    assert again.err == f"muster: the tables at {old} have layout 2 already: nothing to do.\n"
    nothing = run_muster("pipeline", "migrate", "--tables", old.parent / "none")
    assert "there are no tables" in nothing.err
    assert nothing.status == run_muster("table", "--tables", old.parent / "none").status
