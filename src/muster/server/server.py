"""A server: how it starts and stops. `assembly.py` builds its parts.

Starting: see that the port is free, open the data directory, make the offsets topic if there is none, take over all its
partitions and those of `__transaction_state`, carry out decided ends of transactions, listen. Small partitions are
loaded before the port opens; large ones in a thread, the smallest first, and their groups hear
COORDINATOR_LOAD_IN_PROGRESS meanwhile. Stopping, in steps: accept no connection, answer the requests that wait, flush,
close.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.log.flush import Flusher
from muster.protocol.apis import ApiKey
from muster.segments.files import REAL_FILES, Files
from muster.server.assembly import Parts, assemble, open_directory
from muster.server.cluster.cluster import Node
from muster.server.connection import Connection, PendingReply
from muster.server.led_partitions import LedPartition
from muster.server.listeners import advertised_listener, cannot_listen, client_listener, open_to_others
from muster.server.server_log import ServerLog
from muster.server.timers import Clock

STOP_WITHIN_S = 4.0
BACKGROUND_WITHIN_S = 1.0
ANSWER_WITHIN_S = 2.0
ENDS_WITHIN_S = 10.0
"""When the server stops: for everything; of that for what runs beside the requests to end, and for the disk to let the
last answers go. When it starts: for decided ends of transactions to be carried out."""


class Server:
    """One node. All methods are called in the thread of its event loop. `parts` are there once it has started."""

    parts: Parts

    def __init__(
        self, data: Path, groups: GroupConfig, config: BrokerConfig, server_log: ServerLog, files: Files = REAL_FILES,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._data = data
        self._files = files
        self._clock = clock or Clock()
        self._groups = groups
        self._config = config
        self._server_log = server_log
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self.host, self.port = "", 0

    # Starting.

    async def start(self) -> None:
        """Raises `MusterError` where it cannot."""
        endpoint = client_listener(self._config)
        (await self._bound(endpoint.host, endpoint.port)).close()  # where that cannot be, no directory is made either
        directory = open_directory(self._data, self._config, self._groups, self._server_log, self._files)
        flusher = Flusher(deliver=self._loop.call_soon_threadsafe)
        try:
            self.parts = assemble(directory, flusher, self._config, self._groups, self._server_log, self._clock)
            self._loop.set_exception_handler(self._uncaught)
            await self._listen(endpoint.host, endpoint.port)
        except BaseException:
            flusher.close()
            directory.close()
            raise

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that no part of the server caught: the event loop has gone on with everything else."""
        error = context.get("exception")
        self.parts.faults.report(
            str(context.get("message", "")), error if error is not None else RuntimeError("no exception")
        )

    async def _bound(self, host: str, port: int) -> asyncio.Server:
        """A port that is ours, and not open yet."""
        try:
            return await self._loop.create_server(
                lambda: Connection(self.parts.connections, self._loop),
                host or None,
                port,
                backlog=self._config.socket_listen_backlog_size,
                start_serving=False,
            )
        except OSError as problem:
            raise cannot_listen(host, port, problem) from problem

    async def _listen(self, host: str, port: int) -> None:
        parts = self.parts
        self._listener = await self._bound(host, port)
        bound = self._listener.sockets[0].getsockname()
        advertised = advertised_listener(self._config)
        self.host, self.port = bound[0], bound[1]
        reached = (advertised.host, advertised.port or self.port) if advertised else (self.host, self.port)
        parts.cluster.node = Node(self._config.node_id, *reached, self._config.broker_rack)
        exposed = open_to_others(self._listener.sockets)
        if exposed is not None:
            self._server_log.say(exposed, event="open to others")
        parts.leadership.take_over()  # not before there is a port: the loads would be for nothing
        if parts.transactions.topic.take_over():
            await self._ends_carried_out()
        parts.schedule.start()
        await parts.control.start()
        await self._listener.start_serving()

    async def _ends_carried_out(self) -> None:
        """Transactions whose end was decided before are ended, as far as the disks allow."""
        parts = self.parts.transactions

        def are_carried_out() -> bool:
            is_loaded = not parts.leadership.is_at_work
            return is_loaded and parts.markers.is_at_rest and all(led.is_at_rest for led in self.parts.all_led)

        await self._until(are_carried_out, self._loop.time() + ENDS_WITHIN_S)

    # Stopping.

    async def stop(self) -> bool:
        """Stop in steps, within `STOP_WITHIN_S`; False if the logs could not be closed well, or not in time."""
        started = self._loop.time()
        parts = self.parts
        parts.connections.refuse_all(_leave_unanswered)
        if self._listener is not None:
            self._listener.close()
        for leadership in parts.leaderships:
            leadership.stop()
        parts.transactions.markers.stop()
        parts.data_partitions.stop()
        await self._background_ended()
        parts.fetches.finish()
        await self._until(
            lambda: not any(len(led.replies) for led in self._served()) and not len(parts.data_partitions),
            started + ANSWER_WITHIN_S,
        )
        parts.data_partitions.packing.stop()
        parts.long_requests.stop()
        for led_partitions in parts.all_led:
            for led in list(led_partitions.by_number.values()):
                if led.coordinator is not None:
                    led_partitions.resign(led.partition)
        await asyncio.sleep(0)
        parts.connections.close_all()
        for led_partitions in parts.all_led:
            led_partitions.close()
        well = await self._logs_closed(started + STOP_WITHIN_S)
        if well is None:
            self._server_log.say(
                f"the logs could not be closed within {STOP_WITHIN_S:g} s: the disk has not answered, or a load is not "
                "at its end. What was acknowledged is on the disk; the next start looks through the logs.",
                event="log failed",
            )
        return well or False

    async def abandon(self) -> None:
        """Stop as if the power had gone: no client is answered, nothing is written. Files are closed as they are."""
        parts = self.parts
        parts.connections.refuse_all(_leave_unanswered)
        if self._listener is not None:
            self._listener.close()
        for connection in list(parts.connections.open):
            connection.cut()
        parts.schedule.stop()
        parts.expiration.stop()
        for led_partitions in parts.all_led:
            led_partitions.close()
        for leadership in parts.leaderships:
            leadership.stop()
        parts.transactions.markers.stop()
        parts.data_partitions.stop()
        parts.data_partitions.packing.stop()
        parts.long_requests.stop()
        parts.flusher.end_threads()
        await parts.control.stop()
        await asyncio.wait([self._loop.create_task(parts.topic_changes.stop())], timeout=BACKGROUND_WITHIN_S)

        def end_threads() -> None:
            for leadership in parts.leaderships:
                leadership.close()
            parts.data_partitions.close()

        await self._loop.run_in_executor(None, end_threads)
        parts.directory.abandon()

    async def _background_ended(self) -> None:
        """Checkpoints, compaction and changes of topics come to their end, or are left alone."""
        parts = self.parts
        parts.schedule.stop()
        parts.expiration.stop()
        stops = [parts.checkpoints.stop(), parts.compaction.stop(), parts.topic_changes.stop(), parts.control.stop()]
        ended, late = await asyncio.wait(map(self._loop.create_task, stops), timeout=BACKGROUND_WITHIN_S)
        for task in late:
            task.cancel()
        for task in ended:
            if (error := task.exception()) is not None:
                self.parts.faults.report("a part of the server could not be stopped well", error)

    def _served(self) -> list[LedPartition[Any]]:
        all_led = [led for one in self.parts.all_led for led in one.by_number.values()]
        return [led for led in all_led if led.coordinator is not None]

    async def _logs_closed(self, deadline: float) -> bool | None:
        """Whether the logs could be closed well; None if it takes too long.

        They are closed in a thread, which is left alone in the end: a disk may never answer.
        """
        parts = self.parts
        is_idle = await self._until(lambda: not (parts.flusher.is_busy or parts.topic_changes.is_busy), deadline)
        parts.flusher.end_threads()
        if not is_idle:
            return None
        closed: asyncio.Future[bool] = self._loop.create_future()

        def tell(well: bool) -> None:
            if not closed.done():
                closed.set_result(well)

        def close() -> None:
            well = False
            try:
                for leadership in parts.leaderships:
                    leadership.close()
                parts.data_partitions.close()
                well = parts.directory.close()
            finally:
                with suppress(RuntimeError):  # the loop is closed: it was too late
                    self._loop.call_soon_threadsafe(tell, well)

        threading.Thread(target=close, name="muster-close", daemon=True).start()
        try:
            async with asyncio.timeout_at(deadline):
                return await closed
        except TimeoutError:
            return None

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait for something to come true; False if it is not in time."""
        while not condition():
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.005)
        return True


def _leave_unanswered(connection: Connection, data: bytes, position: int, end: int) -> PendingReply:
    """A request that comes while the server stops: its connection is closed behind the answers before it."""
    return connection.reply(ApiKey.API_VERSIONS, lambda context, answer: b"", None)
