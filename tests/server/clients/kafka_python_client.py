"""kafka-python obeys the orders of the client matrix."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import NodeNotReadyError
from kafka.structs import OffsetAndMetadata

from tests.server.clients.python_program import obey

WAIT_S = 30
STUCK_S = 2
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def _when_connected(ask: Callable[[], Any]) -> Any:
    """An answer to the admin client, which gives up at once while its connection waits for the next attempt."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except NodeNotReadyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: KafkaAdminClient | None = None
        self._producers: dict[str, KafkaProducer] = {}
        self._members: dict[str, KafkaConsumer] = {}
        self._seen: dict[str, list[str]] = {}
        self._idle_since: dict[str, float] = {}
        self._transactional: dict[str, KafkaProducer] = {}

    @property
    def admin(self) -> KafkaAdminClient:
        self._admin = self._admin or KafkaAdminClient(bootstrap_servers=self._bootstrap)
        return self._admin

    def produce(self, topic: str, values: list[str], codec: str) -> None:
        if codec not in self._producers:
            self._producers[codec] = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
            )
        sent = [self._producers[codec].send(topic, value.encode(), partition=0) for value in values]
        for each in sent:
            each.get(timeout=WAIT_S)

    def join(
        self, member: str, group: str, topic: str, session_ms: int, assignor: str | None, instance: str | None,
        max_poll_ms: int | None = None, isolation: str | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {"partition_assignment_strategy": (ASSIGNORS[assignor],)} if assignor else {}
        given |= {"max_poll_interval_ms": max_poll_ms} if max_poll_ms else {}
        given |= {"isolation_level": isolation} if isolation else {}
        self._seen[member] = []
        self._members[member] = KafkaConsumer(
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

    def poll(self, members: list[str]) -> dict[str, Any]:
        with ThreadPoolExecutor(len(members)) as threads:  # so that nobody's join waits for a turn of another's
            list(threads.map(self._poll, members))
        return {
            member: {
                "assigned": [each.partition for each in self._members[member].assignment()],
                "values": self._seen[member],
            }
            for member in members
        }

    def _poll(self, member: str) -> None:
        for messages in self._members[member].poll(timeout_ms=500).values():
            self._seen[member] += [message.value.decode() for message in messages]
        self._help(member)

    def _help(self, member: str) -> None:
        """Have it join again: a poll that ends in the midst of a join can leave it without partitions for ever.

        That is so with version 3.0.12 and Kafka 4.3.0 too.
        """
        now = time.monotonic()
        if self._members[member].assignment():
            self._idle_since.pop(member, None)
        elif now - self._idle_since.setdefault(member, now) > STUCK_S:
            self._members[member]._coordinator.request_rejoin()
            del self._idle_since[member]

    def commit(self, member: str, topic: str, offset: int, metadata: str) -> None:
        self._members[member].commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, metadata, -1)})

    def seek(self, member: str, topic: str) -> None:
        self._members[member].seek_to_beginning(TopicPartition(topic, 0))

    def leave(self, member: str) -> None:
        self._members.pop(member).close()
        self._idle_since.pop(member, None)

    def committed(self, group: str) -> list[Any]:
        found = self.admin.list_group_offsets({group: None})[group]
        return [[where.partition, each.offset, each.metadata] for where, each in found.items()]

    def groups(self) -> list[str]:
        return [each["group_id"] for each in _when_connected(self.admin.list_groups)]

    def describe(self, group: str) -> list[Any]:
        found = _when_connected(lambda: self.admin.describe_groups([group]))[group]
        return [found["group_state"], sorted(each["client_id"] for each in found["members"])]

    def alter_offsets(self, group: str, topic: str, offset: int) -> None:
        wanted = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        (error,) = self.admin.alter_group_offsets(group, wanted).values()
        assert error.errno == 0, error

    def delete_offsets(self, group: str, topic: str) -> None:
        (error,) = self.admin.delete_group_offsets(group, [TopicPartition(topic, 0)]).values()
        assert error.errno == 0, error

    def delete_group(self, group: str) -> None:
        done = self.admin.delete_groups([group])
        assert done == {group: "OK"}, done

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def transactional(self, producer: str, id: str, timeout_ms: int) -> None:
        self._transactional[producer] = KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        self._transactional[producer].init_transactions()

    def begin(self, producer: str) -> None:
        self._transactional[producer].begin_transaction()

    def send(self, producer: str, topic: str, values: list[str], partitions: int) -> None:
        self._send(producer, topic, [(number % partitions, value) for number, value in enumerate(values)])

    def _send(self, producer: str, topic: str, records: list[tuple[int, str]]) -> None:
        sending = self._transactional[producer]
        for each in [sending.send(topic, value.encode(), partition=partition) for partition, value in records]:
            each.get(timeout=WAIT_S)

    def send_offset(self, producer: str, member: str, topic: str, offset: int) -> None:
        self._send_offsets(producer, member, {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})

    def _send_offsets(self, producer: str, member: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        group = self._members[member].group_metadata()
        self._transactional[producer].send_offsets_to_transaction(offsets, group)

    def commit_transaction(self, producer: str) -> None:
        self._transactional[producer].commit_transaction()

    def abort_transaction(self, producer: str) -> None:
        self._transactional[producer].abort_transaction()

    def worker(self, member: str, group: str, topic: str, session_ms: int, id: str) -> None:
        self.transactional(member, id, timeout_ms=60_000)
        self.join(member, group, topic, session_ms, None, None, isolation="read_committed")

    def process(self, member: str, output: str) -> int:
        found = self._members[member].poll(timeout_ms=1_000, max_records=10)
        self._help(member)
        messages = [each for some in found.values() for each in some]
        if messages:
            self.begin(member)
            self._send(member, output, [(each.partition, f"done {each.value.decode()}") for each in messages])
            ends = {where: OffsetAndMetadata(some[-1].offset + 1, "", -1) for where, some in found.items()}
            self._send_offsets(member, member, ends)
        return len(messages)


if __name__ == "__main__":
    obey(KafkaPython(sys.argv[1]))
