"""What the server does at intervals: timeouts, checkpoints, flushes, and the search for expired offsets.

`Expiration` looks at all groups of all partitions, which may be a million: a few groups at a time, for a few
milliseconds in one turn of the loop, and at the rest in the turns that follow, so that requests are served in between.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from muster.core.events import ExpireOffsets
from muster.errors import LogDamaged, described
from muster.log.config import Flush
from muster.log.partition import DiskLog
from muster.log.steps import Steps, advance

if TYPE_CHECKING:
    from muster.server.led_partitions import LedPartitions
    from muster.server.server import Server


TICK_S = 1.0
CHECKPOINT_S = 60.0
SLOW_READER_S = 30.0
LEFT_AFTER_S = 5.0
"""A connection that has been silent for so long may have been closed by the client behind a request that waits."""
FORGET_PRODUCERS_S = 600.0
"""Kafka's `producer.id.expiration.check.interval.ms`."""


class Housekeeping:
    """Timeouts of answers, idle and slow connections, expiration, checkpoints, compaction."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._alarms: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._checkpointing: asyncio.Task[None] | None = None
        self._expiration = Expiration(server.shards)

    def start(self) -> None:
        config = self._server.config
        self._every(TICK_S, self._server.shards.time_out_held)
        self._every(TICK_S, self._server.give_up_failed_logs)
        self._every(TICK_S, self._server.compaction.delete_replaced)
        self._every(TICK_S, self._close_connections)
        self._every(TICK_S, self._server.complaints.look)
        self._every(TICK_S, self._server.remarks.look)
        self._every(TICK_S, self._server.faults.look)
        self._every(CHECKPOINT_S, self._checkpoint)
        self._every(FORGET_PRODUCERS_S, self._forget_producers)
        self._every(self._server.groups.offsets_retention_check_interval_ms / 1000, self._expiration.begin)
        self._every(max(config.log_cleaner_backoff_ms / 1000, 0.01), self._server.compaction.look)
        self._every(config.log_retention_check_interval_ms / 1000, self._server.compaction.delete_old)
        if config.muster_flush == Flush.INTERVAL:
            self._every(config.muster_flush_interval_ms / 1000, self._flush)

    async def stop(self) -> None:
        """Do nothing more, and let a checkpoint that is under way come to its end."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        self._expiration.stop()
        checkpointing = self._checkpointing
        if checkpointing is not None:
            try:
                await asyncio.wait([checkpointing])
            finally:
                checkpointing.cancel()

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        def again() -> None:
            self._alarms[work] = self._loop.call_later(seconds, again)
            try:
                work()
            except Exception as error:
                name = getattr(work, "__name__", "work").strip("_").replace("_", " ")
                self._server.fault(f"housekeeping: '{name}' broke off; it is tried again in {seconds:g} s", error)

        self._alarms[work] = self._loop.call_later(seconds, again)

    def _close_connections(self) -> None:
        """Those that do not read their answers, and those that have not asked for anything in a long time."""
        server, now = self._server, self._loop.time()
        idle_ms = server.config.connections_max_idle_ms
        for connection in list(server.connections()):
            if connection.full_since is not None and now - connection.full_since > SLOW_READER_S:
                connection.drop(f"it has not read its answers for {SLOW_READER_S:.0f} s")
                continue
            silent_s = now - connection.last_heard
            is_idle = 0 <= idle_ms < silent_s * 1000 and not connection.is_waiting
            if is_idle or (silent_s > LEFT_AFTER_S and connection.has_left):
                connection.close()
        server.intake.look(list(server.connections()))

    def _flush(self) -> None:
        server = self._server
        server.flusher.flush_all(
            [log for log in server.directory.logs.values() if log.failure is None], lambda error: None
        )

    def _checkpoint(self) -> None:
        if self._checkpointing is None:
            self._checkpointing = self._loop.create_task(self._write_checkpoints())
            self._checkpointing.add_done_callback(self._checkpoint_ended)

    async def _write_checkpoints(self) -> None:
        """Make all logs durable, indexes too, and write down how far they are: what recovery may then trust."""
        server = self._server
        logs = [log for log in list(server.directory.logs.values()) if log.failure is None]
        try:
            await self._take_snapshots(logs)
            logs = [log for log in logs if log.failure is None]
            durable: asyncio.Future[LogDamaged | None] = self._loop.create_future()

            def flushed(error: LogDamaged | None) -> None:
                if not durable.done():
                    durable.set_result(error)

            server.flusher.flush_all(logs, flushed, indexes=True)
            if await durable is None:
                await self._loop.run_in_executor(None, server.directory.write_checkpoints)
        except Exception as error:
            server.server_log.say(
                f"{described(error).rstrip('.')}. The next checkpoint is due in {CHECKPOINT_S:.0f} s.",
                event="checkpoint failed",
            )

    async def _take_snapshots(self, logs: list[DiskLog]) -> None:
        """One after the other; files are written in another thread. Recovery does without those that fail."""
        problems = []
        for log in logs:
            try:
                await self._carry_out(log.taking_snapshot())
            except LogDamaged as error:
                problems.append(str(error).rstrip("."))
        if problems:
            more = f" (and {len(problems) - 1} logs more)" if len(problems) > 1 else ""
            self._server.server_log.say(f"{problems[0]}{more}.", event="checkpoint failed")

    async def _carry_out(self, steps: Steps) -> None:
        """Steps in this thread, and waits between them in another."""
        error: OSError | None = None
        while (wait := advance(steps, error)) is not None:
            error = None
            try:
                await self._loop.run_in_executor(None, wait)
            except OSError as problem:
                error = problem

    def _checkpoint_ended(self, task: "asyncio.Task[None]") -> None:
        self._checkpointing = None

    def _forget_producers(self) -> None:
        expiration_ms = self._server.config.producer_id_expiration_ms
        for log in self._server.directory.logs.values():
            log.producers.forget_idle(self._server.shards.now().wall_ms, expiration_ms)


GROUPS_AT_A_TIME = 50
SLICE_S = 0.002


class Expiration:
    """One walk over all groups at a time; what is asked for meanwhile is part of it."""

    def __init__(self, shards: "LedPartitions") -> None:
        self._shards = shards
        self._loop = asyncio.get_running_loop()
        self._walk: Iterator[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._walk is not None

    def begin(self) -> None:
        """Look at all groups, from now on and in the turns that follow."""
        if self._walk is None:
            self._walk = self._all_groups()
            self._go_on()

    def stop(self) -> None:
        self._walk = None

    def _go_on(self) -> None:
        if self._walk is None:
            return
        until = self._loop.time() + SLICE_S
        for _ in self._walk:
            if self._loop.time() >= until:
                self._loop.call_soon(self._go_on)
                return
        self._walk = None

    def _all_groups(self) -> Iterator[None]:
        for shell in list(self._shards.shells.values()):
            coordinator = shell.coordinator
            group_ids = [] if coordinator is None else list(coordinator.groups)
            for first in range(0, len(group_ids), GROUPS_AT_A_TIME):
                if shell.coordinator is not coordinator:
                    break  # let go, or loaded again; the next walk looks at it
                self._shards.happen(shell, ExpireOffsets(group_ids[first : first + GROUPS_AT_A_TIME]))
                yield
