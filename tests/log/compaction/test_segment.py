"""The segment that compaction writes: its indexes are those of any segment, however its batches come."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.log.compaction.cleaned_segment import CleanedSegment
from muster.log.compaction.cleaner import CleaningCancelled, Pace
from muster.log.config import LogConfig
from muster.log.segment import CLEANED, SEGMENT_SUFFIXES, WritableSegment, WrittenBatch
from muster.segments.indexes import AbortedTransaction
from tests.codec.strategies import bounded
from tests.log.disk.faults import FaultyFiles

DIRECTORY = Path("/log")
BATCHES = st.lists(st.tuples(st.integers(61, 400), st.integers(1, 9), st.integers(-1, 50)), max_size=40)


def empty_disk() -> FaultyFiles:
    files = FaultyFiles()
    files.mkdir(DIRECTORY)
    return files


def contents(files: FaultyFiles, suffix: str) -> dict[str, bytes]:
    found = {}
    for kind in SEGMENT_SUFFIXES:
        path = DIRECTORY / f"{100:020}{kind}{suffix}"
        if files.exists(path):
            file = files.open(path)
            found[kind] = file.pread(file.size(), 0)
    return found


@bounded
@given(BATCHES, st.integers(1, 600), st.integers(1, 12))
def test_batches_leave_the_same_indexes_one_by_one_and_as_a_table(
    batches: list[tuple[int, int, int]], interval_bytes: int, at_once: int
) -> None:
    config = LogConfig(index_interval_bytes=interval_bytes)
    offset, rows = 99, []
    for size, step, timestamp_ms in batches:
        offset += step
        rows.append((size, offset, timestamp_ms))
    files, other_files, plain_files = empty_disk(), empty_disk(), empty_disk()
    one_by_one = CleanedSegment(files, DIRECTORY, 100, config, Pace().spend)
    as_a_table = CleanedSegment(other_files, DIRECTORY, 100, config, Pace().spend)
    plain = WritableSegment(plain_files, DIRECTORY, 100, index_interval_bytes=interval_bytes)
    for row in rows:
        one_by_one.add(bytes(row[0]), WrittenBatch(row[0], row[1], *row[1:]))
        plain.append(bytes(row[0]), [WrittenBatch(row[0], row[1], row[1], row[2])])
    for first in range(0, len(rows), at_once):
        some = rows[first : first + at_once]
        as_a_table.add_table([bytes(row[0]) for row in some], np.array(some, np.int64))
    plain.seal()
    largest = {one.finish([]).largest_timestamp for one in (one_by_one, as_a_table)}
    assert largest == {plain.largest_timestamp}
    assert contents(files, CLEANED) == contents(other_files, CLEANED) == contents(plain_files, "")


def test_a_cleaned_segment_begins_anew_where_another_was_left() -> None:
    files = empty_disk()
    first = CleanedSegment(files, DIRECTORY, 100, LogConfig(), Pace().spend)
    first.add_table([b"x" * 100], np.array([[100, 100, 5]]))
    first.finish([AbortedTransaction(1, 100, 100, 101)])
    second = CleanedSegment(files, DIRECTORY, 100, LogConfig(), Pace().spend)
    segment = second.finish([])
    assert (segment.size_bytes, segment.aborted_transactions()) == (0, [])
    assert contents(files, CLEANED) == {".log": b"", ".index": b"", ".timeindex": b""}


def test_an_abandoned_segment_leaves_nothing() -> None:
    files = empty_disk()
    cleaned = CleanedSegment(files, DIRECTORY, 100, LogConfig(), Pace().spend)
    cleaned.add_table([b"x" * 2_000_000], np.array([[2_000_000, 100, 5]]))
    cleaned.abandon()
    assert files.entries(DIRECTORY) == []


class Clock:
    """A made-up one; waiting moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_a_pace_is_kept_over_time() -> None:
    clock = Clock()
    pace = Pace(1_000_000, lambda: clock.now, clock.wait)
    for _ in range(50):
        pace.spend(100_000)
    assert clock.now == pytest.approx(105, abs=0.4)


def test_time_that_was_not_used_is_not_saved_up() -> None:
    clock = Clock()
    pace = Pace(1_000_000, lambda: clock.now, clock.wait)
    clock.now += 3600
    pace.spend(5_000_000)
    assert clock.now == pytest.approx(3705, abs=0.4)


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(None, lambda: 0.0, lambda seconds: pytest.fail("waited"))
    pace.spend(1 << 40)


def test_a_cancelled_round_stops_even_while_it_waits() -> None:
    pace = Pace(1.0)
    pace._wait = lambda seconds: pace.cancel()
    with pytest.raises(CleaningCancelled):
        pace.spend(1_000)
    with pytest.raises(CleaningCancelled):
        pace.check()
