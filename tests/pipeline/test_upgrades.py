"""Tables that an earlier muster wrote: it did not know some of today's columns."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.errors import BadInput
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, PUBLISHED, TABLES, published_name
from muster.tables.storage import changes as changes_module
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from muster.tables.times import inner
from tests.pipeline.world import GrowingLog, Rows, rows_of, run_here, unpacked

NEWER_COLUMNS = {
    "commits": ["topic_id", "previous_commit_timestamp"],
    "open_commits": ["topic_id", "previous_commit_timestamp"],
    "offsets": ["topic_id", "producer_id"],
    "group_records": ["raw_value", "first_commit_after"],
    "group_state": ["raw_value", "first_commit_after"],
    "groups": ["last_commit_timestamp"],
    "members": ["rack_id", "target_assignment"],
    "rebalances": ["previous_generation"],
    "latest_rebalances": ["previous_generation"],
    "log_ends": ["topic_id"],
    "lag": ["client_host"],
    "activity": ["first_commit"],
}
"""Published columns that the earlier muster of these tests has not."""


OFFSET = {
    "topic": "t", "partition": 0, "committed_offset": 1, "metadata": "", "offsets_partition": 0, "log_offset": 1,
}  # fmt: skip


def without(schema: pa.Schema, names: list[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])


def as_before(tables: Path, older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tables as the earlier muster would have published them."""
    store, schemas = TableStore(tables), dict(PUBLISHED)
    for name, columns in NEWER_COLUMNS.items():
        schemas[name] = without(PUBLISHED[name], columns)
    manifest = store.manifest()
    assert manifest is not None
    with monkeypatch.context() as patch, begin_run(TableStore(older)) as run:
        patch.setattr(changes_module, "PUBLISHED", schemas)
        for name, version in manifest.tables.items():
            files = store.files(name, version)
            rows = [inner(pq.ParquetFile(file).read(), TABLES[name]) for file in files]
            run.replace(name, pa.concat_tables(rows) if rows else TABLES[name].empty_table())
        run.publish(manifest.progress, manifest.source)


def known_to_both(rows: Rows, table: str) -> list[str]:
    names = [name for name in TABLES[table].names if published_name(name) not in NEWER_COLUMNS.get(table, ())]
    return sorted(repr([row[name] for name in names]) for row in rows)


def test_a_run_over_tables_without_columns_that_came_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = GrowingLog(unpacked("k43-full", tmp_path / "corpus"), tmp_path / "log", Random(7))
    log.grow()
    run_here(tmp_path / "tables", log.target)
    older = tmp_path / "older"
    as_before(tmp_path / "tables", older, monkeypatch)
    old_places = {(row["offsets_partition"], row["log_offset"]) for row in rows_of(older, "commits")["commits"]}
    log.grow(all_of_it=True)
    for tables in (tmp_path / "tables", older):
        run_here(tables, log.target)
    names = sorted(set(TABLES) - {"latest_rebalances", *ANALYTICS})
    expected, found = rows_of(tmp_path / "tables", *names), rows_of(older, *names)
    for name in names:
        assert known_to_both(found[name], name) == known_to_both(expected[name], name), name
    assert old_places
    for row in found["commits"]:
        if (row["offsets_partition"], row["log_offset"]) in old_places:
            assert row["topic_id"] is None
    newer = [row for row in expected["commits"] if (row["offsets_partition"], row["log_offset"]) not in old_places]
    assert {row["topic_id"] for row in newer} <= {row["topic_id"] for row in found["commits"]}
    with open_tables(older) as opened:
        assert opened.read("groups", as_of_ms=opened.manifest.known_until_ms).table().num_rows


def test_a_field_that_a_struct_has_got_since_is_null_in_old_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = pa.struct(list(TABLES["group_state"].field("members").type.value_type)[:-1])
    older = pa.schema(
        [
            pa.field(field.name, pa.list_(member)) if field.name == "members" else field
            for field in PUBLISHED["group_state"]
        ]
    )
    row = {
        "offsets_partition": 0, "log_offset": 1, "is_tombstone": False, "group_id": "g", "record_type": 2,
        "members": [{"member_id": "m", "client_id": "c"}],
    }  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(changes_module, "PUBLISHED", PUBLISHED | {"group_state": older})
        with begin_run(TableStore(tmp_path)) as run:
            run.replace("group_state", pa.Table.from_pylist([row], schema=TABLES["group_state"]))
            run.publish({}, {})
    ((found,),) = rows_of(tmp_path, "group_state").values()
    assert (
        found["members"][0]
        == dict.fromkeys(field.name for field in TABLES["group_state"].field("members").type.value_type)
        | row["members"][0]
    )


def test_tables_with_columns_of_a_newer_muster_are_read_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    colour = pa.field("colour", pa.string())
    row = OFFSET | {"group_id": "g", "colour": "red"}
    with monkeypatch.context() as patch:
        patch.setattr(changes_module, "PUBLISHED", PUBLISHED | {"offsets": PUBLISHED["offsets"].append(colour)})
        with begin_run(TableStore(tmp_path)) as run:
            run.replace("offsets", pa.Table.from_pylist([row], schema=TABLES["offsets"].append(colour)))
            run.publish({}, {})
    with (
        pytest.raises(BadInput, match=r"offsets at .* does not know \(colour\): a newer muster wrote it"),
        begin_run(TableStore(tmp_path)) as run,
    ):
        run.files("offsets")
    assert [row["group_id"] for row in rows_of(tmp_path, "offsets")["offsets"]] == ["g"]
    assert TableStore(tmp_path).newest_version("offsets") == 0
