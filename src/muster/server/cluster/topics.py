"""The topics there are: a view in memory of what the storage holds, changed through it alone.

A change is made in the storage first, then seen here, then told to whoever listens; so a listener (the coordinator, who
forgets a deleted topic's offsets; fetches that wait for it) never acts on something that a crash could take back.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from muster.server.cluster.names import metric_name

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = NO_CONFIGS
    """Only what was given when it was made; everything else has its default."""


class TopicStorage(Protocol):
    """Where topics outlive us. A change is durable when its method returns; `LogDamaged` where it could not be made."""

    def create(self, topic: Topic) -> None: ...

    def delete(self, name: str) -> None: ...

    def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have so many partitions in all."""

    def topics(self) -> Iterable[Topic]: ...


class MemoryTopics:
    """A storage that forgets everything at the end."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self._topics = {topic.name: topic for topic in topics}

    def create(self, topic: Topic) -> None:
        self._topics[topic.name] = topic

    def delete(self, name: str) -> None:
        del self._topics[name]

    def add_partitions(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name]._replace(partitions=partitions)

    def topics(self) -> list[Topic]:
        return list(self._topics.values())


class Happened(Enum):
    CREATED = "created"
    DELETED = "deleted"
    GROWN = "has more partitions"


class TopicChange(NamedTuple):
    happened: Happened
    topic: Topic
    """As it is now; of a deleted one, as it was."""


Listener = Callable[[TopicChange], None]


class Topics:
    """All topics, by name and by id."""

    def __init__(self, storage: TopicStorage) -> None:
        self._storage = storage
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_metric_name: dict[str, dict[str, None]] = {}
        self._sorted: list[Topic] | None = None
        self._listeners: list[Listener] = []
        self.partition_count = 0
        for topic in storage.topics():
            self._put(topic)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def in_order(self) -> list[Topic]:
        """All of them, by name. Not to be changed."""
        if self._sorted is None:
            self._sorted = sorted(self._by_name.values())
        return self._sorted

    def clash(self, name: str) -> str | None:
        """A topic whose name differs in nothing but dots and underscores, if there is one."""
        seen_as = metric_name(name)
        return None if seen_as is None else next(iter(self._by_metric_name.get(seen_as, ())), None)

    def listen(self, listener: Listener) -> None:
        """Hear of every change from now on, in the order in which they are made."""
        self._listeners.append(listener)

    def create(self, topic: Topic) -> None:
        assert topic.name not in self._by_name
        assert topic.topic_id not in self._by_id
        self._storage.create(topic)
        self._put(topic)
        self._tell(TopicChange(Happened.CREATED, topic))

    def delete(self, name: str) -> None:
        topic = self._by_name[name]
        self._storage.delete(name)
        self._drop(topic)
        self._tell(TopicChange(Happened.DELETED, topic))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have so many partitions in all, which must be more than it has."""
        topic = self._by_name[name]
        assert partitions > topic.partitions
        self._storage.add_partitions(name, partitions)
        grown = topic._replace(partitions=partitions)
        self._drop(topic)
        self._put(grown)
        self._tell(TopicChange(Happened.GROWN, grown))

    def _put(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.partition_count += topic.partitions
        seen_as = metric_name(topic.name)
        if seen_as is not None:
            self._by_metric_name.setdefault(seen_as, {})[topic.name] = None
        self._sorted = None

    def _drop(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        self.partition_count -= topic.partitions
        seen_as = metric_name(topic.name)
        if seen_as is not None:
            del self._by_metric_name[seen_as][topic.name]
            if not self._by_metric_name[seen_as]:
                del self._by_metric_name[seen_as]
        self._sorted = None

    def _tell(self, change: TopicChange) -> None:
        for listener in self._listeners:
            listener(change)
