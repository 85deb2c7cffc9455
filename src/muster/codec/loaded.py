"""What is left to say of a whole partition when only the newest of each key is kept: plain values, ready to be put in
their places. `muster.log.loading` makes it out of columns, `muster.core.groups` restores a coordinator from it.

Why this is enough. Take one key, (group, topic, partition), and walk the log as a coordinator does. A tombstone forgets
the committed offset and everything that producers hold pending, so no later marker brings anything back: **a value
counts if no tombstone of its key stands further down**, be it ordinary, committed or waiting. Of the values that count,
an ordinary one replaces what is committed at once, and stands further down than all before it; a transactional one does
so at its COMMIT unless what is committed stands further down. Both keep the larger log offset, so **the committed
offset is the ordinary or committed value with the largest log offset**, whatever the order of the markers. What stays
pending is each producer's last value in its open transaction. Aborted values never count; their tombstones do, because
a coordinator does not wait for a marker to forget. Group records do not look at producers either: the last one wins.

So one thing must be known beyond the newest record of each key: a tombstone that an ordinary commit has replaced since
still ends what was pending before it. `tombstones` has those too.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from muster.codec.offsets_topic import GroupValue, OffsetValue

TopicPartition = tuple[str, int]


class CommitColumns(NamedTuple):
    """Commits that count unless a tombstone says otherwise, as columns; a run of rows for each group.

    Of rows with the same key, here or in another piece, that with the largest log offset is the last.
    """

    runs: list[tuple[str, int]]
    """Group ids, each with the number of rows that are its."""
    partitions: list[TopicPartition]
    packed: list[bytes]
    """Each as in `muster.codec.committed`."""


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
    newer: list[tuple[bytes, bytes, int]]
    """Key, value and log offset of the newest records of newer kinds, in log order."""
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
