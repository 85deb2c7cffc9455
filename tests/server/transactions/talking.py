"""A producer with transactions over a plain connection, in the older flow or in that of transactions version 2."""

from dataclasses import dataclass, field
from typing import Any

from muster.codec.batches import read_header
from muster.codec.records import TRANSACTIONAL
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw
from tests.server.records.talking import batch, fetch, produce_body, records_in

FLOWS = {"older": 0, "version 2": 2}
"""By name: what is called `version` below."""
_VERSIONS = {
    0: {ApiKey.INIT_PRODUCER_ID: 4, ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4},
    2: {ApiKey.INIT_PRODUCER_ID: 5, ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5},
}
COMMITTED = {"isolationLevel": 1}
CONCURRENT = 51
"""CONCURRENT_TRANSACTIONS: the end of the one before is under way, and clients ask again."""


@dataclass
class Producer:
    """Knows what clients know: its id, epoch and sequences."""

    raw: Raw
    transactional_id: str
    version: int
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def ask(self, api_key: ApiKey, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.raw.ask(api_key, _VERSIONS[self.version][api_key], **body)
        return answer

    def init(self, timeout_ms: int = 60_000, **more: Any) -> int:
        """Error code."""
        answer = self.ask(
            ApiKey.INIT_PRODUCER_ID, transactionalId=self.transactional_id, transactionTimeoutMs=timeout_ms, **more
        )
        if not answer["errorCode"]:
            self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]
            self.sequences.clear()
        return int(answer["errorCode"])

    def begin(self, timeout_ms: int = 60_000) -> "Producer":
        """Find the coordinator, and get an id."""
        answer = self.raw.ask(ApiKey.FIND_COORDINATOR, 4, keyType=1, coordinatorKeys=[self.transactional_id])
        assert [one["errorCode"] for one in answer["coordinators"]] == [0]
        while (error := self.init(timeout_ms)) == CONCURRENT:
            pass
        assert error == 0, error
        return self

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactionalId": self.transactional_id, "producerId": self.producer_id, "producerEpoch": self.epoch,
        }  # fmt: skip

    def add(self, topic: str, *partitions: int) -> list[int]:
        """Error codes."""
        answer = self.raw.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3AndBelowTransactionalId=self.transactional_id,
            v3AndBelowProducerId=self.producer_id, v3AndBelowProducerEpoch=self.epoch,
            v3AndBelowTopics=[{"name": topic, "partitions": list(partitions)}],
        )  # fmt: skip
        return [
            one["partitionErrorCode"]
            for of_topic in answer["resultsByTopicV3AndBelow"]
            for one in of_topic["resultsByPartition"]
        ]

    def batch(self, topic: str, partition: int, *values: str) -> bytes:
        sequence = self.sequences.get((topic, partition), 0)
        return batch(
            *values, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )  # fmt: skip

    def next_batch(self, topic: str, partition: int, *values: str) -> dict[str, Any]:
        """The body of a Produce, and its sequence is used."""
        body = produce_body(topic, {partition: self.batch(topic, partition, *values)})
        self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return {**body, "transactionalId": self.transactional_id}

    def write(self, topic: str, partition: int, *values: str) -> int:
        """Error code of the batch, which is not added before."""
        body = produce_body(topic, {partition: self.batch(topic, partition, *values)})
        answer = self.ask(ApiKey.PRODUCE, **body, transactionalId=self.transactional_id)
        (told,) = answer["responses"][0]["partitionResponses"]
        if not told["errorCode"]:
            self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return int(told["errorCode"])

    def send(self, topic: str, partition: int, *values: str) -> None:
        """Write, as this flow does it."""
        if self.version < 2:
            while (errors := self.add(topic, partition)) == [CONCURRENT]:
                pass
            assert errors == [0]
        while (error := self.write(topic, partition, *values)) == CONCURRENT:
            pass
        assert error == 0, error

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> int:
        """Error code, as this flow does it."""
        if self.version < 2:
            answer = self.raw.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **self.who, groupId=group)
            assert answer["errorCode"] == 0
        return self.write_offset(group, topic, partition, offset)

    def write_offset(self, group: str, topic: str, partition: int, offset: int) -> int:
        partitions = [{"partitionIndex": partition, "committedOffset": offset, "committedMetadata": ""}]
        answer = self.ask(
            ApiKey.TXN_OFFSET_COMMIT, **self.who, groupId=group, topics=[{"name": topic, "partitions": partitions}]
        )
        return int(answer["topics"][0]["partitions"][0]["errorCode"])

    def end(self, *, commit: bool) -> int:
        """Error code."""
        answer = self.ask(ApiKey.END_TXN, **self.who, committed=commit)
        if not answer["errorCode"] and self.version >= 2:
            if (self.producer_id, self.epoch) != (answer["producerId"], answer["producerEpoch"]):
                self.sequences.clear()
            self.producer_id, self.epoch = answer["producerId"], answer["producerEpoch"]
        return int(answer["errorCode"])

    def state(self) -> str:
        return describe(self.raw, self.transactional_id)["transactionState"]


def describe(raw: Raw, transactional_id: str) -> Any:
    answer = raw.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=[transactional_id])
    return answer["transactionStates"][0]


def committed_values(raw: Raw, topic: str, partition: int) -> list[str]:
    """What a reader with read_committed sees."""
    values: list[str] = []
    offset = 0
    while True:
        told = fetch(raw, topic, partition, offset, **COMMITTED)
        assert told["errorCode"] == 0, told
        if not told["records"]:
            assert told["lastStableOffset"] == offset
            return values
        aborted = {(one["producerId"], one["firstOffset"]) for one in told["abortedTransactions"] or ()}
        values, offset = values + passed(told["records"], aborted, offset), end_of(told["records"])


def end_of(data: bytes) -> int:
    position = end = 0
    while position < len(data):
        header = read_header(data, position)
        position, end = position + header.size_bytes, header.last_offset + 1
    return end


def passed(data: bytes, aborted: set[tuple[int, int]], offset: int) -> list[str]:
    """As clients do it: batches of a producer are passed over from the first offset of an aborted transaction on."""
    values: list[str] = []
    open_aborted: set[int] = set()
    position = 0
    while position < len(data):
        header = read_header(data, position)
        open_aborted |= {who for who, first in aborted if first <= header.base_offset and who == header.producer_id}
        if header.is_control:
            open_aborted.discard(header.producer_id)
            aborted = {
                (who, first) for who, first in aborted if who != header.producer_id or first > header.base_offset
            }
        elif not (header.is_transactional and header.producer_id in open_aborted):
            records = records_in(data[position : position + header.size_bytes])
            values += [(one.value or b"").decode() for one in records if one.offset >= offset]
        position += header.size_bytes
    return values
