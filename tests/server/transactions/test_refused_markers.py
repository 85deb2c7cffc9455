"""A marker of the coordinator that a partition refuses, because it has heard of a later epoch from somebody else."""

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.transactions.talking import Producer, committed_values
from tests.server.transactions.test_failures import WORKER, inside, wait_for

TOPIC = "orders"


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_undone_until_the_next_load(commit: bool) -> None:
    prepared, complete = ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")
    with Broker(transaction_state_log_num_partitions=1) as broker, Raw((broker.host, broker.port)) as raw:
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
        inside(broker, lambda parts: parts.transactions.leadership.resign(0))
        inside(broker, lambda parts: parts.transactions.leadership.elect(0))
        wait_for(broker, complete)
        assert committed_values(raw, TOPIC, 0) == ["a"], "the marker from outside has decided"


def test_a_request_of_brokers_that_names_no_transaction_is_answered() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        assert raw.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[])["resultsByTransaction"] == []
