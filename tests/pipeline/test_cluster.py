"""The job where Spark is several machines: a standalone cluster whose Python knows nothing of muster; Spark Connect.

All of it is processes of one machine, on loopback (`tests.kit.spark`). What the tables hold is compared with a run in
this process; what Spark did is read from its event log.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from muster.cli.status import Status
from muster.tables.schemas import ANALYTICS
from muster.tables.storage.store import TableStore
from tests.cli import Ran, command, run_process
from tests.kit.kafka import REPOSITORY
from tests.kit.spark import BASE_PYTHON, SparkCluster, bare_environment, connect_server, require_java
from tests.pipeline.test_job import HISTORY, STATE
from tests.pipeline.world import run_here, unpacked

pytestmark = [pytest.mark.matrix, pytest.mark.spark]
RECORDS = 5_000_000
TIME_LIMIT_S = 1800
PIECE_BYTES = 64 << 20
ENVIRONMENT = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
HERE = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    require_java()
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `muster pipeline pack` says to set."""
    archive = tmp_path_factory.mktemp("archive") / "workers.tar.gz"
    ran = run_process("pipeline", "pack", archive, "--json")
    assert ran.status == 0, ran.err
    settings: dict[str, str] = json.loads(ran.out)["conf"]
    return settings


def made_log(folder: Path, records: int) -> Path:
    generate = [sys.executable, REPOSITORY / "bench" / "make_large.py", "--records", str(records), "--out", folder]
    subprocess.run(generate, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with work for several tasks."""
    return made_log(tmp_path_factory.mktemp("large") / "log", RECORDS)


def job(master: str, source: Path, tables: Path, settings: dict[str, str], *more: str) -> list[str]:
    here = {} if master.startswith("sc://") else HERE
    words = [word for name, value in (here | settings).items() for word in ("--conf", f"{name}={value}")]
    return command("pipeline", "run", "--source", source, "--out", tables, "--master", master, *words, "--json", *more)


def run_on(master: str, source: Path, tables: Path, settings: dict[str, str], *more: str) -> Ran:
    arguments = job(master, source, tables, settings, *more)
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=TIME_LIMIT_S, env=ENVIRONMENT)
    return Ran(ended.returncode, ended.stdout, ended.stderr)


class Task(NamedTuple):
    stage: int
    executor: str
    launched: int
    ended: int
    reason: str


def events(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def events_in(folder: Path) -> Iterator[dict[str, Any]]:
    [log] = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return map(json.loads, log.read_text().splitlines())


def steps_in(folder: Path) -> dict[str, list[int]]:
    """The jobs that Spark ran, by their names in its UI, with the stages of each."""
    jobs = [event for event in events_in(folder) if event["Event"] == "SparkListenerJobStart"]
    return {event["Properties"].get("spark.job.description", ""): event["Stage IDs"] for event in jobs}


def tasks_in(folder: Path) -> list[Task]:
    found = []
    for event in events_in(folder):
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            times = (info["Launch Time"], info["Finish Time"])
            found.append(Task(event["Stage ID"], info["Executor ID"], *times, event["Task End Reason"]["Reason"]))
    return found


def at_once(tasks: list[Task]) -> int:
    """How many ran at the busiest moment."""
    return max(sum(one.launched <= other.launched < one.ended for one in tasks) for other in tasks)


def digests(tables: Path) -> dict[str, tuple[int, int]]:
    """Of each table the number of rows, and a sum over all of them that does not depend on their order."""
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    found = {}
    for table in (*STATE, *HISTORY, "lag", *ANALYTICS):
        files = store.files(table, manifest.tables[table]) if table in manifest.tables else []
        with duckdb.connect() as connection:
            if files:
                connection.read_parquet(files).create_view("rows")
                told = connection.execute("SELECT count(*), sum(hash(r)::HUGEINT) FROM rows r").fetchone()
                assert told is not None
                found[table] = told
    return found


def test_a_cluster_gives_what_one_process_gives(cluster: SparkCluster, packed: dict[str, str], tmp_path: Path) -> None:
    for module in ("muster", "numba", "duckdb"):
        asked = [Path(BASE_PYTHON).name, "-c", f"import {module}"]
        told = subprocess.run(asked, cwd=cluster.folder, env=bare_environment(), capture_output=True)
        assert b"ModuleNotFoundError" in told.stderr, module
    log = unpacked("k43-all", tmp_path)
    ran = run_on(cluster.master, log, tmp_path / "tables", packed)
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["records"] == 2294
    assert all(worker.executors() for worker in cluster.workers)
    run_here(tmp_path / "here", log, analytics=True)
    assert digests(tmp_path / "tables") == digests(tmp_path / "here")


def test_tasks_are_as_many_as_there_is_work_and_all_cores_take_part(
    cluster: SparkCluster, packed: dict[str, str], large: Path, tmp_path: Path
) -> None:
    settings = packed | events(tmp_path / "events")
    ran = run_on(cluster.master, large, tmp_path / "tables", settings, "--no-analytics")
    assert ran.status == 0, ran.err
    tasks = tasks_in(tmp_path / "events")
    size_bytes = sum(file.stat().st_size for file in large.glob("__consumer_offsets-*/*.log"))
    first = [task for task in tasks if task.stage == min(each.stage for each in tasks)]
    assert len(first) >= size_bytes // PIECE_BYTES
    assert {task.executor for task in first} == {"0", "1"}
    assert at_once(first) >= 4  # a core is free a moment before the end of its task is written down


def test_a_worker_killed_inside_a_task_changes_nothing(packed: dict[str, str], large: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with SparkCluster(tmp_path / "cluster") as cluster:
        victim = cluster.workers[1]
        arguments = job(cluster.master, large, tables, packed | events(tmp_path / "events"), "--no-analytics")
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as running:
            until = time.monotonic() + 300
            while not (list(tables.glob("commits/**/*.parquet")) and len(victim.python_workers()) > 1):
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < until
                time.sleep(0.01)
            victim.kill()
            out, err = running.communicate(timeout=TIME_LIMIT_S)
    assert running.returncode == 0, err
    assert json.loads(out)["records"] >= RECORDS
    reasons = [task.reason for task in tasks_in(tmp_path / "events")]
    assert "ExecutorLostFailure" in reasons, "the worker had nothing to do when it was killed"
    run_here(tmp_path / "here", large)
    assert digests(tables) == digests(tmp_path / "here")


def test_history_by_interval_is_made_on_the_workers(
    cluster: SparkCluster, packed: dict[str, str], large: Path, tmp_path: Path
) -> None:
    ran = run_on(cluster.master, large, tmp_path / "tables", packed | events(tmp_path / "events"))
    assert ran.status == 0, ran.err
    stages = steps_in(tmp_path / "events")["muster: lag_history, rates, group_hours (6 tasks)"]
    tasks = [task for task in tasks_in(tmp_path / "events") if task.stage in stages]
    assert {task.executor for task in tasks} == {"0", "1"}
    run_here(tmp_path / "here", large, analytics=True)
    made, here = digests(tmp_path / "tables"), digests(tmp_path / "here")
    assert made == here
    assert made.keys() >= ANALYTICS.keys()


def test_spark_connect_gives_what_one_process_gives(
    cluster: SparkCluster, packed: dict[str, str], tmp_path: Path
) -> None:
    log = unpacked("k43-all", tmp_path)
    with connect_server(tmp_path / "server", cluster.master, HERE) as address:
        ran = run_on(address, log, tmp_path / "tables", packed)
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["records"] == 2294
    run_here(tmp_path / "here", log, analytics=True)
    assert digests(tmp_path / "tables") == digests(tmp_path / "here")


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        (Path(BASE_PYTHON).name, "a worker's Python has no module "),
        ("./nowhere/python", "a worker has no program ./nowhere/python, which was to be its Python. Name another "),
    ],
    ids=["without-muster", "without-python"],
)
def test_a_worker_that_cannot_run_tasks(cluster: SparkCluster, python: str, sentence: str, tmp_path: Path) -> None:
    ran = run_on(cluster.master, unpacked("k43-all", tmp_path), tmp_path / "tables", {"spark.pyspark.python": python})
    assert ran.status == Status.BAD_INPUT, ran.err
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.strip().splitlines()) == 1
