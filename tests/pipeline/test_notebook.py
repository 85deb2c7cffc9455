"""`examples/muster.ipynb`: its cells run in order in a Python of their own; it is stored without what they showed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from tests.kit.kafka import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "muster.ipynb"


def cells() -> list[dict[str, Any]]:
    stored: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert stored["nbformat"] == 4
    return [cell for cell in stored["cells"] if cell["cell_type"] == "code"]


def test_it_is_stored_without_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


@pytest.mark.matrix
@pytest.mark.spark
def test_its_cells_run_and_show_something() -> None:
    """Of each cell what it printed is held against the next: none is silent but those that only prepare."""
    mark = "-- end of a cell --"
    program = f"\nprint({mark!r}, flush=True)\n".join("".join(cell["source"]) for cell in cells())
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "SPARK_MASTER": "local[2]"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=NOTEBOOK.parent,
        env=environment,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stderr
    prepared, made, opened, in_sql, rebalanced, found, expiring, then, by_interval, known, plotted = ended.stdout.split(
        mark
    )
    assert prepared.strip() == ""
    assert "records," in made
    assert opened.count("|") > 20
    assert "'lag_history'" in in_sql
    assert "member joined" in rebalanced or "first members" in rebalanced
    assert "stuck-partition" in found
    assert found.splitlines()[-1].endswith("."), "a sentence, and what to do"
    assert expiring.count("|") > 20
    now, end = [int(word) for word in then.split() if word.isdigit()]
    assert 0 < now <= end
    assert by_interval.count("+") > 20
    some, _of, all_of_them, *_rest = known.splitlines()[-1].split()
    assert 0 < int(some) < int(all_of_them)
    assert plotted.strip() or find_spec("matplotlib") is not None, "without a plot the numbers are printed"
