"""What `muster dump` does: read, choose, hand on to a sink, and say how it went."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from muster.cli.dump import ONLY_TO_FILES, Format, Request
from muster.cli.dump.sinks import JsonSink, Sink, TextSink, arrow_sink, parquet_sink, progress_bar, report_damage
from muster.cli.output import missing_group, say, whole_file, write_lines_to_stdout, write_to_stdout
from muster.cli.status import Status
from muster.codec.columns.chunks import Chunk, Longs, Scratch
from muster.codec.columns.scan import R_OFFSET
from muster.codec.columns.select import Selection, in_force
from muster.segments.reader import Damage, Progress, SegmentChunk, read_markers, read_partition, read_segment
from muster.segments.sources import SourcePartition, Sources

CHUNK_BYTES = 4 * 1024 * 1024
"""Half of what readers take otherwise: a Parquet encoder needs many times the memory of the rows it is given."""


@dataclass(slots=True)
class _Dump:
    """One run: what it was asked, where its records go, and how many have gone."""

    request: Request
    selection: Selection
    sink: Sink
    advance: Progress | None
    damage: list[Damage]
    scratch: Scratch
    records: int = 0

    @property
    def is_full(self) -> bool:
        return bool(self.request.limit) and self.records >= self.request.limit

    def hand_on(self, piece: SegmentChunk, partition: int | None, rows: Longs | None) -> None:
        """Give the sink as many of the rows as are still wanted."""
        count = len(piece.chunk.records) if rows is None else len(rows)
        left = self.request.limit - self.records
        if self.request.limit and count > left:
            rows = np.arange(left, dtype=np.int64) if rows is None else rows[:left]
            count = left
        self.records += count
        self.sink.add(piece, partition, rows)

    def feed_all(self, partition: SourcePartition) -> None:
        """All records that are wanted, in log order."""
        markers = read_markers(partition.segments)
        forgiving = self.request.format is Format.TEXT
        for segment in partition.segments:
            piece, told = None, 0
            for piece in read_segment(
                segment,
                self.scratch,
                self.damage,
                markers,
                forgiving=forgiving,
                progress=self.advance,
                chunk_bytes=CHUNK_BYTES,
            ):
                told = len(self.damage)
                self.hand_on(piece, partition.partition, self.selection.rows(piece.chunk))
                if self.is_full:
                    return
            if piece is not None:  # what is told behind the last piece is where the segment breaks off
                self.sink.end_segment(piece, sum(place.skipped_bytes for place in self.damage[told:]))

    def feed_latest(self, partition: SourcePartition) -> None:
        """The newest record of each key; a group and all its keys are in one partition.

        A tombstone is its key's newest record too: were tombstones left out before, what they delete would come back.
        """
        from muster.codec.columns.latest import LatestTable

        before, after = replace(self.selection, tombstones=None), Selection(tombstones=self.selection.tombstones)
        table = LatestTable()
        for piece in read_partition(partition, self.scratch, self.damage, progress=self.advance):
            table.update(in_force(piece.chunk, before.rows(piece.chunk)))
        for chunk in table.survivors():
            for survivors, rows in _by_segment(partition, chunk, after.rows(chunk)):
                self.hand_on(survivors, partition.partition, rows)
                if self.is_full:
                    return


def _by_segment(partition: SourcePartition, chunk: Chunk, rows: Longs | None) -> Iterator[tuple[SegmentChunk, Longs]]:
    """Survivors do not say which segment they are from; their offsets do."""
    rows = np.arange(len(chunk.records), dtype=np.int64) if rows is None else rows
    bases = [segment.base_offset for segment in partition.segments]
    places = np.searchsorted(bases, chunk.records[rows, R_OFFSET], "right") - 1
    for place in np.unique(places).tolist():
        yield SegmentChunk(partition.segments[max(place, 0)], chunk, 0, False), rows[places == place]


def dump_records(request: Request) -> Status:
    """Show or write the records that were asked for."""
    selection = Selection(**request.filters)
    with ExitStack() as stack:
        sources = stack.enter_context(Sources(request.paths, unpack_limit=request.unpack_limit))
        draft = stack.enter_context(whole_file(request.out)) if request.out is not None else None
        sink = _sink(request, draft, selection, stack)
        with_bar = request.progress and (draft is not None or request.latest)  # else the records themselves show it
        advance = stack.enter_context(progress_bar(sources.size_bytes, with_bar))
        dump = _Dump(request, selection, sink, advance, [], Scratch())
        for partition in sources.partitions:
            if not dump.is_full:
                dump.feed_latest(partition) if request.latest else dump.feed_all(partition)
        sink.close()
        nothing = "" if dump.records or selection.is_everything else _nothing_matched(dump, sources)
    return _finish(dump, nothing)


def _nothing_matched(dump: _Dump, sources: Sources) -> str:
    """Why nothing was shown. A name that is in no record gets a suggestion, which takes another look at the log."""
    from muster.segments.summary import Summary

    named = [group for group in dump.selection.groups if not set("*?") & set(group)]
    if not named or dump.request.quiet:
        return "no record passed the filters."
    summary = Summary()
    for partition in sources.partitions:
        for piece in read_partition(partition, dump.scratch, []):
            summary.add(piece)
    known = summary.groups()
    for group in named:
        if group not in known:
            return missing_group(group, known, "`muster dump --summary` shows the busiest of")
    return "no record passed the filters."


def _sink(request: Request, draft: Path | None, selection: Selection, stack: ExitStack) -> Sink:
    if request.format is Format.TABLE:
        from muster.cli.dump.table import TableSink

        return TableSink()
    if draft is not None and request.format in ONLY_TO_FILES:
        return parquet_sink(draft) if request.format is Format.PARQUET else arrow_sink(draft)
    write = write_lines_to_stdout if draft is None else stack.enter_context(draft.open("wb")).write
    if request.format is Format.JSON:
        return JsonSink(write)
    return TextSink(write, selection.is_everything and not request.limit)


def _finish(dump: _Dump, nothing_matched: str) -> Status:
    request = dump.request
    if not request.quiet:
        if request.out is not None:
            say(f"{dump.records:,} records in {request.out} ({request.out.stat().st_size:,} bytes).")
        if dump.is_full and request.format is Format.TABLE:
            say(f"stopped after {dump.records:,} records. --limit 0 shows all, --summary counts them.")
        if nothing_matched:
            say(nothing_matched)
        report_damage(dump.damage)
    if dump.damage:
        return Status.DAMAGED
    return Status.NOTHING_MATCHED if nothing_matched else Status.OK


def summarise(request: Request) -> Status:
    """Show what the log is made of."""
    damage: list[Damage] = []
    from muster.segments.summary import Summary

    summary, scratch = Summary(), Scratch()
    with (
        Sources(request.paths, unpack_limit=request.unpack_limit) as sources,
        progress_bar(sources.size_bytes, request.progress) as advance,
    ):
        for partition in sources.partitions:
            for piece in read_partition(partition, scratch, damage, progress=advance):
                summary.add(piece)
    result = summary.result(damage)
    if request.format is Format.JSON:
        write_to_stdout(json.dumps(result.as_json(), indent=2).encode() + b"\n")
    else:
        from muster.cli.dump.summary import summary_text

        write_to_stdout(summary_text(result))
    if not request.quiet:
        report_damage(damage)
    return Status.DAMAGED if damage else Status.OK
