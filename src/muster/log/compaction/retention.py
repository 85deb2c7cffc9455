"""Which segments an ordinary log may lose: Kafka's rules of retention, as functions of numbers.

Only whole segments go, oldest first, and never one that has a record at or above the high watermark. Three reasons,
each looked at in what the one before it has left:

    the log start offset is behind them (asked for by DeleteRecords; the only reason in a log that is only compacted),
    without them the log still has `retention.bytes`,
    their youngest record is older than `retention.ms`.

The active segment may go too, once it is not empty: a new one is rolled first, so there is always one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from muster.log.compaction.plan import SegmentFacts

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
