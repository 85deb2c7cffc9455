"""aiokafka obeys the orders of the client matrix. Its loop has a thread, so that heartbeats do not wait for orders."""

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
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


class Seat(ConsumerRebalanceListener):
    """Whether a member has had its partitions since it joined.

    aiokafka 0.14.0 commits offsets of a transaction without saying which generation it is of, and asks for offsets
    without `require_stable`: after a rebalance it reads on from before its own open transaction. Whoever wants exactly
    once ends there, and begins anew.
    """

    def __init__(self) -> None:
        self._joins = 0

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._joins += 1

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    def check(self) -> None:
        if self._joins > 1:
            raise RuntimeError("the group was rebalanced")


class AioKafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: AIOKafkaAdminClient | None = None
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._members: dict[str, AIOKafkaConsumer] = {}
        self._seen: dict[str, list[str]] = {}
        self._groups: dict[str, str] = {}
        self._seats: dict[str, Seat] = {}
        self._transactional: dict[str, AIOKafkaProducer] = {}

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
        max_poll_ms: int | None = None, isolation: str | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {"partition_assignment_strategy": (ASSIGNORS[assignor],)} if assignor else {}
        given |= {"max_poll_interval_ms": max_poll_ms} if max_poll_ms else {}
        given |= {"isolation_level": isolation} if isolation else {}
        self._seen[member], self._groups[member] = [], group
        self._seats[member] = Seat()
        self._members[member] = AIOKafkaConsumer(
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
        self._members[member].subscribe([topic], listener=self._seats[member])
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

    @in_loop
    async def transactional(self, producer: str, id: str, timeout_ms: int) -> None:
        self._transactional[producer] = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        await self._transactional[producer].start()

    @in_loop
    async def begin(self, producer: str) -> None:
        await self._transactional[producer].begin_transaction()

    @in_loop
    async def send(self, producer: str, topic: str, values: list[str], partitions: int) -> None:
        await self._send(producer, topic, [(number % partitions, value) for number, value in enumerate(values)])

    async def _send(self, producer: str, topic: str, records: list[tuple[int, str]]) -> None:
        sending = self._transactional[producer]
        sent = [await sending.send(topic, value.encode(), partition=partition) for partition, value in records]
        await asyncio.gather(*sent)

    @in_loop
    async def send_offset(self, producer: str, member: str, topic: str, offset: int) -> None:
        await self._send_offsets(producer, member, {TopicPartition(topic, 0): offset})

    async def _send_offsets(self, producer: str, member: str, offsets: dict[TopicPartition, int]) -> None:
        await self._transactional[producer].send_offsets_to_transaction(offsets, self._groups[member])

    @in_loop
    async def commit_transaction(self, producer: str) -> None:
        if producer in self._seats:
            self._seats[producer].check()
        await self._transactional[producer].commit_transaction()

    @in_loop
    async def abort_transaction(self, producer: str) -> None:
        await self._transactional[producer].abort_transaction()

    def worker(self, member: str, group: str, topic: str, session_ms: int, id: str) -> None:
        self.transactional(member, id, timeout_ms=60_000)
        self.join(member, group, topic, session_ms, None, None, isolation="read_committed")

    @in_loop
    async def process(self, member: str, output: str) -> int:
        found = await self._members[member].getmany(timeout_ms=200, max_records=10)
        self._seats[member].check()
        messages = [each for some in found.values() for each in some]
        if messages:
            await self._transactional[member].begin_transaction()
            await self._send(member, output, [(each.partition, f"done {each.value.decode()}") for each in messages])
            await self._send_offsets(member, member, {where: some[-1].offset + 1 for where, some in found.items()})
        return len(messages)


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    obey(AioKafka(sys.argv[1]))
