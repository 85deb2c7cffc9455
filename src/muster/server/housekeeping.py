"""What a server does every now and then without being asked."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.errors import LogDamaged
from muster.log.partition import DiskLog
from muster.log.partition_config import Flush
from muster.server.compaction import Compaction

if TYPE_CHECKING:
    from muster.server.server import Server

TICK_S = 1.0
CHECKPOINT_S = 60.0
SLOW_READER_S = 30.0
FORGET_PRODUCERS_S = 600.0
"""Kafka's `producer.id.expiration.check.interval.ms`."""


class Housekeeping:
    """Timeouts of answers, idle and slow connections, expiration, checkpoints, compaction."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._alarms: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self.compaction = Compaction(server)

    def start(self) -> None:
        config = self._server.config
        self._every(TICK_S, self._tick)
        self._every(CHECKPOINT_S, self._checkpoint)
        self._every(FORGET_PRODUCERS_S, self._forget_producers)
        self._every(self._server.groups.offsets_retention_check_interval_ms / 1000, self._server.shards.expire_offsets)
        self._every(max(config.log_cleaner_backoff_ms / 1000, 0.01), self.compaction.look)
        self._every(config.log_retention_check_interval_ms / 1000, self.compaction.delete_old)
        if config.muster_flush == Flush.INTERVAL:
            self._every(config.muster_flush_interval_ms / 1000, self._flush)

    async def stop(self) -> None:
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        await self.compaction.stop()

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        def again() -> None:
            self._alarms[work] = self._loop.call_later(seconds, again)
            work()

        self._alarms[work] = self._loop.call_later(seconds, again)

    def _tick(self) -> None:
        server, now = self._server, self._loop.time()
        server.shards.time_out_held()
        server.give_up_failed_logs()
        idle_ms = server.config.connections_max_idle_ms
        for connection in list(server.connections()):
            if connection.full_since is not None and now - connection.full_since > SLOW_READER_S:
                connection.drop(f"it has not read its answers for {SLOW_READER_S:.0f} s")
            elif 0 <= idle_ms < (now - connection.last_heard) * 1000 and not connection.is_waiting:
                connection.close()
        server.intake.look(list(server.connections()))
        server.complaints.look()
        server.remarks.look()

    def _flush(self) -> None:
        server = self._server
        server.flusher.flush_all(
            [log for log in server.directory.logs.values() if log.failure is None], lambda error: None
        )

    def _checkpoint(self) -> None:
        """Make all logs durable, indexes too, and write down how far they are: what recovery may then trust."""
        server = self._server
        logs = [log for log in server.directory.logs.values() if log.failure is None]

        def written(error: LogDamaged | None) -> None:
            if error is None:
                try:
                    server.directory.write_checkpoints()
                except LogDamaged as problem:
                    server.journal.say(str(problem), event="checkpoint failed")

        server.flusher.flush_all([log for log in logs if self._take_snapshot(log)], written, indexes=True)

    def _take_snapshot(self, log: DiskLog) -> bool:
        """False if its disk failed; the next tick sees to that."""
        try:
            log.take_snapshot()
        except LogDamaged as error:
            self._server.journal.say(str(error), event="checkpoint failed")
            return False
        return True

    def _forget_producers(self) -> None:
        expiration_ms = self._server.config.producer_id_expiration_ms
        for log in self._server.directory.logs.values():
            log.producers.forget_idle(self._server.shards.now().wall_ms, expiration_ms)
