"""What a run says of the data's ends, and of the moment they are of, from log directories with clocks of every kind."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.codec.batches import encode_batch
from muster.codec.records import Record
from muster.errors import BadInput
from muster.segments.checkpoints import LOG_STARTS, TopicPartition, write_offsets
from muster.segments.files import REAL_FILES
from tests.pipeline.test_life import DAY_MS, KEYS, Life, offsets_of
from tests.pipeline.world import Row, rows_of, run_here, unpacked

HOUR_MS = 3_600_000
SHOP = ("app", 0)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """The log of a broker that went away a day ago."""
    made = Life(tmp_path / "log", time.time_ns() // 1_000_000 - DAY_MS)
    yield made
    made.log.close()


def produce(life: Life, topic: str, first: int, *times_ms: int) -> None:
    """Records with these times, in a segment of their own."""
    directory = life.root / f"{topic}-0"
    directory.mkdir(exist_ok=True)
    records = [Record(first + number, time_ms, None, b"v") for number, time_ms in enumerate(times_ms)]
    (directory / f"{first:020}.log").write_bytes(encode_batch(records))


def lag_of(tables: Path, as_of_ms: int | None = None) -> Row:
    (row,) = [row for row in rows_of(tables, "lag", as_of_ms=as_of_ms)["lag"] if row["partition"] == SHOP[1]]
    return row


def test_one_bad_timestamp_freezes_no_lag(life: Life, tmp_path: Path) -> None:
    """A record stamped in microseconds, in another topic: it comes, and retention takes it."""
    tables, began_ms = tmp_path / "tables", life.now_ms
    produce(life, "orders", 0, *[began_ms] * 10)
    produce(life, "clicks", 0, began_ms * 1000)
    life.commit(SHOP, 10)
    first = run_here(tables, life.root)
    assert [note for note in first.notes if "clicks-0 has a record dated" in note]
    assert (lag_of(tables)["lag"], lag_of(tables)["lag_ms"]) == (0, 0)
    assert lag_of(tables)["observed_at_ms"] == life.now_ms  # not the year 58000, nor now: the disk is a day old

    shutil.rmtree(life.root / "clicks-0")
    produce(life, "orders", 10, *[began_ms + HOUR_MS] * 5)
    life.now_ms += 2 * HOUR_MS
    life.commit(KEYS[1], 1)
    assert run_here(tables, life.root).notes == []
    row = lag_of(tables)
    assert (row["lag"], row["log_end_offset"], row["lag_ms_by"]) == (5, 15, "exact")
    assert row["lag_ms"] == life.now_ms - (began_ms + HOUR_MS)


def test_an_unread_record_with_a_bad_timestamp_has_no_age(life: Life, tmp_path: Path) -> None:
    produce(life, "orders", 0, life.now_ms, life.now_ms * 1000)
    life.commit(SHOP, 1)
    run_here(tmp_path / "tables", life.root)
    row = lag_of(tmp_path / "tables")
    assert (row["lag"], row["lag_ms"], row["lag_ms_by"]) == (1, None, None)


def test_a_clock_that_stepped_back_between_runs_does_not_bring_back_old_ends(life: Life, tmp_path: Path) -> None:
    produce(life, "orders", 0, *[life.now_ms + 10 * HOUR_MS] * 3)
    life.commit(SHOP, 3)
    run_here(tmp_path / "tables", life.root)
    shutil.rmtree(life.root / "orders-0")
    produce(life, "orders", 3, *[life.now_ms + HOUR_MS] * 4)
    run_here(tmp_path / "tables", life.root)
    assert (lag_of(tmp_path / "tables")["lag"], lag_of(tmp_path / "tables")["log_end_offset"]) == (4, 7)


def test_records_that_retention_took_are_lost_and_no_lag(life: Life, tmp_path: Path) -> None:
    produce(life, "orders", 37, *[life.now_ms] * 10)
    life.commit(SHOP, 5)
    run_here(tmp_path / "by-segment", life.root)
    row = lag_of(tmp_path / "by-segment")
    assert (row["lag"], row["offset_lag"], row["lost_records"], row["log_start_offset"]) == (10, 42, 32, 37)
    write_offsets(REAL_FILES, life.root / LOG_STARTS, {TopicPartition("orders", 0): 40})
    run_here(tmp_path / "by-checkpoint", life.root)
    row = lag_of(tmp_path / "by-checkpoint")
    assert (row["lag"], row["offset_lag"], row["lost_records"], row["log_start_offset"]) == (7, 42, 35, 40)


def test_lag_as_of_a_moment_where_the_group_went_on_and_nobody_looked_is_drawn(life: Life, tmp_path: Path) -> None:
    """From 10 to 20; and the group had committed more than the line has then."""
    tables = tmp_path / "tables"
    produce(life, "orders", 0, *[life.now_ms] * 10)
    life.commit(SHOP, 8)
    run_here(tables, life.root)
    looked_ms = life.now_ms
    produce(life, "orders", 10, *[life.now_ms] * 10)
    life.commit(SHOP, 19)
    between_ms = life.now_ms
    life.commit(KEYS[1], 1)
    run_here(tables, life.root)
    assert (lag_of(tables)["lag"], lag_of(tables, looked_ms)["lag"]) == (1, 2)
    row = lag_of(tables, between_ms)
    assert (row["committed_offset"], row["log_end_offset"], row["log_end_by"]) == (19, 19, "interpolated")
    assert [row[name] for name in ("lag", "offset_lag", "lag_ms", "lag_unknown")] == [0, 0, 0, None]
    assert not rows_of(tables, "findings", as_of_ms=between_ms)["findings"]  # nobody is beyond the end


def test_a_commit_dated_far_ahead_does_not_end_the_past(life: Life, tmp_path: Path) -> None:
    life.commit(SHOP, 1)
    life.remember()
    now_ms = life.now_ms
    life.now_ms *= 1000
    life.commit(SHOP, 2)
    life.now_ms = now_ms
    for committed in (3, 4):
        life.commit(SHOP, committed)
        life.remember()
    summary = run_here(tmp_path / "tables", life.root)
    for moment_ms, expected in life.moments:
        assert offsets_of(tmp_path / "tables", moment_ms) == expected, moment_ms
    assert [note for note in summary.notes if note.startswith("partition 0 has a record dated ")]


def test_a_topic_that_was_made_anew_is_another_topic(life: Life, tmp_path: Path) -> None:
    """It may have grown past what was read of the old one, under the same leader epoch."""
    metadata = life.root / str(life.key) / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    life.commit(SHOP, 1)
    run_here(tmp_path / "tables", life.root)
    before = offsets_of(tmp_path / "tables")
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    life.commit(SHOP, 2)
    with pytest.raises(BadInput, match="created anew"):
        run_here(tmp_path / "tables", life.root)
    assert offsets_of(tmp_path / "tables") == before


def test_data_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    """Without a word, a group that is far behind there would seem to have nothing to do."""
    log = unpacked("k43-all", tmp_path)
    before = run_here(tmp_path / "readable", log)
    [lost, *_] = sorted(each for each in log.iterdir() if each.is_dir() and not each.name.startswith("__"))
    shutil.rmtree(lost)
    lost.mkdir()
    (lost / f"{0:020}.log").symlink_to(lost / "nowhere")
    summary = run_here(tmp_path / "tables", log)
    assert summary.new_rows["log_ends"] == before.new_rows["log_ends"] - 1
    assert [note for note in summary.notes if note not in before.notes] == [
        f"{lost.name} cannot be read: No such file or directory. The lag of groups there is unknown."
    ]
