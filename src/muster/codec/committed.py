"""A committed offset as a coordinator keeps it: one bytes object of 52 bytes and its metadata.

There are a million of these in a busy cluster and each is read far less often than it is replaced, so they are packed:
a third of the memory of the same numbers as Python objects, nothing for the garbage collector to walk over, and a whole
log of them can be made column by column. The place in the log comes first, big-endian, so that of two packed offsets
the one further down the log is the one whose first eight bytes are larger.
"""

from struct import Struct
from typing import NamedTuple

from muster.codec.offsets_topic import NO_TOPIC_ID, OffsetValue

LOG_OFFSET_BYTES = 8
FIXED_BYTES = 52
_LOG_OFFSET = Struct(">q")
_FIXED = Struct(">qiqq16s")
_FETCHED = Struct(">qi")
_TIMES = Struct(">qq")
_TIMES_AT = LOG_OFFSET_BYTES + _FETCHED.size
_TOPIC_ID_AT = FIXED_BYTES - len(NO_TOPIC_ID)

pack_log_offset = _LOG_OFFSET.pack
pack_fixed = _FIXED.pack
"""Committed offset, leader epoch, commit and expire timestamp, topic id; metadata in UTF-8 follows."""


class CommittedOffset(NamedTuple):
    """A commit and where in the log it stands; the later one in the log wins."""

    log_offset: int
    value: OffsetValue


def pack(log_offset: int, value: OffsetValue) -> bytes:
    """What a value says to a coordinator; tagged fields that nobody knows stay in the log."""
    return pack_log_offset(log_offset) + pack_value(value)


def pack_value(value: OffsetValue) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = value
    fixed = pack_fixed(offset, leader_epoch, commit_ms, expire_ms, topic_id)
    return fixed + metadata.encode("utf-8", "surrogateescape") if metadata else fixed


def unpack(packed: bytes) -> CommittedOffset:
    (log_offset,) = _LOG_OFFSET.unpack_from(packed)
    offset, leader_epoch, commit_ms, expire_ms, topic_id = _FIXED.unpack_from(packed, LOG_OFFSET_BYTES)
    return CommittedOffset(log_offset, OffsetValue(offset, leader_epoch, _text(packed), commit_ms, expire_ms, topic_id))


def fetched(packed: bytes) -> tuple[int, int, str]:
    """Committed offset, leader epoch and metadata."""
    offset, leader_epoch = _FETCHED.unpack_from(packed, LOG_OFFSET_BYTES)
    return offset, leader_epoch, _text(packed)


def times_ms(packed: bytes) -> tuple[int, int]:
    """When it was committed, and when it expires (-1: by the retention of the cluster)."""
    commit_ms, expire_ms = _TIMES.unpack_from(packed, _TIMES_AT)
    return commit_ms, expire_ms


def topic_id_of(packed: bytes) -> bytes:
    return packed[_TOPIC_ID_AT:FIXED_BYTES]


def is_further(packed: bytes, other: bytes) -> bool:
    """Whether the first stands further down the log."""
    return packed[:LOG_OFFSET_BYTES] > other[:LOG_OFFSET_BYTES]


def log_offset_of(packed: bytes) -> int:
    return int.from_bytes(packed[:LOG_OFFSET_BYTES], "big")


def _text(packed: bytes) -> str:
    return packed[FIXED_BYTES:].decode("utf-8", "surrogateescape") if len(packed) > FIXED_BYTES else ""
