"""What the server does at intervals: timeouts, checkpoints, flushes, and the search for expired offsets.

`Schedule` calls functions; which, and how often, stands in `assembly.py`. `Checkpoints` make all logs durable and write
down how far they are. `Expiration` looks at all groups of all partitions, which may be a million: a few groups at a
time, for a few milliseconds in one turn of the loop, and at the rest in the turns that follow, so that requests are
served in between.
"""

import asyncio
from collections.abc import Callable, Iterator

from muster.config.broker import BrokerConfig
from muster.core.events import ExpireOffsets
from muster.errors import LogDamaged, described
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.log.steps import Steps, advance
from muster.server.led_partitions import LedGroups
from muster.server.server_log import FaultLog, ServerLog
from muster.server.timers import Clock

CHECKPOINT_S = 60.0
GROUPS_AT_A_TIME = 50
SLICE_S = 0.002


class Schedule:
    """Calls functions at intervals. One that raises is reported, and called again in its time."""

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._work: list[tuple[float, Callable[[], None]]] = []
        self.by_clock: list[tuple[float, Callable[[], None]]] = []
        """The work that looks at the server's clock: a test that turns it has this called on the way."""
        self._alarms: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def every(self, seconds: float, work: Callable[[], None], *, by_clock: bool = False) -> None:
        self._work.append((seconds, work))
        if by_clock:
            self.by_clock.append((seconds, work))

    def start(self) -> None:
        for seconds, work in self._work:
            self._call_later(seconds, work)

    def stop(self) -> None:
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self._alarms[work] = self._loop.call_later(seconds, self._call, seconds, work)

    def _call(self, seconds: float, work: Callable[[], None]) -> None:
        self._call_later(seconds, work)
        try:
            work()
        except Exception as error:
            name = getattr(getattr(work, "func", work), "__name__", "work").replace("_", " ")
            self._faults.report(f"housekeeping: '{name}' failed; it is called again in {seconds:g} s", error)


class Checkpoints:
    """Make all logs durable, indexes too, and write down how far they are: what recovery may then trust."""

    def __init__(self, directory: LogDirectory, flusher: Flusher, server_log: ServerLog) -> None:
        self._directory = directory
        self._flusher = flusher
        self._server_log = server_log
        self._loop = asyncio.get_running_loop()
        self._under_way: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def begin(self) -> None:
        """Write one, unless one is under way."""
        if self._under_way is None:
            self._under_way = self._loop.create_task(self._write())
            self._under_way.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._under_way = None

    async def stop(self) -> None:
        """Let the one that is under way come to its end."""
        under_way = self._under_way
        if under_way is not None:
            try:
                await asyncio.wait([under_way])
            finally:
                under_way.cancel()

    async def _write(self) -> None:
        logs = [log for log in list(self._directory.logs.values()) if log.failure is None]
        try:
            await self._take_snapshots(logs)
            logs = [log for log in logs if log.failure is None]
            durable: asyncio.Future[LogDamaged | None] = self._loop.create_future()

            def flushed(error: LogDamaged | None) -> None:
                if not durable.done():
                    durable.set_result(error)

            self._flusher.flush_all(logs, flushed, indexes=True)
            if await durable is None:
                await self._loop.run_in_executor(None, self._directory.write_checkpoints)
        except Exception as error:
            self._server_log.say(
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
            self._server_log.say(f"{problems[0]}{more}.", event="checkpoint failed")

    async def _carry_out(self, steps: Steps) -> None:
        """Do steps in this thread, and the waits between them in another."""
        error: OSError | None = None
        while (wait := advance(steps, error)) is not None:
            error = None
            try:
                await self._loop.run_in_executor(None, wait)
            except OSError as problem:
                error = problem


def forget_idle_producers(directory: LogDirectory, config: BrokerConfig, clock: Clock) -> None:
    for log in directory.logs.values():
        log.producers.forget_idle(clock.now().wall_ms, config.producer_id_expiration_ms)


def flush_logs(directory: LogDirectory, flusher: Flusher) -> None:
    """With `muster.flush=interval`."""
    flusher.flush_all([log for log in directory.logs.values() if log.failure is None], lambda error: None)


class Expiration:
    """One walk over all groups at a time; a walk that is asked for meanwhile is the same one."""

    def __init__(self, led_partitions: LedGroups) -> None:
        self._led_partitions = led_partitions
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
        walk, self._walk = self._walk, None  # a walk that raises is over, and the next one begins anew
        for _ in walk:
            if self._loop.time() >= until:
                self._walk = walk
                self._loop.call_soon(self._go_on)
                return

    def _all_groups(self) -> Iterator[None]:
        for led in list(self._led_partitions.by_number.values()):
            coordinator = led.coordinator
            group_ids = [] if coordinator is None else list(coordinator.groups)
            for first in range(0, len(group_ids), GROUPS_AT_A_TIME):
                if led.coordinator is not coordinator:
                    break  # let go, or loaded again; the next walk looks at it
                self._led_partitions.apply(led, ExpireOffsets(group_ids[first : first + GROUPS_AT_A_TIME]))
                yield
