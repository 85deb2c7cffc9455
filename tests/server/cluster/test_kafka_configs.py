"""Settings of topics and brokers: muster's answers are Kafka's, in every version."""

from typing import Any

import pytest

from muster.server.cluster.topic_configs import TOPIC_SETTINGS
from tests.server.cluster.pair import Message, Pair, differences

pytestmark = pytest.mark.kafka
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

_VALUES = """
-131073 -131072 -3 -2 -1 0 1 2 3 4 5 9 10 13 14 17 18 22 23 999999 1048575 1048576 2147483647 2147483648
9223372036854775807 9223372036854775808 abc 1.5 0.5 -0.1 1e0 1e-4 5f NaN Infinity +5 0x10 1_000 ٣ TRUE true yes compact
delete compact,delete compact,compact none compact,none , compact,,delete gzip GZIP snappy producer uncompressed zstd
CreateTime LogAppendTime createtime * 0:1 0:1,1:2 x:y 0:1,*
"""
VALUES = [*_VALUES.split(), "", " 5 ", " true ", " compact , delete ", "compact, ", "0:1 , 1:2", "\t7\n"]


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": list(keys) or None}


def make(pair: Pair, name: str, **configs: str) -> None:
    given = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    topic = {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1, "Configs": given}
    pair.same("CreateTopics", 7, {"Topics": [topic]})


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_which_values_a_topic_may_have(pair: Pair, name: str) -> None:
    for value in VALUES:
        config = {"Name": name, "Value": value}
        topic = {"Name": "never-made", "NumPartitions": 1, "ReplicationFactor": 1, "Configs": [config]}
        pair.same("CreateTopics", 7, {"Topics": [topic], "validateOnly": True})


def test_we_know_every_setting_of_a_topic(pair: Pair) -> None:
    topic = {"Name": "never-made", "NumPartitions": 1, "ReplicationFactor": 1}
    answer = pair.same("CreateTopics", 7, {"Topics": [topic], "validateOnly": True})
    assert sorted(config["Name"] for config in answer["Topics"][0]["Configs"]) == sorted(TOPIC_SETTINGS)


def test_describe_a_topic(pair: Pair) -> None:
    make(pair, "conf-plain")
    make(
        pair,
        "conf-odd",
        retention_ms=" 12 ",
        cleanup_policy=" compact ,delete",
        preallocate="TRUE",
        min_cleanable_dirty_ratio="1e-4",
        leader_replication_throttled_replicas="0:1, 1:2",
        segment_ms="77",
        min_insync_replicas="2",
    )
    for name in ("conf-plain", "conf-odd"):
        for synonyms in (False, True):
            asked = {"Resources": [resource(TOPIC, name)], "IncludeSynonyms": synonyms}
            answers = pair.every_version("DescribeConfigs", asked)
            assert len(answers[-1]["Results"][0]["Configs"]) == len(TOPIC_SETTINGS)


def test_only_some_settings(pair: Pair) -> None:
    make(pair, "conf-some")
    resources = [
        resource(TOPIC, "conf-some", "retention.ms", "nope"),
        resource(TOPIC, "conf-some", "segment.ms", "segment.ms"),
        resource(TOPIC, "conf-some", "nope"),
        resource(BROKER, "1", "num.partitions", "nope"),
    ]
    pair.every_version("DescribeConfigs", {"Resources": resources})
    nothing = {"Resources": [{"ResourceType": TOPIC, "ResourceName": "conf-some", "ConfigurationKeys": []}]}
    assert pair.every_version("DescribeConfigs", nothing)[-1]["Results"][0]["Configs"]
    assert pair.every_version("DescribeConfigs", {"Resources": []})[-1]["Results"] == []


@pytest.mark.parametrize(
    "asked",
    [
        resource(TOPIC, "missing"),
        resource(TOPIC, "bad name"),
        resource(TOPIC, ""),
        resource(BROKER, "2"),
        resource(BROKER, "x"),
        resource(BROKER, "1.0"),
        resource(BROKER, "+1", "num.partitions"),
        resource(BROKER, " 1"),
        resource(BROKER, "99999999999"),
        resource(BROKER, ""),
        resource(BROKER, "", "node.id"),
        resource(BROKER_LOGGER, ""),
        resource(BROKER_LOGGER, "2"),
        resource(BROKER_LOGGER, "x"),
        resource(CLIENT_METRICS, ""),
        resource(GROUP, ""),
        resource(0, "a"),
        resource(1, "a"),
        resource(99, "a"),
        resource(-1, "a"),
    ],
    ids=lambda asked: f"{asked['ResourceType']}-{asked['ResourceName']}",
)
def test_resources_that_are_not_there(pair: Pair, asked: dict[str, Any]) -> None:
    pair.every_version("DescribeConfigs", {"Resources": [asked], "IncludeSynonyms": True})


def test_a_resource_asked_for_twice_is_described_twice_by_kafka_and_once_by_muster(pair: Pair) -> None:
    make(pair, "conf-twice")
    theirs, ours, _ = pair.both("DescribeConfigs", 4, {"Resources": [resource(TOPIC, "conf-twice")] * 2})
    assert theirs["Results"][0] == theirs["Results"][1]
    assert {one["ErrorCode"] for one in theirs["Results"]} == {0}
    described, refused = sorted(ours["Results"], key=lambda one: one["ErrorCode"])
    assert described == theirs["Results"][0]
    assert (refused["ErrorCode"], refused["Configs"]) == (42, [])


def by_name(answer: Message) -> dict[str, Message]:
    return {config["Name"]: config for config in answer["Results"][0]["Configs"]}


# Kafka requires these; muster has defaults of its own, or does without.
OUR_OWN = {"listeners", "advertised.listeners", "node.id", "log.dirs", "controller.listener.names"}


def test_the_brokers_settings_are_kafkas_as_far_as_we_have_them(pair: Pair) -> None:
    asked = {"Resources": [resource(BROKER, "1")], "IncludeSynonyms": True}
    theirs, ours, _ = pair.both("DescribeConfigs", 4, asked)
    kafkas, musters = by_name(theirs), by_name(ours)
    gone_from_kafka = {"inter.broker.protocol.version", "offsets.commit.required.acks"}
    assert {name for name in musters if not name.startswith("muster.")} - set(kafkas) == gone_from_kafka
    for name in sorted(set(musters) & set(kafkas) - OUR_OWN):
        theirs_here, ours_here = dict(kafkas[name]), dict(musters[name])
        if name.startswith(("log.retention.", "log.roll.")):
            # Kafka lists the settings in other units too.
            ours_here["Synonyms"] = theirs_here["Synonyms"] = []
            ours_here["ConfigSource"] = theirs_here["ConfigSource"]
        if ours_here["Synonyms"] != theirs_here["Synonyms"] and ours_here["ConfigSource"] == 5:
            # The kit sets some to what they are anyway: Kafka says "set", muster cannot tell.
            assert theirs_here["Synonyms"][0]["Value"] == ours_here["Value"]
            ours_here["Synonyms"] = theirs_here["Synonyms"]
            ours_here["ConfigSource"] = theirs_here["ConfigSource"]
        assert ours_here == theirs_here, list(differences(theirs_here, ours_here))
