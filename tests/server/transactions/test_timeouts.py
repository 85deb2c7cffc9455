"""Transactions that are open for too long."""

import io
from typing import Any

from muster.broker import Broker
from muster.server.transactions.steps import Step
from tests.server.raw import Raw
from tests.server.transactions.inside import inside
from tests.server.transactions.talking import Producer
from tests.server.wire_diff.transactions.telling import wait_for

TOPIC, WORKERS = "orders", ("worker-1", "worker-2")


def test_a_partition_that_is_let_go_in_the_middle_of_a_round() -> None:
    """The first abort ends the coordinator whose second one is due."""
    log = io.StringIO()

    def resign_at_the_first(parts: Any) -> None:
        parts.transactions.steps.order(Step.BEFORE_PREPARE, lambda: parts.transactions.leadership.resign(0))

    with Broker(transaction_state_log_num_partitions=1, log=log) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=1)
        for name in WORKERS:
            Producer(raw, name, 2).begin(timeout_ms=60_000).send(TOPIC, 0, name)
        inside(broker, resign_at_the_first)
        broker.clock.advance("71 s")
        wait_for(lambda: "unloaded" in log.getvalue(), lambda: "nothing timed out")
        inside(broker, lambda parts: parts.transactions.leadership.elect(0))
        wait_for(lambda: len(broker.transactions()) == len(WORKERS), lambda: "it is not loaded")
        broker.clock.advance("11 s")
        wait_for(lambda: all_aborted(broker), lambda: str(broker.transactions()))
        assert "failed" not in log.getvalue(), log.getvalue()


def all_aborted(broker: Broker) -> bool:
    return [one.state for one in broker.transactions().values()] == ["CompleteAbort"] * len(WORKERS)
