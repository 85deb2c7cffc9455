"""Java programs of this folder, compiled once for a release of Kafka and kept beside it in the cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.kit.kafka import JVM_FLAGS, QUIET, Kafka, cache_root

FOLDER = Path(__file__).parent
COMPILE_TIMEOUT_S = 120
MISSING = "this needs a Java that can compile (javac), and the one that was found cannot"


def compiled(kafka: Kafka, name: str) -> Path:
    """The folder with the classes of `name`.java; skips the test where there is no compiler, fails in CI."""
    source = FOLDER / f"{name}.java"
    javac = kafka.java.with_name("javac")
    digest = hashlib.sha256(source.read_bytes() + kafka.version.encode()).hexdigest()[:16]
    folder = cache_root().parent / "java" / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    if not javac.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        done = subprocess.run(
            [str(javac), "-nowarn", "-cp", f"{kafka.libs}/*", "-d", str(unfinished), str(source)],
            capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        unfinished.chmod(0o755)
        if not folder.is_dir():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def start(kafka: Kafka, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program, with pipes for all it reads and says."""
    classes = compiled(kafka, name)
    return subprocess.Popen(
        [str(kafka.java), *JVM_FLAGS, QUIET, "-Xmx256m", "-cp", f"{classes}:{kafka.libs}/*", name, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip
