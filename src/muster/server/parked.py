"""Fetches that wait for records, until their time is up or something happens to one of their topics."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.server.connection import Connection, Slot

if TYPE_CHECKING:
    from muster.server.cluster.fetch import FetchAnswer, ParkedFetch
    from muster.server.timers import Timers


class ParkedFetches:
    """At most `limit` at a time; one more is answered at once. `timers` fire with the slots that were set."""

    def __init__(self, timers: "Timers", complete: Callable[["ParkedFetch"], "FetchAnswer"], limit: int) -> None:
        self._timers = timers
        self._complete = complete
        self._limit = limit
        self._waiting: dict[Slot, ParkedFetch] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, parked: "ParkedFetch", slot: Slot) -> None:
        if len(self._waiting) >= self._limit:
            slot.answer(self._complete(parked))
            return
        self._waiting[slot] = parked
        self._timers.set(slot, parked.deadline_ms)

    def due(self, slot: Slot) -> None:
        """Time is up: answer with what there is."""
        parked = self._waiting.pop(slot, None)
        if parked is not None:
            slot.answer(self._complete(parked))

    def topic_changed(self, name: str) -> None:
        for slot in [slot for slot, parked in self._waiting.items() if name in parked.topics]:
            self._timers.cancel(slot)
            self.due(slot)

    def forget(self, connection: Connection) -> None:
        """The client is gone."""
        for slot in [slot for slot in self._waiting if slot.connection is connection]:
            self._timers.cancel(slot)
            del self._waiting[slot]

    def finish(self) -> None:
        """Answer everybody now."""
        for slot in list(self._waiting):
            self._timers.cancel(slot)
            self.due(slot)
