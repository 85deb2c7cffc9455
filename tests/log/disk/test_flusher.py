"""Group commit: who shares a sync with whom, and in which thread the news arrives."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.errors import LogDamaged
from muster.log.config import Flush, LogConfig
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.segments.files import File
from tests.log.disk.unsynced import UnsyncedFile, UnsyncedFiles

START_MS = 1_800_000_000_000
CONFIG = LogConfig(flush=Flush.ALWAYS, index_interval_bytes=200)
WAIT_S = 20


class Gate(UnsyncedFiles):
    """Files whose syncs wait until they are let through, are counted, and fail on request."""

    def __init__(self) -> None:
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.entered = threading.Semaphore(0)
        self.syncs: Counter[str] = Counter()
        self.threads: set[str] = set()
        self.error: OSError | None = None

    def shut(self) -> None:
        self.open_gate.clear()
        while self.entered.acquire(blocking=False):
            pass

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        assert isinstance(file, UnsyncedFile)
        return GatedFile(file, self)

    def pass_through(self, point: str) -> None:
        self.entered.release()
        assert self.open_gate.wait(WAIT_S)
        self.syncs[point] += 1
        self.threads.add(threading.current_thread().name)
        if self.error is not None:
            raise self.error


class GatedFile(UnsyncedFile):
    __slots__ = ("_gate",)

    def __init__(self, file: UnsyncedFile, gate: Gate) -> None:
        super().__init__(file.path, file._fd)
        self._gate = gate

    def sync(self, point: str) -> None:
        self._gate.pass_through(point)


def append(log: DiskLog) -> int:
    return log.append([(b"k", b"v")], START_MS)


def test_requests_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    gate = Gate()
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=gate)
    append(log)
    log.flush()
    told: list[int] = []
    with Flusher(2) as flusher:
        gate.syncs.clear()
        gate.shut()
        for number in range(100):
            append(log)
            flusher.flush(log, lambda error, number=number: told.append(number))  # type: ignore[misc]
            if number == 0:
                assert gate.entered.acquire(timeout=WAIT_S)
        assert told == []
        assert log.flushed_offset == 1
        gate.open_gate.set()
        flusher.drain()
        assert told == list(range(100))
        assert gate.syncs == {"flush.log": 2}
        assert flusher.syncs == 2
        assert log.flushed_offset == 101


def test_what_is_appended_during_a_sync_is_not_promised_by_it(tmp_path: Path) -> None:
    gate = Gate()
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=gate)
    append(log)
    flushed: list[int] = []
    with Flusher(1) as flusher:
        gate.shut()
        flusher.flush(log, lambda error: flushed.append(log.flushed_offset))
        assert gate.entered.acquire(timeout=WAIT_S)
        append(log)
        log.write()
        gate.open_gate.set()
        flusher.drain()
        assert flushed == [1]
        assert (log.flushed_offset, log.written_offset) == (1, 2)


def test_many_logs_at_once(tmp_path: Path) -> None:
    gate = Gate()
    logs = [DiskLog.open(tmp_path / f"t-{number}", CONFIG, files=gate) for number in range(20)]
    told: list[LogDamaged | None] = []
    with Flusher(4) as flusher:
        for log in logs[:15]:
            append(log)
        gate.shut()
        flusher.flush_all(logs, told.append)
        for _ in range(4):
            assert gate.entered.acquire(timeout=WAIT_S)  # four of them are under way at the same time
        gate.open_gate.set()
        flusher.drain()
        assert told == [None]
        assert len(gate.threads - {"MainThread"}) == 4
        assert [log.flushed_offset for log in logs] == [1] * 15 + [0] * 5


def test_nothing_to_do_is_said_later_too(tmp_path: Path) -> None:
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=UnsyncedFiles())
    log.flush()
    told: list[LogDamaged | None] = []
    with Flusher(1) as flusher:
        flusher.flush(log, told.append)
        flusher.flush_all([], told.append)
        assert told == []
        flusher.drain()
        assert told == [None, None]
        assert flusher.syncs == 0


def test_a_sync_that_fails_fails_everybody_behind_it(tmp_path: Path) -> None:
    gate = Gate()
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=gate)
    other = DiskLog.open(tmp_path / "t-1", CONFIG, files=gate)
    told: list[LogDamaged | None] = []
    with Flusher(1) as flusher:
        gate.shut()
        gate.error = OSError(5, "Input/output error")
        append(log)
        flusher.flush(log, told.append)
        assert gate.entered.acquire(timeout=WAIT_S)
        append(log)
        flusher.flush(log, told.append)
        gate.open_gate.set()
        flusher.drain()
        assert [type(one) for one in told] == [LogDamaged, LogDamaged]
        assert log.flushed_offset == 0
        gate.error = None
        flusher.flush_all([log, other], told.append)
        flusher.drain()
        assert isinstance(told[-1], LogDamaged)
        with pytest.raises(LogDamaged):
            log.write()


def test_a_log_that_is_closed_or_cut_meanwhile(tmp_path: Path) -> None:
    for number, (leave, durable) in enumerate([(DiskLog.close, True), (DiskLog.abandon, False), (cut, False)]):
        gate = Gate()
        log = DiskLog.open(tmp_path / f"t-{number}", CONFIG, files=gate)
        told: list[LogDamaged | None] = []
        with Flusher(1) as flusher:
            append(log)
            gate.shut()
            flusher.flush(log, told.append)
            assert gate.entered.acquire(timeout=WAIT_S)
            gate.open_gate.set()
            leave(log)
            flusher.drain()
        assert [one is None for one in told] == [durable]


def cut(log: DiskLog) -> None:
    log.truncate_to(0)


def test_a_callback_may_ask_for_more(tmp_path: Path) -> None:
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=UnsyncedFiles())
    rounds: list[int] = []
    with Flusher(2) as flusher:

        def again(error: LogDamaged | None) -> None:
            assert error is None
            rounds.append(log.flushed_offset)
            if len(rounds) < 5:
                append(log)
                flusher.flush(log, again)

        append(log)
        flusher.flush(log, again)
        flusher.drain()
    assert rounds == [1, 2, 3, 4, 5]


def test_rolled_segments_and_indexes_are_synced_too(tmp_path: Path) -> None:
    gate = Gate()
    log = DiskLog.open(tmp_path / "t-0", LogConfig(segment_bytes=400, index_interval_bytes=100), files=gate)
    with Flusher(2) as flusher:
        for _ in range(12):
            log.append([(b"k", b"v" * 50)], START_MS)
            log.write()
        assert len(log.segments) > 2
        flusher.flush_all([log], lambda error: None, indexes=True)
        flusher.drain()
        assert log.recovery_point == log.flushed_offset == 12
        closed = len(log.segments) - 1
        assert gate.syncs["closed.log"] == gate.syncs["closed.index"] == gate.syncs["closed.timeindex"] == closed
        assert gate.syncs["checkpoint.index"] == 1


def test_with_an_event_loop(tmp_path: Path) -> None:
    """As a server does it: news comes as callbacks of the loop, and the loop never waits for a disk."""
    logs = [DiskLog.open(tmp_path / f"t-{number}", CONFIG, files=UnsyncedFiles()) for number in range(5)]
    threads: set[str] = set()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        with Flusher(2, deliver=loop.call_soon_threadsafe) as flusher:

            async def commit(log: DiskLog) -> None:
                done: asyncio.Future[None] = loop.create_future()

                def then(error: LogDamaged | None) -> None:
                    threads.add(threading.current_thread().name)
                    done.set_result(None)

                offset = append(log)
                flusher.flush(log, then)
                await asyncio.wait_for(done, WAIT_S)
                assert log.flushed_offset > offset

            await asyncio.gather(*(commit(log) for log in logs for _ in range(50)))
            assert flusher.syncs < 250

    asyncio.run(serve())
    assert threads == {"MainThread"}
    assert [log.flushed_offset for log in logs] == [50] * 5


class Unwritable:
    """A log that fails in a way nobody thought of."""

    def __init__(self, log: DiskLog, method: str) -> None:
        self._log = log
        self._method = method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            raise RuntimeError("a mistake")
        return getattr(self._log, name)


@pytest.mark.parametrize("method", ["write", "unsynced", "synced"])
def test_a_log_that_fails_takes_no_other_with_it(tmp_path: Path, method: str) -> None:
    logs = [DiskLog.open(tmp_path / f"t-{number}", CONFIG, files=UnsyncedFiles()) for number in range(3)]
    told: dict[int, LogDamaged | None] = {}
    flusher = Flusher(2)
    requests: list[tuple[Any, Callable[[LogDamaged | None], None]]] = []
    for number, log in enumerate(logs):
        append(log)
        failing = Unwritable(log, method) if number == 1 else log
        requests.append((failing, lambda error, number=number: told.update({number: error})))  # type: ignore[misc]
    flusher.flush_each(requests)
    deadline = time.monotonic() + WAIT_S
    while len(told) < 3:
        assert time.monotonic() < deadline, told
        flusher.finish()
    flusher.close()
    assert told[0] is None
    assert told[2] is None
    assert isinstance(told[1], LogDamaged)
    assert "RuntimeError: a mistake" in str(told[1])
    assert [logs[0].flushed_offset, logs[2].flushed_offset] == [1, 1]


def test_a_callback_that_raises_keeps_no_other_from_being_called(tmp_path: Path) -> None:
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=UnsyncedFiles())
    told: list[int] = []
    problems: list[str] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(str(context["exception"])))
        flusher = Flusher(2, deliver=loop.call_soon_threadsafe)

        def then(number: int, error: LogDamaged | None) -> None:
            if number % 2:
                raise ValueError(str(number))
            told.append(number)

        append(log)
        for number in range(4):
            flusher.flush(log, partial(then, number))
        for number in range(4, 8):
            flusher.flush_all([], partial(then, number))
        deadline = loop.time() + WAIT_S
        while len(told) + len(problems) < 8:
            assert loop.time() < deadline, (told, problems)
            await asyncio.sleep(0.01)
        flusher.close()

    asyncio.run(serve())
    assert sorted(told) == [0, 2, 4, 6]
    assert sorted(problems) == ["1", "3", "5", "7"]


def test_the_last_callbacks_are_called_even_if_one_raises(tmp_path: Path) -> None:
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=UnsyncedFiles())
    told: list[LogDamaged | None] = []

    def mistaken(error: LogDamaged | None) -> None:
        raise ValueError("a mistake")

    flusher = Flusher(1)
    append(log)
    for then in (mistaken, told.append, mistaken, told.append):
        flusher.flush(log, then)
    with pytest.raises(ValueError, match="a mistake"):
        flusher.close()
    assert told == [None, None]
    assert not any(thread.is_alive() for thread in flusher._threads)


def test_threads_end_when_their_syncs_do_and_nobody_waits_for_them(tmp_path: Path) -> None:
    gate = Gate()
    log = DiskLog.open(tmp_path / "t-0", CONFIG, files=gate)

    async def serve() -> Flusher:
        flusher = Flusher(2, deliver=asyncio.get_running_loop().call_soon_threadsafe)
        append(log)
        gate.shut()
        flusher.flush(log, lambda error: None)
        assert gate.entered.acquire(timeout=WAIT_S)
        assert flusher.is_busy
        flusher.end_threads()
        return flusher

    flusher = asyncio.run(serve())  # the loop is closed while a sync is under way
    gate.open_gate.set()
    for thread in flusher._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
