"""The job on a real standalone cluster: a master and two workers, whose Python knows nothing of muster."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from muster.java import find_java, java_env
from muster.tables.store import TableStore
from tests.cli import command, run_process
from tests.pipeline.test_job import HISTORY, STATE
from tests.pipeline.world import run_here, unpacked

pytestmark = [pytest.mark.long, pytest.mark.spark]
ROOT = Path(__file__).parent.parent.parent
BASE_PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
RECORDS = 3_000_000


class Worker(NamedTuple):
    process: "subprocess.Popen[bytes]"
    folder: Path

    def executors(self) -> list[Path]:
        return list(self.folder.glob("work/app-*/*"))


class Cluster(NamedTuple):
    master: str
    workers: list[Worker]
    environment: dict[str, str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bare_environment() -> dict[str, str]:
    """Nothing of ours: Java, Spark, and the Python that our environment was made from."""
    import pyspark

    java = java_env()["JAVA_HOME"]
    return {
        "PATH": f"{Path(BASE_PYTHON).parent}:{java}/bin:/usr/bin:/bin",
        "JAVA_HOME": java,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "LANG": "C.UTF-8",
    }


@contextmanager
def daemon(folder: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of Spark's, in a directory of its own that is empty, and in a group that can be killed as one."""
    folder.mkdir()
    environment = bare_environment()
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [f"{environment['SPARK_HOME']}/bin/spark-class", *arguments],
            cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def wait_for(file: Path, pattern: str, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not (file.exists() and re.search(pattern, file.read_text(errors="replace"))):
        assert time.monotonic() < until, f"{file.name} never said {pattern}: {file.read_text(errors='replace')[-2000:]}"
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if find_java() is None:
        pytest.skip("Spark needs Java 17 or 21")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            daemon(tmp_path / "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
                   "--port", str(port), "--webui-port", "0")
        )  # fmt: skip
        wait_for(tmp_path / "master.log", "I have been elected leader|New state: ALIVE")
        workers = []
        for name in ("worker1", "worker2"):
            process = stack.enter_context(
                daemon(tmp_path / name, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                       "--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path / name / "work"), address)
            )  # fmt: skip
            workers.append(Worker(process, tmp_path / name))
        for worker in workers:
            wait_for(tmp_path / f"{worker.folder.name}.log", "Successfully registered with master")
        yield Cluster(address, workers, bare_environment())


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The archive, and what `muster pipeline pack` says to do with it; and that all of this is on one machine."""
    archive = tmp_path_factory.mktemp("archive") / "workers.tar.gz"
    ran = run_process("pipeline", "pack", archive, "--json")
    assert ran.status == 0, ran.err
    settings = json.loads(ran.out)["conf"]
    settings |= {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def assert_workers_know_nothing(cluster: Cluster, folder: Path) -> None:
    folder.mkdir()
    for module in ("muster", "numba", "duckdb"):
        asked = subprocess.run(
            [Path(BASE_PYTHON).name, "-c", f"import {module}"], cwd=folder, env=cluster.environment, capture_output=True
        )
        assert b"ModuleNotFoundError" in asked.stderr, module


def digests(tables: Path) -> dict[str, tuple[int, int]]:
    """Of each table the number of rows, and a sum over all of them that does not depend on their order."""
    store = TableStore(tables)
    manifest = store.manifest()
    assert manifest is not None
    found = {}
    for table in (*STATE, *HISTORY, "lag"):
        files = store.files(table, manifest.tables[table]) if table in manifest.tables else []
        with duckdb.connect() as connection:
            if files:
                connection.read_parquet(files).create_view("rows")
                told = connection.execute("SELECT count(*), sum(hash(r)::HUGEINT) FROM rows r").fetchone()
                assert told is not None
                found[table] = told
    return found


def test_a_cluster_gives_what_one_process_gives(cluster: Cluster, conf: list[str], tmp_path: Path) -> None:
    assert_workers_know_nothing(cluster, tmp_path / "empty")
    log = unpacked("k43-all", tmp_path)
    ran = run_process(
        "pipeline", "run", "--source", log, "--out", tmp_path / "tables", "--master", cluster.master, *conf, "--json",
        timeout=400, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["records"] == 2294
    assert all(worker.executors() for worker in cluster.workers)
    run_here(tmp_path / "here", log)
    assert digests(tmp_path / "tables") == digests(tmp_path / "here")


def test_a_worker_killed_half_way_changes_nothing(cluster: Cluster, conf: list[str], tmp_path: Path) -> None:
    generate = [sys.executable, ROOT / "bench" / "make_large.py", "--records", str(RECORDS), "--out", tmp_path / "log"]
    subprocess.run(generate, check=True, stdout=subprocess.DEVNULL)
    tables, victim = tmp_path / "tables", cluster.workers[1]
    arguments = command(
        "pipeline", "run", "--source", tmp_path / "log", "--out", tables, "--master", cluster.master, *conf, "--json"
    )
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    ) as job:
        until = time.monotonic() + 300
        while not list(tables.glob("commits/*.parquet")):  # a task has begun to write what it reads
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        assert victim.executors(), "the worker that is to be killed has nothing to do"
        os.killpg(victim.process.pid, signal.SIGKILL)
        assert job.poll() is None, "the job was over before the worker was killed"
        out, err = job.communicate(timeout=500)
    assert job.returncode == 0, err.decode()
    assert json.loads(out)["records"] >= RECORDS
    run_here(tmp_path / "here", tmp_path / "log")
    assert digests(tables) == digests(tmp_path / "here")
