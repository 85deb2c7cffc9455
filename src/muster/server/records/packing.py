"""Batches that are packed again in threads, because their topic asks for it and a loop should not do it.

The batches of a log keep their order: while one is packed, all that come behind it wait, packed or not. A log has one
under way at a time, and logs take turns. A batch is checked by the loop when its turn comes, packed in a thread, and
appended by the loop. Between the two nothing of it is in the log, so its place in its producer's row is checked again.

What waits is bounded by its bytes. Where there is no room, requests that would bring more stay with their connections
(`NotNow`), which keep to `queued.max.request.bytes` together.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from muster.log.validation import ClientBatch, UnpackBudget
from muster.segments.checkpoints import TopicPartition
from muster.server.records.waiting_producers import Pending

MOST_WAITING_BYTES = 32 << 20
MOST_THREADS = 4
"""And one less than there are processors: the loop needs one."""


class UnpackedBatch(NamedTuple):
    """A batch on its way to a log."""

    key: TopicPartition
    pending: Pending
    number: int
    records: bytes
    budget: UnpackBudget


Work = Callable[[], ClientBatch]
"""For a thread."""


class Packing:
    """All methods are called in the thread of the event loop.

    `begin` says what to do for a batch in a thread, or None if there is nothing more to do; `end` gets what came of it.
    """

    def __init__(
        self,
        begin: Callable[[UnpackedBatch], Work | None],
        end: Callable[[UnpackedBatch, ClientBatch | Exception], None],
    ) -> None:
        self._begin_with = begin
        self._end_with = end
        self._loop = asyncio.get_running_loop()
        self._most_running = min(max((os.cpu_count() or 1) - 1, 1), MOST_THREADS)
        self._threads = ThreadPoolExecutor(self._most_running, thread_name_prefix="pack")
        self._waiting: dict[TopicPartition, deque[UnpackedBatch]] = {}
        """The first of each log may be under way."""
        self._ready: deque[TopicPartition] = deque()
        """Logs of which none is under way."""
        self._running = 0
        self._waiting_bytes = 0
        self._want_room: deque[Callable[[], None]] = deque()
        self._is_going_on = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, key: TopicPartition) -> bool:
        """Whether a batch of this log has to wait for others."""
        return key in self._waiting

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes >= MOST_WAITING_BYTES

    def when_there_is_room(self, go_on: Callable[[], None]) -> None:
        self._want_room.append(go_on)

    def put(self, batch: UnpackedBatch) -> None:
        of_log = self._waiting.setdefault(batch.key, deque())
        of_log.append(batch)
        self._waiting_bytes += len(batch.records)
        if len(of_log) == 1:
            self._ready.append(batch.key)
            self._go_on_soon()

    def take_out(self, key: TopicPartition) -> list[UnpackedBatch]:
        """All that waits for a log, which is going."""
        of_log = list(self._waiting.pop(key, ()))
        if key in self._ready:
            self._ready.remove(key)
        self._waiting_bytes -= sum(len(batch.records) for batch in of_log)
        self._go_on_soon()
        return of_log

    def stop(self) -> None:
        """Forget everything. What is under way is not waited for, but by the end of the process."""
        self._waiting.clear()
        self._ready.clear()
        self._want_room.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _go_on_soon(self) -> None:
        """One batch in a turn of the loop: some are not packed after all, and each may be large."""
        if not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._ready and self._running < self._most_running:
            self._begin(self._waiting[self._ready.popleft()][0])
        if self._want_room and not self.is_full:
            self._want_room.popleft()()
        if (self._ready and self._running < self._most_running) or (self._want_room and not self.is_full):
            self._go_on_soon()

    def _begin(self, batch: UnpackedBatch) -> None:
        try:
            work = self._begin_with(batch)
        except Exception as error:
            self._end(batch, error)
            return
        if work is None:
            self._is_over(batch)
            return
        self._running += 1
        self._loop.run_in_executor(self._threads, work).add_done_callback(partial(self._packed, batch))

    def _packed(self, batch: UnpackedBatch, done: "asyncio.Future[ClientBatch]") -> None:
        self._running -= 1
        of_log = self._waiting.get(batch.key)
        if done.cancelled() or of_log is None or of_log[0] is not batch:  # the log has gone, or the server stops
            self._go_on_soon()
            return
        error = done.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        self._end(batch, done.result() if error is None else error)

    def _end(self, batch: UnpackedBatch, packed: ClientBatch | Exception) -> None:
        try:
            self._end_with(batch, packed)
        finally:
            self._is_over(batch)

    def _is_over(self, batch: UnpackedBatch) -> None:
        of_log = self._waiting.get(batch.key)
        if of_log is not None and of_log[0] is batch:
            of_log.popleft()
            self._waiting_bytes -= len(batch.records)
            if of_log:
                self._ready.append(batch.key)
            else:
                del self._waiting[batch.key]
        self._go_on_soon()
