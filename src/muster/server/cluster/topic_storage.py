"""Where the server keeps its topics (a `LogDirectory`), and the queue of requests that change them.

`TopicChanges` handles such requests one after the other, beside everything else. Each is decided on the loop, by the
topics that there are when its turn comes; made by a thread, since a disk takes its time; and seen on the loop.
Heartbeats and commits are answered meanwhile. The answer to a deletion waits until the deletion of the topics' offsets
is durable, too. Small requests may wait as many as there are clients. Large ones wait only as long as all that wait
take little memory.

If the disk fails so that it is not known whether a change was made, the request and those behind it wait until that is
settled (`Patience`); logs of a topic that may be deleted are out of use meanwhile.
"""

import asyncio
import base64
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from muster.codec.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.errors import ConfigError, LogDamaged, MusterError
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.topic_changes import Logs
from muster.log.topics import Topic as StoredTopic
from muster.log.topics import TopicRefused
from muster.segments.checkpoints import new_topic_id
from muster.segments.sources import OFFSETS_TOPIC
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.create_topics import CreateTopicsRequest, NewTopic, plan_create_topics
from muster.server.cluster.topic_configs import typed
from muster.server.cluster.topics import (
    NO_CONFIGS,
    TRANSACTIONS_TOPIC,
    Happened,
    Outcome,
    Plan,
    Topic,
    TopicChange,
    Topics,
    name_problem,
)
from muster.server.connection import PendingReply
from muster.server.connections import RESERVE_BYTES

Result = TypeVar("Result")
MOST_WAITING_BYTES = 16 << 20
"""Of requests that wait for their turn, besides the small ones."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
RECOMPRESS_TO = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""By `compression.type`; the other one is `producer`, whose batches are kept as they come."""
FILES_OF_A_LOG = 3
"""That a log keeps open: records, and two indexes."""


def log_config(topic: StoredTopic, broker: BrokerConfig, groups: GroupConfig) -> LogConfig:
    """The settings of one topic's logs: its own, else the broker's."""

    def value(name: str) -> int:
        found = typed(name, topic.configs, broker)
        assert isinstance(found, int)
        return found

    codec = typed("compression.type", topic.configs, broker)
    level = value(f"compression.{codec}.level") if codec in ("gzip", "lz4", "zstd") else None
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
        recompress_to=RECOMPRESS_TO.get(str(codec)),
        compression_level=level,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        flush=Flush(broker.muster_flush),
    )
    if topic.name == TRANSACTIONS_TOPIC:
        return replace(config, compacted=True)
    if topic.name != OFFSETS_TOPIC:
        return config
    return replace(config, compacted=True, codec=groups.offsets_topic_compression_codec)


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
        """Take the logs of topics that are to be deleted out of use."""
        self._let_go = self._directory.let_go(
            {topic.name for happened, topic in changes if happened is Happened.DELETED}
        )

    def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
        outcomes: dict[str, Outcome] = {}
        deleted = [_stored(topic) for happened, topic in changes if happened is Happened.DELETED]
        if deleted:
            outcomes |= dict.fromkeys([topic.name for topic in deleted], self._removed(deleted))
        configured = [_stored(topic) for happened, topic in changes if happened is Happened.CONFIGURED]
        if configured:
            outcomes |= dict.fromkeys([topic.name for topic in configured], self._configured(configured))
        wanted = [_stored(topic) for happened, topic in changes if happened in (Happened.CREATED, Happened.GROWN)]
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

    def _configured(self, topics: Sequence[StoredTopic]) -> Outcome:
        try:
            self._directory.registry.put(*map(self._directory.registry.with_plan, topics))
        except OSError as error:
            return LogDamaged(f"the settings could not be written: {error}. Nothing was changed.")
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
        for (happened, topic), error in zip(changes, outcomes, strict=True):
            if happened is Happened.CONFIGURED and error is None:
                self._directory.settings_changed(topic.name)

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


class Patience:
    """Pauses before the registry is written once more, in the thread that changes topics, until the server stops."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._has_ended = threading.Event()

    def __call__(self, failures: int, error: OSError) -> bool:
        if failures == 1:
            self._tell(
                f"{error}: it is not known whether the last change of topics is on the disk. It is taken back as soon "
                "as the disk can be written. Until then topics are not changed, and requests for that not answered. "
                "Look after the disk"
            )
        pause_s = min(FIRST_PAUSE_S * 2 ** min(failures - 1, 16), LONGEST_PAUSE_S)
        return not self._has_ended.wait(pause_s)

    def end(self) -> None:
        self._has_ended.set()


class TopicChanges:
    """Requests that change topics, one after the other.

    `forget_offsets` gets the partitions of deleted topics, and what to call when their offsets are durably forgotten.
    """

    def __init__(
        self,
        topics: Topics,
        forget_offsets: Callable[[Iterable[tuple[str, int]], Callable[[], None]], None],
        complain: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self._topics = topics
        self._forget_offsets = forget_offsets
        self._complain = complain
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # which lets its waiters in as they came
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._under_way: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    def submit(self, plan: Callable[[], Plan], reply: PendingReply, size_bytes: int) -> None:
        """Carry out what a request of so many bytes wants when its turn comes, and answer it.

        `MusterError` if it is large and has to wait behind many that are.
        """
        if size_bytes > RESERVE_BYTES and self._waiting_bytes + size_bytes > MOST_WAITING_BYTES and self.is_busy:
            raise MusterError(
                f"a request of {size_bytes} bytes that changes topics, and {self._waiting_bytes} bytes of such "
                f"requests wait already; {MOST_WAITING_BYTES} may"
            )
        task = self._loop.create_task(self._answer(plan, reply))
        self._under_way.add(task)
        self._waiting_bytes += size_bytes
        task.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._waiting_bytes -= size_bytes

    async def _answer(self, plan: Callable[[], Plan], reply: PendingReply) -> None:
        try:
            reply.answer(await self.carry_out(plan))
        except Exception as error:  # of this request alone
            self._complain(f"a change of topics failed: {type(error).__name__}: {error}")
            reply.connection.drop("its request could not be answered")

    async def carry_out(self, plan: Callable[[], Plan]) -> Any:
        """Decide, make, see; returns the answer."""
        async with self._turn:
            decided = plan()
            changes = decided.changes
            if not changes:
                return decided.answer([])
            if self._is_stopping:
                return decided.answer([MusterError("The server stops.")] * len(changes))
            self._topics.begin(changes)
            outcomes = await self._loop.run_in_executor(self._thread, self._topics.make, changes)
            made = self._topics.finish(changes, outcomes)
        gone = [change for change in made if change.happened is Happened.DELETED]
        if gone:
            durable = asyncio.Event()
            partitions = [(topic.name, number) for _, topic in gone for number in range(topic.partitions)]
            self._forget_offsets(partitions, durable.set)
            await durable.wait()
        return decided.answer(outcomes)

    async def between(self, work: Callable[[], Result]) -> Result:
        """Do something, in the thread that makes the changes, while no topic is made or deleted."""
        async with self._turn:
            return await self._loop.run_in_executor(self._thread, work)

    async def create_topic(
        self, cluster: Cluster, name: str, partitions: int, configs: Mapping[str, Any] = NO_CONFIGS
    ) -> None:
        """For a program that runs the broker inside itself. Raises `MusterError`."""
        there = self._topics.get(name)
        if there is not None:
            raise ConfigError(f"topic {name} exists already, with {there.partitions} partitions.")
        problem = name_problem(name) or ("a topic has one partition at least" if partitions < 1 else None)
        if problem is not None:
            raise ConfigError(f"topic {name} of {partitions} partitions cannot be made: {problem}.")
        given = tuple((config, str(value)) for config, value in configs.items())
        request = CreateTopicsRequest((NewTopic(name, partitions, replicas=1, configs=given),))
        (created,) = (await self.carry_out(partial(plan_create_topics, request, cluster))).topics
        if created.error is not ErrorCode.NONE:
            raise ConfigError(f"topic {name} of {partitions} partitions was not made: {created.message}")

    async def stop(self) -> None:
        """Let the one that is being made come to its end; the others are not begun any more."""
        self._is_stopping = True
        self._patience.end()
        try:
            if self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            self._thread.shutdown(wait=False)
