"""muster's side of the cluster as a function of bytes, with topics in memory."""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.protocol.apis import ApiKey
from muster.server.cluster import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    topic_partitions,
)
from muster.server.cluster.cluster import EMPTY_PARTITION, Cluster, Node, PartitionOffsets
from muster.server.cluster.fetch import ParkedFetch
from muster.server.cluster.topics import MemoryTopics, Topic, Topics, TopicStorage

MODULES: dict[int, ModuleType] = {
    ApiKey.METADATA: metadata,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_partitions,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.FETCH: fetch,
}
CLUSTER_ID = "bXVzdGVyLXRlc3Qta2l0LTE"


def memory_cluster(
    *topics: Topic,
    config: BrokerConfig | None = None,
    groups: GroupConfig | None = None,
    storage: TopicStorage | None = None,
    partition_of: Callable[[Topic, int], PartitionOffsets] = lambda topic, partition: EMPTY_PARTITION,
    host: str = "127.0.0.1",
    port: int = 9092,
) -> Cluster:
    return Cluster(
        CLUSTER_ID,
        Node(1, host, port),
        Topics(storage or MemoryTopics(topics)),
        lambda: os.urandom(16),
        config or BrokerConfig(),
        groups or GroupConfig(),
        partition_of,
    )


def a_topic(name: str, partitions: int = 1, **configs: str) -> Topic:
    """A topic whose id says its name, so that failures can be read."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return Topic(name, name.encode()[:16].rjust(16, b"\x01"), partitions, given)


def answered(
    api_key: int, version: int, data: bytes, position: int, end: int | None, cluster: Cluster
) -> tuple[bytes, bool]:
    """The frame of the answer, and whether the client had to wait for it."""
    module: Any = MODULES[api_key]
    request = module.decode(version, data, position, end)
    outcome = module.handle(request, cluster, 0) if module is fetch else module.handle(request, cluster)
    waits = isinstance(outcome, ParkedFetch)
    if waits:
        outcome = fetch.complete(outcome, cluster)
    return module.encode(version, 7, outcome), waits
