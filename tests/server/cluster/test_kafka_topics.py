"""Asking about topics and the cluster: muster's answers are Kafka's, in every version."""

from typing import Any

import pytest

from tests.server.cluster.pair import CLOSED, IdOf, Pair

pytestmark = pytest.mark.kafka
NOBODYS_ID = b"\x17" * 16
LONG_NAME = "x" * 250


def named(*names: str | None) -> list[dict[str, Any]]:
    return [{"Name": name} for name in names]


def made(pair: Pair, name: str, partitions: int = 1, **more: Any) -> str:
    topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, **more}
    assert pair.same("CreateTopics", 7, {"Topics": [topic]})["Topics"][0]["ErrorCode"] == 0
    return name


def test_metadata_of_all_topics_and_of_none(pair: Pair) -> None:
    made(pair, "meta-all", 3)
    all_topics = pair.every_version("Metadata", {"Topics": None}, only=range(1, 14))
    assert "meta-all" in [topic["Name"] for topic in all_topics[-1]["Topics"]]
    assert pair.every_version("Metadata", {"Topics": []}, only=range(1, 14))[-1]["Topics"] == []
    assert pair.same("Metadata", 0, {"Topics": []})["Topics"], "in version 0 an empty list means all"
    assert pair.same("Metadata", 0, {"Topics": None}) == CLOSED


def test_metadata_of_topics_that_are_there_and_of_bad_names(pair: Pair) -> None:
    made(pair, "meta.known", 2)
    names = named("meta.known", "meta.known", "bad name", "", ".", "..", LONG_NAME, "é", "a/b")
    for answer in pair.every_version("Metadata", {"Topics": names}):
        assert sorted(topic["ErrorCode"] for topic in answer["Topics"]) == [0] + [17] * 7


def test_asking_for_a_topic_makes_it_unless_the_client_says_no(pair: Pair) -> None:
    for version in pair.judge.served("Metadata"):
        asked = {"Topics": named(f"auto-{version}", "bad name")}
        first = pair.same("Metadata", version, asked)
        assert sorted(topic["ErrorCode"] for topic in first["Topics"]) == [3, 17]
        again = pair.same("Metadata", version, asked)
        assert [len(topic["Partitions"]) for topic in again["Topics"] if topic["ErrorCode"] == 0] == [2]
    refusing = {"Topics": named("never-made", LONG_NAME[1:]), "AllowAutoTopicCreation": False}
    for answer in pair.every_version("Metadata", refusing, only=range(4, 14)):
        assert [topic["ErrorCode"] for topic in answer["Topics"]] == [3, 3]


def test_two_names_that_clash_can_be_made_in_one_request(pair: Pair) -> None:
    pair.same("Metadata", 9, {"Topics": named("clash.auto", "clash_auto")})
    assert len(pair.same("Metadata", 9, {"Topics": named("clash.auto", "clash_auto")})["Topics"][0]["Partitions"]) == 2
    pair.same("CreateTopics", 7, {"Topics": [{"Name": "clash.auto", "NumPartitions": 1, "ReplicationFactor": 1}]})


def test_metadata_by_id(pair: Pair) -> None:
    made(pair, "meta-ids")
    made(pair, "meta-other")
    both = {"Name": "meta-other", "TopicId": IdOf("meta-ids")}
    requests = [
        [{"Name": None, "TopicId": IdOf("meta-ids")}],
        [{"Name": None, "TopicId": NOBODYS_ID}],
        [{"Name": None}],
        [{"Name": None}, {"Name": "meta-ids"}],
        [{"Name": None}, {"Name": None, "TopicId": IdOf("meta-ids")}],
        [both],
        [{"Name": "meta-other"}, {"Name": None, "TopicId": IdOf("meta-ids")}, {"Name": "bad name"}],
        [{"Name": "not-made-by-this"}, {"Name": None, "TopicId": NOBODYS_ID}, {"Name": None, "TopicId": NOBODYS_ID}],
    ]
    for version in range(10, 14):
        for topics in requests:
            for wants in (False, True):
                pair.same("Metadata", version, {"Topics": topics, "IncludeTopicAuthorizedOperations": wants})


def test_authorized_operations(pair: Pair) -> None:
    made(pair, "meta-ops")
    for version in range(8, 14):
        asked = {
            "Topics": named("meta-ops", "missing-ops", "bad name"),
            "AllowAutoTopicCreation": False,
            "IncludeTopicAuthorizedOperations": True,
            "IncludeClusterAuthorizedOperations": True,
        }
        answer = pair.same("Metadata", version, asked)
        assert {topic["TopicAuthorizedOperations"] for topic in answer["Topics"]} == {3576}


def test_internal_topics_that_are_not_there(pair: Pair) -> None:
    names = named("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
    for answer in pair.every_version("Metadata", {"Topics": names, "AllowAutoTopicCreation": False}, range(4, 14)):
        assert sum(topic["IsInternal"] for topic in answer["Topics"]) == 3


def test_the_offsets_topic_has_its_own_settings_when_made_by_asking(pair: Pair) -> None:
    pair.same("Metadata", 12, {"Topics": named("__consumer_offsets")})
    there = pair.every_version("Metadata", {"Topics": named("__consumer_offsets")})[-1]["Topics"][0]
    assert there["IsInternal"]
    assert len(there["Partitions"]) == 4
    resource = {"ResourceType": 2, "ResourceName": "__consumer_offsets", "ConfigurationKeys": None}
    pair.same("DescribeConfigs", 4, {"Resources": [resource], "IncludeSynonyms": True})


@pytest.mark.parametrize("endpoint_type", [0, 1, 2, 3, -1])
def test_describe_cluster(pair: Pair, endpoint_type: int) -> None:
    for wants in (False, True):
        asked = {"IncludeClusterAuthorizedOperations": wants, "EndpointType": endpoint_type}
        pair.every_version("DescribeCluster", asked)
    pair.same("DescribeCluster", 2, {"IncludeFencedBrokers": True, "EndpointType": endpoint_type})


def test_describe_topic_partitions(pair: Pair) -> None:
    for name, partitions in (("dtp-a", 2), ("dtp-b", 3), ("dtp-c", 1)):
        made(pair, name, partitions)
    asked = ["dtp-b", "dtp-a", "dtp-a", "dtp-missing", "bad name", "dtp-c"]
    for limit in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2000):
        pair.same("DescribeTopicPartitions", 0, {"Topics": named(*asked), "ResponsePartitionLimit": limit})
        pair.same("DescribeTopicPartitions", 0, {"Topics": [], "ResponsePartitionLimit": limit})
    for topic in ("dtp-a", "dtp-b", "dtp-b2", "dtp-missing", "bad name", "a", "zzz", "dtp-c"):
        for partition in (-1, 0, 1, 2, 3, 9):
            cursor = {"TopicName": topic, "PartitionIndex": partition}
            for topics in (named(*asked), [], named("dtp-b")):
                for limit in (2, 2000):
                    asking = {"Topics": topics, "ResponsePartitionLimit": limit, "Cursor": cursor}
                    pair.same("DescribeTopicPartitions", 0, asking)


def test_all_pages_together_are_all_partitions(pair: Pair) -> None:
    seen, cursor = [], None
    while True:
        answer = pair.same("DescribeTopicPartitions", 0, {"Topics": [], "ResponsePartitionLimit": 3, "Cursor": cursor})
        for topic in answer["Topics"]:
            seen += [(topic["Name"], partition["PartitionIndex"]) for partition in topic["Partitions"]]
        cursor = answer["NextCursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == pair.muster.cluster.topics.partition_count
