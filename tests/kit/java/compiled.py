"""Java programs of ours, compiled once for a release of Kafka and kept beside it in the cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import Self

import pytest

from tests.kit.kafka import Kafka, KafkaFailed, cache_root

FOLDER = Path(__file__).parent
COMPILE_TIMEOUT_S = 120
MISSING = "this needs a Java that can compile (javac), and the one that was found cannot"


def compiled(kafka: Kafka, name: str, where: Path = FOLDER) -> Path:
    """The folder with the classes of `name`.java; skips the test where there is no compiler, fails in CI."""
    source = where / f"{name}.java"
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


def start(kafka: Kafka, name: str, *arguments: str, errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start a program, with pipes for all it reads and says."""
    return subprocess.Popen(
        kafka.command(name, *arguments, classes=(compiled(kafka, name),)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8",
    )  # fmt: skip


class ConsumerGroups:
    """kafka-consumer-groups of a cluster in one process that stays: a start takes longer than what it is asked."""

    def __init__(self, kafka: Kafka, bootstrap: str) -> None:
        # It says there at each question which groups have no members: a pipe that is not read would fill up.
        self._process = start(kafka, "GroupTools", "answers", bootstrap, errors=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, *arguments: str) -> str:
        """What it prints to its standard output; KafkaFailed with that where it does not end well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*arguments, file=self._process.stdin, flush=True)
        lines = list(takewhile(lambda line: line != "== over\n", self._process.stdout))
        has_failed = any(line.startswith("exit ") and line != "exit 0\n" for line in lines)
        if has_failed or self._process.poll() is not None:
            raise KafkaFailed(f"{arguments}:\n{''.join(lines)}")
        return "".join(lines[1:])
