"""Tests that other projects publish with their clients: brought by name and version, run against a broker.

Nothing of theirs is kept here. franz-go's come with its Go module, kafka-python's with its source distribution, both
from the registries that `go` and `pip` are told to use.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kit.kafka import DEFAULT_VERSION, cache_root
from tests.server.clients.programs import CLIENTS, missing
from tests.suites import outcomes

BRING_TIMEOUT_S, RUN_TIMEOUT_S = 600, 900
RECORDS = 5_000
"""Go through each chain of groups in franz-go's tests: theirs is 500,000, for a cluster of machines."""
GO_FILES = ("client_test.go", "consumer_test.go", "group_test.go", "produce_request_test.go", "txn_test.go")
"""Those of pkg/kgo that talk to a broker; share groups have their own file, and muster none."""
PYTHON_FILES = ("test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py")
"""Those that take a broker which is there already; the others start brokers with TLS and SASL themselves."""
NOTHING = re.compile("(?!)")
PACKAGE = '"""Integration tests: this folder is theirs, and not Python\'s own package `test`."""\n'
SERVICE = '''\
"""The broker was started by somebody else, and its log is with them."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def dump_logs(self):
        pass


class SpawnedService:
    def __init__(self, *_):
        raise NotImplementedError("these tests are run with KAFKA_URI, so they start no brokers")
'''


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    run: Callable[[str], dict[str, str]]
    """Run it against the broker at an address."""
    hidden: re.Pattern[str]
    """Tests of APIs that muster does not tell clients of; they skip themselves."""


def franz_go(bootstrap: str) -> dict[str, str]:
    binary, names = _franz_go_tests()
    given = {
        "KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": str(RECORDS), "KGO_LOG_LEVEL": "none",
        "KGO_TEST_UNSAFE": "1",
    }  # fmt: skip
    chosen = f"^({'|'.join(names)})$"
    command = [
        str(binary), "-test.v", "-test.run", chosen, "-test.parallel", "8", "-test.timeout", f"{RUN_TIMEOUT_S}s",
    ]  # fmt: skip
    return outcomes.of_go(_said(command, binary.parent, given, "franz-go"))


def _franz_go_tests() -> tuple[Path, list[str]]:
    """The test binary of pkg/kgo, built, and the names of the tests."""
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        missing("franz-go's tests need Go, and there is none here: install it, for instance your system's golang")
    version = CLIENTS["franz-go"].version
    folder = _folder("franz-go", version)
    module = f"github.com/twmb/franz-go@v{version}"
    told = json.loads(_checked([str(go), "mod", "download", "-json", module], folder))
    sources = Path(told["Dir"]) / "pkg" / "kgo"
    binary = folder / "kgo.test"
    if not binary.exists():
        _checked([str(go), "test", "-c", "-o", str(binary), "."], sources)
    found = [re.findall(r"^func (Test\w+)\(", (sources / name).read_text(encoding="utf-8"), re.M) for name in GO_FILES]
    return binary, [name for names in found for name in names]


def kafka_python(bootstrap: str) -> dict[str, str]:
    sources = _kafka_python_sources()
    given = {"KAFKA_VERSION": DEFAULT_VERSION, "KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_ROOT": str(sources)}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", "-p", "no:muster", "-o", "addopts=", f"--junitxml={report}"]
        files = [f"test/integration/{name}" for name in PYTHON_FILES]
        _said([sys.executable, "-m", "pytest", *options, *files], sources, given, "kafka-python")
        return outcomes.of_junit(report.read_text(encoding="utf-8"))


def _kafka_python_sources() -> Path:
    """The unpacked distribution. It leaves out two files of its tests; these are ours."""
    version = CLIENTS["kafka-python"].version
    folder = _folder("kafka-python", version)
    sources = folder / f"kafka_python-{version}"
    if not sources.exists():
        wanted = ["--no-deps", "--no-binary", ":all:", "--dest", str(folder), f"kafka-python=={version}"]
        _checked([sys.executable, "-m", "pip", "download", *wanted], folder)
        with tarfile.open(folder / f"{sources.name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    (sources / "test" / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    (sources / "test" / "service.py").write_text(SERVICE, encoding="utf-8")
    return sources


def _folder(name: str, version: str) -> Path:
    folder = cache_root().parent / "suites" / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _checked(command: Sequence[str], where: Path) -> str:
    done = subprocess.run(
        command, cwd=where, capture_output=True, text=True, timeout=BRING_TIMEOUT_S, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _said(command: Sequence[str], where: Path, given: Mapping[str, str], name: str) -> str:
    """What it printed, whatever became of it; kept in the cache for whoever wants to know why."""
    kept = cache_root().parent / "suites" / f"{name}-{given.get('KGO_SEEDS') or 'run'}.out"
    with kept.open("w", encoding="utf-8") as out:
        subprocess.run(
            command, cwd=where, env={**os.environ, **given}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, timeout=RUN_TIMEOUT_S + 60, check=False,
        )  # fmt: skip
    return kept.read_text(encoding="utf-8", errors="replace")


SUITES = {
    suite.name: suite
    for suite in (
        Suite("franz-go", franz_go, re.compile("Share")),
        Suite("kafka-python", kafka_python, NOTHING),
    )
}
