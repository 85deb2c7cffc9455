"""The examples of docs/testing.md run."""

import re
import threading
from pathlib import Path

import pytest

from muster.broker import Broker

TEXT = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, muster_broker: Broker) -> None:
    if "orders" not in muster_broker.topics():
        muster_broker.create_topic("orders")
    names: dict[str, object] = {"broker": muster_broker}
    exec(compile(EXAMPLES[number], f"docs/testing.md example {number}", "exec"), names)
    if "test_my_consumer" in names:
        names["test_my_consumer"](muster_broker)  # type: ignore[operator]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 5


def test_nothing_is_left_of_a_broker() -> None:
    before = threading.active_count()
    with Broker() as broker:
        data = Path(broker._temporary or "")
        assert (data / "data" / "meta.properties").exists()
    assert not data.exists()
    assert threading.active_count() == before
