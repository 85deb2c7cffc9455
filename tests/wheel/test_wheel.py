"""muster without what its extras bring: with those libraries hidden; in `make real` as the wheel, installed alone."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from muster import Broker, extras
from muster.pipeline.engine import LocalEngine
from muster.pipeline.job import Request
from muster.pipeline.job import run as run_job
from tests.cli import run as command_here
from tests.wheel.__main__ import MOST_BYTES, SOUND_CORPORA
from tests.wheel.environments import ROOT, Environment, build_wheel, run
from tests.wheel.trial import CORPORA, LEFT_OUT

HIDING = """
import sys

class Hiding:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def hiding_all_but(extra: str | None, folder: Path) -> list[Path]:
    """A path for modules on which those of the other extras are missing, for a process and all that it starts."""
    hidden = {*LEFT_OUT} - {*extras.MODULES.get(extra or "", ())}
    (folder / "sitecustomize.py").write_text(f"HIDDEN = {sorted(hidden)!r}\n{HIDING}")
    return [folder, ROOT / "src", ROOT]


def test_a_server_needs_none_of_the_large_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.wheel.trial", "k43-full"]
    run(command, hiding_all_but(None, tmp_path), timeout=120)


# One extra at a time.

COMMANDS = """
import sys
from muster.cli.main import main
for command in sys.argv[1:]:
    status = main(command.split())
    assert status == 0, command
"""


def test_columns_are_enough_for_dumps(tmp_path: Path) -> None:
    log = CORPORA / "mini-zstd-43" / "mini-zstd-43.tar.zst"
    formats = ("--format text", "--format table --limit 3", "--json --latest", "--summary", "-f parquet -o x.parquet")
    commands = [f"dump {log} {format}" for format in formats]
    run([sys.executable, "-c", COMMANDS, *commands], hiding_all_but(extras.COLUMNS, tmp_path))


def test_a_client_is_enough_for_groups(muster_fresh_broker: Broker, tmp_path: Path) -> None:
    muster_fresh_broker.create_topic("orders")
    muster_fresh_broker.seed_commits("shipping", {("orders", 0): 2})
    at = f"-b {muster_fresh_broker.bootstrap_servers}"
    commands = [
        f"groups list {at}",
        f"groups describe -g shipping {at}",
        f"groups delete-offsets -g shipping -t orders {at}",
    ]
    run([sys.executable, "-c", COMMANDS, *commands], hiding_all_but(extras.GROUPS, tmp_path))
    assert muster_fresh_broker.committed("shipping") == {}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "tables"
    run_job(LocalEngine(), Request([str(CORPORA / "k43-all" / "k43-all.tar.zst")], str(folder), analytics=False))
    return folder


QUESTIONS = (
    "table --json", "table offsets", "table lag --csv --limit 0", "table commits --json --group billing",
    "table groups --json --as-of 2026-11-16T05:03:00Z", "table commits -o commits.parquet", "pipeline compact --json",
    "pipeline migrate",
)  # fmt: skip


def answers(python: str | Path, python_path: Sequence[Path], tables: Path) -> str:
    commands = [f"{question} --tables {tables}" for question in QUESTIONS]
    done = run([str(python), "-c", COMMANDS, *commands], python_path, stdout=subprocess.PIPE)
    return str(done.stdout)


def test_tables_need_neither_spark_nor_numba(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = answers(sys.executable, hiding_all_but(extras.TABLES, tmp_path), tables)
    monkeypatch.chdir(tmp_path)
    asked = [command_here(*question.split(), "--tables", tables) for question in QUESTIONS]
    assert [ran.status for ran in asked] == [0] * len(QUESTIONS)
    assert told == "".join(ran.out for ran in asked)
    assert told.count("\n") > 100


# The wheel.


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


A_TEST = """
def test_a_commit(muster_broker):
    muster_broker.create_topic("orders")
    muster_broker.seed_commits("shipping", {("orders", 0): 2})
    assert muster_broker.committed("shipping") == {("orders", 0): 2}
"""


@pytest.mark.matrix
def test_the_wheel_alone_is_a_broker(wheel: Path, tmp_path: Path) -> None:
    bare = Environment(tmp_path / "bare")
    bare.install(str(wheel))
    assert bare.installed_bytes <= MOST_BYTES
    bare.run("-m", "tests.wheel.trial", *SOUND_CORPORA, timeout=300)
    bare.install("pytest")
    (tmp_path / "test_user.py").write_text(A_TEST)
    bare.run("-m", "pytest", "-q", str(tmp_path / "test_user.py"), timeout=60)


@pytest.mark.matrix
def test_the_wheel_with_tables_answers_questions(wheel: Path, tables: Path, tmp_path: Path) -> None:
    some = Environment(tmp_path / "some")
    some.install(f"{wheel}[{extras.TABLES}]")
    assert answers(some.python, [], tables) == answers(sys.executable, [ROOT / "src"], tables)
    with pytest.raises(subprocess.CalledProcessError) as error:
        some.run("-m", "muster", "dump", ".", capture_output=True)
    assert error.value.stderr == "muster: `muster dump` needs numpy and numba: pip install 'muster[columns]'.\n"
