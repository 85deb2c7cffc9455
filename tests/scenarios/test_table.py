"""Every behaviour that applies has a test; and the table of a run tells the truth about it."""

from pathlib import Path

import pytest

from tests.scenarios.catalogue import Scenario, names_of_tests, numbers_in, read_scenarios
from tests.scenarios.table import Result, main, make_rows, read_cases, render, summary

SCENARIOS = read_scenarios()


def test_every_behaviour_that_applies_has_a_test() -> None:
    carried = {number for _, name in names_of_tests() for number in numbers_in(name, SCENARIOS)}
    assert sorted(carried - SCENARIOS.keys()) == [], "no such behaviour"
    applicable = {number for number, scenario in SCENARIOS.items() if not scenario.not_applicable}
    assert sorted(applicable - carried) == [], "no test"
    assert sorted(carried - applicable) == [], "has a test, so that it applies"


def test_titles_are_told_apart() -> None:
    assert len(SCENARIOS) == 296
    assert list(SCENARIOS) == sorted(SCENARIOS)
    assert len({(scenario.section, scenario.title) for scenario in SCENARIOS.values()}) == len(SCENARIOS)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("test_073_074_after_its_first_generation", [73, 74]),
        ("test_s217_s218_no_commit", [217, 218]),
        ("test_a07_below_2_1_iv0_a_commit", [7]),
        ("test_192_to_196_static_members", [192, 193, 194, 196]),
        ("test_a_commit_of_2_1", []),
        ("test_to_be_or_not", []),
        ("test_4_partitions", []),
        ("test_311_and_312_not_this_one", [311]),
    ],
)
def test_numbers_in_names(name: str, numbers: list[int]) -> None:
    assert numbers_in(name, SCENARIOS) == numbers


RUN = """<testsuites><testsuite>
<testcase classname="tests.core.test_x" name="test_010_passes[a]"/>
<testcase classname="tests.core.test_x" name="test_010_passes[b]"/>
<testcase classname="tests.core.test_x" name="test_011_012_fails_once[a]"><failure message="no"/></testcase>
<testcase classname="tests.core.test_x" name="test_011_012_fails_once[b]"/>
<testcase classname="tests.core.test_x" name="test_013_breaks"><error message="no"/></testcase>
<testcase classname="tests.core.test_x" name="test_014_is_expected_to_fail"><skipped type="pytest.xfail"/></testcase>
<testcase classname="tests.core.test_x" name="test_015_was_skipped"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.xml"
    path.write_text(RUN)
    return path


def test_the_worst_result_counts(results: Path) -> None:
    scenarios = {number: Scenario(number, f"title {number}", "A") for number in range(10, 17)}
    scenarios[17] = Scenario(17, "of old", "B", not_applicable="since 4.0 it is not")
    rows = {row.scenario.number: row for row in make_rows(scenarios, read_cases(results))}
    expected = {
        10: Result.PASSED,
        11: Result.FAILED,
        12: Result.FAILED,
        13: Result.FAILED,
        14: Result.FAILED,
        15: Result.MISSING,
        16: Result.MISSING,
        17: Result.NOT_APPLICABLE,
    }
    assert {number: row.result for number, row in rows.items()} == expected
    assert rows[10].tests == ("tests/core/test_x.py::test_010_passes",)
    assert summary(list(rows.values())) == "scenarios: 1 passed, 1 not applicable, 2 missing, 4 failed"
    text = render(list(rows.values()))
    assert "| 10 | title 10 | passed | `tests/core/test_x.py::test_010_passes` |" in text
    assert "| 17 | of old | not applicable | since 4.0 it is not |" in text


def test_a_run_that_leaves_something_out_is_told(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(results)]) == 1
    told = capsys.readouterr()
    assert "0 passed" in told.out
    assert "  1 partitions of four groups among 50: missing" in told.err
    assert "## A Partitions" in results.with_name("scenarios.md").read_text()


def test_a_run_in_which_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"test_{number:03}_passes" for number, each in SCENARIOS.items() if not each.not_applicable]
    cases = "".join(f'<testcase classname="tests.x" name="{name}"/>' for name in names)
    results, table = tmp_path / "results.xml", tmp_path / "table.md"
    results.write_text(f"<testsuites>{cases}</testsuites>")
    assert main([str(results), str(table)]) == 0
    assert f"scenarios: {len(names)} passed, 7 not applicable, 0 missing, 0 failed" in capsys.readouterr().out
    assert table.exists()
