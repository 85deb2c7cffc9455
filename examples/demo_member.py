"""One consumer of the demo, as a process of its own: `demo_member.py CLIENT SERVERS GROUP TOPIC [INSTANCE]`.

CLIENT is confluent-kafka, aiokafka or kafka-python, each used in its own way, or `transactions`: confluent-kafka again,
which writes an invoice for every order in one transaction with the offset that it commits.

Signals are what may happen to a consumer. SIGUSR1: hold still, stay in the group and commit nothing more. SIGUSR2: meet
a record that cannot be processed, and commit the same offsets again and again. SIGHUP: begin anew from the first
record, and be slow at it. SIGTERM: leave.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

EVERY_S = 0.4
SLOWLY_S = 4.0
SLOWLY_RECORDS = 5
SESSION_MS, STATIC_SESSION_MS, HEARTBEAT_MS = 6_000, 45_000, 1_000
INVOICES = "invoices"

Place = tuple[str, int]


class Orders:
    """What the demo tells its members, and what is to be committed then."""

    def __init__(self) -> None:
        self._parent, self.running, self.holding = os.getppid(), True, False
        self.is_stuck = self.starts_anew = self.is_slow = False
        self._committed: dict[Place, int] = {}
        for number, then in (
            (signal.SIGUSR1, self._hold),
            (signal.SIGUSR2, self._get_stuck),
            (signal.SIGHUP, self._start_anew),
            (signal.SIGTERM, self._leave),
        ):
            signal.signal(number, then)

    def _hold(self, *_: object) -> None:
        self.holding = True

    def _get_stuck(self, *_: object) -> None:
        self.is_stuck = True

    def _start_anew(self, *_: object) -> None:
        self.starts_anew = self.is_slow = True

    def _leave(self, *_: object) -> None:
        self.running = False

    @property
    def every_s(self) -> float:
        return SLOWLY_S if self.is_slow else EVERY_S

    def go_on(self) -> bool:
        """Whether to stay in the group; nobody stays when the demo itself is gone."""
        return self.running and os.getppid() == self._parent

    def to_commit(self, positions: Mapping[Place, int]) -> dict[Place, int]:
        """Offsets to commit for the partitions at hand, given how far they were read."""
        if self.holding:
            return {}
        if self.is_slow:
            moved = {
                place: min(self._committed.get(place, 0) + SLOWLY_RECORDS, positions[place]) for place in positions
            }
        elif self.is_stuck:
            moved = {place: self._committed.get(place, positions[place]) for place in positions}
        else:
            moved = dict(positions)
        if self.starts_anew:
            self.starts_anew, moved = False, dict.fromkeys(positions, 0)
        self._committed |= moved
        return moved


def confluent_settings(servers: str, group: str, instance: str | None) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": "confluent-kafka",
        "partition.assignment.strategy": "range",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": STATIC_SESSION_MS if instance else SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    return settings | ({"group.instance.id": instance} if instance else {})


def confluent_kafka(servers: str, group: str, topic: str, instance: str | None, orders: Orders) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(confluent_settings(servers, group, instance))
    consumer.subscribe([topic])
    while orders.go_on():
        consumer.consume(5000, orders.every_s)
        positions = {(each.topic, each.partition): each.offset for each in consumer.position(consumer.assignment())}
        moved = orders.to_commit({place: offset for place, offset in positions.items() if offset >= 0})
        try:
            if moved:
                consumer.commit(offsets=[TopicPartition(*place, moved[place]) for place in moved], asynchronous=False)
        except KafkaException as refused:  # a rebalance is under way: the next round is of the next generation
            print("not committed:", refused, flush=True)
    consumer.close()


async def aiokafka(servers: str, group: str, topic: str, instance: str | None, orders: Orders) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=instance,
        client_id="aiokafka",
        partition_assignment_strategy=(RangePartitionAssignor,),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=STATIC_SESSION_MS if instance else SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    await consumer.start()
    while orders.go_on():
        await asyncio.sleep(orders.every_s)
        try:
            await consumer.getmany(timeout_ms=50)
            mine = {(each.topic, each.partition): each for each in consumer.assignment()}
            moved = orders.to_commit({place: await consumer.position(each) for place, each in mine.items()})
            if moved:
                await consumer.commit({mine[place]: offset for place, offset in moved.items()})
        except KafkaError as refused:
            print("not committed:", refused, flush=True)
    await consumer.stop()


def kafka_python(servers: str, group: str, topic: str, instance: str | None, orders: Orders) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=instance,
        client_id="kafka-python",
        partition_assignment_strategy=[RangePartitionAssignor],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=STATIC_SESSION_MS if instance else SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while orders.go_on():
        consumer.poll(timeout_ms=int(orders.every_s * 1000))
        try:
            mine = {(each.topic, each.partition): each for each in consumer.assignment()}
            positions = {place: consumer.position(each, timeout_ms=5000) for place, each in mine.items()}
            moved = orders.to_commit({place: offset for place, offset in positions.items() if offset is not None})
            if moved:
                consumer.commit({mine[place]: OffsetAndMetadata(offset, "", -1) for place, offset in moved.items()})
        except KafkaError as refused:
            print("not committed:", refused, flush=True)
    consumer.close()


def transactions(servers: str, group: str, topic: str, instance: str | None, orders: Orders) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    producer = Producer({"bootstrap.servers": servers, "transactional.id": group, "client.id": "ledger"})
    producer.init_transactions()
    settings = confluent_settings(servers, group, instance) | {"isolation.level": "read_committed"}
    consumer = Consumer(settings | {"client.id": "ledger"})
    consumer.subscribe([topic])
    while orders.go_on():
        found = [one for one in consumer.consume(500, orders.every_s) if one.error() is None]
        if not found or orders.holding:
            continue
        producer.begin_transaction()
        for one in found:
            producer.produce(INVOICES, key=f"{one.topic()}-{one.partition()}-{one.offset()}", value=b"paid")
        try:
            mine = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(mine, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException as refused:
            print("aborted:", refused, flush=True)
            producer.abort_transaction()
            for each in consumer.committed(consumer.assignment(), timeout=5):
                consumer.seek(each)
    consumer.close()


def main(client: str, servers: str, group: str, topic: str, instance: str | None = None) -> None:
    asked: tuple[Any, ...] = (servers, group, topic, instance, Orders())
    match client:
        case "confluent-kafka":
            confluent_kafka(*asked)
        case "aiokafka":
            asyncio.run(aiokafka(*asked))
        case "kafka-python":
            kafka_python(*asked)
        case "transactions":
            transactions(*asked)
        case _:
            sys.exit(f"{client} is none of confluent-kafka, aiokafka, kafka-python, transactions")


if __name__ == "__main__":
    main(*sys.argv[1:])
