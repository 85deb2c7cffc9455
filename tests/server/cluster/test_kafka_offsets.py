"""Fetch, ListOffsets and OffsetForLeaderEpoch on empty partitions: muster's answers are Kafka's, in every version."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.cluster.pair import CLOSED, IdOf, Message, Pair

pytestmark = pytest.mark.kafka
NOBODYS_ID = b"\x19" * 16


@pytest.fixture(scope="module")
def topics(pair: Pair) -> None:
    for name, partitions in (("read-a", 2), ("read-b", 2)):
        topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1}
        pair.same("CreateTopics", 7, {"Topics": [topic]})


def wanted(version: int, name: str, *partitions: dict[str, Any]) -> Message:
    is_there = name.startswith("read-")
    topic: Message = {"Topic": name} if version < 13 else {"TopicId": IdOf(name) if is_there else NOBODYS_ID}
    return topic | {"Partitions": list(partitions)}


def part(partition: int = 0, offset: int = 0, **more: Any) -> Message:
    return {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20, **more}


def fetches(version: int) -> Iterator[tuple[Message, bool]]:
    """Requests, and whether they wait."""

    def fetch(*topics: Message, **more: Any) -> Message:
        return {"MinBytes": 1, "MaxBytes": 1 << 20, "Topics": list(topics), **more}

    yield fetch(wanted(version, "read-a", part())), True
    yield fetch(wanted(version, "read-a", part()), IsolationLevel=1), True
    yield fetch(wanted(version, "read-a", part(), part(1))), True
    yield fetch(wanted(version, "read-a", part(), part()), wanted(version, "read-a", part())), True
    yield fetch(wanted(version, "read-b", part(1), part()), wanted(version, "read-a", part())), True
    yield (
        fetch(
            wanted(version, "read-b", part(1)),
            wanted(version, "missing", part()),
            wanted(version, "read-a", part()),
            wanted(version, "read-b", part(0), part(1)),
        ),
        True,
    )
    yield fetch(wanted(version, "read-a", part(0), part(9))), True
    yield fetch(), False
    yield fetch(wanted(version, "missing", part())), False
    yield fetch(wanted(version, "bad name", part())), False
    yield fetch(wanted(version, "read-a", part(9), part(-1))), False
    yield fetch(wanted(version, "read-a", part(0, 5))), False
    yield fetch(wanted(version, "read-a", part(0, -1))), False
    yield fetch(wanted(version, "read-a", part(0), part(1, 5))), False
    yield fetch(wanted(version, "read-a", part(0, 5), part(0, 0))), True
    yield fetch(wanted(version, "read-a", part(0, 5)), IsolationLevel=1), False
    yield fetch(wanted(version, "read-a", part()), MinBytes=0), False
    yield fetch(wanted(version, "read-a", part()), MinBytes=-1), False
    yield fetch(wanted(version, "read-a", part()), MaxBytes=0), False
    yield fetch(wanted(version, "read-a", part()), MaxBytes=-1, MinBytes=100), False
    yield fetch(wanted(version, "read-a", part(), part(1)), wanted(version, "missing", part()), IsolationLevel=7), False
    if version >= 7:
        forgotten = wanted(version, "read-a") | {"Partitions": [0]}
        yield fetch(wanted(version, "read-a", part()), ForgottenTopicsData=[forgotten]), True
        for session_id, epoch in ((0, 1), (9, 1), (0, -2), (9, 2**31 - 1)):
            yield fetch(wanted(version, "read-a", part()), SessionId=session_id, SessionEpoch=epoch), False
        yield fetch(wanted(version, "read-a", part()), SessionId=9, SessionEpoch=-1), True
    if version >= 9:
        for epoch, waits in ((-2, True), (-1, True), (0, True), (1, False), (99, False)):
            yield fetch(wanted(version, "read-a", part(CurrentLeaderEpoch=epoch))), waits
    if version >= 12:
        yield fetch(wanted(version, "read-a", part()), ClusterId="another"), True
        for epoch in (-2, 0, 1, 5):
            for offset in (-1, 0, 5):
                waits = offset == 0 and epoch < 1
                yield fetch(wanted(version, "read-a", part(0, offset, LastFetchedEpoch=epoch))), waits
    if version >= 13:
        yield fetch({"TopicId": bytes(16), "Partitions": [part()]}), False
    for replica in (-2, 1, 7):
        who = {"ReplicaState": {"ReplicaId": replica, "ReplicaEpoch": -1}} if version >= 15 else {"ReplicaId": replica}
        yield fetch(wanted(version, "read-a", part()), wanted(version, "missing", part()), **who), replica < 0


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(pair: Pair, topics: None, version: int) -> None:
    for message, waits in fetches(version):
        theirs, ours, waited = pair.both("Fetch", version, message)
        assert ours == theirs, message
        assert waited == waits, message
        pair.compared += 1


@pytest.mark.parametrize("version", range(7, 19))
def test_a_fetch_session_without_room(pair: Pair, topics: None, version: int) -> None:
    """Kafka gives the session a number, as long as it has room for more; here there is none."""
    for session_id in (0, 9):
        message = {"MinBytes": 1, "Topics": [wanted(version, "read-a", part())], "MaxBytes": 1 << 20}
        theirs, ours, _ = pair.both("Fetch", version, message | {"SessionId": session_id, "SessionEpoch": 0})
        assert theirs["SessionId"] > 0
        assert ours == theirs | {"SessionId": 0}


@pytest.mark.parametrize("wait_ms", [0, -1, -(2**31)])
def test_no_time_to_wait(pair: Pair, topics: None, wait_ms: int) -> None:
    for version in range(4, 19):
        message = {"MinBytes": 1, "MaxBytes": 1 << 20, "Topics": [wanted(version, "read-a", part())]}
        theirs, ours, waited = pair.both("Fetch", version, message | {"MaxWaitMs": wait_ms})
        assert ours == theirs
        assert not waited


TIMES = [-7, -6, -5, -4, -3, -2, -1, 0, 1, 1_700_000_000_000, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(pair: Pair, topics: None, version: int) -> None:
    for timestamp in TIMES:
        for name, partition in (("read-a", 0), ("read-a", 9), ("read-a", -1), ("missing", 0), ("bad name", 0)):
            for epoch in (-3, -1, 0, 1) if version >= 4 else (-1,):
                one = {"PartitionIndex": partition, "Timestamp": timestamp, "CurrentLeaderEpoch": epoch}
                pair.same("ListOffsets", version, {"ReplicaId": -1, "Topics": [{"Name": name, "Partitions": [one]}]})
    for replica in (-2, 1, 5):
        one = {"PartitionIndex": 0, "Timestamp": -1}
        pair.same("ListOffsets", version, {"ReplicaId": replica, "Topics": [{"Name": "read-a", "Partitions": [one]}]})


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_of_many(pair: Pair, topics: None, version: int) -> None:
    def one(partition: int, timestamp: int = -1) -> Message:
        return {"PartitionIndex": partition, "Timestamp": timestamp}

    many = [
        {"Name": "read-a", "Partitions": [one(0), one(1), one(1, -2), one(7)]},
        {"Name": "read-b", "Partitions": []},
        {"Name": "missing", "Partitions": [one(0), one(0)]},
        {"Name": "read-b", "Partitions": [one(0, 5), one(1, -9)]},
        {"Name": "read-a", "Partitions": [one(7, -2)]},
    ]
    for level in (0, 1, 2, -1) if version >= 2 else (0,):
        pair.same("ListOffsets", version, {"ReplicaId": -1, "Topics": many, "IsolationLevel": level})
    assert pair.same("ListOffsets", version, {"ReplicaId": -1, "Topics": []})["Topics"] == []


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(pair: Pair, topics: None, version: int) -> None:
    def asked(*topics: tuple[str, int, int, int], replica: int = -2) -> Message:
        return {
            "ReplicaId": replica,
            "Topics": [
                {
                    "Topic": name,
                    "Partitions": [{"Partition": number, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}],
                }
                for name, number, current, epoch in topics
            ],
        }

    for current in (-5, -2, -1, 0, 1, 5):
        for epoch in (-7, -1, 0, 1, 5):
            pair.same("OffsetForLeaderEpoch", version, asked(("read-a", 0, current, epoch)))
    for name, partition in (("read-a", 9), ("read-a", -1), ("missing", 0), ("bad name", 0)):
        pair.same("OffsetForLeaderEpoch", version, asked((name, partition, 5, 0)))
    again = asked(("read-a", 1, 0, 0), ("missing", 0, 0, 0), ("read-a", 0, 0, 0), ("read-a", 0, 0, 0))
    pair.same("OffsetForLeaderEpoch", version, again)
    pair.same("OffsetForLeaderEpoch", version, {"Topics": [{"Topic": "read-a", "Partitions": []}]})
    pair.same("OffsetForLeaderEpoch", version, {"Topics": []})
    for replica in (-1, 1, 7):
        pair.same("OffsetForLeaderEpoch", version, asked(("read-a", 0, 0, 0), replica=replica))


def test_null_where_none_may_be_closes_the_connection(pair: Pair) -> None:
    for api, field in (
        ("Fetch", "Topics"),
        ("ListOffsets", "Topics"),
        ("OffsetForLeaderEpoch", "Topics"),
        ("CreateTopics", "Topics"),
        ("CreatePartitions", "Topics"),
        ("DescribeConfigs", "Resources"),
        ("DescribeTopicPartitions", "Topics"),
    ):
        for answer in pair.every_version(api, {field: None}):
            assert answer == CLOSED
    for answer in pair.every_version("DeleteTopics", {"TopicNames": None, "Topics": None}):
        assert answer == CLOSED
