"""A broker for your own tests: `muster_broker` is one for the whole run, without groups or topics when it starts.

def test_my_consumer(muster_broker):
    consumer = Consumer({"bootstrap.servers": muster_broker.bootstrap_servers, "group.id": "mine"})
"""

from collections.abc import Iterator

import pytest

from muster.broker import Broker


@pytest.fixture(scope="session")
def muster_broker() -> Iterator[Broker]:
    """A running broker, in a temporary directory, on a free port."""
    with Broker() as broker:
        yield broker
