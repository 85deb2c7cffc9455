"""The formats of a dump. A *sink* takes chunks and makes one format of them.

It is told which rows are wanted; None stands for all.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from muster.cli.output import say

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
