"""`--follow`: the run, again and again; errors that may pass are retried after growing pauses.

Brokers restart, leaders move, disks are unmounted for a while: a run that fails like that is tried again with growing
pauses, and people hear of it twice, when it begins and when it is over. What time does not heal ends the command, as it
would without `--follow`: settings that cannot be, a source that is refused, a mistake in muster.
"""

import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from muster.cli.output import say
from muster.cli.people import counted, shown_duration, shown_moment
from muster.errors import (
    BadInput,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    ConfigError,
    NotThereYet,
    SourceMissing,
    SparkGone,
    StoreAway,
    StoreRefused,
    Unexpected,
)

if TYPE_CHECKING:
    from muster.pipeline.job import Summary

SHORTEST_INTERVAL_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
NEVER, A_FEW_TIMES, AS_LONG_AS_IT_TAKES = 0, 3, 1 << 62
HEALED_BY_HAND = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""Errors of a disk that last until an operator makes room on it, or mounts it again."""


def tries_after(error: Exception, has_run: bool) -> int:
    """How often to try again after this. Before the first whole run most of it is a mistake in the command."""
    cause = error.__cause__ or error
    if isinstance(error, Unexpected | ConfigError | SparkGone):
        return NEVER
    if isinstance(error, ClusterUnreachable | NotThereYet):
        return AS_LONG_AS_IT_TAKES
    if not has_run:
        return NEVER
    if isinstance(error, ClusterRefused | StoreRefused | PermissionError):
        return A_FEW_TIMES
    if isinstance(error, ClusterError | SourceMissing | StoreAway | FileNotFoundError):
        return AS_LONG_AS_IT_TAKES
    if isinstance(cause, OSError) and cause.errno in HEALED_BY_HAND:
        return AS_LONG_AS_IT_TAKES
    return NEVER if isinstance(error, BadInput) else A_FEW_TIMES


def follow(
    run_once: Callable[[], "Summary"],
    show: Callable[["Summary"], None],
    interval_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Run, show what came of it, wait for the rest of the interval, and so on; until an error that stays."""
    has_run, tries, in_vain, away_since = False, 0, 0, 0.0
    while True:
        began = clock()
        try:
            summary = run_once()
        except Exception as error:
            most = tries_after(error, has_run)
            # Only failures of a kind that few tries must heal: a broker that is just back may refuse for a moment.
            in_vain = 0 if most == AS_LONG_AS_IT_TAKES else in_vain + 1
            if in_vain > most:
                raise
            if not tries:
                away_since = began
                often = "until it works; Ctrl-C stops" if most > A_FEW_TIMES else f"{most} times"
                tell(f"{_sentence(error)} Trying again {often}.")
            sleep(min(FIRST_PAUSE_S * 2 ** min(tries, 10), LONGEST_PAUSE_S))
            tries += 1
            continue
        if tries:
            tell(f"back after {shown_duration(round(1000 * (clock() - away_since)))}.")
        has_run, tries, in_vain = True, 0, 0
        show(summary)
        sleep(max(0.0, interval_s - (clock() - began)))


def tell(text: str) -> None:
    say(f"{shown_moment(time.time_ns() // 1_000_000)}: {text}")


def _sentence(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        text = f"{error.filename or 'a file'}: {error.strerror}"
    return text if text.endswith((".", "?", "!")) else f"{text}."


class Rounds:
    """What people see of the rounds: the first at length, then a line for each that brought something."""

    def __init__(self, show_first: Callable[["Summary"], None]) -> None:
        self._show_first = show_first
        self._said: list[str] | None = None

    def show(self, summary: "Summary") -> None:
        if self._said is None:
            self._show_first(summary)
        else:
            if summary.records:
                tell(_line(summary))
            if summary.dropped_rows:
                tell(f"{sum(summary.dropped_rows.values()):,} rows of history were dropped, being too old.")
            for note in summary.notes:
                if note not in self._said:
                    tell(note)
        self._said = summary.notes


def _line(summary: "Summary") -> str:
    rebalances = summary.new_rows.get("rebalances", 0)
    more = f", {counted(rebalances, 'rebalance')}" if rebalances else ""
    return f"{counted(summary.records, 'new record')}{more}, in {summary.seconds:.1f} s."
