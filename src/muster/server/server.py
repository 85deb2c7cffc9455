"""The broker: everything put together on one event loop.

Starting: open the data directory, make the offsets topic if there is none, take over all its partitions, listen. Small
partitions are loaded before anybody can ask; large ones in a thread, the smallest first, and their groups hear
COORDINATOR_LOAD_IN_PROGRESS meanwhile. Stopping, in steps: accept nobody, answer whoever waits, flush, close.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.core.outcome import Notice
from muster.core.router import Router
from muster.errors import ConfigError, DataLost, LogDamaged, MusterError
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.recovery_scan import LOST, LossRefused
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import REAL_FILES, Files
from muster.segments.sources import OFFSETS_TOPIC
from muster.server import process, timers
from muster.server.client_limits import FairTurns, Intake, Unread
from muster.server.cluster import create_topics, fetch, metadata
from muster.server.cluster.cluster import EMPTY_PARTITION, Cluster, DiskPartition, Node, PartitionOffsets
from muster.server.cluster.topic_storage import DirectoryTopics, TopicChanges, fresh_topic_id, log_config
from muster.server.cluster.topics import Happened, Topic, TopicChange, Topics, name_problem
from muster.server.compaction import Compaction
from muster.server.connection import Connection, Slot
from muster.server.connections import Admission
from muster.server.control import Control
from muster.server.dispatch import Dispatch
from muster.server.housekeeping import Housekeeping
from muster.server.leadership import Leadership
from muster.server.led_partitions import LedPartition, LedPartitions
from muster.server.listeners import advertised_listener, cannot_listen, client_listener, open_to_others
from muster.server.parked import ParkedFetches
from muster.server.server_log import RateLimitedLog, ServerLog
from muster.server.stats import Stats
from muster.server.timers import Timers

STOP_WITHIN_S = 4.0
BACKGROUND_WITHIN_S = 1.0
ANSWER_WITHIN_S = 2.0
"""When the server stops: for everything; of that for what runs beside the requests to end, and for the disk to let the
last answers go."""
DEFAULT_QUEUED_BYTES = 512 << 20
"""`queued.max.request.bytes`, where it is not set."""

Handle = Callable[[Connection, bytes, int, int], Slot | None]


class Server:
    """One node. All methods are called in the thread of its event loop."""

    def __init__(
        self, data: Path, groups: GroupConfig, broker: BrokerConfig, server_log: ServerLog, files: Files = REAL_FILES
    ) -> None:
        self._data = data
        self._files = files
        self.groups = groups
        self.config = broker
        self.server_log = server_log
        self.stats = Stats()
        self.max_request_bytes = broker.socket_request_max_bytes
        self.max_unsent_bytes = broker.muster_connection_max_unsent_bytes
        self.max_waiting = broker.queued_max_requests
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.turns = FairTurns(self._loop)
        self._admission = Admission(broker, server_log, self.stats, self._loop.time)
        self.complaints = RateLimitedLog(server_log, "sent away", self._loop.time)
        self.remarks = RateLimitedLog(server_log, "not served", self._loop.time)
        self.faults = RateLimitedLog(server_log, "fault", self._loop.time)
        self.intake = Intake(
            broker.queued_max_request_bytes
            if broker.queued_max_request_bytes > 0
            else max(DEFAULT_QUEUED_BYTES, broker.socket_request_max_bytes),
            broker.muster_request_timeout_ms,
            self._loop.time,
        )
        self.unread = Unread(broker.muster_max_unsent_bytes)
        self._listener: asyncio.Server | None = None
        self._is_stopping = False
        self.host, self.port = "", 0

    # Starting.

    async def start(self) -> None:
        """Raises `MusterError` where it cannot."""
        self._loop.set_exception_handler(self._uncaught)
        endpoint = client_listener(self.config)
        (await self._bound(endpoint.host, endpoint.port)).close()  # where that cannot be, no directory is made either
        self.directory = self._opened_directory()
        try:
            self._assemble()
            await self._listen(endpoint.host, endpoint.port)
        except BaseException:
            self.flusher.close()
            self.directory.close()
            raise

    def _opened_directory(self) -> LogDirectory:
        try:
            directory = LogDirectory.open(
                self._data,
                lambda topic: log_config(topic, self.config, self.groups),
                files=self._files,
                node_id=self.config.node_id,
                wall_ms=timers.now().wall_ms,
                must_exist=self.config.muster_data_must_exist,
                offsets_partitions=self.config.offsets_topic_num_partitions,
                accept_loss=self.config.muster_accept_data_loss,
            )
        except LossRefused as refused:
            for loss in refused.losses:
                self.server_log.say(f"data lost: {loss}", event="data lost")
            raise DataLost(
                f"{self._data} has lost records of {OFFSETS_TOPIC} that were durable: {refused} The server has not "
                "started, and no record was changed. Is every disk mounted, and every backup put back whole? To go on "
                "with what is left, start once with --accept-data-loss (muster.accept.data.loss=true): groups in these "
                "partitions then have older offsets, or none."
            ) from refused
        if directory.is_new:
            self.server_log.say(
                f"{self._data} was empty: a NEW data directory was made, of cluster {directory.meta.cluster_id}, "
                "without any group or topic. If there should be some, the disk may not be mounted; --must-exist "
                "(muster.data.must.exist=true) refuses to start then.",
                event="new data directory",
            )
        for note in directory.notes:
            self.server_log.say(note, **({"event": "data lost"} if note.startswith(LOST) else {}))
        return directory

    def _assemble(self) -> None:
        self.flusher = Flusher(deliver=self._loop.call_soon_threadsafe)
        self._timers = Timers(lambda: timers.now().monotonic_ms, self._later, self._timer_fired)
        topics = Topics(DirectoryTopics(self.directory, process.room_for_logs, self._tell_from_thread))
        cluster_id = self.directory.meta.cluster_id or ""
        self.cluster = Cluster(
            cluster_id,
            Node(self.config.node_id, "", 0),
            topics,
            fresh_topic_id,
            self.config,
            self.groups,
            self._partition_of,
        )
        if OFFSETS_TOPIC not in topics:
            self._make_offsets_topic(topics)
        stored = topics.get(OFFSETS_TOPIC)
        assert stored is not None
        self.router = Router(stored.partitions)
        self.shards = LedPartitions(
            self.groups, self.router, self.flusher, self._timers, self.stats, timers.now, self._loop.call_soon,
            self._tell, self._log_broke, self.fault,
        )  # fmt: skip
        self._parked = ParkedFetches(
            self._timers,
            lambda parked: fetch.complete(parked, self.cluster),
            self.config.muster_max_parked_requests,
            self.config.muster_max_parked_partitions,
        )
        self._topic_changes = TopicChanges(
            topics, self._topics_deleted, partial(self.server_log.say, event="topic failed")
        )
        dispatch = Dispatch(self.shards, self.cluster, self._topic_changes, self._parked, self.remarks)
        self._handle: Handle = dispatch.handle
        topics.listen(self._topic_changed)
        self._leadership = Leadership(self)
        self.compaction = Compaction(self, self._leadership.on_loan)
        self._housekeeping = Housekeeping(self)
        self._control = Control(self, self._data)

    def _partition_of(self, topic: Topic, partition: int) -> PartitionOffsets:
        log = self.directory.logs.get(TopicPartition(topic.name, partition))
        return EMPTY_PARTITION if log is None else DiskPartition(log)

    def _make_offsets_topic(self, topics: Topics) -> None:
        configs = metadata.offsets_topic_configs(self.cluster)
        partitions = self.config.offsets_topic_num_partitions
        topics.create(Topic(OFFSETS_TOPIC, fresh_topic_id(), partitions, configs))

    async def _bound(self, host: str, port: int) -> asyncio.Server:
        """A port at which nobody is listened to yet."""
        try:
            return await self._loop.create_server(
                lambda: Connection(self, self._loop),
                host or None,
                port,
                backlog=self.config.socket_listen_backlog_size,
                start_serving=False,
            )
        except OSError as problem:
            raise cannot_listen(host, port, problem) from problem

    async def _listen(self, host: str, port: int) -> None:
        self._listener = await self._bound(host, port)
        bound = self._listener.sockets[0].getsockname()
        advertised = advertised_listener(self.config)
        self.host, self.port = bound[0], bound[1]
        reached = (advertised.host, advertised.port or self.port) if advertised else (self.host, self.port)
        self.cluster.node = Node(self.config.node_id, *reached, self.config.broker_rack)
        exposed = open_to_others(self._listener.sockets)
        if exposed is not None:
            self.server_log.say(exposed, event="open to others")
        self._leadership.take_over()  # not before it is known that there is a port: nobody would wait for the loads
        self._housekeeping.start()
        await self._control.start()
        await self._listener.start_serving()

    async def create_topic(self, name: str, partitions: int) -> None:
        """For whoever runs the broker in their own program. Raises `MusterError`."""
        there = self.cluster.topics.get(name)
        if there is not None:
            raise ConfigError(f"topic {name} exists already, with {there.partitions} partitions.")
        problem = name_problem(name) or ("a topic has one partition at least" if partitions < 1 else None)
        if problem is not None:
            raise ConfigError(f"topic {name} of {partitions} partitions cannot be made: {problem}.")
        new = create_topics.NewTopic(name, partitions, replicas=1)
        plan = partial(create_topics.plan, create_topics.CreateTopicsRequest((new,)), self.cluster)
        (created,) = (await self._topic_changes.carry_out(plan)).topics
        if created.error is not ErrorCode.NONE:
            raise MusterError(f"topic {name} of {partitions} partitions was not made: {created.message}")

    # Partitions of the offsets topic.

    def elect(self, partition: int) -> None:
        self._leadership.elect(partition)

    def resign(self, partition: int) -> tuple[int, int]:
        return self._leadership.resign(partition)

    def give_up_failed_logs(self) -> None:
        self._leadership.give_up_failed_logs()

    # What others tell.

    def _log_broke(self, shell: LedPartition, error: LogDamaged) -> None:
        self._leadership.log_broke(shell, error)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, call)

    def _timer_fired(self, key: Any) -> None:
        if isinstance(key, Slot):
            self._parked.due(key)
        else:
            self.shards.timer_fired(key)

    def _tell(self, partition: int, notice: Notice) -> None:
        self.stats.note(notice)
        self.server_log.group(partition, notice)

    def _topic_changed(self, change: TopicChange) -> None:
        topic = change.topic
        self.server_log.say(f"topic {topic.name}: {change.happened.value}", event=f"topic {change.happened.value}")
        if change.happened is Happened.DELETED:
            self.compaction.topic_deleted(topic.name)
        self._parked.topic_changed(topic.name)

    def _topics_deleted(self, changes: Sequence[TopicChange], then: Callable[[], None]) -> None:
        """Forget the offsets of deleted topics, and say when that is durable."""
        partitions = ((topic.name, partition) for _, topic in changes for partition in range(topic.partitions))
        self.shards.topics_deleted(partitions, then)

    def _tell_from_thread(self, text: str) -> None:
        self._loop.call_soon_threadsafe(partial(self.server_log.say, text, event="topic failed"))

    # Connections.

    def handle(self, connection: Connection, data: bytes, position: int, end: int) -> Slot | None:
        return self._handle(connection, data, position, end)

    def _leave_unanswered(self, connection: Connection, data: bytes, position: int, end: int) -> Slot:
        """A request that comes while the server stops: its connection is closed behind the answers before it."""
        return connection.slot(ApiKey.API_VERSIONS, lambda reply, answer: b"", None)

    def opened(self, connection: Connection) -> bool:
        is_welcome = self._admission.admit(connection)
        if is_welcome:
            connection.tune(self.config.socket_send_buffer_bytes, self.config.socket_receive_buffer_bytes)
        return is_welcome

    def closed(self, connection: Connection) -> None:
        self._admission.left(connection)
        self._parked.forget(connection)

    def complain(self, connection: Connection, problem: str) -> None:
        self.stats.bad_requests += 1
        self.complaints.say(f"{connection.peer} was sent away: {problem}", peer=connection.peer)

    def fault(self, what: str, error: BaseException, **fields: Any) -> None:
        """Something went wrong that should not have; it is told here, and everything else goes on."""
        self.stats.faults += 1
        kind = type(error).__name__
        self.faults.say(f"{what} ({kind}: {error})", error=kind, **fields)
        self.server_log.traceback(error)

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no part of the server caught: the event loop has gone on with everything else."""
        error = context.get("exception")
        self.fault(str(context.get("message", "")), error if error is not None else RuntimeError("no exception"))

    def measure(self, api_key: int, since: float, count: int) -> None:
        self.stats.request(api_key, self._loop.time() - since, count)

    def connections(self) -> set[Connection]:
        return self._admission.connections

    @property
    def parked_fetches(self) -> int:
        return len(self._parked)

    @property
    def uncleanable_logs(self) -> int:
        return self.compaction.uncleanable_logs

    # Stopping.

    async def stop(self) -> bool:
        """Stop in steps, within `STOP_WITHIN_S`; False if the logs could not be closed well, or not in time."""
        started = self._loop.time()
        self._is_stopping = self._admission.is_closed = True
        self._handle = self._leave_unanswered
        if self._listener is not None:
            self._listener.close()
        self._leadership.stop()
        await self._background_ended()
        self._parked.finish()
        await self._until(lambda: not any(shell.held_answers for shell in self._shells()), started + ANSWER_WITHIN_S)
        for shell in self._shells():
            self.shards.resign(shell.partition)
        await asyncio.sleep(0)
        for connection in list(self._admission.connections):
            connection.close()
        self._timers.close()
        well = await self._logs_closed(started + STOP_WITHIN_S)
        if well is None:
            self.server_log.say(
                f"the logs could not be closed within {STOP_WITHIN_S:g} s: the disk has not answered, or a load is not "
                "at its end. What was acknowledged is on the disk; the next start looks through the logs.",
                event="log failed",
            )
        return well or False

    async def _background_ended(self) -> None:
        """Checkpoints, compaction and changes of topics come to their end, or are left alone."""
        stops = [
            self._housekeeping.stop(), self.compaction.stop(), self._topic_changes.stop(), self._control.stop(),
        ]  # fmt: skip
        ended, late = await asyncio.wait(map(self._loop.create_task, stops), timeout=BACKGROUND_WITHIN_S)
        for task in late:
            task.cancel()
        for task in ended:
            if (error := task.exception()) is not None:
                self.fault("something could not be stopped well", error)

    def _shells(self) -> list[LedPartition]:
        return [shell for shell in self.shards.shells.values() if shell.coordinator is not None]

    async def _logs_closed(self, deadline: float) -> bool | None:
        """Whether the logs could be closed well; None if it takes too long.

        They are closed in a thread that nobody waits for in the end: a disk may never answer.
        """
        is_idle = await self._until(lambda: not (self.flusher.is_busy or self._topic_changes.is_busy), deadline)
        self.flusher.end_threads()
        if not is_idle:
            return None
        closed: asyncio.Future[bool] = self._loop.create_future()

        def tell(well: bool) -> None:
            if not closed.done():
                closed.set_result(well)

        def close() -> None:
            well = False
            try:
                self._leadership.close()
                well = self.directory.close()
            finally:
                with suppress(RuntimeError):  # the loop is closed: it was too late
                    self._loop.call_soon_threadsafe(tell, well)

        threading.Thread(target=close, name="muster-close", daemon=True).start()
        try:
            async with asyncio.timeout_at(deadline):
                return await closed
        except TimeoutError:
            return None

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait for something to come true; False if it is not in time."""
        while not condition():
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.005)
        return True
