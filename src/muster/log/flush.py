"""Making logs durable: what one sync covers, and a few threads that do many at once.

`SyncTicket` is all that a thread needs to know to make a log durable up to some offset: open files, and perhaps a
directory. It touches nothing else, so it may run beside appends; the log hears of its end in its own thread.

`Flusher` is group commit. Whoever wants a log to be durable says so and leaves a callback. Syncs of different logs run
at the same time; requests for a log whose sync is under way wait for it to end and then share the next one. So a sync
covers everything that came in during the one before it, however much that is.

No event loop here: `deliver` says in which thread callbacks run. With asyncio it is `loop.call_soon_threadsafe`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, Self

from muster.errors import LogDamaged
from muster.log.files import File, Files

DEFAULT_THREADS = 4

Then = Callable[[LogDamaged | None], None]
"""Told None when it is durable, or why it is not."""


@dataclass(slots=True, frozen=True)
class SyncTicket:
    """What must be synced for a log to be durable up to `end_offset`."""

    end_offset: int
    files: Files
    steps: tuple[tuple[File, str], ...]
    """Files and the names of their sync points, in order."""
    directory: Path | None
    rolled: frozenset[int]
    """Base offsets of closed segments among them, with their indexes."""
    names_version: int
    """Which change of names the directory's sync covers."""
    recovery_point: int
    """Up to where log and indexes are durable then."""
    generation: int
    """A log that was truncated meanwhile takes no notice of the ticket."""

    def sync(self) -> None:
        """Raises `OSError`; nobody knows then what is on the disk, and the log is done for."""
        for file, point in self.steps:
            file.sync(point)
        if self.directory is not None:
            self.files.sync_directory(self.directory, "flush.directory")


class Flushable(Protocol):
    """A log that can be flushed by others."""

    def write(self) -> None: ...

    def unsynced(self, indexes: bool = False) -> SyncTicket | None:
        """What to sync now; None where all that is written is durable. With `indexes`, the recovery point moves too."""

    def synced(self, ticket: SyncTicket) -> bool:
        """Take note of a ticket that was synced; whether everything it covers is durable now."""

    def sync_failed(self, ticket: SyncTicket, error: OSError) -> LogDamaged: ...


@dataclass(slots=True)
class _Waiting:
    """Callbacks of one log: those of the sync under way, and those for the next."""

    under_way: list[Then] = field(default_factory=list)
    next: list[Then] = field(default_factory=list)
    next_indexes: bool = False


class Flusher:
    """Threads that sync. All methods are called in the thread that owns the logs, and callbacks come back to it."""

    def __init__(
        self, threads: int = DEFAULT_THREADS, deliver: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self._deliver = deliver
        self._waiting: dict[int, tuple[Flushable, _Waiting]] = {}
        self._work: SimpleQueue[tuple[Flushable, SyncTicket] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Flushable, SyncTicket, OSError | None]] = SimpleQueue()
        self._soon: deque[Callable[[], None]] = deque()  # callbacks of requests that needed no sync
        self._is_finish_coming = False
        self.syncs = 0
        """How many tickets were synced so far."""
        self._threads = [
            threading.Thread(target=self._run, name=f"muster-flush-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self, log: Flushable, then: Then) -> None:
        """Write what a log has staged and make it durable; `then` is called behind that, never at once."""
        self.flush_all([log], then)

    def flush_all(self, logs: Iterable[Flushable], then: Then, *, indexes: bool = False) -> None:
        """Several logs at the same time; `then` is called when the last is done, with the first error there was.

        With `indexes` those are synced too, and the logs' recovery points move: before a checkpoint is written.
        """
        logs = list(logs)
        if not logs:
            self._call_later(partial(then, None))
            return
        told = then if len(logs) == 1 else _after(len(logs), then)
        self.flush_each([(log, told) for log in logs], indexes=indexes)

    def flush_each(self, requests: Iterable[tuple[Flushable, Then]], *, indexes: bool = False) -> None:
        """Several logs at the same time, each with a callback of its own.

        All are written before the first sync begins: threads that wake up between two writes only get in the way.
        """
        started = [work for log, then in requests if (work := self._join(log, then, indexes)) is not None]
        for work in started:
            self._work.put(work)

    def _join(self, log: Flushable, then: Then, indexes: bool) -> tuple[Flushable, SyncTicket] | None:
        """Write, and enter a request; what to sync for it, unless a sync is under way."""
        try:
            log.write()
        except LogDamaged as error:
            self._call_later(partial(then, error))
            return None
        under_way = self._waiting.get(id(log))
        if under_way is not None:
            waiting = under_way[1]
            waiting.next.append(then)
            waiting.next_indexes = waiting.next_indexes or indexes
            return None
        ticket = log.unsynced(indexes)
        if ticket is None:
            self._call_later(partial(then, None))
            return None
        self._waiting[id(log)] = (log, _Waiting([then]))
        return log, ticket

    def _call_later(self, call: Callable[[], None]) -> None:
        self._soon.append(call)
        if self._deliver is not None:
            self._deliver(self.finish)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            log, ticket = work
            error: OSError | None = None
            try:
                ticket.sync()
            except OSError as problem:
                error = problem
            except Exception as problem:  # a thread that dies in silence would leave its callers waiting
                error = OSError(str(problem))
            self._done.put((log, ticket, error))
            # Looked at behind the put, and cleared before the queue is emptied: so nothing is left lying there, and
            # syncs that end at the same time call for the owner once.
            if self._deliver is not None and not self._is_finish_coming:
                self._is_finish_coming = True
                self._deliver(self.finish)

    def finish(self) -> None:
        """Tell logs and callbacks of all syncs that have ended. `deliver` brings this about by itself."""
        self._is_finish_coming = False
        while not self._done.empty():
            self._finish_one(*self._done.get())
        while self._soon:
            self._soon.popleft()()

    def _finish_one(self, log: Flushable, ticket: SyncTicket, error: OSError | None) -> None:
        self.syncs += 1
        _, waiting = self._waiting.pop(id(log))
        told: list[Then] = waiting.under_way
        outcome: LogDamaged | None = None
        if error is not None:
            outcome = log.sync_failed(ticket, error)
        elif not log.synced(ticket):
            outcome = LogDamaged("the log was closed, or cut, before what was appended was durable")
        if outcome is not None:
            told = told + waiting.next
        elif waiting.next:
            self._start_next(log, waiting)  # before any callback: those may ask for more
        for then in told:
            then(outcome)

    def _start_next(self, log: Flushable, waiting: _Waiting) -> None:
        """The sync that all share who came while the last one was under way."""
        ticket = log.unsynced(waiting.next_indexes)
        if ticket is None:
            for then in waiting.next:
                self._soon.append(partial(then, None))
            return
        self._waiting[id(log)] = (log, _Waiting(waiting.next))
        self._work.put((log, ticket))

    def drain(self) -> None:
        """Wait for every flush asked for so far, and call its callbacks here."""
        while self._waiting:
            self._finish_one(*self._done.get())
        self.finish()

    def close(self) -> None:
        """Finish what is under way, then end the threads."""
        self.drain()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()


def _after(count: int, then: Then) -> Then:
    """A callback to be called so many times; the last call tells `then` of the first error."""
    left, first_error = count, None

    def told(error: LogDamaged | None) -> None:
        nonlocal left, first_error
        left -= 1
        first_error = first_error or error
        if left == 0:
            then(first_error)

    return told
