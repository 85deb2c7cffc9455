"""confluent-kafka (librdkafka) obeys the orders of the client matrix."""

import sys
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.server.clients.python_program import obey

WAIT_S = 30


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200}
        self._admin = AdminClient(dict(self._bootstrap))
        self._producers: dict[str, Producer] = {}
        self._members: dict[str, Consumer] = {}
        self._seen: dict[str, list[str]] = {}
        self._transactional: dict[str, Producer] = {}

    def produce(self, topic: str, values: list[str], codec: str) -> None:
        if codec not in self._producers:
            given = {"enable.idempotence": True, "compression.type": codec, "linger.ms": 20}
            self._producers[codec] = Producer(self._bootstrap | given)
        errors: list[Any] = []
        for value in values:
            self._producers[codec].produce(topic, value, partition=0, callback=lambda error, _: errors.append(error))
        self._producers[codec].flush(WAIT_S)
        assert errors == [None] * len(values), errors

    def join(
        self, member: str, group: str, topic: str, session_ms: int, assignor: str | None, instance: str | None,
        max_poll_ms: int | None = None, isolation: str | None = None,
    ) -> None:  # fmt: skip
        given: dict[str, Any] = {
            "group.id": group,
            "client.id": member,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 200,
        }
        given |= {"partition.assignment.strategy": assignor} if assignor else {}
        given |= {"group.instance.id": instance} if instance else {}
        given |= {"max.poll.interval.ms": max_poll_ms} if max_poll_ms else {}
        given |= {"isolation.level": isolation} if isolation else {}
        self._members[member], self._seen[member] = Consumer(self._bootstrap | given), []
        self._members[member].subscribe([topic])

    def poll(self, members: list[str]) -> dict[str, Any]:
        for member in members:
            for message in self._members[member].consume(100, timeout=0.05):
                if message.error() is None:
                    self._seen[member].append(message.value().decode())
        return {
            member: {
                "assigned": [each.partition for each in self._members[member].assignment()],
                "values": self._seen[member],
            }
            for member in members
        }

    def commit(self, member: str, topic: str, offset: int, metadata: str) -> None:
        self._members[member].commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)

    def seek(self, member: str, topic: str) -> None:
        self._members[member].seek(TopicPartition(topic, 0, 0))

    def leave(self, member: str) -> None:
        self._members.pop(member).close()

    def committed(self, group: str) -> list[Any]:
        (asked,) = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return [[each.partition, each.offset, each.metadata] for each in asked.result(WAIT_S).topic_partitions]

    def groups(self) -> list[str]:
        return [each.group_id for each in self._admin.list_consumer_groups().result(WAIT_S).valid]

    def describe(self, group: str) -> list[Any]:
        found = self._admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return [found.state.name.title(), sorted(each.client_id for each in found.members)]

    def alter_offsets(self, group: str, topic: str, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        (done,) = self._admin.alter_consumer_group_offsets([wanted]).values()
        assert done.result(WAIT_S).topic_partitions[0].error is None

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(WAIT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def transactional(self, producer: str, id: str, timeout_ms: int) -> None:
        given = {"transactional.id": id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        self._transactional[producer] = Producer(self._bootstrap | given)
        self._transactional[producer].init_transactions(WAIT_S)

    def begin(self, producer: str) -> None:
        self._transactional[producer].begin_transaction()

    def send(self, producer: str, topic: str, values: list[str], partitions: int) -> None:
        self._send(producer, topic, [(number % partitions, value) for number, value in enumerate(values)])

    def _send(self, producer: str, topic: str, records: list[tuple[int, str]]) -> None:
        errors: list[Any] = []
        for partition, value in records:
            self._transactional[producer].produce(
                topic, value, partition=partition, callback=lambda error, _: errors.append(error)
            )
        self._transactional[producer].flush(WAIT_S)
        assert errors == [None] * len(records), errors

    def send_offset(self, producer: str, member: str, topic: str, offset: int) -> None:
        self._send_offsets(producer, member, [TopicPartition(topic, 0, offset)])

    def _send_offsets(self, producer: str, member: str, offsets: list[TopicPartition]) -> None:
        group = self._members[member].consumer_group_metadata()
        self._transactional[producer].send_offsets_to_transaction(offsets, group, WAIT_S)

    def commit_transaction(self, producer: str) -> None:
        self._transactional[producer].commit_transaction(WAIT_S)

    def abort_transaction(self, producer: str) -> None:
        self._transactional[producer].abort_transaction(WAIT_S)

    def worker(self, member: str, group: str, topic: str, session_ms: int, id: str) -> None:
        self.transactional(member, id, timeout_ms=60_000)
        self.join(member, group, topic, session_ms, None, None, isolation="read_committed")

    def process(self, member: str, output: str) -> int:
        consumer = self._members[member]
        messages = [each for each in consumer.consume(10, timeout=0.2) if each.error() is None]
        if messages:
            self.begin(member)
            self._send(member, output, [(each.partition(), f"done {each.value().decode()}") for each in messages])
            self._send_offsets(member, member, consumer.position(consumer.assignment()))
        return len(messages)


if __name__ == "__main__":
    obey(Confluent(sys.argv[1]))
