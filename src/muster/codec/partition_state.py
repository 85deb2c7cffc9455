"""The state of a partition of __consumer_offsets as plain values: committed offsets, and the newest record of each key.

`muster.log.loading` makes a `LoadedPartition` out of columns, `muster.core.groups` restores a coordinator from it.

**A committed offset** is one bytes object of 52 bytes and its metadata. There are a million of these in a busy cluster
and each is read far less often than it is replaced: this takes a third of the memory of the same numbers as Python
objects, leaves nothing for the garbage collector to walk over, and a whole log of them can be made column by column.
The place in the log comes first, big-endian, so that of two such offsets the one further down the log is the one whose
first eight bytes are larger.

**The newest record of each key** is all of a log that a coordinator needs. Take one key, (group, topic, partition), and
walk the log as a coordinator does. A tombstone forgets the committed offset and everything that producers hold pending,
so no later marker brings anything back: **a value counts if no tombstone of its key stands further down**, be it
ordinary, committed or waiting. Of the values that count, an ordinary one replaces what is committed at once, and stands
further down than all before it; a transactional one does so at its COMMIT unless what is committed stands further down.
Both keep the larger log offset, so **the committed offset is the ordinary or committed value with the largest log
offset**, whatever the order of the markers. What stays pending is each producer's last value in its open transaction.
Aborted values never count; their tombstones do, because a coordinator does not wait for a marker to forget. Group
records do not look at producers either: the last one wins.

So one thing must be known beyond the newest record of each key: a tombstone that an ordinary commit has replaced since
still ends what was pending before it. `tombstones` has those too.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import NamedTuple

from muster.codec.offsets_topic import NO_TOPIC_ID, GroupValue, OffsetValue

# A committed offset.

LOG_OFFSET_BYTES = 8
FIXED_BYTES = 52
_LOG_OFFSET = Struct(">q")
_FIXED = Struct(">qiqq16s")
_FETCHED = Struct(">qi")
_TIMES = Struct(">qq")
_TIMES_AT = LOG_OFFSET_BYTES + _FETCHED.size
_TOPIC_ID_AT = FIXED_BYTES - len(NO_TOPIC_ID)

encode_log_offset = _LOG_OFFSET.pack
encode_fixed = _FIXED.pack
"""Committed offset, leader epoch, commit and expire timestamp, topic id; metadata in UTF-8 follows."""


class CommittedOffset(NamedTuple):
    """A commit and where in the log it stands; the later one in the log wins."""

    log_offset: int
    value: OffsetValue


def encode_commit(log_offset: int, value: OffsetValue) -> bytes:
    """What a value says to a coordinator; unknown tagged fields stay in the log."""
    return encode_log_offset(log_offset) + encode_commit_value(value)


def encode_commit_value(value: OffsetValue) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = value
    fixed = encode_fixed(offset, leader_epoch, commit_ms, expire_ms, topic_id)
    return fixed + metadata.encode("utf-8", "surrogateescape") if metadata else fixed


def decode_commit(commit_bytes: bytes) -> CommittedOffset:
    (log_offset,) = _LOG_OFFSET.unpack_from(commit_bytes)
    offset, leader_epoch, commit_ms, expire_ms, topic_id = _FIXED.unpack_from(commit_bytes, LOG_OFFSET_BYTES)
    return CommittedOffset(
        log_offset, OffsetValue(offset, leader_epoch, _text(commit_bytes), commit_ms, expire_ms, topic_id)
    )


def fetched(commit_bytes: bytes) -> tuple[int, int, str]:
    """Committed offset, leader epoch and metadata."""
    offset, leader_epoch = _FETCHED.unpack_from(commit_bytes, LOG_OFFSET_BYTES)
    return offset, leader_epoch, _text(commit_bytes)


def times_ms(commit_bytes: bytes) -> tuple[int, int]:
    """When it was committed, and when it expires (-1: by the retention of the cluster)."""
    commit_ms, expire_ms = _TIMES.unpack_from(commit_bytes, _TIMES_AT)
    return commit_ms, expire_ms


def topic_id_of(commit_bytes: bytes) -> bytes:
    return commit_bytes[_TOPIC_ID_AT:FIXED_BYTES]


def is_further(commit_bytes: bytes, other: bytes) -> bool:
    """Whether the first stands further down the log."""
    return commit_bytes[:LOG_OFFSET_BYTES] > other[:LOG_OFFSET_BYTES]


def log_offset_of(commit_bytes: bytes) -> int:
    return int.from_bytes(commit_bytes[:LOG_OFFSET_BYTES], "big")


def _text(commit_bytes: bytes) -> str:
    return commit_bytes[FIXED_BYTES:].decode("utf-8", "surrogateescape") if len(commit_bytes) > FIXED_BYTES else ""


# A partition.

TopicPartition = tuple[str, int]


class CommitColumns(NamedTuple):
    """Commits that count unless a tombstone says otherwise, as columns; a run of rows for each group.

    Of rows with the same key, here or in another piece, that with the largest log offset is the last.
    """

    runs: list[tuple[str, int]]
    """Group ids, each with the number of rows that are its."""
    partitions: list[TopicPartition]
    commit_bytes: list[bytes]
    """Committed offsets as `encode_commit` writes them."""


class OpenCommit(NamedTuple):
    """A commit whose transaction has no marker yet."""

    producer_id: int
    group_id: str
    partition: TopicPartition
    log_offset: int
    value: OffsetValue


class LoadedPartition(NamedTuple):
    commits: list[CommitColumns]
    open_commits: list[OpenCommit]
    """In log order."""
    tombstones: dict[tuple[str, str, int], int]
    """Where the last tombstone of a key stands; only keys that need it are here."""
    groups: dict[str, GroupValue]
    newer_records: list[tuple[bytes, bytes, int]]
    """Key, value and log offset of the newest records of types 3 to 23, in log order."""
    records: int = 0
    size_bytes: int = 0
    control_records: int = 0
    tombstone_records: int = 0
    unknown_records: int = 0
    bad_records: int = 0
    bad_batches: int = 0
    problems: tuple[str, ...] = ()
    """What was wrong with the bad ones, the first of them."""
    fatal: str | None = None
    """Why this partition must not be served from what could be read."""


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector from walking over a million new objects again and again: none of them is garbage.

    That walk is most of the time that a large load takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
