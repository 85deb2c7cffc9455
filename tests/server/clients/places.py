"""Brokers of either kind, muster and Kafka, for tests that do the same with both; and what can be seen of them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.raw import Raw

WAIT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
UNSTABLE_OFFSET_COMMIT = 88
LATEST = -1
ISOLATION_LEVELS = (0, 1)


class Place(Protocol):
    """A broker of either kind."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, name: str, *, partitions: int) -> Any: ...


class Kafka(KafkaBroker):
    @property
    def bootstrap_servers(self) -> str:
        return self.bootstrap

    def create_topic(self, name: str, *, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


@contextlib.contextmanager
def running(kind: str, data: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Place]:
    """`on-kafka` or `on-muster`."""
    if kind == "on-kafka":
        with Kafka(require_kafka(), settings) as kafka:
            yield kafka
    else:
        with Broker(data=data, settings=dict(settings)) as broker:
            yield broker


def records(place: Place, topic: str, partitions: int) -> list[tuple[str, str]]:
    """Keys and values of everything in the topic that is committed."""
    consumer = Consumer({
        "bootstrap.servers": place.bootstrap_servers, "group.id": "nobody", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "error",
        "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert error is None or error.code() == KafkaError._PARTITION_EOF, error
        if error is None:
            found.append(((message.key() or b"").decode(), message.value().decode()))
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def values(place: Place, topic: str, partitions: int) -> list[str]:
    """Everything in the topic that is committed, sorted."""
    return sorted(value for _, value in records(place, topic, partitions))


def is_resolved(place: Place, topic: str, partitions: int) -> bool:
    """Whether no transaction is open in the topic: readers of either kind may read as far."""
    asked = [
        {"partitionIndex": partition, "currentLeaderEpoch": -1, "timestamp": LATEST} for partition in range(partitions)
    ]
    about = {"replicaId": -1, "topics": [{"name": topic, "partitions": asked}]}
    with _raw(place) as raw:
        ends = [raw.ask(ApiKey.LIST_OFFSETS, 7, isolationLevel=level, **about)["topics"] for level in ISOLATION_LEVELS]
    assert {one["errorCode"] for end in ends for one in end[0]["partitions"]} == {0}, ends
    return bool(ends[0] == ends[1])


def committed(place: Place, group: str, topic: str, require_stable: bool = False) -> tuple[str, int] | int:
    """The offset of the first partition, or the error."""
    wanted = [{"name": topic, "partitionIndexes": [0]}]
    asked = [{"groupId": group, "memberId": None, "memberEpoch": -1, "topics": wanted}]
    with _raw(place) as raw:
        (answer,) = raw.ask(ApiKey.OFFSET_FETCH, 9, groups=asked, requireStable=require_stable)["groups"]
    told = answer["topics"][0]["partitions"][0]
    return answer["errorCode"] or told["errorCode"] or ("offset", told["committedOffset"])


def members_of(place: Place, group: str) -> list[str]:
    """Ids of those that have a share of a group's partitions."""
    with _raw(place) as raw:
        (told,) = raw.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])["groups"]
    return [one["memberId"] for one in told["members"]] if told["groupState"] == "Stable" else []


def remove_members(place: Place, group: str) -> list[str]:
    """As an operator does; returns their ids."""
    members = members_of(place, group)
    leaving = [{"memberId": member, "groupInstanceId": None} for member in members]
    with _raw(place) as raw:
        answer = raw.ask(ApiKey.LEAVE_GROUP, 3, groupId=group, members=leaving)
    assert {one["errorCode"] for one in answer["members"]} == {0}, answer
    return members


def _raw(place: Place) -> Raw:
    host, port = place.bootstrap_servers.split(":")
    return Raw((host, int(port)))


def until_or_later(is_so: Callable[[], bool], within_s: float) -> None:
    """Wait until it is so, or for so long."""
    with contextlib.suppress(AssertionError):
        until(is_so, within_s)


def until(is_so: Callable[[], bool], within_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
