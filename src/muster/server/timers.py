"""The time, and keyed timers, cheap by the hundred thousand.

`Clock` is the only place where the server reads the time: the system's, and an offset that only a test turns. Every
server has one, and everything that decides by time asks it. It knows its timers, so that a test can go from one
deadline to the next (`kit/time_travel.py`).

One heap for all, and at most one alarm of the event loop, for the earliest. Setting a timer again or cancelling it only
changes a dict; an outdated entry of the heap is skipped when it comes up, and all are swept out when they are more than
half.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from muster.core.events import Instant

SWEEP_FROM = 1_000


class Clock:
    def __init__(self) -> None:
        self.offset_ms = 0
        self.timers: list[Timers] = []
        self.timers_of_clients: list[Timers] = []
        """Those of requests that wait; a client sets the next one as soon as the last has fired."""

    def now(self) -> Instant:
        offset_ms = self.offset_ms
        return Instant(time.monotonic_ns() // 1_000_000 + offset_ms, time.time_ns() // 1_000_000 + offset_ms)

    def make_timers(
        self, loop: asyncio.AbstractEventLoop, fire: Callable[[Any], None], *, of_clients: bool = False
    ) -> "Timers":
        """Timers of an event loop, by this clock."""
        made = Timers(lambda: self.now().monotonic_ms, lambda ms, call: loop.call_later(ms / 1000, call), fire)
        (self.timers_of_clients if of_clients else self.timers).append(made)
        return made


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Timers:
    """`arm(delay_ms, call)` is the event loop's; `fire` hears of every key whose time has come.

    If `fire` raises, the event loop tells of it, and the other timers that are due fire all the same.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        arm: Callable[[int, Callable[[], None]], Alarm],
        fire: Callable[[Hashable], None],
    ) -> None:
        self._now_ms = now_ms
        self._arm = arm
        self._fire = fire
        self._deadlines: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._number = 0  # keys need not be comparable
        self._alarm: Alarm | None = None
        self._alarm_ms = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Fire once at this time; the same key again replaces it."""
        self._deadlines[key] = deadline_ms
        self._number += 1
        heapq.heappush(self._heap, (deadline_ms, self._number, key))
        if len(self._heap) > SWEEP_FROM and len(self._heap) > 2 * len(self._deadlines):
            self._sweep()
        if self._alarm is None or deadline_ms < self._alarm_ms:
            self._arm_alarm()

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    def deadlines(self) -> dict[Any, int]:
        """All that is set. Not to be changed."""
        return self._deadlines

    def ring(self) -> None:
        """The clock was turned: fire what is due, and wake at the right time for the rest."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._ring()

    def take_all(self) -> list[Any]:
        """Every key that is set, in the order of their times; none fires any more."""
        keys = sorted(self._deadlines, key=self._deadlines.__getitem__)
        self.close()
        return keys

    def close(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def _arm_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap:
            self._alarm_ms = self._heap[0][0]
            self._alarm = self._arm(max(self._alarm_ms - self._now_ms(), 0), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now_ms = self._now_ms()
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heapq.heappop(self._heap)
            if self._deadlines.get(entry[2]) == entry[0]:
                due.append(entry)
        due.reverse()
        try:
            while due:
                deadline_ms, _, key = due.pop()
                if self._deadlines.get(key) == deadline_ms:
                    del self._deadlines[key]
                    self._fire(key)  # one that is set again meanwhile waits for the next ring, however early it is
        finally:  # if one of them raised, the others are rung for at once
            for entry in due:
                heapq.heappush(self._heap, entry)
            if due or self._alarm is None:
                self._arm_alarm()
