"""One consumer of the demo, as a process of its own: `demo_member.py CLIENT SERVERS GROUP TOPIC [INSTANCE]`.

CLIENT is confluent-kafka, aiokafka or kafka-python, each used in its own way. Nothing is produced in the demo, so a
member moves on from what the group has committed by itself, a few offsets at a time. SIGUSR1 makes it hold still (it
stays in the group and commits nothing), SIGTERM makes it leave.
"""

import asyncio
import os
import random
import signal
import sys
from typing import Any

EVERY_S = 0.3
SESSION_MS, STATIC_SESSION_MS, HEARTBEAT_MS = 6_000, 45_000, 1_000


class Orders:
    """What the demo tells its members."""

    def __init__(self) -> None:
        self._parent, self.running, self.holding = os.getppid(), True, False
        signal.signal(signal.SIGUSR1, self._hold)
        signal.signal(signal.SIGTERM, self._leave)

    def _hold(self, *_: object) -> None:
        self.holding = True

    def _leave(self, *_: object) -> None:
        self.running = False

    def go_on(self) -> bool:
        """Whether to stay in the group; nobody stays when the demo itself is gone."""
        return self.running and os.getppid() == self._parent


def further(committed: int | None) -> int:
    return max(committed or 0, 0) + random.randint(1, 9)


def confluent_kafka(servers: str, group: str, topic: str, instance: str | None, orders: Orders) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "client.id": "confluent-kafka",
        "partition.assignment.strategy": "range",
        "enable.auto.commit": False,
        "session.timeout.ms": STATIC_SESSION_MS if instance else SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    consumer = Consumer(settings | ({"group.instance.id": instance} if instance else {}))
    consumer.subscribe([topic])
    while orders.go_on():
        consumer.poll(EVERY_S)
        mine = consumer.assignment()
        if not mine or orders.holding:
            continue
        try:
            committed = consumer.committed(mine, timeout=5)
            moved = [TopicPartition(each.topic, each.partition, further(each.offset)) for each in committed]
            consumer.commit(offsets=moved, asynchronous=False)
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
        enable_auto_commit=False,
        session_timeout_ms=STATIC_SESSION_MS if instance else SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    await consumer.start()
    while orders.go_on():
        await asyncio.sleep(EVERY_S)
        if orders.holding:
            continue
        try:
            moved = {each: further(await consumer.committed(each)) for each in consumer.assignment()}
            if moved:
                await consumer.commit(moved)
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
        enable_auto_commit=False,
        session_timeout_ms=STATIC_SESSION_MS if instance else SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while orders.go_on():
        consumer.poll(timeout_ms=int(EVERY_S * 1000))
        if orders.holding:
            continue
        try:
            mine = {each: further(consumer.committed(each)) for each in consumer.assignment()}
            if mine:
                consumer.commit({each: OffsetAndMetadata(offset, "", -1) for each, offset in mine.items()})
        except KafkaError as refused:
            print("not committed:", refused, flush=True)
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
        case _:
            sys.exit(f"{client} is none of confluent-kafka, aiokafka, kafka-python")


if __name__ == "__main__":
    main(*sys.argv[1:])
