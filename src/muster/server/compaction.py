"""Compaction and retention of the logs, beside the requests.

A round runs in a thread. The steps that change a log come back to the loop's thread, which owns the logs; syncs between
the steps, the checkpoint and the removal of replaced segments stay in the round's thread, or another one.
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from typing import Any

from muster.config.broker import BrokerConfig
from muster.errors import LogDamaged
from muster.log.compaction.cleaner import CleaningCancelled, Job, Pace, Report, clean
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig, RetentionConfig
from muster.log.directory import LogDirectory
from muster.log.segment import Segment
from muster.log.steps import carry_out
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import Happened, TopicChange
from muster.server.server_log import ServerLog, Stats
from muster.server.timers import Clock

LOOK_WHETHER_CLOSED_S = 1.0


class Compaction:
    """One round at a time, the dirtiest log first; none over a log that is `on_loan` to the loader."""

    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        server_log: ServerLog,
        stats: Stats,
        on_loan: Container[TopicPartition],
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._config = config
        self._server_log = server_log
        self._stats = stats
        self._now = clock.now
        self._loop = asyncio.get_running_loop()
        self._cleaner = LogCleaner(
            directory.path,
            directory.logs,
            self._compaction_of,
            files=directory.files,
            memory_bytes=config.log_cleaner_dedupe_buffer_size,
            on_loan=on_loan,
            lock=directory.checkpoint_lock,
        )
        directory.was_truncated = self._cleaner.truncated
        self.reopened = self._cleaner.reopened
        self._pace: Pace | None = None
        self._round: asyncio.Task[None] | None = None

    def topic_changed(self, change: TopicChange) -> None:
        if change.happened is Happened.DELETED:
            self._cleaner.topic_deleted(change.topic.name)

    @property
    def is_under_way(self) -> bool:
        return self._round is not None

    @property
    def uncleanable_logs(self) -> int:
        return len(self._cleaner.uncleanable) + len(self._cleaner.paused)

    def _configs(self, key: TopicPartition) -> dict[str, str]:
        topic = self._directory.registry.get(key.topic)
        return {} if topic is None else dict(topic.configs)

    def _compaction_of(self, key: TopicPartition) -> CompactionConfig | None:
        log = self._directory.logs[key]
        if not log.config.compacted:
            return None
        configs, broker = self._configs(key), self._config

        def number(name: str) -> float:
            value = typed(name, configs, broker)
            assert isinstance(value, int | float)
            return value

        return CompactionConfig(
            number("min.cleanable.dirty.ratio"),
            int(number("min.compaction.lag.ms")),
            int(number("max.compaction.lag.ms")),
            int(number("delete.retention.ms")),
            int(number("file.delete.delay.ms")),
        )

    def _retention_of(self, key: TopicPartition) -> RetentionConfig:
        configs, broker = self._configs(key), self._config
        retention_ms, retention_bytes = (typed(name, configs, broker) for name in ("retention.ms", "retention.bytes"))
        policy = typed("cleanup.policy", configs, broker)
        assert isinstance(retention_ms, int)
        assert isinstance(retention_bytes, int)
        deletes = "delete" in (policy if isinstance(policy, tuple) else ())
        return RetentionConfig(retention_ms, retention_bytes, deletes)

    def begin_if_due(self) -> None:
        """Begin a round if one is due and none is under way."""
        if self._round is not None:
            return
        job = self._cleaner.next_job(self._now().wall_ms)
        self._tell_notes()
        if job is not None:
            self._pace = Pace()
            self._round = self._loop.create_task(self._run(job, self._pace))
            self._round.add_done_callback(self._ended)

    def delete_old(self) -> None:
        """Retention; log starts are written down with the next checkpoint."""
        try:
            self._cleaner.delete_old_segments(self._now().wall_ms, self._retention_of)
        except LogDamaged as error:
            self._server_log.say(str(error), event="retention failed")

    def delete_replaced(self) -> None:
        """Remove segments that were replaced `file.delete.delay.ms` ago."""
        due = self._cleaner.take_replaced()
        if due:
            self._loop.run_in_executor(None, self._cleaner.delete, due)

    async def let_go(self, key: TopicPartition) -> None:
        """Return when no round is at work on a log; one that is gets cancelled. Another may begin unless prevented."""
        while self._round is not None and self._cleaner.in_progress == key:
            if self._pace is not None:
                self._pace.cancel()
            await asyncio.wait([self._round])

    async def stop(self) -> None:
        """End the round, and remove the segments it replaced: no reader is left."""
        if self._pace is not None:
            self._pace.cancel()
        if self._round is not None:
            await asyncio.wait([self._round])
        replaced = self._cleaner.take_replaced(everything=True)
        if replaced:
            removal = self._loop.run_in_executor(None, self._cleaner.delete, replaced)
            await asyncio.wait([removal])

    async def _run(self, job: Job, pace: Pace) -> None:
        try:
            report = await self._loop.run_in_executor(None, clean, job, self._swap, pace)
        except Exception as error:
            self._cleaner.failed(error)
        else:
            self._cleaner.finished(report)
            self._tell(job, report)
            await self._loop.run_in_executor(None, self._cleaner.save_offsets)
        self._tell_notes()

    def _swap(self, old: Sequence[Segment], new: Segment) -> None:
        carry_out(self._cleaner.swapping(old, new), self._in_loops_thread)

    def _in_loops_thread(self, call: Callable[[], Any]) -> Any:
        """From the thread of a round into that of the logs, and wait."""
        done: Future[Any] = Future()

        def tell() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(tell)
        while True:
            try:
                return done.result(LOOK_WHETHER_CLOSED_S)
            except TimeoutError:
                if done.done():
                    raise
                if self._loop.is_closed():
                    raise CleaningCancelled("the server has stopped") from None

    def _tell(self, job: Job, report: Report) -> None:
        stats, counted = self._stats, report.counted
        seconds = report.learning_s + report.keeping_s
        stats.compactions += 1
        stats.compacted_bytes += max(counted.bytes_read - counted.bytes_kept, 0)
        stats.compaction_s += seconds
        self._server_log.say(
            f"{job.name} compacted in {seconds:.1f} s: {counted.bytes_read} bytes became {counted.bytes_kept}",
            event="compacted", log=job.name, bytes_before=counted.bytes_read, bytes_after=counted.bytes_kept,
        )  # fmt: skip

    def _tell_notes(self) -> None:
        while self._cleaner.notes:
            self._server_log.say(self._cleaner.notes.popleft(), event="compaction")

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._round = self._pace = None
