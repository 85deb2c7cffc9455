"""Apache Kafka itself, as the judge of what muster reads and writes.

`resolve()` brings a Kafka release (brokers and tools are ordinary jars) into a cache folder with Maven; `KafkaBroker`
runs one node of it on loopback; `dump_log`, `consumer_groups` and `console_consumer_offsets` are Kafka's own tools.
Nothing here is needed to use muster. A test that wants Kafka says `require_kafka()` and is skipped where Maven or Java
is missing, except in CI (`CI=true`), where a missing judge is a failure.

    python -m tests.kit.kafka [VERSION]     a broker to play with, until Ctrl-C
"""

import argparse
import atexit
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import pytest

from muster.java import NOT_FOUND, find_java
from tests.kit import maven

DEFAULT_VERSION = "4.3.0"
REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER_ID = "bXVzdGVyLXRlc3Qta2l0LTE"

# Small and quick to start rather than fast in the long run: a test's broker lives for seconds.
# The encodings (one name for Java 17, one for 21) keep a metadata string whole where the locale is plain C.
JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Xlog:disable",
    "-Dsun.stdout.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "-Dfile.encoding=UTF-8",
)
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

# A chatty broker's reasons in one line each: time, level, who.
BROKER_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

BROKER_DEFAULTS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}

# What an ordinary cluster has: most of its offsets partitions are empty.
AS_KAFKA_COMES = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "group.initial.rebalance.delay.ms": "3000",
}

# Not a default: on a busy machine a broker can be silent for longer than this, and would be shut out for a moment.
RESTARTS_QUICKLY = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}

# Kafka leaves the choice of a logger to its scripts; slf4j-simple needs no configuration file, and two would argue.
LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
OTHER_LOGGERS = "slf4j-reload4j,log4j-slf4j-impl"


class KafkaUnavailable(Exception):
    """There is no Kafka to test against; the text says what to install."""


class KafkaFailed(AssertionError):
    """Kafka was there and did not do what was asked; the text has what it said."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """One Kafka release on disk, and the Java to run it."""

    version: str
    libs: Path
    java: Path

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    @property
    def dump_log_class(self) -> str:
        """Kafka's tools moved one by one from Scala to Java; this one did so after 4.0."""
        moved = "org/apache/kafka/tools/DumpLogSegments"
        with zipfile.ZipFile(self.libs / f"kafka-tools-{self.version}.jar") as jar:
            return moved.replace("/", ".") if f"{moved}.class" in jar.namelist() else "kafka.tools.DumpLogSegments"

    @property
    def classes(self) -> Path:
        """Where the classes lie that a start of the broker loads, ready to be mapped: half of its start is loading."""
        return self.libs.parent / "classes.jsa"

    @property
    def formatted(self) -> Path:
        """A log folder as `format` leaves it. It is another process to make one, and all first nodes' are alike."""
        return self.libs.parent / "formatted"

    def command(
        self,
        main_class: str,
        *arguments: str,
        flags: Iterable[str] = (QUIET, "-Xmx256m"),
        classes: Sequence[Path] = (),
    ) -> list[str]:
        """`classes` are folders of others; behind the jars, or the archive would not be one of the same classes."""
        archive = (f"-XX:SharedArchiveFile={self.classes}",) if self.classes.exists() else ()
        path = ":".join([f"{self.libs}/*", *map(str, classes)])
        return [str(self.java), *JVM_FLAGS, *archive, *flags, "-cp", path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's programs to its end, whatever its exit code."""
        return subprocess.run(
            self.command(main_class, *arguments),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def checked(self, main_class: str, *arguments: str, timeout_s: float = 120) -> str:
        """What the program printed; KafkaFailed with all it said when its exit code is not 0."""
        done = self.run(main_class, *arguments, timeout_s=timeout_s)
        if done.returncode != 0:
            raise KafkaFailed(f"{main_class} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


def cache_root() -> Path:
    return Path(os.environ.get("MUSTER_CACHE") or REPOSITORY / ".cache") / "kafka"


def resolve(version: str = DEFAULT_VERSION, cache: Path | None = None) -> Kafka:
    """The release from the cache, or from wherever Maven is told to look; some 55 MB the first time."""
    home = find_java()
    if home is None:
        raise KafkaUnavailable(f"Kafka needs Java: {NOT_FOUND}")
    release = (cache or cache_root()) / version
    wanted = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")] + [LOGGER]
    try:
        maven.bring(release, f"Kafka {version}", wanted, home, OTHER_LOGGERS)
    except maven.JarsUnavailable as problem:
        raise KafkaUnavailable(str(problem)) from None
    kafka = Kafka(version, release / "libs", home.java)
    if version == DEFAULT_VERSION and not kafka.classes.exists():
        _archive_classes(kafka)
    return kafka


def _archive_classes(kafka: Kafka) -> None:
    """Start and stop a broker once, and keep the classes it loaded. Another Java than this one ignores the archive."""
    with maven.lock(kafka.classes.with_name("classes.lock")):
        if kafka.classes.exists():
            return
        draft = kafka.classes.with_name(f"classes.{os.getpid()}.part")
        with KafkaBroker(kafka, flags=(f"-XX:ArchiveClassesAtExit={draft}",)) as broker:
            broker.stop(120)
        if draft.exists():  # a Java that keeps none is slower, and nothing else
            draft.rename(kafka.classes)


def require_kafka(version: str = DEFAULT_VERSION) -> Kafka:
    """The release, or the end of this test: skipped with a sentence, failed in CI."""
    try:
        return resolve(version)
    except KafkaUnavailable as problem:
        if os.environ.get("CI") == "true":
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))


class KafkaBroker:
    """One combined broker and controller (KRaft) on free loopback ports.

    Its data lives in `data_dir`, or in a temporary folder that goes away with it. A `data_dir` that was used before is
    taken up where it was left, on new ports; so `kill()` and a second KafkaBroker make a crash and a recovery.
    `start()` after `stop()` or `kill()` takes the same ports again. After a kill the controller lets the broker in
    again when its old session is over: 9 s, less with RESTARTS_QUICKLY among the settings. `features` are levels of
    what a cluster has agreed on (`group.version`), where they should not be the release's own.
    """

    def __init__(
        self,
        kafka: Kafka | None = None,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        ready_timeout_s: float = 120,
        flags: Sequence[str] = (),
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.kafka = kafka or resolve()
        self._settings = dict(settings or {})
        self._flags = flags
        self._features = dict(features or {})
        self._temporary = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="muster-kafka-"))
        self.log_dir = self.data_dir / "logs"
        self.server_log = self.data_dir / "server.log"
        self.bootstrap = ""
        self._ports: list[int] = []
        self._ready_timeout_s = ready_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Format the data folder if it is new, start the broker, and return when it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)
        try:
            config = self._write_config()
            if not (self.log_dir / "meta.properties").exists():
                self._format(config)
            with self.server_log.open("ab") as log:
                self._process = self._launch(config, log)
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self, timeout_s: float = 30) -> None:
        """Ask the broker to shut down, and insist when it does not."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL: what a power cut leaves behind, apart from what the operating system still writes out."""
        self._end(signal.SIGKILL, 30)

    def close(self) -> None:
        """Stop, and remove the data folder if nobody gave us one."""
        atexit.unregister(self.close)
        self.stop()
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _write_config(self) -> Path:
        self._ports = self._ports or free_ports(2)
        client_port, controller_port = self._ports
        self.bootstrap = f"127.0.0.1:{client_port}"
        settings = BROKER_DEFAULTS | {
            "log.dirs": str(self.log_dir),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"{self._settings.get('node.id', '1')}@127.0.0.1:{controller_port}",
        }
        config = self.data_dir / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in (settings | self._settings).items()))
        return config

    def _format(self, config: Path) -> None:
        if "node.id" in self._settings or self._features:
            self._format_anew(config)
            return
        with maven.lock(self.kafka.formatted.with_name("formatted.lock")):
            if not self.kafka.formatted.exists():
                self._format_anew(config)
                draft = self.kafka.formatted.with_name("formatted.part")
                shutil.rmtree(draft, ignore_errors=True)
                shutil.copytree(self.log_dir, draft)
                draft.rename(self.kafka.formatted)
        shutil.copytree(self.kafka.formatted, self.log_dir, dirs_exist_ok=True)

    def _format_anew(self, config: Path) -> None:
        features = [word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")]
        about = ("--cluster-id", CLUSTER_ID, "--config", str(config), *features)
        self.kafka.checked("kafka.tools.StorageTool", "format", *about)

    def _launch(self, config: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal is for us, and we end the broker in our own time.
        return subprocess.Popen(
            self.kafka.command(
                "kafka.Kafka", str(config), flags=("-Xms128m", "-Xmx512m", *BROKER_LOGGING, *self._flags)
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.data_dir,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._ready_timeout_s
        while not knows_a_broker(self.bootstrap):
            if self._process.poll() is not None:
                raise KafkaFailed(f"the broker ended with {self._process.returncode}:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise KafkaFailed(f"the broker is not ready after {self._ready_timeout_s:.0f} s:\n{self.last_words()}")
            time.sleep(0.05)

    def last_words(self, lines: int = 40) -> str:
        """The end of the broker's log."""
        return "\n".join(self.server_log.read_text(errors="replace").splitlines()[-lines:])

    def dump_log(self, files: Iterable[Path], *arguments: str) -> str:
        return dump_log(files, *arguments, kafka=self.kafka)

    def consumer_groups(self, *arguments: str) -> str:
        return consumer_groups(self.bootstrap, *arguments, kafka=self.kafka)

    def console_consumer_offsets(
        self,
        formatter: str = "OffsetsMessageFormatter",
        partition: int | None = None,
        is_enough: Callable[[str], bool] = bool,
    ) -> str:
        return console_consumer_offsets(self.bootstrap, formatter, partition, is_enough, kafka=self.kafka)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on right now; held together, so that they differ."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def knows_a_broker(bootstrap: str) -> bool:
    """Whether a Metadata request (version 4, no topics) is answered with at least one live broker.

    An open port is not enough: the broker listens long before it answers, and answers before the controller has let it
    in; until then the list is empty.
    """
    host, port = bootstrap.rsplit(":", 1)
    body = struct.pack(">hhih3sib", 3, 4, 1, 3, b"kit", 0, 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as link:
            link.settimeout(10)
            link.sendall(struct.pack(">i", len(body)) + body)
            answer = link.makefile("rb").read(16)  # size, correlation id, throttle time, number of brokers
    except OSError:
        return False
    return len(answer) == 16 and struct.unpack(">4i", answer)[3] > 0


def dump_log(files: Iterable[Path], *arguments: str, kafka: Kafka | None = None) -> str:
    """kafka-dump-log over these files; without arguments it decodes the offsets topic and prints every record.

    Only what it prints to its standard output: the list of offsets that do not follow each other goes to the other
    one, file by file in no particular order. On damage it ends with 1, so with KafkaFailed.
    """
    kafka = kafka or resolve()
    arguments = arguments or ("--offsets-decoder", "--print-data-log")
    return kafka.checked(kafka.dump_log_class, *arguments, "--files", ",".join(str(file) for file in files))


def consumer_groups(bootstrap: str, *arguments: str, kafka: Kafka | None = None) -> str:
    """kafka-consumer-groups, for instance `consumer_groups(bootstrap, "--describe", "--all-groups")`."""
    main_class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return (kafka or resolve()).checked(main_class, "--bootstrap-server", bootstrap, *arguments)


def console_consumer_offsets(
    bootstrap: str,
    formatter: str = "OffsetsMessageFormatter",
    partition: int | None = None,
    is_enough: Callable[[str], bool] = bool,
    kafka: Kafka | None = None,
) -> str:
    """kafka-console-consumer over __consumer_offsets from the beginning, through one of Kafka's formatters.

    Formatters: OffsetsMessageFormatter, GroupMetadataMessageFormatter. They print JSON objects with nothing between
    them. Without a partition it joins a group of its own to read them all, which adds records to the very topic it
    reads; with one it leaves no trace.

    The tool ends when nothing new came for a while, which on a busy machine may be before anything came at all. So it
    runs again, with more patience, until what it printed `is_enough`; what it printed last is returned.
    """
    where = ["--from-beginning"] if partition is None else ["--partition", str(partition), "--offset", "earliest"]
    printed = ""
    for timeout_ms in (3_000, 10_000, 60_000):
        printed = (kafka or resolve()).checked(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap),
            *("--topic", "__consumer_offsets"),
            *where,
            *("--timeout-ms", str(timeout_ms)),
            *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
        )
        if is_enough(printed):
            break
    return printed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.kafka", description="Run a Kafka broker until Ctrl-C.")
    parser.add_argument("version", nargs="?", default=DEFAULT_VERSION)
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with KafkaBroker(resolve(chosen.version)) as broker:
            print(f"Kafka {chosen.version} listens on {broker.bootstrap}")
            print(f"its logs are in           {broker.log_dir}")
            print(f"it ends with Ctrl-C, or   kill {os.getpid()}; its data goes away with it", flush=True)
            signal.pause()
    except KafkaUnavailable as problem:
        print(f"muster: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
