"""The list of mutants fits the source it is about."""

from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.run import MUTANTS, ROOT, Fate, Verdict, report

MODULES = {path.name for path in (ROOT / "src/muster/core").glob("*.py")}
WITHOUT_RULES = {"__init__.py", "answers.py", "config.py", "events.py", "notices.py", "outcome.py"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{Path(mutant.file).stem}: {mutant.why}")
def test_each_has_its_place(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    mutated = mutant.applied_to(source)
    assert mutated != source
    compile(mutated, mutant.file, "exec")


def test_no_module_is_left_out() -> None:
    assert {mutant.file for mutant in MUTANTS} == MODULES - WITHOUT_RULES
    assert len(set(MUTANTS)) == len(MUTANTS) >= 55


def test_a_fragment_that_is_gone_or_not_alone_is_told() -> None:
    mutant = Mutant("group.py", "a", "b", "because")
    assert mutant.applied_to("cat") == "cbt"
    for source in ("dog", "banana"):
        with pytest.raises(ValueError, match=r"group\.py: 'a' occurs"):
            mutant.applied_to(source)


def test_the_report_says_what_became_of_each() -> None:
    verdict = Verdict(Mutant("group.py", "a", "b", "because"), Fate.CAUGHT, 1.23, ("tests/x.py::test_y",))
    text = report([verdict])
    for word in ("group.py", "because", '"fate": "caught"', "1.2", "tests/x.py::test_y"):
        assert word in text
