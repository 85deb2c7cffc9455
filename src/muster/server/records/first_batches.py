"""Batches with which a producer begins its transaction in a log: who has to be asked, and what is refused."""

from collections.abc import Callable
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import Topic
from muster.server.records.produce import Produced, ProduceRequest, Writer, found, sequence_of, writer_of

FIRST_THAT_BEGINS_AT_0 = 12
"""The first version of Produce whose producer begins a transaction in a log that does not know it with sequence 0."""
Verify = Callable[[ProduceRequest, int, int, TopicPartition], Produced | None]
"""Why a batch may not begin something in a partition, as its transaction has it; None if it may."""


class Beginning(NamedTuple):
    """Partitions in which a producer has nothing open."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def beginning(
    request: ProduceRequest, cluster: Cluster, log_of: Callable[[TopicPartition], DiskLog | None]
) -> Beginning:
    """Partitions in which a request would begin the transaction of its producer."""
    partitions: dict[TopicPartition, None] = {}
    writer = None
    for asked in request.partitions:
        of_batch = writer_of(asked.records)
        topic = None if of_batch is None else found(asked, request, cluster)
        if of_batch is None or not isinstance(topic, Topic):
            continue
        key = TopicPartition(topic.name, asked.partition)
        log = log_of(key)
        if log is not None and not has_open(log, of_batch) and not _is_fenced(log, of_batch):
            writer = of_batch
            partitions[key] = None
    return Beginning(*(writer or (-1, -1)), tuple(partitions))


def refused(
    request: ProduceRequest, key: TopicPartition, log: DiskLog, records: memoryview | bytes, verify: Verify
) -> Produced | None:
    """Why a batch may not begin something in a log, in Kafka's order; None if it may, or begins nothing."""
    writer = writer_of(records)
    if writer is None or has_open(log, writer):
        return None
    if _is_fenced(log, writer):
        return Produced(ErrorCode.INVALID_PRODUCER_EPOCH)
    unverified = verify(request, *writer, key)
    if unverified is not None:
        return unverified
    is_new = writer.producer_id not in log.producers.producers
    if is_new and request.version >= FIRST_THAT_BEGINS_AT_0 and sequence_of(records):
        return Produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, start_offset=log.start_offset)
    return None


def has_open(log: DiskLog, writer: Writer) -> bool:
    """Whether a batch goes on with what its producer has begun in this log; its marker is not there yet."""
    producer = log.producers.producers.get(writer.producer_id)
    return producer is not None and producer.transaction_first_offset >= 0 and producer.epoch == writer.producer_epoch


def _is_fenced(log: DiskLog, writer: Writer) -> bool:
    """Whether a log knows of a later epoch of the producer of a batch."""
    producer = log.producers.producers.get(writer.producer_id)
    return producer is not None and writer.producer_epoch < producer.epoch
