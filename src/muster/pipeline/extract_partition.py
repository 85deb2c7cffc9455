"""The range of one partition, from its segments to rows, winners and a report."""

from pathlib import Path

import numpy as np

from muster.codec.columns.activity import Activity
from muster.codec.columns.chunks import Longs, Scratch
from muster.codec.columns.commits import C_KIND, K_BAD, K_CONTROL, K_UNKNOWN
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import B_LEADER_EPOCH, B_SIZE, R_BATCH, R_OFFSET, R_TIMESTAMP
from muster.codec.columns.select import in_force
from muster.pipeline.extract_activity import Past, PreviousActivity, PreviousOffsets
from muster.pipeline.extract_gaps import Gaps
from muster.pipeline.extract_rows import History, Outputs, PartitionRows
from muster.pipeline.landmarks import Landmark, spread, thinned
from muster.pipeline.model import ExtractContext, PartitionReport, PartitionWork, SegmentFiles
from muster.pipeline.ranges import RangeChunk, RangeReader, joined, survey
from muster.pipeline.replicas import Lineage, agreeing
from muster.segments.reader import Progress
from muster.segments.sources import segments_of
from muster.tables.clocks import AHEAD_MS, is_ahead

MOST_DAMAGE_TOLD = 100


class PartitionExtract:
    """`run`, once."""

    def __init__(
        self,
        work: PartitionWork,
        source: SegmentFiles,
        context: ExtractContext,
        outputs: Outputs,
        scratch: Scratch,
        progress: Progress,
    ) -> None:
        self._work, self._context, self._outputs = work, context, outputs
        self._scratch, self._progress = scratch, progress
        self._leader, *self._others = map(Path, source.directories)
        self._epochs: Lineage = source.epochs
        # Records before the range are read for the winners only.
        self._start = 0 if work.state_from_scratch else work.from_offset
        self._gaps = Gaps(work.from_offset, keeps_all=bool(self._others))
        self._records = 0
        self._size_bytes = 0
        self._unread = 0
        self._newest_ms = -1
        self._landmarks: list[Landmark] = []
        self._dated_ahead: int | None = None
        self._damage: list[str] = []

    def run(self) -> PartitionReport:
        first = survey(self._leader, self._start, self._work.to_offset)
        lineage = self._epochs or first.lineage
        markers = first.markers
        if self._context.history and self._others:
            others = [survey(other, self._start, first.next_offset, lineage) for other in self._others]
            markers = joined(markers, *(other.markers for other in others))
        context, work = self._context, self._work
        options, number = context.storage_options, work.offsets_partition
        previous = PreviousOffsets(context.previous_offsets, options, number)
        past = Past(
            previous, PreviousActivity(context.previous_activity, options, number), context.offsets_retention_ms
        )
        rows = PartitionRows(work.offsets_partition, markers, past, dict(context.topic_names), self._outputs)
        reader = RangeReader(self._leader, self._start, first.next_offset, self._scratch, self._progress)
        self._read_leader(reader, rows)
        self._gaps.finish(max(reader.next_offset, work.from_offset))
        if context.history and self._gaps.missing:
            for other in self._others:
                self._read_other(other, reader.next_offset, rows, lineage)
        return self._report(reader, lineage)

    def _read_leader(self, reader: RangeReader, rows: PartitionRows) -> None:
        activity, latest = Activity(), LatestTable()
        history = History(rows, activity)
        # Without history nothing else would tell how the transactions ended that an earlier run left open.
        with_ended = not self._context.history
        for piece in reader.chunks(rows.markers):
            chunk = piece.chunk
            keep = None
            if not piece.is_whole:
                keep = np.zeros(len(chunk.records), np.bool_)
                keep[piece.rows] = True
            deletions = activity.update(chunk, keep)
            latest.update(in_force(chunk, None if piece.is_whole else piece.rows))
            rows.write_transactional(piece, with_ended)
            new = self._count(piece)
            if self._context.history and len(new):
                history.write(chunk, new, deletions)
        history.finish()
        for survivors in latest.survivors():
            rows.write_winners(survivors, activity, with_ended)
        self._damage += reader.damage
        if self._context.history:
            self._unread = history.unread
            rows.write_activity(activity)

    def _count(self, piece: RangeChunk) -> Longs:
        """The rows that are new, counted."""
        chunk, new, offsets = piece.chunk, piece.rows, piece.offsets
        if self._start < self._work.from_offset:
            is_new = offsets >= self._work.from_offset
            new, offsets = new[is_new], offsets[is_new]
        if not len(new):
            return new
        times_ms = chunk.records[new, R_TIMESTAMP]
        self._gaps.take(offsets, times_ms)
        self._records += len(new)
        self._take_times(times_ms)
        first, last = chunk.records[new[[0, -1]], R_BATCH].tolist()
        self._size_bytes += int(chunk.batches[first : last + 1, B_SIZE].sum())
        kinds = chunk.classes[new, C_KIND]
        self._unread += int(((kinds == K_BAD) | (kinds == K_UNKNOWN)).sum())
        marks = np.flatnonzero((kinds != K_CONTROL) & (times_ms >= 0))
        marks = marks[spread(len(marks))]
        self._landmarks += zip(offsets[marks].tolist(), times_ms[marks].tolist(), strict=True)
        return new

    def _take_times(self, times_ms: Longs) -> None:
        """The newest time that what stands behind it does not contradict."""
        newest_ms, last_ms = max(self._newest_ms, int(times_ms.max())), int(times_ms[-1])
        if last_ms >= 0 and is_ahead(newest_ms, last_ms):
            self._dated_ahead = max(newest_ms, self._dated_ahead or newest_ms)
            newest_ms = int(times_ms[times_ms <= last_ms + AHEAD_MS].max())
        self._newest_ms = newest_ms

    def _read_other(self, directory: Path, end: int, rows: PartitionRows, lineage: Lineage) -> None:
        """Take from another replica what the log still lacks, as far as the lineage has it."""
        activity = Activity()
        history = History(rows, activity)
        reader = RangeReader(directory, self._start, end, self._scratch)
        offsets, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for piece in reader.chunks(rows.markers):
            chunk = piece.chunk
            records = chunk.records
            epochs = chunk.batches[records[piece.rows, R_BATCH], B_LEADER_EPOCH]
            ours = piece.rows[agreeing(lineage, piece.offsets, epochs)]
            keep = np.zeros(len(records), np.bool_)
            keep[ours] = True
            deletions = activity.update(chunk, keep)
            new = ours[self._gaps.has(records[ours, R_OFFSET])]
            if len(new):
                history.write(chunk, new, deletions)
                offsets.append(records[new, R_OFFSET])
                times.append(records[new, R_TIMESTAMP])
        history.finish()
        self._unread += history.unread
        self._damage += reader.damage
        self._records += sum(map(len, offsets))
        self._gaps.fill(np.concatenate(offsets), np.concatenate(times))

    def _report(self, reader: RangeReader, lineage: Lineage) -> PartitionReport:
        segments = segments_of(self._leader)
        epoch = reader.leader_epoch
        if epoch is None:
            epoch = lineage[-1][0] if lineage else -1
        damage = self._damage
        if len(damage) > MOST_DAMAGE_TOLD:
            damage = [*damage[:MOST_DAMAGE_TOLD], f"{len(damage) - MOST_DAMAGE_TOLD} more places are damaged."]
        return PartitionReport(
            offsets_partition=self._work.offsets_partition,
            log_start_offset=segments[0].base_offset if segments else self._start,
            next_offset=max(reader.next_offset, self._work.from_offset),
            leader_epoch=epoch,
            records=self._records,
            gaps=self._gaps.missing,
            complete_since_offset=self._gaps.since_offset,
            complete_since_ms=self._gaps.since_ms,
            newest_timestamp_ms=self._newest_ms if self._newest_ms >= 0 else None,
            unread=self._unread,
            damage=tuple(damage),
            size_bytes=self._size_bytes,
            landmarks=thinned(self._landmarks),
            dated_ahead=self._dated_ahead,
        )
