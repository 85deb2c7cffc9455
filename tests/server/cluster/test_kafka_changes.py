"""Making, growing and deleting topics: muster's answers are Kafka's, in every version."""

from typing import Any

import pytest

from tests.server.cluster.pair import IdOf, Pair

pytestmark = pytest.mark.kafka
TIMEOUT_MS = 30_000
"""With none at all, a broker's own controller is too late for it."""


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"Name": name, "NumPartitions": partitions, "ReplicationFactor": replicas, **more}


def configs(**pairs: str | None) -> list[dict[str, Any]]:
    return [{"Name": name.replace("_", "."), "Value": value} for name, value in pairs.items()]


def create(pair: Pair, version: int, *topics: dict[str, Any], validate: bool = False) -> list[int]:
    answer = pair.same("CreateTopics", version, {"Topics": list(topics), "validateOnly": validate})
    return [one["ErrorCode"] for one in answer["Topics"]]


def test_create_topics(pair: Pair) -> None:
    for version in range(2, 8):
        assert create(pair, version, topic(f"made-{version}", 3)) == [0]
        assert create(pair, version, topic(f"made-{version}", 3)) == [36]
        assert create(pair, version, topic(f"default-{version}", -1, -1)) == [0]
        assert create(pair, version, topic(f"not-made-{version}", 5), validate=True) == [0]
        assert create(pair, version) == []


def test_counts_that_cannot_be(pair: Pair) -> None:
    for version in range(2, 8):
        for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, 3), (0, 0), (-1, -2)):
            assert create(pair, version, topic("never", partitions, replicas))[0] in (37, 38)


def test_names(pair: Pair) -> None:
    create(pair, 7, topic("clash.a"))
    for version in range(2, 8):
        for name in ("", ".", "..", "bad name", "é", "x" * 250, "clash_a", "clash.a", "__cluster_metadata"):
            assert create(pair, version, topic(name))[0] in (17, 36, 42)
        create(pair, version, topic("twice"), topic("twice"), topic(f"once-{version}"), topic("bad name"))
        create(pair, version, topic("__cluster_metadata"), topic("__cluster_metadata"))
    assert create(pair, 7, topic("clash.b"), topic("clash_b")) == [0, 0]


def test_assignments(pair: Pair) -> None:
    def assigned(*pairs: tuple[int, list[int]]) -> list[dict[str, Any]]:
        return [{"PartitionIndex": partition, "BrokerIds": ids} for partition, ids in pairs]

    for version in range(2, 8):
        good = assigned((1, [1]), (0, [1]))
        assert create(pair, version, topic(f"assigned-{version}", -1, -1, Assignments=good)) == [0]
        for partitions, replicas in ((2, -1), (-1, 1), (2, 1)):
            assert create(pair, version, topic("never", partitions, replicas, Assignments=good)) == [42]
        for bad in (
            assigned((0, [1]), (2, [1])),
            assigned((1, [1])),
            assigned((-1, [1])),
            assigned((0, [7])),
            assigned((0, [1, 1])),
            assigned((0, [2, 2])),
            assigned((0, [1, 2])),
            assigned((0, [])),
            assigned((0, [1]), (1, [])),
            assigned((0, [1]), (0, [1])),
        ):
            assert create(pair, version, topic("never", -1, -1, Assignments=bad)) == [39]


def test_configs(pair: Pair) -> None:
    for version in range(2, 8):
        good = configs(retention_ms=" 1000 ", cleanup_policy=" compact , delete", preallocate="TRUE")
        assert create(pair, version, topic(f"configured-{version}", Configs=good)) == [0]
        for bad in (
            configs(nope="1"),
            [{"Name": "", "Value": "1"}],
            configs(retention_ms=None),
            configs(retention_ms=None, cleanup_policy=None, nope="1"),
            configs(min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
            configs(remote_storage_enable="true"),
        ):
            assert create(pair, version, topic("never", Configs=bad)) == [40]
    assert create(pair, 7, topic("last-one-wins", Configs=configs(retention_ms="1") + configs(retention_ms="2"))) == [0]


def test_what_is_wrong_first(pair: Pair) -> None:
    create(pair, 7, topic("first"))
    bad_config = configs(nope="1")
    assert create(pair, 7, topic("first", 0, 0, Configs=bad_config)) == [36]
    assert create(pair, 7, topic("bad name", 0, 0, Configs=bad_config)) == [17]
    assert create(pair, 7, topic("second", 0, 0, Configs=bad_config)) == [40]
    assert create(pair, 7, topic("second", 0, 0)) == [38]


@pytest.mark.parametrize("version", [2, 7])
def test_too_much_in_one_request(pair: Pair, version: int) -> None:
    create(pair, version, topic("big-there"))
    for topics in (
        [topic("big", 9_999)],
        [topic("big", 10_000)],
        [topic("big", 10_001)],
        [topic("big", 5_000), topic("big2", 4_998)],
        [topic("big", 5_000), topic("big2", 4_999)],
        [topic("big", 5_000), topic("big2", 5_001)],
        [topic("big", 9_998, Configs=configs(retention_ms="1"))],
        [topic("big", 9_999, Configs=configs(retention_ms="1"))],
        [topic("big", 9_999, Configs=configs(retention_ms="1") + configs(retention_ms="2"))],
        [topic("big", 10_001), topic("bad name"), topic("twice"), topic("twice"), topic("big-there")],
        [topic("bad name", 10_001), topic("fine")],
        [topic("bad name", 9_999), topic("fine")],
        [topic("twice", 10_001), topic("twice", 10_001), topic("fine")],
        [topic("big", 9_999), topic("big2", -1)],
        [topic("big", 10_001, 2), topic("fine")],
    ):
        create(pair, version, *topics, validate=True)


def test_create_partitions(pair: Pair) -> None:
    create(pair, 7, topic("grow", 2), topic("grow-too"))

    def grow(version: int, *wanted: tuple[str, int, list[list[int]] | None], validate: bool = False) -> list[int]:
        topics = [
            {"Name": name, "Count": total, "Assignments": ids and [{"BrokerIds": one} for one in ids]}
            for name, total, ids in wanted
        ]
        answer = pair.same(
            "CreatePartitions", version, {"Topics": topics, "ValidateOnly": validate, "TimeoutMs": TIMEOUT_MS}
        )
        return [one["ErrorCode"] for one in answer["Results"]]

    for version in range(4):
        now = 2 + 2 * version
        for total in (now, now - 1, 0, -1, -(2**31)):
            assert grow(version, ("grow", total, None)) == [37]
        assert grow(version, ("missing", 3, None)) == [3]
        assert grow(version, ("bad name", 3, None)) == [3]
        assert sorted(grow(version, ("grow", 99, None), ("grow", 98, None), ("missing", 1, None))) == [3, 42]
        for bad in ([[1]], [[1], [1], [1]], [[1], [9]], [[1], [1, 1]], [[1], []], [[1], [1, 2]]):
            assert grow(version, ("grow", now + 2, bad)) == [39]
        assert grow(version, ("grow", 50, None), validate=True) == [0]
        assert grow(version, ("grow", now + 1, None), ("missing", 2, None)) == [0, 3]
        assert grow(version, ("grow", now + 2, [[1]])) == [0]
        assert grow(version) == []
    assert grow(3, ("grow", 10_010, None), ("missing", 2, None), validate=True) == [0, 3]
    too_many = {"Topics": [{"Name": "grow", "Count": 10_011, "Assignments": None}], "ValidateOnly": True}
    theirs, ours, _ = pair.both("CreatePartitions", 3, {**too_many, "TimeoutMs": TIMEOUT_MS})
    assert theirs["Results"][0]["ErrorCode"] == -1
    assert ours["Results"][0]["ErrorCode"] == 44, "Kafka trips; without ValidateOnly it even makes 10,000 of them"
    empty = {"Topics": [{"Name": "grow", "Count": 20, "Assignments": []}], "TimeoutMs": TIMEOUT_MS}
    assert pair.same("CreatePartitions", 3, empty)["Results"][0]["ErrorCode"] == 39


def test_delete_topics_by_name(pair: Pair) -> None:
    for version in range(1, 6):
        create(pair, 7, topic(f"gone-{version}"), topic(f"kept-{version}"))

        def delete(*names: str, version: int = version) -> list[int]:
            answer = pair.same("DeleteTopics", version, {"TopicNames": list(names), "TimeoutMs": TIMEOUT_MS})
            return [one["ErrorCode"] for one in answer["Responses"]]

        assert delete(f"gone-{version}") == [0]
        assert delete(f"gone-{version}", "bad name", "", "__cluster_metadata") == [3, 3, 3, 3]
        assert sorted(delete(f"kept-{version}", f"kept-{version}", f"gone-{version}")) == [3, 42]
        assert delete() == []
        assert create(pair, 7, topic(f"gone-{version}", 2)) == [0], "the name is free again"


def test_delete_topics_by_name_or_id(pair: Pair) -> None:
    for name in "abcdef":
        create(pair, 7, topic(f"del-{name}"))
    nobody = b"\x18" * 16

    def delete(*topics: dict[str, Any]) -> list[int]:
        answer = pair.same("DeleteTopics", 6, {"Topics": list(topics), "TimeoutMs": TIMEOUT_MS})
        return sorted(one["ErrorCode"] for one in answer["Responses"])

    def by_id(name: str) -> dict[str, Any]:
        return {"Name": None, "TopicId": IdOf(f"del-{name}")}

    assert delete({"Name": None}) == [42]
    assert delete({"Name": "del-a", "TopicId": IdOf("del-a")}) == [42]
    assert delete({"Name": None, "TopicId": nobody}, {"Name": "missing"}) == [3, 100]
    assert delete({"Name": "del-a"}, {"Name": "del-a"}) == [42]
    assert delete(by_id("a"), by_id("a")) == [42]
    assert delete(by_id("a"), {"Name": "del-a"}) == [42]
    assert delete(by_id("a"), by_id("a"), {"Name": "del-a"}) == [42, 42]
    assert delete({"Name": "del-a"}, {"Name": "del-a"}, by_id("a")) == [0, 42]
    assert delete(by_id("b"), {"Name": "del-c"}, {"Name": None}, {"Name": "missing"}) == [0, 0, 3, 42]
    assert delete(by_id("b"), {"Name": "del-b"}) == [3, 100]
    assert delete() == []
