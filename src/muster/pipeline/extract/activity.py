"""`Past`: what deletions deleted and when groups committed, from the range read and the tables of the run before.

`codec.columns.activity` knows the range. What was in force before it is in the `offsets` table of the run before, and
when groups committed in its `activity`; both are opened only if a record asks, and then for its partition alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from muster.codec.columns.activity import NONE, UNSEEN
from muster.pipeline.extract.shape import COMMIT, DELETED, EXPIRED
from muster.tables.schemas import ACTIVITY, OFFSETS, published_name
from muster.tables.storage.files import Options, open_store
from muster.tables.times import inner

Array = Any  # pyarrow has no types of its own
Longs = NDArray[np.int64]
OffsetKey = tuple[str, str, int]


class PreviousCommit(NamedTuple):
    log_offset: int
    commit_ms: int
    expire_ms: int


NO_COMMIT = PreviousCommit(-1, NONE, NONE)
_COLUMNS = ("group_id", "topic", "partition", "log_offset", "commit_timestamp_ms", "expire_timestamp_ms")
_OFFSETS = pa.schema([OFFSETS.field(name) for name in _COLUMNS])
_ACTIVITY = pa.schema([ACTIVITY.field(name) for name in ("group_id", "last_commit_ms")])


class PreviousOffsets:
    """The commits that were in force before the range, of one partition of the offsets topic."""

    def __init__(self, files: Sequence[str], options: Options, offsets_partition: int) -> None:
        self._files, self._options, self._partition = files, tuple(options), offsets_partition
        self._table: Array = None
        self._groups: dict[str, dict[tuple[str, int], PreviousCommit]] = {}

    def look_up(self, key: OffsetKey, before: int) -> PreviousCommit:
        """The commit of a key, if it stands before an offset of the log."""
        group, topic, partition = key
        found = self._groups[group].get((topic, partition), NO_COMMIT)
        return found if found.log_offset < before else NO_COMMIT

    def load(self, groups: set[str]) -> None:
        """Have these groups at hand."""
        wanted = groups - self._groups.keys()
        if not wanted:
            return
        for group in wanted:
            self._groups[group] = {}
        if not self._files:
            return
        if self._table is None:
            self._table = self._read()
        table = self._table.filter(pc.is_in(self._table.column("group_id"), pa.array(sorted(wanted), pa.string())))
        for group, topic, partition, log_offset, commit_ms, expire_ms in zip(
            *(table.column(name).to_pylist() for name in _COLUMNS), strict=True
        ):
            commit = PreviousCommit(log_offset, _or_none(commit_ms), _or_none(expire_ms))
            self._groups[group][topic, partition] = commit

    def _read(self) -> Array:
        return _read(self._files, self._options, self._partition, _OFFSETS)


class PreviousActivity:
    """When the groups of one partition last committed before the range."""

    def __init__(self, files: Sequence[str], options: Options, offsets_partition: int) -> None:
        self._files, self._options, self._partition = files, tuple(options), offsets_partition
        self._last_ms: dict[str, int] | None = None

    def last_commit_ms(self, group: str) -> int:
        if self._last_ms is None:
            self._last_ms = {}
            if self._files:
                table = _read(self._files, self._options, self._partition, _ACTIVITY)
                groups, times = (column.to_pylist() for column in table.columns)
                self._last_ms = {one: _or_none(ms) for one, ms in zip(groups, times, strict=True)}
        return self._last_ms.get(group, NONE)


def _read(files: Sequence[str], options: Options, partition: int, schema: Array) -> Array:
    """Rows of one partition in some columns of a table's inner schema."""
    columns = [published_name(name) for name in schema.names]
    tables = []
    for address in files:
        store, path = open_store(address, options)
        filters = [("offsets_partition", "=", partition)]
        tables.append(inner(pq.read_table(path, columns=columns, filters=filters, filesystem=store), schema))
    return pa.concat_tables(tables)


def _or_none(number: int | None) -> int:
    return NONE if number is None else number


class Past:
    """Fills in, on rows of COMMITS and of GROUP_RECORDS, what the log before them says."""

    def __init__(self, previous: PreviousOffsets, activity: PreviousActivity, offsets_retention_ms: int) -> None:
        self._previous, self._activity = previous, activity
        self._retention_ms = offsets_retention_ms

    def of_deletions(
        self, records: Array, places: Longs, commit_ms: Longs, expire_ms: Longs
    ) -> tuple[NDArray[np.int8] | None, Array]:
        """What `commit_rows` wants to know about a batch of which the records at these places are deletions: the kind
        of each row, and when what it deletes was committed. The times are those of what is deleted.

        A deletion is an expiry where the commit was due: by its own time, or by the broker's retention.
        """
        if not len(places):
            return None, None
        commit_ms, expire_ms = self._completed(records, places, commit_ms, expire_ms)
        deleted_at_ms = _longs(records.column("timestamp_ms"))[places]
        known = (commit_ms >= 0) & (deleted_at_ms >= 0)
        due = ((expire_ms >= 0) & (expire_ms <= deleted_at_ms)) | (deleted_at_ms - commit_ms >= self._retention_ms)
        # A deletion in a transaction that was aborted, or is open, has deleted nothing: it is not among the places.
        is_deletion = records.column("is_tombstone").to_numpy(zero_copy_only=False)
        kinds = np.where(is_deletion, DELETED, COMMIT).astype(np.int8)
        kinds[places] = np.where(known & due, EXPIRED, DELETED)
        times = np.full(len(records), NONE, np.int64)
        times[places] = commit_ms
        return kinds, _array(times, pa.int64(), times >= 0)

    def _completed(self, records: Array, places: Longs, commit_ms: Longs, expire_ms: Longs) -> tuple[Longs, Longs]:
        unseen = np.flatnonzero(commit_ms == UNSEEN)
        if not len(unseen):
            return commit_ms, expire_ms
        commit_ms, expire_ms = commit_ms.copy(), expire_ms.copy()
        rows = records.select(["group_id", "topic", "partition", "log_offset"]).take(_array(places[unseen], pa.int64()))
        groups, topics, partitions, offsets = (column.to_pylist() for column in rows.columns)
        self._previous.load(set(groups))
        for place, *key, offset in zip(unseen.tolist(), groups, topics, partitions, offsets, strict=True):
            found = self._previous.look_up((key[0], key[1], key[2]), offset)
            commit_ms[place], expire_ms[place] = found.commit_ms, found.expire_ms
        return commit_ms, expire_ms

    def with_group_times(self, records: Array, places: Longs, before_ms: Longs, after_ms: Longs) -> Array:
        """The same group records; the rows at these places are classic ones, and these the commits around them."""
        if not len(places):
            return records
        before_ms = before_ms.copy()
        unseen = np.flatnonzero(before_ms == UNSEEN)
        if len(unseen):
            groups = records.column("group_id").take(_array(places[unseen], pa.int64())).to_pylist()
            before_ms[unseen] = [self._activity.last_commit_ms(group) for group in groups]
        for name, times in (("last_commit_before_ms", before_ms), ("first_commit_after_ms", after_ms)):
            column = np.full(len(records), NONE, np.int64)
            column[places] = times
            records = _replaced(records, name, _array(column, pa.int64(), column >= 0))
        return records


def _longs(column: Array) -> Longs:
    """Numbers of a nullable column; NONE for null."""
    return np.asarray(pc.fill_null(column, NONE).to_numpy(zero_copy_only=False), np.int64)


def _array(values: NDArray[Any], kind: Array, valid: NDArray[np.bool_] | None = None) -> Array:
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _replaced(table: Array, name: str, column: Array) -> Array:
    place: Callable[[str], int] = table.schema.get_field_index
    return table.set_column(place(name), table.schema.field(name), column)
