"""From chunks to the rows of each table, and into their writers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muster.codec.columns.activity import UNSEEN, Activity, Deletions
from muster.codec.columns.arrow import strings, to_arrow
from muster.codec.columns.chunks import Chunk
from muster.codec.columns.commits import C_KIND, K_COMMIT_TOMBSTONE, K_CONTROL, K_GROUP, K_GROUP_TOMBSTONE
from muster.codec.columns.scan import B_FIRST_RECORD, B_OUTCOME, B_RECORDS, R_BATCH
from muster.codec.transaction_outcomes import ABORTED, COMMITTED, NO_TRANSACTION, OPEN, Markers
from muster.pipeline.extract.activity import Past
from muster.pipeline.extract.ranges import RangeChunk
from muster.pipeline.extract.shape import commit_rows, group_rows, marker_rows
from muster.pipeline.model import ExtractContext
from muster.pipeline.packets import LATE_GROUPS, PIECE_ACTIVITY, Packet, PacketWriter
from muster.tables.schemas import ACTIVITY, COMMITS, GROUP_RECORDS, MARKERS
from muster.tables.storage.files import TableWriter, WrittenFile

Array = Any  # pyarrow has no types of its own
Longs = NDArray[np.int64]

FEW = 4
_NOTHING = np.empty(0, np.int64)
NO_DELETIONS = Deletions(_NOTHING, _NOTHING, _NOTHING)

GROUP_RECORDS_HELD_BYTES = 64 * 1024 * 1024
"""Group records wait for the first commit behind them; beyond this they go without."""


class Outputs:
    """Where the rows of one task go: into the files of three tables of history, and into packets for the merge."""

    def __init__(self, context: ExtractContext) -> None:
        def history(table: str, schema: Any) -> TableWriter:
            return TableWriter(table, schema, f"{context.tables}/{table}", context.storage_options, context.run_id)

        self.commits = history("commits", COMMITS)
        self.group_records = history("group_records", GROUP_RECORDS)
        self.markers = history("markers", MARKERS)
        self.open_commits = PacketWriter("open_commits")
        self.winners_commits = PacketWriter("winners_commits")
        self.winners_groups = PacketWriter("winners_groups")
        self.activity = PacketWriter("activity")
        self.late_commits = PacketWriter("late_commits")
        self.late_groups = PacketWriter("late_groups")
        self.piece_activity = PacketWriter("piece_activity")
        self._files = (self.commits, self.group_records, self.markers)
        self._packets = (
            self.open_commits, self.winners_commits, self.winners_groups, self.activity,
            self.late_commits, self.late_groups, self.piece_activity,
        )  # fmt: skip

    def close(self) -> tuple[list[WrittenFile], list[Packet]]:
        for writer in (*self._files, *self._packets):
            writer.close()
        files = [file for writer in self._files for file in writer.files]
        return files, [packet for writer in self._packets for packet in writer.packets]

    def abandon(self) -> None:
        for writer in self._files:
            writer.abandon()


class Piece(NamedTuple):
    """Where a range stands among those of its partition (`pipeline/pieces.py`)."""

    from_offset: int
    is_first: bool = True
    is_last: bool = True

    @property
    def is_whole(self) -> bool:
        return self.is_first and self.is_last


class PartitionRows:
    """What is the same for all rows of one partition."""

    def __init__(
        self,
        offsets_partition: int,
        markers: Markers,
        past: Past,
        topic_names: Mapping[str, str],
        outputs: Outputs,
        piece: Piece,
    ) -> None:
        self.offsets_partition, self.markers, self.past, self.piece = offsets_partition, markers, past, piece
        self._topic_names, self.outputs = topic_names, outputs

    def commits(self, chunk: Chunk, rows: Longs, deletions: Deletions) -> Array:
        """Rows of COMMITS; `deletions` are those of the chunk, others than of these rows do no harm."""
        batch = self._records(chunk, rows)
        return commit_rows(batch, self.markers, *self.past.of_deletions(batch, *_placed(deletions, rows)))

    def groups(self, chunk: Chunk, rows: Longs) -> Array:
        return group_rows(self._records(chunk, rows), self._topic_names)

    def markers_of(self, chunk: Chunk, rows: Longs) -> Array:
        return marker_rows(self._records(chunk, rows))

    def _records(self, chunk: Chunk, rows: Longs) -> Array:
        batch = to_arrow(chunk, self.offsets_partition, rows)
        if FEW * len(rows) > len(chunk.records):
            return batch
        # Columns have memory for a whole chunk. Rows that wait until there are many of them must not hold on to that.
        numbers = pa.py_buffer(np.arange(len(rows)))
        return batch.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, numbers]))

    def write_transactional(self, piece: RangeChunk, with_ended: bool) -> None:
        """Send the commits whose transaction is open; with those whose it is not, too, as winners."""
        outcomes = piece.chunk.batches[:, B_OUTCOME]
        self._send(piece, outcomes == OPEN, self.outputs.open_commits)
        if with_ended:
            self._send(piece, (outcomes == COMMITTED) | (outcomes == ABORTED), self.outputs.winners_commits)

    def _send(self, piece: RangeChunk, wanted: NDArray[np.bool_], writer: PacketWriter) -> None:
        """Send the commits of these batches."""
        rows = _records_of(piece.chunk.batches[wanted])
        rows = rows[piece.chunk.classes[rows, C_KIND] <= K_COMMIT_TOMBSTONE]
        if not piece.is_whole:
            rows = np.intersect1d(rows, piece.rows, assume_unique=True)
        if len(rows):
            writer.append(self.offsets_partition, self.commits(piece.chunk, rows, NO_DELETIONS))

    def write_winners(self, chunk: Chunk, activity: Activity, context: ExtractContext) -> None:
        """Survivors of `LatestTable`, all of which are visible; without those that `write_transactional` has sent."""
        kinds = chunk.classes[:, C_KIND]
        wanted = kinds <= K_COMMIT_TOMBSTONE
        if context.with_ended:
            wanted &= chunk.batches[:, B_OUTCOME] == NO_TRANSACTION  # a batch of its own for each survivor
        rows = np.flatnonzero(wanted)
        if len(rows):
            deletions = rows[kinds[rows] == K_COMMIT_TOMBSTONE]
            times = activity.recall(chunk, deletions)
            known = Deletions(deletions, *times)
            winners = self.commits(chunk, rows, known)
            self.outputs.winners_commits.append(self.offsets_partition, winners)
            if not context.history:  # which has sent them
                self.send_late_commits(winners, rows, known)
        rows = np.flatnonzero(kinds > K_COMMIT_TOMBSTONE)
        if len(rows):
            places = np.flatnonzero((kinds[rows] == K_GROUP) | (kinds[rows] == K_GROUP_TOMBSTONE))
            times = activity.recall(chunk, rows[places])
            table = self.past.with_group_times(self.groups(chunk, rows), places, *times)
            self.outputs.winners_groups.append(self.offsets_partition, table)
            if not context.history:
                self.send_late_groups(table, places, times[0], activity.waiting())

    def send_late_commits(self, table: Array, rows: Longs, deletions: Deletions) -> NDArray[np.bool_] | None:
        """Send the rows for which the log before the piece must be known; says which they are, None for none.

        The table has a row for each of these rows of a chunk.
        """
        if self.piece.is_first:
            return None
        places, commit_ms, _ = _placed(deletions, rows)
        late = places[commit_ms == UNSEEN]
        if not len(late):
            return None
        self.outputs.late_commits.append(self.offsets_partition, table.take(late))
        return _flags(late, len(table))

    def send_late_groups(
        self, table: Array, places: Longs, before_ms: Longs, waiting: Longs
    ) -> NDArray[np.bool_] | None:
        """Send the group records for which the log before or behind the piece must be known; says which they are.

        `places` are those of classic ones; no commit has followed the records at the offsets `waiting` yet.
        """
        if self.piece.is_whole or not len(places):
            return None
        begun = (before_ms == UNSEEN) & (not self.piece.is_first)
        goes_on = np.isin(table.column("log_offset").to_numpy()[places], waiting) & (not self.piece.is_last)
        late = begun | goes_on
        if not late.any():
            return None
        rows = table.take(places[late])
        columns = [
            *rows.columns, pa.array(np.full(len(rows), self.piece.from_offset)),
            pa.array(begun[late]), pa.array(goes_on[late]),
        ]  # fmt: skip
        self.outputs.late_groups.append(self.offsets_partition, pa.Table.from_arrays(columns, schema=LATE_GROUPS))
        return _flags(places[late], len(table))

    def write_activity(self, activity: Activity) -> None:
        """When groups committed: for the next run, and of a piece for the records in others."""
        groups = activity.groups(all_of_them=not self.piece.is_whole)
        count = len(groups.places)
        if not count:
            return
        columns = [
            strings(groups.names, groups.places, groups.lengths),
            pa.array(np.full(count, self.offsets_partition, np.int32)),
            *(pa.array(times, pa.int64(), mask=times < 0) for times in (groups.first_commit_ms, groups.last_commit_ms)),
        ]
        if self.piece.is_whole:
            self.outputs.activity.append(self.offsets_partition, pa.Table.from_arrays(columns, schema=ACTIVITY))
            return
        columns += [pa.array(np.full(count, self.piece.from_offset)), pa.array(groups.last_commit_ms != UNSEEN)]
        table = pa.Table.from_arrays(columns, schema=PIECE_ACTIVITY)
        self.outputs.piece_activity.append(self.offsets_partition, table)


def _flags(places: Longs, count: int) -> NDArray[np.bool_]:
    flags = np.zeros(count, np.bool_)
    flags[places] = True
    return flags


def _records_of(batches: Longs) -> Longs:
    """Row numbers of the records of these batches."""
    counts = batches[:, B_RECORDS]
    before = np.cumsum(counts) - counts
    return np.repeat(batches[:, B_FIRST_RECORD] - before, counts) + np.arange(int(counts.sum()))


def _placed(deletions: Deletions, rows: Longs) -> tuple[Longs, Longs, Longs]:
    """The places of deletions among some rows of their chunk, and their times."""
    places = np.searchsorted(rows, deletions.rows)
    ours = rows[np.minimum(places, len(rows) - 1)] == deletions.rows
    return places[ours], deletions.commit_ms[ours], deletions.expire_ms[ours]


class History:
    """The history of one partition: `write` in log order, then `finish`."""

    def __init__(self, rows: PartitionRows, activity: Activity) -> None:
        self._rows, self._activity = rows, activity
        self._held: list[Array] = []
        self._held_bytes = 0
        self._first_group_row = 0
        self.unread = 0

    def write(self, chunk: Chunk, rows: Longs, deletions: Deletions) -> None:
        """Write these rows of a chunk, of which the deletions are given; commits of open transactions are not among
        what is written.
        """
        kinds = chunk.classes[rows, C_KIND]
        self._write_commits(chunk, rows[kinds <= K_COMMIT_TOMBSTONE], deletions)
        control = rows[kinds == K_CONTROL]
        if len(control):
            self._rows.outputs.markers.append(self._rows.markers_of(chunk, control))
        others = rows[(kinds > K_COMMIT_TOMBSTONE) & (kinds != K_CONTROL)]
        if len(others):
            self._hold(self._rows.groups(chunk, others))

    def _write_commits(self, chunk: Chunk, rows: Longs, deletions: Deletions) -> None:
        is_open = chunk.batches[:, B_OUTCOME] == OPEN
        if is_open.any():
            rows = rows[~is_open[chunk.records[rows, R_BATCH]]]
        if not len(rows):
            return
        table = self._rows.commits(chunk, rows, deletions)
        late = self._rows.send_late_commits(table, rows, deletions)
        self._rows.outputs.commits.append(table if late is None else table.filter(pa.array(~late)))

    def _hold(self, table: Array) -> None:
        self.unread += len(table) - table.column("problem").null_count
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes > GROUP_RECORDS_HELD_BYTES:
            self.finish(is_end=False)

    def finish(self, is_end: bool = True) -> None:
        """Write the group records that are held, with the commits around them that are known by now."""
        if not self._held:
            return
        table = pa.concat_tables(self._held)
        offsets, before_ms, after_ms = self._activity.group_times(self._first_group_row)
        log_offsets = table.column("log_offset").to_numpy()
        places = np.searchsorted(log_offsets, offsets)
        ours = (places < len(table)) & (log_offsets[np.minimum(places, len(table) - 1)] == offsets)
        places, before_ms, after_ms = places[ours], before_ms[ours], after_ms[ours]
        table = self._rows.past.with_group_times(table, places, before_ms, after_ms)
        late = self._rows.send_late_groups(table, places, before_ms, self._activity.waiting() if is_end else _NOTHING)
        self._rows.outputs.group_records.append(table if late is None else table.filter(pa.array(~late)))
        self._first_group_row += len(offsets)
        self._held, self._held_bytes = [], 0
