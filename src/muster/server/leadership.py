"""Which partitions of a topic this server leads: they are loaded, loaded again after a failure, and let go.

One task brings a partition up, and no partition has two. It opens the log again if its disk had failed, loads it, and
lets its groups be served. Whatever goes wrong on the way is told and tried again, after a second at first and after a
minute in the end, until the partition is served, or let go, or the server stops. The pauses of a partition that fails
again within a minute grow on; those of one that an operator loads begin anew. A partition that waits for its next try
is FAILED: its groups hear NOT_COORDINATOR, and lists of all groups go without them.

Opening and loading run in a thread, one partition after the other: they would share the interpreter anyway, and each
needs room of its own. Meanwhile the log is on loan to that thread (`on_loan`), and the loop's thread neither appends to
it, nor cuts it, nor compacts it, nor lets retention at it. A round of compaction that is under way is cancelled, and
has ended before the loan begins.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from muster.core.groups import LoadFailed
from muster.core.router import Machine, Ownership
from muster.errors import LogDamaged, described
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.log.steps import GrowingPause
from muster.segments.checkpoints import TopicPartition
from muster.segments.sources import OFFSETS_TOPIC
from muster.server import process
from muster.server.compaction import Compaction
from muster.server.led_partitions import NEVER_LED, LedPartition, LedPartitions
from muster.server.server_log import ServerLog

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries to bring a partition up."""
LOAD_AT_START_BYTES = 1 << 20
"""Partitions up to this size, together, are loaded before the server listens."""

Result = TypeVar("Result")


class Loaded(NamedTuple, Generic[Machine]):
    """What came of a load."""

    coordinator: Machine
    records: int
    found: tuple[int, int]
    """What there is now, as the router's `counts` names it."""
    problems: Sequence[str]
    seconds: float


Progress = Callable[[int, int], None]
"""Hears of records and bytes so far; raises to break a load off."""
Load = Callable[[DiskLog, Progress, int, int], Loaded[Machine]]
"""Reads a log, for an epoch; the bytes are those of all logs that are to be loaded, this one among them."""


class LoadOvertaken(LoadFailed):
    """The partition was let go, or elected again, while it was loaded, or the server stops."""


class Leadership(Generic[Machine]):
    """All methods are called in the thread of the event loop. `load` reads a log, in any thread."""

    def __init__(
        self,
        topic: str,
        led_partitions: LedPartitions[Machine],
        load: Load[Machine],
        directory: LogDirectory,
        compaction: Compaction,
        server_log: ServerLog,
        on_loan: set[TopicPartition],
    ) -> None:
        self.topic = topic
        self.led_partitions = led_partitions
        self._router = led_partitions.router
        self._load_log = load
        self._directory = directory
        self._compaction = compaction
        self._server_log = server_log
        self._loop = asyncio.get_running_loop()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wake: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._pauses: dict[int, GrowingPause] = {}
        self._served_at: dict[int, float] = {}
        self._told: dict[int, str] = {}  # the last problem of each partition that is not served
        self._is_stopping = False
        self._on_loan = on_loan
        """Logs that the loader's thread works on; compaction leaves them alone."""

    def take_over(self) -> None:
        """Lead all partitions; load them here and now if that is little, else one by one, the smallest first."""
        partitions = self.led_partitions.by_number
        for partition in range(self._router.partitions):
            key = self._key(partition)
            name = f"partition {partition}" if self.topic == OFFSETS_TOPIC else str(key)
            partitions[partition] = LedPartition(partition, name, self._directory.logs[key])
        by_size = sorted(partitions.values(), key=lambda led: led.log.size_bytes)
        is_little = sum(led.log.size_bytes for led in by_size) < LOAD_AT_START_BYTES
        for led in by_size:
            self.elect(led.partition, at_once=is_little)

    def _key(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def elect(self, partition: int, *, at_once: bool = False) -> None:
        """Lead a partition, in a new epoch: load it, then answer for it."""
        led = self.led_partitions.by_number[partition]
        if led.coordinator is not None:
            self.led_partitions.resign(partition)
        if not self._begin_epoch(led):
            return
        self._pauses.pop(partition, None)
        if at_once:
            try:
                self._serve(led, led.epoch, self._load(led.log, partition, led.epoch))
            except Exception as error:
                self._failed(led, led.epoch, error)
            else:
                return
        self._bring_up_soon(led, after_pause=at_once)

    def resign(self, partition: int) -> tuple[int, int]:
        """Let a partition go; returns what its coordinator let go: groups and offsets, or transactions and 0."""
        led = self.led_partitions.by_number[partition]
        let_go = self.led_partitions.resign(partition)
        self._told.pop(partition, None)
        self._wake[partition].set()
        process.search_everything_once()
        self._server_log.say(
            f"{led.name} unloaded: {self._router.counted(*let_go)}",
            event="unloaded", partition=partition, **dict(zip(self._router.counts, let_go, strict=False)),
        )  # fmt: skip
        return let_go

    def let_all_go(self) -> None:
        """The topic is about to be deleted: nothing of it is led any more."""
        for partition in list(self.led_partitions.by_number):
            self.resign(partition)
        self.led_partitions.by_number.clear()

    @property
    def is_at_work(self) -> bool:
        """Whether a partition is being loaded, or waits for it."""
        return bool(self._tasks)

    def log_failed(self, led: LedPartition[Machine], error: LogDamaged) -> None:
        """The disk failed under a partition, which was let go: look at the disk again in a while."""
        self._server_log.say(f"{led.name}: {str(error).rstrip('.')}. It is read again.", event="log failed")
        if not self._is_stopping:
            self._withdraw(led)
            self._bring_up_soon(led, after_pause=True)

    def give_up_failed_logs(self) -> None:
        """A disk may fail outside an append too: under a checkpoint, or when compaction swaps a segment in."""
        for led in self.led_partitions.by_number.values():
            if led.coordinator is not None and led.log.failure is not None:
                self.led_partitions.resign(led.partition)
                self.log_failed(led, LogDamaged(f"{led.log.failure}."))

    def stop(self) -> None:
        """Nothing is brought up any more; `close` waits for the thread."""
        self._is_stopping = True
        for task in self._tasks.values():
            task.cancel()

    def close(self) -> None:
        """Wait until no log is on loan any more; in any thread, after `stop`."""
        self._loader.shutdown(cancel_futures=True)

    # From an epoch to a partition that is served.

    def _begin_epoch(self, led: LedPartition[Machine]) -> bool:
        led_before = led.log.leader_epoch if led.log.end_offset else NEVER_LED
        epoch = max(led.epoch, led_before) + 1
        if not self._router.elect(led.partition, epoch):
            return False
        led.epoch = epoch
        return True

    def _withdraw(self, led: LedPartition[Machine]) -> None:
        """Lead a partition without serving it, until it is loaded again."""
        led.coordinator = None
        if self._begin_epoch(led):
            self._router.load_failed(led.partition, led.epoch)

    def _wanted(self, partition: int) -> int | None:
        """The epoch in which a partition should be served and is not yet. Asked by the loader's thread too."""
        found = self._router.routed.get(partition)
        if found is None or found.ownership is Ownership.ACTIVE or self._is_stopping:
            return None
        return found.epoch

    def _bring_up_soon(self, led: LedPartition[Machine], *, after_pause: bool) -> None:
        partition = led.partition
        if partition in self._tasks:
            self._wake[partition].set()
            return
        self._tasks[partition] = self._loop.create_task(self._bring_up(led, after_pause))

    async def _bring_up(self, led: LedPartition[Machine], after_pause: bool) -> None:
        """Try until the partition is served, or need not be any more."""
        partition = led.partition
        if self._loop.time() - self._served_at.get(partition, float("-inf")) > LONGEST_PAUSE_S:
            self._pauses.pop(partition, None)
        try:
            if after_pause:
                await self._pause(partition)
            while (epoch := self._wanted(partition)) is not None:
                await self._attempt(led, epoch)
                if self.led_partitions.states()[partition] is Ownership.FAILED:  # and not elected again meanwhile
                    await self._pause(partition)
        finally:
            del self._tasks[partition]

    async def _pause(self, partition: int) -> None:
        """Wait, longer each time, or until the partition is elected or let go."""
        if partition not in self._pauses:
            self._pauses[partition] = GrowingPause(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        wake = self._wake[partition]
        wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), self._pauses[partition].next_s())

    async def _attempt(self, led: LedPartition[Machine], epoch: int) -> None:
        key = self._key(led.partition)
        self._on_loan.add(key)
        try:
            await self._compaction.let_go(key)
            if led.log.failure is not None:
                await self._open_again(led)
            led.log.write()
            loaded = await self._in_thread(partial(self._load, led.log, led.partition, epoch))
            self._serve(led, epoch, loaded)
        except Exception as error:
            self._failed(led, epoch, error)
        finally:
            self._on_loan.discard(key)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await self._loop.run_in_executor(self._loader, work)

    async def _open_again(self, led: LedPartition[Machine]) -> None:
        """The old log stays where it is, for readers, until the new one takes its place."""
        key, directory = self._key(led.partition), self._directory
        led.log = await self._in_thread(partial(directory.open_again, key))
        failed = directory.replace_log(key, led.log)
        self._loader.submit(failed.abandon)  # closing a file waits for a sync that is under way
        self._compaction.reopened(key)
        for note in led.log.report.notes:
            self._server_log.say(note)

    def _load(self, log: DiskLog, partition: int, epoch: int) -> Loaded[Machine]:
        """In the loader's thread: read the log, and write down that a new leader's records begin at its end."""

        def look_whether_to_go_on(records: int, size_bytes: int) -> None:
            if self._wanted(partition) != epoch:
                raise LoadOvertaken("the partition was let go meanwhile")

        in_all_bytes = sum(led.log.size_bytes for led in self.led_partitions.by_number.values())
        loaded = self._load_log(log, look_whether_to_go_on, in_all_bytes, epoch)
        log.leader_epoch = epoch
        return loaded

    def _serve(self, led: LedPartition[Machine], epoch: int, loaded: Loaded[Machine]) -> None:
        try:
            if not self.led_partitions.begin_serving(led.partition, epoch, loaded.coordinator):
                return
        except Exception:
            self._withdraw(led)
            raise
        self._told.pop(led.partition, None)
        self._served_at[led.partition] = self._loop.time()
        led.load_seconds, led.records_loaded = loaded.seconds, loaded.records
        if loaded.records:
            self._server_log.say(
                f"{led.name} loaded in {loaded.seconds * 1000:.0f} ms: {loaded.records} records, "
                f"{self._router.counted(*loaded.found)}",
                event="loaded", partition=led.partition, records=loaded.records,
                **dict(zip(self._router.counts, loaded.found, strict=False)), seconds=round(loaded.seconds, 3),
            )  # fmt: skip
        for problem in loaded.problems:
            self._server_log.say(f"{led.name}: {problem}", event="damaged", partition=led.partition)

    def _failed(self, led: LedPartition[Machine], epoch: int, error: Exception) -> None:
        """Tell of a problem when it is new, not with every try."""
        if isinstance(error, LoadOvertaken):
            return
        self._router.load_failed(led.partition, epoch)
        problem = described(error)
        if self._told.get(led.partition) != problem:
            self._told[led.partition] = problem
            self._server_log.say(
                f"{led.name} cannot be served: {problem.rstrip('.')}. Its log is not changed, and "
                "is loaded again until that works.",
                event="load failed", partition=led.partition,
            )  # fmt: skip
