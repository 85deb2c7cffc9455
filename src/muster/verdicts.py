"""How well a group does, judged by its last commits: the evaluation that Burrow made the field's habit. No I/O.

Of each partition of a group two things are remembered: the *window*, its last commits in the order of the topic, and
the ends that the log was seen to have. A lag by itself says little: a busy group always has one. What tells is how it
moves. The first rule that applies gives the verdict:

    1  OK        the lag is allowed now
    2  STOPPED   nothing was committed for longer than the window spans, and no end that was seen was reached
    3  REWIND    an offset went back, and no later one made up for it
    4  OK        the lag was allowed at some commit of the window
    5  STALLED   commits go on, with the same offset
    6  WARN      the lag never shrank from one commit to the next
    7  OK

A commit whose lag is None counts where offsets are looked at, and not where lags are: it was made before the end of the
log was first looked at. The lag of a commit is against the last end that was seen before it, so it is not too high: who
had none is well (4). Of several commits behind one look that lag can only shrink, however far the group falls behind.
Rule 6 takes the end at the time of the commit instead, on the line between the looks before and after it (`end_at`):
of those commits for which that is known, if there are two. LOSING stands above all of these: what is to be read next is
no longer in the log. EXPIRING stands above WARN and OK: the broker will delete the offset soon if nothing more happens.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class Verdict(StrEnum):
    OK = "OK"
    WARN = "WARN"
    ERR = "ERR"
    """Of a group only: one of its partitions is worse than WARN."""
    STOPPED = "STOPPED"
    STALLED = "STALLED"
    REWIND = "REWIND"
    LOSING = "LOSING"
    EXPIRING = "EXPIRING"

    @property
    def burrow_code(self) -> int:
        """Burrow's number; it has none for LOSING, which is an error to it, and for EXPIRING, which is a warning."""
        return _BURROW_CODES[self]

    @property
    def is_error(self) -> bool:
        return self not in (Verdict.OK, Verdict.WARN, Verdict.EXPIRING)


_BURROW_CODES = {
    Verdict.OK: 1,
    Verdict.WARN: 2,
    Verdict.ERR: 3,
    Verdict.STOPPED: 4,
    Verdict.STALLED: 5,
    Verdict.REWIND: 6,
    Verdict.LOSING: 3,
    Verdict.EXPIRING: 2,
}


class Rules(NamedTuple):
    """Burrow's settings, with its defaults."""

    intervals: int = 10
    """Commits in a window, and ends that are remembered."""
    min_distance_ms: int = 0
    """A commit closer than this to the one before it takes its place."""
    expire_group_ms: int = 7 * 24 * 3_600_000
    allowed_lag: int = 0
    minimum_complete: float = 0.0
    """A window with fewer of its slots filled is OK without a look."""


DEFAULT_RULES = Rules()


class Commit(NamedTuple):
    offset: int
    at_ms: int
    lag: int | None
    """As of its arrival."""


class Evaluation(NamedTuple):
    verdict: Verdict
    lag: int
    completeness: float


def lag_at_arrival(offset: int, last_end: int | None) -> int | None:
    return None if last_end is None else max(0, last_end - offset)


def with_commit(window: Sequence[Commit], commit: Commit, rules: Rules = DEFAULT_RULES) -> tuple[Commit, ...]:
    """The window with one more commit; the oldest makes room for it."""
    if window and commit.at_ms - window[-1].at_ms < rules.min_distance_ms:
        return (*window[:-1], commit._replace(at_ms=window[-1].at_ms))
    return (*window, commit)[-rules.intervals :]


EndAt = Callable[[int], int | None]


def not_known(at_ms: int) -> int | None:
    return None


def evaluate(
    window: Sequence[Commit],
    ends: Sequence[int],
    now_ms: int,
    rules: Rules = DEFAULT_RULES,
    end_at: EndAt = not_known,
) -> Evaluation | None:
    """The verdict on one partition; None where there is nothing to judge: no end known, or no commit still young.

    `ends` are those that the log was seen to have, the newest last; `end_at` tells where it ended at a moment.
    """
    young = [commit for commit in window if now_ms - commit.at_ms <= rules.expire_group_ms]
    if not young or not ends:
        return None
    lag = max(0, ends[-1] - young[-1].offset)
    completeness = len(young) / rules.intervals
    if completeness < rules.minimum_complete:
        return Evaluation(Verdict.OK, lag, completeness)
    if lag <= rules.allowed_lag:
        return Evaluation(Verdict.OK, lag, completeness)
    if _has_stopped(young, ends, now_ms):
        return Evaluation(Verdict.STOPPED, lag, completeness)
    return Evaluation(_judged(young, rules.allowed_lag, end_at), lag, completeness)


def _judged(window: Sequence[Commit], allowed_lag: int, end_at: EndAt) -> Verdict:
    """Of one that is behind, and has not stopped."""
    if _went_back(window):
        return Verdict.REWIND
    if any(commit.lag <= allowed_lag for commit in window if commit.lag is not None):
        return Verdict.OK
    if all(commit.offset == window[0].offset for commit in window):
        return Verdict.STALLED
    return Verdict.WARN if _never_shrinks(window, end_at) else Verdict.OK


def _never_shrinks(window: Sequence[Commit], end_at: EndAt) -> bool:
    drawn = [max(0, end - commit.offset) for commit in window if (end := end_at(commit.at_ms)) is not None]
    lags = drawn if len(drawn) > 1 else [commit.lag for commit in window if commit.lag is not None]
    return all(before <= after for before, after in pairwise(lags))


def _has_stopped(window: Sequence[Commit], ends: Sequence[int], now_ms: int) -> bool:
    first, last = window[0], window[-1]
    is_silent = now_ms - last.at_ms > last.at_ms - first.at_ms
    return is_silent and all(end > last.offset for end in ends)


def _went_back(window: Sequence[Commit]) -> bool:
    """Only the first step back is looked at."""
    for place, (before, after) in enumerate(pairwise(window), start=1):
        if after.offset < before.offset:
            return all(later.offset < before.offset for later in window[place:])
    return False


def is_losing(committed_offset: int, log_start_offset: int | None) -> bool:
    """Whether records that were not read yet are gone."""
    return log_start_offset is not None and committed_offset < log_start_offset


def of_group(verdicts: Iterable[Verdict]) -> Verdict | None:
    """OK, WARN or ERR for all partitions together; None if there are none."""
    found = set(verdicts)
    if not found:
        return None
    if any(verdict.is_error for verdict in found):
        return Verdict.ERR
    return Verdict.WARN if found & {Verdict.WARN, Verdict.EXPIRING} else Verdict.OK
