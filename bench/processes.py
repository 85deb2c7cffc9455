"""What a command and everything it started cost, by kind of process: Spark's JVM, its driver, its Python workers."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

INTERVAL_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("driver", "JVM", "workers")


class Process(NamedTuple):
    kind: str
    cpu_s: float
    peak_rss_mb: float


class Family:
    """A process and its descendants, looked at ten times a second; what lives for less than that is not seen."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, Process] = {}

    @contextmanager
    def watched(self) -> Iterator["Family"]:
        over = threading.Event()

        def look_on() -> None:
            while not over.wait(INTERVAL_S):
                self.look()

        thread = threading.Thread(target=look_on, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        family = {self._pid}
        for _ in range(6):  # driver, JVM, daemon, worker: no deeper than that
            family |= {pid for pid, parent in parents.items() if parent in family}
        for pid in family:
            process = _process(Path(f"/proc/{pid}"), pid == self._pid)
            if process is not None:
                self._seen[pid] = process

    def cpu_s(self) -> float:
        return sum(process.cpu_s for process in self._seen.values())

    def peak_rss_mb(self) -> dict[str, float]:
        """Of each kind its largest process."""
        return {
            kind: max((each.peak_rss_mb for each in self._seen.values() if each.kind == kind), default=0.0)
            for kind in KINDS
        }


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _process(entry: Path, is_driver: bool) -> Process | None:
    try:
        words = (entry / "stat").read_text().rpartition(")")[2].split()
        status = (entry / "status").read_text()
        command = (entry / "cmdline").read_bytes()
    except OSError:
        return None
    peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    kind = "driver" if is_driver else "JVM" if command.split(b"\0")[0].endswith(b"java") else "workers"
    return Process(kind, (int(words[11]) + int(words[12])) / TICKS, peak / 1024)
