"""Runs that end badly: killed, a second one at the same time, a disk that is full, a directory nobody may write to."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.cli.status import Status
from muster.errors import BadInput
from muster.tables.reading import open_tables
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.cli import command, run
from tests.pipeline.test_job import HISTORY, STATE, sorted_rows
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked

ALL = (*STATE, *HISTORY, "lag")
ROOT = Path(__file__).parent.parent.parent
IN_PROCESS = """
import sys
from pathlib import Path
from tests.pipeline.world import run_here
print("begun", flush=True)
run_here(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def in_process(tables: Path, log: Path) -> list[str]:
    """A run without Spark, as a process that can be killed."""
    return [sys.executable, "-c", IN_PROCESS, str(tables), str(log)]


def on_spark(tables: Path, log: Path) -> list[str]:
    return command("pipeline", "run", "--source", log, "--out", tables, "--master", "local[2]", "--quiet")


class Reader:
    """Opens the tables over and over while runs come and go; every answer must be of one whole run."""

    def __init__(self, tables: Path, pause_s: float = 0.05) -> None:
        self._tables, self._pause_s = tables, pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        self.looks = 0
        self.seen: dict[str, dict[str, list[str]]] = {}
        """By run."""
        self.problems: list[str] = []

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join(60)

    def _read_on(self) -> None:
        while not self._over.wait(self._pause_s):
            try:
                self._look()
            except Exception as error:  # whatever it is, the test shall say it
                self.problems.append(repr(error))

    def _look(self) -> None:
        if TableStore(self._tables).manifest() is None:
            return  # nothing was ever published: there is nothing to read, and no half of it either
        with open_tables(self._tables) as tables:
            run_id = tables.manifest.run_id
            rows = {name: sorted_rows(tables.read(name).table().to_pylist()) for name in ALL}
            first = self.seen.setdefault(run_id, rows)
            if first != rows:
                self.problems.append(f"the tables of run {run_id} changed under a reader")
        self.looks += 1


def killed_in(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it was still at it after so many seconds, and was killed with all that it had started."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a group of its own: with it go Spark's JVM and workers
        process.wait(30)
        return True
    assert process.returncode == 0
    return False


def started(arguments: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(arguments, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, **more)


def kill_again_and_again(rounds: int, tmp_path: Path, seed: int, pause_s: float = 0.05) -> None:
    random = Random(seed)
    growing = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "growing", random)
    growing.grow()
    tables, killed = tmp_path / "tables", 0
    began = time.monotonic()
    run_here(tables, growing.target)
    usual_s = time.monotonic() - began
    with Reader(tables, pause_s) as reader:
        for _ in range(rounds):
            if random.random() < 0.5:
                growing.grow()
            with started(in_process(tables, growing.target)) as process:
                assert process.stdout is not None
                process.stdout.readline()  # imports are behind it
                killed += killed_in(process, random.uniform(0, 1.2 * usual_s))
        growing.grow(all_of_it=True)
        run_here(tables, growing.target)
    run_here(tmp_path / "at-once", growing.target)
    after, at_once = rows_of(tables, *ALL), rows_of(tmp_path / "at-once", *ALL)
    for table in ALL:
        assert sorted_rows(after[table]) == sorted_rows(at_once[table]), table
    assert not reader.problems
    assert reader.looks
    assert killed >= max(1, rounds // 4), "hardly a run was caught at work"
    assert not list((tables / "_staging").glob("*")), "what killed runs had staged is still there"


def test_killed_runs_leave_whole_tables(tmp_path: Path) -> None:
    kill_again_and_again(3, tmp_path, seed=1, pause_s=0.6)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_killed_runs_leave_whole_tables_often(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(20, tmp_path, seed)


@pytest.mark.long
@pytest.mark.spark
def test_killed_runs_on_spark(tmp_path: Path) -> None:
    random = Random(7)
    growing = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "growing", random)
    growing.grow()
    tables = tmp_path / "tables"
    began = time.monotonic()
    subprocess.run(on_spark(tables, growing.target), cwd=ROOT, check=True)
    usual_s = time.monotonic() - began
    killed = 0
    with Reader(tables) as reader:
        for _ in range(3):
            growing.grow()
            with started(on_spark(tables, growing.target)) as process:
                killed += killed_in(process, random.uniform(0.5, 0.95) * usual_s)
        growing.grow(all_of_it=True)
        subprocess.run(on_spark(tables, growing.target), cwd=ROOT, check=True)
    run_here(tmp_path / "at-once", growing.target)
    after, at_once = rows_of(tables, *ALL), rows_of(tmp_path / "at-once", *ALL)
    for table in ALL:
        assert sorted_rows(after[table]) == sorted_rows(at_once[table]), table
    assert not reader.problems
    assert killed
    assert reader.looks


@pytest.mark.matrix
@pytest.mark.spark
@pytest.mark.parametrize("is_followed", [True, False])
def test_java_is_killed(is_followed: bool, tmp_path: Path) -> None:
    """Out of memory, say: in its first task, or between two runs. One sentence, and what was published stays."""
    log, tables = unpacked("k43-all", tmp_path), tmp_path / "tables"
    words = command("pipeline", "run", "--source", log, "--out", tables, *(["--follow", "1s"] if is_followed else []))
    with started(words, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        if is_followed:
            while b"new records" not in (line := process.stderr.readline()):
                assert line
        else:
            while not _of_session(process.pid, "spark.daemon\0pyspark.worker"):
                time.sleep(0.02)
        for java in _of_session(process.pid, "/java\0"):
            os.kill(java, signal.SIGKILL)
        said = process.stderr.read().decode()
        assert process.wait(60) == Status.BAD_INPUT
    assert "muster: Java, which Spark runs in, has ended" in said
    assert "Traceback" not in said
    assert (TableStore(tables).manifest() is not None) == is_followed


def _of_session(number: int, word: str) -> list[int]:
    """Processes that were started under this one, but for those that wait to be needed."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            command = (entry / "cmdline").read_text()
            if word in command and "--early" not in command and os.getsid(int(entry.name)) == number:
                found.append(int(entry.name))
    return found


def test_two_runs_at_once_the_second_is_refused(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    run_here(tmp_path / "tables", log)
    before = rows_of(tmp_path / "tables", *ALL)
    with begin_run(TableStore(tmp_path / "tables")), pytest.raises(BadInput) as refused:
        run_here(tmp_path / "tables", log)
    said = str(refused.value)
    assert said.startswith(f"another run is writing to the tables in {tmp_path / 'tables'} (process {os.getpid()} on ")
    assert said.endswith("Wait for it to end, or stop it; reading them is possible all the while.")
    assert rows_of(tmp_path / "tables", *ALL) == before
    run_here(tmp_path / "tables", log)  # and when the first is over, nothing is in the way


LIMITED = """
import os, resource, signal, sys
from muster.cli.main import main
from muster.pipeline import engine
from muster.pipeline.spark import session
from muster.tables.storage.store import TableStore
class Stopped:
    def stop(self): pass
engine.SparkEngine, session.spark_session = lambda _: engine.LocalEngine(), lambda *_: Stopped()
def limited(size_bytes):
    print(TableStore(sys.argv[-1]).manifest().run_id)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
def nobody(log, tables):
    main(["pipeline", "run", "--source", log, "--out", tables, "-q"])  # all is imported before the rights are gone
    os.seteuid(65534)
ended = set()
for preparation in sys.argv[1].splitlines():
    exec(preparation)
    ended.add(main(sys.argv[2:]))
(status,) = ended
sys.exit(status)
"""
"""The command with its tasks in this process, and something done to the process first; a run for each such thing."""


def run_after(preparations: Sequence[str], log: Path, tables: Path) -> "subprocess.CompletedProcess[str]":
    arguments = ("pipeline", "run", "--source", str(log), "--out", str(tables))
    script = [sys.executable, "-c", LIMITED, "\n".join(preparations), *arguments]
    return subprocess.run(script, cwd=ROOT, capture_output=True, text=True)


def test_a_disk_without_space_leaves_the_tables_as_they_were(tmp_path: Path) -> None:
    """Files may grow to a few sizes only: each time the write fails somewhere else, each time with one sentence."""
    growing = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "growing", Random(1))
    growing.grow()
    tables = tmp_path / "tables"
    whole = run_here(tables, growing.target)
    before = rows_of(tables, *ALL)
    growing.grow(all_of_it=True)
    ended = run_after([f"limited({size_bytes})" for size_bytes in (1_000, 6_000, 12_000)], growing.target, tables)
    assert ended.returncode == Status.BAD_INPUT, ended.stderr
    assert ended.stdout.splitlines() == [whole.run_id] * 3, "a run that failed was published"
    said = ended.stderr.splitlines()
    assert said[0::2] == ["muster: starting Spark."] * 3
    assert ["File too large" in sentence for sentence in said[1::2]] == [True] * 3, ended.stderr
    assert rows_of(tables, *ALL) == before
    run_here(tables, growing.target)
    run_here(tmp_path / "at-once", growing.target)
    assert sorted_rows(rows_of(tables, "commits")["commits"]) == sorted_rows(
        rows_of(tmp_path / "at-once", "commits")["commits"]
    )


@pytest.mark.long
def test_no_rights_on_the_tables(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, tables = unpacked("mini-zstd-43", Path(folder)), Path(folder) / "tables"
        Path(folder).chmod(0o755)
        run_here(tables, log)
        before = rows_of(tables, *ALL)
        if os.geteuid() == 0:
            ended = run_after([f"nobody({str(log)!r}, {str(tmp_path / 'warm')!r})"], log, tables)
        else:
            (tables / "_lock").chmod(0o400)
            ended = run_after(["pass"], log, tables)
        assert ended.returncode == Status.BAD_INPUT, ended.stderr
        assert ended.stderr == (
            f"muster: {tables}/_lock cannot be written: Permission denied. Run as a user who may write there, or name "
            "another directory; the tables are as the last whole run left them.\n"
        )
        assert rows_of(tables, *ALL) == before


def test_tables_where_a_file_is(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    (tmp_path / "tables").touch()
    ran = run("pipeline", "run", "--source", log, "--out", tmp_path / "tables")
    assert ran.status == Status.BAD_INPUT, ran.err
    assert len(ran.err.splitlines()) == 1, ran.err
