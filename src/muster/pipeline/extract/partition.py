"""One task: ranges of some partitions of the offsets topic to history, winners and a report. No Spark in here.

    for each partition          survey its headers, then read its records once, in log order
      history    every record   -> Parquet files under <tables>/commits, group_records, markers
      open       commits whose transaction the range does not end -> packets `open_commits`
      winners    the newest visible record of each key -> packets `winners_commits`, `winners_groups`; of a partition
                 that is read again also all commits of transactions that have ended, committed or aborted, if history
                 is kept
      activity   when groups committed -> packets `activity`, with history only
      late rows  of a piece: what only the merge can finish -> packets `late_commits`, `late_groups`, `piece_activity`
      other replicas            -> records that the leading one's cleaner has removed, history only

The newest record is taken by log order among plain records and those of transactions that the range has committed. So a
deletion that stands before a commit does not delete it, wherever the marker stands.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from muster.codec.columns.activity import Activity
from muster.codec.columns.chunks import Longs, Scratch
from muster.codec.columns.commits import C_KIND, K_BAD, K_CONTROL, K_UNKNOWN
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import B_LAST_OFFSET, B_LEADER_EPOCH, B_SIZE, R_BATCH, R_OFFSET, R_TIMESTAMP
from muster.codec.columns.select import in_force
from muster.errors import BadInput
from muster.pipeline.extract.activity import Past, PreviousActivity, PreviousOffsets
from muster.pipeline.extract.fetch import fetch_behind, fetch_to_segments, is_here
from muster.pipeline.extract.ranges import RangeChunk, RangeReader, Survey, ended_behind, joined, survey
from muster.pipeline.extract.rows import History, Outputs, PartitionRows, Piece
from muster.pipeline.model import ExtractContext, Extracted, PartitionReport, PartitionWork, SegmentFiles
from muster.pipeline.pieces import MOST_DAMAGE_TOLD
from muster.pipeline.plan import Landmark, another_log, spread, thinned
from muster.pipeline.sources.replicas import Lineage, agreeing, describe_replica, parting
from muster.segments.reader import Progress
from muster.segments.sources import segments_of
from muster.tables.clocks import AHEAD_MS, is_ahead
from muster.tables.storage.files import ProgressFile

NO_TIME = -1


@dataclass(slots=True)
class Gaps:
    """Which offsets from `from_offset` on are missing. Records come in order; then `finish`, and only then `fill`."""

    from_offset: int
    keeps_all: bool = False
    """Keep where every gap is, sixteen bytes each and its time, because another replica may fill them."""
    missing: int = 0
    since_offset: int = field(init=False)
    """From here on nothing is missing."""
    since_ms: int | None = None
    """Timestamp of the first record there."""
    starts: Longs = field(init=False)
    ends: Longs = field(init=False)
    _times: Longs = field(init=False)  # of the record behind each gap
    _expected: int = field(init=False)
    _pieces: list[tuple[Longs, Longs, Longs]] = field(default_factory=list)
    _first: tuple[int, int] | None = None  # offset and timestamp of the first record

    def __post_init__(self) -> None:
        self.since_offset = self._expected = self.from_offset
        self.starts = self.ends = self._times = np.empty(0, np.int64)

    def take(self, offsets: Longs, timestamps_ms: Longs) -> None:
        """The next records; offsets rise, and are in the range."""
        if not len(offsets):
            return
        before = np.concatenate([[self._expected], offsets[:-1] + 1])
        jumps = np.flatnonzero(offsets > before)
        if len(jumps):
            self.missing += int((offsets[jumps] - before[jumps]).sum())
            self._begin_at(int(offsets[jumps[-1]]), int(timestamps_ms[jumps[-1]]))
            if self.keeps_all:
                self._pieces.append((before[jumps], offsets[jumps], timestamps_ms[jumps]))
        elif self._first is None:
            self._begin_at(self.from_offset, int(timestamps_ms[0]))
        if self._first is None:
            self._first = int(offsets[0]), int(timestamps_ms[0])
        self._expected = int(offsets[-1]) + 1

    def _begin_at(self, offset: int, timestamp_ms: int) -> None:
        self.since_offset = offset
        self.since_ms = timestamp_ms if timestamp_ms >= 0 else None

    def finish(self, next_offset: int) -> None:
        """The range ends here; behind the last record there may be offsets whose records are gone."""
        if next_offset > self._expected:
            self.missing += next_offset - self._expected
            self._begin_at(next_offset, NO_TIME)
            end = np.array([next_offset])
            self._pieces.append((np.array([self._expected]), end, np.array([NO_TIME])))
        if self.keeps_all and self._pieces:
            self.starts, self.ends, self._times = (np.concatenate(some) for some in zip(*self._pieces, strict=True))

    def has(self, offsets: Longs) -> NDArray[np.bool_]:
        """Which of these offsets are missing."""
        if not len(self.starts):
            return np.zeros(len(offsets), np.bool_)
        places = np.searchsorted(self.starts, offsets, "right") - 1
        return (places >= 0) & (offsets < self.ends[np.maximum(places, 0)])

    def fill(self, offsets: Longs, timestamps_ms: Longs) -> None:
        """Records of another replica at offsets that were missing, each once, in any order."""
        if not len(offsets):
            return
        # A record cuts its gap in two. Sorted each for itself, starts and ends of what is left pair up again.
        starts, ends = np.concatenate([self.starts, offsets + 1]), np.concatenate([self.ends, offsets])
        times = np.concatenate([self._times, timestamps_ms])
        order = np.argsort(ends, kind="stable")
        starts, ends, times = np.sort(starts), ends[order], times[order]
        lowest = int(np.argmin(offsets))
        first = int(offsets[lowest]), int(timestamps_ms[lowest])
        self._first = first if self._first is None else min(self._first, first)
        left = starts < ends
        self.starts, self.ends, self._times = starts[left], ends[left], times[left]
        self.missing = int((self.ends - self.starts).sum())
        if left.any():
            self._begin_at(int(self.ends[-1]), int(self._times[-1]))
        else:
            self._begin_at(self.from_offset, self._first[1])


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
        folder: Path,
    ) -> None:
        self._work, self._context, self._outputs = work, context, outputs
        self._scratch, self._progress, self._folder = scratch, progress, folder
        self._leader, *self._others = map(Path, source.directories)
        self._epochs: Lineage = source.epochs
        # Records before the range: for what deletions in it delete, and when groups committed before it.
        self._start = 0 if work.state_from_scratch else work.from_offset
        self._gaps = Gaps(work.from_offset, keeps_all=bool(self._others))
        self._records = 0
        self._size_bytes = 0
        self._unread = 0
        self._newest_ms = self._last_ms = NO_TIME
        self._landmarks: list[Landmark] = []
        self._dated_ahead: int | None = None
        self._damage: list[str] = []

    def run(self) -> PartitionReport:
        first = self._survey()
        lineage = self._epochs or first.lineage
        markers = first.markers
        if self._context.history and self._others:
            others = [survey(other, self._start, first.next_offset, lineage) for other in self._others]
            markers = joined(markers, *(other.markers for other in others))
        context, work = self._context, self._work
        options, number = context.storage_options, work.offsets_partition
        # What is before a piece that is not the first is in no table yet: the merge looks for it.
        offsets, activity = (context.previous_offsets, context.previous_activity) if work.is_first else ((), ())
        past = Past(
            PreviousOffsets(offsets, options, number),
            PreviousActivity(activity, options, number),
            context.offsets_retention_ms,
        )
        piece = Piece(work.from_offset, work.is_first, work.range_end is None)
        rows = PartitionRows(number, markers, past, dict(context.topic_names), self._outputs, piece)
        end = first.next_offset if piece.is_last else work.to_offset
        assert end is not None, "a piece that another one follows has an end"
        reader = RangeReader(self._leader, self._start, end, self._scratch, self._progress, work.range_end)
        self._read_leader(reader, rows)
        self._gaps.finish(max(reader.next_offset, work.from_offset))
        if context.history and self._gaps.missing:
            for other in self._others:
                self._read_other(other, reader.next_offset, rows, lineage)
        return self._report(reader, lineage)

    def _survey(self) -> Survey:
        """Headers of the range; and those behind a piece, as far as its transactions go on."""
        work = self._work
        found = survey(self._leader, self._start, work.to_offset, (), work.range_end)
        if found.open_producers:
            with closing(fetch_behind(work, self._folder)) as stretches:
                for directory, from_offset, to_offset in stretches:
                    found = ended_behind(directory, found, from_offset, to_offset)
                    if not found.open_producers:
                        break
        return found

    def _read_leader(self, reader: RangeReader, rows: PartitionRows) -> None:
        activity, latest = Activity(), LatestTable()
        history = History(rows, activity)
        context = self._context
        for piece in reader.chunks(rows.markers):
            chunk = piece.chunk
            keep = None
            if not piece.is_whole:
                keep = np.zeros(len(chunk.records), np.bool_)
                keep[piece.rows] = True
            deletions = activity.update(chunk, keep)
            latest.update(in_force(chunk, None if piece.is_whole else piece.rows))
            rows.write_transactional(piece, context.with_ended)
            new = self._count(piece)
            if context.history and len(new):
                history.write(chunk, new, deletions)
        history.finish()
        for survivors in latest.survivors():
            rows.write_winners(survivors, activity, context)
        self._damage += reader.damage
        if context.history:
            self._unread = history.unread
        if context.history or not rows.piece.is_whole:
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
        batches = chunk.batches[first : last + 1]
        end = self._work.to_offset
        if self._work.range_end is not None and end is not None:  # a batch that is cut counts where it ends
            batches = batches[batches[:, B_LAST_OFFSET] < end]
        self._size_bytes += int(batches[:, B_SIZE].sum())
        kinds = chunk.classes[new, C_KIND]
        self._unread += int(((kinds == K_BAD) | (kinds == K_UNKNOWN)).sum())
        marks = np.flatnonzero((kinds != K_CONTROL) & (times_ms >= 0))
        marks = marks[spread(len(marks))]
        self._landmarks += zip(offsets[marks].tolist(), times_ms[marks].tolist(), strict=True)
        return new

    def _take_times(self, times_ms: Longs) -> None:
        """The newest time that what stands behind it does not contradict."""
        newest_ms, last_ms = max(self._newest_ms, int(times_ms.max())), int(times_ms[-1])
        self._last_ms = last_ms
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
            damage=tuple(self._damage[:MOST_DAMAGE_TOLD]),
            size_bytes=self._size_bytes,
            landmarks=thinned(self._landmarks),
            dated_ahead=self._dated_ahead,
            from_offset=self._work.from_offset,
            last_timestamp_ms=self._last_ms if self._last_ms >= 0 else None,
            has_batches=reader.leader_epoch is not None,
            untold_damage=len(self._damage[MOST_DAMAGE_TOLD:]),
        )


def extract(works: Sequence[PartitionWork], context: ExtractContext) -> Extracted:
    """Read these ranges, write their history, return the rest; run again, it writes other files and answers the same.

    Raises `BadInput` for a partition that is not there and `OSError` for a disk that fails; files written until then
    are named by no table. Damage in a log is no error: it is in the report.
    """
    progress = ProgressFile(context.progress)
    scratch = Scratch()
    outputs = Outputs(context)
    try:
        reports = [_extract_partition(work, context, outputs, scratch, progress) for work in works]
        files, packets = outputs.close()
    except BaseException:
        outputs.abandon()
        raise
    finally:
        progress.flush()
    return Extracted(tuple(files), tuple(reports), tuple(packets))


def _extract_partition(
    work: PartitionWork, context: ExtractContext, outputs: Outputs, scratch: Scratch, progress: ProgressFile
) -> PartitionReport:
    with ExitStack() as stack:
        folder = Path(".") if is_here(work.source) else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = fetch_to_segments(work, folder)
        end = None
        if not is_here(work.source):
            _check_same_log(work, source, context)
            end = _end_of_older_copy(work, source)
        report = PartitionExtract(work, _checked(source), context, outputs, scratch, progress.add, folder).run()
        return report._replace(ends_before=end)


def _check_same_log(work: PartitionWork, source: SegmentFiles, context: ExtractContext) -> None:
    """Refuse files that were fetched and have other records than were read before."""
    found = parting(source.directories[0], work.landmarks) if work.landmarks else None
    if found is not None:
        raise BadInput(another_log(work.offsets_partition, found.log_offset, context.tables) + ".")


def _end_of_older_copy(work: PartitionWork, source: SegmentFiles) -> int | None:
    """Where files that were fetched end, if that is before what was read of them already."""
    if not work.landmarks:
        return None
    end = describe_replica(source.directories[0]).end_offset
    return end if end < work.from_offset else None


def _checked(source: SegmentFiles) -> SegmentFiles:
    for directory in source.directories:
        if not Path(directory).is_dir():
            raise BadInput(f"{directory} is not there any more, or no directory. Was the log moved while it was read?")
    return source
