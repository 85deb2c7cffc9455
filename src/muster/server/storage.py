"""Where the server keeps its topics: a `LogDirectory`, as the cluster's handlers see it."""

import base64
from collections.abc import Iterable
from dataclasses import replace

from muster.core.config import GroupConfig
from muster.log.directory import LogDirectory
from muster.log.partition_config import Flush, LogConfig
from muster.log.sources import OFFSETS_TOPIC
from muster.log.topics import Topic as StoredTopic
from muster.log.topics import new_topic_id
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import Topic
from muster.server.config import BrokerConfig


def log_config(topic: StoredTopic, broker: BrokerConfig, groups: GroupConfig) -> LogConfig:
    """The settings of one topic's logs: its own, else the broker's."""

    def value(name: str) -> int:
        found = typed(name, topic.configs, broker)
        assert isinstance(found, int)
        return found

    policy = typed("cleanup.policy", topic.configs, broker)
    config = LogConfig(
        segment_bytes=value("segment.bytes"),
        segment_ms=value("segment.ms"),
        segment_index_bytes=value("segment.index.bytes"),
        index_interval_bytes=value("index.interval.bytes"),
        max_message_bytes=value("max.message.bytes"),
        log_append_time=typed("message.timestamp.type", topic.configs, broker) == "LogAppendTime",
        timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        compacted="compact" in (policy if isinstance(policy, tuple) else ()),
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
    )
    if topic.name != OFFSETS_TOPIC:
        return config
    return replace(
        config, compacted=True, codec=groups.offsets_topic_compression_codec, flush=Flush(broker.muster_flush)
    )


class DirectoryTopics:
    """The topics of a data directory; ids as sixteen bytes, where the directory has Kafka's 22 letters."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory

    def create(self, topic: Topic) -> None:
        self._directory.create_topic(topic.name, topic.partitions, topic.configs, _letters(topic.topic_id))

    def delete(self, name: str) -> None:
        self._directory.delete_topic(name)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._directory.add_partitions(name, partitions)

    def topics(self) -> Iterable[Topic]:
        for stored in self._directory.registry.topics():
            yield Topic(stored.name, _sixteen_bytes(stored.topic_id), stored.partitions, stored.configs)


def fresh_topic_id() -> bytes:
    """Sixteen random bytes that do not begin with a dash when Kafka's tools spell them."""
    return _sixteen_bytes(new_topic_id())


def _letters(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _sixteen_bytes(letters: str) -> bytes:
    return base64.urlsafe_b64decode(letters + "==")
