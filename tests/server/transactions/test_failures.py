"""Ends of transactions while a log fails, the disk is full, or partitions are let go and loaded again."""

import errno
import select
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import partition_for
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from tests.server.raw import Raw
from tests.server.transactions.inside import WITHIN_S, inside, syncs_held
from tests.server.transactions.talking import Producer, committed_values

E = ErrorCode
TOPIC, GROUP, WORKER = "orders", "app", "worker-1"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr("muster.server.records.data_partitions.FIRST_PAUSE_S", 0.05)
    with Broker(transaction_state_log_num_partitions=2) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Raw((broker.host, broker.port)) as raw:
        producer = Producer(raw, WORKER, 2).begin()
        producer.send(TOPIC, 0, "a")
        assert producer.commit_offset(GROUP, TOPIC, 0, 7) == 0
        yield producer


def wait_for(broker: Broker, state: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (found := broker.transactions().get(WORKER)) is None or found.state != state:
        assert time.monotonic() < deadline, broker.transactions()
        time.sleep(0.005)


def fail_log(broker: Broker, topic: str, partition: int) -> None:
    def work(parts: Any) -> None:
        parts.directory.logs[TopicPartition(topic, partition)]._fail("a write failed", OSError(errno.EIO, "broken"))

    inside(broker, work)


def test_a_marker_waits_for_a_log_whose_disk_has_failed(broker: Broker, producer: Producer) -> None:
    fail_log(broker, TOPIC, 0)
    assert producer.end(commit=True) == 0
    wait_for(broker, "CompleteCommit")
    assert committed_values(producer.raw, TOPIC, 0) == ["a"]
    assert broker.committed(GROUP) == {(TOPIC, 0): 7}


def test_a_marker_waits_for_groups_that_are_let_go(broker: Broker, producer: Producer) -> None:
    with broker.faults.unload(group=GROUP):
        assert producer.end(commit=True) == 0
        assert broker.transactions()[WORKER].state == "PrepareCommit"
        assert producer.init() == E.CONCURRENT_TRANSACTIONS
    wait_for(broker, "CompleteCommit")
    assert broker.committed(GROUP) == {(TOPIC, 0): 7}


@pytest.mark.parametrize("patience_ms", [0, WITHIN_S * 1000])
def test_batches_during_an_end_wait_for_it_as_long_as_is_set(patience_ms: int) -> None:
    with (
        Broker(add_partitions_to_txn_retry_backoff_max_ms=patience_ms) as broker,
        Raw((broker.host, broker.port)) as raw,
    ):
        broker.create_topic(TOPIC)
        producer = Producer(raw, WORKER, 2).begin()
        assert producer.commit_offset(GROUP, TOPIC, 0, 7) == 0
        with broker.faults.unload(group=GROUP):
            assert producer.end(commit=True) == 0
            for number in range(3):
                raw.send(ApiKey.PRODUCE, 12, **producer.next_batch(TOPIC, 0, str(number)))
            if not patience_ms:
                assert hear_batches(raw, 1) == [(E.CONCURRENT_TRANSACTIONS, -1)]
                return
            broker.topics()  # the loop goes on
            assert select.select([raw.socket], [], [], 0.2)[0] == []
        assert hear_batches(raw, 3) == [(E.NONE, number) for number in range(3)]


def test_offsets_during_an_end_wait_for_it(broker: Broker, producer: Producer) -> None:
    """Each time, until the marker of the offsets before is safe."""
    for offset in range(8, 28):
        assert producer.end(commit=True) == 0
        assert producer.commit_offset(GROUP, TOPIC, 0, offset) == 0
    assert producer.end(commit=True) == 0
    wait_for(broker, "CompleteCommit")
    assert broker.committed(GROUP) == {(TOPIC, 0): 27}


def hear_batches(raw: Raw, count: int) -> list[tuple[int, int]]:
    """Errors and offsets."""
    answers = [raw.hear(ApiKey.PRODUCE, 12)[1]["responses"][0]["partitionResponses"][0] for _ in range(count)]
    return [(answer["errorCode"], answer["baseOffset"]) for answer in answers]


def test_an_end_goes_on_where_its_coordinator_was_let_go_in_the_middle(broker: Broker, producer: Producer) -> None:
    number = partition_for(WORKER, 2)
    with broker.faults.unload(group=GROUP):
        assert producer.end(commit=False) == 0
        inside(broker, lambda parts: parts.transactions.leadership.resign(number))
        assert producer.end(commit=False) == E.NOT_COORDINATOR
        inside(broker, lambda parts: parts.transactions.leadership.elect(number))
        wait_for(broker, "PrepareAbort")
    wait_for(broker, "CompleteAbort")
    assert (committed_values(producer.raw, TOPIC, 0), broker.committed(GROUP)) == ([], {})


def test_a_marker_among_offsets_is_safe_on_the_disk_although_commits_do_not_wait_for_it() -> None:
    settings = {"muster_flush": "always", "offsets_commit_required_acks": 1}
    with Broker(**settings) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC)
        producer = Producer(raw, WORKER, 2).begin()
        assert producer.commit_offset(GROUP, TOPIC, 0, 7) == 0
        with syncs_held(broker, "__consumer_offsets") as held:
            assert producer.end(commit=True) == 0
            while not held:
                assert producer.state() == "PrepareCommit"
            assert [producer.state() for _ in range(5)] == ["PrepareCommit"] * 5
        wait_for(broker, "CompleteCommit")
        assert broker.committed(GROUP) == {(TOPIC, 0): 7}


def test_markers_are_not_doubled_by_a_second_load(broker: Broker, producer: Producer) -> None:
    number = partition_for(WORKER, 2)
    with broker.faults.unload(group=GROUP):
        assert producer.end(commit=True) == 0
        for _ in range(3):
            inside(broker, lambda parts: parts.transactions.leadership.elect(number))
            wait_for(broker, "PrepareCommit")
    wait_for(broker, "CompleteCommit")
    assert broker.topics()[TOPIC].ends[0] == 2, "one record and one marker"


def test_a_partition_that_was_deleted_needs_no_marker(broker: Broker, producer: Producer) -> None:
    broker.create_topic("gone")
    producer.send("gone", 0, "x")
    delete_topic(broker, "gone")
    assert producer.end(commit=True) == 0
    wait_for(broker, "CompleteCommit")
    assert committed_values(producer.raw, TOPIC, 0) == ["a"]


def delete_topic(broker: Broker, name: str) -> None:
    with Raw((broker.host, broker.port)) as raw:
        answer = raw.ask(20, 5, topicNames=[name], timeoutMs=10_000)
        assert [one["errorCode"] for one in answer["responses"]] == [0]


def test_a_full_disk_in_the_middle(broker: Broker, producer: Producer) -> None:
    with broker.faults.full_disk():
        error = producer.end(commit=True)
        assert error in (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE), error
    state = broker.transactions()[WORKER].state
    assert state in ("Ongoing", "PrepareCommit", "CompleteCommit")
    if state == "Ongoing":  # the decision is not in the log, so it was not made
        assert producer.end(commit=True) == 0
    wait_for(broker, "CompleteCommit")
    assert (committed_values(producer.raw, TOPIC, 0), broker.committed(GROUP)) == (["a"], {(TOPIC, 0): 7})


def test_the_log_of_transactions_fails_under_an_open_one(broker: Broker, producer: Producer) -> None:
    fail_log(broker, "__transaction_state", partition_for(WORKER, 2))
    deadline = time.monotonic() + WITHIN_S
    while (error := producer.end(commit=True)) in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert error == 0
    wait_for(broker, "CompleteCommit")
    assert committed_values(producer.raw, TOPIC, 0) == ["a"]


def test_an_end_at_the_last_epoch_needs_a_fresh_id(
    broker: Broker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the next epoch would be one that no record has room for, and the partition could never load."""
    last = 0x7FFE

    def wear_out(parts: Any) -> None:
        for led in parts.transactions.led.by_number.values():
            known = led.coordinator.transactions
            if WORKER in known:
                known[WORKER] = replace(known[WORKER], record=known[WORKER].record._replace(producer_epoch=last))

    inside(broker, wear_out)
    producer.epoch = last
    with monkeypatch.context() as no_disk:
        no_disk.setattr("muster.server.records.producer_ids.ProducerIds.take", lambda self, taken: taken(-1))
        assert producer.end(commit=False) == E.COORDINATOR_NOT_AVAILABLE
        assert broker.transactions()[WORKER].state == "Ongoing"
    before = producer.producer_id
    assert producer.end(commit=False) == 0
    assert producer.epoch == 0
    assert producer.producer_id != before


def test_a_transaction_that_fills_its_log_to_the_limit_can_be_ended() -> None:
    """The abort is one of the newer version, whose record has a field more than that of the older open transaction."""
    with Broker(settings={"message.max.bytes": "250"}) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=40)
        producer = Producer(raw, WORKER, 0).begin()
        errors = [producer.add(TOPIC, number)[0] for number in range(40)]
        added = errors.count(0)
        assert 0 < added < 40, "one more is too much, by no more than its four bytes"
        assert errors[added:] == [E.UNKNOWN_SERVER_ERROR] * (40 - added)
        assert producer.init() == E.CONCURRENT_TRANSACTIONS
        wait_for(broker, "CompleteAbort")
