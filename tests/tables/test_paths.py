"""Tables in directories of any name."""

import os
import re
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from muster.cli.status import Status
from muster.errors import BadInput
from muster.tables.reading import open_tables
from muster.tables.relations import add_relation
from muster.tables.schemas import COMMITS
from muster.tables.storage.addresses import checked
from muster.tables.storage.changes import begin_run, vacuum
from muster.tables.storage.store import TableStore
from tests.cli import run
from tests.pipeline.world import run_here, unpacked

ODD = " #%?ü'\"*{}~&;:`$()!=+,@<>日é\u0301😀."

CHARACTERS = st.sampled_from(ODD + "aZ09") | st.characters(
    exclude_categories=["Cc", "Cs"], exclude_characters="/\\[]|^"
)
NAMES = st.text(CHARACTERS, min_size=1).filter(
    lambda name: name not in (".", "..") and len(name.encode()) <= 200 and not re.search("%[0-9A-Fa-f]{2}", name)
)


def commit(offset: int) -> pa.Table:
    row = {"offsets_partition": 0, "log_offset": offset, "timestamp_ms": offset, "kind": "commit", "group_id": "g",
           "topic": "t", "partition": 0, "committed_offset": offset}  # fmt: skip
    return pa.Table.from_pylist([row], schema=COMMITS)


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=NAMES)
def test_so_does_every_directory(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_keeps_tables(tmp_path_factory.mktemp("odd"), name)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=NAMES)
@example(name="a b")
@example(name="a#b")
@example(name="100%")
@example(name="50% off?")
@example(name="ü")
@example(name='it\'s "here"')
@example(name="tables?*")
@example(name="file:")
@example(name="{a}")
@example(name="log_offset=7")
def test_a_directory_of_any_name_keeps_tables(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_keeps_tables(tmp_path_factory.mktemp("odd"), name)


def assert_keeps_tables(folder: Path, name: str) -> None:
    path = folder / name
    store = TableStore(path)
    for offset in (1, 2, 3):
        with begin_run(store) as changes:
            if offset == 3:
                with pytest.raises(BadInput, match="another run is writing"), begin_run(store):
                    pass
                changes.withdraw("commits", "log_offset = 2")
            changes.append_rows("commits", commit(offset))
            changes.publish({}, {})
    with open_tables(str(path)) as tables:
        assert [row["log_offset"] for row in tables.read("commits").table().to_pylist()] == [1, 3]
        assert [row["committed_offset"] for row in tables.read("offsets", as_of_ms=2).table().to_pylist()] == [1]
    assert vacuum(store, 1).files
    with open_tables(path) as tables:
        assert [row["log_offset"] for row in tables.read("commits").table().to_pylist()] == [1, 3]
    assert os.listdir(path.parent) == [name]


def test_runs_into_a_directory_with_an_odd_name(tmp_path: Path) -> None:
    log = unpacked("k26", tmp_path / "corpus")
    plain, odd = tmp_path / "tables", tmp_path / "a b#50% grün?*"
    for tables in (plain, odd):
        run_here(tables, log)
        run_here(tables, log)
    asked = ("table", "offsets", "--json", "--tables")
    expected = run(*asked, plain)
    assert expected.out
    assert run(*asked, odd)[:2] == (Status.OK, expected.out)


@pytest.mark.parametrize("name", ["a%20b", "a\\b", "a[1]", "a|b", "a^b", "a\nb", os.fsdecode(b"\xff"), "\x7f"])
def test_what_deltalake_would_misread_is_refused_before_anything_is_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"tables cannot be kept in .*Name a directory without"):
        TableStore(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_an_address_of_a_file_is_percent_encoded_and_those_of_object_stores_stay_as_they_are(tmp_path: Path) -> None:
    assert checked((tmp_path / "a b#ü").as_uri()) == str(tmp_path / "a b#ü")
    assert checked("s3://bucket/a%20b/") == "s3://bucket/a%20b"


@pytest.mark.parametrize("name", ["plain", "it's not a pattern?*"])
def test_each_row_with_the_name_of_its_file(name: str, tmp_path: Path) -> None:
    store = TableStore(tmp_path / name)
    with begin_run(store) as changes:
        for offset in range(20):
            changes.append_rows("commits", commit(offset))
        files = changes.files("commits")
    with closing(duckdb.connect()) as connection:
        add_relation(connection, "c", COMMITS, files, store.address, {}, with_file=True)
        found = dict(connection.execute("SELECT file, timestamp_ms FROM c").fetchall())
        assert {file.rsplit("/", 1)[1] for file in files} == found.keys()
        assert sorted(found.values()) == list(range(20))
        (one,) = (file for file, time_ms in found.items() if time_ms == 7)
        assert connection.execute(f"SELECT log_offset FROM c WHERE file = '{one}'").fetchall() == [(7,)]
        made = {
            view for (view,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        }
        assert made == ({"c"} if name == "plain" else {"c", "c_files"})  # however many files there are
