"""Moments on their way into published tables, and back."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from muster.tables.about import ABOUT
from muster.tables.reading import open_tables
from muster.tables.schemas import COMMITS, MOMENTS, PUBLISHED, TABLES, TIMESTAMP, published_form
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from muster.tables.times import LAST_MS, as_text, inner, published, text_of
from tests.tables.made import made

NOW_MS = 1_794_904_384_123
NOW = datetime(2026, 11, 17, 8, 33, 4, 123_000, UTC)
HOSTILE = {
    NOW_MS: NOW_MS,
    0: 0,
    LAST_MS: LAST_MS,
    LAST_MS + 1: LAST_MS,
    NOW_MS * 1000: LAST_MS,  # microseconds
    2**63 - 1: LAST_MS,
    -2: None,
    -(2**63): None,
}
"""What a producer may have written as a time, and what is known of it then."""


@pytest.mark.parametrize("written", HOSTILE)
def test_what_no_engine_holds_is_later_than_all_or_not_there(written: int) -> None:
    rows = made("commits", {"timestamp_ms": written}, {"timestamp_ms": None}, {"timestamp_ms": NOW_MS})
    found = inner(published(rows, published_form(COMMITS)), COMMITS)
    assert found["timestamp_ms"].to_pylist() == [HOSTILE[written], None, NOW_MS]


def test_the_last_moment_is_one_for_every_engine() -> None:
    last = pa.array([LAST_MS], pa.int64()).cast(pa.timestamp("ms"))
    assert last.cast(pa.timestamp("ns")).cast(pa.timestamp("ms")) == last
    assert text_of(LAST_MS) == text_of(LAST_MS + 1) == "2262-01-01T00:00:00.000Z"


def test_hostile_times_are_read_back_from_tables(tmp_path: Path) -> None:
    """Through Parquet, Delta and duckdb, in one file with others."""
    rows = [{"log_offset": place, "timestamp_ms": ms, "kind": "commit"} for place, ms in enumerate(HOSTILE)]
    with begin_run(TableStore(tmp_path)) as run:
        run.append_rows("commits", made("commits", *rows))
        run.publish({}, {})
    with open_tables(tmp_path) as tables:
        found = inner(tables.read("commits").table(), COMMITS)["timestamp_ms"].to_pylist()
    assert found == list(HOSTILE.values())
    by_delta = DeltaTable(tmp_path / "commits").to_pyarrow_table().sort_by("log_offset")["timestamp"].to_pylist()
    assert by_delta[0] == NOW
    assert by_delta[-1] is None


def test_moments_are_text_for_programs() -> None:
    rows = published(made("groups", {"state_timestamp_ms": NOW_MS}), published_form(TABLES["groups"]))
    (row,) = as_text(rows.to_batches()[0]).to_pylist()
    assert (row["state_timestamp"], row["last_commit_timestamp"]) == ("2026-11-17T08:33:04.123Z", None)
    assert text_of(NOW_MS) == "2026-11-17T08:33:04.123Z"


def test_every_moment_is_a_timestamp_and_no_length_of_time_is() -> None:
    lengths = {
        "commit_gap_ms",
        "interrupted_ms",
        "interval_ms",
        "lag_ms",
        "longest_distance_ms",
        "longest_silence_ms",
        "mean_distance_ms",
        "produced_in_ms",
        "rebalance_timeout_ms",
        "retention_ms",
        "session_timeout_ms",
        "since_last_ms",
    }
    for table, schema in TABLES.items():
        for field, shown in zip(schema, PUBLISHED[table], strict=True):
            assert (field.name in MOMENTS) == (shown.type == TIMESTAMP), field.name
            if field.name.endswith("_ms"):
                assert field.name in MOMENTS | lengths
            assert (shown.name == field.name) == (field.name not in MOMENTS)
    assert {name for schema in TABLES.values() for name in schema.names} >= MOMENTS


def test_what_is_never_null_is_refused(tmp_path: Path) -> None:
    row = made("offsets", {"group_id": None})
    with (
        begin_run(TableStore(tmp_path)) as run,
        pytest.raises(pa.ArrowInvalid, match="'group_id' is declared non-nullable"),
    ):
        run.append_rows("offsets", row)


def test_delta_knows_comments_and_bounds(tmp_path: Path) -> None:
    rows = [{"log_offset": ms, "timestamp_ms": ms} for ms in (NOW_MS, NOW_MS - 5)]
    with begin_run(TableStore(tmp_path)) as run:
        run.append_rows("commits", made("commits", *rows))
        run.publish({}, {})
    table = DeltaTable(tmp_path / "commits")
    assert table.metadata().description == ABOUT["commits"]
    fields = {field.name: field for field in table.schema().fields}
    assert [field.name for field in table.schema().fields if not field.nullable] == [
        "offsets_partition", "log_offset", "kind", "group_id", "topic", "partition",
    ]  # fmt: skip
    assert fields["committed_offset"].metadata["comment"] == "the committed offset; NULL: a deletion"
    assert fields["kind"].metadata["comment"] == "commit, deleted, expired or vanished"
    (entry,) = (tmp_path / "commits" / "_delta_log").glob("*.json")
    assert '\\"timestamp\\": \\"2026-11-17T08:33:04.118Z\\"' in entry.read_text()
    (actions,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (actions["min.timestamp"], actions["max.timestamp"]) == (NOW.replace(microsecond=118_000), NOW)
    assert table.to_pyarrow_table(filters=[("timestamp", ">", NOW)]).num_rows == 0
    assert table.to_pyarrow_table(filters=[("timestamp", ">=", NOW)]).num_rows == 1
