"""What the handlers do that a broker cannot show us: our own limits, a failing disk, settings of another broker."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.errors import LogDamaged, MusterError
from muster.server.cluster.cluster import Cluster, EmptyPartition
from muster.server.cluster.create_topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    MorePartitions,
    NewTopic,
    plan_create_partitions,
    plan_create_topics,
)
from muster.server.cluster.delete_topics import DeleteTopicsRequest, TopicNamed, plan_delete_topics
from muster.server.cluster.describe_configs import (
    BROKER,
    GROUP,
    TOPIC,
    DescribeConfigsRequest,
    ResourceAsked,
    ResourceDescribed,
    broker_configs,
    describe_configs,
)
from muster.server.cluster.metadata import MetadataRequest, TopicAsked, plan_metadata
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import Outcome, Plan, TopicChange
from tests.server.cluster.asking import MemoryTopics, a_topic, memory_cluster

OFFSETS = "__consumer_offsets"


class FullDisk(MemoryTopics):
    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        return [LogDamaged("topic could not be made: no space left")] * len(changes)


def make(plan: Callable[[Any, Cluster], Plan], request: Any, cluster: Cluster) -> Any:
    return cluster.topics.carry_out(plan(request, cluster))


def create(cluster: Cluster, *topics: NewTopic) -> list[tuple[ErrorCode, str | None]]:
    answer = make(plan_create_topics, CreateTopicsRequest(topics), cluster)
    return [(topic.error, topic.message) for topic in answer.topics]


def grow(cluster: Cluster, *topics: MorePartitions) -> list[tuple[ErrorCode, str | None]]:
    answer = make(plan_create_partitions, CreatePartitionsRequest(topics), cluster)
    return [(topic.error, topic.message) for topic in answer.topics]


def delete(cluster: Cluster, *names: str, version: int = 6) -> list[ErrorCode]:
    answer = make(plan_delete_topics, DeleteTopicsRequest(version, tuple(map(TopicNamed, names))), cluster)
    return [topic.error for topic in answer.topics]


def ask(cluster: Cluster, *names: str, may_create: bool = True) -> list[ErrorCode]:
    request = MetadataRequest(12, tuple(map(TopicAsked, names)), may_create)
    return [topic.error for topic in make(plan_metadata, request, cluster).topics]


def names(cluster: Cluster) -> list[str]:
    return [topic.name for topic in cluster.topics.in_order()]


def test_auto_creation_can_be_turned_off() -> None:
    cluster = memory_cluster(config=BrokerConfig(auto_create_topics_enable=False))
    assert ask(cluster, "new") == ask(cluster, "new") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert names(cluster) == []


def test_auto_creation_makes_the_topics_of_both_coordinators_and_no_other_internal_one() -> None:
    config = BrokerConfig(num_partitions=3, offsets_topic_num_partitions=7, transaction_state_log_num_partitions=5)
    cluster = memory_cluster(config=config)
    ask(cluster, OFFSETS, "__transaction_state", "__share_group_state", "__cluster_metadata", "mine")
    assert names(cluster) == [OFFSETS, "__transaction_state", "mine"]
    assert [topic.partitions for topic in cluster.topics.in_order()] == [7, 5, 3]
    for name in (OFFSETS, "__transaction_state"):
        made = cluster.topics.get(name)
        assert made is not None
        assert made.configs["cleanup.policy"] == "compact"


def test_auto_creation_fails_quietly() -> None:
    for cluster in (
        memory_cluster(storage=FullDisk()),
        memory_cluster(config=BrokerConfig(default_replication_factor=3)),
        memory_cluster(config=BrokerConfig(muster_max_partitions=4, num_partitions=5)),
    ):
        assert ask(cluster, "new") == ask(cluster, "new") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_asking_once_makes_so_many_topics_and_asking_again_the_next_ones() -> None:
    cluster = memory_cluster()
    wanted = [f"t{number}" for number in range(250)]
    there = []
    for _ in range(3):
        ask(cluster, *wanted)
        there.append(len(cluster.topics))
    assert there == [100, 200, 250]
    assert ask(cluster, *wanted) == [ErrorCode.NONE] * 250


def test_asking_once_makes_so_many_partitions() -> None:
    cluster = memory_cluster(config=BrokerConfig(num_partitions=400))
    ask(cluster, "a", "b", "c")
    assert names(cluster) == ["a", "b"]
    large = memory_cluster(config=BrokerConfig(num_partitions=4_000))
    ask(large, "a", "b", "c")
    assert names(large) == ["a"]


def test_a_topic_made_by_asking_is_there_the_next_time() -> None:
    cluster = memory_cluster()
    assert ask(cluster, "new", may_create=False) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert names(cluster) == []
    assert ask(cluster, "new") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert ask(cluster, "new") == [ErrorCode.NONE]


def test_a_topic_made_by_asking_is_told_at_once_where_that_is_wanted() -> None:
    cluster = memory_cluster(config=BrokerConfig(muster_tell_new_topics=True, num_partitions=2))
    request = MetadataRequest(12, (TopicAsked("new"), TopicAsked("bad name")))
    plan = plan_metadata(request, cluster)
    failed = plan.answer([MusterError("no room")]).topics
    assert [topic.error for topic in failed] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    new, bad = plan.answer([None]).topics
    assert (new.error, new.topic_id, len(new.leader_epochs)) == (ErrorCode.NONE, plan.changes[0].topic.topic_id, 2)
    assert bad.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_limit_on_partitions() -> None:
    cluster = memory_cluster(a_topic("there", 3), config=BrokerConfig(muster_max_partitions=10))
    refused = (ErrorCode.POLICY_VIOLATION, "muster.max.partitions is 10.")
    assert create(cluster, NewTopic("a", 8)) == [refused]
    assert create(cluster, NewTopic("a", 4), NewTopic("b", 4)) == [(ErrorCode.NONE, None), refused]
    assert grow(cluster, MorePartitions("there", 7)) == [refused]
    assert grow(cluster, MorePartitions("there", 6)) == [(ErrorCode.NONE, None)]
    assert cluster.topics.partition_count == 10
    assert delete(cluster, "a") == [ErrorCode.NONE]
    assert create(cluster, NewTopic("b", 4)) == [(ErrorCode.NONE, None)]


def test_too_many_partitions_at_once() -> None:
    cluster = memory_cluster(a_topic("a"), a_topic("b"), config=BrokerConfig(muster_max_partitions=1_000_000))
    wanted = [MorePartitions("a", 6_000), MorePartitions("b", 6_000), MorePartitions("missing", 2)]
    assert [error for error, _ in grow(cluster, *wanted)] == [
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert grow(cluster, MorePartitions("a", 2**31 - 1))[0][0] is ErrorCode.POLICY_VIOLATION
    assert cluster.topics.partition_count == 2
    assert create(cluster, NewTopic("c", 2**31 - 1))[0][0] is ErrorCode.POLICY_VIOLATION


def test_a_disk_that_fails_is_an_error_for_the_topic() -> None:
    cluster = memory_cluster(storage=FullDisk([a_topic("there")]))
    assert create(cluster, NewTopic("a", 1), NewTopic("bad name", 1)) == [
        (ErrorCode.KAFKA_STORAGE_ERROR, "topic could not be made: no space left"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'bad name' contains one or more characters other "
         "than ASCII alphanumerics, '.', '_' and '-'"),
    ]  # fmt: skip
    assert grow(cluster, MorePartitions("there", 2))[0][0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert delete(cluster, "there") == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert names(cluster) == ["there"]


def test_validation_changes_nothing() -> None:
    cluster = memory_cluster(a_topic("there"))
    make(plan_create_topics, CreateTopicsRequest((NewTopic("a", 1),), validate_only=True), cluster)
    make(plan_create_partitions, CreatePartitionsRequest((MorePartitions("there", 9),), validate_only=True), cluster)
    assert cluster.topics.in_order() == [a_topic("there")]


def test_a_default_of_more_replicas_than_there_are_nodes() -> None:
    cluster = memory_cluster(config=BrokerConfig(default_replication_factor=3))
    assert create(cluster, NewTopic("a"))[0][0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(cluster, NewTopic("a", 1, 1))[0][0] is ErrorCode.NONE


def test_the_offsets_topic_is_protected() -> None:
    cluster = memory_cluster(a_topic(OFFSETS, 4), a_topic("a"))
    assert delete(cluster, OFFSETS, "a") == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert grow(cluster, MorePartitions(OFFSETS, 9))[0][0] is ErrorCode.INVALID_REQUEST
    assert cluster.topics.in_order() == [a_topic(OFFSETS, 4)]


@pytest.mark.parametrize(("version", "error"), [(1, 42), (2, 42), (3, 73), (6, 73)])
def test_deletion_can_be_turned_off(version: int, error: int) -> None:
    cluster = memory_cluster(a_topic("a"), config=BrokerConfig(delete_topic_enable=False))
    assert delete(cluster, "a", "missing", version=version) == [error, error]
    assert names(cluster) == ["a"]


def test_a_deleted_topic_of_the_same_name_has_another_id() -> None:
    cluster = memory_cluster()
    create(cluster, NewTopic("a", 1))
    first = cluster.topics.get("a")
    delete(cluster, "a")
    create(cluster, NewTopic("a", 1))
    second = cluster.topics.get("a")
    assert first is not None
    assert second is not None
    assert first.topic_id != second.topic_id


def test_what_a_topic_was_given_is_kept_as_it_was_given() -> None:
    cluster = memory_cluster()
    create(cluster, NewTopic("a", 1, configs=(("retention.ms", "1"), ("retention.ms", " 2 "))))
    made = cluster.topics.get("a")
    assert made is not None
    assert dict(made.configs) == {"retention.ms": " 2 "}


def test_a_value_longer_than_any_honest_one_is_refused() -> None:
    replicas = ",".join(["0:1"] * 9_000)
    cluster = memory_cluster()
    error, message = create(cluster, NewTopic("a", 1, configs=(("leader.replication.throttled.replicas", replicas),)))[
        0
    ]
    assert error is ErrorCode.INVALID_CONFIG
    assert message is not None
    assert len(message) < 200


def described(cluster: Cluster, kind: int, name: str, *keys: str) -> ResourceDescribed:
    request = DescribeConfigsRequest((ResourceAsked(kind, name, keys),), True, True)
    return describe_configs(request, cluster).resources[0]


def test_a_resource_is_described_once_in_a_request() -> None:
    """The answer grows with what is asked, not with how often."""
    cluster = memory_cluster(a_topic("a"))
    once = (ResourceAsked(TOPIC, "a"), ResourceAsked(BROKER, "1"), ResourceAsked(TOPIC, "a", ("retention.ms",)))
    (topic, node, part, *repeated) = describe_configs(DescribeConfigsRequest(once * 300), cluster).resources
    assert len(topic.configs) > 20
    assert len(node.configs) > 20
    assert [config.name for config in part.configs] == ["retention.ms"]
    assert {one.error for one in repeated} == {ErrorCode.INVALID_REQUEST}
    assert not any(one.configs for one in repeated)


def test_all_settings_of_a_resource_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr(
        "muster.server.cluster.describe_configs.broker_configs",
        lambda *given, **how: looked_up.append(given) or broker_configs(*given, **how),
    )
    asked = tuple(ResourceAsked(BROKER, "1", ("num.partitions", f"x{number}")) for number in range(500))
    answer = describe_configs(DescribeConfigsRequest(asked), memory_cluster())
    assert [[config.name for config in one.configs] for one in answer.resources] == [["num.partitions"]] * 500
    assert len(looked_up) == 1


def test_a_setting_that_no_longer_means_anything_is_shown_as_it_is() -> None:
    """The registry is a file: somebody may have edited it, or another release written it."""
    cluster = memory_cluster(a_topic("a", retention_ms="soon", unheard_of="1"))
    configs = described(cluster, TOPIC, "a").configs
    assert {config.name: config.value for config in configs}["retention.ms"] == "soon"
    assert "unheard.of" not in [config.name for config in configs]


def test_the_value_in_force_of_one_setting() -> None:
    broker = BrokerConfig(log_retention_hours=2, log_cleanup_policy=("compact",))
    given = {"segment.ms": " 77 ", "retention.ms": "soon", "segment.bytes": "-5", "preallocate": "TRUE"}
    assert typed("segment.ms", given, broker) == 77
    assert typed("preallocate", given, broker) is True
    assert typed("retention.ms", given, broker) == 7_200_000, "not a number: as if it were not given"
    assert typed("segment.bytes", given, broker) == 1 << 30, "less than nothing: the same"
    assert typed("segment.bytes", {"segment.bytes": "5"}, broker) == 5, "offsets.topic.segment.bytes may be so small"
    assert typed("segment.ms", {"segment.ms": "0"}, broker) == 604_800_000
    assert typed("cleanup.policy", given, broker) == ("compact",)
    assert typed("flush.ms", given, broker) == 2**63 - 1


def test_broker_settings_have_our_help_beside_them() -> None:
    cluster = memory_cluster(config=BrokerConfig(num_partitions=4))
    (config,) = described(cluster, BROKER, "1", "num.partitions").configs
    assert config.value == "4"
    assert [(synonym.value, synonym.source) for synonym in config.synonyms] == [("4", 4), ("1", 5)]
    assert config.documentation == "partitions of a topic made without saying how many"
    assert "muster.max.groups" in [config.name for config in described(cluster, BROKER, "1").configs]
    assert described(cluster, GROUP, "some-group").configs == []


def test_metadata_tells_the_epochs_of_the_logs() -> None:
    cluster = memory_cluster(a_topic("a", 3), partition_of=lambda topic, partition: EmptyPartition(partition * 10))
    answer = make(plan_metadata, MetadataRequest(12, None), cluster)
    assert answer.topics[0].leader_epochs == (0, 10, 20)
