"""SIGTERM ends a server in time, whatever it is doing; what it acknowledged is there afterwards.

Servers here run with something built in that hangs once a file appears: a disk, a load, the event loop itself.
"""

import asyncio
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from muster.cli import serve as stop_signals
from muster.errors import LogDamaged
from muster.protocol.apis import ApiKey
from muster.protocol.messages import encode_request
from muster.segments.files import File
from muster.server import server as server_module
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import settings_from
from tests.log.disk.unsynced import UnsyncedFile, UnsyncedFiles
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, running, wait_until_loaded
from tests.server.test_abuse import JOIN

WAIT_S = 20
STATIC = JOIN | {"groupInstanceId": "seat"}

BUILT_IN = """
import os, runpy, sys, time
from pathlib import Path

trigger, reached = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
sys.argv[0] = "muster"

def hang(*_, **__):
    while trigger.exists():
        reached.touch()
        time.sleep(0.02)

{}
runpy.run_module("muster", run_name="__main__")
"""

DISK = """
sync = os.fdatasync

def slow_sync(fd):
    hang()
    sync(fd)

os.fdatasync = os.fsync = slow_sync
"""

LOAD = """
import muster.server.groups.loading as group_loading
import muster.server.leadership as leadership

load, leadership.LOAD_AT_START_BYTES = group_loading.load, 0

def slow_load(*arguments, **named):
    hang()
    return load(*arguments, **named)

group_loading.load = slow_load
"""

LOOP = """
from muster.server.housekeeping import Expiration

Expiration.begin = hang
"""

COMPACTION = """
import muster.server.compaction as compaction

clean = compaction.clean

def slow_clean(*arguments):
    hang()
    return clean(*arguments)

compaction.clean = slow_clean
"""

QUICK = """
import muster.cli.serve as stop_signals, muster.server.server as server

server.BACKGROUND_WITHIN_S, server.ANSWER_WITHIN_S, server.STOP_WITHIN_S = 0.2, 0.5, 1.0
stop_signals.END_WITHIN_S = 1.5
"""


def test_a_server_takes_less_than_five_seconds_to_stop() -> None:
    """The tests below wait for less."""
    steps = [server_module.BACKGROUND_WITHIN_S, server_module.ANSWER_WITHIN_S, server_module.STOP_WITHIN_S]
    assert steps == sorted(steps)
    assert steps[-1] < stop_signals.END_WITHIN_S < 5


class HangingServer(ServerProcess):
    """A server with something built in that hangs while a file is there; it waits for it less than others would."""

    def __init__(self, data: Path, built_in: str, *arguments: str) -> None:
        super().__init__(data, *arguments)
        self._trigger, self._reached = data.parent / "hang", data.parent / "hangs"
        assert self._command[1:3] == ["-m", "muster"]
        script = BUILT_IN.format(built_in + QUICK)
        self._command[1:3] = ["-c", script, str(self._trigger), str(self._reached)]

    def hang(self) -> None:
        self._reached.unlink(missing_ok=True)
        self._trigger.touch()

    def wait_until_it_hangs(self) -> None:
        until(self._reached.exists, "it does not hang")


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def stopped(server: ServerProcess) -> int:
    """Ask a server to stop, and wait for it far less than anything takes that hangs."""
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    return server.process.wait(10)


def commit(raw: Raw, group: str, offset: int) -> int:
    answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", {0: offset}))
    return int(answer["topics"][0]["partitions"][0]["errorCode"])


def test_whoever_waits_is_answered_and_nobody_is_taken_in(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as first, Raw(server.address) as parked, Raw(server.address) as idle:
            idle.ask(ApiKey.API_VERSIONS, 0)
            assert first.ask(ApiKey.JOIN_GROUP, 3, groupId="g", **JOIN)["errorCode"] == 0
            parked.send(ApiKey.JOIN_GROUP, 3, groupId="g", **JOIN)
            until(lambda: len(re.findall(r"member \S+ joined", server.log.read_text())) == 2, "it is not parked")
            assert commit(first, "h", 7) == 0
            assert stopped(server) == 0
            assert parked.hear(ApiKey.JOIN_GROUP, 3)[1]["errorCode"] == 16, "not the coordinator any more"
            with pytest.raises(EOFError):
                idle.frame()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address)
    with running(tmp_path / "data") as server:
        assert wait_until_loaded(server.address, "h") == {("orders", 0): 7}
        assert "cut off" not in server.log.read_text(), "a clean stop needs no recovery"


def test_a_disk_that_does_not_answer(tmp_path: Path) -> None:
    with HangingServer(tmp_path / "data", DISK) as server, Raw(server.address) as raw:
        assert isinstance(server, HangingServer)
        create_topic(server.address, "orders", 1)
        assert commit(raw, "g", 1) == 0
        server.hang()
        raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 2}))
        server.wait_until_it_hangs()
        assert stopped(server) == 4
        assert "the logs could not be closed within 1 s" in server.log.read_text()
        answer = raw.hear(ApiKey.OFFSET_COMMIT, 8)[1]
        assert answer["topics"][0]["partitions"][0]["errorCode"] == 16, "it is not promised"
    with running(tmp_path / "data") as after:
        assert wait_until_loaded(after.address, "g")["orders", 0] >= 1, "what was acknowledged is there"


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with HangingServer(tmp_path / "data", DISK) as server, Raw(server.address) as raw:
        assert isinstance(server, HangingServer)
        assert server.process is not None
        create_topic(server.address, "orders", 1)
        server.hang()
        raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 1}))
        server.wait_until_it_hangs()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in server.log.read_text(), "it does not stop")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(10) == 130
        assert "stopped at once" in server.log.read_text()


def test_a_second_sigterm_at_the_same_time_is_the_same_wish(tmp_path: Path) -> None:
    """`timeout` sends one to the process, and one to its group."""
    with HangingServer(tmp_path / "data", DISK) as server, Raw(server.address) as raw:
        assert isinstance(server, HangingServer)
        assert server.process is not None
        create_topic(server.address, "orders", 1)
        server.hang()
        raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 1}))
        server.wait_until_it_hangs()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in server.log.read_text(), "it does not stop")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 4
        assert "at once" not in server.log.read_text()


def test_with_a_thread_that_was_there_before(tmp_path: Path) -> None:
    """In a program of somebody else's, which may be told of the signal in any of its threads."""
    busy = "import threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    with HangingServer(tmp_path / "data", busy) as server:
        assert stopped(server) == 0
        assert server.log.read_text().endswith(" stopped\n")


def test_while_it_starts(tmp_path: Path) -> None:
    """Its disk hangs under the first topic it makes."""
    server = HangingServer(tmp_path / "data", DISK)
    server.hang()
    with server.log.open("a") as log:
        server.process = subprocess.Popen(server._command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        server.wait_until_it_hangs()
        assert stopped(server) == 0
        assert "stopped while starting" in server.log.read_text()
    finally:
        server.__exit__()


def test_a_stop_while_it_loads(tmp_path: Path) -> None:
    """The load is in a thread that does not look whether to go on, and has the log: that is not closed under it."""
    with running(tmp_path / "data") as server, Raw(server.address) as raw:
        create_topic(server.address, "orders", 1)
        assert commit(raw, "g", 1) == 0
        assert stopped(server) == 0
    loading = HangingServer(tmp_path / "data", LOAD)
    loading.hang()
    with loading:
        loading.wait_until_it_hangs()
        assert stopped(loading) == 4
        assert "or a load is not at its end" in loading.log.read_text()
    with running(tmp_path / "data") as server:
        assert wait_until_loaded(server.address, "g") == {("orders", 0): 1}


def test_while_its_loop_is_busy(tmp_path: Path) -> None:
    server = HangingServer(tmp_path / "data", LOOP, "--set", "offsets.retention.check.interval.ms=50")
    with server, Raw(server.address) as raw:
        create_topic(server.address, "orders", 1)
        assert commit(raw, "g", 1) == 0
        server.hang()
        server.wait_until_it_hangs()
        assert stopped(server) == 4
        assert "stopped: the server was not done 1.5 s after it was asked to" in server.log.read_text()
    with running(tmp_path / "data") as after:
        assert wait_until_loaded(after.address, "g") == {("orders", 0): 1}


def test_while_it_compacts(tmp_path: Path) -> None:
    often = ["log.cleaner.backoff.ms=20", "log.cleaner.min.cleanable.ratio=0", "offsets.topic.segment.bytes=1000"]
    settings = [part for setting in often for part in ("--set", setting)]
    server = HangingServer(tmp_path / "data", COMPACTION, *settings)
    server.hang()
    with server, Raw(server.address) as raw:
        create_topic(server.address, "orders", 1)
        for offset in range(100):
            assert commit(raw, "g", offset) == 0
        server.wait_until_it_hangs()
        assert stopped(server) == 0
    with running(tmp_path / "data") as after:
        assert wait_until_loaded(after.address, "g") == {("orders", 0): 99}


def test_with_clients_that_do_not_read_their_answers(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_topic(server.address, "orders", 4)
        deaf = socket.create_connection(server.address, 10)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.settimeout(0.2)
        flood = encode_request(ApiKey.METADATA, 1, 1, "deaf", {"topics": None}) * 500_000
        with pytest.raises(TimeoutError):  # nobody reads from it any more
            deaf.sendall(flood)
        with Raw(server.address) as raw:
            assert commit(raw, "g", 1) == 0
            assert stopped(server) == 0
        deaf.close()


def test_with_a_log_that_is_a_pipe_which_nobody_reads(tmp_path: Path) -> None:
    """It says more than the pipe holds; groups are served, and the end is a good one."""
    reading, writing = os.pipe()
    command = [
        sys.executable, "-m", "muster", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"),
        "--set", "group.initial.rebalance.delay.ms=0",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True)
    os.close(writing)
    try:
        assert process.stdout is not None
        ready = re.match(r"muster is ready at ([\d.]+):(\d+)", process.stdout.readline())
        assert ready
        address = ready[1], int(ready[2])
        create_topic(address, "orders", 1)
        with Raw(address) as raw:
            for number in range(60):  # three lines each
                assert raw.ask(ApiKey.JOIN_GROUP, 5, groupId=f"{'g' * 1_900}-{number}", **STATIC)["errorCode"] == 0
            assert commit(raw, "g", 1) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(reading)


# Closing while syncs are under way.


class Sluggish(UnsyncedFiles):
    """Files whose syncs take a moment."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        assert isinstance(file, UnsyncedFile)
        return SluggishFile(file.path, file._fd)


class SluggishFile(UnsyncedFile):
    __slots__ = ()

    def sync(self, point: str) -> None:
        time.sleep(0.0005)


@pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.long)])
def test_stops_during_flushes(tmp_path: Path, count: int) -> None:
    """News of a sync that has ended may come just then; nobody waits for it twice, and it is told in the loop alone."""
    settings = settings_from({"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "4"})
    told: set[str] = set()
    server_log = ServerLog(io.StringIO())

    def then(error: LogDamaged | None) -> None:
        told.add(threading.current_thread().name)

    async def one_stop(data: Path) -> None:
        server = Server(data, settings.groups, settings.broker, server_log, Sluggish())
        await server.start()
        for _ in range(3):
            for log in server.parts.directory.logs.values():
                log.append([(b"k", b"v")], 1)
            server.parts.flusher.flush_each([(log, then) for log in server.parts.directory.logs.values()])
            await asyncio.sleep(0)
        assert await asyncio.wait_for(server.stop(), WAIT_S)

    for number in range(count):
        asyncio.run(one_stop(tmp_path / f"data-{number % 5}"))
    assert told == {"MainThread"}
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("muster-flush")], "threads are left")
    assert server_log.close(WAIT_S)
