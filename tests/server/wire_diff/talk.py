"""The same conversation with a real broker and with muster, and everything that was heard.

    def story(side: Side) -> None:
        first = side.connect()
        joined = first.ask("JoinGroup", 9, {"GroupId": "g", ...})        recorded, and decoded to go on with
        first.ask("SyncGroup", 5, {..., "MemberId": joined["MemberId"]})

    both.same(story)            plays it to either, at the same time, and compares what was recorded

Answers are compared as decoded by Kafka's own definitions, all fields of them, with ids that are random put under the
names of their order of appearance. Lists are compared in their order, but for those that a hash map of Kafka's makes.
A connection that is closed, and one that stays silent, are answers too.
"""

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from muster.codec.primitives import Writer
from tests.server.cluster.kafka_messages import Messages
from tests.server.cluster.pair import differences

Message = dict[str, Any]
CLOSED: Message = {"connection": "closed"}
SILENT: Message = {"connection": "silent"}
PATIENCE_S = 20.0
QUIET_S = 0.25
CLIENT_ID = "raw"
READS = frozenset({"DescribeGroups", "ListGroups", "OffsetFetch"})
MOST_SHOWN, LONGEST_SHOWN = 12, 600
FROM_A_HASH_MAP = {
    "JoinGroup": frozenset({"Members"}),
    "DescribeGroups": frozenset({"Groups", "Members"}),
    "DeleteGroups": frozenset({"Results"}),
    "ListGroups": frozenset({"Groups"}),
    "OffsetFetch of all": frozenset({"Topics", "Partitions"}),
}
"""Lists that Kafka keeps in maps; the order of all others counts."""
IN_ORDER: frozenset[str] = frozenset()
_MEMBER_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def frame_of(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Side:
    """One of the two, and what was heard from it in one story."""

    def __init__(self, name: str, address: tuple[str, int], judge: Messages, topic_ids: Mapping[str, bytes]) -> None:
        self.name = name
        self.address = address
        self.judge = judge
        self.topic_ids = topic_ids
        self.heard: list[tuple[str, Message]] = []
        self._groups: set[str] = set()
        self._links: list[Link] = []
        self._names: dict[str, str] = {}
        self._topics = {topic_id: f"id of {topic}" for topic, topic_id in topic_ids.items()}

    def connect(self) -> "Link":
        link = Link(self)
        self._links.append(link)
        return link

    def close(self) -> None:
        for link in self._links:
            link.close()

    def note(self, label: str, answer: Any, unordered: frozenset[str] = IN_ORDER) -> None:
        self.heard.append((label, self._comparable(answer, unordered)))

    def changes(self, message: Mapping[str, Any]) -> None:
        """Remember whose records a read has to wait for."""
        group = message.get("GroupId")
        if isinstance(group, str):
            self._groups.add(group)

    def fence(self) -> None:
        """Wait until what was answered is acknowledged by the log, which a broker's reads see no more than."""
        if self._groups:
            asked = [{"GroupId": group, "MemberId": None, "MemberEpoch": -1, "Topics": []} for group in self._groups]
            with Link(self) as link:
                link.post("OffsetFetch", 9, {"Groups": asked, "RequireStable": True})
                link.read()

    def _comparable(self, value: Any, unordered: frozenset[str], field: str = "") -> Any:
        if isinstance(value, Mapping):
            return {name: self._comparable(one, unordered, name) for name, one in value.items()}
        if isinstance(value, list):
            items = [self._comparable(one, unordered) for one in value]
            return sorted(items, key=repr) if field in unordered else items
        if isinstance(value, str):
            # Java has no text that is not text; bytes that are none became replacement characters on their way in.
            text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            return _MEMBER_ID.sub(lambda match: self._names.setdefault(match[0], f"<{len(self._names)}>"), text)
        if isinstance(value, bytes) and len(value) == 16:
            return self._topics.get(value, value)
        if field == "Port" and value == self.address[1]:
            return "its port"
        return value


class Link:
    """One connection."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.socket = socket.create_connection(side.address, PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = 0

    def frame(self, api: str, version: int, message: Mapping[str, Any], client_id: str | None = CLIENT_ID) -> bytes:
        self.number += 1
        judge = self._side.judge
        return frame_of(
            header(judge, api, version, self.number, client_id) + judge.encode_request(api, version, message)
        )

    def post(self, api: str, version: int, message: Mapping[str, Any], client_id: str | None = CLIENT_ID) -> None:
        """Send, and leave the answer for later."""
        self._side.changes(message)
        self.say(self.frame(api, version, message, client_id))

    def say(self, data: bytes) -> None:
        """Send bytes as they are; that the other side has hung up is heard when an answer is read."""
        try:
            self.socket.sendall(data)
        except OSError:
            return

    def ask(self, api: str, version: int, message: Mapping[str, Any], client_id: str | None = CLIENT_ID) -> Message:
        if api in READS:
            self._side.fence()
        self.post(api, version, message, client_id)
        asked = [message, *message.get("Groups", ())] if api == "OffsetFetch" else []
        return self.hear(api, version, is_of_all=any(one.get("Topics", ()) is None for one in asked))

    def hear(self, api: str, version: int, wait_s: float = PATIENCE_S, is_of_all: bool = False) -> Message:
        """The next answer, recorded."""
        frame = self.read(wait_s)
        answer = self.decoded(api, version, frame) if isinstance(frame, bytes) else frame
        unordered = FROM_A_HASH_MAP.get(f"{api} of all" if is_of_all else api, IN_ORDER)
        self._side.note(f"{api} v{version}", answer, unordered)
        return answer

    def decoded(self, api: str, version: int, frame: bytes) -> Message:
        judge = self._side.judge
        body = frame[4:] if api == "ApiVersions" else judge.body_of(api, version, frame)
        return {"CorrelationId": int.from_bytes(frame[:4], "big"), **judge.decode_response(api, version, body)}

    def is_silent(self, label: str) -> None:
        """Record that nothing comes; or what does come, in bytes."""
        frame = self.read(QUIET_S)
        self._side.note(label, frame if isinstance(frame, dict) else {"answer": frame})

    def read(self, wait_s: float = PATIENCE_S) -> bytes | Message:
        """A frame without its size, `CLOSED` or `SILENT`."""
        size = self._exactly(4, wait_s)
        return self._exactly(int.from_bytes(size, "big"), PATIENCE_S) if isinstance(size, bytes) else size

    def _exactly(self, size: int, wait_s: float) -> bytes | Message:
        data = b""
        self.socket.settimeout(wait_s)
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except TimeoutError:
                assert not data, "half an answer"
                return SILENT
            except OSError:
                more = b""
            if not more:
                assert not data, "half an answer"
                return CLOSED
            data += more
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def header(judge: Messages, api: str, version: int, correlation_id: int, client_id: str | None) -> bytes:
    out = Writer()
    out.int16(judge.api_key(api))
    out.int16(version)
    out.int32(correlation_id)
    out.nullable_string(client_id)
    if judge.is_flexible(f"{api}Request", version):
        out.uvarint(0)
    return out.finish()


Story = Callable[[Side], None]


class Both:
    """A broker and muster, with the same settings and topics; or a broker with nobody beside it."""

    def __init__(
        self, judge: Messages, kafka: tuple[str, int], muster: tuple[str, int] | None, topics: Mapping[str, int]
    ) -> None:
        self.judge = judge
        self._addresses = {"Kafka": kafka} | ({} if muster is None else {"muster": muster})
        self._topic_ids: dict[str, dict[str, bytes]] = {"Kafka": {}, "muster": {}}
        self.compared = 0
        for name in self._addresses:
            self._prepare(self.side(name), topics)

    def side(self, name: str) -> Side:
        return Side(name, self._addresses[name], self.judge, self._topic_ids[name])

    def same(self, story: Story) -> list[Message]:
        """Play, compare, and give back what Kafka said."""
        with ThreadPoolExecutor(2) as threads:
            heard, other = threads.map(lambda name: self._played(name, story), self._addresses)
        found = list(_compared(heard, other))
        if found:
            shown = "\n".join(found[:MOST_SHOWN])
            pytest.fail(f"{len(found)} of {len(heard)} answers differ\n{shown}", pytrace=False)
        self.compared += len(heard)
        return [answer for _, answer in heard]

    def _played(self, name: str, story: Story) -> list[tuple[str, Message]]:
        side = self.side(name)
        try:
            story(side)
        finally:
            side.close()
        return side.heard

    def _prepare(self, side: Side, topics: Mapping[str, int]) -> None:
        """Topics, and coordinators that are awake."""
        with side.connect() as link:
            asked = {"KeyType": 0, "CoordinatorKeys": ["any"]}
            _until(lambda: not link.ask("FindCoordinator", 4, asked)["Coordinators"][0]["ErrorCode"])
            self._make(link, side.name, topics, {})
            groups = [{"GroupId": f"any-{number}", "Topics": None} for number in range(20)]
            asked_groups = {"Groups": groups, "RequireStable": False}
            _until(lambda: not any(g["ErrorCode"] for g in link.ask("OffsetFetch", 9, asked_groups)["Groups"]))

    def make(self, topics: Mapping[str, int], settings: Mapping[str, Mapping[str, str]]) -> None:
        """Topics on both sides, with so many partitions each."""
        for name in self._addresses:
            with self.side(name).connect() as link:
                self._make(link, name, topics, settings)

    def settle(self) -> None:
        """Until the groups that other stories left behind are the same on both sides: the members of some have ended,
        and a busy broker is later to notice.
        """

        def states(name: str) -> dict[str, str]:
            with self.side(name).connect() as link:
                groups = link.ask("ListGroups", 4, {"StatesFilter": []})["Groups"]
            return {group["GroupId"]: group["GroupState"] for group in groups}

        def is_settled() -> bool:
            theirs, ours = map(states, self._addresses)
            return theirs == ours and PASSING.isdisjoint(theirs.values())

        _until(is_settled)

    def wake_producer_ids(self) -> None:
        """A broker asks its controller for ids when it is first asked for one."""
        asked = {"TransactionalId": None, "TransactionTimeoutMs": 1000}
        for name in self._addresses:
            with self.side(name).connect() as link:
                _until(lambda link=link: not link.ask("InitProducerId", 0, asked)["ErrorCode"])  # type: ignore[misc]

    def wake_transactions(self) -> None:
        """The topic of transactions is made when a coordinator is first asked for; its partitions load then."""
        self.wake_producer_ids()
        for name in self._addresses:
            with self.side(name).connect() as link:
                for number in range(8):
                    asked = {"TransactionalId": f"awake-{number}", "TransactionTimeoutMs": 1000}
                    wanted = {"KeyType": 1, "CoordinatorKeys": [asked["TransactionalId"]]}
                    _until(lambda: not link.ask("FindCoordinator", 4, wanted)["Coordinators"][0]["ErrorCode"])  # noqa: B023
                    _until(lambda: not link.ask("InitProducerId", 0, asked)["ErrorCode"])  # noqa: B023

    def _make(
        self, link: Link, side: str, topics: Mapping[str, int], settings: Mapping[str, Mapping[str, str]]
    ) -> None:
        wanted = [
            {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1,
             "Configs": [{"Name": key, "Value": value} for key, value in settings.get(name, {}).items()]}
            for name, partitions in topics.items()
        ]  # fmt: skip
        for each in link.ask("CreateTopics", 7, {"Topics": wanted, "timeoutMs": 20_000})["Topics"]:
            assert each["ErrorCode"] == 0, each
            self._topic_ids[side][each["Name"]] = each["TopicId"]
        asked = [{"Name": name, "Partitions": [{"PartitionIndex": count - 1, "Timestamp": -1}]}
                 for name, count in topics.items()]  # fmt: skip
        led = {"ReplicaId": -1, "Topics": asked}
        _until(lambda: not any(one["Partitions"][0]["ErrorCode"] for one in link.ask("ListOffsets", 7, led)["Topics"]))


def _compared(heard: list[tuple[str, Message]], other: list[tuple[str, Message]]) -> Iterator[str]:
    for number in range(max(len(heard), len(other))):
        if number >= len(heard) or number >= len(other):
            yield f"Kafka was heard {len(heard)} times, muster {len(other)}"
            return
        (label, theirs), (_, ours) = heard[number], other[number]
        if theirs != ours:
            yield f"{number} {label}: " + "; ".join(differences(theirs, ours))[:LONGEST_SHOWN]


PASSING = frozenset({"PreparingRebalance", "CompletingRebalance"})


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
