"""SQL of one's own over published tables: what it sees, and what it cannot do."""

from pathlib import Path
from typing import Any

import pytest

from muster.errors import BadInput
from muster.tables.own_sql import query
from muster.tables.reading import ORDERS, Tables, open_tables
from muster.tables.schemas import PUBLISHED
from tests.pipeline.world import run_here, unpacked
from tests.tables.history import published, state_at_the_end

QUOTE = "'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("of one's own")
    published(path, state_at_the_end("k43-full"))
    return path


@pytest.fixture
def tables(folder: Path) -> Any:
    with open_tables(folder) as opened:
        yield opened


def rows(tables: Tables, sql: str, as_of_ms: int | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(tables, sql, as_of_ms).read_all().to_pylist()
    return found


@pytest.mark.parametrize("name", ORDERS)
def test_every_table_has_its_published_columns(tables: Tables, name: str) -> None:
    assert query(tables, f"SELECT * FROM {name}").schema.names == PUBLISHED[name].names


def test_the_same_rows_as_the_table(tables: Tables) -> None:
    expected = tables.read("offsets").table().to_pylist()
    assert rows(tables, "SELECT * FROM offsets ORDER BY group_id, topic, partition") == expected
    assert rows(tables, "WITH o AS (FROM OFFSETS) SELECT count(*) AS n FROM o") == [{"n": len(expected)}]


def test_an_error_far_into_the_answer_is_told_like_any_other(tables: Tables) -> None:
    with pytest.raises(BadInput, match=r"x went wrong\. `muster table` lists the tables"):
        rows(tables, "SELECT CASE WHEN range = 90000 THEN error('x went wrong') ELSE 1 END FROM range(100000)")


def test_of_state_alone_what_is_not_kept_can_be_described(tmp_path: Path) -> None:
    run_here(tmp_path / "t", unpacked("mini-zstd-43", tmp_path), history=False)
    with open_tables(tmp_path / "t") as opened:
        with pytest.raises(BadInput, match="commits is not kept"):
            query(opened, "SELECT count(*) FROM offsets JOIN Commits USING (group_id)")
        assert rows(opened, "DESCRIBE commits")
        assert rows(opened, "WITH commits AS (FROM offsets) SELECT count(*) AS n FROM commits")[0]["n"] > 0


def test_as_of_a_moment(tables: Tables) -> None:
    times = sorted(row["timestamp"] for row in tables.read("commits").table().to_pylist())
    moment_ms = int(times[len(times) // 2].timestamp() * 1000)
    expected = tables.read("offsets", moment_ms).table().num_rows
    assert 0 < expected < tables.read("offsets").table().num_rows
    assert rows(tables, "SELECT count(*) AS n FROM offsets", moment_ms) == [{"n": expected}]


def test_only_what_a_statement_reads_is_made(tables: Tables) -> None:
    """Of a moment, `activity` cannot be told, and `lag` takes long: words that are no tables here."""
    moment_ms = tables.manifest.now_ms
    asked: list[str] = []
    tables_read = tables.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "read", lambda name, *given: asked.append(name) or tables_read(name, *given))
        rows(tables, "SELECT lag(group_id) OVER () FROM offsets WHERE group_id <> 'activity'", moment_ms)
        rows(tables, "SELECT * FROM offsets JOIN lag USING (group_id)", moment_ms)
    assert asked == ["offsets", "offsets", "lag"]


def test_all_tables_are_listed(tables: Tables) -> None:
    for sql in ("SHOW TABLES", "-- all\nshow tables", "SELECT name FROM (SHOW TABLES)"):
        assert {row["name"] for row in rows(tables, sql)} == set(ORDERS)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'offsets.csv'",
        "DROP VIEW offsets",
        "SELECT 1; SELECT 2",
        "SET enable_external_access = true",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "",
    ],
)
def test_what_does_not_read_is_refused(tables: Tables, sql: str) -> None:
    with pytest.raises(BadInput, match="one statement that reads"):
        query(tables, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_csv('https://127.0.0.1:1/x.csv')",
    ],
)
def test_other_files_cannot_be_read(tables: Tables, sql: str) -> None:
    with pytest.raises(BadInput, match=r"disabled by configuration|there is no table|httpfs"):
        query(tables, sql).read_all()


def test_a_mistake_is_told_in_a_sentence(tables: Tables) -> None:
    with pytest.raises(BadInput, match=r"^there is no table ofsets\. Did you mean offsets\?$"):
        query(tables, "SELECT * FROM ofsets")
    with pytest.raises(BadInput, match="grop_id") as told:
        query(tables, "SELECT grop_id FROM offsets")
    assert "LINE 1" not in str(told.value)


@pytest.mark.parametrize(
    "how", ["EXPLAIN ANALYZE", "explain\nanalyze", "/* so */ EXPLAIN ANALYZE", "EXPLAIN (FORMAT json)"]
)
def test_what_is_explained_may_only_read_too(tables: Tables, folder: Path, how: str) -> None:
    """EXPLAIN ANALYZE carries a statement out, and the folder of the tables is one that files can be opened in."""
    with pytest.raises(BadInput, match=r"one statement that reads|Parser Error"):
        query(tables, f"{how} COPY (SELECT 1) TO '{str(folder).replace(QUOTE, QUOTE * 2)}/hole.parquet'")
    assert not (folder / "hole.parquet").exists()
    assert query(tables, "EXPLAIN SELECT * FROM lag").read_all().num_rows
