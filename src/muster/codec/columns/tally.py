"""How many records of which kind, and of which group: one pass over the tables of a chunk.

Both counts go into small hash tables that the caller owns and enlarges: a kernel that runs out of room returns the row
it stands at. Neighbours are nearly always of one kind and one group, so the last place found is tried first.
"""

import secrets
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import types

from muster.codec.columns.chunks import Bytes, Chunk, Longs
from muster.codec.columns.commits import C_GROUP, C_GROUP_LENGTH, C_KIND, C_TYPE, C_VERSION, K_BAD, K_CONTROL, K_UNKNOWN
from muster.codec.columns.kernels import (
    BYTES,
    LONGS,
    SLACK,
    TABLE,
    copy_bytes,
    inlined,
    kernel,
    load_be16,
    load_word,
)
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_MAGIC,
    CODEC_MASK,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_TIMESTAMP,
    R_VALUE_LENGTH,
)

# A kind is packed into one long, from the lowest bit on.
CODEC_BITS = 3
MAGIC_BITS = 2
TOMBSTONE_BITS = 1
CONTROL_BITS = 1
SHORT_BITS = 17  # type and version, both plus 1 << 15; -1 stands for none
SHORT_BIAS = 1 << 15

# Columns of the table of groups.
G_PLACE = 0  # in the arena
G_LENGTH = 1
G_HASH = 2
G_RECORDS = 3
GROUP_COLUMNS = 4

# What the kernel keeps count of.
N_KINDS = 0
N_GROUPS = 1
N_ARENA = 2
N_FIRST_MS = 3
N_LAST_MS = 4
N_UNKNOWN = 5
N_UNREADABLE = 6
COUNTS = 7

LARGEST_LONG = (1 << 63) - 1
SMALLEST_KINDS = 1 << 8
SMALLEST_GROUPS = 1 << 10
SMALLEST_ARENA = 1 << 16


class KindCount(NamedTuple):
    """Records of one kind. A control record has its control type for a version; -1 is none."""

    record_type: int
    version: int
    is_control: bool
    is_tombstone: bool
    magic: int
    codec: int
    records: int


@inlined
def _kind(buffer, batches, records, classes, number):  # type: ignore[no-untyped-def]
    """The packed kind of a record."""
    batch = records[number, R_BATCH]
    is_control = classes[number, C_KIND] == K_CONTROL
    is_tombstone = records[number, R_VALUE_LENGTH] < 0 and not is_control
    version = classes[number, C_VERSION]
    if is_tombstone:
        version = np.int64(-1)
    if is_control:
        known = records[number, R_KEY_LENGTH] >= 4
        version = load_be16(buffer, records[number, R_KEY] + 2) if known else np.int64(-1)
    packed = classes[number, C_TYPE] + SHORT_BIAS
    packed = packed << SHORT_BITS | (version + SHORT_BIAS)
    packed = packed << CONTROL_BITS | np.int64(is_control)
    packed = packed << TOMBSTONE_BITS | np.int64(is_tombstone)
    packed = packed << MAGIC_BITS | batches[batch, B_MAGIC]
    return packed << CODEC_BITS | (batches[batch, B_ATTRIBUTES] & CODEC_MASK)


@inlined
def _is_name(buffer, position, length, arena, groups, entry):  # type: ignore[no-untyped-def]
    """Whether a name is that of an entry. Compared by words; what follows the name is shifted out of the last one."""
    if groups[entry, G_LENGTH] != length:
        return False
    place, done = groups[entry, G_PLACE], np.int64(0)
    while done < length:
        unused = np.uint64(max(np.int64(0), 8 * (done + 8 - length)))
        if (load_word(buffer, position + done) ^ load_word(arena, place + done)) << unused != np.uint64(0):
            return False
        done += 8
    return True


@inlined
def _name_hash(buffer, position, length, seed):  # type: ignore[no-untyped-def]
    state = seed ^ np.uint64(length)
    done = np.int64(0)
    while done < length:
        unused = np.uint64(max(np.int64(0), 8 * (done + 8 - length)))
        state = (state ^ (load_word(buffer, position + done) << unused)) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
        done += 8
    return np.int64((state * seed) >> np.uint64(2))


@kernel(
    types.int64(
        BYTES, TABLE, TABLE, TABLE, types.int64, TABLE, LONGS, TABLE, BYTES, LONGS, types.uint64,
    )
)  # fmt: skip
def tally_records(  # type: ignore[no-untyped-def]
    buffer, batches, records, classes, first, kinds, index, groups, arena, counts, seed,
):  # fmt: skip
    """Count the records from row `first` on; returns the row reached, for which nothing has been done yet."""
    kind_mask, group_mask = np.int64(len(kinds) - 1), np.int64(len(index) - 1)
    kind_slot, entry = np.int64(0), np.int64(-1)
    for number in range(first, len(records)):
        kind = _kind(buffer, batches, records, classes, number) + 1
        if kinds[kind_slot, 0] != kind:
            kind_slot = np.int64((np.uint64(kind) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & kind_mask
            while kinds[kind_slot, 0] != kind and kinds[kind_slot, 0] != 0:
                kind_slot = (kind_slot + 1) & kind_mask
            if kinds[kind_slot, 0] == 0:
                if 2 * counts[N_KINDS] >= len(kinds):
                    return np.int64(number)
                kinds[kind_slot, 0] = kind
                counts[N_KINDS] += 1
        group, length = classes[number, C_GROUP], classes[number, C_GROUP_LENGTH]
        if length >= 0:
            if entry < 0 or not _is_name(buffer, group, length, arena, groups, entry):
                hashed = _name_hash(buffer, group, length, seed)
                slot = hashed & group_mask
                while index[slot] != 0 and not (
                    groups[index[slot] - 1, G_HASH] == hashed
                    and _is_name(buffer, group, length, arena, groups, index[slot] - 1)
                ):
                    slot = (slot + 1) & group_mask
                if index[slot] == 0:
                    full = 2 * counts[N_GROUPS] >= len(index) or counts[N_GROUPS] == len(groups)
                    if full or counts[N_ARENA] + length + SLACK > len(arena):
                        return np.int64(number)
                    counts[N_GROUPS] += 1
                    index[slot] = counts[N_GROUPS]
                    entry = index[slot] - 1
                    groups[entry, G_PLACE] = counts[N_ARENA]
                    groups[entry, G_LENGTH] = length
                    groups[entry, G_HASH] = hashed
                    groups[entry, G_RECORDS] = 0
                    copy_bytes(buffer, group, length, arena, counts[N_ARENA])
                    counts[N_ARENA] += length
                entry = index[slot] - 1
            groups[entry, G_RECORDS] += 1
        kinds[kind_slot, 1] += 1
        what = classes[number, C_KIND]
        counts[N_UNKNOWN] += what == K_UNKNOWN
        counts[N_UNREADABLE] += what == K_BAD
        timestamp = records[number, R_TIMESTAMP]
        if timestamp >= 0:
            counts[N_FIRST_MS] = min(counts[N_FIRST_MS], timestamp)
            counts[N_LAST_MS] = max(counts[N_LAST_MS], timestamp)
    return np.int64(len(records))


@kernel(types.void(TABLE, types.int64, LONGS))
def index_groups(groups, count, index):  # type: ignore[no-untyped-def]
    """Enter all groups into an empty index."""
    mask = np.int64(len(index) - 1)
    for entry in range(count):
        slot = groups[entry, G_HASH] & mask
        while index[slot] != 0:
            slot = (slot + 1) & mask
        index[slot] = entry + 1


class Tally:
    """Counts that grow with the number of kinds and groups, not with the number of records."""

    def __init__(self) -> None:
        self._kinds: Longs = np.zeros((SMALLEST_KINDS, 2), np.int64)
        self._index: Longs = np.zeros(2 * SMALLEST_GROUPS, np.int64)
        self._groups: Longs = np.empty((SMALLEST_GROUPS, GROUP_COLUMNS), np.int64)
        self._arena: Bytes = np.zeros(SMALLEST_ARENA, np.uint8)
        self._counts: Longs = np.zeros(COUNTS, np.int64)
        self._counts[N_FIRST_MS] = LARGEST_LONG
        self._counts[N_LAST_MS] = -1
        self._seed = np.uint64(secrets.randbits(64) | 1)

    def add(self, chunk: Chunk) -> None:
        row = 0
        while True:
            row = tally_records(
                chunk.buffer, chunk.batches, chunk.records, chunk.classes, row,
                self._kinds, self._index, self._groups, self._arena, self._counts, self._seed,
            )  # fmt: skip
            if row == len(chunk.records):
                return
            self._make_room(int(chunk.classes[row, C_GROUP_LENGTH]))

    def _make_room(self, name_bytes: int) -> None:
        if 2 * self._counts[N_KINDS] >= len(self._kinds):
            self._grow_kinds()
        if 2 * self._counts[N_GROUPS] >= len(self._index) or self._counts[N_GROUPS] == len(self._groups):
            self._groups = np.concatenate([self._groups, np.empty_like(self._groups)])
            self._index = np.zeros(2 * len(self._index), np.int64)
            index_groups(self._groups, self.distinct_groups, self._index)
        if self._counts[N_ARENA] + max(name_bytes, 0) + SLACK > len(self._arena):
            self._arena = np.concatenate([self._arena, np.zeros(len(self._arena) + max(name_bytes, 0), np.uint8)])

    def _grow_kinds(self) -> None:
        kept = self._kinds[self._kinds[:, 0] != 0]
        self._kinds = np.zeros((2 * len(self._kinds), 2), np.int64)
        mask = len(self._kinds) - 1
        for kind, count in kept.tolist():
            slot = (kind * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 40 & mask
            while self._kinds[slot, 0]:
                slot = (slot + 1) & mask
            self._kinds[slot] = kind, count

    @property
    def distinct_groups(self) -> int:
        return int(self._counts[N_GROUPS])

    @property
    def first_timestamp_ms(self) -> int | None:
        return int(self._counts[N_FIRST_MS]) if self._counts[N_LAST_MS] >= 0 else None

    @property
    def last_timestamp_ms(self) -> int | None:
        return int(self._counts[N_LAST_MS]) if self._counts[N_LAST_MS] >= 0 else None

    @property
    def unknown_records(self) -> int:
        """Records of a type that no release up to 4.3 writes."""
        return int(self._counts[N_UNKNOWN])

    @property
    def unreadable_records(self) -> int:
        """Records of a known type whose bytes cannot be read."""
        return int(self._counts[N_UNREADABLE])

    def kinds(self) -> list[KindCount]:
        """All kinds seen, in order of type and version."""
        return sorted(self._unpacked())

    def _unpacked(self) -> Iterator[KindCount]:
        for packed, records in self._kinds[self._kinds[:, 0] != 0].tolist():
            fields = []
            rest = packed - 1
            for bits in (CODEC_BITS, MAGIC_BITS, TOMBSTONE_BITS, CONTROL_BITS, SHORT_BITS, SHORT_BITS):
                fields.append(rest & ((1 << bits) - 1))
                rest >>= bits
            codec, magic, is_tombstone, is_control, version, record_type = fields
            yield KindCount(
                record_type - SHORT_BIAS,
                version - SHORT_BIAS,
                bool(is_control),
                bool(is_tombstone),
                magic,
                codec,
                records,
            )

    def busiest_groups(self, most: int) -> list[tuple[str, int]]:
        """The groups with the most records, and how many."""
        records = self._groups[: self.distinct_groups, G_RECORDS]
        chosen = np.argsort(-records, kind="stable")[:most]
        return [(self._name(entry), int(records[entry])) for entry in chosen.tolist()]

    def _name(self, entry: int) -> str:
        place, length = self._groups[entry, :2].tolist()
        return self._arena[place : place + length].tobytes().decode("utf-8", "replace")
