"""Connections of duckdb that are handed out again and again."""

import errno
import os
import tempfile
from pathlib import Path

import duckdb
import pytest

from muster.errors import MusterError
from muster.tables import scratch
from muster.tables.scratch import limited_duckdb

MEMORY_MB = 37
"""Of nobody else in this process."""


def test_what_was_made_before_is_not_there() -> None:
    for _ in range(2):
        with limited_duckdb(MEMORY_MB) as connection:
            connection.execute("CREATE TEMP TYPE names AS ENUM ('a'); CREATE TEMP TABLE t AS SELECT 'a'::names AS name")
    for _ in range(2):
        with scratch.connect() as connection:
            connection.execute("CREATE TEMP VIEW t AS SELECT 1 AS name")


def test_the_same_duckdb_is_for_one_at_a_time() -> None:
    with limited_duckdb(MEMORY_MB) as one, limited_duckdb(MEMORY_MB) as other:
        one.execute("CREATE TABLE shared AS SELECT 1 AS x")
        with pytest.raises(duckdb.CatalogException):
            other.execute("SELECT * FROM shared")
    with limited_duckdb(MEMORY_MB) as one, limited_duckdb(MEMORY_MB) as other:
        found = [each.execute("SELECT count(*) FROM duckdb_tables()").fetchone() for each in (one, other)]
    assert sorted(found) == [(0,), (1,)], "both were kept for later"


def test_files_of_one_that_ran_out_of_memory_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with limited_duckdb(MEMORY_MB + 1) as connection:
        connection.execute("CREATE TEMP TABLE t AS SELECT i, md5(i::VARCHAR) AS x FROM range(2_000_000) r(i)")
        assert list(tmp_path.iterdir()) != [], "the test is too small"
    assert list(tmp_path.iterdir()) == []


def test_one_whose_work_has_failed_is_not_used_again() -> None:
    with pytest.raises(duckdb.CatalogException), limited_duckdb(MEMORY_MB + 2) as connection:
        connection.execute("CREATE TABLE left_behind (x INT); SELECT * FROM nowhere")
    with limited_duckdb(MEMORY_MB + 2) as connection:
        assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)


def test_one_that_has_done_much_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MOST_USES", 3)
    for make in (scratch.connect, lambda: limited_duckdb(MEMORY_MB + 9)):
        seen = []
        for number in range(9):
            with make() as connection:
                connection.execute(f"CREATE TABLE t{number} (x INT)")
                found = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
                assert found is not None
                seen.append(found[0])
        assert max(seen) == 3
        assert seen.count(3) >= 2


def test_a_forked_process_starts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()
    for make in (scratch.connect, lambda: limited_duckdb(MEMORY_MB + 3)):
        with make() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS of_the_parent (x INT)")
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        with make() as connection, pytest.raises(duckdb.CatalogException):
            connection.execute("SELECT * FROM of_the_parent")
        monkeypatch.setattr(os, "getpid", lambda: here)
        with make() as connection:
            connection.execute("DROP TABLE of_the_parent")


def test_what_the_machine_does_is_told_in_a_sentence(tmp_path: Path) -> None:
    """No mistake of ours: a damaged file, too little memory and room."""
    damaged = tmp_path / "x.parquet"
    damaged.write_bytes(b"PAR1 and no more than that")
    sentence = f"^a file cannot be read or written: .*{damaged}.*restore it, or build the tables anew"
    with pytest.raises(MusterError, match=sentence), limited_duckdb(MEMORY_MB + 4) as connection:
        connection.execute(f"SELECT * FROM read_parquet('{damaged}')")
    statements = (
        "SET max_temp_directory_size = '1MB'; "
        "CREATE TEMP TABLE t AS SELECT i, md5(i::VARCHAR) AS x FROM range(2_000_000) r(i)"
    )
    sentence = rf"^{MEMORY_MB + 5} MB are not enough for a task, .*Make room there"
    with pytest.raises(MusterError, match=sentence), limited_duckdb(MEMORY_MB + 5) as connection:
        connection.execute(statements)


def test_a_full_disk_is_the_error_that_it_is() -> None:
    with pytest.raises(OSError, match="No space left on device") as full, limited_duckdb(MEMORY_MB + 6):
        raise duckdb.IOException('IO Error: Could not write file "/tmp/x": No space left on device')
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, tempfile.gettempdir())
