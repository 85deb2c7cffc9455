"""One broker for all tests in here, with a life behind it: see `life`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.kafka import require_kafka

if TYPE_CHECKING:
    from tests.live.broker import GuardedBroker


@pytest.fixture(scope="session")
def guarded() -> Iterator[GuardedBroker]:
    from tests.live.broker import GuardedBroker
    from tests.live.life import live

    with GuardedBroker(require_kafka()) as broker:
        producer = live(broker)
        yield broker
        del producer  # a transaction is open as long as it lives
