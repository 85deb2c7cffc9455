"""The coordinator beside Kafka's own: the same requests get the same answers, and leave the same records in the log."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.codec.batches import iter_batches
from muster.codec.transaction_log import (
    TransactionKey,
    TransactionValue,
    decode_transaction_key,
    decode_transaction_value,
)
from muster.core.transactions.events import EndAnswer, InitAnswer
from muster.core.transactions.states import PREPARED
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from tests.core.transactions.world import TIMEOUT_MS, TransactionWorld
from tests.kit.kafka import KafkaBroker, require_kafka

TOPIC = "orders"
PARTITIONS = 3
PATIENCE_S = 20.0
COORDINATOR_IS_COMING = (14, 15, 16)
TRANSACTION_STATE = "__transaction_state"


class Kafka:
    """One connection to a broker."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._stream = self._socket.makefile("rb")

    def ask(self, api: ApiKey, version: int, **body: Any) -> dict[str, Any]:
        self._socket.sendall(encode_request(api, version, 1, "teller", body))
        size = self._stream.read(4)
        frame = size + self._stream.read(int.from_bytes(size, "big"))
        return decode_response(api, version, frame)[1]

    def until(self, is_done: Callable[[dict[str, Any]], bool], ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Ask again until the answer will do."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = ask()
            if is_done(answer):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@dataclass(slots=True)
class Pair:
    """A transactional id at both; whatever is asked of one is asked of the other, and they agree."""

    kafka: Kafka
    transactional_id: str
    ours: TransactionWorld = field(default_factory=TransactionWorld)
    ids: dict[int, int] = field(default_factory=dict)
    """Kafka's producer ids, and ours for them."""

    @property
    def known(self) -> tuple[int, int]:
        """The last producer id, as Kafka has it, and the epoch."""
        return {ours: theirs for theirs, ours in self.ids.items()}.get(
            self.ours.producer_id, -1
        ), self.ours.producer_epoch

    def init(self, *, as_known: bool = False, epoch: int | None = None) -> None:
        producer_id, known_epoch = self.known
        epoch = known_epoch if epoch is None else epoch
        theirs = self.kafka.until(
            lambda answer: answer["errorCode"] not in COORDINATOR_IS_COMING,
            lambda: self.kafka.ask(
                ApiKey.INIT_PRODUCER_ID, 5, transactionalId=self.transactional_id, transactionTimeoutMs=TIMEOUT_MS,
                producerId=producer_id if as_known else -1, producerEpoch=epoch if as_known else -1,
            ),
        )  # fmt: skip
        fields = {"producer_epoch": epoch} if as_known else {}
        self._same(theirs, self.ours.init(self.transactional_id, as_known=as_known, **fields))
        self._await_end()

    def add(self, *partitions: int, version: int = 3) -> None:
        producer_id, epoch = self.known
        topics = [{"name": TOPIC, "partitions": list(partitions)}]
        if version < 4:
            body: dict[str, Any] = {
                "v3AndBelowTransactionalId": self.transactional_id, "v3AndBelowProducerId": producer_id,
                "v3AndBelowProducerEpoch": epoch, "v3AndBelowTopics": topics,
            }  # fmt: skip
        else:
            one = {"transactionalId": self.transactional_id, "producerId": producer_id, "producerEpoch": epoch}
            body = {"transactions": [{**one, "verifyOnly": False, "topics": topics}]}
        theirs = self.kafka.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **body)
        ((results,),) = [
            [topic["resultsByPartition"] for topic in theirs["resultsByTopicV3AndBelow"]]
            or [topic["resultsByPartition"] for topic in theirs["resultsByTransaction"][0]["topicResults"]]
        ]
        event = {"transactional_id": self.transactional_id, "version": version}
        answer = self.ours.add(*[(TOPIC, partition) for partition in partitions], **event)
        assert {result["partitionErrorCode"] for result in results} == {int(answer.error)}

    def end(self, commit: bool, version: int, epoch: int | None = None) -> None:
        producer_id, known_epoch = self.known
        epoch = known_epoch if epoch is None else epoch
        theirs = self.kafka.ask(
            ApiKey.END_TXN, version, transactionalId=self.transactional_id, producerId=producer_id, producerEpoch=epoch,
            committed=commit,
        )  # fmt: skip
        event = {"transactional_id": self.transactional_id, "producer_epoch": epoch}
        self._same(theirs, self.ours.end(commit, version, **event))
        self._await_end()

    def _same(self, theirs: dict[str, Any], ours: InitAnswer | EndAnswer) -> None:
        """Answers agree; a producer id that is new to both is the same."""
        assert theirs["errorCode"] == int(ours.error), (theirs, ours)
        if ours.producer_id != -1:
            assert self.ids.setdefault(theirs["producerId"], ours.producer_id) == ours.producer_id
            assert theirs["producerEpoch"] == ours.producer_epoch

    def _await_end(self) -> None:
        """If markers are due, both have written them then."""
        self.ours.write_markers()
        self.kafka.until(
            lambda answer: not answer["transactionStates"][0]["transactionState"].startswith("Prepare"),
            lambda: self.kafka.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=[self.transactional_id]),
        )
        assert self.ours.state(self.transactional_id) not in PREPARED


def older_flow(pair: Pair) -> None:
    pair.init()
    pair.add(0, 2)
    pair.add(1)
    pair.end(True, 3)
    pair.end(True, 3)
    pair.end(False, 3)
    pair.add(1)
    pair.end(False, 3)


def newer_flow(pair: Pair) -> None:
    pair.init()
    pair.end(True, 5)
    pair.add(0, version=4)
    pair.end(True, 5)
    pair.end(True, 5, epoch=0)
    pair.end(False, 5)
    pair.add(2, 1, version=4)
    pair.end(False, 5)
    pair.add(0, version=5)
    pair.end(True, 5, epoch=0)


def flows_in_turns(pair: Pair) -> None:
    pair.init()
    pair.add(0)
    pair.end(True, 5)
    pair.add(0, version=4)
    pair.end(True, 3)
    pair.init()
    pair.add(1)
    pair.end(False, 5)


def fenced(pair: Pair) -> None:
    pair.init()
    pair.add(0)
    pair.init()
    pair.init(as_known=True)
    pair.add(0)
    pair.init()
    pair.init()
    pair.add(1)
    pair.init(as_known=True)
    pair.init(as_known=True)


def gone_on(pair: Pair) -> None:
    pair.init()
    pair.init(as_known=True)
    pair.init(as_known=True, epoch=0)
    pair.init()
    pair.init(as_known=True, epoch=0)
    pair.init(as_known=True)


STORIES = (older_flow, newer_flow, flows_in_turns, fenced, gone_on)


@pytest.mark.kafka
def test_kafka_answers_alike_and_leaves_the_same_records(tmp_path: Path) -> None:
    with KafkaBroker(require_kafka(), data_dir=tmp_path / "kafka") as broker:
        kafka = Kafka(broker.bootstrap)
        topic = {"name": TOPIC, "numPartitions": PARTITIONS, "replicationFactor": 1}
        kafka.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeoutMs=10_000)
        pairs = [Pair(kafka, story.__name__) for story in STORIES]
        for story, pair in zip(STORIES, pairs, strict=True):
            kafka.until(
                lambda answer: answer["coordinators"][0]["errorCode"] == 0,
                lambda name=pair.transactional_id: kafka.ask(  # type: ignore[misc]
                    ApiKey.FIND_COORDINATOR, 4, keyType=1, coordinatorKeys=[name]
                ),
            )
            story(pair)
        kafka.close()
        logs = broker.log_dir
    written = records_of(logs)
    for pair in pairs:
        ours = [decode_transaction_value(value)[1] for _, value in pair.ours.log if value is not None]
        theirs = written[pair.transactional_id]
        assert [told(record, pair.ids) for record in theirs] == [told(record, {}) for record in ours], (
            pair.transactional_id
        )


def records_of(logs: Path) -> dict[str, list[TransactionValue]]:
    """What Kafka has written of each transactional id, in order; all of it in the newest version."""
    written: dict[str, list[TransactionValue]] = {}
    for path in sorted(logs.glob(f"{TRANSACTION_STATE}-*/*.log")):
        for batch in iter_batches(path.read_bytes()):
            for record in batch.records:
                assert record.key is not None
                assert record.value is not None
                key = decode_transaction_key(record.key)
                assert isinstance(key, TransactionKey)
                version, value = decode_transaction_value(record.value)
                assert version == 1
                written.setdefault(key.transactional_id, []).append(value)
    return written


def told(record: TransactionValue, ids: dict[int, int]) -> tuple[Any, ...]:
    """A record without its times, all but whether they are there, and with our producer ids."""
    return (
        ids.get(record.producer_id, record.producer_id),
        record.producer_epoch,
        record.timeout_ms,
        record.status,
        sorted(record.partitions),
        record.start_ms == -1,
        ids.get(record.previous_producer_id, record.previous_producer_id),
        record.next_producer_id,
        record.next_producer_epoch,
        record.client_version,
        record.unknown_tags,
    )
