"""aiokafka and kafka-python use muster as their broker for groups."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonTopicPartition

from muster.broker import Broker

WAIT_S = 30.0


async def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def aio(broker: Broker, group: str, **more: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
        **more,
    )


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=lambda each: each.name,
)
def test_aiokafka_rebalances_with_every_assignor(broker: Broker, assignor: Any) -> None:
    async def story() -> None:
        first = aio(broker, f"aio-{assignor.name}", partition_assignment_strategy=(assignor,))
        second = aio(broker, f"aio-{assignor.name}", partition_assignment_strategy=(assignor,))
        await first.start()
        await until(lambda: len(first.assignment()) == 6)
        await second.start()
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 3)
        assert not first.assignment() & second.assignment()
        await second.stop()
        await until(lambda: len(first.assignment()) == 6)
        await first.stop()

    asyncio.run(story())


def test_aiokafka_commits_and_reads_back(broker: Broker) -> None:
    async def story() -> None:
        where = TopicPartition("orders", 3)
        for offset in (0, 11):
            consumer = aio(broker, "aio-commits")
            await consumer.start()
            await until(lambda joined=consumer: len(joined.assignment()) == 6)  # type: ignore[misc]
            assert await consumer.committed(where) == (offset or None)
            await consumer.commit({where: (11, "from aiokafka")})
            await consumer.stop()

    asyncio.run(story())


def test_kafka_python_joins_commits_and_restarts_as_a_static_member(broker: Broker, server_log: Any) -> None:
    where = PythonTopicPartition("orders", 4)
    broker.seed_records("orders", b"there", partition=0)

    def consumer() -> KafkaConsumer:
        made = KafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="kafka-python",
            group_instance_id="seat-1",
            enable_auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=6_000,
            auto_offset_reset="earliest",
        )
        # One poll, which the record ends: polls that end in the midst of a join can leave it without partitions.
        assert made.poll(timeout_ms=int(WAIT_S * 1000))
        assert len(made.assignment()) == 6
        return made

    first = consumer()
    first.commit({where: OffsetAndMetadata(8, "from kafka-python", -1)})
    first.close()
    rebalances = server_log.getvalue().count("group kafka-python: rebalanced")
    second = consumer()
    assert second.committed(where) == 8
    assert server_log.getvalue().count("group kafka-python: rebalanced") == rebalances
    second.close()
