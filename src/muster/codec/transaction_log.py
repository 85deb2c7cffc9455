"""Keys and values of the records of __transaction_state: one kind of key, two versions of values.

A key begins with an int16, the kind of record: 0 is a transactional id, any other is unknown and kept as bytes. A value
begins with an int16 that is its version. No value at all (a null) is a tombstone: the transactional id is forgotten.
Brokers before `transaction.version` 1 write version 0. Version 1 is flexible; its tagged fields say what transactions
of version 2 need:

    producerId, producerEpoch       who may write in this transaction, or end it
    previousProducerId              who did before the last change; another one after a change of the producer id
    nextProducerId                  who will from Complete* on, where the end of a transaction used up the last epoch
    clientTransactionVersion        2 where the last producer bumps its epoch at every end
    nextProducerEpoch               of transactions that take part in a two-phase commit; kept, not used

The partitions are null in the state Empty, as Kafka writes them.
"""

from functools import cache
from typing import NamedTuple

from muster.codec.layouts import UNKNOWN_TAGS, Layout, StructData, parse_messages
from muster.codec.primitives import Buffer, Reader, TaggedFields, Writer
from muster.errors import Truncated, UnsupportedVersion

TRANSACTION_TYPE = 0
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NEWEST_VERSION = 1
EMPTY_STATUS = 0

TopicPartition = tuple[str, int]

_LAYOUT = """
TransactionLogValue 0-1 flexible 1+
  producerId int64
  previousProducerId int64 1+ #0 =-1
  nextProducerId int64 1+ #1 =-1
  producerEpoch int16
  nextProducerEpoch int16 1+ #3 =-1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct ?
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ #2
"""


class TransactionKey(NamedTuple):
    transactional_id: str

    @property
    def record_type(self) -> int:
        return TRANSACTION_TYPE


class UnknownTransactionKey(NamedTuple):
    """A kind of record this release does not know; `data` is the whole key, prefix included."""

    record_type: int
    data: bytes


class TransactionValue(NamedTuple):
    """What the log says of one transactional id. `status` is the number of its state; times are those of the wall."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: tuple[TopicPartition, ...] = ()
    """In the order of the record, by topic."""
    update_ms: int = -1
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0
    unknown_tags: TaggedFields = ()


def decode_transaction_key(data: Buffer) -> TransactionKey | UnknownTransactionKey:
    """Read the key of one record; a kind that is not known comes back as `UnknownTransactionKey`, not as an error."""
    data = bytes(data)
    if len(data) < 2:
        raise Truncated(f"a key of {len(data)} bytes has no room for its record type")
    reader = Reader(data)
    record_type = reader.int16()
    if record_type != TRANSACTION_TYPE:
        return UnknownTransactionKey(record_type, data)
    return TransactionKey(reader.string())


def encode_transaction_key(key: TransactionKey | UnknownTransactionKey) -> bytes:
    if isinstance(key, UnknownTransactionKey):
        return key.data
    writer = Writer()
    writer.int16(TRANSACTION_TYPE)
    writer.string(key.transactional_id)
    return writer.finish()


def decode_transaction_value(data: Buffer) -> tuple[int, TransactionValue]:
    """Read a value that is not a tombstone: its version, and what it says."""
    data = bytes(data)
    if len(data) < 2:
        raise Truncated(f"a value of {len(data)} bytes has no room for its version")
    reader = Reader(data)
    version = reader.int16()
    body = _layout(version).read(reader)
    return version, TransactionValue(
        body["producerId"],
        body["producerEpoch"],
        body["transactionTimeoutMs"],
        body["transactionStatus"],
        _partitions(body["transactionPartitions"]),
        body["transactionLastUpdateTimestampMs"],
        body["transactionStartTimestampMs"],
        body["previousProducerId"],
        body["nextProducerId"],
        body["nextProducerEpoch"],
        body["clientTransactionVersion"],
        body.get(UNKNOWN_TAGS, ()),
    )


def encode_transaction_value(value: TransactionValue, version: int = NEWEST_VERSION) -> bytes:
    """Write a value; version 0 drops what it cannot hold."""
    layout = _layout(version)
    writer = Writer()
    writer.int16(version)
    layout.write(
        writer,
        {
            "producerId": value.producer_id,
            "previousProducerId": value.previous_producer_id,
            "nextProducerId": value.next_producer_id,
            "producerEpoch": value.producer_epoch,
            "nextProducerEpoch": value.next_producer_epoch,
            "transactionTimeoutMs": value.timeout_ms,
            "transactionStatus": value.status,
            "transactionPartitions": None if value.status == EMPTY_STATUS else _by_topic(value.partitions),
            "transactionLastUpdateTimestampMs": value.update_ms,
            "transactionStartTimestampMs": value.start_ms,
            "clientTransactionVersion": value.client_version,
            UNKNOWN_TAGS: value.unknown_tags,
        },
    )
    return writer.finish()


@cache
def _layout(version: int) -> Layout:
    message = parse_messages(_LAYOUT)["TransactionLogValue"]
    if version not in message.versions:
        raise UnsupportedVersion(f"unknown transaction version {version}")
    return Layout(message, version, keeps_tags=True)


def _partitions(topics: list[StructData] | None) -> tuple[TopicPartition, ...]:
    return tuple([(topic["topic"], partition) for topic in topics or () for partition in topic["partitionIds"]])


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[StructData]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()]
