"""What is told when a worker's Python is not what tasks need. The messages are Spark's own, cut from real clusters."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.pipeline.spark import pack
from muster.pipeline.spark.pack import PYTHON, STARTER, ways, worker_trouble

NO_MUSTER = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 454, in loads
    return cloudpickle.loads(obj, encoding=encoding)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/spark/python/lib/pyspark.zip/pyspark/cloudpickle/cloudpickle.py", line 469, in subimport
    __import__(name)
ModuleNotFoundError: No module named 'muster'
"""
NO_ARROW = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2530, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000
"""
OTHER_PYTHON = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", line 86, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""
OLD_PYTHON = """
An error occurred while calling o69.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 12) (127.0.0.1 executor 0): org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "/usr/lib/python3.8/runpy.py", line 185, in _run_module_as_main
      mod_name, mod_spec, code = _get_module_details(mod_name, _Error)
    File "/usr/lib/python3.8/runpy.py", line 111, in _get_module_details
      __import__(pkg_name)
"""
NO_PROGRAM = """
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 10) (127.0.0.1 executor 0): java.io.IOException: \
Cannot run program "./nothing/python3": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
NO_PYTHON_THERE = """
failure: Lost task 0.3 in stage 0.0 (TID 10) (127.0.0.1 executor 0): org.apache.spark.SparkException:
Error from python worker:
  muster: no Python 3.11 on the PATH of this worker (node7): /usr/bin:/bin
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip
java.io.EOFException
"""
TOLD = {
    NO_MUSTER: "a worker's Python has no module muster. Give the workers what they need: `muster pipeline pack`",
    NO_ARROW: "a worker's Python has no module pyarrow. Give the workers what they need: `muster pipeline pack`",
    OTHER_PYTHON: f"a worker runs Python 3.12, and this is Python {PYTHON}: Spark needs the same on both.",
    OLD_PYTHON: f"a worker runs Python 3.8, and this is Python {PYTHON}: Spark needs the same on both.",
    NO_PROGRAM: "a worker has no program ./nothing/python3, which was to be its Python.",
    NO_PYTHON_THERE: "no Python 3.11 on the PATH of this worker (node7). Install it there, or pack with the Python",
}


@pytest.mark.parametrize("said", TOLD, ids=["muster", "pyarrow", "3.12", "3.8", "program", "none"])
def test_a_worker_that_cannot_run_tasks_is_told_in_a_sentence(said: str) -> None:
    sentence = worker_trouble(said)
    assert sentence.startswith(TOLD[said])
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    "said", ["", "ValueError: Python in a record", "java.lang.OutOfMemoryError: Java heap space", "[DIVIDE_BY_ZERO]"]
)
def test_other_troubles_are_not_the_workers_python(said: str) -> None:
    assert worker_trouble(said) == ""


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    path = tmp_path / "muster-workers" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(STARTER)
    path.chmod(0o755)
    return path


def tools(folder: Path, **programs: str) -> Path:
    """A PATH with these programs, and what a shell script may expect."""
    folder.mkdir()
    for name in ("dirname", "hostname", "sh"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, target in programs.items():
        (folder / name).symlink_to(target)
    return folder


def test_a_workers_python_is_the_one_of_the_right_version_with_the_archive_on_its_path(starter: Path) -> None:
    wrong = starter.parent / "wrong"
    as_python_2 = "import sys; sys.version_info = (2, 7); exec(sys.argv[1])"
    wrong.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{as_python_2}' \"$2\"\n")
    wrong.chmod(0o755)
    path = tools(starter.parent.parent.parent / "tools", python=sys.executable, python3=str(wrong))
    asked = "import sys; print(*sys.version_info[:2]); print(sys.path[1])"
    told = subprocess.check_output([starter, "-c", asked], env={"PATH": str(path)}, text=True, cwd="/").split("\n")
    assert told[0] == PYTHON.replace(".", " ")
    assert told[1] == str(starter.parent.parent)


def test_a_worker_without_that_python_says_so(starter: Path) -> None:
    path = tools(starter.parent.parent.parent / "tools")
    ended = subprocess.run([starter, "-c", ""], env={"PATH": str(path)}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert worker_trouble(ended.stderr).startswith(f"no Python {PYTHON} on the PATH of this worker (")


IN_TASKS = (
    "engine", "extract.partition", "merge", "interval_task", "frames", "datasource", "spark.published", "spark.stream",
)  # fmt: skip
"""Modules that Spark's tasks load by name."""


@pytest.mark.matrix
def test_what_tasks_import_is_in_the_archive(tmp_path: Path) -> None:
    """A Python without packages, and the archive beside PySpark, which every worker of Spark has."""
    import py4j
    import pyspark

    for path, name in pack._files():
        (tmp_path / "archive" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "archive" / name).symlink_to(path)
    assert len(list(tmp_path.glob("archive/muster/codec/columns/compiled/*/*.nbc"))) > 20
    (tmp_path / "spark").mkdir()
    for module in (pyspark, py4j):
        (tmp_path / "spark" / module.__name__).symlink_to(Path(module.__file__).parent)
    asked = "; ".join(f"import muster.pipeline.{name}" for name in IN_TASKS)
    ended = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        env={"PYTHONPATH": f"{tmp_path / 'archive'}:{tmp_path / 'spark'}", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_the_settings_of_every_kind_of_cluster_name_the_archive() -> None:
    told = ways("here/w.tar.gz")
    for kind in ("standalone", "yarn", "connect"):
        assert "spark.archives=here/w.tar.gz#muster-workers" in told[kind]
    assert "spark.archives=s3a://BUCKET/w.tar.gz#muster-workers" in told["kubernetes"]
    assert all("muster-workers/bin/python" in text for text in told.values())
    assert not [line for text in told.values() for line in text.splitlines() if len(line) > 100]
