"""Let every mutant loose on the tests of the core, and tell which of them nobody noticed.

    python -m tests.mutants.run [words that the file, the fragment or the reason contain]

The project is copied to a temporary folder for each worker; there one mutant at a time stands in the source while
`pytest` runs the tests of the core and the simulation (those of groups or those of transactions), ending at the first
failure. The copy must be what is imported, and must pass as it
is, before the first mutant and after the last: else everything would seem to be caught, or nothing. Caught is a mutant
by a test that failed and has a name; a run that ended in any other way has proven nothing, and is told as not judged.
The results go to .cache/mutants.json; the exit code is 1 unless every mutant was noticed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.mutants.mutant import CORE, Mutant
from tests.mutants.records import RECORDS
from tests.mutants.seats import SEATS
from tests.mutants.transactions import TRANSACTIONS

ROOT = Path(__file__).parents[2]
MUTANTS = (*SEATS, *RECORDS, *TRANSACTIONS)
WORKERS = 2
TIME_LIMIT_S = 600
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long and not kafka", "--tb=no")
SLOW = "test_loading.py"


class Fate(StrEnum):
    CAUGHT = "caught"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_JUDGED = "not judged"


_PASSED, _FAILED = 0, 1  # of pytest's exit codes; the others are for runs that broke off or never began


class Verdict(NamedTuple):
    mutant: Mutant
    fate: Fate
    seconds: float
    tests: tuple[str, ...] = ()
    """Those that failed; the first alone, unless all were asked for."""
    output: str = ""
    """The end of what was printed, where nothing could be judged by it."""


def judge(exit_code: int, output: str) -> tuple[Fate, tuple[str, ...]]:
    """What a run of pytest says about a mutant, and the tests that failed. Files that did not load are no tests."""
    lines = (line.split() for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    tests = tuple(words[1] for words in lines if "::" in words[1])
    if exit_code == _PASSED:
        return Fate.SURVIVED, ()
    return (Fate.CAUGHT if exit_code == _FAILED and tests else Fate.NOT_JUDGED), tests


class Laboratory:
    """A copy of the project in which a mutant may stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "tests", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        # The quick ones first, as most mutants go no further. The mutants' own tests would know each by its text.
        paths = sorted((folder / "tests/core").glob("test_*.py"), key=lambda path: (path.name == SLOW, path))
        self._tests = [str(path) for path in (*paths[:-1], folder / "tests/sim/test_sim.py", paths[-1])]
        of_transactions = ("core/transactions", "sim/test_transactions.py")
        self._tests_of_transactions = [str(folder / "tests" / name) for name in of_transactions]
        # Compiled kernels are kept by the path of their source: here, they go when the copy goes.
        self._environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "XDG_CACHE_HOME": str(folder / ".cache")}

    def tests_of(self, mutant: Mutant) -> list[str]:
        return self._tests if mutant.path.parent == CORE else self._tests_of_transactions

    def check(self, mutants: Iterable[Mutant]) -> None:
        """The copy is what is imported, and passes as it is: the tests that these mutants are put to."""
        code = "import muster.core.coordinator as c; print(c.__file__)"
        found = self._python("-c", code).stdout.strip()
        if not Path(found).is_relative_to(self.folder):
            raise SystemExit(f"the tests would import {found}, and not the copy in {self.folder}")
        tests = dict.fromkeys(path for mutant in mutants for path in self.tests_of(mutant))
        run = self._python(*PYTEST, *tests, time_limit_s=TIME_LIMIT_S)
        if run.returncode != 0:
            raise SystemExit(f"the tests fail without any mutant:\n{run.stdout[-2_000:]}{run.stderr[-2_000:]}")

    def try_out(self, mutant: Mutant, *, find_all: bool = False) -> Verdict:
        path = self.folder / mutant.path
        source = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied_to(source), encoding="utf-8")
        # Python takes a source of the same size and second for the one it has compiled.
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        tests = self.tests_of(mutant)
        began = time.monotonic()
        try:
            run = self._python(*PYTEST, *(() if find_all else ("-x",)), *tests, time_limit_s=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, Fate.TIMED_OUT, time.monotonic() - began)
        finally:
            path.write_text(source, encoding="utf-8")
        fate, tests = judge(run.returncode, run.stdout)
        output = f"{run.stdout}{run.stderr}"[-2_000:] if fate is Fate.NOT_JUDGED else ""
        return Verdict(mutant, fate, time.monotonic() - began, tests, output)

    def _python(self, *arguments: str, time_limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=time_limit_s,
        )


def try_all(mutants: Sequence[Mutant], folder: Path, *, find_all: bool = False) -> list[Verdict]:
    """Each mutant alone, a few at a time; verdicts in the order of the mutants."""
    idle: SimpleQueue[Laboratory] = SimpleQueue()

    def prepare(number: int) -> None:
        laboratory = Laboratory(folder / str(number))
        laboratory.check(mutants)
        idle.put(laboratory)

    def try_one(mutant: Mutant) -> Verdict:
        laboratory = idle.get()
        try:
            verdict = laboratory.try_out(mutant, find_all=find_all)
        finally:
            idle.put(laboratory)
        by = f" by {verdict.tests[0]}" if verdict.tests else ""
        print(f"{verdict.fate:10} {verdict.seconds:5.1f} s  {mutant.file}: {mutant.why}{by}", flush=True)
        return verdict

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(prepare, range(WORKERS)))
        verdicts = list(pool.map(try_one, mutants))
        list(pool.map(lambda _: idle.get().check(mutants), range(WORKERS)))
        return verdicts


def report(verdicts: list[Verdict]) -> str:
    """As JSON, a list of what became of each."""
    rows = [
        {
            **verdict.mutant._asdict(),
            "fate": verdict.fate,
            "seconds": round(verdict.seconds, 1),
            "tests": list(verdict.tests),
            "output": verdict.output,
        }
        for verdict in verdicts
    ]
    return json.dumps(rows, indent=2)


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if all(word in " ".join(mutant) for word in words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-mutants-") as folder:
        verdicts = try_all(chosen, Path(folder))
    results = ROOT / ".cache" / "mutants.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(report(verdicts), encoding="utf-8")
    count = Counter(verdict.fate for verdict in verdicts)
    fates = ", ".join(f"{count[fate]} {fate}" for fate in Fate)
    print(f"mutants: {len(verdicts)} in {time.monotonic() - began:.0f} s: {fates} ({results.relative_to(ROOT)})")
    return 0 if verdicts and count[Fate.CAUGHT] + count[Fate.TIMED_OUT] == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
