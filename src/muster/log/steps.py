"""Generators that run in the thread of a log and wait in another; and `GrowingPause`.

A log's thread must not wait for the disk, and no other thread may change the log. A change that needs syncs between its
parts is therefore a generator. Each part runs in the owner's thread and yields a call that is made, and waited for, in
another thread.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

Steps = Generator[Callable[[], None], None, None]
"""An `OSError` of what was yielded is raised in the generator, where it waits."""

InOwnersThread = Callable[[Callable[[], Any]], Any]
"""Calls something in the owner's thread, and returns what it returns, or raises what it raises."""


def carry_out(steps: Steps, in_owners_thread: InOwnersThread = lambda call: call()) -> None:
    """Take all steps, and wait between them in this thread. Raises what the steps raise."""
    error: OSError | None = None
    while (wait := in_owners_thread(partial(advance, steps, error))) is not None:
        error = None
        try:
            wait()
        except OSError as problem:
            error = problem


def advance(steps: Steps, error: OSError | None) -> Callable[[], None] | None:
    """One step, behind a wait that may have ended with an error; what to wait for next, None behind the last step."""
    try:
        return next(steps) if error is None else steps.throw(error)
    except StopIteration:
        return None


class GrowingPause:
    """Pauses in seconds, each twice as long as the one before it, up to the longest."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        pause_s = min(self._next_s, self._longest_s)
        self._next_s = 2 * pause_s
        return pause_s
