"""A server in a process of its own: `muster serve`, asked through its control socket."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import muster.errors
from muster.errors import ConfigError, MusterError

READY = re.compile(r"muster is ready at (\S+):(\d+) ")
STOP_WITHIN_S = 10.0


class NotStarted(ConfigError):
    """Its log says why."""


class InProcess:
    """One start of a server. `MusterError` where it cannot be started."""

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
