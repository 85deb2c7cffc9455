"""`__transaction_state` is compacted under its producers, and loaded again."""

import time

from muster.broker import Broker
from tests.server.raw import Raw
from tests.server.transactions.inside import WITHIN_S, inside
from tests.server.transactions.talking import Producer, committed_values

TOPIC = "orders"
SETTINGS = {
    "muster_flush": "always", "transaction_state_log_num_partitions": 1, "transaction_state_log_segment_bytes": 2_000,
    "log_cleaner_backoff_ms": 20, "log_cleaner_min_cleanable_ratio": 0.01,
}  # fmt: skip


def test_a_compacted_log_says_the_same_of_every_transaction() -> None:
    with Broker(**SETTINGS) as broker:
        broker.create_topic(TOPIC, partitions=2)
        with Raw((broker.host, broker.port)) as raw:
            ended, still_open = (Producer(raw, transactional_id, 2).begin() for transactional_id in ("ended", "open"))
            still_open.send(TOPIC, 1, "late")
            committed = make_transactions_until_compacted(broker, ended)
        before = broker.transactions()
        assert (before["ended"].state, before["open"].state) == ("CompleteCommit", "Ongoing")
        broker.kill_and_restart()
        assert broker.transactions() == before
        with Raw((broker.host, broker.port)) as raw:
            still_open.raw = ended.raw = raw
            assert still_open.end(commit=True) == 0
            ended.send(TOPIC, 0, "last")
            assert ended.end(commit=True) == 0
            wait_for_ends(broker)
            assert committed_values(raw, TOPIC, 0) == [*committed, "last"]
            assert committed_values(raw, TOPIC, 1) == ["late"]


def make_transactions_until_compacted(broker: Broker, producer: Producer) -> list[str]:
    """What they wrote; the log of transactions has given up some of their records."""
    values: list[str] = []
    deadline = time.monotonic() + WITHIN_S
    while not inside(broker, lambda parts: parts.stats.compacted_bytes):
        assert time.monotonic() < deadline
        values.append(str(len(values)))
        producer.send(TOPIC, 0, values[-1])
        assert producer.end(commit=True) == 0
    wait_for_ends(broker)
    return values


def wait_for_ends(broker: Broker) -> None:
    deadline = time.monotonic() + WITHIN_S
    while any(each.state.startswith("Prepare") for each in broker.transactions().values()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
