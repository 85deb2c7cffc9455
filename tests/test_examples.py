"""Examples that need what no test machine has, as far as they can be looked at: they parse, and say what is true."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_submit_script_hands_the_archive_to_spark_submit(tmp_path: Path) -> None:
    """With stand-ins for `spark-submit` and `muster` that write down how they were called."""
    for name in ("spark-submit", "muster"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" "PYSPARK_PYTHON=${{PYSPARK_PYTHON:-}}" >>"{tmp_path}/calls"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    arguments = ["spark://h:7077", "kafka://b:9092", "out"]
    command = [str(shutil.which("sh")), str(EXAMPLES / "spark_submit.sh"), *arguments]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PATH": path})
    packed, submitted = (tmp_path / "calls").read_text().splitlines()
    assert packed.startswith("muster pipeline pack muster-workers.tar.gz")
    assert "--archives muster-workers.tar.gz#muster-workers" in submitted
    assert "pipeline run --master spark://h:7077 --source kafka://b:9092 --out out" in submitted
    assert submitted.endswith("PYSPARK_PYTHON=./muster-workers/bin/python")


class Recorded:
    """Stands for Airflow's classes: keeps what it was called with."""

    calls: list[dict[str, Any]]

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        type(self).calls.append(settings)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_the_dag_runs_a_command_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.pipeline.spark.pack import spark_conf
    from tests.cli import run

    dag, operator = type("DAG", (Recorded,), {"calls": []}), type("BashOperator", (Recorded,), {"calls": []})
    modules = {"airflow.sdk": {"DAG": dag}, "airflow.providers.standard.operators.bash": {"BashOperator": operator}}
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("airflow", "airflow.providers", "airflow.providers.standard", "airflow.providers.standard.operators"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    source = (EXAMPLES / "airflow_dag.py").read_text()
    exec(compile(ast.parse(source), "airflow_dag.py", "exec"), {"__name__": "dag"})
    [settings], [task] = dag.calls, operator.calls
    assert settings["max_active_runs"] == 1
    words = task["bash_command"].replace("\\\n", " ").split("||")[0].split()
    for name, value in spark_conf("/opt/muster/muster-workers.tar.gz").items():
        assert f"{name}={value}" in words
    options = [word for word in words if word.startswith("--")]
    shown = run("pipeline", "run", "--help").out
    assert not [option for option in options if option not in shown]
