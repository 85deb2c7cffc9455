"""Markers that a partition refuses, because it has heard of a later epoch from somebody else; markers from outside."""

import io
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import batch, produce
from tests.server.transactions.talking import Producer, committed_values
from tests.server.transactions.test_failures import WORKER, inside, wait_for

TOPIC = "orders"


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_undone_until_the_next_load(commit: bool) -> None:
    prepared, complete = ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")
    log = io.StringIO()
    with Broker(transaction_state_log_num_partitions=1, log=log) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=1)
        producer = Producer(raw, WORKER, 2).begin()
        producer.send(TOPIC, 0, "a")
        marker = {
            "producerId": producer.producer_id, "producerEpoch": producer.epoch + 100, "transactionResult": True,
            "topics": [{"name": TOPIC, "partitionIndexes": [0]}],
        }  # fmt: skip
        raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        assert producer.end(commit=commit) == 0
        assert producer.init() == 51
        assert producer.state() == prepared
        assert f"transactional id '{WORKER}': {TOPIC}-0 refuses the marker of its end" in log.getvalue()
        inside(broker, lambda parts: parts.transactions.leadership.resign(0))
        inside(broker, lambda parts: parts.transactions.leadership.elect(0))
        wait_for(broker, complete)
        assert committed_values(raw, TOPIC, 0) == ["a"], "the marker from outside has decided"


def test_a_request_of_brokers_that_names_no_transaction_is_answered() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        assert raw.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[])["resultsByTransaction"] == []


def test_a_batch_of_a_stranger_with_a_later_epoch_is_enough(tmp_path: Path) -> None:
    """In a partition that was added and not written to. With Kafka the end is not carried out, either."""
    log = io.StringIO()
    with Broker(data=tmp_path, log=log) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=1)
        producer = Producer(raw, WORKER, 0).begin()
        assert producer.add(TOPIC, 0) == [0]
        later = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch + 5, "base_sequence": 0}
        assert produce(raw, TOPIC, 0, batch("a stranger's", **later)) == (0, 0)
        assert producer.end(commit=True) == 0
        assert producer.init() == 51
        assert log.getvalue().count("refuses the marker of its end") == 1
    with Broker(data=tmp_path) as broker:
        wait_for(broker, "CompleteCommit")


def test_a_marker_from_outside_among_the_transactions_does_no_harm(tmp_path: Path) -> None:
    """Kafka takes it, too."""
    settings = {"transaction_state_log_num_partitions": 1}
    with Broker(data=tmp_path, **settings) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=1)
        producer = Producer(raw, WORKER, 2).begin()
        producer.send(TOPIC, 0, "a")
        marker = {
            "producerId": producer.producer_id, "producerEpoch": producer.epoch, "transactionResult": True,
            "topics": [{"name": "__transaction_state", "partitionIndexes": [0]}],
        }  # fmt: skip
        (told,) = raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])["markers"]
        assert told["topics"][0]["partitions"][0]["errorCode"] == 0
        assert producer.state() == "Ongoing"
        producer.send(TOPIC, 0, "b")
    with Broker(data=tmp_path, **settings) as broker, Raw((broker.host, broker.port)) as raw:
        producer.raw = raw
        wait_for(broker, "Ongoing")
        assert producer.end(commit=True) == 0
        wait_for(broker, "CompleteCommit")
        assert committed_values(raw, TOPIC, 0) == ["a", "b"]


def test_a_marker_from_outside_of_a_later_coordinator_does_not_hold_the_end_up() -> None:
    """With Kafka such a transaction stays in PrepareCommit; here there is one coordinator, whatever its epoch is."""
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=1)
        producer = Producer(raw, WORKER, 0).begin()
        assert producer.add(TOPIC, 0) == [0]
        for epoch, error in ((50, 0), (49, 52)):
            marker = {
                "producerId": producer.producer_id, "producerEpoch": producer.epoch, "transactionResult": True,
                "coordinatorEpoch": epoch, "topics": [{"name": TOPIC, "partitionIndexes": [0]}],
            }  # fmt: skip
            (told,) = raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])["markers"]
            assert told["topics"][0]["partitions"][0]["errorCode"] == error
        assert producer.end(commit=True) == 0
        wait_for(broker, "CompleteCommit")
