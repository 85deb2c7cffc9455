"""A partition's log into a coordinator: row by row while it is small, through columns when it is not.

The columnar reader is ten times as fast and costs a third of a second and a hundred megabytes to import, so a server
with little to load never does. What counts is what it has to load in all: fifty small partitions are a large log too.
"""

import time
from collections.abc import Callable

from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.loading import LoadReport, replay_batches, restore
from muster.log.partition import DiskLog
from muster.log.segment import LOG

COLUMNS_FROM_BYTES = 8 << 20
"""Of all partitions together."""
ROWS_UP_TO_BYTES = 32 << 10
"""Of one partition: reading this little row by row takes no longer."""

Progress = Callable[[int, int], None]
"""Records and bytes so far."""


def load(
    log: DiskLog, config: GroupConfig, progress: Progress | None = None, *, in_all_bytes: int = 0
) -> tuple[Coordinator, LoadReport]:
    """Read a log from its start to its end; raises `LoadFailed` where it must not be served.

    `in_all_bytes` are those of all logs that are to be loaded, this one among them.
    """
    started = time.perf_counter()
    coordinator = Coordinator(config)
    if max(in_all_bytes, log.size_bytes) >= COLUMNS_FROM_BYTES and log.size_bytes > ROWS_UP_TO_BYTES:
        report = _through_columns(log, coordinator, progress)
    else:
        batches = log.batches(buffer_bytes=config.offsets_load_buffer_size)
        told = None if progress is None else lambda report: progress(report.records, report.size_bytes)
        report = replay_batches(coordinator, batches, progress=told)
    report.seconds = time.perf_counter() - started
    return coordinator, report


def _through_columns(log: DiskLog, coordinator: Coordinator, progress: Progress | None) -> LoadReport:
    """The segments are those that the log says it has, as row by row: one that is not there is an error."""
    from muster.log.loading import load_latest
    from muster.segments.sources import Segment, SourcePartition

    segments = tuple(
        Segment(path, f"{path.parent.name}/{path.name}", segment.base_offset, segment.size_bytes)
        for segment in log.segments
        for path in (segment.path(LOG),)
    )
    return restore(coordinator, load_latest(SourcePartition(log.directory, None, segments), progress))
