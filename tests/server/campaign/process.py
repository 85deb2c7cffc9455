"""The server of a campaign: a process of its own, whose disk takes orders."""

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.server.campaign.failing_files import Order
from tests.server.campaign.plan import World
from tests.server.campaign.serve import IN_COLUMNS, as_line
from tests.server.raw import ServerProcess

ROOT = Path(__file__).parents[3]
START_WITHIN_S = 30.0
STOP_WITHIN_S = 40.0
"""A server gives a disk 10 s for the last answers, and 15 s for the rest."""


class NotStarted(Exception):
    """The process ended, or said nothing, before it was ready."""


class CampaignServer(ServerProcess):
    """`tests.server.campaign.serve`, started again and again on the same port."""

    def __init__(self, data: Path, world: World, port: int) -> None:
        settings = [part for name, value in world.settings.items() for part in ("--set", f"{name}={value}")]
        super().__init__(data, *settings, port=port)
        assert self._command[1:4] == ["-m", "muster", "serve"]
        self._command[1:4] = ["-m", "tests.server.campaign.serve", *([IN_COLUMNS] if world.in_columns else [])]

    def launch(self, *orders: Order) -> None:
        """Start the process; on a disk that does as it is told from its first operation."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
            )
        assert self.process.stdin is not None
        for order in orders:
            self.process.stdin.write(as_line(order))
        self.process.stdin.flush()
        for _ in orders:
            self._line(START_WITHIN_S)

    def wait_until_ready(self) -> None:
        line = self._line(START_WITHIN_S)
        if not line.startswith("muster is ready at "):
            raise NotStarted(line or f"ended with {self.ended()}")
        host, _, port = line.split()[4].rpartition(":")
        self.address = host, int(port)

    def order(self, order: Order) -> None:
        self._say(as_line(order))

    def heal(self) -> int:
        """The disk is well again; returns how often it was not."""
        return int(self._say('{"heal": true}\n').get("failed", 0))

    def _say(self, line: str) -> dict[str, Any]:
        """Nothing if the server is no more."""
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            return {}
        answer = self._line(START_WITHIN_S)
        return dict(json.loads(answer)) if answer else {}

    def _line(self, seconds: float) -> str:
        """The next line of its output; nothing where it ended. It writes whole lines, so one readable byte will do."""
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not readable:
            raise NotStarted(f"nothing was said for {seconds:.0f} s")
        return self.process.stdout.readline()

    def ended(self, within_s: float = STOP_WITHIN_S) -> int:
        """Its exit code; `subprocess.TimeoutExpired` if it does not end."""
        assert self.process is not None
        code = self.process.wait(within_s)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def rss_mb(self) -> float:
        assert self.process is not None
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def tell_where_it_is(self) -> None:
        """In its log."""
        if self.is_running:
            assert self.process is not None
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                self.process.send_signal(number)
                time.sleep(0.5)

    def is_asleep(self) -> bool:
        """Whether its loop waits for something, and does not run or wait for a processor."""
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def is_at_rest(self, within_s: float) -> bool:
        """Whether there comes a while in which it sleeps most of the time, however busy the machine is otherwise."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            asleep = 0
            for _ in range(50):
                time.sleep(0.01)
                asleep += self.is_asleep()
            if asleep > 25:
                return True
        return False
