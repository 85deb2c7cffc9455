"""What `muster dump` does: read, choose, hand on to a sink (one for each format), and say how it went."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from muster.cli.dump import ONLY_TO_FILES, Format, Request
from muster.cli.output import missing_group, say, whole_file, write_lines_to_stdout, write_to_stdout
from muster.cli.status import Status
from muster.codec.columns.chunks import Chunk, Longs, Scratch
from muster.codec.columns.scan import R_OFFSET
from muster.codec.columns.select import Selection, in_force
from muster.patterns import is_wild
from muster.segments.reader import Damage, Progress, SegmentChunk, read_markers, read_partition, read_segment
from muster.segments.sources import SourcePartition, Sources

if TYPE_CHECKING:
    from muster.codec.columns.chunks import Longs
    from muster.segments.reader import Damage, SegmentChunk


LISTED_DAMAGES = 20
ROWS_AT_ONCE = 1 << 15
"""Rows of a Parquet row group or an Arrow batch, so far as the log has that many."""

Write = Callable[[bytes], object]


class Sink(Protocol):
    def add(self, piece: "SegmentChunk", partition: int | None, rows: "Longs | None") -> None: ...

    def end_segment(self, piece: "SegmentChunk", left_bytes: int) -> None:
        """The last piece of a segment, and how many bytes at its end could not be read at all."""

    def close(self) -> None: ...


class TextSink:
    """Line for line what kafka-dump-log prints."""

    def __init__(self, write: Write, is_complete: bool) -> None:
        from muster.codec.columns.dump_text import ConsecutiveOffsets

        self._write = write
        self._offsets = ConsecutiveOffsets() if is_complete else None  # a trailer about what is left out would mislead
        self._headed: Path | None = None
        """The segment whose header is written: one that holds nothing of what was asked for has none."""

    def add(self, piece: "SegmentChunk", partition: int | None, rows: "Longs | None") -> None:
        from muster.codec.columns.dump_text import text_pieces

        name, path = piece.segment.name, piece.segment.path
        if self._offsets is not None:
            self._offsets.add(name, piece.chunk)
        if rows is not None and not len(rows):
            return
        place, is_first = piece.file_position, self._headed != path
        self._headed = path
        for text in text_pieces(piece.chunk, segment_name=name, is_first=is_first, file_position=place, rows=rows):
            self._write(text)

    def end_segment(self, piece: "SegmentChunk", left_bytes: int) -> None:
        from muster.codec.columns.dump_text import invalid_bytes_line

        if left_bytes and self._headed == piece.segment.path:
            self._write(invalid_bytes_line(piece.segment.path.name, left_bytes))

    def close(self) -> None:
        for block in self._offsets.blocks() if self._offsets is not None else ():
            self._write(block)


class JsonSink:
    """One object a line."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def add(self, piece: "SegmentChunk", partition: int | None, rows: "Longs | None") -> None:
        from muster.codec.columns.dump_json import json_pieces

        for lines in json_pieces(piece.chunk, partition=partition, segment_file=piece.segment.path.name, rows=rows):
            self._write(lines)

    def end_segment(self, piece: "SegmentChunk", left_bytes: int) -> None:
        pass

    def close(self) -> None:
        pass


class ArrowSink:
    """Columns with the schema `RECORDS`, gathered so that a row group does not depend on the size of segments."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, piece: "SegmentChunk", partition: int | None, rows: "Longs | None") -> None:
        from muster.codec.columns.arrow import to_arrow

        batch = to_arrow(piece.chunk, partition, rows)
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        from muster.codec.columns.schema import RECORDS

        if self._waiting:
            table = pa.Table.from_batches(self._waiting, RECORDS)
            self._writer.write_table(table if len(self._waiting) == 1 else table.combine_chunks())
        self._waiting, self._rows = [], 0

    def end_segment(self, piece: "SegmentChunk", left_bytes: int) -> None:
        pass

    def close(self) -> None:
        self._flush()
        self._writer.close()


def parquet_sink(path: Path) -> ArrowSink:
    import pyarrow as pa
    from pyarrow import parquet

    from muster.codec.columns.schema import RECORDS

    pa.set_memory_pool(pa.system_memory_pool())  # the default one keeps 100 MB of what the encoder gives back
    return ArrowSink(parquet.ParquetWriter(path, RECORDS, compression="zstd"))


def arrow_sink(path: Path) -> ArrowSink:
    import pyarrow as pa

    from muster.codec.columns.schema import RECORDS

    return ArrowSink(pa.ipc.new_file(str(path), RECORDS))


@contextmanager
def progress_bar(total_bytes: int, wanted: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr, and how to move it; None, and no bar, where a program may be reading."""
    if not (wanted and sys.stderr.isatty() and sys.stdout.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("[bold]reading"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=max(total_bytes, 1))
        yield lambda advanced: progress.advance(task, advanced)


def report_damage(damage: "Sequence[Damage]") -> None:
    """A sentence for each place, and only a number when there are many."""
    for place in damage[:LISTED_DAMAGES]:
        say(str(place))
    if len(damage) > LISTED_DAMAGES:
        say(f"and {len(damage) - LISTED_DAMAGES} more damaged places; `muster dump --summary --json` lists them all.")


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

    named = [group for group in dump.selection.groups if not is_wild(group)]
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
