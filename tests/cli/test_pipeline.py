"""`muster pipeline` as people and scripts see it; what the tables hold is tested in tests/pipeline."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from muster.cli.run_output import show
from muster.cli.status import Status
from muster.pipeline import engine
from muster.pipeline.job import Summary
from muster.pipeline.model import Extracted, PartitionWork
from muster.pipeline.spark import session
from muster.pipeline.spark.pack import FOLDER, spark_conf
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.cli import corpus, run, run_process
from tests.pipeline.test_life import Life

SHORT_OF_SPARK = ("pipeline", "run", "--source", corpus("mini-zstd-43"))


class NoSpark:
    def stop(self) -> None:
        pass


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Spark is not started; what it was asked for."""
    asked: dict[str, Any] = {}

    def start(master: str | None, conf: dict[str, str]) -> NoSpark:
        asked.update(master=master, conf=conf)
        return NoSpark()

    monkeypatch.setattr(session, "spark_session", start)
    monkeypatch.setattr(engine, "SparkEngine", lambda spark: engine.LocalEngine())
    return asked


def test_a_run_tells_what_it_did(no_spark: dict[str, Any], tmp_path: Path) -> None:
    ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--master", "local[3]", "--conf", "spark.x=y")
    assert (ran.status, ran.out) == (Status.OK, "")
    assert no_spark == {"master": "local[3]", "conf": {"spark.x": "y"}}
    assert " new records of " in ran.err
    assert "history is complete: nothing was missing in the log when it was first read." in ran.err
    names = {line.split()[0] for line in ran.err.splitlines()}
    assert {"commits", "offsets", "groups", "members", "rebalances", "lag", "log_ends"} <= names
    shown = run("table", "offsets", "--tables", tmp_path / "t", "--json")
    assert shown.status == Status.OK
    assert shown.out
    again = run(*SHORT_OF_SPARK, "--out", tmp_path / "t")
    assert "muster: no new records; " in again.err


def test_a_log_that_had_been_compacted_is_complete_since_then_only(no_spark: dict[str, Any], tmp_path: Path) -> None:
    life = Life(tmp_path / "log")
    for number in range(20):
        life.commit(("app", 0), number)
    life.close_segment()
    life.clean()
    life.log.close()
    ran = run("pipeline", "run", "--source", life.root, "--out", tmp_path / "t")
    sentence = r"history is complete since 20.* UTC; the log had been compacted .* \(1 of its partitions\)"
    assert re.search(sentence, ran.err), ran.err
    (told,) = run("pipeline", "run", "--source", life.root, "--out", tmp_path / "t", "--json").out.splitlines()
    assert json.loads(told)["incomplete_partitions"] == 1
    state = run("pipeline", "run", "--source", life.root, "--out", tmp_path / "s", "--state-only")
    assert "history is complete" not in state.err


def test_history_that_was_dropped_is_not_called_complete(capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary("id", "directory", None, incomplete_partitions=0, history_since_ms=1_794_904_384_123)
    show(summary)
    earlier = capsys.readouterr().err
    assert "history is complete since 2026-11-17 08:33:04 UTC; what was before was dropped." in earlier
    summary.dropped_rows = {"commits": 7}
    show(summary)
    now = capsys.readouterr().err
    assert "history before 2026-11-17 08:33:04 UTC was dropped: 7 rows." in now
    assert "complete" not in now
    assert "nothing was missing" not in earlier + now


def test_the_summary_for_scripts(no_spark: dict[str, Any], tmp_path: Path) -> None:
    first = run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--json")
    assert (first.status, first.err) == (Status.OK, "")
    told = json.loads(first.out)
    assert told["records"] > 0
    assert told["rows"]["offsets"] > 0
    assert told["damaged"] is False
    again = run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--json")
    assert json.loads(again.out)["records"] == 0
    assert run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--quiet") == (Status.OK, "", "")


def test_tables_of_state_alone_and_with_history_are_told_apart_before_spark_starts(
    no_spark: dict[str, Any], tmp_path: Path
) -> None:
    assert run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--state-only", "--quiet").status == Status.OK
    no_spark.clear()
    ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t")
    assert (ran.status, len(ran.err.splitlines())) == (Status.BAD_INPUT, 1)
    assert "are of state alone" in ran.err
    assert "Run with --state-only, or write to another directory" in ran.err
    assert not no_spark


def test_damage_is_told_and_has_a_status_of_its_own(no_spark: dict[str, Any], tmp_path: Path) -> None:
    ran = run("pipeline", "run", "--source", corpus("damaged-flip"), "--out", tmp_path / "t")
    assert ran.status == Status.DAMAGED
    assert "partition" in ran.err


def test_state_alone(no_spark: dict[str, Any], tmp_path: Path) -> None:
    ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--state-only", "--json")
    assert "commits" not in json.loads(ran.out)["new_rows"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--source", "nothing/here", "--out", "t"), Status.BAD_INPUT, "nothing/here does not exist"),
        (("--source", "kafka://127.0.0.1:1", "--out", "t"), Status.UNREACHABLE, "127.0.0.1:1"),
        ((*SHORT_OF_SPARK[2:], "--out", "http://x/y"), Status.BAD_INPUT, "tables cannot be kept at http"),
        (
            (*SHORT_OF_SPARK[2:], "--out", "t", "--follow", "often"),
            Status.USAGE,
            "--follow: 'often' is not a length",
        ),
        ((*SHORT_OF_SPARK[2:], "--out", "t", "--conf", "x"), Status.USAGE, "--conf: 'x' is not NAME=VALUE"),
        ((*SHORT_OF_SPARK[2:], "--out", "t", "--storage-option", "x"), Status.USAGE, "'x' is not NAME=VALUE"),
        (
            (*SHORT_OF_SPARK[2:], "--out", "t", "--offsets-retention", "7"),
            Status.USAGE,
            "is a number without a unit. Write 7s, 7m, 7h or 7d",
        ),
        (("--out", "t"), Status.USAGE, "Missing option '--source'"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(
    no_spark: dict[str, Any], arguments: tuple[str, ...], status: Status, said: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = run("pipeline", "run", *arguments)
    assert ran.status == status, ran
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not no_spark
    assert not (tmp_path / "t").exists()


def test_a_place_for_tables_that_cannot_be_is_said_before_spark_starts(
    no_spark: dict[str, Any], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (theirs / name).touch()
    for out, said in (
        (theirs, f"{theirs} is not empty and has no tables of muster: a.txt, b.txt, c.txt and 1 more. Name a directory "
                 f"for them, {theirs}-tables say."),
        (theirs / "a.txt" / "tables", f"{theirs}/a.txt/tables cannot be written: Not a directory. Name another"),
    ):  # fmt: skip
        ran = run(*SHORT_OF_SPARK, "--out", out)
        assert (ran.status, ran.out) == (Status.BAD_INPUT, "")
        assert ran.err.startswith(f"muster: {said}")
        assert len(ran.err.splitlines()) == 1
    assert not no_spark
    assert len(list(theirs.iterdir())) == 4
    assert run(*SHORT_OF_SPARK, "--out", theirs / "tables", "--quiet").status == Status.OK


def test_what_a_killed_run_left_is_no_strangers(no_spark: dict[str, Any], tmp_path: Path) -> None:
    for name in ("commits", "_staging", ".hidden"):
        (tmp_path / "t" / name).mkdir(parents=True)
    (tmp_path / "t" / "_lock").write_text("{}")  # the name of one that did not get to its end
    assert run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--quiet").status == Status.OK


def test_tables_without_their_manifest_are_not_begun_anew(no_spark: dict[str, Any], tmp_path: Path) -> None:
    """A run that took them for nothing would leave their rows out, without a word."""
    (tmp_path / "t" / "commits").mkdir(parents=True)
    (tmp_path / "t" / "_lock").touch()
    for _ in range(2):
        ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t")
        assert (ran.status, len(ran.err.splitlines())) == (Status.BAD_INPUT, 1)
        assert "has tables of muster, but not their _manifest" in ran.err
        assert "Put _manifest back, or name another directory" in ran.err
    assert not no_spark


FOLLOW = """
import sys
from muster.cli.main import main
from muster.pipeline import engine
from muster.pipeline.spark import session
from tests.cli.test_pipeline import NoSpark
engine.SparkEngine, session.spark_session = lambda _: engine.LocalEngine(), lambda *_: NoSpark()
sys.exit(main(sys.argv[1:]))
"""


def test_it_goes_on_until_told_to_stop(tmp_path: Path) -> None:
    arguments = [*SHORT_OF_SPARK, "--out", str(tmp_path / "t"), "--follow", "1s", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert first["records"] > 0 == second["records"]
    assert (process.returncode, err) == (Status.INTERRUPTED, "muster: interrupted.\n")


def test_the_wait_for_spark_is_announced_to_people(no_spark: dict[str, Any], tmp_path: Path) -> None:
    assert run(*SHORT_OF_SPARK, "--out", tmp_path / "t").err.startswith("muster: starting Spark.\n")


class Interrupted:
    """A Spark whose job is interrupted at the keyboard while it is waited for; its context and DataFrames too."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.groups: set[str] = set()
        self.over = threading.Event()
        self.sparkContext = self
        self.kind = self
        self.conf = self

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self  # range, mapInArrow, persist, where, ...

    def get(self, name: str, default: str | None = None) -> str | None:
        return "local[1]" if name == "spark.master" else default

    def setJobGroup(self, group: str, description: str) -> None:
        assert threading.current_thread() is not threading.main_thread(), "a Ctrl-C would break the call to Java"
        self.groups.add(group)

    def collect(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # to the process, as a terminal does: the thread that waits is woken up
        assert self.over.wait(60)
        raise PySparkException("the job was cancelled")

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
        self.over.set()


def test_ctrl_c_cancels_the_job_of_spark_and_no_other() -> None:
    spark: Any = Interrupted()
    on_spark = engine.SparkEngine(spark)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # some libraries leave their own
    try:
        with pytest.raises(KeyboardInterrupt):
            on_spark.read(extract_nothing, [[]])
    finally:
        signal.signal(signal.SIGINT, before)
    assert spark.cancelled == list(spark.groups)


def extract_nothing(works: Sequence[PartitionWork]) -> Extracted:
    return Extracted((), (), ())


SLOW = """
import sys
from muster.cli.main import main
from muster.pipeline import job
from tests.cli import slow
job.extract = slow.extract
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("when", ["Spark starts", "Spark works"])
def test_ctrl_c_while_spark_is_at_it_is_one_sentence_and_leaves_no_process(when: str, tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to all processes of the command."""
    begun, config = tmp_path / "begun", tmp_path / "client.properties"
    config.write_text("sasl.password=correct-horse\n")
    root = Path(__file__).parent.parent.parent
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *SHORT_OF_SPARK, "--out", str(tmp_path / "t"), "--master", "local[1]",
         "--command-config", str(config)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=root,
        env=os.environ | {"MUSTER_TEST_BEGUN": str(begun), "PYTHONPATH": path},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "muster: starting Spark.\n"
        deadline = time.monotonic() + 300
        while not (begun.exists() if when == "Spark works" else java_in(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert b"correct-horse" not in b"".join(map(arguments_of, processes_of(process.pid)))
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)  # which ends when nobody holds the pipes any more
    assert (process.returncode, out, err) == (Status.INTERRUPTED, "", "muster: interrupted.\n")


def processes_of(group: int) -> list[Path]:
    """The processes of a group, of those in /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[2]) == group:
                found.append(stat.parent)
    return found


def arguments_of(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "cmdline").read_bytes()
    return b""


def java_in(group: int) -> bool:
    return any(b"java\0" in arguments_of(process) for process in processes_of(group))


@pytest.mark.long
def test_an_archive_for_workers(tmp_path: Path) -> None:
    archive = tmp_path / "w.tar.gz"
    ran = run_process("pipeline", "pack", archive, "--json")
    assert ran.status == Status.OK, ran.err
    told = json.loads(ran.out)
    assert told["size_bytes"] == archive.stat().st_size
    assert told["conf"] == spark_conf(str(archive))
    assert told["conf"]["spark.archives"] == f"{archive}#{FOLDER}"
    assert set(told["ways"]) == {"standalone", "yarn", "kubernetes", "connect"}
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert told["files"] == len(names) == len(set(names))
    ours = "muster/pipeline/extract/partition.py"
    for module in (ours, "duckdb/__init__.py", "numba/__init__.py", "pyarrow/__init__.py", "deltalake/__init__.py"):
        assert module in names, module
    assert not [name for name in names if name.startswith(("/", "..", "pyspark/"))]
    assert not [name for name in names if "/tests/" in name or "__pycache__" in name]
    assert [name for name in names if re.match(r"muster/codec/columns/compiled/\w+/kernels\.", name)]


def test_an_archive_that_cannot_be_written() -> None:
    ran = run_process("pipeline", "pack", "nothing/here/w.tar.gz")
    assert ran.status == Status.BAD_INPUT
    assert "nothing/here/w.tar.gz cannot be written: No such file or directory." in ran.err


@pytest.mark.parametrize("asked", [("pipeline", "--help"), ("pipeline", "run", "--help"), ("pipeline", "pack", "-h")])
def test_help_needs_no_spark(asked: tuple[str, ...]) -> None:
    script = f"import sys; from muster.cli.main import main; main({list(asked)!r}); sys.exit('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Usage:" in ended.stdout


def test_tables_that_a_run_is_writing_to_are_refused_before_spark_starts(
    no_spark: dict[str, Any], tmp_path: Path
) -> None:
    with begin_run(TableStore(tmp_path / "t")):
        ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t")
    assert ran.status == Status.BAD_INPUT
    assert ran.err.startswith(
        f"muster: another run is writing to the tables in {tmp_path / 't'} (process {os.getpid()} "
    )
    assert not no_spark
    assert run(*SHORT_OF_SPARK, "--out", tmp_path / "t").status != Status.BAD_INPUT
