"""What the tests of a published suite said with one broker, and with another."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
Outcomes = Mapping[str, str]
"""Names of tests, and how each ended; one that is not there was not reached."""
GO_LINE = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.M)
GO_WORDS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}


def of_go(output: str) -> dict[str, str]:
    """From what a Go test binary prints with -test.v."""
    return {name: GO_WORDS[word] for word, name in GO_LINE.findall(output)}


def of_junit(xml: str) -> dict[str, str]:
    """From pytest's --junitxml."""
    found = {}
    for case in ElementTree.fromstring(xml).iter("testcase"):
        ends = {child.tag for child in case}
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = FAILED if ends & {"failure", "error"} else SKIPPED if "skipped" in ends else PASSED
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """`hidden` tests may be skipped with muster: they are for APIs that it does not advertise."""

    kafka: Outcomes
    muster: Outcomes
    hidden: re.Pattern[str]

    def problems(self) -> list[str]:
        """What passes on Kafka and not on muster."""
        return [
            f"{name}: {self.muster.get(name, 'not reached')}"
            for name, outcome in self.kafka.items()
            if outcome == PASSED and self.muster.get(name) != PASSED and not self._may_skip(name)
        ]

    def _may_skip(self, name: str) -> bool:
        return self.muster.get(name) == SKIPPED and self.hidden.search(name) is not None

    def lines(self) -> list[str]:
        """A line for each test: how it ended with Kafka, with muster, its name."""
        names = dict.fromkeys([*self.kafka, *self.muster])
        return [f"{self.kafka.get(name, '–'):8} {self.muster.get(name, '–'):8} {name}" for name in names]

    def summary(self) -> str:
        def count(outcomes: Outcomes) -> str:
            kinds = [*outcomes.values()]
            return ", ".join(f"{kinds.count(kind)} {kind}" for kind in (PASSED, FAILED, SKIPPED))

        return f"Kafka: {count(self.kafka)}; muster: {count(self.muster)}"
