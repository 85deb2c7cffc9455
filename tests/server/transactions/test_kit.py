"""Transactions in the test kit: looked at from inside, forgotten by `reset`."""

import pytest

from muster.broker import Broker
from muster.errors import ConfigError
from tests.server.raw import Raw
from tests.server.transactions.talking import Producer, committed_values


def open_transaction(broker: Broker, raw: Raw) -> Producer:
    broker.create_topic("orders")
    producer = Producer(raw, "worker-1", 2).begin(timeout_ms=30_000)
    producer.send("orders", 0, "a")
    assert producer.commit_offset("app", "orders", 0, 5) == 0
    return producer


def test_transactions_are_seen_from_inside() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        assert broker.transactions() == {}
        producer = open_transaction(broker, raw)
        seen = broker.transactions()["worker-1"]
        assert (seen.state, seen.producer_id, seen.epoch) == ("Ongoing", producer.producer_id, producer.epoch)
        assert (seen.timeout_ms, seen.partitions[0]) == (30_000, ("orders", 0))
        assert [topic for topic, _ in seen.partitions] == ["orders", "__consumer_offsets"]
        assert abs(seen.started_ms - broker.clock.now().timestamp() * 1000) < 60_000


def test_reset_forgets_transactions_and_their_offsets() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        for _ in range(2):
            producer = open_transaction(broker, raw)
            broker.reset()
            assert (broker.transactions(), broker.topics(), broker.committed("app")) == ({}, {}, {})
            assert producer.end(commit=True) == 16, "NOT_COORDINATOR: there is none"
        producer = open_transaction(broker, raw)
        assert producer.end(commit=True) == 0
        while producer.state().startswith("Prepare"):
            pass
        assert (committed_values(raw, "orders", 0), broker.committed("app")) == (["a"], {("orders", 0): 5})


def test_an_unknown_step_is_refused_with_those_that_there_are() -> None:
    with Broker() as broker, pytest.raises(ConfigError, match="before-prepare, prepared, first-marker"):
        broker.faults.crash_at("half-way")


def test_a_crash_that_is_undone_does_not_happen() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        producer = open_transaction(broker, raw)
        with broker.faults.crash_at("prepared"):
            pass
        assert producer.end(commit=True) == 0
