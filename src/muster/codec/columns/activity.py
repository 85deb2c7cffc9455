"""`Activity`: for each deletion the commit it deletes, for each group record the commits of its group around it.

    deletion       when the commit that it deletes was made, and when that was to expire
    group record   when its group last committed before it, and when it first did after it and before the next one
    group          when it first committed before any record of its own, and when it last did: for whoever reads on

A hash table has an entry for each key of an offset commit and one for each group, so memory follows the number of keys
and of groups; classic group records are noted in a list besides, three longs each, because their second answer comes
later in the log. What the table cannot know it says: `UNSEEN` is a key (or group) of which the log so far has nothing,
and whoever knows what was there before may be asked.

A deletion deletes what was visible: commits of transactions that were aborted, or are open, are no past of it. A group
has committed, however, whatever became of its transaction: it was alive.
"""

import secrets
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from muster.codec.columns.chunks import Bytes, Chunk, Longs
from muster.codec.columns.commits import (
    C_GROUP,
    C_GROUP_LENGTH,
    C_KIND,
    C_METADATA,
    C_METADATA_LENGTH,
    C_VERSION,
    K_COMMIT,
    K_COMMIT_TOMBSTONE,
    K_GROUP,
    K_GROUP_TOMBSTONE,
)
from muster.codec.columns.kernels import (
    BYTES,
    FLAGS,
    LONGS,
    SLACK,
    TABLE,
    copy_bytes,
    inlined,
    kernel,
    load_be16,
    load_be64,
    load_word,
)
from muster.codec.columns.latest import grown, seeded_hash
from muster.codec.columns.scan import B_OUTCOME, R_BATCH, R_OFFSET
from muster.codec.transaction_outcomes import COMMITTED, NO_TRANSACTION

NONE = -1
UNSEEN = -2

# Columns of an entry. The last two are a deletion's of a key, and lists of group records (below) of a group.
A_PLACE = 0  # of its bytes in the arena
A_IDENTITY = 1  # their length, and GROUP_BIT for a group's
A_HASH = 2
A_COMMIT_MS = 3
A_EXPIRE_MS = 4
A_DELETED_MS = 5
A_DELETED_EXPIRE_MS = 6
A_WAITING = 5  # newest group record, if no commit has followed it yet; NONE without one
A_LAST = 6  # newest group record
A_FIRST_MS = 7  # of a group: its first commit, if that came before any record of the group; UNSEEN so far, else NONE
ENTRY_COLUMNS = 8
GROUP_BIT = 1 << 40

# Columns of the list of group records.
G_OFFSET = 0
G_BEFORE_MS = 1
G_AFTER_MS = 2
GROUP_ROW_COLUMNS = 3

# What deletions are answered with: row of the chunk, and the two times.
DELETION_COLUMNS = 3

N_ENTRIES = 0
N_ARENA = 1
N_GROUP_ROWS = 2
N_DELETIONS = 3
COUNTS = 4

SMALLEST_INDEX = 1 << 12
SMALLEST_ARENA = 1 << 17
LONGEST_KEY = 1 << 17
"""Both strings of a key have an int16 length, so no key is longer."""


@inlined
def _is_equal(left, left_position, right, right_position, length):  # type: ignore[no-untyped-def]
    done = 0
    while length - done >= 8:
        if load_word(left, left_position + done) != load_word(right, right_position + done):
            return False
        done += 8
    rest = length - done
    if rest == 0:
        return True
    different = load_word(left, left_position + done) ^ load_word(right, right_position + done)
    return different << np.uint64(64 - 8 * rest) == np.uint64(0)


@inlined
def _find(buffer, start, length, identity, hashed, entries, index, arena):  # type: ignore[no-untyped-def]
    """The entry of these bytes, or -1, and the slot where the search ended."""
    mask = np.int64(len(index) - 1)
    slot = (hashed >> 8) & mask
    while index[slot] != 0:
        entry = index[slot] - 1
        if (
            entries[entry, A_HASH] == hashed
            and entries[entry, A_IDENTITY] == identity
            and _is_equal(buffer, start, arena, entries[entry, A_PLACE], length)
        ):
            return entry, slot
        slot = (slot + 1) & mask
    return -1, slot


@inlined
def _entry_of(buffer, start, length, identity, entries, index, arena, counts, seed, secret):  # type: ignore[no-untyped-def]
    """The entry of these bytes, made if need be; the caller has seen to it that there is room."""
    hashed = seeded_hash(buffer, start, length, identity, seed, secret)
    entry, slot = _find(buffer, start, length, identity, hashed, entries, index, arena)
    if entry < 0:
        entry = counts[N_ENTRIES]
        counts[N_ENTRIES] += 1
        index[slot] = entry + 1
        place = counts[N_ARENA]
        counts[N_ARENA] += (length + 7) & -8
        copy_bytes(buffer, start, length, arena, place)
        entries[entry, A_PLACE] = place
        entries[entry, A_IDENTITY] = identity
        entries[entry, A_HASH] = hashed
        entries[entry, A_COMMIT_MS] = UNSEEN
        entries[entry, A_EXPIRE_MS] = NONE
        entries[entry, A_DELETED_MS] = NONE  # which is A_WAITING of a group
        entries[entry, A_DELETED_EXPIRE_MS] = NONE
        entries[entry, A_FIRST_MS] = UNSEEN
    return entry


@inlined
def _key_length(buffer, group, group_length):  # type: ignore[no-untyped-def]
    """Bytes of a commit's key from the group's first to the partition's last."""
    return group_length + 2 + load_be16(buffer, group + group_length) + 4


@inlined
def _note_commit_of_group(entries, entry, group_rows, commit_ms):  # type: ignore[no-untyped-def]
    entries[entry, A_COMMIT_MS] = commit_ms
    if entries[entry, A_FIRST_MS] == UNSEEN:
        entries[entry, A_FIRST_MS] = commit_ms
    if entries[entry, A_WAITING] >= 0:
        group_rows[entries[entry, A_WAITING], G_AFTER_MS] = commit_ms
        entries[entry, A_WAITING] = NONE


@kernel(
    types.int64(
        BYTES, TABLE, TABLE, TABLE, FLAGS, types.int64,
        TABLE, LONGS, BYTES, TABLE, TABLE, LONGS, types.uint64, types.uint64,
    )
)  # fmt: skip
def note_activity(  # type: ignore[no-untyped-def]
    buffer, batches, records, classes, keep, first,
    entries, index, arena, group_rows, deletions, counts, seed, secret,
):  # fmt: skip
    """Take in the records from row `first` on that are to be kept; returns the row reached, short of the last one where
    room ran out. Nothing has been done then for the row returned.
    """
    most_entries = min(len(entries), len(index) * 6 // 10) - 2
    arena_end = len(arena) - SLACK - 2 * LONGEST_KEY
    last_group, last_start, last_length = -1, 0, -1
    for number in range(first, len(records)):
        kind = classes[number, C_KIND]
        if keep[number] == 0 or kind > K_GROUP_TOMBSTONE:
            continue
        if counts[N_ENTRIES] > most_entries or counts[N_ARENA] > arena_end:
            return np.int64(number)
        start, length = classes[number, C_GROUP], classes[number, C_GROUP_LENGTH]
        if kind == K_COMMIT_TOMBSTONE and counts[N_DELETIONS] == len(deletions):
            return np.int64(number)
        if kind >= K_GROUP and counts[N_GROUP_ROWS] == len(group_rows):
            return np.int64(number)
        if kind != K_COMMIT_TOMBSTONE and not (
            length == last_length and _is_equal(buffer, start, buffer, last_start, length)
        ):
            last_group = _entry_of(
                buffer, start, length, length | GROUP_BIT, entries, index, arena, counts, seed, secret
            )
            last_start, last_length = start, length
        if kind >= K_GROUP:
            row = counts[N_GROUP_ROWS]
            counts[N_GROUP_ROWS] += 1
            group_rows[row, G_OFFSET] = records[number, R_OFFSET]
            group_rows[row, G_BEFORE_MS] = entries[last_group, A_COMMIT_MS]
            group_rows[row, G_AFTER_MS] = NONE
            entries[last_group, A_WAITING] = row
            entries[last_group, A_LAST] = row
            if entries[last_group, A_FIRST_MS] == UNSEEN:
                entries[last_group, A_FIRST_MS] = NONE
            continue
        outcome = batches[records[number, R_BATCH], B_OUTCOME]
        is_visible = outcome in (NO_TRANSACTION, COMMITTED)
        commit_ms, expire_ms = np.int64(NONE), np.int64(NONE)
        if kind == K_COMMIT:
            times = classes[number, C_METADATA] + classes[number, C_METADATA_LENGTH]
            commit_ms = max(load_be64(buffer, times), commit_ms)
            if classes[number, C_VERSION] == 1:
                expire_ms = max(load_be64(buffer, times + 8), expire_ms)
            _note_commit_of_group(entries, last_group, group_rows, commit_ms)
        if is_visible:
            key_length = _key_length(buffer, start, length)
            entry = _entry_of(buffer, start, key_length, key_length, entries, index, arena, counts, seed, secret)
            if kind == K_COMMIT_TOMBSTONE:
                entries[entry, A_DELETED_MS] = entries[entry, A_COMMIT_MS]
                entries[entry, A_DELETED_EXPIRE_MS] = entries[entry, A_EXPIRE_MS]
                row = counts[N_DELETIONS]
                counts[N_DELETIONS] += 1
                deletions[row, 0] = number
                deletions[row, 1] = entries[entry, A_DELETED_MS]
                deletions[row, 2] = entries[entry, A_DELETED_EXPIRE_MS]
            entries[entry, A_COMMIT_MS] = commit_ms
            entries[entry, A_EXPIRE_MS] = expire_ms
    return np.int64(len(records))


@kernel(
    types.void(BYTES, TABLE, LONGS, TABLE, LONGS, BYTES, TABLE, TABLE, types.uint64, types.uint64)
)  # fmt: skip
def recall(buffer, classes, rows, entries, index, arena, group_rows, found, seed, secret):  # type: ignore[no-untyped-def]
    """The two times of these rows, each the newest deletion of its key or the newest record of its group."""
    for turn in range(len(rows)):
        number = rows[turn]
        found[turn, 0], found[turn, 1] = NONE, NONE
        start, length = classes[number, C_GROUP], classes[number, C_GROUP_LENGTH]
        is_group = classes[number, C_KIND] >= K_GROUP
        if not is_group:
            length = _key_length(buffer, start, length)
        identity = length | GROUP_BIT if is_group else length
        hashed = seeded_hash(buffer, start, length, identity, seed, secret)
        entry, _ = _find(buffer, start, length, identity, hashed, entries, index, arena)
        if entry < 0:
            continue
        if not is_group:
            found[turn, 0] = entries[entry, A_DELETED_MS]
            found[turn, 1] = entries[entry, A_DELETED_EXPIRE_MS]
        elif entries[entry, A_LAST] >= 0:
            found[turn, 0] = group_rows[entries[entry, A_LAST], G_BEFORE_MS]
            found[turn, 1] = group_rows[entries[entry, A_LAST], G_AFTER_MS]


@kernel(types.void(TABLE, types.int64, LONGS))
def enter_all(entries, count, index):  # type: ignore[no-untyped-def]
    """Fill an empty index."""
    mask = np.int64(len(index) - 1)
    for entry in range(count):
        slot = (entries[entry, A_HASH] >> 8) & mask
        while index[slot] != 0:
            slot = (slot + 1) & mask
        index[slot] = entry + 1


class Deletions(NamedTuple):
    """Of some rows (those of a chunk, ascending), when what they delete was committed and when it was to expire.

    `commit_ms` is UNSEEN where the log so far has neither a commit nor a deletion of the key, and NONE where there was
    nothing to delete, or where the commit had no time.
    """

    rows: Longs
    commit_ms: Longs
    expire_ms: Longs


class Groups(NamedTuple):
    """Groups: where their names are in a buffer, and when they committed (NONE: no time, or a record came first)."""

    names: Bytes
    places: Longs
    lengths: Longs
    first_commit_ms: Longs
    last_commit_ms: Longs


class Activity:
    """The activity of one partition: `update` in log order."""

    def __init__(self) -> None:
        self._entries: Longs = np.empty((SMALLEST_INDEX // 2, ENTRY_COLUMNS), np.int64)
        self._index: Longs = np.zeros(SMALLEST_INDEX, np.int64)
        self._arena: Bytes = np.empty(SMALLEST_ARENA + SLACK + 2 * LONGEST_KEY, np.uint8)
        self._group_rows: Longs = np.empty((1024, GROUP_ROW_COLUMNS), np.int64)
        self._counts: Longs = np.zeros(COUNTS, np.int64)
        self._seed, self._secret = (np.uint64(secrets.randbits(64) | 1) for _ in range(2))

    def update(self, chunk: Chunk, keep: NDArray[np.bool_] | None = None) -> Deletions:
        """Take in the records of the next chunk (those to be kept), and say what its deletions delete."""
        flags = np.ones(len(chunk.records), np.uint8) if keep is None else keep.view(np.uint8)
        room = int((chunk.classes[:, C_KIND] == K_COMMIT_TOMBSTONE).sum())
        deletions = np.empty((room, DELETION_COLUMNS), np.int64)
        self._counts[N_DELETIONS] = 0
        row = 0
        while True:
            row = note_activity(
                chunk.buffer, chunk.batches, chunk.records, chunk.classes, flags, row,
                self._entries, self._index, self._arena, self._group_rows, deletions, self._counts,
                self._seed, self._secret,
            )  # fmt: skip
            if row == len(chunk.records):
                break
            self._make_room()
        found = deletions[: self._counts[N_DELETIONS]]
        return Deletions(*(np.ascontiguousarray(found[:, column]) for column in range(DELETION_COLUMNS)))

    def _make_room(self) -> None:
        """Room for at least one more record of any size, wherever it is lacking."""
        used = int(self._counts[N_ENTRIES])
        if used + 2 >= len(self._entries):
            self._entries = grown(self._entries, 2 * len(self._entries))
        if used + 2 >= len(self._index) * 6 // 10:
            self._index = np.zeros(2 * len(self._index), np.int64)
            enter_all(self._entries, used, self._index)
        if self._counts[N_ARENA] > len(self._arena) - SLACK - 2 * LONGEST_KEY:
            self._arena = grown(self._arena, len(self._arena) // 2 * 3)
        if self._counts[N_GROUP_ROWS] == len(self._group_rows):
            self._group_rows = grown(self._group_rows, 2 * len(self._group_rows))

    def group_times(self, first: int) -> tuple[Longs, Longs, Longs]:
        """Of the classic group records from number `first` on: offsets, last commits before, first commits after.

        Before: UNSEEN where the log so far has no commit of the group. After: NONE where none came before the group's
        next record, or none has come yet.
        """
        rows = self._group_rows[first : self._counts[N_GROUP_ROWS]]
        return rows[:, G_OFFSET].copy(), rows[:, G_BEFORE_MS].copy(), rows[:, G_AFTER_MS].copy()

    def waiting(self) -> Longs:
        """Offsets of the classic group records that no commit and no other record of the group has followed yet."""
        rows = self._group_entries()[:, A_WAITING]
        return np.sort(self._group_rows[rows[rows >= 0], G_OFFSET])

    def _group_entries(self) -> Longs:
        entries = self._entries[: self._counts[N_ENTRIES]]
        found: Longs = entries[(entries[:, A_IDENTITY] & GROUP_BIT) != 0]
        return found

    def groups(self, all_of_them: bool = False) -> Groups:
        """Every group that has committed; or all, `last_commit_ms` UNSEEN for those that have not."""
        entries = self._group_entries()
        if not all_of_them:
            entries = entries[entries[:, A_COMMIT_MS] != UNSEEN]
        places, lengths = entries[:, A_PLACE].copy(), entries[:, A_IDENTITY] & (GROUP_BIT - 1)
        return Groups(self._arena, places, lengths, entries[:, A_FIRST_MS].copy(), entries[:, A_COMMIT_MS].copy())

    def recall(self, chunk: Chunk, rows: Longs) -> tuple[Longs, Longs]:
        """For survivors of `LatestTable`: of deletions the times of what they deleted, of group records those around.

        The rows must be deletions of commits or classic group records, each the newest of its key.
        """
        found = np.empty((len(rows), 2), np.int64)
        recall(
            chunk.buffer, chunk.classes, rows, self._entries, self._index, self._arena, self._group_rows, found,
            self._seed, self._secret,
        )  # fmt: skip
        return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])
