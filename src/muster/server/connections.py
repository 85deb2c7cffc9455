"""All connections of a server, and what they share: places, memory, and the time of the event loop.

Places. `Connections` keeps to `max.connections`, `max.connections.per.ip` and the files that this process may open.

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

Time. Of the clients that have sent more than can be handled at once, those that have had the least time go on in each
turn of the loop, for a few milliseconds in all (`FairTurns`). So a client with one request waits for one of them at a
time, however many there are. The same holds for requests that take long one by one: when a turn of the loop has lasted
`LONG_TURN_S`, requests wait for a later one, but for small ones of group members. Requests of very many elements are
done beside the others (`long_requests.py`).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from time import monotonic
from typing import Any, Protocol

from muster.config.broker import BrokerConfig
from muster.server import process
from muster.server.server_log import FaultLog, RateLimitedLog, ServerLog, Stats

DEFAULT_QUEUED_BYTES = 512 << 20
"""`queued.max.request.bytes`, where it is not set."""
REFUSALS_TOLD_EVERY_S = 10.0
RESERVE_BYTES = 64 << 10
GIVE_WAY_S = 5.0
READ_BYTES = 256 << 10
"""The most that the event loop hands over at a time: a connection may pass the limit by so much."""
PART_TO_FREE = 8
TURN_S = 0.002
LONG_TURN_S = 0.020
SLOW_READER_S = 30.0
LEFT_AFTER_S = 5.0
"""A connection that has been silent for so long may have been closed by the client behind a request that waits."""

Handle = Callable[[Any, bytes, int, int], Any]
"""Of a connection: data, and where a request begins and ends in it. `Dispatch.handle` says what comes back."""


class NotNow(Exception):
    """There is no room for what a request brings: it stays with its connection until `wait` calls back."""

    def __init__(self, wait: Callable[[Callable[[], None]], None]) -> None:
        super().__init__("there is no room for the request")
        self.wait = wait


class Client(Protocol):
    """A `Connection`, as the others see it. Times are the loop's."""

    peer: str
    client_host: str
    last_heard: float
    full_since: float | None
    """Since when the client has not read what we wrote; None while it does."""
    unfinished_since: float | None
    """When the first bytes came of a request that is not whole yet; None if there is none."""
    had_s: float
    had_in: int
    """How long its requests were handled, and in which time of waiting: see `FairTurns`."""

    @property
    def file_number(self) -> int: ...

    @property
    def is_waiting(self) -> bool: ...

    @property
    def has_left(self) -> bool: ...

    def tune(self, send_bytes: int, receive_bytes: int) -> None: ...

    def send_answers(self) -> None: ...

    def take_turn(self) -> None: ...

    def unmute(self) -> None: ...

    def drop(self, problem: str) -> None: ...

    def cut(self) -> None: ...

    def close(self) -> None: ...


class Connections:
    """The connections that are open. `handle` handles their requests; `closed` hears of each that is gone."""

    def __init__(
        self,
        config: BrokerConfig,
        server_log: ServerLog,
        stats: Stats,
        faults: FaultLog,
        handle: Handle,
        closed: Callable[[Any], None],
        turns: "FairTurns",
    ) -> None:
        loop = asyncio.get_running_loop()
        self.handle = handle
        self._closed = closed
        self._config = config
        self._server_log = server_log
        self.stats = stats
        self._time_s = loop.time
        self._call_soon = loop.call_soon
        self._to_send: list[Client] = []
        self.open: set[Client] = set()
        self._per_host: Counter[str] = Counter()
        self._untold, self._told_s = 0, float("-inf")
        self._is_stopping = False
        self.max_request_bytes = config.socket_request_max_bytes
        self.max_unsent_bytes = config.muster_connection_max_unsent_bytes
        self.max_waiting = config.queued_max_requests
        """Replies that one connection may wait for; reading stops until there are fewer."""
        self.turns = turns
        queued_bytes = config.queued_max_request_bytes
        if queued_bytes <= 0:
            queued_bytes = max(DEFAULT_QUEUED_BYTES, config.socket_request_max_bytes)
        self.intake = Intake(queued_bytes, config.muster_request_timeout_ms, loop.time)
        self.unread = Unread(config.muster_max_unsent_bytes)
        self.complaints = RateLimitedLog(server_log, "sent away", loop.time)
        self.fault = faults.report

    def opened(self, connection: Client) -> bool:
        """Whether there is room for one more."""
        problem = self._no_room_for(connection)
        if problem:
            self.stats.refused_connections += 1
            self._report_refusal(problem)
            return False
        self.open.add(connection)
        self._per_host[connection.client_host] += 1
        self.stats.connections = len(self.open)
        connection.tune(self._config.socket_send_buffer_bytes, self._config.socket_receive_buffer_bytes)
        return True

    def closed(self, connection: Client) -> None:
        self._closed(connection)
        if connection not in self.open:
            return
        self.open.discard(connection)
        self._per_host[connection.client_host] -= 1
        if not self._per_host[connection.client_host]:
            del self._per_host[connection.client_host]
        self.stats.connections = len(self.open)

    def _no_room_for(self, connection: Client) -> str:
        config = self._config
        if self._is_stopping:
            return "the server stops"
        if len(self.open) >= config.max_connections:
            return f"max.connections is {config.max_connections}"
        if self._per_host.get(connection.client_host, 0) >= config.max_connections_per_ip:
            return f"{connection.client_host[1:]} has max.connections.per.ip, which is {config.max_connections_per_ip}"
        most_files = process.open_files_limit()
        if connection.file_number > process.last_client_file(most_files):
            return f"this process may open {most_files} files (ulimit -n)"
        return ""

    def _report_refusal(self, problem: str) -> None:
        """One line for the first, and then for many at a time: a flood of clients must not become one of lines."""
        now_s = self._time_s()
        self._untold += 1
        if now_s - self._told_s >= REFUSALS_TOLD_EVERY_S:
            refused, self._untold, self._told_s = self._untold, 0, now_s
            self._server_log.say(
                f"{refused} connection{'s' if refused > 1 else ''} refused beside {len(self.open)} open ones: "
                f"{problem}",
                event="refused", refused=refused, connections=len(self.open),
            )  # fmt: skip

    def complain(self, connection: Client, problem: str) -> None:
        """A client misbehaved and is sent away."""
        self.stats.bad_requests += 1
        self.complaints.say(f"{connection.peer} was sent away: {problem}", peer=connection.peer)

    def send_soon(self, connection: Client) -> None:
        """Let a connection send what is answered in this turn, in one go."""
        if not self._to_send:
            self._call_soon(self._send)
        self._to_send.append(connection)

    def _send(self) -> None:
        to_send, self._to_send = self._to_send, []
        for connection in to_send:
            try:
                connection.send_answers()
            except Exception as error:
                self.fault(f"answers to {connection.peer} could not be sent", error, peer=connection.peer)

    def close_idle(self) -> None:
        """Called every second: end connections that do not read, have been silent for long, or hold memory too long."""
        now, idle_ms = self._time_s(), self._config.connections_max_idle_ms
        for connection in list(self.open):
            if connection.full_since is not None and now - connection.full_since > SLOW_READER_S:
                connection.drop(f"it has not read its answers for {SLOW_READER_S:.0f} s")
                continue
            silent_s = now - connection.last_heard
            is_idle = 0 <= idle_ms < silent_s * 1000 and not connection.is_waiting
            if is_idle or (silent_s > LEFT_AFTER_S and connection.has_left):
                connection.close()
        self.intake.check(list(self.open))

    def refuse_all(self, handle: Handle) -> None:
        """The server stops: no connection is accepted, and `handle` gets the requests that still come."""
        self._is_stopping = True
        self.handle = handle

    def close_all(self) -> None:
        for connection in list(self.open):
            connection.close()


class Intake:
    """The pool for requests. All methods are called in the thread of the event loop."""

    def __init__(self, limit_bytes: int, timeout_ms: int, time_s: Callable[[], float]) -> None:
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_ms / 1000
        self._time_s = time_s
        self.borrowed_bytes = 0
        self._borrowers: dict[Client, tuple[int, float]] = {}
        """How much, and since when it might have been given back."""
        self._muted: dict[Client, float] = {}
        """Since when, in that order."""

    @property
    def muted(self) -> int:
        return len(self._muted)

    def borrow(self, connection: Client, held_bytes: int) -> bool:
        """A connection holds so many bytes now; False if nothing more may be read from it until `unmute`."""
        borrowed = max(held_bytes - RESERVE_BYTES, 0)
        before, since = self._borrowers.get(connection) or (0, self._time_s())
        self.borrowed_bytes += borrowed - before
        self._borrowers[connection] = borrowed, since
        if self.borrowed_bytes <= self._limit_bytes:
            return True
        self._muted.setdefault(connection, self._time_s())
        return False

    def give_back(self, connection: Client) -> None:
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

    def _start_anew(self, connection: Client) -> None:
        """A connection that was not read from could not finish its request: it has all the time there is again."""
        now = self._time_s()
        self._borrowers[connection] = self._borrowers[connection][0], now
        if connection.unfinished_since is not None:
            connection.unfinished_since = now

    def check(self, connections: Iterable[Client]) -> None:
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
        self._full: dict[Client, int] = {}
        """In the order in which they became full."""

    def full(self, connection: Client, unsent_bytes: int) -> None:
        self.drained(connection)
        self._full[connection] = unsent_bytes
        self._total_bytes += unsent_bytes
        while self._total_bytes > self._limit_bytes:
            oldest = next(iter(self._full))
            self.drained(oldest)
            oldest.drop("it has not read its answers, and all clients together hold muster.max.unsent.bytes of them")

    def drained(self, connection: Client) -> None:
        self._total_bytes -= self._full.pop(connection, 0)


class FairTurns:
    """Clients that have sent more than can be handled at once, and wait for their turn to go on.

    Those go first that have had the least time while others waited. So one with few requests waits for the one at hand,
    and not for all who always have another one. In each turn of the loop there is also one slice of a long request
    (`long_requests.py`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[float, int, Client]] = []
        """A heap: the time that each has had, and its number in the row."""
        self._slices: deque[Callable[[], None]] = deque()
        self._came = 0
        self._period = 0
        """The number of the period at hand: one begins when a client has to wait, and ends when none does."""
        self._is_called = self._is_serving = False
        self._spent_s = 0.0
        self.is_long = False
        """Whether requests have taken this turn of the loop for so long that those which can wait should."""

    def spend(self, seconds: float, client: Client | None = None) -> None:
        """Requests were handled for so long."""
        if not self._spent_s:
            self._loop.call_soon(self._begin)
        self._spent_s += seconds
        self.is_long = self._spent_s > LONG_TURN_S
        if client is not None:
            client.had_s = self._had_s(client) + seconds
            client.had_in = self._period

    def _begin(self) -> None:
        self._spent_s, self.is_long = 0.0, False

    def _had_s(self, client: Client) -> float:
        return client.had_s if client.had_in == self._period else 0.0

    def wait(self, client: Client) -> None:
        if not self._waiting and not self._is_serving:
            self._period += 1
        self._came += 1
        heappush(self._waiting, (self._had_s(client), self._came, client))
        self._call()

    def wait_for_slice(self, go_on: Callable[[], None]) -> None:
        self._slices.append(go_on)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_called, self._is_serving = False, True
        try:
            while self._waiting:
                heappop(self._waiting)[2].take_turn()
                if self._spent_s >= TURN_S:
                    break
            if self._slices:
                began = monotonic()
                self._slices.popleft()()
                self.spend(monotonic() - began)
        finally:
            self._is_serving = False
            if self._waiting or self._slices:
                self._call()
