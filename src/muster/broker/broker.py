"""A broker inside your own program, on a free port, in a temporary directory, there in an instant.

    with muster.Broker() as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, ...})

    async with muster.Broker() as broker: ...

It runs in a thread of its own, so that blocking clients can be used beside it. Settings are Kafka's, by name, dots as
underscores or as they are. What differs from `muster serve`: the first rebalance does not wait for more members,
sessions may be short, writes are left to the operating system, and the data is deleted in the end unless `data` says
where to keep it.
"""

import asyncio
import io
import shutil
import tempfile
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from muster.broker.kit import KitVerbs
from muster.broker.running import InProcess, InThread, NotStarted
from muster.errors import ConfigError

if TYPE_CHECKING:
    from muster.server.kit.verbs import Kit
    from muster.server.server import Server

IN_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "muster.tell.new.topics": "true",
    "group.min.session.timeout.ms": "10",
    "muster.flush": "os",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
}


OWN_ARGUMENTS = ("data", "log", "process", "settings")


class Broker(KitVerbs):
    """Use it in a `with`, or call `start` and `stop`. A setting that does not exist is a `ConfigError` at once."""

    def __init__(
        self, *, data: Path | str | None = None, log: TextIO | None = None, process: bool = False,
        settings: dict[str, Any] | None = None, **more_settings: Any,
    ) -> None:  # fmt: skip
        given = {**(settings or {}), **{name.replace("_", "."): value for name, value in more_settings.items()}}
        self._settings = IN_TESTS | {name: _text(value) for name, value in given.items()}
        _check_names(given)
        if process and isinstance(log, io.StringIO):
            raise ConfigError("Broker(process=True) cannot log into a StringIO; give it a file, or read log_text.")
        self._data = None if data is None else Path(data)
        self._temporary: str | None = None
        self._log = log if log is not None else io.StringIO()
        self._in_process = process
        self._running: InThread | InProcess | None = None
        self.host, self.port = "", 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`; known once the broker has started."""
        if not self.port:
            raise ConfigError(
                "This broker has not started, so it has no port yet; use it in a `with`, or call start()."
            )
        return f"{self.host}:{self.port}"

    @property
    def log_text(self) -> str:
        """What the server has logged, from the first start on; empty if `log` was given."""
        if self._in_process:
            return self._process_log.read_text(encoding="utf-8") if self._process_log.exists() else ""
        return self._log.getvalue() if isinstance(self._log, io.StringIO) else ""

    def start(self) -> Self:
        """Return when clients can connect; `MusterError` where that cannot be."""
        if self._running is not None:
            raise ConfigError("This broker runs already; make another one.")
        self._temporary = tempfile.mkdtemp(prefix="muster-")
        try:
            self._running = self._started(self._settings)
        except BaseException:
            self._clean_up()
            raise
        self.host, self.port = self._running.host, self._running.port
        return self

    def _started(self, settings: dict[str, str], before: InThread | InProcess | None = None) -> InThread | InProcess:
        data = self._data or Path(self._temporary or "") / "data"
        if not self._in_process:
            return InThread(data, settings, self._log, None if before is None else before.clock)
        if not isinstance(self._log, io.StringIO):
            return InProcess(data, settings, self._log)
        try:
            with self._process_log.open("a", encoding="utf-8") as log:
                return InProcess(data, settings, log)
        except NotStarted as error:
            raise ConfigError(f"{error}: {' '.join(self.log_text.splitlines()[-1:])}") from error

    @property
    def _process_log(self) -> Path:
        return Path(self._temporary or "") / "log"

    def stop(self) -> None:
        """Return when everything is closed."""
        if self._running is not None:
            running, self._running = self._running, None
            running.stop()
            self._clean_up()

    def kill_and_restart(self) -> None:
        """End it without an answer, a flush or a goodbye, and start it again on the same port and data.

        In a thread it is as if the power went: what was not synced is lost, which `muster_flush="always"` makes nothing
        that was acknowledged, and the clock goes on. A process is killed with SIGKILL. Faults are undone.
        """
        if self._running is None:
            raise ConfigError("This broker does not run; use it in a `with`.")
        killed, self._running = self._running, None
        lost = killed.kill()
        if isinstance(self._log, io.StringIO):
            print(f"killed, with {lost} bytes that were not synced", file=self._log)
        same_port = {**self._settings, "listeners": f"PLAINTEXT://{self.host}:{self.port}"}
        try:
            self._running = self._started(same_port, killed)
        except BaseException:
            self._clean_up()
            raise

    def do(self, verb: str, **arguments: Any) -> Any:
        """One verb of the test kit, by name; the other methods are these with types. Raises `MusterError`."""
        if self._running is None:
            raise ConfigError("This broker does not run; use it in a `with`.")
        return self._running.do({"do": verb, **arguments})

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        return self._running.loop if isinstance(self._running, InThread) else None

    @property
    def _server(self) -> "Server | None":
        return self._running.server if isinstance(self._running, InThread) else None

    @property
    def _kit(self) -> "Kit | None":
        return self._running.kit if isinstance(self._running, InThread) else None

    def _clean_up(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


def _check_names(given: Iterable[str]) -> None:
    """A misspelt name in a test should not be ignored, as one in a shared file is."""
    from muster.server.settings import unused

    for name in given:
        ignored = unused(name)
        if ignored is None:
            continue
        if ignored.is_kafkas:
            raise ConfigError(f"{name} is a setting of Kafka's that muster has no use for. Leave it out.")
        near = ignored.suggestion or next(iter(get_close_matches(name, OWN_ARGUMENTS, n=1)), None)
        hint = f"Did you mean {near}?" if near else "docs/configuration.md lists all there are."
        raise ConfigError(f"Broker: {name} is not a setting of muster or Kafka. {hint}")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
