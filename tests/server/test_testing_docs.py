"""The examples of docs/testing.md run."""

import inspect
import re
import threading
from pathlib import Path

import pytest

from muster.broker import Broker

TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, muster_broker: Broker, request: pytest.FixtureRequest) -> None:
    """Each begins with a broker that has nothing; its tests get the fixtures they name."""
    muster_broker.reset()
    names: dict[str, object] = {"broker": muster_broker}
    exec(compile(EXAMPLES[number], f"docs/testing.md example {number}", "exec"), names)
    for name, test in names.items():
        if name.startswith("test_"):
            fixtures = inspect.signature(test).parameters  # type: ignore[arg-type]
            test(**{fixture: request.getfixturevalue(fixture) for fixture in fixtures})  # type: ignore[operator]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 13


def test_nothing_is_left_of_a_broker() -> None:
    before = threading.active_count()
    with Broker() as broker:
        data = Path(broker._temporary or "")
        assert (data / "data" / "meta.properties").exists()
    assert not data.exists()
    assert threading.active_count() == before


def test_every_verb_is_in_the_table() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ", TEXT.split("| verb | arguments |")[1], re.M)
    verbs = [verb for row in rows for verb in re.findall(r"`(\w+)`", row)]
    with Broker() as broker:
        assert broker._kit is not None
        assert sorted(verbs) == sorted(broker._kit.verbs)
