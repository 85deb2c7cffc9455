"""Tests that other projects publish with their clients pass on muster wherever they pass on Kafka."""

import re

import pytest

from tests.suites.compared import compared
from tests.suites.outcomes import Comparison, of_go, of_junit
from tests.suites.published import SUITES, Suite


@pytest.mark.matrix
@pytest.mark.kafka
@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_what_passes_on_kafka_passes_on_muster(suite: Suite) -> None:
    comparison = compared(suite)
    print(*comparison.lines(), comparison.summary(), sep="\n")
    assert "passed" in comparison.kafka.values()
    assert comparison.problems() == []


def test_outcomes_of_go() -> None:
    said = "=== RUN   TestA\n--- PASS: TestA (0.1s)\n    --- SKIP: TestB/848 (0.0s)\n--- FAIL: TestB (1s)\nFAIL\n"
    assert of_go(said) == {"TestA": "passed", "TestB/848": "skipped", "TestB": "failed"}


def test_outcomes_of_pytest() -> None:
    cases = (
        '<testcase classname="test.integration.test_a" name="one" />',
        '<testcase classname="test.integration.test_a" name="two"><failure>no</failure></testcase>',
        '<testcase classname="test.integration.test_a" name="three"><error>no</error></testcase>',
        '<testcase classname="test.integration.test_a" name="four"><skipped /></testcase>',
    )
    found = of_junit(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert [*found.values()] == ["passed", "failed", "failed", "skipped"]
    assert [*found] == ["test_a::one", "test_a::two", "test_a::three", "test_a::four"]


def test_a_comparison_tells_what_muster_misses() -> None:
    kafka = dict.fromkeys(("a", "b", "c", "d", "eShare", "fShare"), "passed") | {"g": "failed", "h": "skipped"}
    muster = {"a": "passed", "b": "failed", "c": "skipped", "eShare": "skipped", "fShare": "failed", "g": "failed"}
    comparison = Comparison(kafka, muster, re.compile("Share"))
    assert comparison.problems() == ["b: failed", "c: skipped", "d: not reached", "fShare: failed"]
