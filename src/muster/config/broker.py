"""Settings of the broker around the coordinator: by Kafka's names, with Kafka's defaults where it has the setting.

Each field says beside its default what type Kafka gives it, what it may be, whether Kafka lets it be changed while a
broker runs, and what it does. `docs/configuration.md` and the answers to DescribeConfigs are made from that. Settings
that begin with `muster.` are our own.

Settings of the coordinator itself are in `muster.core.config`; `settings_from` (in `server.settings`) fills both from a
file. At the end stand the names of all settings that Kafka's brokers know, 4.3.0's as it describes itself and those of
the releases before: they tell a setting of Kafka that muster does not use from a name that does not exist.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from muster.config.types import ConfigType, Value, render_value
from muster.errors import ConfigError

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
DOUBLE, LIST = ConfigType.DOUBLE, ConfigType.LIST

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


class Setting(NamedTuple):
    """What is known of a setting besides its value."""

    name: str
    kind: ConfigType
    default: Value
    help: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    is_dynamic: bool
    """Whether Kafka lets it be changed while a broker runs; muster does not."""

    def problem(self, value: Value) -> str | None:
        """What a value must be, if it is not."""
        if value is None:
            return None
        if self.choices and not set((value,) if isinstance(value, str) else value) <= set(self.choices):  # type: ignore[arg-type]
            return f"it must be one of {', '.join(self.choices)}"
        if isinstance(value, str | tuple) or self.least is None:
            return None
        if self.most is None:
            return None if value >= self.least else f"it must be at least {self.least}"
        return None if self.least <= value <= self.most else f"it must be between {self.least} and {self.most}"


def _setting(
    default: Value,
    kind: ConfigType,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
) -> Any:
    return field(default=default, metadata={"setting": (kind, default, help, least, most, choices, dynamic)})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What an operator may set. Field names are Kafka's, dots as underscores."""

    # Who and where.
    node_id: int = _setting(
        1, INT, "the number of this node, which clients see; `broker.id` is another name for it", least=0
    )
    broker_rack: str | None = _setting(None, STRING, "the rack that clients are told")
    listeners: tuple[str, ...] = _setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        LIST,
        "where to listen, as NAME://HOST:PORT; Kafka listens on every address",
        dynamic=True,
    )
    advertised_listeners: tuple[str, ...] | None = _setting(
        None, LIST, "where clients are told to connect; as listened if not set"
    )
    controller_listener_names: tuple[str, ...] = _setting(
        (), LIST, "listeners of these names are left out: muster has no controllers"
    )
    log_dirs: tuple[str, ...] | None = _setting(
        None, LIST, "the data directory, if `--data` is not given; only one is possible, `log.dir` too names it"
    )

    muster_data_must_exist: bool = _setting(
        False, BOOLEAN, "refuse to start where there is no data yet, as on a disk that is not mounted"
    )
    muster_accept_data_loss: bool = _setting(
        False,
        BOOLEAN,
        "start although durable records of `__consumer_offsets` are missing, with what is left; for one start",
    )

    # Topics.
    num_partitions: int = _setting(1, INT, "partitions of a topic made without saying how many", least=1)
    default_replication_factor: int = _setting(
        1, INT, "replicas of a topic made without saying how many; this is one node, so more counts as 1", least=1
    )
    auto_create_topics_enable: bool = _setting(True, BOOLEAN, "whether asking for a topic (Metadata) makes it")
    delete_topic_enable: bool = _setting(True, BOOLEAN, "whether topics can be deleted")
    min_insync_replicas: int = _setting(
        1, INT, "default of a topic's `min.insync.replicas`, which is only shown", least=1, dynamic=True
    )
    muster_max_partitions: int = _setting(
        10_000, INT, "partitions of all topics together; more hear POLICY_VIOLATION(44)", least=1
    )

    # The offsets topic.
    offsets_topic_num_partitions: int = _setting(
        50, INT, "partitions of `__consumer_offsets`; decides which group is where, so it never changes later", least=1
    )
    offsets_topic_segment_bytes: int = _setting(104_857_600, INT, "size of its segments", least=1)

    # Logs. Defaults of topics; each topic may have its own.
    log_segment_bytes: int = _setting(
        1 << 30, INT, "a segment is closed before it grows past this", least=1 << 20, dynamic=True
    )
    log_roll_ms: int | None = _setting(None, LONG, "a segment is closed at this age", least=1, dynamic=True)
    log_roll_hours: int = _setting(168, INT, "the same in hours, where `log.roll.ms` is not set", least=1)
    log_retention_ms: int | None = _setting(
        None, LONG, "records older than this may go; -1: never", least=-1, dynamic=True
    )
    log_retention_minutes: int | None = _setting(
        None, INT, "the same in minutes, where `log.retention.ms` is not set", least=-1
    )
    log_retention_hours: int = _setting(168, INT, "the same in hours, where neither is set", least=-1)
    log_retention_bytes: int = _setting(
        -1, LONG, "a log larger than this loses its oldest segments; -1: never", dynamic=True
    )
    log_retention_check_interval_ms: int = _setting(300_000, LONG, "how often that is looked at", least=1)
    log_segment_delete_delay_ms: int = _setting(
        60_000, LONG, "how long segments that compaction has replaced stay, named `.deleted`", least=0, dynamic=True
    )
    log_cleanup_policy: tuple[str, ...] = _setting(
        ("delete",),
        LIST,
        "what becomes of old records: `delete`, `compact` or both",
        choices=("compact", "delete"),
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = _setting(
        15_000, LONG, "rest of the cleaner when there is nothing to compact", least=0, dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = _setting(
        134_217_728, LONG, "memory of the cleaner", least=1 << 20, dynamic=True
    )
    log_cleaner_delete_retention_ms: int = _setting(
        86_400_000, LONG, "how long a deletion stays visible in a compacted log", least=0, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = _setting(
        0.5, DOUBLE, "a log is compacted when this part of it is new since the last time", least=0, most=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = _setting(
        0, LONG, "records younger than this are not compacted", least=0, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = _setting(
        MAX_LONG, LONG, "records older than this are compacted, however few they are", least=1, dynamic=True
    )
    log_index_interval_bytes: int = _setting(4_096, INT, "bytes between two entries of an index", least=0, dynamic=True)
    log_index_size_max_bytes: int = _setting(10_485_760, INT, "size of an index", least=4, dynamic=True)
    log_message_timestamp_type: str = _setting(
        "CreateTime", STRING, "whose clock dates a record: the producer's, or ours (`LogAppendTime`)",
        choices=("CreateTime", "LogAppendTime"), dynamic=True,
    )  # fmt: skip
    log_message_timestamp_before_max_ms: int = _setting(
        MAX_LONG, LONG, "how far behind our clock a producer's may be", least=0, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = _setting(HOUR_MS, LONG, "how far ahead of it", least=0, dynamic=True)
    message_max_bytes: int = _setting(
        1_048_588, INT, "the largest batch of records, a group's own record included", least=0, dynamic=True
    )
    producer_id_expiration_ms: int = _setting(
        86_400_000, INT, "how long a silent producer is remembered", least=1, dynamic=True
    )
    muster_flush: str = _setting(
        "always",
        STRING,
        "when a write counts as durable: on the disk (`always`), or with the operating system, which saves it every "
        "`muster.flush.interval.ms` (`interval`) or when it likes (`os`, as Kafka)",
        choices=("always", "interval", "os"),
    )
    muster_flush_interval_ms: int = _setting(1_000, INT, "how often, with `muster.flush=interval`", least=1)

    # Connections and requests.
    socket_request_max_bytes: int = _setting(
        104_857_600, INT, "the largest request; a longer one closes the connection", least=1
    )
    socket_listen_backlog_size: int = _setting(50, INT, "connections the system holds before we take them", least=1)
    socket_send_buffer_bytes: int = _setting(
        102_400, INT, "the system's buffer towards a client; -1: its own choice", least=-1
    )
    socket_receive_buffer_bytes: int = _setting(102_400, INT, "the same from a client", least=-1)
    connections_max_idle_ms: int = _setting(600_000, LONG, "a connection silent for so long is closed; -1: never")
    max_connections: int = _setting(MAX_INT, INT, "connections at a time", least=0, dynamic=True)
    max_connections_per_ip: int = _setting(
        MAX_INT, INT, "connections at a time from one address", least=0, dynamic=True
    )
    queued_max_requests: int = _setting(
        500, INT, "requests of one connection that wait for their answers; more are not read", least=1
    )
    queued_max_request_bytes: int = _setting(
        -1,
        LONG,
        "bytes of requests that have not come whole, all connections together; a connection that would need more is "
        "not read from until there is room; -1: half a gigabyte",
    )
    muster_request_timeout_ms: int = _setting(
        60_000, INT, "a request that has not come whole by then ends its connection", least=1
    )
    fetch_max_bytes: int = _setting(57_671_680, INT, "the largest answer to a Fetch", least=1024)
    max_incremental_fetch_session_cache_slots: int = _setting(
        1_000, INT, "fetch sessions; a consumer that finds no room for one names all its partitions each time", least=0
    )
    muster_max_response_bytes: int = _setting(
        67_108_864,
        INT,
        "the largest answer to DescribeGroups, ListGroups and OffsetFetch; groups that find no room in it hear "
        "POLICY_VIOLATION(44)",
        least=1024,
    )
    max_request_partition_size_limit: int = _setting(
        2_000, INT, "partitions in one answer to DescribeTopicPartitions", least=1
    )
    muster_max_parked_requests: int = _setting(
        100_000,
        INT,
        "requests that wait for something (a rebalance, records) at a time; one more waits no time at all",
        least=1,
    )
    muster_max_parked_partitions: int = _setting(
        1_000_000,
        INT,
        "partitions of all fetches that wait for records; a fetch that would make them more waits no time at all",
        least=1,
    )
    muster_connection_max_unsent_bytes: int = _setting(
        16_777_216, INT, "answers a client has not read yet; a client with more is dropped", least=1
    )
    muster_max_unsent_bytes: int = _setting(
        536_870_912,
        LONG,
        "answers that clients have not read yet, all together; with more, the client that has not read for longest is "
        "dropped",
        least=1,
    )

    def __post_init__(self) -> None:
        for setting_field, setting in broker_settings().items():
            value = getattr(self, setting_field)
            problem = setting.problem(value)
            if problem is not None:
                raise ConfigError(f"{setting.name} is {render_value(value)}; {problem}.")
        if self.log_dirs is not None and len(self.log_dirs) != 1:
            raise ConfigError(
                f"log.dirs names {len(self.log_dirs)} directories; muster keeps its data in one. Name one."
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes is {self.queued_max_request_bytes}; socket.request.max.bytes is "
                f"{self.socket_request_max_bytes}, and a request of that size would find no room, ever."
            )

    @classmethod
    def names(cls) -> dict[str, str]:
        """Kafka's name of each setting, and the field that holds it."""
        return {setting.name: name for name, setting in broker_settings().items()}

    @property
    def retention_ms(self) -> int:
        """`log.retention.ms`, or what the settings in minutes and hours say instead; -1 is for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return max(self.log_retention_minutes * MINUTE_MS, -1)
        return max(self.log_retention_hours * HOUR_MS, -1)

    @property
    def roll_ms(self) -> int:
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms


@cache
def broker_settings() -> dict[str, Setting]:
    """Every setting by its field in `BrokerConfig`."""
    return {one.name: Setting(one.name.replace("_", "."), *one.metadata["setting"]) for one in fields(BrokerConfig)}


_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.host.name
advertised.listeners advertised.port alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name auto.create.topics.enable
auto.include.jmx.reporter auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id
broker.id.generation.enable broker.rack broker.session.timeout.ms client.quota.callback.class compression.gzip.level
compression.lz4.level compression.type compression.zstd.level config.providers
connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
control.plane.listener.name controlled.shutdown.enable controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.listener.names controller.quorum.append.linger.ms
controller.quorum.auto.join.enable controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
controller.quorum.voters controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms
cordoned.log.dirs create.topic.policy.class.name default.replication.factor delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.master.key delegation.token.max.lifetime.ms
delegation.token.secret.key delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners
enable.zookeeper.quorum fetch.max.bytes fetch.purgatory.purge.interval.requests
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes group.coordinator.new.enable
group.coordinator.rebalance.protocols group.coordinator.threads group.initial.rebalance.delay.ms
group.max.session.timeout.ms group.max.size group.min.session.timeout.ms group.share.assignment.interval.ms
group.share.assignors group.share.delivery.count.limit group.share.heartbeat.interval.ms
group.share.max.assignment.interval.ms group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.record.lock.duration.ms group.share.session.timeout.ms group.streams.assignment.interval.ms
group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms host.name
initial.broker.registration.timeout.ms inter.broker.listener.name inter.broker.protocol.version
kafka.metrics.polling.interval.secs kafka.metrics.reporters leader.imbalance.check.interval.seconds
listener.security.protocol.map listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
log.cleaner.delete.retention.ms log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.dir log.dir.failure.timeout.ms log.dirs
log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable
log.message.format.version log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate log.retention.bytes
log.retention.check.interval.ms log.retention.hours log.retention.minutes log.retention.ms log.roll.hours
log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
max.incremental.fetch.session.cache.slots max.request.partition.size.limit message.max.bytes metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters metrics.jmx.exclude metrics.num.samples metrics.recording.level metrics.sample.window.ms
min.insync.replicas node.id num.io.threads num.network.threads num.partitions num.recovery.threads.per.data.dir
num.replica.alter.log.dirs.threads num.replica.fetchers offset.metadata.max.bytes offsets.commit.required.acks
offsets.commit.timeout.ms offsets.load.buffer.size offsets.retention.check.interval.ms offsets.retention.minutes
offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
offsets.topic.segment.bytes password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret port principal.builder.class
process.roles producer.id.expiration.ms producer.purgatory.purge.interval.requests queued.max.request.bytes
queued.max.requests quota.consumer.default quota.producer.default quota.window.num quota.window.size.seconds
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms
replica.lag.time.max.ms replica.selector.class replica.socket.receive.buffer.bytes replica.socket.timeout.ms
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id
sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol security.providers
share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes ssl.allow.dn.changes
ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr transaction.state.log.num.partitions
transaction.state.log.replication.factor transaction.state.log.segment.bytes transaction.two.phase.commit.enable
transactional.id.expiration.ms unclean.leader.election.enable unstable.api.versions.enable
unstable.feature.versions.enable zookeeper.clientCnxnSocket zookeeper.connect zookeeper.connection.timeout.ms
zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable zookeeper.session.timeout.ms zookeeper.set.acl
zookeeper.ssl.client.enable zookeeper.sync.time.ms
"""
KAFKA_NAMES = frozenset(_NAMES.split())

KAFKA_PREFIXES = (
    "listener.name.",
    "ssl.",
    "sasl.",
    "rsm.",
    "rlmm.",
    "config.providers.",
    "zookeeper.ssl.",
    "client.quota.callback.",
)
"""Whatever begins with one of these is a setting of a listener or of something that is plugged into a broker."""
