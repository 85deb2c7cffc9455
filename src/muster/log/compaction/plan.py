"""Which log to compact next, and which part of it: the rules of Kafka's `LogCleanerManager`, as functions of numbers.

Segments are compacted whole. The *dirty* part begins where the last round ended (the cleaner's checkpoint) and ends
with the last whole segment below the last stable offset; the active segment is never touched, nor one that has records
younger than `min.compaction.lag.ms`. A log is worth a round when its dirty part is more than
`min.cleanable.dirty.ratio` of what would be read, or when something in it has waited for `max.compaction.lag.ms`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
