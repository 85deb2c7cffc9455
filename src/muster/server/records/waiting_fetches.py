"""Fetches that wait for records, and how they are found when there are some."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from muster.server.cluster.topics import TopicChange
from muster.server.connection import Connection, PendingReply
from muster.server.long_requests import MANY_PARTITIONS
from muster.server.records.fetch import FetchAnswer, Key, ParkedFetch
from muster.server.timers import Timers

AsSent = Callable[[FetchAnswer], FetchAnswer]
"""Of an answer, what a client gets of it."""


class WaitingFetches:
    """Fetches that wait for records, until there are enough, their time is up, or something happens to their topics.

    At most `max_requests` of `max_partitions` in all wait at a time; one more is answered at once. A connection has one
    at most: the requests behind it wait for it.
    """

    def __init__(
        self,
        make_timers: Callable[[Callable[[Any], None]], Timers],
        count: Callable[[ParkedFetch, Key], None],
        complete: Callable[[ParkedFetch], FetchAnswer],
        complete_later: Callable[[ParkedFetch, PendingReply, AsSent], None],
        soon: Callable[[Callable[[], None]], object],
        max_requests: int,
        max_partitions: int,
    ) -> None:
        self._soon = soon
        self._grown: set[Key] = set()
        self._timers = make_timers(self.due)
        self._count = count
        self._complete = complete
        self._complete_later = complete_later
        self._max_requests = max_requests
        self._max_partitions = max_partitions
        self._waiting: dict[PendingReply, tuple[ParkedFetch, AsSent]] = {}
        self._by_connection: dict[Connection, PendingReply] = {}
        self._by_partition: dict[Key, dict[PendingReply, None]] = {}
        self._partitions = 0
        self._watched: list[set[Key]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def watched(self) -> Iterator[set[Key]]:
        """Partitions that something happens to meanwhile; for one who looks at very many, and parks a fetch then."""
        changed: set[Key] = set()
        self._watched.append(changed)
        try:
            yield changed
        finally:
            self._watched = [each for each in self._watched if each is not changed]

    def park(self, parked: ParkedFetch, reply: PendingReply, as_sent: AsSent, changed: Iterable[Key] = ()) -> None:
        """`as_sent` makes of the answer what this client gets of it; `changed` is to be looked at again."""
        is_full = len(self._waiting) >= self._max_requests
        if is_full or self._partitions + parked.partitions > self._max_partitions:
            self._answer(reply, parked, as_sent)
            return
        self._waiting[reply] = parked, as_sent
        self._by_connection[reply.connection] = reply
        for key in parked.found:
            self._by_partition.setdefault(key, {})[reply] = None
        self._partitions += parked.partitions
        self._timers.set(reply, parked.deadline_ms)
        for key in changed:
            if key in parked.found:
                self.grown(*key)

    def due(self, reply: PendingReply) -> None:
        """Time is up: answer with what there is."""
        taken_out = self._taken_out(reply)
        if taken_out is not None:
            self._answer(reply, *taken_out)

    def _answer(self, reply: PendingReply, parked: ParkedFetch, as_sent: AsSent) -> None:
        if parked.partitions > MANY_PARTITIONS:
            self._complete_later(parked, reply, as_sent)
            return
        try:
            answer = as_sent(self._complete(parked))
        except Exception as error:
            reply.fail(error)
        else:
            reply.answer(answer)

    def _taken_out(self, reply: PendingReply) -> tuple[ParkedFetch, AsSent] | None:
        waiting = self._waiting.pop(reply, None)
        if waiting is None:
            return None
        parked = waiting[0]
        self._partitions -= parked.partitions
        self._by_connection.pop(reply.connection, None)
        for key in parked.found:
            of_partition = self._by_partition[key]
            del of_partition[reply]
            if not of_partition:
                del self._by_partition[key]
        return waiting

    def grown(self, topic: str, partition: int) -> None:
        """There may be more to read in a partition: in this turn it is counted, once for each that waits for it."""
        for changed in self._watched:
            changed.add((topic, partition))
        if (topic, partition) in self._by_partition:
            if not self._grown:
                self._soon(self._look_at_grown)
            self._grown.add((topic, partition))

    def _look_at_grown(self) -> None:
        """Answer those that have enough now."""
        grown, self._grown = self._grown, set()
        grown_of: dict[PendingReply, list[Key]] = {}
        for key in grown:
            for reply in self._by_partition.get(key, ()):
                grown_of.setdefault(reply, []).append(key)
        for reply, keys in grown_of.items():
            if reply not in self._waiting:
                continue
            parked, as_sent = self._waiting[reply]
            try:
                for key in keys:
                    self._count(parked, key)
            except Exception as error:
                self._taken_out(reply)
                reply.fail(error)
                continue
            if parked.has_enough:
                self._timers.cancel(reply)
                self._taken_out(reply)
                self._answer(reply, parked, as_sent)

    def topic_changed(self, change: TopicChange) -> None:
        for partition in range(change.topic.partitions):
            for changed in self._watched:
                changed.add((change.topic.name, partition))
            for reply in list(self._by_partition.get((change.topic.name, partition), ())):
                self._timers.cancel(reply)
                self.due(reply)

    def forget(self, connection: Connection) -> None:
        """The client is gone."""
        reply = self._by_connection.get(connection)
        if reply is not None:
            self._timers.cancel(reply)
            self._taken_out(reply)

    def finish(self) -> None:
        """Answer all of them now."""
        for reply in list(self._waiting):
            self._timers.cancel(reply)
            self.due(reply)
