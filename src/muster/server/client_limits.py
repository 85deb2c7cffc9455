"""What clients share, and how it is divided: memory, and the time of the event loop.

Requests. A connection may hold `RESERVE_BYTES`, so that small requests always get through. What it holds beyond that is
borrowed from one pool for all (`Intake`). While the pool is empty nothing more is read from a connection that would
borrow (it is "muted", as in Kafka): its bytes stay in the client's socket, and no client is dropped for coming late.

Clients that begin large requests and do not finish them could keep the pool for ever, and so could clients that send
much behind a request of theirs that waits (a join, a fetch). So when a connection has been muted for `GIVE_WAY_S`,
holders are dropped until an eighth of the pool is free: those that could have finished for at least as long, first
those that are read from and send nothing more, and the largest first. A request that is not whole after
`muster.request.timeout.ms` ends its connection in any case. No time counts in which a connection was muted.

Answers. A client that does not read is not read from, so it holds the answers to what it asked before, and no more
(`Unread`). If all clients together hold too much, the ones that have not read for longest are dropped.

Time. Of the clients that have sent more than can be handled at once, one goes on in each turn of the loop, the one that
has waited longest, for a few milliseconds (`FairTurns`). So a client with one request waits for one of them at a time,
however many there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

RESERVE_BYTES = 64 << 10
GIVE_WAY_S = 5.0
READ_BYTES = 256 << 10
"""The most that the event loop hands over at a time: a connection may pass the limit by so much."""
PART_TO_FREE = 8
TURN_S = 0.002


class Holder(Protocol):
    """A connection, as far as it holds memory."""

    unfinished_since: float | None
    """When the first bytes came of a request that is not whole yet, by the loop's clock; None if there is none."""

    def unmute(self) -> None: ...

    def drop(self, problem: str) -> None: ...


class Intake:
    """The pool for requests. All methods are called in the thread of the event loop."""

    def __init__(self, limit_bytes: int, timeout_ms: int, time_s: Callable[[], float]) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_ms / 1000
        self._time_s = time_s
        self.borrowed_bytes = 0
        self._borrowers: dict[Holder, tuple[int, float]] = {}
        """How much, and since when it might have been given back."""
        self._muted: dict[Holder, float] = {}
        """Since when, in that order."""

    @property
    def muted(self) -> int:
        return len(self._muted)

    def borrow(self, connection: Holder, held_bytes: int) -> bool:
        """A connection holds so many bytes now; False if nothing more may be read from it until `unmute`."""
        borrowed = max(held_bytes - RESERVE_BYTES, 0)
        before, since = self._borrowers.get(connection) or (0, self._time_s())
        self.borrowed_bytes += borrowed - before
        self._borrowers[connection] = borrowed, since
        if self.borrowed_bytes <= self._limit_bytes:
            return True
        self._muted.setdefault(connection, self._time_s())
        return False

    def give_back(self, connection: Holder) -> None:
        """A connection holds nothing any more."""
        self._muted.pop(connection, None)
        borrowed, _ = self._borrowers.pop(connection, (0, 0.0))
        self.borrowed_bytes -= borrowed
        self._unmute_some()

    def _unmute_some(self) -> None:
        """As many as there is room for, the one that has waited longest first."""
        room = self._limit_bytes - self.borrowed_bytes
        while self._muted and room > 0:
            connection = next(iter(self._muted))
            del self._muted[connection]
            self._start_anew(connection)
            connection.unmute()
            room -= READ_BYTES

    def _start_anew(self, connection: Holder) -> None:
        """A connection that was not read from could not finish its request: it has all the time there is again."""
        now = self._time_s()
        self._borrowers[connection] = self._borrowers[connection][0], now
        if connection.unfinished_since is not None:
            connection.unfinished_since = now

    def look(self, connections: Iterable[Holder]) -> None:
        """Called every second: drop requests that do not come to an end, and make room for those that wait."""
        now = self._time_s()
        for connection in connections:
            since = connection.unfinished_since
            if since is not None and now - since > self._timeout_s and connection not in self._muted:
                connection.drop(f"its request was not whole after {self._timeout_s:g} s (muster.request.timeout.ms)")
        self._unmute_some()
        longest_since = next(iter(self._muted.values()), now)
        if now - longest_since >= GIVE_WAY_S:
            self._make_room(now)

    def _make_room(self, now: float) -> None:
        enough_bytes = self._limit_bytes - self._limit_bytes // PART_TO_FREE
        waiting = self.muted
        for connection, (borrowed, since) in sorted(
            self._borrowers.items(), key=lambda holder: (holder[0] in self._muted, -holder[1][0])
        ):
            if self.borrowed_bytes <= enough_bytes:
                break
            if now - since >= GIVE_WAY_S:
                is_whole = connection.unfinished_since is None
                what = "requests behind one that waits" if is_whole else "a request that was not whole"
                connection.drop(
                    f"it held {borrowed + RESERVE_BYTES} bytes of {what}, and {waiting} waited for room "
                    f"(queued.max.request.bytes)"
                )


class Unread:
    """Answers in memory that clients have not read, of those connections that hold more than a little."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._total_bytes = 0
        self._full: dict[Holder, int] = {}
        """In the order in which they became full."""

    def full(self, connection: Holder, unsent_bytes: int) -> None:
        self.drained(connection)
        self._full[connection] = unsent_bytes
        self._total_bytes += unsent_bytes
        while self._total_bytes > self._limit_bytes:
            oldest = next(iter(self._full))
            self.drained(oldest)
            oldest.drop("it has not read its answers, and all clients together hold muster.max.unsent.bytes of them")

    def drained(self, connection: Holder) -> None:
        self._total_bytes -= self._full.pop(connection, 0)


class FairTurns:
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
