"""The topics there are: a view in memory of what the storage holds, changed through it alone. And their names.

A change is made in the storage first, then seen here, then told to the listeners; so a listener (the coordinator, which
forgets a deleted topic's offsets; fetches that wait for it) never acts on something that a crash could take back.

The storage may take its time. What a request wants to change is a `Plan`: decided by the topics there are, made in the
storage (which a server leaves to a thread, one plan after the other), seen here, answered.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from muster.codec.error_codes import ErrorCode
from muster.errors import MusterError
from muster.log.topics import ChangeUnsettled, TopicRefused

LONGEST_NAME = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
METADATA_TOPIC = "__cluster_metadata"
"""The log of Kafka's controllers. No topic may be called that."""

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC})
COORDINATED_TOPICS = {
    OFFSETS_TOPIC: "groups", TRANSACTIONS_TOPIC: "transactions",
}  # fmt: skip
"""Those whose partitions have coordinators here, and what they hold."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = NO_CONFIGS
    """Only what was given to it; everything else has its default."""


class Happened(Enum):
    CREATED = "created"
    DELETED = "deleted"
    GROWN = "has more partitions"
    CONFIGURED = "has other settings"


class TopicChange(NamedTuple):
    happened: Happened
    topic: Topic
    """As it is then; of a deleted one, as it was."""


Outcome = MusterError | None
"""Why a change was not made; None if it was."""


class TopicStorage(Protocol):
    """Where topics outlive us. A change is made in three steps, since the long one may run in another thread."""

    def begin(self, changes: Sequence[TopicChange]) -> None:
        """In the thread of the topics."""

    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        """Make changes last, each wholly or not at all. In any thread, one call at a time."""

    def finish(self, changes: Sequence[TopicChange], outcomes: Sequence[Outcome]) -> None:
        """In the thread of the topics."""

    def topics(self) -> Iterable[Topic]: ...


class Plan(NamedTuple):
    """What a request changes, of each topic one thing at most, and the answer to it when that is made or not."""

    changes: Sequence[TopicChange]
    answer: Callable[[Sequence[Outcome]], Any]
    not_made: Sequence[tuple[str, str]] = ()
    """Topics that are wanted and not made, each with the reason, where no answer tells it: it is for the log."""


def refusal_of(error: MusterError) -> tuple[ErrorCode, str]:
    """What a client hears of a change that was not made."""
    return (error.error if isinstance(error, TopicRefused) else ErrorCode.KAFKA_STORAGE_ERROR), str(error)


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

    def carry_out(self, plan: Plan) -> Any:
        """Do what a plan says, here and now; returns its answer."""
        self.begin(plan.changes)
        outcomes = self.make(plan.changes)
        self.finish(plan.changes, outcomes)
        return plan.answer(outcomes)

    def begin(self, changes: Sequence[TopicChange]) -> None:
        self._storage.begin(changes)

    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        """May run in another thread. Whatever goes wrong is an outcome, unless that is not known: `ChangeUnsettled`."""
        try:
            return self._storage.make(changes)
        except ChangeUnsettled:
            raise
        except Exception as error:
            return [MusterError(f"unexpected: {type(error).__name__}: {error}")] * len(changes)

    def finish(self, changes: Sequence[TopicChange], outcomes: Sequence[Outcome]) -> list[TopicChange]:
        """See what was made, and tell it; returns that."""
        self._storage.finish(changes, outcomes)
        made = [change for change, error in zip(changes, outcomes, strict=True) if error is None]
        for change in made:
            known = self._by_name.get(change.topic.name)
            if known is not None:
                self._drop(known)
            if change.happened is not Happened.DELETED:
                self._put(change.topic)
            self._tell(change)
        return made

    def create(self, topic: Topic) -> None:
        """Make a topic, here and now; raises what keeps it from being made."""
        assert topic.name not in self._by_name
        assert topic.topic_id not in self._by_id
        (problem,) = self.carry_out(Plan([TopicChange(Happened.CREATED, topic)], lambda outcomes: outcomes))
        if problem is not None:
            raise problem

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


def name_problem(name: str) -> str | None:
    """Why a topic cannot be called that, in Kafka's words; None if it can."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > LONGEST_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def metric_name(name: str) -> str | None:
    """What two topics must not have in common: in the names of Kafka's metrics, dots and underscores look the same.

    None for a name that has neither, and so cannot clash.
    """
    return name.replace(".", "_") if "." in name or "_" in name else None


def assignment_problem(node_ids: Sequence[int], node_id: int) -> str | None:
    """What is wrong with the replicas of one partition, in Kafka's words."""
    if not node_ids:
        return "The manual partition assignment includes an empty replica list."
    ordered = sorted(node_ids)
    for before, one in zip([None, *ordered], ordered, strict=False):
        if one == before:
            return f"The manual partition assignment includes the broker {one} more than once."
        if one != node_id:
            return f"The manual partition assignment includes broker {one}, but no such broker is registered."
    return None
