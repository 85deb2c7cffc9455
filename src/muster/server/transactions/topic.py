"""`__transaction_state`: made when a client first asks for a coordinator of transactions, and led from then on."""

import asyncio
import time
from collections.abc import Callable, Sequence

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.transactions.config import TransactionConfig
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.transactions import replay_transactions
from muster.errors import described
from muster.log.partition import DiskLog
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.metadata import transactions_topic_configs
from muster.server.cluster.topic_storage import TopicChanges
from muster.server.cluster.topics import TRANSACTIONS_TOPIC, Happened, Outcome, Plan, Topic, TopicChange
from muster.server.leadership import Leadership, Loaded, Progress
from muster.server.server_log import ServerLog


def transaction_config(config: BrokerConfig, log: DiskLog) -> TransactionConfig:
    return TransactionConfig(
        config.transaction_max_timeout_ms,
        config.transactional_id_expiration_ms,
        config.muster_max_transactional_ids,
        min(log.config.max_message_bytes, log.config.segment_bytes),
    )


def load_transactions(
    config: BrokerConfig, log: DiskLog, progress: Progress, in_all_bytes: int, epoch: int
) -> Loaded[TransactionCoordinator]:
    """Raises `LoadFailed` where the log must not be served."""
    started = time.perf_counter()
    coordinator = TransactionCoordinator(transaction_config(config, log), epoch)
    report = replay_transactions(
        coordinator.table,
        log.batches(buffer_bytes=config.transaction_state_log_load_buffer_size),
        progress=lambda report: progress(report.records, report.size_bytes),
    )
    seconds = time.perf_counter() - started
    return Loaded(coordinator, report.records, (report.transactional_ids, 0), report.problems, seconds)


class TransactionTopic:
    """Everything here runs in the thread of the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        changes: TopicChanges,
        leadership: Leadership[TransactionCoordinator],
        server_log: ServerLog,
    ) -> None:
        self._cluster = cluster
        self._changes = changes
        self._leadership = leadership
        self._server_log = server_log
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Callable[[ErrorCode], None]] = []
        self._making: asyncio.Task[None] | None = None
        cluster.topics.listen(self._changed)

    @property
    def is_there(self) -> bool:
        return TRANSACTIONS_TOPIC in self._cluster.topics

    def take_over(self) -> bool:
        """Lead the partitions; False if there is no such topic."""
        topic = self._cluster.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return False
        self._leadership.led_partitions.router.partitions = topic.partitions
        self._leadership.take_over()
        return True

    def when_there(self, then: Callable[[ErrorCode], None]) -> None:
        """Call `then` when the topic is there, or with the reason why it is not."""
        if self.is_there:
            then(ErrorCode.NONE)
            return
        self._waiting.append(then)
        if self._making is None:
            self._making = self._loop.create_task(self._make())

    async def _make(self) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients ask again
        try:
            problem = await self._changes.carry_out(self._plan)
            if problem is None:
                error = ErrorCode.NONE
            else:
                self._server_log.say(f"{TRANSACTIONS_TOPIC} cannot be made: {problem}", event="topic failed")
        except Exception as failed:
            self._server_log.say(f"{TRANSACTIONS_TOPIC} cannot be made: {described(failed)}", event="topic failed")
        finally:
            self._making = None
            waiting, self._waiting = self._waiting, []
            for then in waiting:
                then(error)

    def _plan(self) -> Plan:
        if self.is_there:
            return Plan((), lambda outcomes: None)
        config = self._cluster.config
        topic = Topic(
            TRANSACTIONS_TOPIC, self._cluster.fresh_topic_id(), config.transaction_state_log_num_partitions,
            transactions_topic_configs(self._cluster),
        )  # fmt: skip

        def answer(outcomes: Sequence[Outcome]) -> Outcome:
            return outcomes[0]

        return Plan([TopicChange(Happened.CREATED, topic)], answer)

    def _changed(self, change: TopicChange) -> None:
        if change.topic.name == TRANSACTIONS_TOPIC and change.happened is Happened.CREATED:
            self.take_over()
