"""The same groups on a real broker and on muster, and what Kafka's Java tools say about them.

Four groups: `idle` has offsets and never had a member, `left` had one, `live` has two, and `static` one with an
instance id.
Members are connections of ours, with the subscriptions and assignments that consumers write.
"""

import re
import struct
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from muster.broker import Broker
from tests.kit.java.compiled import compiled, start
from tests.kit.kafka import Kafka, KafkaBroker
from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Both, Link, Side

TOPICS = {"orders": 3, "payments": 2}
SESSION_MS = 600_000
RUN_TIMEOUT_S = 240
REBALANCE_IN_PROGRESS = 27
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOPIC_ID = re.compile(r"(?<=id=)[\w-]{22}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+")
_SPACES = re.compile(r"[ \t]+")


class Pair(NamedTuple):
    kafka: Kafka
    both: Both
    bootstraps: dict[str, str]


def pair_of(kafka: Kafka, theirs: KafkaBroker, ours: Broker, judge: object) -> Pair:
    host, port = theirs.bootstrap.rsplit(":", 1)
    both = Both(judge, (host, int(port)), (ours.host, ours.port), TOPICS)  # type: ignore[arg-type]
    return Pair(kafka, both, {"Kafka": theirs.bootstrap, "muster": ours.bootstrap_servers})


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">ii", -1, 0)


def assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    told = b""
    for topic, numbers in partitions.items():
        numbers = list(numbers)
        told += struct.pack(f">h{len(topic)}si{len(numbers)}i", len(topic), topic.encode(), len(numbers), *numbers)
    return struct.pack(">hi", 1, len(partitions)) + told + struct.pack(">i", -1)


def make_groups(side: Side) -> None:
    """Leave the four groups behind; the members stay as long as the connections of `side`, and longer."""
    link = side.connect()
    offsets = {("orders", 0): 10, ("orders", 1): 20, ("payments", 1): 30}
    link.ask("OffsetCommit", 8, bodies.commit("idle", offsets))
    _members(side, "left", {"gone": {"orders": [0, 1, 2]}})
    _members(side, "live", {"first": {"orders": [0, 1]}, "second": {"orders": [2], "payments": [0, 1]}})
    _members(side, "static", {"one": {"payments": [0, 1]}}, is_static=True)
    described = link.ask("DescribeGroups", 5, bodies.describe("left"))
    for member in described["Groups"][0]["Members"]:
        link.ask("LeaveGroup", 4, bodies.leave("left", member["MemberId"]))


def clear_groups(side: Side) -> None:
    """Take away all groups, with whoever is in them; nobody compares how."""
    link = side.connect()
    groups = [each["GroupId"] for each in link.ask("ListGroups", 4, bodies.list_groups())["Groups"]]
    for group in sorted(groups):
        for member in link.ask("DescribeGroups", 5, bodies.describe(group))["Groups"][0]["Members"]:
            link.ask("LeaveGroup", 4, bodies.leave(group, member["MemberId"]))
        link.ask("DeleteGroups", 2, {"GroupsNames": [group]})


def _members(side: Side, group: str, seats: Mapping[str, Mapping[str, list[int]]], is_static: bool = False) -> None:
    links: dict[str, Link] = {}
    ids: dict[str, str] = {}

    def join(name: str) -> bodies.Message:
        instance = name if is_static else None
        wanted = [{"Name": "range", "Metadata": subscription("orders", "payments")}]
        return bodies.join(
            group, ids.get(name, ""), instance,
            Protocols=wanted, SessionTimeoutMs=SESSION_MS, RebalanceTimeoutMs=60_000,
        )  # fmt: skip

    answers = {}
    first = next(iter(seats))
    for name in seats:
        links[name] = side.connect()
        if not is_static:
            ids[name] = links[name].ask("JoinGroup", 9, join(name), name)["MemberId"]
        links[name].post("JoinGroup", 9, join(name), name)
        if name != first:  # it waits until the first one hears of it and joins again
            _wait_for_rebalance(side, bodies.heartbeat(group, answers[first]["GenerationId"], ids[first]))
            answers[first] = links[first].ask("JoinGroup", 9, join(first), first)
        answers[name] = links[name].hear("JoinGroup", 9)
        ids[name] = answers[name]["MemberId"]
    generation = max(answer["GenerationId"] for answer in answers.values())
    leader = next(name for name in seats if ids[name] == answers[name]["Leader"])
    assigned = {ids[name]: assignment(partitions) for name, partitions in seats.items()}
    for name in sorted(seats, key=lambda name: name != leader):
        given = assigned if name == leader else {}
        instance = name if is_static else None
        links[name].ask("SyncGroup", 5, bodies.sync(group, generation, ids[name], given, GroupInstanceId=instance))
    for name in list(seats)[:1]:
        mine = {"MemberId": ids[name], "GenerationIdOrMemberEpoch": generation}
        mine |= {"GroupInstanceId": name} if is_static else {}
        links[name].ask("OffsetCommit", 8, bodies.commit(group, {("orders", 0): 1, ("payments", 1): 2}, **mine))


def _wait_for_rebalance(side: Side, beat: bodies.Message) -> None:
    deadline = time.monotonic() + RUN_TIMEOUT_S
    with Link(side) as link:
        error = 0
        while error != REBALANCE_IN_PROGRESS:
            assert time.monotonic() < deadline
            link.post("Heartbeat", 4, beat)
            frame = link.read()
            assert isinstance(frame, bytes)
            error = link.decoded("Heartbeat", 4, frame)["ErrorCode"]


def run_both(pair: Pair, mode: str, *arguments: str, words: str = "") -> dict[str, dict[str, list[str]]]:
    """What either says, by what was asked; both run at the same time."""

    def run(bootstrap: str) -> dict[str, list[str]]:
        with start(pair.kafka, "GroupTools", mode, bootstrap, *arguments) as process:
            try:
                out, errors = process.communicate(words, timeout=RUN_TIMEOUT_S)
            finally:
                process.kill()
        assert "== done" in out, (bootstrap, out[-2000:], errors[-2000:])
        return blocks(out, bootstrap)

    compiled(pair.kafka, "GroupTools")
    with ThreadPoolExecutor(2) as threads:
        return dict(zip(pair.bootstraps, threads.map(run, pair.bootstraps.values()), strict=True))


def blocks(out: str, bootstrap: str) -> dict[str, list[str]]:
    """The lines of each block, in order of the alphabet, without what is random; blanks are those of a table."""
    told: dict[str, list[str]] = {}
    asked = ""
    for line in out.replace(bootstrap.rsplit(":", 1)[1], "PORT").splitlines():
        if line.startswith("== "):
            asked = line
            number = 2
            while asked in told:
                asked, number = f"{line} ({number})", number + 1
            told[asked] = []
        elif line.strip():
            plain = _TIME.sub("<time>", _TOPIC_ID.sub("<topic id>", _UUID.sub("<id>", line)))
            told[asked].append(_SPACES.sub(" ", plain).strip())
    return {asked: sorted(lines) for asked, lines in told.items()}


def differing(said: dict[str, dict[str, list[str]]]) -> list[str]:
    theirs, ours = said["Kafka"], said["muster"]
    assert theirs.keys() == ours.keys()
    return [
        f"{asked}\n  Kafka:  " + "\n          ".join(theirs[asked]) + "\n  muster: " + "\n          ".join(ours[asked])
        for asked in theirs
        if theirs[asked] != ours[asked]
    ]
