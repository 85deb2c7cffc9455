"""The newest record of each key, kept while a partition of any length streams by.

Memory follows the number of keys and the size of their newest values, not the length of the log. Three pieces:

    entries   one row of eight longs (a cache line) per kept record: where its bytes are and what its batch said
    index     a hash table: the upper half of a slot is the key's hash, the lower half the number of an entry plus one
    arena     the bytes: every entry has a place for its key and, behind it, its value, both in whole words

A key's newer record takes the place of the older one where it fits. Where it does not, it gets a new place at the end
of the arena, and the old one is garbage. A full arena is compacted in place once garbage is more than half of it, and
otherwise grows.

What counts as one key: types 0 and 1 of the same group, topic and partition (brokers after 0.8.2 delete a type 0 offset
with a type 1 tombstone); for anything else, unknown and unreadable keys too, the raw bytes. All null keys are one key.
A tombstone is the newest record of its key like any other, and stays. Newest means last in the log.

Records of transactional batches are all kept, whatever the outcome: a commit counts from where it stands in the log, so
which one wins is for the reader of the survivors to decide. Markers are not kept; the outcome is on the records.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from muster.codec.columns import commits, groups, scan
from muster.codec.columns.chunks import Bytes, Chunk, Longs
from muster.codec.columns.commits import C_GROUP, C_GROUP_LENGTH, C_KIND, C_TYPE, K_CONTROL, string_end
from muster.codec.columns.kernels import BYTES, LONGS, SLACK, TABLE, inlined, kernel, load_word, store_word
from muster.codec.columns.scan import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_FIRST_RECORD,
    B_MAGIC,
    B_OUTCOME,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    DELETE_HORIZON_BIT,
    R_BATCH,
    R_KEY,
    R_KEY_LENGTH,
    R_OFFSET,
    R_TIMESTAMP,
    R_VALUE,
    R_VALUE_LENGTH,
    TRANSACTIONAL_BIT,
)

# Columns of an entry. Pairs share a long, the first in the upper half.
E_OFFSET = 0
E_TIMESTAMP = 1
E_PLACE = 2  # where in the arena its key begins
E_LENGTHS = 3  # of key and value, each plus one: a null is 0
E_ROOM = 4  # words of its place; identity of its key, below
E_BATCH_OFFSET = 5  # offset of the first record present in its batch
E_PRODUCER_ID = 6
E_BATCH = 7  # producer epoch, outcome, magic, attributes: 16, 8, 8 and 32 bits
ENTRY_COLUMNS = 8

# The identity of a key says what is compared: for a commit the bytes between the type and the end of the partition, and
# this bit; for any other key all of it, and its length plus one (a null is 0).
COMMIT_IDENTITY = 1 << 31
LOWER = (1 << 32) - 1

# What the kernel counts.
N_ENTRIES = 0
N_KEYS = 1  # entries that the index knows: all but the transactional ones
N_ARENA = 2  # bytes given out
N_LIVE = 3  # bytes of those that newest records need
N_CONTROL = 4
N_NULL_KEYS = 5
COUNTS = 6

BLOCK = 64
"""Records looked up together: their cache misses overlap, which halves the time once the keys outgrow the cache."""
AHEAD_COLUMNS = 3

SMALLEST_ARENA = 1 << 18
SMALLEST_INDEX = 1 << 13
PIECE_RECORDS = 1 << 17
PIECE_BYTES = 64 * 1024 * 1024

ALL_ONES = 0xFFFFFFFFFFFFFFFF


@intrinsic
def _fold_product(typing_context: Any, left: Any, right: Any) -> Any:
    """Both halves of a 128-bit product, combined: every bit of the factors reaches every bit of the result."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, long = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.xor(builder.trunc(product, long), builder.trunc(builder.lshr(product, wide(64)), long))

    return types.uint64(types.uint64, types.uint64), generate


@inlined
def _some_bytes(buffer, position, count):  # type: ignore[no-untyped-def]
    """A word of which only the first `count` bytes (0 to 8) are looked at."""
    if count <= 0:
        return np.uint64(0)
    return load_word(buffer, position) & (np.uint64(ALL_ONES) >> np.uint64(64 - 8 * count))


@inlined
def seeded_hash(buffer, position, length, identity, seed, secret):  # type: ignore[no-untyped-def]
    """Multiply-mix, sixteen bytes a turn. Seed and secret are random, so no log can be made to collide on purpose."""
    state = seed ^ np.uint64(identity)
    end = position + length
    while end - position > 16:
        state = _fold_product(load_word(buffer, position) ^ secret, load_word(buffer, position + 8) ^ state)
        position += 16
    rest = end - position
    first = _some_bytes(buffer, position, min(rest, 8))
    second = _some_bytes(buffer, position + 8, rest - 8)
    state = _fold_product(first ^ secret, second ^ state)
    return np.int64(_fold_product(state ^ secret, seed))


@inlined
def _are_same(left, left_position, right, right_position, length):  # type: ignore[no-untyped-def]
    done = 0
    while length - done >= 8:
        if load_word(left, left_position + done) != load_word(right, right_position + done):
            return False
        done += 8
    rest = length - done
    return _some_bytes(left, left_position + done, rest) == _some_bytes(right, right_position + done, rest)


@inlined
def _copy_words(source, start, length, target, position):  # type: ignore[no-untyped-def]
    """Copy in whole words: up to seven bytes past the end, which belong to the same place."""
    done = 0
    while done < length:
        store_word(target, position + done, load_word(source, start + done))
        done += 8


@inlined
def _in_words(length):  # type: ignore[no-untyped-def]
    """Bytes that a field takes in the arena; a null takes none."""
    return (max(length, 0) + 7) & -8


@inlined
def _needed(entries, entry):  # type: ignore[no-untyped-def]
    """Bytes that an entry's key and value take, which may be less than the room they have."""
    lengths = entries[entry, E_LENGTHS]
    return _in_words((lengths >> 32) - 1) + _in_words((lengths & LOWER) - 1)


@inlined
def _identity(buffer, records, classes, number):  # type: ignore[no-untyped-def]
    """What of a key is compared: where it begins, its length, and the identity that must be equal too."""
    key, key_length = records[number, R_KEY], records[number, R_KEY_LENGTH]
    record_type = classes[number, C_TYPE]
    if (record_type == 0 or record_type == 1) and classes[number, C_GROUP_LENGTH] >= 0:
        key_end = key + key_length
        topic_end = string_end(buffer, classes[number, C_GROUP] + classes[number, C_GROUP_LENGTH], key_end)
        if topic_end >= 0 and key_end - topic_end >= 4:
            length = topic_end + 4 - (key + 2)
            return key + 2, length, COMMIT_IDENTITY | length
    return key, max(key_length, 0), key_length + 1


@inlined
def _write_entry(entries, entry, batches, records, number):  # type: ignore[no-untyped-def]
    """All of an entry but its place and the room there."""
    batch = records[number, R_BATCH]
    entries[entry, E_OFFSET] = records[number, R_OFFSET]
    entries[entry, E_TIMESTAMP] = records[number, R_TIMESTAMP]
    entries[entry, E_LENGTHS] = (records[number, R_KEY_LENGTH] + 1) << 32 | (records[number, R_VALUE_LENGTH] + 1)
    entries[entry, E_BATCH_OFFSET] = records[batches[batch, B_FIRST_RECORD], R_OFFSET]
    entries[entry, E_PRODUCER_ID] = batches[batch, B_PRODUCER_ID]
    entries[entry, E_BATCH] = (
        batches[batch, B_PRODUCER_EPOCH] << 48
        | batches[batch, B_OUTCOME] << 40
        | batches[batch, B_MAGIC] << 32
        | (batches[batch, B_ATTRIBUTES] & LOWER)
    )


@inlined
def _look_ahead(buffer, records, classes, first, last, entries, index, arena, ahead, seed, secret):  # type: ignore[no-untyped-def]
    """Hash the next keys, and touch what they will need: the loads do not wait for one another."""
    mask = len(index) - 1
    for number in range(first, last):
        start, length, identity = _identity(buffer, records, classes, number)
        ahead[number - first, 0] = seeded_hash(buffer, start, length, identity, seed, secret)
        ahead[number - first, 1] = identity
    for row in range(last - first):
        ahead[row, 2] = index[(ahead[row, 0] >> 32) & mask] & LOWER
    for row in range(last - first):
        entry = max(ahead[row, 2] - 1, 0)
        ahead[row, 2] = arena[entries[entry, E_PLACE]]


@inlined
def _find(buffer, key, tag, identity, entries, index, arena):  # type: ignore[no-untyped-def]
    """The entry of a key, or -1, and the slot where the search ended."""
    mask = np.int64(len(index) - 1)
    skipped, length = 0, max(identity - 1, 0)
    if identity >= COMMIT_IDENTITY:
        skipped, length = 2, identity - COMMIT_IDENTITY
    slot = tag & mask
    while index[slot] != 0:
        if index[slot] >> 32 == tag:
            entry = (index[slot] & LOWER) - 1
            place = entries[entry, E_PLACE] + skipped
            if entries[entry, E_ROOM] & LOWER == identity and _are_same(buffer, key + skipped, arena, place, length):
                return entry, slot
        slot = (slot + 1) & mask
    return -1, slot


@kernel(
    types.int64(
        BYTES, TABLE, TABLE, TABLE, types.int64, TABLE, LONGS, BYTES, LONGS, TABLE, types.uint64, types.uint64,
    )
)  # fmt: skip
def keep_latest(  # type: ignore[no-untyped-def]
    buffer, batches, records, classes, first, entries, index, arena, counts, ahead, seed, secret,
):  # fmt: skip
    """Take in the records from row `first` on; returns the row reached, short of the last one where room ran out.

    Nothing has been done then for the row returned, so the caller makes room and calls again.
    """
    most_keys = len(index) * 6 // 10
    arena_end = len(arena) - SLACK
    used, keys, arena_used, live = counts[N_ENTRIES], counts[N_KEYS], counts[N_ARENA], counts[N_LIVE]
    control, null_keys = counts[N_CONTROL], counts[N_NULL_KEYS]
    number, looked, next_look = first, first, first
    while number < len(records):
        if number == next_look:
            looked, next_look = number, min(number + BLOCK, np.int64(len(records)))
            _look_ahead(buffer, records, classes, looked, next_look, entries, index, arena, ahead, seed, secret)
        if classes[number, C_KIND] == K_CONTROL:
            control += 1
            number += 1
            continue
        key, key_length = records[number, R_KEY], records[number, R_KEY_LENGTH]
        value, value_length = records[number, R_VALUE], records[number, R_VALUE_LENGTH]
        tag, identity = ahead[number - looked, 0] >> 32, ahead[number - looked, 1]
        batch = records[number, R_BATCH]
        transactional = batches[batch, B_MAGIC] == 2 and (batches[batch, B_ATTRIBUTES] & TRANSACTIONAL_BIT) != 0
        entry, slot = -1, -1
        if not transactional:
            entry, slot = _find(buffer, key, tag, identity, entries, index, arena)
        need = _in_words(key_length) + _in_words(value_length)
        if entry >= 0 and need <= entries[entry, E_ROOM] >> 32 << 3:
            place = entries[entry, E_PLACE]
            live += need - _needed(entries, entry)
            if identity >= COMMIT_IDENTITY:
                if key_length == identity - COMMIT_IDENTITY + 2 and entries[entry, E_LENGTHS] >> 32 == key_length + 1:
                    arena[place + 1] = buffer[key + 1]  # all of it is there but, perhaps, the type
                else:
                    _copy_words(buffer, key, key_length, arena, place)  # bytes behind the partition, which do not count
        else:
            is_new = entry < 0
            if arena_used + need > arena_end or (is_new and used == len(entries)) or (is_new and keys >= most_keys):
                break
            if is_new:
                entry = used
                used += 1
                if not transactional:
                    keys += 1
                    index[slot] = tag << 32 | (entry + 1)
            else:
                live -= _needed(entries, entry)
            live += need
            place = arena_used
            entries[entry, E_PLACE] = place
            entries[entry, E_ROOM] = need >> 3 << 32 | identity
            arena_used += need
            _copy_words(buffer, key, key_length, arena, place)
        _copy_words(buffer, value, value_length, arena, place + _in_words(key_length))
        _write_entry(entries, entry, batches, records, number)
        null_keys += key_length < 0
        number += 1
    counts[N_ENTRIES], counts[N_KEYS], counts[N_ARENA], counts[N_LIVE] = used, keys, arena_used, live
    counts[N_CONTROL], counts[N_NULL_KEYS] = control, null_keys
    return np.int64(number)


@kernel(types.int64(TABLE, LONGS, BYTES))
def compact_arena(entries, order, arena):  # type: ignore[no-untyped-def]
    """Slide all places together, given the entries in order of their places; returns the bytes then in use."""
    used = 0
    for turn in range(len(order)):
        entry = order[turn]
        need = _needed(entries, entry)
        if entries[entry, E_PLACE] != used:
            _copy_words(arena, entries[entry, E_PLACE], need, arena, used)
        entries[entry, E_PLACE] = used
        entries[entry, E_ROOM] = need >> 3 << 32 | (entries[entry, E_ROOM] & LOWER)
        used += need
    return used


@kernel(types.void(LONGS, LONGS))
def move_index(old, new):  # type: ignore[no-untyped-def]
    """Enter everything into a larger index; the slots carry their hashes, so no key is read again."""
    mask = np.int64(len(new) - 1)
    for position in range(len(old)):
        if old[position] != 0:
            slot = (old[position] >> 32) & mask
            while new[slot] != 0:
                slot = (slot + 1) & mask
            new[slot] = old[position]


def _random_word() -> np.uint64:
    return np.uint64(secrets.randbits(64) | 1)


class LatestTable:
    """What is left of one partition when every key keeps only its newest record: `update` in log order, then read."""

    def __init__(self) -> None:
        self._entries: Longs = np.empty((SMALLEST_INDEX // 2, ENTRY_COLUMNS), np.int64)
        self._entries[0] = 0  # looked at before it is there
        self._index: Longs = np.zeros(SMALLEST_INDEX, np.int64)
        self._arena: Bytes = np.empty(SMALLEST_ARENA, np.uint8)
        self._counts: Longs = np.zeros(COUNTS, np.int64)
        self._ahead: Longs = np.empty((BLOCK, AHEAD_COLUMNS), np.int64)
        self._seed, self._secret = _random_word(), _random_word()

    def __len__(self) -> int:
        """Records kept."""
        return int(self._counts[N_ENTRIES])

    @property
    def distinct_keys(self) -> int:
        """Keys seen outside of transactions, the null key being one of them."""
        return int(self._counts[N_KEYS])

    @property
    def control_records(self) -> int:
        """Markers seen; none is kept."""
        return int(self._counts[N_CONTROL])

    @property
    def null_keys(self) -> int:
        """Records seen with a null key, which no broker writes. Outside of transactions only the newest is kept."""
        return int(self._counts[N_NULL_KEYS])

    @property
    def size_bytes(self) -> int:
        """Memory that the table holds on to."""
        return self._entries.nbytes + self._index.nbytes + self._arena.nbytes

    def update(self, chunk: Chunk) -> None:
        """Take in the records of the next chunk of the log; everything kept is copied out of it."""
        row = 0
        while True:
            row = keep_latest(
                chunk.buffer, chunk.batches, chunk.records, chunk.classes, row,
                self._entries, self._index, self._arena, self._counts, self._ahead, self._seed, self._secret,
            )  # fmt: skip
            if row == len(chunk.records):
                return
            lengths = chunk.records[row, [R_KEY_LENGTH, R_VALUE_LENGTH]]
            self._make_room(int(np.maximum(lengths, 0).sum()) + 16)

    def _make_room(self, need: int) -> None:
        """Room for at least one more record of this size, wherever it is lacking."""
        if len(self) == len(self._entries):
            self._entries = grown(self._entries, 2 * len(self))
        if self.distinct_keys >= len(self._index) * 6 // 10:
            index = np.zeros(2 * len(self._index), np.int64)
            move_index(self._index, index)
            self._index = index
        used, live = int(self._counts[N_ARENA]), int(self._counts[N_LIVE])
        if used + need <= len(self._arena) - SLACK:
            return
        if used - live > used // 2:
            used = self._compact()
        if used + need > len(self._arena) - SLACK:
            self._arena = grown(self._arena, len(self._arena) // 2 * 3 + need)

    def _compact(self) -> int:
        places = self._entries[: len(self), E_PLACE]
        self._counts[N_ARENA] = compact_arena(self._entries, np.argsort(places), self._arena)
        return int(self._counts[N_ARENA])

    def survivors(self) -> Iterator[Chunk]:
        """The kept records in order of their offsets, as chunks of at most `PIECE_RECORDS` records.

        These are chunks like those of a log, for the same consumers, with three differences. Every record has a batch
        row of its own, number equal to its row. B_POSITION is -1, because no such batch is in any file, and
        B_BASE_OFFSET is the offset of the first record that was present in the record's batch: read `batch_offsets`
        and not the first record's offset. What a batch row cannot know after compaction is left out: sequence, leader
        epoch, checksum, record headers, the delete horizon and its bit.

        Their buffer is the table's own, and a piece is overwritten by the next: copy out what is to stay, and do not
        update the table meanwhile.
        """
        order = np.argsort(self._entries[: len(self), E_OFFSET], kind="stable")
        room = min(len(self), PIECE_RECORDS)
        batches = np.empty((room, scan.BATCH_COLUMNS), np.int64)
        records = np.empty((room, scan.RECORD_COLUMNS), np.int64)
        classes = np.empty((room, commits.CLASS_COLUMNS), np.int64)
        members = np.empty((2, groups.MEMBER_COLUMNS), np.int64)
        first = 0
        while first < len(order):
            entries = self._entries[order[first : first + PIECE_RECORDS]]
            entries = entries[: _that_fit(entries)]
            count = len(entries)
            _fill_batches(entries, batches[:count])
            _fill_records(entries, records[:count])
            totals = np.zeros(commits.TOTALS, np.int64)
            commits.classify(self._arena, batches, records, 0, count, classes, totals, members)
            yield Chunk(
                self._arena, batches[:count], records[:count], classes[:count], totals, next_position=0,
                stop=scan.SCAN_MORE,
            )  # fmt: skip
            first += count


def grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """A longer array that begins with the rows of this one."""
    larger = np.empty((length, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _that_fit(entries: Longs) -> int:
    """How many entries have no more than `PIECE_BYTES` between them (the first always fits)."""
    sizes = (entries[:, E_LENGTHS] >> 32) + (entries[:, E_LENGTHS] & LOWER)
    return max(1, int(np.searchsorted(np.cumsum(sizes), PIECE_BYTES, "right")))


def _fill_batches(entries: Longs, batches: Longs) -> None:
    batch = entries[:, E_BATCH]
    lengths = entries[:, E_LENGTHS]
    size = ((lengths >> 32) - 1).clip(0) + ((lengths & LOWER) - 1).clip(0)
    batches[:, scan.B_POSITION] = -1
    batches[:, scan.B_SIZE] = size
    batches[:, scan.B_BASE_OFFSET] = entries[:, E_BATCH_OFFSET]
    batches[:, scan.B_LAST_OFFSET] = entries[:, E_OFFSET]
    batches[:, scan.B_MAGIC] = batch >> 32 & 0xFF
    batches[:, scan.B_ATTRIBUTES] = batch.astype(np.int32) & ~DELETE_HORIZON_BIT
    batches[:, scan.B_BASE_TIMESTAMP] = batches[:, scan.B_MAX_TIMESTAMP] = entries[:, E_TIMESTAMP]
    batches[:, scan.B_PRODUCER_ID] = entries[:, E_PRODUCER_ID]
    batches[:, scan.B_PRODUCER_EPOCH] = batch >> 48
    batches[:, scan.B_BASE_SEQUENCE] = -1
    batches[:, scan.B_LEADER_EPOCH] = -1
    batches[:, scan.B_COUNT] = 1
    batches[:, scan.B_CRC] = 0
    batches[:, scan.B_STATE] = scan.GOOD
    batches[:, scan.B_BODY] = entries[:, E_PLACE]
    batches[:, scan.B_BODY_END] = entries[:, E_PLACE] + (entries[:, E_ROOM] >> 32 << 3)
    batches[:, scan.B_FIRST_RECORD] = np.arange(len(entries))
    batches[:, scan.B_RECORDS] = 1
    batches[:, scan.B_OUTCOME] = batch >> 40 & 0xFF


def _fill_records(entries: Longs, records: Longs) -> None:
    key_lengths = (entries[:, E_LENGTHS] >> 32) - 1
    records[:, R_OFFSET] = entries[:, E_OFFSET]
    records[:, R_TIMESTAMP] = entries[:, E_TIMESTAMP]
    records[:, R_KEY] = entries[:, E_PLACE]
    records[:, R_KEY_LENGTH] = key_lengths
    records[:, R_VALUE] = entries[:, E_PLACE] + ((key_lengths.clip(0) + 7) & -8)
    records[:, R_VALUE_LENGTH] = (entries[:, E_LENGTHS] & LOWER) - 1
    records[:, R_BATCH] = np.arange(len(entries))
    records[:, scan.R_HEADERS] = 0


def batch_offsets(chunk: Chunk) -> Longs:
    """Of each record, the offset of the first record present in its batch; for chunks of a log and for survivors."""
    batches = chunk.batches[chunk.records[:, R_BATCH]]
    # Of a survivor the row says it; there is no other record of that batch to ask.
    first = chunk.records[batches[:, B_FIRST_RECORD], R_OFFSET]
    return np.where(batches[:, B_POSITION] < 0, batches[:, B_BASE_OFFSET], first)
