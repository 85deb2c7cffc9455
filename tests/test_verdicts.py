"""Windows made by hand, and the verdict that the rules of Burrow give each of them."""

import pytest

from muster.verdicts import (
    Commit,
    Evaluation,
    Rules,
    Verdict,
    evaluate,
    is_losing,
    lag_at_arrival,
    of_group,
    with_commit,
)

START_MS = 1_700_000_000_000
STEP_MS = 10_000
ROOM_MS = 1_000


def window(*offsets_and_lags: tuple[int, int | None]) -> tuple[Commit, ...]:
    """Commits ten seconds apart."""
    return tuple(
        Commit(offset, START_MS + place * STEP_MS, lag) for place, (offset, lag) in enumerate(offsets_and_lags)
    )


def judged(commits: tuple[Commit, ...], ends: list[int], later_ms: int = ROOM_MS) -> Verdict | None:
    found = evaluate(commits, ends, commits[-1].at_ms + later_ms)
    return None if found is None else found.verdict


GOES_ON = window((100, 50), (150, 60), (200, 55), (260, 70))
SAME = window((100, 10), (100, 20), (100, 30), (100, 40))
BACK = window((100, 10), (200, 10), (50, 160), (60, 170))


@pytest.mark.parametrize(
    ("commits", "ends", "later_ms", "verdict"),
    [
        # 1: no lag now, whatever else there is
        (SAME, [90, 100], ROOM_MS, Verdict.OK),
        (BACK, [60], 10**8, Verdict.OK),
        (window((100, 0)), [90], ROOM_MS, Verdict.OK),  # committed beyond the end
        # 2: silent for longer than the window spans
        (GOES_ON, [300, 330], 30_001, Verdict.STOPPED),
        (GOES_ON, [300, 330], 30_000, Verdict.OK),  # exactly as long is not longer
        (GOES_ON, [260, 330], 30_001, Verdict.OK),  # it had reached an end that was seen
        (GOES_ON, [261, 330], 30_001, Verdict.STOPPED),
        (BACK, [300], 30_001, Verdict.STOPPED),  # before 3
        (window((100, None)), [200], 1, Verdict.STOPPED),  # a window of one spans nothing
        # 3: back, and not made up for
        (BACK, [300], ROOM_MS, Verdict.REWIND),
        (window((100, 10), (200, 10), (50, 160), (199, 170)), [300], ROOM_MS, Verdict.REWIND),
        (window((100, 10), (200, 10), (50, 160), (200, 170)), [300], ROOM_MS, Verdict.WARN),  # made up for
        (window((100, 0), (200, 10), (50, 160)), [300], ROOM_MS, Verdict.REWIND),  # before 4
        # only the first step back counts
        (window((100, 10), (50, 60), (100, 70), (40, 80)), [300], ROOM_MS, Verdict.WARN),
        # 4: there was no lag at some commit
        (window((100, 10), (100, 0), (100, 30)), [300], ROOM_MS, Verdict.OK),
        (window((100, 0), (150, 5), (160, 9)), [300], ROOM_MS, Verdict.OK),
        # 5: commits of the same offset
        (SAME, [300], ROOM_MS, Verdict.STALLED),
        (window((100, None), (100, None)), [300], ROOM_MS, Verdict.STALLED),
        (window((100, 40), (100, 30), (100, 20)), [300], ROOM_MS, Verdict.STALLED),
        # 6: falling behind
        (window((100, 10), (110, 20), (120, 30)), [300], ROOM_MS, Verdict.WARN),
        (window((100, 10), (110, 10), (120, 10)), [300], ROOM_MS, Verdict.WARN),  # never less is enough
        (window((100, 30), (110, None), (120, 30)), [300], ROOM_MS, Verdict.WARN),  # unknown lags are stepped over
        (window((100, 30), (110, None), (120, 29)), [300], ROOM_MS, Verdict.OK),
        (window((100, None), (110, None)), [300], ROOM_MS, Verdict.WARN),
        # 7: it catches up now and then
        (window((100, 10), (110, 20), (150, 5)), [300], ROOM_MS, Verdict.OK),
        (GOES_ON, [300], ROOM_MS, Verdict.OK),
    ],
)
def test_the_first_rule_that_applies(
    commits: tuple[Commit, ...], ends: list[int], later_ms: int, verdict: Verdict
) -> None:
    assert judged(commits, ends, later_ms) is verdict


def steady(at_ms: int) -> int | None:
    """A log that grows by 20 records a second, and was looked at often enough."""
    return 10_000 + (at_ms - START_MS) // 50


@pytest.mark.parametrize(
    ("commits", "verdict"),
    [
        # All commits came behind one look: against that the lag shrinks, however far the group falls behind.
        (window((5000, 5000), (5100, 4900), (5150, 4850)), Verdict.WARN),
        (window((5000, 5000), (5200, 4800), (5400, 4600)), Verdict.WARN),  # never less is enough
        (window((5000, 5000), (5201, 4799), (5202, 4798)), Verdict.OK),
        # At one of them it had read all that had been there at the look before: whether more had come, nobody knows.
        (window((9990, 10), (10_000, 0), (10_005, 0)), Verdict.OK),
        (window((10_000, 0), (10_000, 0), (10_000, 0)), Verdict.OK),  # caught up, and then records came
        (window((5000, 5000), (5000, 5000)), Verdict.STALLED),
        (window((5000, 5000), (4000, 6000)), Verdict.REWIND),
    ],
)
def test_whether_a_lag_grows_is_told_by_the_end_at_the_time(commits: tuple[Commit, ...], verdict: Verdict) -> None:
    now_ms = commits[-1].at_ms + ROOM_MS
    found = evaluate(commits, [10_000, steady(now_ms) or 0], now_ms, end_at=steady)
    assert found is not None
    assert found.verdict is verdict


def test_ends_that_are_known_for_one_commit_alone_tell_nothing() -> None:
    commits = window((100, 10), (110, 20), (120, 30))
    ends = {START_MS: 1000}
    found = evaluate(commits, [300], commits[-1].at_ms + ROOM_MS, end_at=ends.get)
    assert found is not None
    assert found.verdict is Verdict.WARN
    ends[START_MS + STEP_MS] = 900  # the last one came behind the last look
    found = evaluate(commits, [300], commits[-1].at_ms + ROOM_MS, end_at=ends.get)
    assert found is not None
    assert found.verdict is Verdict.OK


def test_nothing_to_judge() -> None:
    now_ms = SAME[-1].at_ms
    assert evaluate(SAME, [], now_ms) is None
    assert evaluate((), [100], now_ms) is None
    week_ms = Rules().expire_group_ms
    assert evaluate(SAME, [200], now_ms + week_ms) is not None
    assert evaluate(SAME, [200], now_ms + week_ms + 1) is None


def test_commits_that_are_too_old_do_not_count() -> None:
    rules = Rules(expire_group_ms=15_000)
    found = evaluate(BACK, [300], BACK[-1].at_ms, rules)
    assert found == Evaluation(Verdict.WARN, 240, 0.2)  # the step back is no longer in sight


def test_an_allowed_lag() -> None:
    now_ms = SAME[-1].at_ms
    assert evaluate(SAME, [140], now_ms, Rules(allowed_lag=40)) == Evaluation(Verdict.OK, 40, 0.4)
    assert evaluate(SAME, [141], now_ms, Rules(allowed_lag=9)) == Evaluation(Verdict.STALLED, 41, 0.4)
    assert evaluate(SAME, [141], now_ms, Rules(allowed_lag=10)) == Evaluation(Verdict.OK, 41, 0.4)


def test_an_incomplete_window() -> None:
    now_ms = SAME[-1].at_ms
    assert evaluate(SAME, [200], now_ms, Rules(minimum_complete=0.41)) == Evaluation(Verdict.OK, 100, 0.4)
    assert evaluate(SAME, [200], now_ms, Rules(minimum_complete=0.4)) == Evaluation(Verdict.STALLED, 100, 0.4)


def test_a_window_keeps_the_last_commits() -> None:
    kept: tuple[Commit, ...] = ()
    for number in range(12):
        kept = with_commit(kept, Commit(number, START_MS + number, None))
    assert [commit.offset for commit in kept] == list(range(2, 12))


def test_commits_close_to_each_other_are_one() -> None:
    rules = Rules(min_distance_ms=1000)
    kept = with_commit((), Commit(5, START_MS, 1), rules)
    kept = with_commit(kept, Commit(6, START_MS + 999, 2), rules)
    assert kept == (Commit(6, START_MS, 2),)
    kept = with_commit(kept, Commit(7, START_MS + 1000, 3), rules)
    assert kept == (Commit(6, START_MS, 2), Commit(7, START_MS + 1000, 3))


def test_lag_at_arrival() -> None:
    assert lag_at_arrival(5, None) is None
    assert lag_at_arrival(5, 7) == 2
    assert lag_at_arrival(7, 5) == 0


def test_losing() -> None:
    assert not is_losing(5, None)
    assert not is_losing(5, 5)
    assert is_losing(5, 6)


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([], None),
        ([Verdict.OK], Verdict.OK),
        ([Verdict.OK, Verdict.WARN], Verdict.WARN),
        ([Verdict.OK, Verdict.WARN, Verdict.STOPPED], Verdict.ERR),
        ([Verdict.STALLED], Verdict.ERR),
        ([Verdict.REWIND], Verdict.ERR),
        ([Verdict.LOSING], Verdict.ERR),
    ],
)
def test_of_a_group(verdicts: list[Verdict], verdict: Verdict | None) -> None:
    assert of_group(verdicts) is verdict


def test_burrows_numbers() -> None:
    assert [verdict.burrow_code for verdict in Verdict] == [1, 2, 3, 4, 5, 6, 3, 2]
