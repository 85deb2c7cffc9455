"""`LogCleaner`: chooses the log of the next round, keeps its checkpoint, and pauses logs whose round failed.

`LogCleaner` lives in the thread that owns the logs. `next_job` chooses the dirtiest log and prepares a round; the round
itself (`cleaner.clean`) may run in any other thread, with the steps of `swapping` brought back to the owner's;
`finished` or `failed` ends it. `save_offsets` and `delete` touch files alone, and may run in any thread. `run_once`
does all of it here and now.

How far a log is clean stands in `cleaner-offset-checkpoint`, as in Kafka. Losing that file costs work, never records:
an offset that is too small makes the next round look at more. A log whose segments are damaged is given up until it is
opened again, because the next round would end at the same place. After any other problem (no room, a disk that fails
for a while, a mistake of ours) the log is tried again, with pauses that grow.

A replaced segment is named `.deleted` and removed a while later (`file.delete.delay.ms`), so that a reader which found
it by name can still open it. `ReplacedSegments` remembers those of this process; recovery removes `.deleted` files when
it opens a log.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import LogDamaged, Malformed, described
from muster.log.compaction.cleaner import DEFAULT_MEMORY_BYTES, CleaningCancelled, Job, Pace, Report, clean, facts_of
from muster.log.compaction.plan import (
    Cleanable,
    CompactionConfig,
    LogFacts,
    Retained,
    RetentionConfig,
    SegmentFacts,
    cleanable,
    dirtiest,
    retained,
)
from muster.log.compaction.rules import CleaningRules, LastRecord
from muster.log.partition import DiskLog
from muster.log.segment import LOG, Segment
from muster.log.steps import GrowingPause, Steps, carry_out
from muster.segments.checkpoints import CLEANER_OFFSETS, TopicPartition, read_offsets, write_offsets
from muster.segments.files import REAL_FILES, Files
from muster.segments.sources import OFFSETS_TOPIC


class ReplacedSegments:
    """Those that are to be removed, and when; `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[tuple[TopicPartition, int], tuple[float, Segment]] = {}

    def add(self, key: TopicPartition, segment: Segment, delay_s: float) -> None:
        """An earlier one of the same name is gone already: the file has been renamed over it."""
        self._waiting[key, segment.base_offset] = self._clock() + delay_s, segment

    def take_due(self, *, everything: bool = False) -> list[Segment]:
        """Those whose time has come, which the caller removes."""
        now = self._clock()
        due = {place: one for place, (time, one) in self._waiting.items() if everything or time <= now}
        for place in due:
            del self._waiting[place]
        return list(due.values())

    def topic_deleted(self, name: str) -> None:
        self._waiting = {place: one for place, one in self._waiting.items() if place[0].topic != name}


MOST_NOTES = 100
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 900.0
"""Between two rounds over a log that fail."""
Logs = Mapping[TopicPartition, DiskLog]


@dataclass(slots=True)
class _Paused:
    """A log whose last round failed, and may succeed another time."""

    problem: str = ""
    until: float = 0.0
    pauses: GrowingPause = field(default_factory=lambda: GrowingPause(FIRST_PAUSE_S, LONGEST_PAUSE_S))


class LogCleaner:
    """The rounds of compaction of all logs in a directory.

    `config_of` says how a log is compacted, None of one that is not. Logs `on_loan` to another thread are left alone.
    `lock` is held while the checkpoint is written; other writers of that file hold the same lock.
    """

    def __init__(
        self,
        path: Path,
        logs: Logs,
        config_of: Callable[[TopicPartition], CompactionConfig | None],
        *,
        files: Files = REAL_FILES,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        on_loan: Container[TopicPartition] = frozenset(),
        lock: AbstractContextManager[object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._on_loan = on_loan
        self._lock = lock or threading.Lock()
        self._clock = clock
        self._path = path / CLEANER_OFFSETS
        self._logs = logs
        self._config_of = config_of
        self._memory_bytes = memory_bytes
        self.notes: deque[str] = deque(maxlen=MOST_NOTES)
        """In sentences, what an operator should know; the last ones."""
        self.uncleanable: dict[TopicPartition, str] = {}
        """Given up, and why."""
        self.paused: dict[TopicPartition, _Paused] = {}
        """Tried again later."""
        self._replaced = ReplacedSegments(clock)
        self._delete_delay_s = 0.0  # of the round in progress
        self.in_progress: TopicPartition | None = None
        self._to_come: list[Segment] = []  # of the round in progress, those not yet replaced
        self._cleaned_log: DiskLog | None = None  # of the round in progress
        self._offsets = self._read_offsets()

    def _read_offsets(self) -> dict[TopicPartition, int]:
        """What can be true of the logs as they were opened: what is appended later must not make more of it so."""
        try:
            written_down = read_offsets(self._files, self._path)
        except Malformed as error:
            self.notes.append(f"{error}: ignored, so logs are compacted from their start")
            return {}
        offsets = {}
        for key, clean_up_to in written_down.items():
            log = self._logs.get(key)
            if log is not None and clean_up_to > log.end_offset:
                self._tell_lost(key, clean_up_to)
            elif log is not None:
                offsets[key] = clean_up_to
        return offsets

    def _tell_lost(self, key: TopicPartition, clean_up_to: int) -> None:
        self.notes.append(f"{key}: was clean up to {clean_up_to}, which it does not reach; all of it is dirty")

    def cleanable(self, now_ms: int) -> dict[TopicPartition, tuple[Cleanable, CompactionConfig]]:
        """The dirty part of every compacted log that may be cleaned now."""
        found = {}
        for key, log in self._logs.items():
            if not self._may_be_cleaned(key, log):
                continue
            try:
                config = self._config_of(key)
                if config is not None:
                    found[key] = cleanable(_facts(log), self._offsets.get(key), config, now_ms), config
            except Exception as error:
                self._put_off(key, error)
        return found

    def _may_be_cleaned(self, key: TopicPartition, log: DiskLog) -> bool:
        if log.failure is not None or key in self.uncleanable or key == self.in_progress or key in self._on_loan:
            return False
        paused = self.paused.get(key)
        return paused is None or paused.until <= self._clock()

    def next_job(self, now_ms: int) -> Job | None:
        """A round over the dirtiest log that is due, if there is one; no other begins before it has ended."""
        if self.in_progress is not None:
            return None
        candidates = self.cleanable(now_ms)
        key = dirtiest(candidates)
        if key is None:
            return None
        part, config = candidates[key]
        if part.lost_checkpoint:
            self._tell_lost(key, self._offsets[key])
        try:
            job = prepare(key, self._logs[key], part, config, now_ms, self._memory_bytes)
        except Exception as error:
            self._put_off(key, error)
            return None
        self.in_progress, self._to_come = key, list(job.segments)
        self._cleaned_log = self._logs[key]
        self._delete_delay_s = config.file_delete_delay_ms / 1000
        return job

    def swap(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a new segment in the place of old ones, here and now, if the log still has them."""
        carry_out(self.swapping(old, new))
        self.delete(self.take_replaced())

    def swapping(self, old: Sequence[Segment], new: Segment) -> Steps:
        """The same in steps, with waits for the disk between them. What was replaced is removed later."""
        if self._was_changed():
            raise CleaningCancelled(f"{self.in_progress} was changed while it was compacted")
        key = self.in_progress
        assert key is not None
        yield from self._logs[key].replacing([new], old)
        self._to_come = [segment for segment in self._to_come if segment not in old]
        for segment in old:
            self._replaced.add(key, segment, self._delete_delay_s)

    def take_replaced(self, *, everything: bool = False) -> list[Segment]:
        """Replaced segments whose time has come; `delete` removes them."""
        return self._replaced.take_due(everything=everything)

    def delete(self, segments: Sequence[Segment]) -> None:
        """Remove replaced segments, in any thread. What cannot be removed is left to the next opening of the log."""
        for segment in segments:
            try:
                segment.delete()
            except OSError as error:
                self.notes.append(f"{segment.path(LOG)} could not be removed: {error}; that is done at the next start")

    def _was_changed(self) -> bool:
        """Whether the log in progress was deleted, cut or closed meanwhile."""
        log = self._logs.get(self.in_progress) if self.in_progress is not None else None
        if log is None or log is not self._cleaned_log or log.failure is not None:
            return True
        segments = log.segments
        return not all(segment in segments for segment in self._to_come)

    def finished(self, report: Report) -> None:
        """A round has ended well: the next one begins behind it, after a restart too when `save_offsets` is done."""
        assert self.in_progress is not None
        was_changed = self._was_changed()
        key, self.in_progress = self.in_progress, None
        self.paused.pop(key, None)
        if not was_changed:
            self._offsets = {**self._offsets, key: report.end_offset}

    def reopened(self, key: TopicPartition) -> None:
        """Another log is in the place of one whose disk had failed: it may be compacted, whatever was said before."""
        self.uncleanable.pop(key, None)
        self.paused.pop(key, None)

    def topic_deleted(self, name: str) -> None:
        """Its logs are gone, in the checkpoint too: a new topic of that name begins anew."""
        self._offsets = {key: offset for key, offset in self._offsets.items() if key.topic != name}
        self.uncleanable = {key: why for key, why in self.uncleanable.items() if key.topic != name}
        self.paused = {key: paused for key, paused in self.paused.items() if key.topic != name}
        self._replaced.topic_deleted(name)

    def truncated(self, key: TopicPartition, offset: int) -> None:
        """A log was cut at an offset: what is written there from now on is not clean."""
        if self._offsets.get(key, 0) > offset:
            self._offsets = {**self._offsets, key: offset}
            self.save_offsets()

    def save_offsets(self) -> None:
        """Write down how far logs are clean, in any thread. Logs that are gone by then are left out."""
        try:
            with self._lock:
                known = {key: offset for key, offset in self._offsets.items() if key in self._logs}
                write_offsets(self._files, self._path, known, "cleaner-offsets")
        except OSError as error:
            self.notes.append(
                f"{self._path.name} could not be written: {error}; after a restart that work is done again"
            )

    def failed(self, error: Exception) -> None:
        """A round has not. If it was cancelled, or its log changed, that was no fault of the log."""
        assert self.in_progress is not None
        was_changed = self._was_changed()
        key, self.in_progress = self.in_progress, None
        if not was_changed and not isinstance(error, CleaningCancelled):
            self._put_off(key, error)

    def _put_off(self, key: TopicPartition, error: Exception) -> None:
        """A damaged log would end the next round at the same place; anything else may pass."""
        if isinstance(error, LogDamaged):
            self.uncleanable[key] = str(error)
            self.notes.append(f"{key} is not compacted any more: {error}")
            return
        problem = described(error).rstrip(".")
        paused = self.paused.setdefault(key, _Paused())
        pause_s = paused.pauses.next_s()
        paused.until = self._clock() + pause_s
        if paused.problem != problem:
            paused.problem = problem
            self.notes.append(
                f"{key} could not be compacted: {problem}. It is left as it is, and tried again in {pause_s:.0f} s, "
                "then with longer pauses."
            )

    def run_once(self, now_ms: int, pace: Pace | None = None) -> Report | None:
        """The next round from beginning to end in this thread; None if none is due, or it failed (`notes` says why)."""
        job = self.next_job(now_ms)
        if job is None:
            return None
        try:
            report = clean(job, self.swap, pace)
        except Exception as error:
            self.failed(error)
            return None
        self.finished(report)
        self.save_offsets()
        return report

    def delete_old_segments(self, now_ms: int, config_of: Callable[[TopicPartition], RetentionConfig]) -> int:
        """Retention, for every log but the one that is being compacted and those on loan; how many segments went.

        Log starts that moved last when `LogDirectory.write_checkpoints` is called next; until then a crash may bring
        back records, but none that is not whole.
        """
        count = 0
        for key, log in self._logs.items():
            if log.failure is None and key != self.in_progress and key not in self._on_loan:
                count += len(apply_retention(log, config_of(key), now_ms).reasons)
        return count


def prepare(
    key: TopicPartition,
    log: DiskLog,
    part: Cleanable,
    config: CompactionConfig,
    now_ms: int,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Job:
    """A round over a part of a log, with everything that it must know of the rest."""
    segments = [segment for segment in log.segments[:-1] if segment.base_offset < part.end_offset]
    last_records = {
        producer.producer_id: LastRecord(producer.batches[-1].last_offset if producer.batches else None, producer.epoch)
        for producer in log.producers.producers.values()
    }
    rules = CleaningRules(
        now_ms,
        config.delete_retention_ms,
        part.first_dirty_offset,
        part.end_offset,
        last_records,
        merges_offset_keys=key.topic == OFFSETS_TOPIC,
    )
    aborted = [transaction for segment in log.segments for transaction in segment.aborted_transactions()]
    return Job(str(key), segments, rules, aborted, log.config, memory_bytes)


def _facts(log: DiskLog) -> LogFacts:
    *closed, active = log.segments
    return LogFacts(
        log.start_offset,
        log.end_offset,
        log.last_stable_offset,
        [*(facts_of(segment) for segment in closed), SegmentFacts(active.base_offset, active.size_bytes)],
    )


def apply_retention(log: DiskLog, config: RetentionConfig, now_ms: int) -> Retained:
    """Remove what a log need not keep any longer. `LogDamaged` if the disk fails."""
    log.write()  # what is staged counts too: a roll would put it into the segment that is about to go
    found = retained(
        [facts_of(segment) for segment in log.segments],
        config,
        now_ms,
        log.start_offset,
        log.written_offset,
        log.high_watermark,
    )
    if found.rolls_active:
        log.roll()
    if found:
        log.delete_segments(len(found.reasons))
    return found
