"""Which records of a chunk somebody asked for: row numbers, for the renderers and the Arrow columns.

Numbers are compared by numpy. Names are matched by a kernel on the bytes, with `*` for any run of characters and `?`
for one; a backslash before either takes it literally. Only keys are looked at: a marker has no group, and only offset
commits have a topic.
"""

from dataclasses import dataclass, replace

import numpy as np
from numba import types

from muster.codec.columns.chunks import Chunk, Longs
from muster.codec.columns.commits import C_GROUP, C_GROUP_LENGTH, C_KIND, C_TYPE, K_CONTROL, string_end
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_OUTCOME,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE_LENGTH,
    TRANSACTIONAL_BIT,
)
from muster.codec.columns.words import BYTES, FLAGS, LONGS, TABLE, inlined, kernel, load_be16
from muster.codec.transactions import COMMITTED, NO_TRANSACTION

CONTROL_TYPE = -1
"""Stands for transaction markers among the record types."""

# A pattern is a row of codes: a byte, or one of these.
ANY_RUN = 256
ANY_ONE = 257

BY_GROUP = 0
BY_TOPIC = 1


@inlined
def _matches(buffer, position, end, codes, code, last):  # type: ignore[no-untyped-def]
    """Whether buffer[position:end] is what codes[code:last] describe.

    Only the latest run need ever be made longer: whatever an earlier one could still take, the latest can take too.
    """
    run, retry = np.int64(-1), position
    while position < end:
        wanted = codes[code] if code < last else np.int64(-1)
        if wanted == buffer[position]:
            position += 1
            code += 1
        elif wanted == ANY_ONE:
            position += 1
            while position < end and (buffer[position] & 0xC0) == 0x80:  # the rest of one UTF-8 character
                position += 1
            code += 1
        elif wanted == ANY_RUN:
            code += 1
            run, retry = code, position
        elif run >= 0:
            retry += 1
            code, position = run, retry
        else:
            return False
    while code < last and codes[code] == ANY_RUN:
        code += 1
    return code == last


@inlined
def _matches_any(buffer, position, end, codes, ends):  # type: ignore[no-untyped-def]
    first = np.int64(0)
    for pattern in range(len(ends)):
        if _matches(buffer, position, end, codes, first, ends[pattern]):
            return True
        first = ends[pattern]
    return False


@kernel(types.void(BYTES, TABLE, TABLE, types.int64, LONGS, LONGS, FLAGS))
def match_names(buffer, records, classes, which, codes, ends, keep):  # type: ignore[no-untyped-def]
    """Clear the flag of every record whose group (or topic) matches no pattern, or that has none."""
    for number in range(len(records)):
        if keep[number] == 0:
            continue
        keep[number] = 0
        start, length = classes[number, C_GROUP], classes[number, C_GROUP_LENGTH]
        if length < 0:
            continue
        if which == BY_TOPIC:
            record_type = classes[number, C_TYPE]
            if record_type != 0 and record_type != 1:
                continue
            topic_end = string_end(buffer, start + length, records[number, R_KEY] + records[number, R_KEY_LENGTH])
            if topic_end < 0:
                continue
            start += length + 2
            length = load_be16(buffer, start - 2)
        keep[number] = _matches_any(buffer, start, start + length, codes, ends)


def encode_pattern(pattern: str) -> list[int]:
    """The codes of one pattern."""
    codes: list[int] = []
    characters = iter(pattern)
    for character in characters:
        if character == "*":
            codes.append(ANY_RUN)
        elif character == "?":
            codes.append(ANY_ONE)
        else:
            literal = next(characters, "\\") if character == "\\" else character
            codes += literal.encode("utf-8", "surrogateescape")
    return codes


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
        for which, patterns in ((BY_GROUP, self.groups), (BY_TOPIC, self.topics)):
            if patterns:
                encoded = [encode_pattern(pattern) for pattern in patterns]
                codes = np.array([code for pattern in encoded for code in pattern], np.int64)
                ends = np.cumsum([len(pattern) for pattern in encoded], dtype=np.int64)
                match_names(chunk.buffer, records, classes, which, codes, ends, flags)
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
