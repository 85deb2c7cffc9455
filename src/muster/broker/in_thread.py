"""A server in a thread of this process, with an event loop of its own."""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from muster.errors import ConfigError

if TYPE_CHECKING:
    from muster.server.kit.verbs import Kit
    from muster.server.server import Server
    from muster.server.timers import Clock


class InThread:
    """One start of a server; `kill` and `stop` end it. `MusterError` where it cannot be started."""

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
