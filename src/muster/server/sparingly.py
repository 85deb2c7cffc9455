"""Log lines that clients can cause: a flood of bad requests must not become a flood of lines."""

from collections.abc import Callable
from typing import Any

from muster.server.journal import Journal

WINDOW_S = 60.0
LINES_IN_A_WINDOW = 100


class Sparingly:
    """Lines of one kind (`event`): the first of every minute are written, the rest are counted and told together."""

    def __init__(self, journal: Journal, event: str, time_s: Callable[[], float]) -> None:
        self._journal = journal
        self._event = event
        self._time_s = time_s
        self._since_s = float("-inf")
        self._lines = self._untold = 0
        self._last = ""

    def say(self, text: str, **fields: Any) -> None:
        self.look()
        if not self._lines:
            self._since_s = self._time_s()
        self._lines += 1
        if self._lines <= LINES_IN_A_WINDOW:
            self._journal.say(text, event=self._event, **fields)
        else:
            self._untold += 1
            self._last = text

    def look(self) -> None:
        """Called every second: tell what was not told, once its minute is over."""
        if self._lines and self._time_s() - self._since_s >= WINDOW_S:
            if self._untold:
                self._journal.say(
                    f"{self._untold} more like this in {WINDOW_S:.0f} s, the last: {self._last}",
                    event=self._event,
                    untold=self._untold,
                )
            self._lines = self._untold = 0
            self._last = ""
