"""Fetches that wait for records, until their time is up or something happens to one of their topics."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.server.connection import Connection, Slot

if TYPE_CHECKING:
    from muster.server.cluster.fetch import FetchAnswer, ParkedFetch
    from muster.server.timers import Timers


class ParkedFetches:
    """At most `max_requests` of `max_partitions` in all at a time; one more is answered at once.

    `timers` fire with the slots that were set. A connection has one at most: what follows it there waits for it.
    """

    def __init__(
        self,
        timers: "Timers",
        complete: Callable[["ParkedFetch"], "FetchAnswer"],
        max_requests: int,
        max_partitions: int,
    ) -> None:
        self._timers = timers
        self._complete = complete
        self._max_requests = max_requests
        self._max_partitions = max_partitions
        self._waiting: dict[Slot, ParkedFetch] = {}
        self._by_connection: dict[Connection, Slot] = {}
        self._by_topic: dict[str, dict[Slot, None]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, parked: "ParkedFetch", slot: Slot) -> None:
        is_full = len(self._waiting) >= self._max_requests
        if is_full or self._partitions + parked.partitions > self._max_partitions:
            self._answer(slot, parked)
            return
        self._waiting[slot] = parked
        self._by_connection[slot.connection] = slot
        for topic in parked.topics:
            self._by_topic.setdefault(topic, {})[slot] = None
        self._partitions += parked.partitions
        self._timers.set(slot, parked.deadline_ms)

    def due(self, slot: Slot) -> None:
        """Time is up: answer with what there is."""
        parked = self._taken_out(slot)
        if parked is not None:
            self._answer(slot, parked)

    def _answer(self, slot: Slot, parked: "ParkedFetch") -> None:
        try:
            answer = self._complete(parked)
        except Exception as error:
            slot.connection.cannot_answer(slot, error)
        else:
            slot.answer(answer)

    def _taken_out(self, slot: Slot) -> "ParkedFetch | None":
        parked = self._waiting.pop(slot, None)
        if parked is None:
            return None
        self._partitions -= parked.partitions
        self._by_connection.pop(slot.connection, None)
        for topic in parked.topics:
            of_topic = self._by_topic[topic]
            del of_topic[slot]
            if not of_topic:
                del self._by_topic[topic]
        return parked

    def topic_changed(self, name: str) -> None:
        for slot in list(self._by_topic.get(name, ())):
            self._timers.cancel(slot)
            self.due(slot)

    def forget(self, connection: Connection) -> None:
        """The client is gone."""
        slot = self._by_connection.get(connection)
        if slot is not None:
            self._timers.cancel(slot)
            self._taken_out(slot)

    def finish(self) -> None:
        """Answer everybody now."""
        for slot in list(self._waiting):
            self._timers.cancel(slot)
            self.due(slot)
