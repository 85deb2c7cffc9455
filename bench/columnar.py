"""The columnar door on one thread, from the page cache: `python -m bench.columnar decode|latest DIR`.

Prints one JSON line with the best and the median of several rounds. `decode` counts only the work from bytes in memory
to record batches; `read` is the same with reading the files and the header-only pass included.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from muster.codec.columns.arrow import to_arrow
from muster.codec.columns.chunks import Scratch, decode_chunk
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import SCAN_FULL
from muster.segments.reader import CHUNK_BYTES, Damage, read_markers, read_partition
from muster.segments.sources import Sources

ROUNDS = 5


def decode(sources: Sources) -> tuple[int, float]:
    """Bytes already in memory to record batches: scan, checksums, records, columns. One partition after another."""
    import numpy as np

    scratch, records, spent = Scratch(), 0, 0.0
    for partition in sources.partitions:
        markers = read_markers(partition.segments)
        for segment in partition.segments:
            data = np.fromfile(segment.path, np.uint8)
            buffer = np.concatenate([data, np.zeros(SLACK, np.uint8)])
            started = time.perf_counter()
            position = 0
            while position < len(data):
                chunk = decode_chunk(buffer, position, min(len(data), position + CHUNK_BYTES), scratch, markers)
                records += to_arrow(chunk, partition.partition).num_rows
                if chunk.next_position == position and chunk.stop != SCAN_FULL:
                    break
                position = chunk.next_position
            spent += time.perf_counter() - started
    return records, spent


def read(sources: Sources) -> tuple[int, float]:
    """Files to record batches, as a program would."""
    started, records = time.perf_counter(), 0
    scratch, damage = Scratch(), list[Damage]()
    for partition in sources.partitions:
        for piece in read_partition(partition, scratch, damage):
            records += to_arrow(piece.chunk, partition.partition).num_rows
    return records, time.perf_counter() - started


def latest(sources: Sources) -> tuple[int, float]:
    """Files to the newest record of each key, as record batches."""
    started, records = time.perf_counter(), 0
    scratch, damage = Scratch(), list[Damage]()
    for partition in sources.partitions:
        table = LatestTable()
        for piece in read_partition(partition, scratch, damage):
            records += len(piece.chunk.records)
            table.update(piece.chunk)
        for chunk in table.survivors():
            to_arrow(chunk, partition.partition)
    return records, time.perf_counter() - started


WORK: dict[str, Callable[[Sources], tuple[int, float]]] = {"decode": decode, "read": read, "latest": latest}


def main(name: str, folder: str) -> None:
    with Sources([Path(folder)]) as sources:
        WORK[name](sources)  # warm the page cache and the allocator
        rounds = [WORK[name](sources) for _ in range(ROUNDS)]
    records = rounds[0][0]
    seconds = [spent for _, spent in rounds]
    print(json.dumps({"records": records, "best_s": min(seconds), "median_s": statistics.median(seconds)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
