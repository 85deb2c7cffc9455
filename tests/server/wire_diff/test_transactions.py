"""Stories about transactions, told to a broker and to muster: `transactions/` has them."""

from pathlib import Path

import pytest

from tests.server.wire_diff.talk import Both
from tests.server.wire_diff.transactions import (  # noqa: F401  they put their stories on the list
    ids,
    looking,
    newer,
    offsets,
    older,
    reading,
    timeouts,
)
from tests.server.wire_diff.transactions.telling import STORIES, TOPIC

pytestmark = pytest.mark.kafka
ENOUGH = 100


@pytest.fixture(scope="module")
def awake(both: Both) -> Both:
    """Both with the topics of the stories, and with coordinators of transactions."""
    both.make({TOPIC: 2 * len(STORIES)}, {})
    both.wake_transactions()
    return both


def test_as_many_as_the_page_says() -> None:
    assert len(STORIES) >= ENOUGH
    assert f"`wire_diff/test_transactions.py` | {len(STORIES)} stories" in Path("docs/differential.md").read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.matrix] * story.is_slow) for name, story in STORIES.items()]
)
def test_a_story(awake: Both, name: str) -> None:
    awake.same(STORIES[name].play)
