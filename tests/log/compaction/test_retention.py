"""Which segments an ordinary log loses."""

from muster.log.compaction.plan import Reason, Retained, RetentionConfig, SegmentFacts, retained

NOW_MS = 1_000_000
FOREVER = RetentionConfig(retention_ms=-1)


def segments(*largest_ms: int, size_bytes: int = 100) -> list[SegmentFacts]:
    """Ten offsets each."""
    return [SegmentFacts(10 * number, size_bytes, time, time) for number, time in enumerate(largest_ms)]


def kept(
    of: list[SegmentFacts],
    config: RetentionConfig,
    start: int = 0,
    end: int | None = None,
    watermark: int | None = None,
) -> Retained:
    end = 10 * len(of) if end is None else end
    return retained(of, config, NOW_MS, start, end, end if watermark is None else watermark)


def test_nothing_goes_from_a_log_that_is_young_and_small() -> None:
    assert kept(segments(NOW_MS, NOW_MS, NOW_MS), RetentionConfig(1000, 300)) == ((), 0, False)
    assert not kept(segments(0, 0), FOREVER)


def test_old_segments_go_and_the_log_begins_behind_them() -> None:
    old = NOW_MS - 1001
    found = kept(segments(old, old, NOW_MS - 1000, old), RetentionConfig(retention_ms=1000))
    assert found == ((Reason.TIME, Reason.TIME), 20, False)  # and not the fourth: only from the front


def test_the_active_segment_goes_too_and_another_is_rolled_first() -> None:
    found = kept(segments(0, 0, 0), RetentionConfig(retention_ms=1000), end=27)
    assert found == ((Reason.TIME,) * 3, 27, True)


def test_an_empty_active_segment_stays() -> None:
    of = [*segments(0, 0), SegmentFacts(20, 0)]
    assert kept(of, RetentionConfig(retention_ms=1000), end=20) == ((Reason.TIME,) * 2, 20, False)


def test_a_segment_without_a_time_is_as_old_as_the_next_one_with_a_time() -> None:
    assert len(kept(segments(-1, 0, NOW_MS), RetentionConfig(retention_ms=1000)).reasons) == 2
    assert not kept(segments(-1, NOW_MS), RetentionConfig(retention_ms=1000))
    assert not kept(segments(-1, -1), RetentionConfig(retention_ms=1000))


def test_segments_go_as_long_as_enough_bytes_are_left() -> None:
    of = segments(NOW_MS, NOW_MS, NOW_MS, NOW_MS)
    assert kept(of, RetentionConfig(-1, 200)) == ((Reason.SIZE,) * 2, 20, False)
    assert kept(of, RetentionConfig(-1, 201)) == ((Reason.SIZE,), 10, False)
    assert kept(of, RetentionConfig(-1, 400)) == ((), 0, False)
    assert kept(of, RetentionConfig(-1, 0)) == ((Reason.SIZE,) * 4, 40, True)


def test_size_and_time_work_one_behind_the_other() -> None:
    old = NOW_MS - 1001
    found = kept(segments(old, old, old, NOW_MS), RetentionConfig(1000, 300))
    assert found == ((Reason.SIZE, Reason.TIME, Reason.TIME), 30, False)


def test_segments_before_the_log_start_offset_go_whatever_the_policy() -> None:
    of = segments(NOW_MS, NOW_MS, NOW_MS)
    compacted = RetentionConfig(0, 0, deletes=False)
    assert kept(of, compacted, start=9) == ((), 9, False)
    assert kept(of, compacted, start=10) == ((Reason.LOG_START_OFFSET,), 10, False)
    assert kept(of, compacted, start=25) == ((Reason.LOG_START_OFFSET,) * 2, 25, False)
    assert kept(of, compacted, start=30) == ((Reason.LOG_START_OFFSET,) * 2, 30, False)  # not the active one


def test_what_is_not_below_the_high_watermark_stays() -> None:
    of = segments(0, 0, 0)
    for watermark, count in ((9, 0), (10, 1), (29, 2), (30, 3)):
        assert len(kept(of, RetentionConfig(1000), watermark=watermark).reasons) == count
        assert len(kept(of, RetentionConfig(-1, 0), watermark=watermark).reasons) == count
        assert len(kept(of, RetentionConfig(-1, deletes=False), 30, watermark=watermark).reasons) == min(count, 2)
