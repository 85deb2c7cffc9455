"""What has happened on the broker of these tests: commits, transactions of every kind, a topic of odd partitions."""

import contextlib
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.codec import partition_for
from tests.kit.kafka import KafkaBroker
from tests.live.broker import DATA, HIDDEN

OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 4
PLAIN, PACKED, COMMITTED, ABORTED, LARGE, NOTHING, TRIMMED = range(7)
"""Partitions of the topic: plain records, one compressed batch, a transaction that was committed, one that was not
(twice), a batch of 300 kB, no record at all, and records of which the first five were deleted."""
FIRST_MS = 1_600_000_000_000
"""Long ago, so that what the broker writes by itself, at its own time, begins a new segment."""
QUIET = {"log_level": 2}
WAIT_S = 20.0


def live(broker: KafkaBroker) -> Producer:
    """A few seconds of it. A transaction stays open as long as what is returned lives."""
    admin = AdminClient(QUIET | {"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(DATA, num_partitions=7, replication_factor=1), NewTopic(HIDDEN, num_partitions=1)]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    write_records(broker)
    for deleted in admin.delete_records([TopicPartition(DATA, TRIMMED, 5)]).values():
        deleted.result(WAIT_S)
    for group in groups():
        commit(broker, group)
    return transactions(broker)


def groups() -> list[str]:
    """One for each partition of the offsets topic."""
    return list(
        {partition_for(f"live-{number}", OFFSETS_PARTITIONS): f"live-{number}" for number in range(50)}.values()
    )


def write_records(broker: KafkaBroker) -> None:
    """Each record is a thousand ms later than the one before."""
    settings = QUIET | {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
    single, packing = Producer(settings), Producer(settings | {"compression.type": "zstd", "linger.ms": 200})
    for number in range(10):
        for partition in (PLAIN, TRIMMED):
            single.produce(DATA, b"x", partition=partition, timestamp=FIRST_MS + 1000 * number)
            assert single.flush(WAIT_S) == 0  # a batch each
    single.produce(DATA, b"x" * 300_000, partition=LARGE, timestamp=FIRST_MS)
    for number in range(100):
        packing.produce(DATA, b"x" * 100, partition=PACKED, timestamp=FIRST_MS + 1000 * number)
    assert single.flush(WAIT_S) == packing.flush(WAIT_S) == 0


def commit(broker: KafkaBroker, group: str) -> None:
    """Thirty commits; the first is tried until the coordinator has loaded."""
    deadline = time.monotonic() + 60
    with consumer(broker, group) as simple:
        for offset in range(30):
            while True:
                try:
                    simple.commit(offsets=[TopicPartition(DATA, offset % 7, offset)], asynchronous=False)
                    break
                except KafkaException:
                    assert offset == 0, "it worked before"
                    assert time.monotonic() < deadline
                    time.sleep(0.1)


def transactions(broker: KafkaBroker) -> Producer:
    """One that is committed, two that are aborted, one that is left open; all with offsets of a group."""
    producer = Producer(QUIET | {"bootstrap.servers": broker.bootstrap, "transactional.id": "live"})
    producer.init_transactions(WAIT_S)
    with consumer(broker, groups()[0]) as simple:
        member = simple.consumer_group_metadata()
    for partition, end in ((COMMITTED, "commit"), (ABORTED, "abort"), (ABORTED, "abort"), (None, "")):
        producer.begin_transaction()
        if partition is not None:
            producer.produce(DATA, b"x", partition=partition, timestamp=FIRST_MS)
            assert producer.flush(WAIT_S) == 0  # or an abort would take it back before it is sent
        producer.send_offsets_to_transaction([TopicPartition(DATA, 0, 7)], member, WAIT_S)
        if end:
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)
    return producer


@contextlib.contextmanager
def consumer(broker: KafkaBroker, group: str) -> Iterator[Consumer]:
    made = Consumer(QUIET | {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        yield made
    finally:
        made.close()
