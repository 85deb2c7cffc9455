"""The list of mutants fits the source it is about."""

from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.run import MUTANTS, ROOT, Fate, Verdict, judge, report

CORE = ROOT / "src/muster/core"
MODULES = {str(path.relative_to(CORE)) for path in CORE.rglob("*.py")}
WITHOUT_RULES = {
    "__init__.py", "config.py", "outcome.py",
    "transactions/__init__.py", "transactions/config.py", "transactions/writes.py",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted({mutant.path for mutant in MUTANTS}), ids=str)
def test_each_has_its_place(path: Path) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    for mutant in MUTANTS:
        if mutant.path == path:
            mutated = mutant.applied_to(source)
            assert mutated != source, mutant.why
            compile(mutated, mutant.file, "exec")


def test_no_module_is_left_out() -> None:
    assert {mutant.file for mutant in MUTANTS} == MODULES - WITHOUT_RULES
    assert len(set(MUTANTS)) == len(MUTANTS) >= 170


def test_a_fragment_that_is_gone_or_not_alone_is_told() -> None:
    mutant = Mutant("group.py", "a", "b", "because")
    assert mutant.applied_to("cat") == "cbt"
    for source in ("dog", "banana"):
        with pytest.raises(ValueError, match=r"group\.py: 'a' occurs"):
            mutant.applied_to(source)


@pytest.mark.parametrize(
    ("exit_code", "output", "fate", "tests"),
    [
        (0, "12 passed", Fate.SURVIVED, ()),
        (1, "..F\nFAILED tests/x.py::test_y[a] - no", Fate.CAUGHT, ("tests/x.py::test_y[a]",)),
        (1, "ERROR tests/x.py::test_y - its fixture", Fate.CAUGHT, ("tests/x.py::test_y",)),
        (1, "", Fate.NOT_JUDGED, ()),  # no pytest to be found
        (2, "ERROR tests/x.py - ImportError", Fate.NOT_JUDGED, ()),
        (3, "INTERNALERROR", Fate.NOT_JUDGED, ()),
        (4, "ERROR: file or directory not found", Fate.NOT_JUDGED, ()),
        (5, "no tests ran", Fate.NOT_JUDGED, ()),
        (-9, "FAILED tests/x.py::test_y", Fate.NOT_JUDGED, ("tests/x.py::test_y",)),
    ],
)
def test_only_a_test_that_failed_has_caught_anything(
    exit_code: int, output: str, fate: Fate, tests: tuple[str, ...]
) -> None:
    assert judge(exit_code, output) == (fate, tests)


def test_the_report_says_what_became_of_each() -> None:
    verdict = Verdict(Mutant("group.py", "a", "b", "because"), Fate.CAUGHT, 1.23, ("tests/x.py::test_y",))
    text = report([verdict])
    for word in ("group.py", "because", '"fate": "caught"', "1.2", "tests/x.py::test_y"):
        assert word in text
