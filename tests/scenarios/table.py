"""Number, test and result: made from what a run of pytest wrote down, and from nothing else.

    python -m pytest tests/codec tests/core --junitxml=.cache/results.xml
    python -m tests.scenarios.table .cache/results.xml [.cache/scenarios.md]

Ends with 1 if a behaviour that applies has no test in that run, or one that did not pass. A test that is expected to
fail has not passed, and one that was skipped has not run.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.scenarios.catalogue import Scenario, numbers_in, read_scenarios


class Result(StrEnum):
    PASSED = "passed"
    NOT_APPLICABLE = "not applicable"
    MISSING = "missing"
    FAILED = "failed"


class Case(NamedTuple):
    """One test as it ran; all cases of a parametrized one have the same name."""

    name: str
    where: str
    result: Result


class Row(NamedTuple):
    scenario: Scenario
    result: Result
    tests: tuple[str, ...]


def read_cases(path: Path) -> list[Case]:
    """The tests of a JUnit file, without those that were skipped."""
    cases: list[Case] = []
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "").partition("[")[0]
        skipped = case.find("skipped")
        expected_to_fail = skipped is not None and skipped.get("type") == "pytest.xfail"
        if skipped is not None and not expected_to_fail:
            continue
        went_wrong = expected_to_fail or case.find("failure") is not None or case.find("error") is not None
        where = f"{case.get('classname', '').replace('.', '/')}.py::{name}"
        cases.append(Case(name, where, Result.FAILED if went_wrong else Result.PASSED))
    return cases


def make_rows(scenarios: dict[int, Scenario], cases: Iterable[Case]) -> list[Row]:
    """One row for each behaviour; the worst of its tests counts."""
    of_number: dict[int, list[Case]] = {}
    for case in cases:
        for number in numbers_in(case.name, scenarios):
            of_number.setdefault(number, []).append(case)
    return [_row(scenario, of_number.get(scenario.number, [])) for scenario in scenarios.values()]


def _row(scenario: Scenario, cases: list[Case]) -> Row:
    tests = tuple(dict.fromkeys(case.where for case in cases))
    if not cases:
        result = Result.NOT_APPLICABLE if scenario.not_applicable else Result.MISSING
    else:
        result = Result.PASSED if all(case.result is Result.PASSED for case in cases) else Result.FAILED
    return Row(scenario, result, tests)


def summary(rows: list[Row]) -> str:
    count = Counter(row.result for row in rows)
    return f"scenarios: {', '.join(f'{count[result]} {result}' for result in Result)}"


def render(rows: list[Row]) -> str:
    lines = ["# Behaviours, tests and results", "", f"{summary(rows)}."]
    section = ""
    for row in rows:
        if row.scenario.section != section:
            section = row.scenario.section
            lines += [
                "",
                f"## {section}",
                "",
                "| number | behaviour | result | tests, or why none |",
                "|---|---|---|---|",
            ]
        lines.append(f"| {row.scenario.number} | {_behaviour(row.scenario)} | {row.result} | {_proof(row)} |")
    return "\n".join(lines) + "\n"


def _behaviour(scenario: Scenario) -> str:
    return f"{scenario.title} (as in 4.x: {scenario.as_in_4})" if scenario.as_in_4 else scenario.title


def _proof(row: Row) -> str:
    return "<br>".join(f"`{test}`" for test in row.tests) or row.scenario.not_applicable


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print("usage: python -m tests.scenarios.table RESULTS.xml [TABLE.md]", file=sys.stderr)
        return 2
    results = Path(arguments[0])
    table = Path(arguments[1]) if len(arguments) == 2 else results.with_name("scenarios.md")
    rows = make_rows(read_scenarios(), read_cases(results))
    table.write_text(render(rows), encoding="utf-8")
    print(f"{summary(rows)} ({table})")
    short_of = [row for row in rows if row.result in (Result.MISSING, Result.FAILED)]
    for row in short_of:
        print(f"  {row.scenario.number} {row.scenario.title}: {row.result}", file=sys.stderr)
    return 1 if short_of else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
