"""What producers hear while their coordinator is elsewhere, and while it loads: docs/protocol.md has the table.

`tests/server/real/test_loading.py` puts more of them to a broker and to muster while both load.
"""

from typing import Any

from muster.broker import Broker
from muster.codec.records import TRANSACTIONAL
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import batch, produce_body
from tests.server.transactions.inside import loading
from tests.server.transactions.talking import Producer
from tests.server.transactions.test_failures import WORKER, inside, wait_for
from tests.server.wire_diff.transactions.telling import wait_for as until

TOPIC, GROUP = "orders", "readers"
ELSEWHERE = {
    "InitProducerId": 16, "AddPartitionsToTxn": 16, "AddOffsetsToTxn": 16, "EndTxn 4": 16, "EndTxn 5": 16,
    "TxnOffsetCommit 1": 16, "TxnOffsetCommit 3": 16, "TxnOffsetCommit 5": 16, "Produce 11": 19, "Produce 12": 19,
    "DescribeTransactions": 16, "ListTransactions": 0,
}  # fmt: skip
LOADING = dict.fromkeys(ELSEWHERE, 14) | {"TxnOffsetCommit 1": 15, "Produce 11": 19, "Produce 12": 19}
GROUPS_LOADING = {"TxnOffsetCommit 1": 15, "TxnOffsetCommit 3": 14, "TxnOffsetCommit 5": 14}
GOES_ON = dict.fromkeys(GROUPS_LOADING, 0)
SERVED = dict.fromkeys(ELSEWHERE, 0) | {"EndTxn 4": 90, "EndTxn 5": 90}


def codes(raw: Raw, producer: Producer) -> dict[str, int]:
    """One of each request; the ends are those of a fenced producer, so that nothing ends."""
    late = producer.who | {"producerEpoch": producer.epoch + 9}
    told = {
        "InitProducerId": raw.ask(ApiKey.INIT_PRODUCER_ID, 4, transactionalId="another", transactionTimeoutMs=60_000)[
            "errorCode"
        ],
        "AddPartitionsToTxn": producer.add(TOPIC, 0)[0],
        "AddOffsetsToTxn": raw.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer.who, groupId=GROUP)["errorCode"],
        "DescribeTransactions": raw.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=[WORKER])[
            "transactionStates"
        ][0]["errorCode"],
        "ListTransactions": raw.ask(ApiKey.LIST_TRANSACTIONS, 2)["errorCode"],
    }
    for version in (4, 5):
        told[f"EndTxn {version}"] = raw.ask(ApiKey.END_TXN, version, **late, committed=True)["errorCode"]
    told |= commits(raw, producer)
    for partition, version in enumerate((11, 12)):
        told[f"Produce {version}"] = produced(raw, producer, version, partition)
    return told


def commits(raw: Raw, producer: Producer) -> dict[str, int]:
    return {f"TxnOffsetCommit {version}": committed(raw, producer, version) for version in (1, 3, 5)}


def committed(raw: Raw, producer: Producer, version: int) -> int:
    partitions = [{"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}]
    topics = [{"name": TOPIC, "partitions": partitions}]
    answer: Any = raw.ask(ApiKey.TXN_OFFSET_COMMIT, version, **producer.who, groupId=GROUP, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["errorCode"])


def produced(raw: Raw, producer: Producer, version: int, partition: int) -> int:
    """To a partition that has nothing of the producer yet, so that the coordinator is asked."""
    data = batch(
        "a", producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0, attributes=TRANSACTIONAL
    )
    answer: Any = raw.ask(
        ApiKey.PRODUCE, version, **produce_body(TOPIC, {partition: data}), transactionalId=producer.transactional_id
    )
    return int(answer["responses"][0]["partitionResponses"][0]["errorCode"])


def test_what_producers_hear_while_their_coordinator_moves() -> None:
    settings = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
    with Broker(**settings) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=3)
        producer, with_offsets = Producer(raw, WORKER, 0).begin(), Producer(raw, "with offsets", 2).begin()
        producer.send(TOPIC, 2, "begun")
        assert with_offsets.commit_offset(GROUP, TOPIC, 0, 1) == 0
        inside(broker, lambda parts: parts.transactions.leadership.resign(0))
        assert codes(raw, producer) == ELSEWHERE
        assert commits(raw, with_offsets) == GOES_ON, "nobody is asked"
        with loading(broker, "__transaction_state"):
            assert codes(raw, producer) == LOADING
            assert commits(raw, with_offsets) == GOES_ON, "nobody is asked"
        wait_for(broker, "Ongoing")
        with loading(broker, "__consumer_offsets"):
            assert commits(raw, producer) == commits(raw, with_offsets) == GROUPS_LOADING
        until(lambda: commits(raw, with_offsets) == GOES_ON, lambda: "groups are not loaded")
        assert codes(raw, producer) == SERVED
        assert producer.end(commit=True) == 0
        wait_for(broker, "CompleteCommit")
