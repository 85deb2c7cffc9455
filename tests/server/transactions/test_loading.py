"""What producers hear while their coordinator is elsewhere, and while it loads: docs/protocol.md has the table."""

from typing import Any

from muster.broker import Broker
from muster.codec.records import TRANSACTIONAL
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import batch, produce_body
from tests.server.transactions.talking import Producer
from tests.server.transactions.test_failures import WORKER, inside, wait_for

TOPIC, GROUP = "orders", "readers"
LATER_EPOCH = 99
ELSEWHERE = {
    "InitProducerId": 16, "AddPartitionsToTxn": 16, "AddOffsetsToTxn": 16, "EndTxn 4": 16, "EndTxn 5": 16,
    "TxnOffsetCommit 1": 16, "TxnOffsetCommit 3": 16, "TxnOffsetCommit 5": 16, "Produce 11": 19, "Produce 12": 19,
    "DescribeTransactions": 16, "ListTransactions": 0,
}  # fmt: skip
LOADING = dict.fromkeys(ELSEWHERE, 14) | {"TxnOffsetCommit 1": 15, "Produce 11": 19, "Produce 12": 19}
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
    for version in (1, 3, 5):
        told[f"TxnOffsetCommit {version}"] = committed(raw, producer, version)
    for partition, version in enumerate((11, 12)):
        told[f"Produce {version}"] = produced(raw, producer, version, partition)
    return told


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
    with Broker(transaction_state_log_num_partitions=1) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic(TOPIC, partitions=3)
        producer = Producer(raw, WORKER, 0).begin()
        producer.send(TOPIC, 2, "begun")
        inside(broker, lambda parts: parts.transactions.leadership.resign(0))
        assert codes(raw, producer) == ELSEWHERE
        inside(broker, lambda parts: parts.transactions.led.router.elect(0, LATER_EPOCH))  # the load takes its time
        assert codes(raw, producer) == LOADING
        inside(broker, lambda parts: setattr(parts.transactions.led.by_number[0], "epoch", LATER_EPOCH))
        inside(broker, lambda parts: parts.transactions.leadership.elect(0))
        wait_for(broker, "Ongoing")
        assert codes(raw, producer) == SERVED
        assert producer.end(commit=True) == 0
        wait_for(broker, "CompleteCommit")
