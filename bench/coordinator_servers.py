"""The two servers that are compared: `muster serve`, and Apache Kafka as its own start script runs it.

Both keep their data in a folder that outlives them, so that a second start is a restart, and both listen on loopback at
a port that stays the same. `start` returns at once; whoever wants to know when the server answers asks it.
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.kit.kafka import BROKER_LOGGING, Kafka, KafkaBroker, free_ports, knows_a_broker

STOP_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 120.0

# What bin/kafka-server-start.sh gives the JVM. The kit's own broker is made to start quickly, not to run fast.
KAFKA_JVM = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
# Kafka's defaults again, where the kit has smaller ones.
KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "50",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "background.threads": "10",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
# Not what is measured: the wait for more members of a new group.
COMMON_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class ServerFailed(Exception):
    """A server did not start, or did not end; the text has what it said."""


class Process:
    """A server process that we start, end and wait for."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.bootstrap = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        assert self._process is None, f"{self.name} is running"
        with (self.folder / "server.out").open("ab") as out:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def stop(self) -> None:
        """Ask it to end, and wait; a server that does not end is an error, not a figure."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(f"{self.name} did not end within {STOP_TIMEOUT_S:.0f} s of {how.name}") from None

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not knows_a_broker(self.bootstrap):
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended before it was ready:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} is not ready after {READY_TIMEOUT_S:.0f} s:\n{self.last_words()}")
            time.sleep(0.02)

    def last_words(self) -> str:
        return (self.folder / "server.out").read_text(errors="replace")[-2000:]


class Muster(Process):
    """`muster serve`, as users run it."""

    def __init__(self, folder: Path, settings: Mapping[str, str], name: str = "muster", metrics_port: int = 0) -> None:
        super().__init__(name, folder)
        self.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
        self.data_dir = folder / "data"
        self._settings = COMMON_SETTINGS | dict(settings)
        self._metrics = ["--metrics-port", str(metrics_port)] if metrics_port else []

    def command(self) -> list[str]:
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        return [
            sys.executable, "-m", "muster", "serve", "--listen", self.bootstrap, "--data", str(self.data_dir),
            *self._metrics, *settings,
        ]  # fmt: skip


class KafkaNode(Process):
    """One broker and controller of a Kafka release, with the JVM and the threads of its own defaults."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        super().__init__(f"Kafka {kafka.version}", folder)
        self._kafka = kafka
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        listeners = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        }
        self._config = self._prepared(COMMON_SETTINGS | KAFKA_SETTINGS | listeners)

    def _prepared(self, settings: Mapping[str, str]) -> Path:
        """The kit writes the configuration and formats the folder; from then on it is ours."""
        kit = KafkaBroker(self._kafka, settings, self.folder)
        config = kit._write_config()
        kit._format(config)
        return config

    def command(self) -> list[str]:
        flags = (*KAFKA_JVM, *BROKER_LOGGING)
        return [str(self._kafka.java), *flags, "-cp", f"{self._kafka.libs}/*", "kafka.Kafka", str(self._config)]


@contextlib.contextmanager
def ending(*servers: Process) -> Iterator[None]:
    """Whatever happens, nothing we started is left behind: a SIGTERM ends us as Ctrl-C does. Starts nobody."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        for server in servers:
            server.kill()


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A folder for the data of a run, on the disk that is measured; gone at the end."""
    folder = parent / f"{name}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def allow_open_files(wanted: int) -> int:
    """Raise this process's soft limit, which its children inherit; how many files may then be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def rss_mb(pid: int) -> float:
    """Resident memory of a process, from /proc."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory: it has ended")
