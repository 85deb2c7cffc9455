"""Scripts about topics and records, played to a broker and to muster: `scripts/` has them."""

from collections import Counter
from pathlib import Path

import pytest

from tests.server.wire_diff.scripts import KINDS, Script, play, records, topics
from tests.server.wire_diff.talk import Both, Side
from tests.server.wire_diff.test_records import end_of

pytestmark = pytest.mark.kafka
SCRIPTS = [*records.SCRIPTS, *topics.SCRIPTS]
ENOUGH = 150


def numbered() -> dict[str, Script]:
    """By name, each with a partition of its own."""
    numbers: Counter[str] = Counter()
    for script in SCRIPTS:
        script.partition = numbers[script.topic]
        numbers[script.topic] += 1
    return {script.name: script for script in SCRIPTS}


ALL = numbered()


@pytest.fixture(scope="module")
def kinds(both: Both) -> Both:
    """Both with topics of every kind."""
    partitions = Counter(script.topic for script in ALL.values())
    both.make({kind: partitions[kind] for kind in KINDS}, KINDS)
    both.wake_producer_ids()
    return both


def test_as_many_as_the_page_says() -> None:
    assert len(ALL) == len(SCRIPTS), "two scripts of one name"
    assert len(ALL) >= ENOUGH
    page = Path("docs/differential.md").read_text()
    assert f"`wire_diff/test_scripts.py` | {len(ALL)} scripts" in page


@pytest.mark.parametrize("name", ALL)
def test_a_script(kinds: Both, name: str) -> None:
    def story(side: Side) -> None:
        play(ALL[name], side, end_of)

    kinds.same(story)
