"""Compiled kernels are made once on a machine: by one of many processes, and for every copy of the source."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster.caches import cache_folder
from muster.codec.columns import kernels, warm
from muster.pipeline.spark import pack

MISSES = """
import json, sys
from numba.core.dispatcher import Dispatcher
from muster.caches import cache_folder
from muster.codec.columns import kernels, warm
warm.compile_all()
made = [value for name, module in sys.modules.items() if name.startswith("muster.codec.columns")
        for value in vars(module).values() if isinstance(value, Dispatcher) and value.stats.cache_path is not None]
print(json.dumps([str(kernels.FOLDER), len(made), sum(sum(one.stats.cache_misses.values()) for one in made)]))
"""

ONE_KERNEL = """
import sys
from pathlib import Path
from muster.caches import cache_folder
from muster.codec.columns import kernels
kernels.HERE, kernels.FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, sys.argv[1])
sys.stdin.readline()
import little
print(little.twice(21), sum(little.twice.stats.cache_misses.values()))
"""

LITTLE = """
from muster.codec.columns.kernels import kernel

@kernel("int64(int64)")
def twice(number):
    return number * 2
"""


def test_a_copy_of_the_source_compiles_nothing_that_this_machine_has_compiled(tmp_path: Path) -> None:
    warm.compile_all()
    shutil.copytree(Path(muster.__file__).parent, tmp_path / "muster", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    told = subprocess.check_output([sys.executable, "-c", MISSES], env=environment, cwd=tmp_path, text=True)
    folder, count, misses = json.loads(told)
    assert (folder, misses) == (str(kernels.FOLDER), 0)
    assert count > 20


def test_a_worker_takes_the_kernels_that_came_with_the_archive(tmp_path: Path) -> None:
    shutil.copytree(Path(muster.__file__).parent, tmp_path / "muster", ignore=shutil.ignore_patterns("__pycache__"))
    for path, name in pack._kernels():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / name)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "empty")}
    told = subprocess.check_output([sys.executable, "-c", MISSES], env=environment, cwd=tmp_path, text=True)
    folder, count, misses = json.loads(told)
    assert (folder, misses) == (str(tmp_path / "muster/codec/columns/compiled" / kernels.KEY), 0)
    assert count > 20


def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    (tmp_path / "little.py").write_text(LITTLE)
    (tmp_path / "cache").mkdir()
    command = [sys.executable, "-c", ONE_KERNEL, str(tmp_path), str(tmp_path / "cache")]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0)
        for _ in range(3)
    ]  # fmt: skip
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
    told = [one.communicate(timeout=120)[0].split() for one in started]
    assert sorted(told) == [["42", "0"], ["42", "0"], ["42", "1"]]


def test_another_cpu_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CPU_FEATURES", "+sse2")
    here = kernels._key()
    monkeypatch.setattr("numba.config.CPU_NAME", "generic")
    assert len({kernels.KEY, here, kernels._key()}) == 3


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="a system without owners")
def test_code_is_loaded_from_no_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_folder("kernels-x", str(tmp_path))
    assert folder == tmp_path / "kernels-x"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)
    assert cache_folder("kernels-x", str(tmp_path)) is None
