"""Whole logs as record batches: what programs use instead of the command line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.codec.columns.arrow import to_arrow
from muster.codec.columns.chunks import Scratch
from muster.segments.reader import Damage, read_partition
from muster.segments.sources import Sources


def record_batches(
    *paths: str | Path, latest: bool = False, damage: list[Damage] | None = None
) -> Iterator[Any]:  # of pyarrow.RecordBatch
    """Every record under these paths, partition by partition in log order, in batches of bounded size.

    `latest` keeps only the newest record of each key, and all transactional ones with their outcome. What cannot be
    read is appended to `damage`, if given, and left out.
    """
    if latest:
        from muster.codec.columns.latest import LatestTable
    notes = [] if damage is None else damage
    with Sources([Path(path) for path in paths]) as sources:
        scratch = Scratch()
        for partition in sources.partitions:
            table = LatestTable() if latest else None
            for piece in read_partition(partition, scratch, notes):
                if table is None:
                    yield to_arrow(piece.chunk, partition.partition)
                else:
                    table.update(piece.chunk)
            if table is not None:
                for chunk in table.survivors():
                    yield to_arrow(chunk, partition.partition)
