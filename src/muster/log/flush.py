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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, Self

from muster.errors import LogDamaged
from muster.segments.files import File, Files

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
    """Threads that sync. All methods are called in the thread that owns the logs, and callbacks come back to it.

    A callback that raises ends the call of `finish` it was in, and the event loop tells of it; the callbacks behind it
    are called all the same, by the next `finish`.
    """

    def __init__(
        self, threads: int = DEFAULT_THREADS, deliver: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self._deliver = deliver
        self._waiting: dict[int, tuple[Flushable, _Waiting]] = {}
        self._work: SimpleQueue[tuple[Flushable, SyncTicket] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Flushable, SyncTicket, OSError | None]] = SimpleQueue()
        self._to_call: deque[tuple[Then, LogDamaged | None]] = deque()
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

    @property
    def is_busy(self) -> bool:
        """Whether a sync is under way, or a callback is still to be called."""
        return bool(self._waiting or self._to_call)

    def flush(self, log: Flushable, then: Then) -> None:
        """Write what a log has staged and make it durable; `then` is called behind that, never at once."""
        self.flush_all([log], then)

    def flush_all(self, logs: Iterable[Flushable], then: Then, *, indexes: bool = False) -> None:
        """Several logs at the same time; `then` is called when the last is done, with the first error there was.

        With `indexes` those are synced too, and the logs' recovery points move: before a checkpoint is written.
        """
        logs = list(logs)
        if not logs:
            self._call_later(then, None)
            return
        told = then if len(logs) == 1 else _after(len(logs), then)
        self.flush_each([(log, told) for log in logs], indexes=indexes)

    def flush_each(self, requests: Iterable[tuple[Flushable, Then]], *, indexes: bool = False) -> None:
        """Several logs at the same time, each with a callback of its own, which hears of any error of its log.

        All are written before the first sync begins: threads that wake up between two writes only get in the way.
        """
        started = [work for log, then in requests if (work := self._join(log, then, indexes)) is not None]
        for work in started:
            self._work.put(work)

    def _join(self, log: Flushable, then: Then, indexes: bool) -> tuple[Flushable, SyncTicket] | None:
        """Write, and enter a request; what to sync for it, unless a sync is under way."""
        try:
            log.write()
            under_way = self._waiting.get(id(log))
            ticket = log.unsynced(indexes) if under_way is None else None
        except Exception as error:
            self._call_later(then, _as_damage(error))
            return None
        if under_way is not None:
            waiting = under_way[1]
            waiting.next.append(then)
            waiting.next_indexes = waiting.next_indexes or indexes
            return None
        if ticket is None:
            self._call_later(then, None)
            return None
        self._waiting[id(log)] = (log, _Waiting([then]))
        return log, ticket

    def _call_later(self, then: Then, outcome: LogDamaged | None) -> None:
        self._to_call.append((then, outcome))
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
                with suppress(RuntimeError):  # the owner's event loop is closed: nobody waits for this any more
                    self._deliver(self.finish)

    def finish(self) -> None:
        """Tell logs and callbacks of all syncs that have ended. `deliver` brings this about by itself."""
        self._is_finish_coming = False
        while not self._done.empty():
            self._finish_one(*self._done.get())
        try:
            while self._to_call:
                then, outcome = self._to_call.popleft()
                then(outcome)
        finally:
            if self._to_call and self._deliver is not None:
                self._deliver(self.finish)

    def _finish_one(self, log: Flushable, ticket: SyncTicket, error: OSError | None) -> None:
        """Let a log know, and its callbacks be called."""
        self.syncs += 1
        _, waiting = self._waiting.pop(id(log))
        outcome = _taken_note_of(log, ticket, error)
        self._to_call.extend((then, outcome) for then in waiting.under_way)
        if not waiting.next:
            return
        next_ticket: SyncTicket | None = None
        if outcome is None:
            try:
                next_ticket = log.unsynced(waiting.next_indexes)
            except Exception as problem:
                outcome = _as_damage(problem)
        if next_ticket is None:
            self._to_call.extend((then, outcome) for then in waiting.next)
        else:  # the sync that all share who came while the last one was under way
            self._waiting[id(log)] = (log, _Waiting(waiting.next))
            self._work.put((log, next_ticket))

    def drain(self) -> None:
        """Wait for every flush asked for so far, and call its callbacks here.

        It waits as long as the disk takes. An event loop that must not wait looks at `is_busy` instead. If callbacks
        raise, all others are called before the first error is raised here.
        """
        problem: Exception | None = None
        while self.is_busy:
            try:
                if self._waiting and not self._to_call:
                    self._finish_one(*self._done.get())  # nobody else takes from there: this is the owner's thread
                self.finish()
            except Exception as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Finish what is under way, then end the threads."""
        try:
            self.drain()
        finally:
            self.end_threads()
            for thread in self._threads:
                thread.join()

    def end_threads(self) -> None:
        """Let each thread end when its sync has: nobody waits for it. To be called once, when nothing more is asked."""
        for _ in self._threads:
            self._work.put(None)


def _taken_note_of(log: Flushable, ticket: SyncTicket, error: OSError | None) -> LogDamaged | None:
    """Tell a log how the sync of a ticket ended; what its callbacks hear."""
    try:
        if error is not None:
            return log.sync_failed(ticket, error)
        if not log.synced(ticket):
            return LogDamaged("the log was closed, or cut, before what was appended was durable")
    except Exception as problem:
        return _as_damage(problem)
    return None


def _as_damage(error: Exception) -> LogDamaged:
    """Whatever went wrong under a log, nobody knows what is on its disk."""
    if isinstance(error, LogDamaged):
        return error
    damage = LogDamaged(f"the log could not be written ({type(error).__name__}: {error}).")
    damage.__cause__ = error
    return damage


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
