"""Spark as users have it: other versions, clusters of several machines' worth of processes, Delta's jars.

`environment(version)` makes a virtual environment once, in the cache, that has this release of PySpark and everything
else from the environment of the tests. `SparkCluster` is Spark's own standalone cluster (a master and some workers),
`ConnectServer` a Spark Connect server; both are processes on loopback, in a directory of their own, ended with all
their children. Their Python knows nothing of muster: what tasks need must travel.

Nothing here is needed to use muster. A test says `require_java()`, `require_delta()` or `require_environment()` and is
skipped where Java, Maven or PyPI is missing, except in CI (`CI=true`), where a missing part is a failure.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

import pytest

from muster.java import NOT_FOUND, JavaHome, find_java
from tests.kit import maven
from tests.kit.kafka import REPOSITORY, free_ports

DELTA = {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"}
"""Releases of Spark for which Delta has a jar, and its newest version."""
BASE_PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
"""The Python that the environment of the tests was made from: it has no package of ours."""

DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkUnavailable(Exception):
    """A part is missing on this machine; the text says which, and what to do."""


class SparkFailed(AssertionError):
    """Spark was there and did not do what was asked; the text has what it said."""


def cache_root() -> Path:
    return Path(os.environ.get("MUSTER_CACHE") or REPOSITORY / ".cache") / "spark"


def _end(problem: Exception) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(problem), pytrace=False)
    pytest.skip(str(problem))


def require_java() -> JavaHome:
    home = find_java()
    if home is None:
        _end(SparkUnavailable(f"Spark needs Java: {NOT_FOUND}"))
    return home


def require_delta(spark_version: str) -> list[Path]:
    """Delta's jars for this release of Spark, or the end of this test."""
    try:
        return delta_jars(spark_version, require_java())
    except (SparkUnavailable, maven.JarsUnavailable) as problem:
        _end(problem)


def delta_jars(spark_version: str, home: JavaHome) -> list[Path]:
    line = ".".join(spark_version.split(".")[:2])
    if line not in DELTA:
        raise SparkUnavailable(f"Delta has no release for Spark {line}.")
    folder = cache_root() / f"delta-{line}-{DELTA[line]}"
    maven.bring(folder, "Delta for Spark", [("io.delta", f"delta-spark_{line}_2.13", DELTA[line])], home)
    return sorted((folder / "libs").glob("*.jar"))


def delta_conf(jars: list[Path]) -> dict[str, str]:
    """What makes delta.`path` work in SQL."""
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",  # of fifty, for a log of a few entries
    }


def require_environment(version: str) -> Path:
    """The Python of an environment with this release of PySpark, or the end of this test."""
    require_java()
    try:
        return environment(version)
    except SparkUnavailable as problem:
        _end(problem)


def environment(version: str) -> Path:
    """Some 450 MB and a minute or two the first time."""
    folder = cache_root() / f"pyspark-{version}-py{sys.version_info.major}{sys.version_info.minor}"
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with maven.lock(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _install(folder, python, version)
            (folder / "whole").touch()
        ours = [path for path in sys.path if path.endswith("site-packages")]
        [packages] = (folder / "lib").glob("python*/site-packages")
        (packages / "tests.pth").write_text("\n".join(ours) + "\n")  # found behind its own
    return python


def _install(folder: Path, python: Path, version: str) -> None:
    for command in (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            raise SparkUnavailable(f"pip could not bring PySpark {version}: {done.stderr.strip()[-300:]}")


def bare_environment(**more: str) -> dict[str, str]:
    """Nothing of ours: Java, Spark, and the Python that our environment was made from."""
    import pyspark

    java = require_java().path
    return {
        "PATH": f"{Path(BASE_PYTHON).parent}:{java}/bin:/usr/bin:/bin",
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
        "LANG": "C.UTF-8",
        **more,
    }


@dataclass
class Daemon:
    """A process of Spark's, in an empty directory of its own, and in a group that is ended as one."""

    folder: Path
    command: tuple[str, ...]
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder.parent / f"{self.folder.name}.log"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        environment = bare_environment(**self.more)
        program, *arguments = self.command
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [f"{environment['SPARK_HOME']}/bin/{program}", *arguments],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to it and its children: a machine that is lost."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def says(self, pattern: str, seconds: float = 180) -> Self:
        """Wait until its log has this."""
        until = time.monotonic() + seconds
        while not re.search(pattern, self.log.read_text(errors="replace")):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SparkFailed(f"{self.folder.name} never said {pattern}:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)
        return self


class Worker(Daemon):
    def executors(self) -> list[Path]:
        return list(self.folder.glob("work/app-*/*"))

    def python_workers(self) -> list[int]:
        """Processes of Python that run tasks on this worker: its session's, by their command line."""
        found = []
        for status in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                words = (status / "cmdline").read_bytes()
                session = int((status / "stat").read_text().rsplit(")", 1)[1].split()[3])
                if session == self.process.pid and b"pyspark.daemon" in words:
                    found.append(int(status.name))
        return found


@dataclass
class SparkCluster:
    """A master and workers on loopback; `folder` is made, and has their logs and directories."""

    folder: Path
    workers_count: int = 2
    cores: int = 2
    memory: str = "1g"
    more: Mapping[str, str] = field(default_factory=dict)
    """Of the environment of the workers."""

    def __enter__(self) -> Self:
        [port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        with contextlib.ExitStack() as stack:
            start = "org.apache.spark.deploy"
            address = ("--host", "127.0.0.1", "--webui-port", "0")
            master = Daemon(
                self.folder / "master", ("spark-class", f"{start}.master.Master", *address, "--port", str(port))
            )
            stack.enter_context(master).says("I have been elected leader|New state: ALIVE")
            self.workers = []
            for number in range(self.workers_count):
                place = self.folder / f"worker{number}"
                size = ("--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(place / "work"))
                command = ("spark-class", f"{start}.worker.Worker", *address, *size, self.master)
                self.workers.append(stack.enter_context(Worker(place, command, self.more)))
            for worker in self.workers:
                worker.says("Successfully registered with master")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextlib.contextmanager
def connect_server(folder: Path, master: str, conf: Mapping[str, str] | None = None) -> Iterator[str]:
    """A Spark Connect server in front of this master; its address, as clients write it."""
    [port] = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        **(conf or {}),
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ("spark-submit", "--master", master, "--class", server, *words, "spark-internal")
    with Daemon(folder, command, {"SPARK_DAEMON_MEMORY": "1g"}) as daemon:
        daemon.says("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"
