"""The pages about tests in other languages: their two files are run as they stand, against a server that they start."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.kafka import REPOSITORY, require_kafka
from tests.server.clients.programs import FOLDER, missing, prepared_kafkajs

pytestmark = pytest.mark.matrix
TIMEOUT_S = 400


@pytest.fixture
def path(tmp_path: Path) -> str:
    """PATH with a `muster` on it: the one that is tested."""
    command = tmp_path / "bin" / "muster"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m muster "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ.get('PATH', '')}:/usr/local/go/bin"


def code(page: str, language: str) -> tuple[str, str]:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    helper, test = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return helper, test


def run(command: list[str], folder: Path, path: str) -> str:
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception in thread" not in done.stderr, done.stderr
    return done.stdout


def test_java(tmp_path: Path, path: str) -> None:
    kafka = require_kafka()
    javac = kafka.java.with_name("javac")
    if not javac.exists():
        missing("the page for Java needs a Java that can compile (javac), and the one that was found cannot")
    for name, text in zip(("Muster", "ShippingTest"), code("testing-java.md", "java"), strict=True):
        (tmp_path / f"{name}.java").write_text(text)
    run([str(javac), "-cp", f"{kafka.libs}/*", "Muster.java", "ShippingTest.java"], tmp_path, path)
    java, *rest = kafka.command("ShippingTest", classes=(tmp_path,))
    folders = tmp_path / "folders"
    folders.mkdir()
    assert "passed" in run([java, f"-Djava.io.tmpdir={folders}", *rest], tmp_path, path)
    assert not [*folders.glob("muster*")], "its data is deleted"


def test_go(tmp_path: Path, path: str) -> None:
    go = shutil.which("go", path=path)
    if go is None:
        missing("the page for Go needs Go, and there is none here: install your system's package golang")
    folder = tmp_path / "shipping"
    folder.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copy(FOLDER / "franz_go" / name, folder)
    for name, text in zip(("muster_test.go", "shipping_test.go"), code("testing-go.md", "go"), strict=True):
        (folder / name).write_text(text)
    said = run([str(go), "test", "-v", "."], folder, path)
    assert said.count("--- PASS: Test") == 2, said


def test_node(tmp_path: Path, path: str) -> None:
    modules = prepared_kafkajs() / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    for name, text in zip(("muster.mjs", "shipping.test.mjs"), code("testing-node.md", "js"), strict=True):
        (tmp_path / name).write_text(text)
    said = run(["node", "--test"], tmp_path, path)
    assert re.search(r"^\S pass 2$", said, re.M), said
