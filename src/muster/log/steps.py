"""Work that belongs to one thread, with waits in between that belong in another.

A log's thread must not wait for the disk, and nobody else may change the log. So a change that needs syncs between its
parts is a generator: each part runs in the owner's thread, and yields what is to be done, and waited for, elsewhere.
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
