"""A broker that is killed and started again: what it has promised is there, and clients go on."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from muster.broker import Broker
from tests.server.kit.consumers import consumer, values


def test_in_a_thread_the_power_goes_and_what_was_synced_is_there() -> None:
    with Broker(muster_flush="always") as broker:
        port = broker.port
        broker.seed_records("orders", "one", "two")
        broker.seed_commits("app", {("orders", 0): 1})
        producer = Producer({
            "bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0,
            "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50,
        })  # fmt: skip
        producer.produce("orders", b"three")
        assert producer.flush(10) == 0
        broker.clock.advance("1 hour")
        before = broker.clock.now()

        broker.kill_and_restart()

        assert broker.port == port
        assert broker.clock.now() >= before
        assert broker.committed("app") == {("orders", 0): 1}
        assert [record.value for record in broker.records("orders")] == [b"one", b"two", b"three"]
        producer.produce("orders", b"four")
        assert producer.flush(10) == 0
        with consumer(broker, "app", "orders") as worker:
            assert values(worker, 3) == [b"two", b"three", b"four"]


def test_in_a_thread_what_was_not_synced_is_lost(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with Broker(data=tmp_path / "data") as broker:  # writes are left to the operating system
        broker.seed_records("orders", "one")
        broker.seed_commits("app", {("orders", 0): 1})
        broker.kill_and_restart()
        assert broker.topics()["orders"].ends == [0]
        assert broker.committed("app") == {}
        assert "bytes that were not synced" in broker.log_text
        broker.seed_records("orders", "two")
    left = {one.name for one in set(threading.enumerate()) - threads}
    assert {name for name in left if not name.startswith("muster-flush")} == set()  # those end when they get to it
    with Broker(data=tmp_path / "data") as broker:  # stopped in peace
        assert [record.value for record in broker.records("orders")] == [b"two"]


def test_a_consumer_that_waits_lives_through_it() -> None:
    with Broker(muster_flush="always") as broker:
        broker.create_topic("orders")
        with consumer(broker, "app", "orders") as worker:
            broker.wait_for_members("app", 1)
            broker.kill_and_restart()
            broker.seed_records("orders", "after")
            assert values(worker, 1) == [b"after"]
            worker.commit(asynchronous=False)
        assert broker.committed("app") == {("orders", 0): 1}


def test_a_broker_that_does_not_run_cannot_be_killed() -> None:
    with pytest.raises(Exception, match="does not run"):
        Broker().kill_and_restart()
