"""Loading the groups of a partition.

A small log is read row by row, a large one through columns. The columnar reader is ten times as fast and costs
a third of a second and a hundred megabytes to import, so a server with little to load never does. The size of all logs
together decides: fifty small partitions are a large log too. Where its libraries are not installed all logs are
read row by row.
"""

import time

from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.groups import LoadReport, replay_batches, restore
from muster.extras import COLUMNS, is_installed
from muster.log.partition import DiskLog
from muster.log.segment import LOG
from muster.server.leadership import Loaded, Progress

COLUMNS_FROM_BYTES = 8 << 20
"""Of all partitions together."""
ROWS_UP_TO_BYTES = 32 << 10
"""Of one partition: reading this little row by row takes no longer."""


def load_groups(
    config: GroupConfig, log: DiskLog, progress: Progress, in_all_bytes: int, epoch: int
) -> Loaded[Coordinator]:
    """Raises `LoadFailed` where the log must not be served."""
    coordinator, report = load(log, config, progress, in_all_bytes=in_all_bytes)
    return Loaded(coordinator, report.records, (report.groups, report.offsets), report.problems, report.seconds)


def load(
    log: DiskLog, config: GroupConfig, progress: Progress | None = None, *, in_all_bytes: int = 0
) -> tuple[Coordinator, LoadReport]:
    """Read a log from its start to its end; raises `LoadFailed` where it must not be served.

    `in_all_bytes` are those of all logs that are to be loaded, this one among them.
    """
    started = time.perf_counter()
    coordinator = Coordinator(config)
    is_large = max(in_all_bytes, log.size_bytes) >= COLUMNS_FROM_BYTES and log.size_bytes > ROWS_UP_TO_BYTES
    if is_large and is_installed(COLUMNS):
        report = _through_columns(log, coordinator, progress)
    else:
        batches = log.batches(buffer_bytes=config.offsets_load_buffer_size)
        told = None if progress is None else lambda report: progress(report.records, report.size_bytes)
        report = replay_batches(coordinator.table, batches, progress=told)
    report.seconds = time.perf_counter() - started
    return coordinator, report


def _through_columns(log: DiskLog, coordinator: Coordinator, progress: Progress | None) -> LoadReport:
    """The segments are those that the log says it has, as row by row: one that is not there is an error."""
    from muster.log.loading import load_latest
    from muster.segments.sources import SegmentFile, SourcePartition

    segments = tuple(
        SegmentFile(path, f"{path.parent.name}/{path.name}", segment.base_offset, segment.size_bytes)
        for segment in log.segments
        for path in (segment.path(LOG),)
    )
    return restore(coordinator.table, load_latest(SourcePartition(log.directory, None, segments), progress))
