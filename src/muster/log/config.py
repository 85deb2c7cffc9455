"""Settings of one partition's log, by Kafka's names for them, with Kafka's defaults where it has one."""

from dataclasses import dataclass
from enum import StrEnum

from muster.log.segment import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL_BYTES

DAY_MS = 24 * 60 * 60 * 1000


class Flush(StrEnum):
    """When an appended record is durable, and so when it may be acknowledged (`docs/storage.md`)."""

    ALWAYS = "always"
    """On the disk before it is acknowledged."""
    INTERVAL = "interval"
    """Acknowledged when written to the operating system, which is told to save it every so often."""
    OS = "os"
    """Acknowledged when written to the operating system, which saves it when it likes. Kafka's default."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = DEFAULT_INDEX_BYTES
    index_interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    max_message_bytes: int = 1_048_588
    """The largest batch (`max.message.bytes` of a topic, `message.max.bytes` of a broker)."""
    log_append_time: bool = False
    """`message.timestamp.type`: LogAppendTime instead of CreateTime, for batches that clients made."""
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 60 * 60 * 1000
    """How far from the broker's clock the timestamp of a client's record may be (CreateTime only)."""
    compacted: bool = False
    """Whether `cleanup.policy` has `compact`: every record then needs a key."""
    codec: int = 0
    """Compression of the batches that the coordinator makes (`offsets.topic.compression.codec`)."""
    recompress_to: int | None = None
    """`compression.type`: the codec in which clients' batches are kept; None if as they come (`producer`)."""
    compression_level: int | None = None
    """Of that codec; None if it has none, or its own default."""
    producer_id_expiration_ms: int = DAY_MS
    flush: Flush = Flush.OS


OFFSETS_TOPIC_CONFIG = LogConfig(segment_bytes=104_857_600, compacted=True, flush=Flush.ALWAYS)
"""The coordinator's own topics: small segments, compacted, and durable before a client is answered."""
