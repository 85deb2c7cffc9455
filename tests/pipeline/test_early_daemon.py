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

from muster.pipeline.spark.early_daemon import MODULE, PLACE, is_like, started_early
from tests.kit.kafka import REPOSITORY
from tests.kit.spark import require_java

ENOUGH_S = 60.0
SECRET = "a secret of Spark's"
REAL, LIGHT = "muster.pipeline.spark.daemon", "tests.pipeline.light_daemon"
AS_SPARK_STARTS_IT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHON_WORKER_FACTORY_SECRET": SECRET}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Spark forks its workers where processes can be forked.")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Parents are looked up in /proc.")


class Early:
    """What the driver has started, and the address that Java would be told."""

    def __init__(self, module: str) -> None:
        with started_early({MODULE: module}) as process:
            self.place = Path(os.environ[PLACE])
        assert PLACE not in os.environ
        assert process is not None
        self.process, self.folder = process, self.place.parent

    def end(self) -> None:
        _end(self.process)


class Child:
    """What Spark starts as its daemon."""

    def __init__(self, place: Path | None, module: str, folder: Path | None, **environment: str) -> None:
        given = os.environ | AS_SPARK_STARTS_IT | environment
        given.pop("PYTEST_CURRENT_TEST", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "pyspark.worker"],
            env=given | ({} if place is None else {PLACE: str(place)}),
            cwd=folder,
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

    def works_alone(self) -> bool:
        with self.worker() as worker:
            return parent_of(worker) == self.process.pid

    def end(self) -> None:
        """As Spark ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(ENOUGH_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@pytest.fixture(params=[LIGHT])
def early(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Early]:
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)  # which says of the child that it is another part of it
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    one = Early(request.param)
    yield one
    one.end()


with_all_imports = pytest.mark.parametrize("early", [REAL], indirect=True)


@contextmanager
def child(place: Path | None, module: str = LIGHT, folder: Path | None = None, **environment: str) -> Iterator[Child]:
    one = Child(place, module, folder, **environment)
    try:
        yield one
    finally:
        _end(one.process)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(is_so: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < ENOUGH_S
        time.sleep(0.05)


@needs_proc
@with_all_imports
def test_workers_are_forked_from_the_process_that_was_started_early(early: Early) -> None:
    with child(early.place, REAL) as one, one.worker() as first, one.worker() as second:
        assert {parent_of(first), parent_of(second)} == {early.process.pid}
        assert first != second
        assert list(early.folder.iterdir()) == []
        one.end()
        early.process.wait(ENOUGH_S)
        wait_until(lambda: not Path(f"/proc/{first}").exists())
    assert not early.folder.exists()


@needs_proc
def test_a_second_child_imports_by_itself(early: Early) -> None:
    with child(early.place) as first, child(early.place) as second:
        with first.worker() as worker:
            assert parent_of(worker) == early.process.pid
        assert second.works_alone()
        second.end()


@needs_proc
def test_who_was_started_in_another_environment_does_not_take_over(early: Early) -> None:
    with child(early.place, TZ="Asia/Tokyo") as one:
        assert one.works_alone()
        early.process.wait(ENOUGH_S)
        assert not early.folder.exists()


def test_environments_are_compared_by_what_libraries_read() -> None:
    ours = {"HOME": "/home/somebody", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "_": "/bin/sh"}
    assert is_like(ours, ours | {"SPARK_HOME": "/spark", "PYTHONPATH": "/zip", "PYSPARK_PYTHON": "python", "_": "java"})
    assert not is_like(ours, ours | {"OMP_NUM_THREADS": "2"})
    assert not is_like(ours, ours | {"NUMBA_NUM_THREADS": "2"})
    assert not is_like(ours | {"LANG": "C"}, ours)


@needs_proc
def test_nobody_else_is_given_anything(tmp_path: Path) -> None:
    """The folder is not as this user's process has made it: anybody could have put the socket there."""
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(1)
        with child(folder / "socket") as one:
            assert one.works_alone()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_spark_sees_that_the_daemon_has_died(early: Early) -> None:
    with child(early.place) as one, one.worker():
        early.process.kill()
        one.process.wait(ENOUGH_S)


def test_the_daemon_ends_with_its_pipes_though_the_child_was_killed(early: Early) -> None:
    with child(early.place) as one:
        one.process.kill()
        one.end()
        early.process.wait(ENOUGH_S)


def test_it_ends_with_the_driver_when_nobody_has_come(early: Early) -> None:
    assert early.process.stdin is not None
    early.process.stdin.close()
    assert early.process.wait(ENOUGH_S) == 0
    assert not early.folder.exists()
    with child(early.place) as one:
        one.end()


@with_all_imports
def test_it_clears_up_when_it_is_told_to_end(early: Early) -> None:
    wait_until(lambda: b"numba" in Path(f"/proc/{early.process.pid}/maps").read_bytes())
    early.process.terminate()
    early.process.wait(ENOUGH_S)
    assert not early.folder.exists()


def test_nothing_is_left_where_java_did_not_start() -> None:
    found: list[Path] = []

    def start() -> None:
        with started_early({MODULE: LIGHT}) as process:
            found.append(Path(os.environ[PLACE]))
            assert process is not None
            started.append(process)
            raise RuntimeError

    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(RuntimeError):
        start()
    started[0].wait(ENOUGH_S)
    assert not found[0].parent.exists()
    _end(started[0])


def test_a_path_that_is_too_long_for_a_socket_costs_the_head_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with started_early({MODULE: LIGHT}) as process:
        assert process is None
        assert PLACE not in os.environ
    assert not list(long.iterdir())


@needs_proc
def test_files_with_the_names_of_modules_where_the_user_is(early: Early, tmp_path: Path) -> None:
    (tmp_path / "socket.py").write_text("raise RuntimeError")
    with child(early.place, REAL, tmp_path) as one, one.worker() as worker:
        assert parent_of(worker) == early.process.pid
    with child(None, REAL, tmp_path) as one:
        assert one.works_alone()


SESSION = """
import os
from muster.pipeline.spark.session import spark_session

def parents(batches):
    import pyarrow as pa
    for _ in batches:
        command = open(f"/proc/{os.getppid()}/cmdline").read()
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()], "is_early": ["--early" in command]})

spark = spark_session("local[1]", {"spark.ui.enabled": "false"})
rows = spark.range(0, 2, 1, 2).mapInArrow(parents, "pid long, is_early boolean").collect()
print(*{row.pid for row in rows}, *{row.is_early for row in rows})
spark.stop()
"""


@needs_proc
@pytest.mark.matrix
@pytest.mark.spark
def test_spark_takes_it(tmp_path: Path) -> None:
    require_java()
    ran = subprocess.run(
        [sys.executable, "-c", SESSION],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    pid, is_early = ran.stdout.split()
    assert is_early == "True"
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: not list(tmp_path.glob("muster-workers-*")))
