"""Which log to compact next, and which part of it: the rules of Kafka's `LogCleanerManager`, as functions of numbers.

Segments are compacted whole. The *dirty* part begins where the last round ended (the cleaner's checkpoint) and ends
with the last whole segment below the last stable offset; the active segment is never touched, nor one that has records
younger than `min.compaction.lag.ms`. A log is worth a round when its dirty part is more than
`min.cleanable.dirty.ratio` of what would be read, or when something in it has waited for `max.compaction.lag.ms`.

Retention follows the same pattern: `retained` says which segments an ordinary log may lose. Only whole segments go,
oldest first, and never one that has a record at or above the high watermark. Three reasons, each looked at in what the
one before it has left:

    the log start offset is behind them (asked for by DeleteRecords; the only reason in a log that is only compacted),
    without them the log still has `retention.bytes`,
    their youngest record is older than `retention.ms`.

The active segment may go too, once it is not empty: a new one is rolled first, so there is always one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, TypeVar

from muster.segments.indexes import MAX_RELATIVE_OFFSET

Name = TypeVar("Name")

NEVER_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """Settings of a compacted topic; the names are Kafka's."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 0
    """Between the swap of a segment and the removal of those it replaces; Kafka's default is a minute."""


class SegmentFacts(NamedTuple):
    """What is known of a segment without reading it. Timestamps are -1 where no record has any."""

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int = -1
    largest_timestamp_ms: int = -1
    offset_index_bytes: int = 0
    time_index_bytes: int = 0


class LogFacts(NamedTuple):
    """A log as the cleaner sees it; the last segment is the active one."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    segments: Sequence[SegmentFacts]


class Cleanable(NamedTuple):
    """What a round over a log would do."""

    first_dirty_offset: int
    end_offset: int
    """The base of the first segment that is not touched."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Something dirty is older than `max.compaction.lag.ms`."""
    lost_checkpoint: bool
    """The checkpoint cannot be right: everything counts as dirty, and it should be written anew."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: CompactionConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable(log: LogFacts, checkpoint: int | None, config: CompactionConfig, now_ms: int) -> Cleanable:
    """The part of a log that may be compacted now."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    lost = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if lost:  # truncated behind it, or deleted from before it
        first_dirty = log.log_start_offset
    closed, active = log.segments[:-1], log.segments[-1]
    dirty = [one for one, following in pairwise(log.segments) if following.base_offset > first_dirty]
    limits = [log.last_stable_offset, active.base_offset]
    if config.min_compaction_lag_ms > 0:
        too_young_ms = now_ms - config.min_compaction_lag_ms
        limits += [segment.base_offset for segment in dirty if segment.largest_timestamp_ms > too_young_ms][:1]
    limit = max(first_dirty, min(limits))
    end = max(
        (one.base_offset for one in log.segments if one.base_offset <= limit), default=log.segments[0].base_offset
    )
    return Cleanable(
        first_dirty,
        end,
        sum(segment.size_bytes for segment in closed if segment.base_offset < first_dirty),
        sum(segment.size_bytes for segment in dirty if segment.base_offset < end),
        _is_overdue(dirty, config, now_ms),
        lost,
    )


def _is_overdue(dirty: Iterable[SegmentFacts], config: CompactionConfig, now_ms: int) -> bool:
    oldest_ms = min((one.first_timestamp_ms for one in dirty if one.first_timestamp_ms > 0), default=NEVER_MS)
    return oldest_ms < now_ms - max(config.max_compaction_lag_ms, 0)


def dirtiest(candidates: Mapping[Name, tuple[Cleanable, CompactionConfig]]) -> Name | None:
    """The log to compact next: of those that are due the one with the largest dirty ratio."""
    due = {name: part.dirty_ratio for name, (part, config) in candidates.items() if part.is_due(config)}
    return max(due, key=lambda name: due[name], default=None)


def grouped(
    segments: Sequence[SegmentFacts], segment_bytes: int, index_bytes: int, end_offset: int
) -> list[list[SegmentFacts]]:
    """Neighbours that fit into one segment even if nothing of them goes; each group becomes one new segment.

    So segments do not shrink away to nothing over the rounds, and no index gets an offset that it cannot hold.
    """
    groups: list[list[SegmentFacts]] = []
    for place, segment in enumerate(segments):
        following = segments[place + 1].base_offset if place + 1 < len(segments) else end_offset
        if groups and _fits([*groups[-1], segment], segment_bytes, index_bytes, following - 1):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: list[SegmentFacts], segment_bytes: int, index_bytes: int, last_offset: int) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= index_bytes
        and sum(segment.time_index_bytes for segment in group) <= index_bytes
        and (group[-1].size_bytes == 0 or last_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )


# Retention.


UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Settings of a topic; the names are Kafka's. A negative limit is none."""

    retention_ms: int = 7 * 86_400_000
    retention_bytes: int = UNLIMITED
    deletes: bool = True
    """`cleanup.policy` has `delete` in it."""


class Reason(Enum):
    """Why a segment goes."""

    LOG_START_OFFSET = "its records are before the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its youngest record is older than retention.ms"


class Retained(NamedTuple):
    """What is to be done: how many segments go from the front of the log, and why each of them."""

    reasons: tuple[Reason, ...]
    log_start_offset: int
    """Where the log begins afterwards."""
    rolls_active: bool
    """The active segment is among them, and a new one must be there first."""

    def __bool__(self) -> bool:
        return bool(self.reasons)


def retained(
    segments: Sequence[SegmentFacts],
    config: RetentionConfig,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> Retained:
    """Apply the rules to the segments of a log, of which the last is the active one."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    most = sum(1 for end in ends if end <= high_watermark)
    if segments[-1].size_bytes == 0:
        most = min(most, len(segments) - 1)
    reasons: list[Reason] = []
    while len(reasons) < min(most, len(segments) - 1) and ends[len(reasons)] <= log_start_offset:
        reasons.append(Reason.LOG_START_OFFSET)
    if config.deletes:
        reasons += [Reason.SIZE] * _above_size(segments[len(reasons) : most], segments[len(reasons) :], config)
        reasons += [Reason.TIME] * _above_age(segments[len(reasons) : most], segments[len(reasons) :], config, now_ms)
    start = max(log_start_offset, ends[len(reasons) - 1]) if reasons else log_start_offset
    return Retained(tuple(reasons), start, len(reasons) == len(segments))


def _above_size(candidates: Sequence[SegmentFacts], segments: Sequence[SegmentFacts], config: RetentionConfig) -> int:
    """How many may go so that `retention.bytes` are still there."""
    if config.retention_bytes < 0:
        return 0
    spare_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment in candidates:
        spare_bytes -= segment.size_bytes
        if spare_bytes < 0:
            break
        count += 1
    return count


def _above_age(
    candidates: Sequence[SegmentFacts], segments: Sequence[SegmentFacts], config: RetentionConfig, now_ms: int
) -> int:
    if config.retention_ms < 0:
        return 0
    count = 0
    for place in range(len(candidates)):
        largest_ms = _largest_timestamp(segments[place:])
        if largest_ms is None or now_ms - largest_ms <= config.retention_ms:
            break
        count += 1
    return count


def _largest_timestamp(segments: Sequence[SegmentFacts]) -> int | None:
    """Of the first of these segments. One without any timestamp is at least as old as the next that has one.

    Kafka asks the file system when the file was last written, which a copy or a restore makes anew.
    """
    return next((one.largest_timestamp_ms for one in segments if one.largest_timestamp_ms >= 0), None)
