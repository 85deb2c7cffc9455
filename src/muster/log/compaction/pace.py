"""How fast compaction may go, and when it has to stop: every byte read or written is paid for here."""

import threading
import time
from collections.abc import Callable

from muster.errors import MusterError

LONGEST_BURST_S = 0.3
"""Time that was not used is good for this much later, and no more."""


class CleaningCancelled(MusterError):
    """A round was told to stop. The log is as it was before, or as after some of its segments."""


class Pace:
    """At most so many bytes a second (`log.cleaner.io.max.bytes.per.second`), until cancelled from any thread."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._cancelled = threading.Event()
        self._wait = wait or self._cancelled.wait
        self._paid_until = clock()

    def cancel(self) -> None:
        """The round stops at its next step, however long it would have waited for it."""
        self._cancelled.set()

    def spend(self, size_bytes: int) -> None:
        """Wait until so many bytes are within the rate; raises `CleaningCancelled`."""
        self.check()
        if self._bytes_per_second is None:
            return
        now = self._clock()
        self._paid_until = max(self._paid_until, now - LONGEST_BURST_S) + size_bytes / self._bytes_per_second
        if self._paid_until > now:
            self._wait(self._paid_until - now)
            self.check()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise CleaningCancelled("compaction was told to stop")
