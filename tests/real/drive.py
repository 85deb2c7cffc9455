"""A little of everything that ends up in __consumer_offsets, done to a live broker by a stock client."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kit.kafka import KafkaBroker, KafkaFailed

ORDERS, PAYMENTS = "drive-orders", "drive-payments"
PARTITIONS = 2
RECORDS = 10
UNICODE_METADATA = 'Grüße, 世界 🎉 "quoted"\n\\ and a tab\t'
WAIT_S = 20.0

# librdkafka explains a coordinator that is still loading, and a broker that has gone, on standard error.
QUIET = {"log_level": 2}
SETTINGS = QUIET | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}


@dataclass(slots=True)
class Drive:
    """What was done, by name, so that a test can look for it.

    `committed` holds the offsets in force at the end; `pending` those of the transaction that was left open. Metadata
    arrives with a NUL at its end: confluent-kafka counts the terminator of its C string.
    """

    topics: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    deleted_groups: list[str] = field(default_factory=list)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    deleted: list[tuple[str, str, int]] = field(default_factory=list)
    aborted: dict[tuple[str, str, int], int] = field(default_factory=dict)
    pending: dict[tuple[str, str, int], int] = field(default_factory=dict)
    open_transaction: Producer | None = None

    def note(self, group: str, *offsets: TopicPartition) -> None:
        if group not in self.groups:
            self.groups.append(group)
        self.committed.update({(group, one.topic, one.partition): one.offset for one in offsets})


def drive(broker: KafkaBroker) -> Drive:
    """Give the broker's offsets topic some life; takes a few seconds.

    The transaction left open stays open as long as the returned `open_transaction` lives, then until it times out
    (ten minutes).
    """
    done = Drive()
    admin = AdminClient(QUIET | {"bootstrap.servers": broker.bootstrap})
    create_topics(admin, done)
    produce(broker)
    plain_commits(broker, done)
    rebalance(broker, done)
    static_member(broker, done)
    if broker.kafka.release >= (4, 0):
        consumer_protocol(broker, done)
    transactions(broker, done)
    delete_offsets(broker, done)
    alter_offsets(broker, admin, done)
    delete_group(broker, admin, done)
    return done


def create_topics(admin: AdminClient, done: Drive) -> None:
    done.topics = [ORDERS, PAYMENTS]
    new = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in done.topics]
    for created in admin.create_topics(new).values():
        created.result(WAIT_S)


def produce(broker: KafkaBroker) -> None:
    producer = Producer(QUIET | {"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for topic in (ORDERS, PAYMENTS):
        for number in range(RECORDS):
            producer.produce(topic, f"{topic}#{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def plain_commits(broker: KafkaBroker, done: Drive) -> None:
    """Commits without membership (a simple consumer), with metadata, again and backwards."""
    commit(broker, done, "drive-simple", TopicPartition(ORDERS, 0, 3, "plain"), TopicPartition(ORDERS, 1, 4))
    commit(broker, done, "drive-simple", TopicPartition(ORDERS, 0, 2, "rewound"))
    commit(broker, done, "drive-ünïcode-世界", TopicPartition(PAYMENTS, 0, 1, UNICODE_METADATA))
    commit(broker, done, "drive-simple", TopicPartition(PAYMENTS, 1, 2**53 + 1, "x" * 4000))


def commit(broker: KafkaBroker, done: Drive, group: str, *offsets: TopicPartition) -> None:
    with consumer(broker, group) as simple:
        check(simple.commit(offsets=list(offsets), asynchronous=False))
    done.note(group, *offsets)


def rebalance(broker: KafkaBroker, done: Drive) -> None:
    """One member takes all, a second joins and they share, the second commits and leaves, the first takes all again."""
    group = "drive-rebalance"
    with consumer(broker, group, **{"client.id": "first"}) as first:
        first.subscribe([ORDERS])
        poll_until(lambda: len(first.assignment()) == PARTITIONS, first)
        with consumer(broker, group, **{"client.id": "second"}) as second:
            second.subscribe([ORDERS])
            poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second)
            mine = TopicPartition(ORDERS, second.assignment()[0].partition, 1, "by the second")
            check(second.commit(offsets=[mine], asynchronous=False))
            second.unsubscribe()
            poll_until(lambda: len(first.assignment()) == PARTITIONS, first, second)
        both = [TopicPartition(ORDERS, partition, 5, "by the first") for partition in range(PARTITIONS)]
        check(first.commit(offsets=both, asynchronous=False))
    done.note(group, *both)


def static_member(broker: KafkaBroker, done: Drive) -> None:
    """A static member (KIP-345) comes, commits, goes without leaving, and its successor takes the seat.

    Its session is so long that nothing more happens to the group while a test looks at it.
    """
    group = "drive-static"
    seat = TopicPartition(PAYMENTS, 0, 2)
    static = {"group.instance.id": "seat-1", "session.timeout.ms": 600_000, "max.poll.interval.ms": 600_000}
    for client in ("before", "after"):
        with consumer(broker, group, **static, **{"client.id": client}) as member:
            member.subscribe([PAYMENTS])
            poll_until(lambda member=member: len(member.assignment()) == PARTITIONS, member)
            check(member.commit(offsets=[seat], asynchronous=False))
    done.note(group, seat)


def consumer_protocol(broker: KafkaBroker, done: Drive) -> None:
    """A group of the newer protocol (KIP-848), whose members leave records of other types."""
    group = "drive-consumer-protocol"
    theirs = TopicPartition(PAYMENTS, 1, 3, "newer")
    with closing(Consumer(SETTINGS | names(broker, group) | {"group.protocol": "consumer"})) as member:
        member.subscribe([PAYMENTS])
        poll_until(lambda: len(member.assignment()) == PARTITIONS, member)
        check(member.commit(offsets=[theirs], asynchronous=False))
    done.note(group, theirs)


def transactions(broker: KafkaBroker, done: Drive) -> None:
    """Offsets in a transaction that commits, in one that aborts, and in one that is left open."""
    group = "drive-txn"
    kept, dropped, left = (TopicPartition(ORDERS, 0, offset) for offset in (6, 7, 8))
    with consumer(broker, group) as reader:
        member = reader.consumer_group_metadata()
    producer = transactional(broker, "drive-txn-1")
    for offset, end in ((kept, producer.commit_transaction), (dropped, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(PAYMENTS, b"in a transaction", partition=0)
        producer.send_offsets_to_transaction([offset], member, WAIT_S)
        end(WAIT_S)
    done.open_transaction = transactional(broker, "drive-txn-2")
    done.open_transaction.begin_transaction()
    done.open_transaction.send_offsets_to_transaction([left], member, WAIT_S)
    done.note(group, kept)
    done.aborted[group, ORDERS, 0] = dropped.offset
    done.pending[group, ORDERS, 0] = left.offset


def transactional(broker: KafkaBroker, name: str) -> Producer:
    producer = Producer(
        QUIET | {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(WAIT_S)
    return producer


def delete_offsets(broker: KafkaBroker, done: Drive) -> None:
    """OffsetDelete for one partition of two. librdkafka's Python client has no call for it; Kafka's own tool has."""
    group = "drive-forgets"
    commit(broker, done, group, TopicPartition(ORDERS, 0, 9), TopicPartition(ORDERS, 1, 9))
    broker.consumer_groups("--delete-offsets", "--group", group, "--topic", f"{ORDERS}:1")
    del done.committed[group, ORDERS, 1]
    done.deleted.append((group, ORDERS, 1))


def alter_offsets(broker: KafkaBroker, admin: AdminClient, done: Drive) -> None:
    group = "drive-altered"
    commit(broker, done, group, TopicPartition(ORDERS, 0, 9))
    altered = TopicPartition(ORDERS, 0, 0)
    for answer in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [altered])]).values():
        check(answer.result(WAIT_S).topic_partitions)
    done.note(group, altered)


def delete_group(broker: KafkaBroker, admin: AdminClient, done: Drive) -> None:
    group = "drive-deleted"
    commit(broker, done, group, TopicPartition(ORDERS, 0, 1), TopicPartition(PAYMENTS, 1, 1))
    for answer in admin.delete_consumer_groups([group]).values():
        answer.result(WAIT_S)
    done.groups.remove(group)
    done.deleted_groups.append(group)
    for key in [key for key in done.committed if key[0] == group]:
        del done.committed[key]
        done.deleted.append(key)


@contextmanager
def consumer(broker: KafkaBroker, group: str, **settings: object) -> Iterator[Consumer]:
    """A member of a classic group: librdkafka's default, and what most logs are full of."""
    with closing(Consumer(SETTINGS | CLASSIC | names(broker, group) | settings)) as made:
        yield made


def names(broker: KafkaBroker, group: str) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": group}


def poll_until(reached: Callable[[], bool], *members: Consumer) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        if time.monotonic() > deadline:
            raise KafkaFailed(f"no such assignment after {WAIT_S:.0f} s: {[each.assignment() for each in members]}")
        for member in members:
            member.poll(0.05)


def check(answers: list[TopicPartition]) -> None:
    refused = [answer for answer in answers if answer.error is not None]
    if refused:
        raise KafkaFailed(f"the broker refused {refused}")
