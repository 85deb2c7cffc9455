"""Workers are forked from a process that was started beside Java. Here the tests are the driver, and Spark."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.pipeline.spark import daemon
from muster.pipeline.spark.daemon import PLACE, started_early
from tests.kit.spark import require_java

ENOUGH_S = 60.0
SECRET = "a secret of Spark's"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Spark forks its workers where processes can be forked.")


@pytest.fixture(autouse=True)
def _ends_what_it_started() -> Iterator[None]:
    before = len(daemon._started)
    yield
    for process in daemon._started[before:]:
        _end(process)
    del daemon._started[before:]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Child:
    """What Spark starts as its daemon; `place` is what Java has in its environment."""

    def __init__(self, place: str | None) -> None:
        given = os.environ | {"PYTHON_WORKER_FACTORY_SECRET": SECRET}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "muster.pipeline.spark.daemon", "pyspark.worker"],
            env=given | ({} if place is None else {PLACE: place}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.read(4)
        assert len(said) == 4
        self.port = struct.unpack(">i", said)[0]

    @contextmanager
    def worker(self) -> Iterator[int]:
        """A worker as Spark asks for it: its pid. It has shown that it knows the secret."""
        with socket.create_connection(("127.0.0.1", self.port), ENOUGH_S) as connection:
            pid = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
            connection.sendall(struct.pack(">i", len(SECRET)) + SECRET.encode())
            assert connection.recv(6, socket.MSG_WAITALL) == struct.pack(">i", 2) + b"ok"
            yield pid

    def end(self) -> None:
        """As Spark ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(ENOUGH_S)


@contextmanager
def child(place: str | None) -> Iterator[Child]:
    one = Child(place)
    try:
        yield one
    finally:
        _end(one.process)


def early() -> tuple[str, "subprocess.Popen[bytes]"]:
    """The address that Java would be told, and who waits there."""
    with started_early():
        place = os.environ[PLACE]
    assert PLACE not in os.environ
    return place, daemon._started[-1]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(is_so: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < ENOUGH_S
        time.sleep(0.05)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Parents are looked up in /proc.")


@needs_proc
def test_workers_are_forked_from_the_process_that_was_started_early() -> None:
    place, process = early()
    with child(place) as one, one.worker() as first, one.worker() as second:
        assert {parent_of(first), parent_of(second)} == {process.pid}
        assert first != second
        assert not Path(place).parent.exists()
        one.end()
        process.wait(ENOUGH_S)
        wait_until(lambda: not Path(f"/proc/{first}").exists())


@needs_proc
def test_a_second_child_and_one_without_an_address_import_by_themselves() -> None:
    place, process = early()
    with child(place) as first, child(place) as second, child(None) as third:
        with first.worker() as worker:
            assert parent_of(worker) == process.pid
        for one in (second, third):
            with one.worker() as worker:
                assert parent_of(worker) == one.process.pid
            one.end()


def test_spark_sees_that_the_daemon_has_died() -> None:
    place, process = early()
    with child(place) as one:
        process.kill()
        one.process.wait(ENOUGH_S)


def test_the_daemon_ends_with_its_pipes_though_the_child_was_killed() -> None:
    place, process = early()
    with child(place) as one:
        one.process.kill()
        one.end()
        process.wait(ENOUGH_S)


def test_it_ends_with_the_driver_when_nobody_has_come() -> None:
    place, process = early()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(ENOUGH_S) == 0
    assert not Path(place).parent.exists()
    with child(place) as one:
        one.end()


def test_nothing_is_left_where_java_did_not_start() -> None:
    places = []

    def start() -> None:
        with started_early():
            places.append(Path(os.environ[PLACE]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        start()
    assert daemon._started[-1].returncode is not None
    assert not places[0].parent.exists()


def test_a_path_that_is_too_long_for_a_socket_costs_the_head_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    before = len(daemon._started)
    with started_early():
        assert PLACE not in os.environ
    assert len(daemon._started) == before
    assert not list(long.iterdir())


SESSION = """
import os
from muster.pipeline.spark.session import spark_session

def parents(batches):
    import pyarrow as pa
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

spark = spark_session("local[1]", {"spark.ui.enabled": "false"})
print(*(row.pid for row in spark.range(0, 2, 1, 2).mapInArrow(parents, "pid long").collect()))
from muster.pipeline.spark import daemon
print(daemon._started[0].pid)
spark.stop()
"""


@pytest.mark.spark
def test_spark_takes_it() -> None:
    require_java()
    said = subprocess.run([sys.executable, "-c", SESSION], check=True, capture_output=True, text=True).stdout.split()
    assert len(said) == 3
    assert len(set(said)) == 1
    wait_until(lambda: not Path(f"/proc/{said[0]}").exists())
