"""Which records of a chunk were asked for: row numbers, for the lines of a dump and the Arrow columns.

Numbers are compared by numpy. Names are matched by a kernel on the bytes, with `*` for any run of characters and `?`
for one; a backslash before either takes it literally. Only keys are looked at: a marker has no group, and only offset
commits have a topic.
"""

from dataclasses import dataclass, replace

import numpy as np

from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_KIND, C_TYPE, K_CONTROL
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_OUTCOME,
    R_BATCH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE_LENGTH,
    TRANSACTIONAL_BIT,
)
from muster.codec.transaction_outcomes import COMMITTED, NO_TRANSACTION

CONTROL_TYPE = -1
"""Stands for transaction markers among the record types."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a record must be. Everything given must hold; of several groups (topics, types) one must.

    Offsets and times are both inclusive. A record without a timestamp (the oldest format has none) is at no time.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    record_types: frozenset[int] = frozenset()
    from_offset: int | None = None
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    tombstones: bool | None = None  # True: nothing else; False: none

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def rows(self, chunk: Chunk) -> Longs | None:
        """The numbers of the records wanted, ascending; None stands for all of them."""
        if self.is_everything:
            return None
        return np.flatnonzero(self._flags(chunk))

    def _flags(self, chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        records, classes = chunk.records, chunk.classes
        keep = np.ones(len(records), np.bool_)
        if self.from_offset is not None:
            keep &= records[:, R_OFFSET] >= self.from_offset
        if self.to_offset is not None:
            keep &= records[:, R_OFFSET] <= self.to_offset
        if self.since_ms is not None or self.until_ms is not None:
            times = records[:, R_TIMESTAMP]
            keep &= times >= max(self.since_ms or 0, 0)
            if self.until_ms is not None:
                keep &= times <= self.until_ms
        if self.tombstones is not None:
            is_tombstone = (records[:, R_VALUE_LENGTH] < 0) & (classes[:, C_KIND] != K_CONTROL)
            keep &= is_tombstone if self.tombstones else ~is_tombstone
        if self.record_types:
            keep &= self._of_wanted_type(classes)
        flags = keep.view(np.uint8)
        if self.groups or self.topics:
            from muster.codec.columns import names  # a second to compile, and few filter by name

            for which, patterns in ((names.BY_GROUP, self.groups), (names.BY_TOPIC, self.topics)):
                if patterns:
                    codes, ends = names.encode_patterns(patterns)
                    names.match_names(chunk.buffer, records, classes, which, codes, ends, flags)
        return flags

    def _of_wanted_type(self, classes: Longs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        is_control = classes[:, C_KIND] == K_CONTROL
        wanted = np.isin(classes[:, C_TYPE], [number for number in self.record_types if number != CONTROL_TYPE])
        wanted &= ~is_control
        return wanted | is_control if CONTROL_TYPE in self.record_types else wanted


def in_force(chunk: Chunk, rows: Longs | None) -> Chunk:
    """A chunk for the newest-per-key table, of which only these rows count and transactions are settled.

    The table keeps every transactional record, because it cannot tell which one wins. Here the outcomes are known: a
    committed record counts from where it stands in the log, like any other; aborted and open ones do not count. What
    does not count is passed off as control records, which the table steps over.
    """
    outcomes = chunk.batches[:, B_OUTCOME]
    settled = bool((outcomes != NO_TRANSACTION).any())
    if rows is None and not settled:
        return chunk
    hidden = np.zeros(len(chunk.records), np.bool_)
    if rows is not None:
        hidden[:] = True
        hidden[rows] = False
    batches, classes = chunk.batches, chunk.classes.copy()
    if settled:
        counts = (outcomes == NO_TRANSACTION) | (outcomes == COMMITTED)
        hidden |= ~counts[chunk.records[:, R_BATCH]]
        batches = batches.copy()
        batches[:, B_ATTRIBUTES] &= ~TRANSACTIONAL_BIT
    classes[hidden, C_KIND] = K_CONTROL
    return replace(chunk, batches=batches, classes=classes)
