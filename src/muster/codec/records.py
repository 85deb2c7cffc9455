"""What a batch and a record are, whatever format they came in."""

from typing import NamedTuple

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

ABORT, COMMIT = 0, 1
CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


class BatchHeader(NamedTuple):
    """What a batch says of itself, whatever its magic; the old formats leave most of it at -1."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> str:
        """Kafka's name for what the timestamps mean."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when tombstones and markers in here may be dropped, once the cleaner has said so."""
        return self.base_timestamp_ms if self.magic == 2 and self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; it wraps to 0 behind the largest int32."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF


class Record(NamedTuple):
    """One record; `value` None is a tombstone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ControlRecord(NamedTuple):
    """A transaction marker (or, in other topics, another control record)."""

    type: int
    version: int
    coordinator_epoch: int | None

    @property
    def name(self) -> str:
        return CONTROL_TYPES.get(self.type, "UNKNOWN")
