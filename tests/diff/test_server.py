"""The same scripts over the wire to muster's own server: what the core says, and so what Kafka says.

`test_diff` compares the core with a real broker, script by script; here the server is compared with the core. What lies
between them (versions, codecs, order, durability, the log on disk) must change nothing.
"""

import pytest

from muster.broker import Broker
from tests.diff.broker_target import GROUP, BrokerTarget, settings
from tests.diff.collection import by_delay, daily
from tests.diff.script import Script
from tests.diff.test_diff import MOST_SHOWN, differences

TRANSACTIONS = {"init", "add", "end", "txncommit"}


def without_transactions(scripts: list[Script]) -> list[Script]:
    return [script for script in scripts if not any(step.verb in TRANSACTIONS for step in script.steps)]


def test_the_server_and_the_core_agree(tmp_path_factory: pytest.TempPathFactory) -> None:
    played = 0
    for delay_ms, scripts in by_delay(without_transactions(daily())):
        data = tmp_path_factory.mktemp("server") / "data"
        with Broker(data=data, settings=settings(delay_ms)) as broker:
            differing = differences(scripts, BrokerTarget(broker.bootstrap_servers, data, [GROUP]), set())
        if differing:
            shortest = sorted(differing, key=lambda each: each.steps)
            reports = "\n\n".join(each.report() for each in shortest[:MOST_SHOWN])
            pytest.fail(f"{len(differing)} of {len(scripts)} scripts differ\n\n{reports}", pytrace=False)
        played += len(scripts)
    assert played >= 300
