"""Settings of the broker around the coordinator: by Kafka's names, with Kafka's defaults where it has the setting.

Each field says beside its default what type Kafka gives it, what it may be, whether Kafka lets it be changed while a
broker runs, and what it does. `docs/configuration.md` and the answers to DescribeConfigs are made from that. Settings
that begin with `muster.` are our own.

Settings of the coordinator itself are in `muster.core.config`; `settings_from` (in `server.settings`) fills both from a
file.
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
    muster_tell_new_topics: bool = _setting(
        False,
        BOOLEAN,
        "whether asking for a topic that is made then is answered with it; Kafka answers "
        "UNKNOWN_TOPIC_OR_PARTITION(3), and clients ask again after a pause",
    )
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

    # Transactions.
    transaction_max_timeout_ms: int = _setting(
        15 * MINUTE_MS,
        INT,
        "the longest timeout a transactional producer may ask for; more hears INVALID_TRANSACTION_TIMEOUT(50)",
        least=1,
    )
    transactional_id_expiration_ms: int = _setting(
        7 * 24 * HOUR_MS, INT, "a transactional id that is unused for this long is forgotten", least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _setting(
        10_000, INT, "how often transactions that are open for longer than their timeout are aborted", least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _setting(
        HOUR_MS, INT, "how often transactional ids that are unused for long are forgotten", least=1
    )
    transaction_partition_verification_enable: bool = _setting(
        True,
        BOOLEAN,
        "whether a transactional batch of an older client is refused unless its partition was added to the transaction",
        dynamic=True,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = _setting(
        100,
        INT,
        "how long what a producer writes waits for the end of its transaction before; then it hears "
        "CONCURRENT_TRANSACTIONS(51)",
        least=0,
    )
    transaction_state_log_num_partitions: int = _setting(
        50,
        INT,
        "partitions of `__transaction_state`; decides which transactional id is where, so it never changes later",
        least=1,
    )
    transaction_state_log_segment_bytes: int = _setting(104_857_600, INT, "size of its segments", least=1)
    transaction_state_log_load_buffer_size: int = _setting(
        5_242_880, INT, "bytes per read while one of its partitions is loaded", least=1
    )
    muster_max_transactional_ids: int = _setting(
        1_000_000,
        INT,
        "transactional ids in one partition of `__transaction_state`; one more hears POLICY_VIOLATION(44)",
        least=1,
    )

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
        "the largest answer to DescribeGroups, ListGroups, OffsetFetch, DescribeTransactions and ListTransactions; "
        "what finds no room in it hears POLICY_VIOLATION(44)",
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
