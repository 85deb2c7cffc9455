"""Requests that change topics, one after the other, beside everything else.

Each is decided on the loop, by the topics that there are when its turn comes; made by a thread, since a disk takes its
time; and seen on the loop. Heartbeats and commits are answered meanwhile. The answer to a deletion waits until the
deletion of the topics' offsets is durable, too.

Small requests may wait as many as there are clients. Large ones wait only as long as all that wait take little memory.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from muster.errors import MusterError
from muster.server.buffers import RESERVE_BYTES
from muster.server.cluster.topics import Happened, Plan, TopicChange, Topics
from muster.server.connection import Slot

MOST_WAITING_BYTES = 16 << 20
"""Of requests that wait for their turn, besides the small ones."""


class TopicChanges:
    """`deleted` is told of topics that are gone, with what to call when everything it did is durable."""

    def __init__(
        self,
        topics: Topics,
        deleted: Callable[[Sequence[TopicChange], Callable[[], None]], None],
        complain: Callable[[str], None],
    ) -> None:
        self._topics = topics
        self._deleted = deleted
        self._complain = complain
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # which lets its waiters in as they came
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._under_way: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    def ask(self, plan: Callable[[], Plan], slot: Slot, size_bytes: int) -> None:
        """Carry out what a request of so many bytes wants when its turn comes, and answer it.

        `MusterError` if it is large and has to wait behind many that are.
        """
        if size_bytes > RESERVE_BYTES and self._waiting_bytes + size_bytes > MOST_WAITING_BYTES and self.is_busy:
            raise MusterError(
                f"a request of {size_bytes} bytes that changes topics, and {self._waiting_bytes} bytes of such "
                f"requests wait already; {MOST_WAITING_BYTES} may"
            )
        task = self._loop.create_task(self._answer(plan, slot))
        self._under_way.add(task)
        self._waiting_bytes += size_bytes
        task.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._waiting_bytes -= size_bytes

    async def _answer(self, plan: Callable[[], Plan], slot: Slot) -> None:
        try:
            slot.answer(await self.carry_out(plan))
        except Exception as error:  # of this request alone
            self._complain(f"a change of topics was given up: {type(error).__name__}: {error}")
            slot.connection.drop("its request could not be answered")

    async def carry_out(self, plan: Callable[[], Plan]) -> Any:
        """Decide, make, see; returns the answer."""
        async with self._turn:
            decided = plan()
            changes = decided.changes
            if not changes:
                return decided.answer([])
            if self._is_stopping:
                return decided.answer([MusterError("The server stops.")] * len(changes))
            self._topics.begin(changes)
            outcomes = await self._loop.run_in_executor(self._thread, self._topics.make, changes)
            made = self._topics.finish(changes, outcomes)
        gone = [change for change in made if change.happened is Happened.DELETED]
        if gone:
            durable = asyncio.Event()
            self._deleted(gone, durable.set)
            await durable.wait()
        return decided.answer(outcomes)

    async def stop(self) -> None:
        """Let the one that is being made come to its end; the others are not begun any more."""
        self._is_stopping = True
        try:
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            self._thread.shutdown(wait=False)
