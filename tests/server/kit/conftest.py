"""One broker for the tests of a file, which put it back by `reset()`."""

from collections.abc import Iterator

import pytest

from muster.broker import Broker


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as made:
        yield made
