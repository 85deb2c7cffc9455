"""A partition of the offsets topic moves from one real broker to another: what clients of either hear meanwhile.

The result is written down in docs/protocol.md; `tests/server/real/test_moves.py` has the same from muster, which
unloads and loads a partition in place.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from muster.codec.partitioning import partition_for
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Link, Side

pytestmark = [pytest.mark.kafka, pytest.mark.long]

OFFSETS_TOPIC, PARTITIONS = "__consumer_offsets", 2
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "2",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
}
WAIT_S = 60.0
NONE, LOADING, NOT_AVAILABLE, NOT_COORDINATOR, REBALANCING = 0, 14, 15, 16, 27
GROUP = "moving"
SIMPLE = next(name for name in map(str, range(100)) if partition_for(name, 2) == partition_for(GROUP, 2))
TOPIC_PARTITIONS, COMMITS_OF_EACH = 200, 300
"""So many that loading takes long enough to be seen."""


class SecondBroker(KafkaBroker):
    """A broker that belongs to the controller of another one."""

    def _write_config(self) -> Path:
        config = super()._write_config()
        lines = [line for line in config.read_text().splitlines() if not line.startswith("listeners=")]
        config.write_text("\n".join([*lines, f"listeners=PLAINTEXT://{self.bootstrap}", ""]))
        return config


@contextmanager
def two_brokers() -> Iterator[dict[int, KafkaBroker]]:
    """By their numbers; each partition of the offsets topic will be on both."""
    kafka = require_kafka()
    with KafkaBroker(kafka, SETTINGS) as first:
        config = (first.data_dir / "server.properties").read_text().splitlines()
        voters = next(line.partition("=")[2] for line in config if line.startswith("controller.quorum.voters="))
        more = {"node.id": "2", "process.roles": "broker", "controller.quorum.voters": voters}
        with SecondBroker(kafka, SETTINGS | more) as second:
            yield {1: first, 2: second}


def sides_of(brokers: dict[int, KafkaBroker]) -> dict[int, Side]:
    judge = Messages(require_kafka())
    return {
        node: Side(f"broker {node}", ("127.0.0.1", int(broker.bootstrap.rsplit(":", 1)[1])), judge, {})
        for node, broker in brokers.items()
    }


@pytest.fixture
def brokers() -> Iterator[dict[int, KafkaBroker]]:
    with two_brokers() as both:
        yield both


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass(slots=True)
class Watch:
    """Asks one broker the same over and over, and remembers the errors in the order in which they came."""

    side: Side
    ask: Callable[[Link], int]
    errors: list[int] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> "Watch":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        with Link(self.side) as link:
            while not self._is_over.is_set():
                self.errors.append(self.ask(link))
                time.sleep(0.001)

    def stop(self) -> list[int]:
        """Every error once for each time that it began."""
        assert self._thread is not None
        self._is_over.set()
        self._thread.join()
        return [error for error, _ in groupby(self.errors)]


def told(link: Link, api: str, version: int, message: dict[str, Any]) -> dict[str, Any]:
    link.post(api, version, message)
    frame = link.read()
    assert isinstance(frame, bytes)
    return link.decoded(api, version, frame)


def commit(link: Link) -> int:
    answer = told(link, "OffsetCommit", 8, bodies.commit(SIMPLE, {("orders", 0): 5}))
    error: int = answer["Topics"][0]["Partitions"][0]["ErrorCode"]
    return error


def fetch(link: Link) -> int:
    error: int = told(link, "OffsetFetch", 8, bodies.fetch({GROUP: {"orders": [0]}}))["Groups"][0]["ErrorCode"]
    return error


def leader_of(link: Link, partition: int) -> int:
    (topic,) = told(link, "Metadata", 12, {"Topics": [{"Name": OFFSETS_TOPIC}]})["Topics"]
    return next((each["LeaderId"] for each in topic["Partitions"] if each["PartitionIndex"] == partition), -1)


def move(link: Link, partition: int, to: int, from_: int) -> None:
    """Make another replica the preferred one, and let it be elected."""
    place = {"PartitionIndex": partition, "Replicas": [to, from_]}
    asked = {"TimeoutMs": 20_000, "Topics": [{"Name": OFFSETS_TOPIC, "Partitions": [place]}]}
    assert told(link, "AlterPartitionReassignments", 0, asked)["ErrorCode"] == NONE
    elect = {"ElectionType": 0, "TopicPartitions": [{"Topic": OFFSETS_TOPIC, "Partitions": [partition]}]}

    def is_elected() -> bool:
        told(link, "ElectLeaders", 2, elect | {"TimeoutMs": 20_000})
        return leader_of(link, partition) == to

    until(is_elected)


def test_what_clients_hear_while_a_partition_moves(brokers: dict[int, KafkaBroker]) -> None:
    sides = sides_of(brokers)
    link = Link(sides[1])
    until(lambda: len(told(link, "Metadata", 12, {"Topics": None})["Brokers"]) == 2)
    topic = {"Name": "orders", "NumPartitions": TOPIC_PARTITIONS, "ReplicationFactor": 1}
    assert told(link, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 20_000})["Topics"][0]["ErrorCode"] == NONE
    until(lambda: told(link, "FindCoordinator", 4, bodies.find(GROUP))["Coordinators"][0]["ErrorCode"] == NONE)
    partition = partition_for(GROUP, PARTITIONS)
    until(lambda: leader_of(link, partition) in sides)
    old = leader_of(link, partition)
    new = 3 - old
    here = Link(sides[old])
    until(lambda: fetch(here) == NONE)
    until(lambda: commit(here) == NONE)
    many = bodies.commit(GROUP, {("orders", number): number for number in range(TOPIC_PARTITIONS)})
    for _ in range(COMMITS_OF_EACH):
        assert told(here, "OffsetCommit", 8, many)["Topics"][0]["Partitions"][0]["ErrorCode"] == NONE

    # A group of two, of whom the second waits for the first when the partition moves.
    member = told(here, "JoinGroup", 9, bodies.join(GROUP))["MemberId"]
    told(here, "JoinGroup", 9, bodies.join(GROUP, member))
    told(here, "SyncGroup", 5, bodies.sync(GROUP, 1, member, {member: b"mine"}))
    parked = Link(sides[old])
    second = told(parked, "JoinGroup", 9, bodies.join(GROUP))["MemberId"]
    parked.post("JoinGroup", 9, bodies.join(GROUP, second))
    time.sleep(0.3)

    def beat(link: Link) -> int:
        error: int = told(link, "Heartbeat", 4, bodies.heartbeat(GROUP, 1, member))["ErrorCode"]
        return error

    watches = {
        (where, what.__name__): Watch(sides[node], what).start()
        for where, node in (("old", old), ("new", new))
        for what in (commit, fetch, beat)
    }
    time.sleep(0.3)
    move(link, partition, to=new, from_=old)
    frame = parked.read()
    assert isinstance(frame, bytes)
    until(lambda: watches["new", "fetch"].errors[-1] == NONE and watches["new", "commit"].errors[-1] == NONE)
    until(lambda: watches["old", "fetch"].errors[-1] == NOT_COORDINATOR)
    time.sleep(0.5)
    heard = {name: watch.stop() for name, watch in watches.items()}
    print(heard)

    assert parked.decoded("JoinGroup", 9, frame)["ErrorCode"] == NOT_COORDINATOR
    assert heard["old", "commit"] == [NONE, NOT_COORDINATOR]
    assert heard["old", "fetch"] == [NONE, NOT_COORDINATOR]
    assert heard["old", "beat"] == [REBALANCING, NOT_COORDINATOR]
    assert heard["new", "fetch"] == [NOT_COORDINATOR, LOADING, NONE]
    assert heard["new", "commit"] == [NOT_COORDINATOR, LOADING, NONE]
    assert heard["new", "beat"] == [NOT_COORDINATOR, NONE], "the last generation that was written is Stable again"
    there = Link(sides[new])
    (found,) = told(there, "OffsetFetch", 8, bodies.fetch({GROUP: {"orders": [199]}}))["Groups"]
    assert found["Topics"][0]["Partitions"][0]["CommittedOffset"] == 199
    (described,) = told(there, "DescribeGroups", 6, bodies.describe(GROUP))["Groups"]
    assert (described["GroupState"], [each["MemberId"] for each in described["Members"]]) == ("Stable", [member])
    for side in sides.values():
        side.close()
