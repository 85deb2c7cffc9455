"""The wheel, and environments with nothing but it and what it asks for, in the versions of requirements/dev.lock."""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "requirements" / "dev.lock"
_PINNED = re.compile(r"^([\w.-]+==[^ \\]+(?: *;[^\\]*)?)", re.MULTILINE)


def build_wheel(folder: Path) -> Path:
    """With the build backend of this environment: nothing is downloaded."""
    for old in folder.glob("muster-*.whl"):
        old.unlink()
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("muster-*.whl")
    return wheel


class Environment:
    """A fresh one, without pip."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        self.libraries = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        self._constraints = folder / "constraints.txt"
        self._constraints.write_text("".join(f"{line.rstrip()}\n" for line in _PINNED.findall(LOCK.read_text())))

    def install(self, *requirements: str) -> None:
        _pip("install", "--constraint", str(self._constraints), *requirements, python=self.python)

    @property
    def installed_bytes(self) -> int:
        """As `du` counts: the blocks of the disk."""
        return sum(path.lstat().st_blocks * 512 for path in self.libraries.rglob("*"))

    def run(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Its Python. It finds the tests, and muster nowhere but in the environment itself."""
        return run([str(self.python), *arguments], [ROOT], **more)


def run(command: Sequence[str], python_path: Sequence[Path], **more: Any) -> "subprocess.CompletedProcess[str]":
    """A program with this path for modules, in a directory of its own; `CalledProcessError` where it fails."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, python_path))}
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, **{"env": variables, "cwd": folder, "text": True, "check": True, **more})


def _pip(*arguments: str, python: Path | None = None) -> None:
    inside = [] if python is None else ["--python", str(python)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *inside, *arguments]
    subprocess.run(command, check=True)
