"""confluent-kafka (librdkafka) obeys the orders of the client matrix."""

import sys
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.server.clients.python_program import obey

WAIT_S = 30


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._bootstrap)
        self._producers: dict[str, Producer] = {}
        self._members: dict[str, Consumer] = {}
        self._seen: dict[str, list[str]] = {}

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
        max_poll_ms: int | None = None,
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


if __name__ == "__main__":
    obey(Confluent(sys.argv[1]))
