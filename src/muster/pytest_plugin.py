"""Brokers for your own tests, as fixtures.

    muster_broker          one for the whole run; what a test leaves in it, the next one finds
    muster_module_broker   one for each module
    muster_fresh_broker    one that has nothing when a test begins: the same one for the whole run, reset in between
    muster_brokers         makes as many as a test likes: `muster_brokers(num_partitions=3)`

The log that a test's brokers wrote while it ran is attached to its report if it fails.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from muster.broker import Broker

MOST_LINES = 200
Factory = Callable[..., Broker]
_LOGGED = pytest.StashKey[list[tuple[Broker, int]]]()
"""The brokers of a test, and how much each had logged when they came to it."""


@pytest.fixture(scope="session")
def muster_broker() -> Iterator[Broker]:
    """A running broker, in a temporary directory, on a free port."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def muster_module_broker() -> Iterator[Broker]:
    """One for each module."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def _muster_broker_to_reset() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def muster_fresh_broker(_muster_broker_to_reset: Broker) -> Iterator[Broker]:
    """One without topics, groups and faults, in real time."""
    _muster_broker_to_reset.reset()
    yield _muster_broker_to_reset
    _muster_broker_to_reset.reset()


@pytest.fixture
def muster_brokers(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """A function that starts a broker with these settings; all are stopped when the test ends."""
    made: list[Broker] = []

    def make(**settings: Any) -> Broker:
        broker = Broker(**settings)
        _of_test(request.node).append((broker, 0))
        made.append(broker.start())
        return broker

    yield make
    for broker in made:
        broker.stop()


def _of_test(item: pytest.Item) -> list[tuple[Broker, int]]:
    return item.stash.setdefault(_LOGGED, [])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """The fixtures are there: note how much their brokers have logged so far."""
    brokers = {id(value): value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Broker)}
    for broker in brokers.values():  # each once, though one fixture may hand on what another one has
        _of_test(item).append((broker, len(broker.log_text)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker, before in _of_test(item):
            lines = broker.log_text[before:].splitlines()
            left_out = [f"({len(lines) - MOST_LINES} lines before these)"] if len(lines) > MOST_LINES else []
            text = "\n".join([*left_out, *lines[-MOST_LINES:]])
            report.sections.append((f"Log of the broker at port {broker.port}", text or "(nothing)"))
    return report
