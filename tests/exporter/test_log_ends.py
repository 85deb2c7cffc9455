"""When a record was written, by the ends that its log had."""

import pytest

from muster.exporter.log_ends import MOST_POINTS, LogEnd, LogEnds


def looked(*points: tuple[int, int]) -> LogEnd:
    log = LogEnd()
    for end, at_ms in points:
        log.look(0, end, at_ms)
    return log


@pytest.mark.parametrize(
    ("offset", "at_ms"),
    [
        (99, None),  # before the first look
        (100, 1000.0),  # the first record behind the first look
        (150, 1500.0),
        (199, 1990.0),
        (200, 2000.0),
        (250, 2500.0),
        (300, None),  # still to come
    ],
)
def test_between_two_looks_the_end_moves_steadily(offset: int, at_ms: float | None) -> None:
    assert looked((100, 1000), (200, 2000), (300, 3000)).written_at_ms(offset) == at_ms


def test_one_look_tells_nothing() -> None:
    assert looked((100, 1000)).written_at_ms(50) is None
    assert LogEnd().written_at_ms(0) is None


def test_a_quiet_log_was_not_written_to_while_it_was_quiet() -> None:
    log = looked((100, 1000), (100, 2000), (100, 3000), (100, 9000), (110, 10_000))
    assert log.written_at_ms(100) == 9000
    assert log.written_at_ms(105) == 9500
    assert log.last_ends == (100, 100, 100, 100, 110)


def test_a_log_that_ends_earlier_is_another_log() -> None:
    log = looked((100, 1000), (200, 2000), (50, 3000))
    assert log.last_ends == (50,)
    assert log.written_at_ms(20) is None
    log.look(0, 150, 4000)
    assert log.written_at_ms(100) == 3500


def test_points_are_bounded_and_old_ones_become_coarse() -> None:
    log = LogEnd()
    for number in range(10 * MOST_POINTS):
        log.look(0, 10 * number, 1000 * number)
    assert len(log._ends) <= MOST_POINTS
    assert len(log.last_ends) == 10
    newest = 10 * MOST_POINTS - 1
    for number in (newest - 1, newest - 50, newest // 2, 1):
        assert log.written_at_ms(10 * number) == pytest.approx(1000 * number)  # it grew steadily


def test_what_nobody_reads_any_more_is_forgotten() -> None:
    ends = LogEnds()
    ends.look({("a", 0): (1, 5), ("b", 0): (2, 6)}, 1000)
    assert ends.end_of(("a", 0)) == 5
    ends.keep_only([("b", 0)])
    assert ends.end_of(("a", 0)) is None
    assert len(ends) == 1
    ends.forget([("b", 0), ("c", 0)])
    assert len(ends) == 0


def test_where_a_log_ended_at_a_moment() -> None:
    log = looked((100, 1000), (200, 2000), (200, 3000), (200, 9000), (201, 10_000))
    ends = {at_ms: log.end_at(at_ms) for at_ms in (999, 1000, 1505, 2000, 8000, 9999, 10_000)}
    assert ends == {999: None, 1000: 100, 1505: 150, 2000: 200, 8000: 200, 9999: 200, 10_000: None}
