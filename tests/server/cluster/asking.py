"""muster's side of the cluster as a function of bytes, with topics in memory."""

import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.protocol.apis import ApiKey
from muster.server.cluster import create_topics, delete_topics, describe_configs, list_offsets, metadata
from muster.server.cluster.cluster import EMPTY_PARTITION, Cluster, ClusterApi, Node, PartitionOffsets
from muster.server.cluster.topics import Happened, Outcome, Plan, Topic, TopicChange, Topics, TopicStorage
from muster.server.records import fetch
from muster.server.records.fetch import ParkedFetch
from muster.server.records.fetch_sessions import FetchSessions

MODULES: tuple[ModuleType, ...] = (create_topics, delete_topics, describe_configs, list_offsets, metadata)
APIS: dict[int, ClusterApi] = {api_key: api for module in MODULES for api_key, api in module.APIS.items()}
NO_SESSIONS = FetchSessions(0, 0, lambda: 0)
CLUSTER_ID = "bXVzdGVyLXRlc3Qta2l0LTE"


class MemoryTopics:
    """A storage that forgets everything at the end."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self._topics = {topic.name: topic for topic in topics}

    def begin(self, changes: Sequence[TopicChange]) -> None: ...

    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        for happened, topic in changes:
            if happened is Happened.DELETED:
                del self._topics[topic.name]
            else:
                self._topics[topic.name] = topic
        return [None] * len(changes)

    def finish(self, changes: Sequence[TopicChange], outcomes: Sequence[Outcome]) -> None: ...

    def topics(self) -> list[Topic]:
        return list(self._topics.values())


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


def delete(topics: Topics, name: str) -> None:
    topic = topics.get(name)
    assert topic is not None
    change(topics, TopicChange(Happened.DELETED, topic))


def grow(topics: Topics, name: str, partitions: int) -> None:
    topic = topics.get(name)
    assert topic is not None
    change(topics, TopicChange(Happened.GROWN, topic._replace(partitions=partitions)))


def change(topics: Topics, wanted: TopicChange) -> None:
    (problem,) = topics.carry_out(Plan([wanted], lambda outcomes: outcomes))
    if problem is not None:
        raise problem


def answered(
    api_key: int, version: int, data: bytes, position: int, end: int | None, cluster: Cluster
) -> tuple[bytes, bool]:
    """The frame of the answer, and whether the client had to wait for it."""
    if api_key == ApiKey.FETCH:
        asked = fetch.decode(version, data, position, end)
        visit = NO_SESSIONS.visit(asked)
        if isinstance(visit, ErrorCode):
            return fetch.encode(version, 7, fetch.FetchAnswer((), visit)), False
        outcome = fetch.handle(asked._replace(partitions=visit.partitions), cluster, 0)
        if isinstance(outcome, ParkedFetch):
            return fetch.encode(version, 7, visit.answer(fetch.complete(outcome, cluster))), True
        return fetch.encode(version, 7, visit.answer(outcome)), False
    api = APIS[api_key]
    request = api.decode(version, data, position, end)
    return api.encode(version, 7, carried_out(api, request, cluster)), False


def carried_out(api: ClusterApi, request: Any, cluster: Cluster) -> Any:
    """The answer to a request, with what it changes made here and now."""
    if api.answer is not None:
        return api.answer(request, cluster)
    assert api.plan is not None
    return cluster.topics.carry_out(api.plan(request, cluster))
