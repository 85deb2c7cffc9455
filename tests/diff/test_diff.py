"""The same scripts to a real broker and to muster's core: the same answers, and the same records in the log.

Every day a choice of scripts that reaches every cell of docs/differential.md; `make long` plays all of them and many
more walks (DIFF_WALKS says how many). What differs is shown as a script up to the place, and both answers.
"""

import os
import warnings

import pytest

from tests.diff.broker_target import BrokerTarget, settings
from tests.diff.collection import by_delay, daily, everything
from tests.diff.compare import Difference, compare
from tests.diff.core_target import play_to_core
from tests.diff.on_purpose import RULES
from tests.diff.play import Transcript
from tests.diff.script import Script
from tests.kit.kafka import KafkaBroker, require_kafka

pytestmark = pytest.mark.kafka

KNOWN_DIFFERENCES: dict[str, str] = {}
"""Scripts that differ for now, with the reason. It is to be empty; what stays goes into `on_purpose`."""
MOST_SHOWN = 8


def differences(scripts: list[Script], target: BrokerTarget, forgiven: set[str]) -> list[Difference]:
    """What differs. Where time matters the machine may have been too slow, so such a script gets a second chance."""
    ours = {script.name: play_to_core(script) for script in scripts}
    expected = {name: transcript.moments for name, transcript in ours.items()}

    def found(transcripts: list[Transcript]) -> list[Difference]:
        compared = (compare(each, ours[each.script.name], forgiven) for each in transcripts)
        return [difference for difference in compared if difference is not None]

    first = found(target.run(scripts, expected))
    again = [each.script for each in first if each.script.has_timers or each.script.delay_ms]
    if again:
        warnings.warn(f"played once more, alone: {', '.join(script.name for script in again)}", stacklevel=1)
    second = found(target.run(again, expected, side_by_side=4)) if again else []
    return [each for each in first if each.script not in again] + second


def check(scripts: list[Script], forgiven: set[str]) -> None:
    for delay_ms, of_delay in by_delay(scripts):
        with KafkaBroker(require_kafka(), settings(delay_ms)) as broker:
            differing = differences(of_delay, BrokerTarget(broker.bootstrap, broker.log_dir), forgiven)
        found = {each.script.name for each in differing}
        solved = [each.name for each in of_delay if each.name in KNOWN_DIFFERENCES and each.name not in found]
        assert not solved, f"these differ no longer; take them off the list: {solved}"
        for each in differing:
            if each.script.name in KNOWN_DIFFERENCES:
                print(f"known: {each.script.name}: {KNOWN_DIFFERENCES[each.script.name]}\n{each.report()}\n")
        surprising = [each for each in differing if each.script.name not in KNOWN_DIFFERENCES]
        if surprising:
            shortest = sorted(surprising, key=lambda each: each.steps)
            reports = "\n\n".join(each.report() for each in shortest[:MOST_SHOWN])
            pytest.fail(f"{len(surprising)} of {len(of_delay)} scripts differ\n\n{reports}", pytrace=False)


def test_kafka_and_the_core_agree() -> None:
    forgiven: set[str] = set()
    check(daily(), forgiven)
    assert forgiven == {rule.name for rule in RULES}, "a rule that forgives nothing is of no use"


@pytest.mark.long
def test_kafka_and_the_core_agree_on_everything() -> None:
    check(everything(more_walks=int(os.environ.get("DIFF_WALKS", "2000"))), set())
