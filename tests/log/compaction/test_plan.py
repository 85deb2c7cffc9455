"""Which log is compacted next, and which part of it."""

from collections.abc import Sequence

import pytest

from muster.log.compaction.plan import (
    NEVER_MS,
    Cleanable,
    CompactionConfig,
    LogFacts,
    SegmentFacts,
    cleanable,
    dirtiest,
    grouped,
)

NOW_MS = 1_000_000
CONFIG = CompactionConfig()


def log(
    *bases: int, end: int = 1000, stable: int | None = None, start: int | None = None, size_bytes: int = 100
) -> LogFacts:
    """Segments of a hundred bytes each, of which each is younger than the one before."""
    segments = [SegmentFacts(base, size_bytes, NOW_MS - end + base, NOW_MS - end + base + 50) for base in bases]
    return LogFacts(bases[0] if start is None else start, end, end if stable is None else stable, segments)


def part(
    facts: LogFacts, checkpoint: int | None = None, config: CompactionConfig = CONFIG, now_ms: int = NOW_MS
) -> tuple[int, int]:
    found = cleanable(facts, checkpoint, config, now_ms)
    return found.first_dirty_offset, found.end_offset


def test_a_log_that_was_never_compacted_is_dirty_from_its_start_to_its_active_segment() -> None:
    assert part(log(0, 100, 200)) == (0, 200)
    assert part(log(50, 100, 200)) == (50, 200)
    assert part(log(0, 100, 200, start=30)) == (30, 200)


def test_the_next_round_begins_where_the_last_one_ended() -> None:
    found = cleanable(log(0, 100, 200, 300), 100, CONFIG, NOW_MS)
    assert (found.first_dirty_offset, found.end_offset) == (100, 300)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (100, 200, 2 / 3)


def test_an_open_transaction_keeps_its_segment_and_all_behind_it() -> None:
    assert part(log(0, 100, 200, 300, stable=250)) == (0, 200)
    assert part(log(0, 100, 200, 300, stable=200)) == (0, 200)
    assert part(log(0, 100, 200, 300, stable=199)) == (0, 100)
    assert part(log(0, 100, 200, 300, stable=10)) == (0, 0)
    assert part(log(0, 100, 200, 300, stable=150), checkpoint=250) == (250, 200)  # never before what is clean


def test_nothing_is_dirty_behind_the_active_segment() -> None:
    for facts, checkpoint in ((log(0), None), (log(0, 100), 100), (log(0, 100, 200, stable=150), 200)):
        found = cleanable(facts, checkpoint, CONFIG, NOW_MS)
        assert found.dirty_bytes == 0
        assert not found.is_due(CompactionConfig(min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=0))


def test_a_round_that_ended_inside_a_segment_goes_on_there() -> None:
    """As after a full map. The segment counts as clean and as dirty then, as in Kafka."""
    found = cleanable(log(0, 100, 200, 300), 150, CONFIG, NOW_MS)
    assert (found.first_dirty_offset, found.end_offset) == (150, 300)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)


@pytest.mark.parametrize("checkpoint", [-5, 20, 1001])
def test_a_checkpoint_outside_of_the_log_is_not_believed(checkpoint: int) -> None:
    found = cleanable(log(0, 100, 200, start=30), checkpoint, CONFIG, NOW_MS)
    assert (found.first_dirty_offset, found.lost_checkpoint) == (30, True)
    assert not cleanable(log(0, 100, 200, start=30), 1000, CONFIG, NOW_MS).lost_checkpoint


def test_young_records_wait() -> None:
    """Segment 200 has records up to NOW_MS - 750."""
    assert part(log(0, 100, 200, 300), config=CompactionConfig(min_compaction_lag_ms=751)) == (0, 200)
    assert part(log(0, 100, 200, 300), config=CompactionConfig(min_compaction_lag_ms=750)) == (0, 300)
    assert part(log(0, 100, 200, 300), 300, config=CompactionConfig(min_compaction_lag_ms=10_000)) == (300, 300)


def test_a_log_is_due_above_the_dirty_ratio() -> None:
    facts = log(0, 100, 200)
    half = cleanable(facts, 100, CONFIG, NOW_MS)
    assert half.dirty_ratio == 0.5
    assert not half.is_due(CONFIG)
    assert half.is_due(CompactionConfig(min_cleanable_dirty_ratio=0.49))


def test_a_log_is_due_when_something_has_waited_too_long() -> None:
    facts = log(0, 100, 200, 300, 400)  # the first dirty batch is of NOW_MS - 700
    for lag_ms, is_due in ((699, True), (700, False), (NEVER_MS, False)):
        config = CompactionConfig(max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=0.9)
        found = cleanable(facts, 300, config, NOW_MS)
        assert (found.is_overdue, found.is_due(config)) == (is_due, is_due)


def test_a_first_batch_without_a_time_makes_nothing_overdue() -> None:
    facts = LogFacts(0, 300, 300, [SegmentFacts(0, 100), SegmentFacts(100, 100), SegmentFacts(200, 0)])
    assert not cleanable(facts, None, CompactionConfig(max_compaction_lag_ms=1), NOW_MS).is_overdue


def test_the_dirtiest_log_comes_first() -> None:
    def dirty(clean_bytes: int, dirty_bytes: int, is_overdue: bool = False) -> tuple[Cleanable, CompactionConfig]:
        return Cleanable(0, 9, clean_bytes, dirty_bytes, is_overdue, False), CONFIG

    logs = {"a": dirty(100, 200), "b": dirty(100, 300), "c": dirty(0, 0), "d": dirty(100, 100, True)}
    assert dirtiest(logs) == "b"
    assert dirtiest({name: logs[name] for name in "acd"}) == "a"
    assert dirtiest({name: logs[name] for name in "cd"}) == "d"  # overdue, though its ratio is small
    assert dirtiest({"c": logs["c"], "e": dirty(100, 100)}) is None


def bases(
    segments: Sequence[SegmentFacts], end: int, segment_bytes: int = 1 << 30, index_bytes: int = 1 << 20
) -> list[list[int]]:
    groups = grouped(segments, segment_bytes, index_bytes, end)
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_become_one_segment_as_far_as_they_fit() -> None:
    segments = log(0, 100, 200, 300, 400).segments
    assert bases(segments, 500, segment_bytes=250) == [[0, 100], [200, 300], [400]]
    assert bases(segments, 500, segment_bytes=300) == [[0, 100, 200], [300, 400]]
    assert bases(segments, 500, segment_bytes=50) == [[0], [100], [200], [300], [400]]
    assert bases([], 0) == []


def test_indexes_have_to_fit_too() -> None:
    segments = [SegmentFacts(base, 10, 0, 0, 80, 60) for base in (0, 100, 200)]
    assert bases(segments, 300, index_bytes=200) == [[0, 100], [200]]
    wide = [segment._replace(time_index_bytes=150) for segment in segments]
    assert bases(wide, 300, index_bytes=200) == [[0], [100], [200]]


def test_offsets_of_a_group_stay_within_an_int32_of_its_base() -> None:
    far = 2**31
    segments = [SegmentFacts(0, 10), SegmentFacts(100, 10), SegmentFacts(far, 10)]
    assert bases(segments, far + 100) == [[0, 100], [far]]
    assert bases(segments[:2], far) == [[0, 100]]
    assert bases(segments[:2], far + 1) == [[0], [100]]
    empty = [SegmentFacts(0, 10), SegmentFacts(far, 0), SegmentFacts(far + 5, 0)]
    assert bases(empty, far + 100) == [[0, far, far + 5]]  # else one is left behind every 2^31 offsets
