"""The same request to a real broker and to muster, and what is left of the difference.

    pair = Pair(broker, judge)
    pair.same("Metadata", 12, {"Topics": [{"Name": "orders"}]})       asserts, and gives the answer they agree on

Requests and answers go as bytes; both answers are read by the judge, who goes by Kafka's own definitions. Ids of topics
are random: a request says `IdOf("orders")`, and answers are compared with such words in their place. A broker needs a
moment to see what its controller has done, so after every request that may change topics we wait until it knows those
that muster knows.
"""

import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.protocol.errors import WireError
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import Happened, Plan, Topic, TopicChange
from tests.kit.kafka import CLUSTER_ID, KafkaBroker
from tests.server.cluster import asking
from tests.server.cluster.asking import answered, memory_cluster
from tests.server.cluster.kafka_messages import NO_UUID, Messages

Message = dict[str, Any]
CLOSED: Message = {"connection": "closed"}
ORDER_COUNTS = {"Fetch", "OffsetForLeaderEpoch"}
CHANGES_TOPICS = {"Metadata", "CreateTopics", "DeleteTopics", "CreatePartitions"}
SHORT_WAIT_MS, LONG_WAIT_MS = 60, 20_000
PATIENCE_S = 10


class IdOf(NamedTuple):
    """The id of a topic, whatever it is."""

    topic: str


class MusterTarget:
    def __init__(self, judge: Messages, cluster: Cluster) -> None:
        self._judge = judge
        self.cluster = cluster

    def ask(self, api: str, version: int, body: bytes) -> tuple[bytes | None, bool]:
        """The body of the answer, and whether it had to wait; None where the connection is closed."""
        frame = self._judge.frame(api, version, 7, body)
        try:
            outcome, waited = answered(
                self._judge.api_key(api), version, frame, len(frame) - len(body), None, self.cluster
            )
        except WireError:
            return None, False
        assert int.from_bytes(outcome[:4], "big") == len(outcome) - 4
        return self._judge.body_of(api, version, outcome[4:]), waited


class KafkaTarget:
    def __init__(self, judge: Messages, bootstrap: str) -> None:
        self._judge = judge
        host, port = bootstrap.rsplit(":", 1)
        self.address = host, int(port)
        self._link: socket.socket | None = None

    def ask(self, api: str, version: int, body: bytes) -> bytes | None:
        if self._link is None:
            self._link = socket.create_connection(self.address, timeout=60)
        self._link.sendall(self._judge.frame(api, version, 7, body))
        size = self._read(4)
        if size is None:
            self._link.close()
            self._link = None
            return None
        frame = self._read(int.from_bytes(size, "big"))
        assert frame is not None
        return self._judge.body_of(api, version, frame)

    def _read(self, size: int) -> bytes | None:
        assert self._link is not None
        data = b""
        while len(data) < size:
            more = self._link.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def close(self) -> None:
        if self._link is not None:
            self._link.close()


class Pair:
    """A broker and muster with the same settings and, all along, the same topics."""

    def __init__(self, broker: KafkaBroker, judge: Messages, config: BrokerConfig, groups: GroupConfig) -> None:
        self.judge = judge
        self.kafka = KafkaTarget(judge, broker.bootstrap)
        host, port = self.kafka.address
        assert asking.CLUSTER_ID == CLUSTER_ID
        self.muster = MusterTarget(judge, memory_cluster(config=config, groups=groups, host=host, port=port))
        self._ids: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
        self.compared = 0
        self.sync()

    def both(self, api: str, version: int, message: Mapping[str, Any]) -> tuple[Message, Message, bool]:
        """Kafka's answer, muster's, and whether muster let the client wait."""
        decided_wait = api == "Fetch" and "MaxWaitMs" not in message
        first = {**message, "MaxWaitMs": SHORT_WAIT_MS} if decided_wait else message
        ours, waited = self.muster.ask(api, version, self._encoded(api, version, first, 1))
        second = {**message, "MaxWaitMs": SHORT_WAIT_MS if waited else LONG_WAIT_MS} if decided_wait else message
        begun = time.monotonic()
        theirs = self.kafka.ask(api, version, self._encoded(api, version, second, 0))
        took_ms = (time.monotonic() - begun) * 1000
        if decided_wait:
            assert (took_ms >= SHORT_WAIT_MS - 5) if waited else (took_ms < LONG_WAIT_MS * 0.8), (waited, took_ms)
        if api in CHANGES_TOPICS and not (message.get("validateOnly") or message.get("ValidateOnly")):
            self.sync()
        return self._decoded(api, version, theirs, 0), self._decoded(api, version, ours, 1), waited

    def same(self, api: str, version: int, message: Mapping[str, Any]) -> Message:
        theirs, ours, _ = self.both(api, version, message)
        if ours != theirs:  # by hand: a whole answer is hundreds of lines
            said = "\n".join(differences(theirs, ours))
            pytest.fail(f"{api} v{version} {str(dict(message))[:500]}\n{said}", pytrace=False)
        self.compared += 1
        return theirs

    def every_version(self, api: str, message: Mapping[str, Any], only: Iterable[int] | None = None) -> list[Message]:
        return [self.same(api, version, message) for version in only or self.judge.served(api)]

    def sync(self) -> None:
        """Wait until the broker has the topics that muster has."""
        deadline = time.monotonic() + PATIENCE_S
        ours = self._topics(1)
        while (theirs := self._topics(0)) != ours:
            if time.monotonic() > deadline:
                self._realign(theirs)
                pytest.fail("\n".join(["the topics:", *differences(theirs, ours)]), pytrace=False)
            time.sleep(0.02)

    def _realign(self, theirs: dict[str, int]) -> None:
        """Give muster the topics that Kafka has, so that the tests to come are about something again."""
        topics = self.muster.cluster.topics
        for topic in list(topics.in_order()):
            if theirs.get(topic.name) != topic.partitions:
                topics.carry_out(Plan([TopicChange(Happened.DELETED, topic)], list))
        for name, partitions in theirs.items():
            if name not in topics:
                topics.create(Topic(name, self.muster.cluster.fresh_topic_id(), partitions))

    def _topics(self, which: int) -> dict[str, int]:
        body = self.judge.encode_request("Metadata", 13, {"Topics": None})
        raw = self.kafka.ask("Metadata", 13, body) if which == 0 else self.muster.ask("Metadata", 13, body)[0]
        assert raw is not None
        topics = self.judge.decode_response("Metadata", 13, raw)["Topics"]
        self._ids[which].update({topic["Name"]: topic["TopicId"] for topic in topics})
        return {topic["Name"]: len(topic["Partitions"]) for topic in topics}

    def _encoded(self, api: str, version: int, message: Mapping[str, Any], which: int) -> bytes:
        return self.judge.encode_request(api, version, self._with_ids(message, which))

    def _with_ids(self, value: Any, which: int) -> Any:
        if isinstance(value, IdOf):
            return self._ids[which][value.topic]
        if isinstance(value, Mapping):
            return {name: self._with_ids(one, which) for name, one in value.items()}
        return [self._with_ids(one, which) for one in value] if isinstance(value, list) else value

    def _decoded(self, api: str, version: int, body: bytes | None, which: int) -> Message:
        if body is None:
            return CLOSED
        names = {topic_id: f"id of {name}" for name, topic_id in self._ids[which].items()}
        return _comparable(self.judge.decode_response(api, version, body), names, api)  # type: ignore[no-any-return]


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[str]:
    """Where two answers differ, a line each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            yield from differences(theirs.get(name, "nothing"), ours.get(name, "nothing"), f"{where}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif theirs != ours:
        yield f"{where}: Kafka {str(theirs)[:300]!r}, muster {str(ours)[:300]!r}"


def _comparable(value: Any, names: Mapping[bytes, str], api: str, field: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _comparable(one, names, api, name) for name, one in value.items()}
    if isinstance(value, list):
        items = [_comparable(one, names, api) for one in value]
        return items if api in ORDER_COUNTS else sorted(items, key=lambda item: json.dumps(item, default=repr))
    if field == "TopicId" and value != NO_UUID:
        # An answer to CreateTopics that only validates has an id that nobody will ever see again.
        return "an id" if api == "CreateTopics" else names.get(value, value)
    return value
