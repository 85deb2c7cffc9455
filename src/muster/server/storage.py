"""Where the server keeps its topics: a `LogDirectory`, as the cluster's handlers see it."""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.errors import LogDamaged
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.topic_changes import Logs
from muster.log.topics import Topic as StoredTopic
from muster.log.topics import TopicRefused, new_topic_id
from muster.segments.sources import OFFSETS_TOPIC
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import Happened, Outcome, Topic, TopicChange

FILES_OF_A_LOG = 3
"""That a log keeps open: records, and two indexes."""


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

    def __init__(
        self,
        directory: LogDirectory,
        room_for_files: Callable[[], int],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._directory = directory
        self._room_for_files = room_for_files
        """How many files more may be open."""
        self._tell = tell
        self._let_go: Logs = {}
        self._made: Logs = {}

    def begin(self, changes: Sequence[TopicChange]) -> None:
        """Nobody uses the logs any more of topics that are to be deleted."""
        self._let_go = self._directory.let_go(
            {topic.name for happened, topic in changes if happened is Happened.DELETED}
        )

    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        outcomes: dict[str, Outcome] = {}
        deleted = [_stored(topic) for happened, topic in changes if happened is Happened.DELETED]
        if deleted:
            outcomes |= dict.fromkeys([topic.name for topic in deleted], self._removed(deleted))
        wanted = [_stored(topic) for happened, topic in changes if happened is not Happened.DELETED]
        refused = self._too_many_files(wanted)
        self._made = {}
        for made in self._directory.make_topics([topic for topic in wanted if topic.name not in refused]):
            outcomes[made.topic.name] = made.error
            self._made |= made.logs
        outcomes |= refused
        return [outcomes[change.topic.name] for change in changes]

    def _removed(self, topics: Sequence[StoredTopic]) -> Outcome:
        try:
            left = self._directory.remove_topics(topics, self._let_go)
        except LogDamaged as error:
            return error
        self._let_go = {}
        if left is not None:
            self._tell(left)
        return None

    def _too_many_files(self, wanted: Sequence[StoredTopic]) -> dict[str, Outcome]:
        """Topics for whose logs there is no room among the open files: refused before anything is made of them."""
        refused: dict[str, Outcome] = {}
        if not wanted:
            return refused
        room = self._room_for_files()
        for topic in wanted:
            known = self._directory.registry.get(topic.name)
            partitions = topic.partitions - (0 if known is None else known.partitions)
            if partitions * FILES_OF_A_LOG > room:
                refused[topic.name] = TopicRefused(
                    ErrorCode.POLICY_VIOLATION,
                    f"{partitions} partitions keep {partitions * FILES_OF_A_LOG} files open, and there is room for "
                    f"{max(room, 0)}. Raise the limit of open files (`ulimit -n`) of the server, or make fewer.",
                )
            else:
                room -= partitions * FILES_OF_A_LOG
        return refused

    def finish(self, changes: Sequence[TopicChange], outcomes: Sequence[Outcome]) -> None:
        self._directory.adopt(self._made)
        self._directory.adopt(self._let_go)  # of topics that are not deleted after all
        self._made, self._let_go = {}, {}

    def topics(self) -> Iterable[Topic]:
        for stored in self._directory.registry.topics():
            yield Topic(stored.name, _sixteen_bytes(stored.topic_id), stored.partitions, stored.configs)


def fresh_topic_id() -> bytes:
    """Sixteen random bytes that do not begin with a dash when Kafka's tools spell them."""
    return _sixteen_bytes(new_topic_id())


def _stored(topic: Topic) -> StoredTopic:
    return StoredTopic(topic.name, _letters(topic.topic_id), topic.partitions, dict(topic.configs))


def _letters(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _sixteen_bytes(letters: str) -> bytes:
    return base64.urlsafe_b64decode(letters + "==")
