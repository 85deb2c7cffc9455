"""Builds a server: every part of it, and who calls whom. `server.py` starts and stops what is built here.

The parts from the bottom up: logs in a data directory; topics and the cluster; the led partitions of the offsets topic
with their coordinators; compaction and leadership; requests and their handlers; connections; work at intervals. A part
is given the parts it uses. Where two need each other, one of them gets a function here.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.router import GroupRouter, TransactionRouter
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.errors import DataLost
from muster.log.config import Flush
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.recovery_scan import LOST, LossRefused
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import Files
from muster.segments.sources import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from muster.server import process
from muster.server.cluster import metadata
from muster.server.cluster.cluster import MISSING_PARTITION, Cluster, DiskPartition, Node, PartitionOffsets
from muster.server.cluster.topic_storage import DirectoryTopics, Patience, TopicChanges, fresh_topic_id, log_config
from muster.server.cluster.topics import Topic, TopicChange, Topics
from muster.server.cluster_requests import ClusterRequests, complete_later
from muster.server.compaction import Compaction
from muster.server.connections import Connections, FairTurns
from muster.server.control import Control
from muster.server.dispatch import Dispatch
from muster.server.groups.forgotten_topics import ForgottenTopics
from muster.server.groups.loading import load_groups
from muster.server.groups.requests import GroupRequests
from muster.server.housekeeping import (
    CHECKPOINT_S,
    Checkpoints,
    Expiration,
    Schedule,
    flush_logs,
    forget_idle_producers,
)
from muster.server.leadership import Leadership
from muster.server.led_partitions import LedGroups, LedPartitions, LedTransactions
from muster.server.long_requests import LongRequests
from muster.server.records import fetch
from muster.server.records.data_partitions import DataPartitions
from muster.server.records.fetch_sessions import FetchSessions
from muster.server.records.producer_ids import ProducerIds
from muster.server.records.waiting_fetches import WaitingFetches
from muster.server.server_log import FaultLog, RateLimitedLog, ServerLog, Stats
from muster.server.timers import Clock
from muster.server.transactions.ends import Ends
from muster.server.transactions.markers import Markers
from muster.server.transactions.questions import TransactionQuestions
from muster.server.transactions.requests import TransactionRequests
from muster.server.transactions.serving import Serving
from muster.server.transactions.steps import Steps
from muster.server.transactions.timeouts import Timeouts
from muster.server.transactions.topic import TransactionTopic, load_transactions
from muster.server.transactions.verification import TransactionalBatches, Verification

TICK_S = 1.0
REQUEST_TIMEOUT_MS = 30_000
"""Kafka's `request.timeout.ms`: so long does a transaction's answer wait for the disk."""
LARGEST_ID_OF_A_BROKER = 1 << 40
MOST_SESSION_PARTITIONS = 100_000
"""Of all fetch sessions; half a kilobyte each."""
FORGET_PRODUCERS_S = 600.0
"""Kafka's `producer.id.expiration.check.interval.ms`."""


@dataclass(slots=True)
class Parts:
    """A server, built and not yet started."""

    server_log: ServerLog
    stats: Stats
    faults: FaultLog
    directory: LogDirectory
    flusher: Flusher
    clock: Clock
    cluster: Cluster
    topic_changes: TopicChanges
    led_partitions: LedGroups
    data_partitions: DataPartitions
    compaction: Compaction
    leadership: Leadership[Coordinator]
    fetches: WaitingFetches
    long_requests: LongRequests
    sessions: FetchSessions
    connections: Connections
    checkpoints: Checkpoints
    expiration: Expiration
    schedule: Schedule
    control: Control
    transactions: "Transactions"

    @property
    def all_led(self) -> tuple[LedPartitions[Any], ...]:
        return self.led_partitions, self.transactions.led

    @property
    def leaderships(self) -> tuple[Leadership[Any], ...]:
        return self.leadership, self.transactions.leadership


@dataclass(slots=True)
class Transactions:
    """The parts that only transactions need."""

    led: LedTransactions
    leadership: Leadership[TransactionCoordinator]
    topic: TransactionTopic
    markers: Markers
    steps: Steps


def open_directory(
    data: Path, config: BrokerConfig, groups: GroupConfig, server_log: ServerLog, files: Files
) -> LogDirectory:
    """Open the data directory, and log what was found. Raises `MusterError`."""
    try:
        directory = LogDirectory.open(
            data,
            lambda topic: log_config(topic, config, groups),
            files=files,
            node_id=config.node_id,
            wall_ms=Clock().now().wall_ms,
            must_exist=config.muster_data_must_exist,
            offsets_partitions=config.offsets_topic_num_partitions,
            accept_loss=config.muster_accept_data_loss,
        )
    except LossRefused as refused:
        for loss in refused.losses:
            server_log.say(f"data lost: {loss}", event="data lost")
        raise DataLost(
            f"{data} has lost records of groups or transactions that were durable: {refused} The server has not "
            "started, and no record was changed. Is every disk mounted, and every backup put back whole? To go on "
            "with what is left, start once with --accept-data-loss (muster.accept.data.loss=true): groups in these "
            "partitions then have older offsets, or none, and transactions there are forgotten."
        ) from refused
    if directory.is_new:
        server_log.say(
            f"{data} had no data of a broker: a NEW data directory was made, of cluster {directory.meta.cluster_id}, "
            "without any group or topic. If there should be some, the disk may not be mounted; --must-exist "
            "(muster.data.must.exist=true) refuses to start then.",
            event="new data directory",
        )
    for note in directory.notes:
        server_log.say(note, **({"event": "data lost"} if note.startswith(LOST) else {}))
    return directory


def assemble(
    directory: LogDirectory, flusher: Flusher, config: BrokerConfig, groups: GroupConfig, server_log: ServerLog,
    clock: Clock,
) -> Parts:  # fmt: skip
    """Build a server over an open data directory. In the thread of its event loop."""
    loop = asyncio.get_running_loop()
    stats = Stats()
    faults = FaultLog(server_log, stats, loop.time)
    remarks = RateLimitedLog(server_log, "not served", loop.time)
    report_topic = partial(server_log.say, event="topic failed")

    def report_topic_from_thread(text: str) -> None:
        loop.call_soon_threadsafe(report_topic, text)

    topics = Topics(DirectoryTopics(directory, process.files_left_for_logs, report_topic_from_thread))
    cluster = _cluster(directory, topics, config, groups)
    offsets_topic = topics.get(OFFSETS_TOPIC)
    assert offsets_topic is not None

    led_partitions: LedGroups = LedPartitions(
        GroupRouter(offsets_topic.partitions), flusher, server_log, stats, faults, clock,
        log_failed=lambda led, error: leadership.log_failed(led, error),
        grown=lambda led: fetches.grown(OFFSETS_TOPIC, led.partition),
        waits_for_disk=groups.offsets_commit_required_acks == -1,
        timeout_ms=groups.offsets_commit_timeout_ms,
    )  # fmt: skip
    forgotten_topics = ForgottenTopics(led_partitions)
    led_partitions.serving = forgotten_topics.serving
    logs_on_loan: set[TopicPartition] = set()
    compaction = Compaction(directory, config, server_log, stats, logs_on_loan, clock)
    leadership = Leadership(
        OFFSETS_TOPIC, led_partitions, partial(load_groups, groups), directory, compaction, server_log, logs_on_loan
    )

    led_transactions: LedTransactions = LedPartitions(
        TransactionRouter(config.transaction_state_log_num_partitions), flusher, server_log, stats, faults, clock,
        log_failed=lambda led, error: transaction_leadership.log_failed(led, error),
        grown=lambda led: fetches.grown(TRANSACTIONS_TOPIC, led.partition),
        waits_for_disk=True,
        timeout_ms=REQUEST_TIMEOUT_MS,
    )  # fmt: skip
    transaction_leadership = Leadership(
        TRANSACTIONS_TOPIC, led_transactions, partial(load_transactions, config), directory, compaction, server_log,
        logs_on_loan,
    )  # fmt: skip

    patience = Patience(report_topic_from_thread)
    directory.registry.try_again = patience
    topic_changes = TopicChanges(topics, forgotten_topics.deleted, report_topic, patience)
    turns = FairTurns(loop)
    long_requests = LongRequests(turns)
    fetches = WaitingFetches(
        partial(clock.make_timers, loop, of_clients=True),
        partial(fetch.count, cluster=cluster),
        lambda parked: fetch.complete(parked, cluster),
        partial(complete_later, long_requests, cluster),
        loop.call_soon,
        config.muster_max_parked_requests,
        config.muster_max_parked_partitions,
    )
    data_partitions = DataPartitions(
        cluster, directory, flusher, compaction, logs_on_loan, server_log, remarks, clock, topic_changes.between,
        lambda key: fetches.grown(*key),
    )  # fmt: skip
    producer_ids = ProducerIds(directory.files, directory.path, server_log, partial(_largest_producer_id, directory))
    sessions = FetchSessions(
        config.max_incremental_fetch_session_cache_slots, MOST_SESSION_PARTITIONS, lambda: clock.now().monotonic_ms
    )
    steps = Steps()
    transaction_topic = TransactionTopic(cluster, topic_changes, transaction_leadership, server_log)
    ends = Ends(led_transactions, config.add_partitions_to_txn_retry_backoff_max_ms)
    refused = RateLimitedLog(server_log, "transaction marker refused", loop.time)
    markers = Markers(data_partitions, led_partitions, led_transactions, ends, topics, steps, refused, stats)
    led_transactions.write_markers = markers.write
    verification = Verification(led_transactions, ends, config.transaction_partition_verification_enable)
    timed_out = RateLimitedLog(server_log, "transaction timed out", loop.time)
    fenced = RateLimitedLog(server_log, "transaction fenced", loop.time)
    timeouts = Timeouts(led_transactions, producer_ids, steps, timed_out, stats)
    group_requests = GroupRequests(led_partitions, cluster, remarks, long_requests, transaction_topic.when_there)
    cluster_requests = ClusterRequests(
        cluster, topic_changes, data_partitions, producer_ids, fetches, sessions, remarks, clock, long_requests,
        TransactionalBatches(verification, data_partitions),
    )  # fmt: skip
    serving = Serving(long_requests)
    transaction_requests = TransactionRequests(
        cluster, led_transactions, led_partitions, group_requests, serving, verification, markers, producer_ids, steps,
        fenced, cluster_requests.init_producer_id,
    )  # fmt: skip
    questions = TransactionQuestions(
        led_transactions, long_requests, serving, config.muster_max_response_bytes, group_requests.report_too_large
    )
    dispatch = Dispatch({
        **group_requests.handlers, **cluster_requests.handlers, **transaction_requests.handlers, **questions.handlers,
    })  # fmt: skip
    handle = group_requests.repeated.before(dispatch.handle)
    connections = Connections(config, server_log, stats, faults, handle, fetches.forget, turns)
    topics.listen(partial(_log_topic_change, server_log))
    topics.listen(compaction.topic_changed)
    topics.listen(data_partitions.topic_changed)
    topics.listen(fetches.topic_changed)

    checkpoints = Checkpoints(directory, flusher, server_log)
    expiration = Expiration(led_partitions)
    schedule = Schedule(faults)
    schedule.every(TICK_S, led_partitions.time_out_replies, by_clock=True)
    schedule.every(TICK_S, led_transactions.time_out_replies, by_clock=True)
    schedule.every(TICK_S, leadership.give_up_failed_logs)
    schedule.every(TICK_S, transaction_leadership.give_up_failed_logs)
    schedule.every(TICK_S, data_partitions.time_out, by_clock=True)
    schedule.every(TICK_S, data_partitions.give_up_failed_logs)
    schedule.every(TICK_S, compaction.delete_replaced)
    schedule.every(TICK_S, connections.close_idle)
    for limited in (connections.complaints, remarks, timed_out, fenced, refused, faults):
        schedule.every(TICK_S, limited.summarize)
    schedule.every(CHECKPOINT_S, checkpoints.begin)
    schedule.every(FORGET_PRODUCERS_S, partial(forget_idle_producers, directory, config, clock), by_clock=True)
    schedule.every(groups.offsets_retention_check_interval_ms / 1000, expiration.begin, by_clock=True)
    abort_s = config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
    schedule.every(abort_s, timeouts.abort_timed_out, by_clock=True)
    forget_s = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
    schedule.every(forget_s, timeouts.forget_unused, by_clock=True)
    schedule.every(max(config.log_cleaner_backoff_ms / 1000, 0.01), compaction.begin_if_due, by_clock=True)
    schedule.every(config.log_retention_check_interval_ms / 1000, compaction.delete_old, by_clock=True)
    if config.muster_flush == Flush.INTERVAL:
        schedule.every(config.muster_flush_interval_ms / 1000, partial(flush_logs, directory, flusher))

    control = Control(led_partitions, leadership, directory.path)
    return Parts(
        server_log, stats, faults, directory, flusher, clock, cluster, topic_changes, led_partitions, data_partitions,
        compaction, leadership, fetches, long_requests, sessions, connections, checkpoints, expiration, schedule,
        control,
        Transactions(led_transactions, transaction_leadership, transaction_topic, markers, steps),
    )  # fmt: skip


def _cluster(directory: LogDirectory, topics: Topics, config: BrokerConfig, groups: GroupConfig) -> Cluster:
    """The cluster of this node, with an offsets topic. Clients reach the node when the server listens."""

    def partition_of(topic: Topic, partition: int) -> PartitionOffsets:
        log = directory.logs.get(TopicPartition(topic.name, partition))
        return MISSING_PARTITION if log is None else DiskPartition(log)

    node = Node(config.node_id, "", 0)
    cluster = Cluster(directory.meta.cluster_id or "", node, topics, fresh_topic_id, config, groups, partition_of)
    if OFFSETS_TOPIC not in topics:
        configs = metadata.offsets_topic_configs(cluster)
        topics.create(Topic(OFFSETS_TOPIC, fresh_topic_id(), config.offsets_topic_num_partitions, configs))
    return cluster


def _largest_producer_id(directory: LogDirectory) -> int:
    """Of those that brokers hand out; a client may write any number on a batch."""
    known = (number for log in directory.logs.values() for number in log.producers.producers)
    return max((number for number in known if number < LARGEST_ID_OF_A_BROKER), default=-1)


def _log_topic_change(server_log: ServerLog, change: TopicChange) -> None:
    happened = change.happened.value
    server_log.say(f"topic {change.topic.name}: {happened}", event=f"topic {happened}")
