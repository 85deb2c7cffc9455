"""The steps at the end of a transaction, by name: a test orders a crash at one of them.

before-prepare   EndTxn has come, or a timeout is due; nothing is written
prepared         Prepare* is safe; there is no marker yet
first-marker     one marker is safe; the others are not even appended
markers          all markers are safe; Complete* is not appended
completed        Complete* is safe
"""

from collections.abc import Callable
from enum import StrEnum


class Step(StrEnum):
    BEFORE_PREPARE = "before-prepare"
    PREPARED = "prepared"
    FIRST_MARKER = "first-marker"
    MARKERS = "markers"
    COMPLETED = "completed"


class Steps:
    """Where a crash is ordered, if anywhere."""

    def __init__(self) -> None:
        self._ordered: tuple[Step, Callable[[], None]] | None = None

    def order(self, step: Step, crash: Callable[[], None]) -> None:
        self._ordered = step, crash

    def cancel(self) -> None:
        self._ordered = None

    def is_ordered(self, step: Step) -> bool:
        return self._ordered is not None and self._ordered[0] is step

    def reached(self, step: Step) -> None:
        """Called at every step; does not return where a process is to die."""
        if self._ordered is not None and self._ordered[0] is step:
            _, crash = self._ordered
            self._ordered = None
            crash()
