"""Making logs durable: what one sync covers, and a few threads that do many at once.

`SyncTicket` is all that a thread needs to know to make a log durable up to some offset: open files, and perhaps a
directory. It touches nothing else, so it may run beside appends; the log takes note of its end in its own thread.
`Durability` makes the tickets of one log, and remembers how far they got.

`Flusher` is group commit. A caller that wants a log to be durable leaves a callback. Syncs of different logs run at the
same time; requests for a log whose sync is under way wait for it to end and then share the next one. So a sync
covers everything that came in during the one before it, however much that is.

No event loop here: `deliver` says in which thread callbacks run. With asyncio it is `loop.call_soon_threadsafe`.
"""

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Protocol, Self

from muster.errors import LogDamaged
from muster.log.segment import LOG, SNAPSHOT, WritableSegment
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
        """Raises `OSError`; then it is not known what is on the disk, and the log takes nothing any more."""
        for file, point in self.steps:
            file.sync(point)
        if self.directory is not None:
            self.files.sync_directory(self.directory, "flush.directory")


class RolledSegment(NamedTuple):
    """A segment that was closed, and the snapshot behind it, until both are durable."""

    segment: WritableSegment
    snapshot: File

    def steps(self) -> list[tuple[File, str]]:
        return [
            *((file, f"closed{kind}") for kind, file in self.segment.open_files()),
            (self.snapshot, f"closed{SNAPSHOT}"),
        ]

    def close(self) -> None:
        self.segment.close()
        self.snapshot.close()


class Durability:
    """How far one log is durable, and what is left to sync: files, and the names in its directory.

    Used in the thread that owns the log.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_names_version",
        "_rolled",
        "_synced_names_version",
        "flushed_offset",
        "generation",
        "recovery_point",
    )

    def __init__(self, files: Files, directory: Path, end_offset: int, *, names_changed: bool) -> None:
        self._files = files
        self._directory = directory
        self.flushed_offset = end_offset
        """Records below it are durable."""
        self.recovery_point = end_offset
        """Records below it are durable, and their indexes too."""
        self._rolled: list[RolledSegment] = []  # closed, not yet durable
        self._names_version = int(names_changed)
        self._synced_names_version = 0
        self.generation = 0
        """Counts how often the log was cut: a ticket from before a cut promises nothing."""

    @property
    def rolled_segments(self) -> int:
        """Closed, and not yet durable."""
        return len(self._rolled)

    def names_changed(self) -> None:
        """A file was made, renamed or removed: the directory is to be synced before anything new is promised."""
        self._names_version += 1

    def rolled(self, segment: WritableSegment, snapshot: File) -> None:
        """A segment was closed; a new one has begun with a snapshot."""
        self._rolled.append(RolledSegment(segment, snapshot))
        self._names_version += 1

    def make_durable_before_roll(self, active: WritableSegment) -> None:
        """Sync what is unsynced of the active segment, before another file gets a name.

        Names reach the disk when they like: a power cut may keep the new segment and lose the end of the old one. That
        would leave later records without earlier ones. Little is unsynced under `flush=always`, so waiting for it here
        takes no longer than any other sync.
        """
        active.log.sync("roll.log")
        if self._names_version != self._synced_names_version:
            self._files.sync_directory(self._directory, "roll.directory")
            self._synced_names_version = self._names_version

    def make_names_durable(self) -> None:
        """Sync the names of new files, before files from before them go: a power cut must not leave neither."""
        if self._names_version != self._synced_names_version:
            self._files.sync_directory(self._directory, "removal.directory")
            self._synced_names_version = self._names_version

    def ticket(self, written_offset: int, active: WritableSegment, *, indexes: bool) -> SyncTicket | None:
        """What to sync for all that is written to be durable; None if it is. With `indexes`, those as well."""
        steps = [step for rolled in self._rolled for step in rolled.steps()]
        if written_offset > self.flushed_offset and active.size_bytes:
            steps.append((active.log, "flush.log"))
        if indexes and self.recovery_point < written_offset:
            steps += [(file, f"checkpoint{kind}") for kind, file in active.open_files() if kind != LOG]
        names = self._names_version != self._synced_names_version
        if not steps and not names and self.flushed_offset >= written_offset:
            return None
        reached = written_offset if indexes else active.base_offset
        return SyncTicket(
            written_offset, self._files, tuple(steps), self._directory if names else None,
            frozenset(rolled.segment.base_offset for rolled in self._rolled),
            self._names_version, max(self.recovery_point, reached), self.generation,
        )  # fmt: skip

    def synced(self, ticket: SyncTicket) -> None:
        """Take note of a ticket of this generation that was synced."""
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        self.recovery_point = max(self.recovery_point, ticket.recovery_point)
        self._synced_names_version = max(self._synced_names_version, ticket.names_version)
        if ticket.rolled:
            self.close_rolled(ticket.rolled)

    def cut(self, end_offset: int) -> None:
        """The log now ends here."""
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)

    def take_rolled(self, base_offsets: Container[int]) -> list[RolledSegment]:
        """Closed segments that need not become durable any more; the caller closes them."""
        taken = [rolled for rolled in self._rolled if rolled.segment.base_offset in base_offsets]
        self._rolled = [rolled for rolled in self._rolled if rolled not in taken]
        return taken

    def close_rolled(self, base_offsets: Container[int]) -> None:
        """Close the files of segments that are durable, or that are not needed any more."""
        kept: list[RolledSegment] = []
        for rolled in self._rolled:
            if rolled.segment.base_offset in base_offsets:
                rolled.close()
            else:
                kept.append(rolled)
        self._rolled = kept


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
        """Several logs at the same time, each with a callback of its own, which is told of any error of its log.

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
                with suppress(RuntimeError):  # the owner's event loop is closed: no callback is waited for
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
                    self._finish_one(*self._done.get())  # only the owner's thread takes from there, and this is it
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
        """Let each thread end when its sync has, without waiting for it. To be called once, at the end."""
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
    """An error of any kind, as what it means: it is not known what is on the log's disk."""
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
