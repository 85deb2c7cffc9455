"""Whose turn it is among clients that have sent more than can be handled at once.

One of them goes on in each turn of the loop, the one that has waited longest, for a few milliseconds. So whoever asks
for one thing now and then waits for one of them at a time, however many there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable

TURN_S = 0.002


class Turns:
    """Clients that wait for their turn to go on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting[0]  # stays until it has had its turn, so that nobody else calls for the next one
        try:
            go_on()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)
