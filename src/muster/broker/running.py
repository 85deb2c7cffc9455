"""One start of a server for `Broker`: in a thread of this process, or in a process of its own (`muster serve`)."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

import muster.errors
from muster.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from muster.server.kit.verbs import Kit
    from muster.server.server import Server
    from muster.server.timers import Clock

READY = re.compile(r"muster is ready at (\S+):(\d+) ")
STOP_WITHIN_S = 10.0


class InThread:
    """A server with an event loop of its own; `kill` and `stop` end it. `MusterError` where it cannot be started."""

    loop: asyncio.AbstractEventLoop
    server: "Server"
    kit: "Kit"

    def __init__(self, data: Path, settings: dict[str, str], log: TextIO, clock: "Clock | None" = None) -> None:
        from muster.server.kit.files import KitFiles
        from muster.server.timers import Clock

        self._data = data
        self._settings = settings
        self._log = log
        self.clock = clock or Clock()
        self._files = KitFiles()
        self.host, self.port = "", 0
        self._stop = asyncio.Event()
        self._is_killed = False
        self._problem: BaseException | None = None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="muster-broker", daemon=True)
        self._thread.start()
        ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    def do(self, request: dict[str, Any]) -> Any:
        if threading.current_thread() is self._thread:
            raise ConfigError("The broker's own thread cannot wait for it; ask from another one.")
        return asyncio.run_coroutine_threadsafe(self.kit.do(request), self.loop).result()

    def stop(self) -> None:
        """Return when everything is closed."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def kill(self) -> int:
        """The power goes: no answer, no flush, and what was not synced is lost. Returns the bytes of that."""
        self._files.power_off()
        self._is_killed = True
        self.stop()
        return self._files.lose_unsynced(self._data)

    def _run(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._serve(ready))
        except BaseException as problem:
            self._problem = problem
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        from muster.server.kit.verbs import Kit
        from muster.server.server import Server
        from muster.server.server_log import ServerLog
        from muster.server.settings import settings_from

        settings = settings_from(self._settings)
        server_log = ServerLog(self._log)
        try:
            server = Server(self._data, settings.groups, settings.broker, server_log, self._files, self.clock)
            await server.start()
            self.host, self.port = server.host, server.port
            self.loop, self.server, self.kit = asyncio.get_running_loop(), server, Kit(server.parts)
            ready.set()
            await self._stop.wait()
            await (server.abandon() if self._is_killed else server.stop())
        finally:
            server_log.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """The event loop of a server: uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class NotStarted(ConfigError):
    """Its log says why."""


class InProcess:
    """A server that is asked through its control socket. `MusterError` where it cannot be started."""

    clock = None

    def __init__(self, data: Path, settings: dict[str, str], log: IO[Any]) -> None:
        self._data = data
        sets = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "muster", "serve", "--data", str(data), "--control-port", "0", *sets]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, "MUSTER_ENDS_WITH_STDIN": "1"},
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = READY.match(self._process.stdout.readline())
        if ready is None:
            self._process.kill()
            status = self._process.wait()
            raise NotStarted(f"The server did not start, and ended with status {status}")
        self.host, self.port = ready[1], int(ready[2])

    def do(self, request: dict[str, Any]) -> Any:
        from muster.server.control import ADDRESS_FILE

        path = (self._data / ADDRESS_FILE).read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(path)
            asked.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(b"".join(iter(lambda: asked.recv(1 << 20), b"")))
        if "error" in answer:
            kind = getattr(muster.errors, answer.get("kind", ""), MusterError)
            raise kind(answer["error"])
        return answer["answer"]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._end(STOP_WITHIN_S)

    def kill(self) -> int:
        """A real `kill -9`: what was written and not synced is still with the operating system. Nothing is lost."""
        self._process.kill()
        self._end(STOP_WITHIN_S)
        return 0

    def _end(self, within_s: float) -> None:
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
