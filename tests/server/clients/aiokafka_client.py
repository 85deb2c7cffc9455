"""aiokafka obeys the orders of the client matrix. Its loop has a thread, so that heartbeats do not wait for orders."""

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.server.clients.python_program import obey

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
LOOP = asyncio.new_event_loop()


def in_loop(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*arguments: Any, **more: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(method(*arguments, **more), LOOP).result()

    return called


class AioKafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: AIOKafkaAdminClient | None = None
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._members: dict[str, AIOKafkaConsumer] = {}
        self._seen: dict[str, list[str]] = {}

    async def _started_admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await self._admin.start()
        return self._admin

    @in_loop
    async def produce(self, topic: str, values: list[str], codec: str) -> None:
        if codec not in self._producers:
            self._producers[codec] = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
            )
            await self._producers[codec].start()
        sent = [await self._producers[codec].send(topic, value.encode(), partition=0) for value in values]
        await asyncio.gather(*sent)

    @in_loop
    async def join(
        self, member: str, group: str, topic: str, session_ms: int, assignor: str | None, instance: str | None,
        max_poll_ms: int | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {"partition_assignment_strategy": (ASSIGNORS[assignor],)} if assignor else {}
        given |= {"max_poll_interval_ms": max_poll_ms} if max_poll_ms else {}
        self._seen[member] = []
        self._members[member] = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            client_id=member,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=200,
            **given,
        )
        await self._members[member].start()

    @in_loop
    async def poll(self, members: list[str]) -> dict[str, Any]:
        for member in members:
            for messages in (await self._members[member].getmany(timeout_ms=50)).values():
                self._seen[member] += [message.value.decode() for message in messages]
        return {
            member: {
                "assigned": [each.partition for each in self._members[member].assignment()],
                "values": self._seen[member],
            }
            for member in members
        }

    @in_loop
    async def commit(self, member: str, topic: str, offset: int, metadata: str) -> None:
        await self._members[member].commit({TopicPartition(topic, 0): (offset, metadata)})

    @in_loop
    async def seek(self, member: str, topic: str) -> None:
        await self._members[member].seek_to_beginning(TopicPartition(topic, 0))

    @in_loop
    async def leave(self, member: str) -> None:
        await self._members.pop(member).stop()

    @in_loop
    async def committed(self, group: str) -> list[Any]:
        found = await (await self._started_admin()).list_consumer_group_offsets(group)
        return [[where.partition, each.offset, each.metadata] for where, each in found.items()]

    @in_loop
    async def groups(self) -> list[str]:
        return [name for name, _ in await (await self._started_admin()).list_consumer_groups()]

    @in_loop
    async def describe(self, group: str) -> list[Any]:
        (answer,) = await (await self._started_admin()).describe_consumer_groups([group])
        (_, _, state, _, _, members, *_) = answer.groups[0]
        return [state, sorted(client_id for _, client_id, *_ in members)]

    @in_loop
    async def delete_topic(self, topic: str) -> None:
        answer = await (await self._started_admin()).delete_topics([topic])
        assert list(answer.topic_error_codes) == [(topic, 0)], answer


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    obey(AioKafka(sys.argv[1]))
