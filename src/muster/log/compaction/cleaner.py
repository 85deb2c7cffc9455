"""One round of compaction over one log: read closed segments twice, write new ones, swap them in.

    prepare   in the thread that owns the log: what to read, what to keep (`Job`)
    clean     anywhere: reads files that do not change, writes `.cleaned` ones and syncs them
    swap      once for each new segment: renames in the owner's thread again, syncs between them in that of the round

So appends go on all the while, and a crash at any point finds either the old segments or the new one (the log's
recovery knows all three suffixes). A round that fails or is cancelled removes what it was writing; the segments it
has already swapped in stay, and are no worse for it: the next round begins at the same offset again.

`Pace` bounds how fast a round goes and stops it: every byte read or written is counted there.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Union

from muster.errors import CodecError, LogDamaged, MusterError
from muster.extras import COLUMNS, is_installed
from muster.log.compaction.cleaned_segment import CleanedSegment
from muster.log.compaction.plan import SegmentFacts, grouped
from muster.log.compaction.rules import CleanedCount, CleaningRules
from muster.log.config import LogConfig
from muster.log.segment import LOG, Segment
from muster.segments.indexes import AbortedTransaction

if TYPE_CHECKING:
    from muster.log.compaction.compactor import Compactor
    from muster.log.compaction.rows import RowCompactor

LONGEST_BURST_S = 0.3
"""Time that was not used is good for this much later, and no more."""
DEFAULT_MEMORY_BYTES = 128 * 1024 * 1024
"""`log.cleaner.dedupe.buffer.size`"""
LARGEST_BATCH_BYTES = 128 * 1024 * 1024
"""A hundred times what a broker takes by default; a longer one is damage."""
SLACK = 64
"""What kernels want behind their buffers (`codec/columns/kernels.py`, which only a round imports)."""

AnyCompactor = Union["Compactor", "RowCompactor"]
Swap = Callable[[Sequence[Segment], Segment], None]
"""Put a new segment, durable but for its name, in the place of old ones. Raises where the log has those no longer."""


class CleaningCancelled(MusterError):
    """A round was told to stop. The log is as it was before, or as after some of its segments."""


class Pace:
    """At most so many bytes a second (`log.cleaner.io.max.bytes.per.second`), until cancelled from any thread."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._cancelled = threading.Event()
        self._wait = wait or self._cancelled.wait
        self._paid_until = clock()

    def cancel(self) -> None:
        """The round stops at its next step, however long it would have waited for it."""
        self._cancelled.set()

    def spend(self, size_bytes: int) -> None:
        """Wait until so many bytes are within the rate; raises `CleaningCancelled`."""
        self.check()
        if self._bytes_per_second is None:
            return
        now = self._clock()
        self._paid_until = max(self._paid_until, now - LONGEST_BURST_S) + size_bytes / self._bytes_per_second
        if self._paid_until > now:
            self._wait(self._paid_until - now)
            self.check()

    def check(self) -> None:
        if self._cancelled.is_set():
            raise CleaningCancelled("compaction was told to stop")


@dataclass(frozen=True, slots=True)
class Job:
    """A round, as it was prepared."""

    name: str
    """Of the partition, for people."""
    segments: Sequence[Segment]
    """Closed ones, from the start of the log to the end of the round."""
    rules: CleaningRules
    aborted: Sequence[AbortedTransaction]
    """Of the whole log: a marker may stand behind the end of the round."""
    config: LogConfig
    memory_bytes: int = DEFAULT_MEMORY_BYTES

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class Report(NamedTuple):
    """What a round did."""

    name: str
    first_dirty_offset: int
    end_offset: int
    """Where the next round begins: the end of this one, or less where the map was full."""
    counted: CleanedCount
    keys: int
    map_was_full: bool
    segments_before: int
    segments_after: int
    learning_s: float
    keeping_s: float


def clean(
    job: Job,
    swap: Swap,
    pace: Pace | None = None,
    *,
    compactor: "AnyCompactor | None" = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """Run a round to its end: in kernels, or row by row where numba is not installed. Tests bring their `compactor`.

    Raises `LogDamaged` where a segment cannot be read to its end, `CleaningCancelled`, and `OSError`; the log is whole
    in every case, and `.cleaned` files are gone unless the disk does not even allow that.
    """
    pace = pace or Pace()
    started = clock()
    compactor = compactor or _new_compactor(job)
    _learn(job, compactor, pace)
    learnt = clock()
    end_offset = compactor.latest_offset + 1
    segments = [segment for segment in job.segments if segment.base_offset < end_offset]
    groups = grouped(
        [facts_of(segment) for segment in segments],
        job.config.segment_bytes,
        job.config.segment_index_bytes,
        job.rules.end_offset,
    )
    place = 0
    for group in groups:
        _clean_group(job, segments[place : place + len(group)], compactor, swap, pace)
        place += len(group)
    return Report(
        job.name, job.rules.first_dirty_offset, end_offset, compactor.count, compactor.keys, compactor.is_full,
        len(segments), len(groups), learnt - started, clock() - learnt,
    )  # fmt: skip


def _new_compactor(job: Job) -> "AnyCompactor":
    """Imported here, since a server without a round does without numba."""
    if is_installed(COLUMNS):
        from muster.log.compaction.compactor import Compactor

        return Compactor(job.rules, job.aborted, job.memory_bytes)
    from muster.log.compaction.rows import RowCompactor

    return RowCompactor(job.rules, job.aborted, job.memory_bytes)


def facts_of(segment: Segment) -> SegmentFacts:
    """A closed segment in numbers."""
    return SegmentFacts(
        segment.base_offset,
        segment.size_bytes,
        segment.first_timestamp_ms,
        segment.largest_timestamp.timestamp_ms,
        *segment.index_sizes(),
    )


def _learn(job: Job, compactor: "AnyCompactor", pace: Pace) -> None:
    def learn(buffer: bytearray, end: int) -> int | None:
        taken = compactor.learn(buffer, end)
        return None if compactor.is_full else taken

    first = job.rules.first_dirty_offset
    ends = [*(segment.base_offset for segment in job.segments[1:]), job.rules.end_offset]
    for segment, end in zip(job.segments, ends, strict=True):
        if end <= first:
            continue
        _feed(job, segment, segment.start_of(first), learn, compactor.chunk_bytes, pace)
        if compactor.is_full:
            return
        compactor.latest_offset = end - 1  # no gap behind the last batch is left to the next round


def _clean_group(job: Job, group: Sequence[Segment], compactor: "AnyCompactor", swap: Swap, pace: Pace) -> None:
    first = group[0]
    cleaned = CleanedSegment(first.files, first.directory, first.base_offset, job.config, pace.spend)
    try:
        for segment in group:
            _feed(
                job, segment, 0, lambda buffer, end: compactor.keep(buffer, end, cleaned), compactor.chunk_bytes, pace
            )
        finished = cleaned.finish(compactor.take_aborted())
        pace.check()
        swap(group, finished)
    except BaseException:
        cleaned.abandon()
        raise


def _feed(
    job: Job,
    segment: Segment,
    position: int,
    take: Callable[[bytearray, int], int | None],
    chunk_bytes: int,
    pace: Pace,
) -> None:
    """Hand a segment over in chunks, with more of it where not even one batch is whole; until `take` says None."""
    size = chunk_bytes
    with segment.opened(LOG) as file:
        while position < segment.size_bytes:
            data = file.pread(min(size, segment.size_bytes - position), position)
            pace.spend(len(data))
            buffer = bytearray(data)
            buffer += bytes(SLACK)
            try:
                taken = take(buffer, len(data))
            except CodecError as error:
                raise LogDamaged(f"{_place(job, segment, position)}: {error}. {HOLDS}") from error
            if taken is None:
                return
            if taken:
                position += taken
                size = chunk_bytes
            elif len(data) < size or size > LARGEST_BATCH_BYTES:
                raise LogDamaged(f"{_place(job, segment, position)}: a batch breaks off there. {HOLDS}")
            else:
                size *= 2


HOLDS = "The log is left as it is, and not compacted until it is opened again."


def _place(job: Job, segment: Segment, position: int) -> str:
    return f"{job.name}/{segment.path(LOG).name} behind byte {position}"
