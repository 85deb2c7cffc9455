"""Requests of very many elements, which would hold all others up for tenths of a second.

Most of that time goes into reading them and writing their answers, which needs no state: a thread does it, and the
interpreter lets the loop have its turn every few milliseconds. What there is to say is found by the loop, in slices
(`slices.py`), of which there is one in a turn of the loop (`FairTurns`). The connection waits, as behind a fetch.

Few are under way at a time, since each takes some fifty megabytes for fifty thousand elements. The others wait in the
order in which they came, of each connection one; where their bytes are too many, they stay with their connections.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

from muster.errors import MusterError
from muster.server.connection import PendingReply
from muster.server.connections import FairTurns, NotNow
from muster.server.slices import Slices

LONG_REQUEST_BYTES = 16 << 10
"""But for Produce, which has records; smaller ones have some thousand elements at most."""
MANY_PARTITIONS = 1_000
SLICE_S = 0.005
MOST_AT_ONCE = 2
MOST_WAITING_BYTES = 64 << 20

Result = TypeVar("Result")


class LongRequests:
    """All methods are called in the thread of the event loop."""

    def __init__(self, turns: FairTurns) -> None:
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="long-requests")
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._put_off: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def check_room(self) -> None:
        """Raises `NotNow` if too much waits already."""
        if self._waiting_bytes >= MOST_WAITING_BYTES:
            raise NotNow(self._put_off.append)

    def begin(self, reply: PendingReply, size_bytes: int, work: Coroutine[Any, Any, None]) -> None:
        """`work` answers the reply, perhaps later; what it raises ends the connection."""
        self._waiting_bytes += size_bytes
        task = self._loop.create_task(self._done(reply, work))
        self._tasks.add(task)

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._waiting_bytes -= size_bytes
            work.close()
            while self._put_off and self._waiting_bytes < MOST_WAITING_BYTES:
                self._put_off.popleft()()

        task.add_done_callback(over)

    async def _done(self, reply: PendingReply, work: Coroutine[Any, Any, None]) -> None:
        connection = reply.connection
        async with self._room:
            try:
                if not connection.is_closed:
                    await work
            except MusterError as error:
                connection.drop(str(error))
            except Exception as error:
                connection.fail("its request could not be handled", error)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """`work` is a function of what it has been given, and touches nothing else."""
        return await self._loop.run_in_executor(self._thread, work)

    async def in_slices(self, slices: Slices[Result]) -> Result:
        done: asyncio.Future[Result] = self._loop.create_future()

        def go_on() -> None:
            enough = monotonic() + SLICE_S
            try:
                while not done.cancelled():
                    next(slices)
                    if monotonic() > enough:
                        self._turns.wait_for_slice(go_on)
                        return
            except StopIteration as end:
                if not done.cancelled():
                    done.set_result(end.value)
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)

        self._turns.wait_for_slice(go_on)
        return await done

    async def write(self, reply: PendingReply, answer: Any) -> None:
        """Answer with what is written in the thread."""
        frame = await self.in_thread(lambda: reply.encode(reply.context, answer))
        reply.send(frame)

    def stop(self) -> None:
        """Forget everything."""
        for task in self._tasks:
            task.cancel()
        self._put_off.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)
