"""Rounds over logs on a disk: chosen, run, remembered, given up; and retention."""

import errno
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.codec.batches import iter_batches
from muster.codec.records import Record
from muster.errors import LogDamaged
from muster.log.compaction.cleaner import CleaningCancelled, Pace, clean
from muster.log.compaction.compactor import Compactor
from muster.log.compaction.manager import LogCleaner, apply_retention
from muster.log.compaction.plan import CompactionConfig, Reason, RetentionConfig
from muster.log.compaction.rows import RowCompactor
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.log.segment import LOG, Segment
from muster.segments.checkpoints import CLEANER_OFFSETS, TopicPartition, read_offsets
from muster.segments.files import REAL_FILES, Files
from tests.log.compaction import DAY_MS, START_MS
from tests.log.disk.faults import FaultyFiles

ROOT = Path("/data")
KEY = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


@dataclass(slots=True)
class World:
    """A directory of logs and their cleaner."""

    files: Files
    root: Path = ROOT
    config: CompactionConfig = field(default_factory=CompactionConfig)
    logs: dict[TopicPartition, DiskLog] = field(default_factory=dict)
    now_s: float = 0.0

    def open(self, key: TopicPartition = KEY, **more: int) -> DiskLog:
        self.files.mkdir(self.root)
        log = DiskLog.open(self.root / str(key), CONFIG, files=self.files, **more)  # type: ignore[arg-type]
        self.logs[key] = log
        return log

    def cleaner(self) -> LogCleaner:
        return LogCleaner(self.root, self.logs, lambda key: self.config, files=self.files, clock=lambda: self.now_s)


@pytest.fixture
def world() -> World:
    return World(FaultyFiles())


def fill(log: DiskLog, segments: int, keys: int = 10, value_bytes: int = 60) -> None:
    """Write the same keys over and over until there are so many closed segments more."""
    wanted = len(log.segments) + segments
    while len(log.segments) < wanted:
        offset = log.end_offset
        records = [
            (b"k%d" % ((offset + number) % keys), b"%*d" % (value_bytes, offset + number)) for number in range(3)
        ]
        log.append(records, START_MS + offset)
        log.write()
    log.flush()


def records_of(log: DiskLog) -> list[Record]:
    return [record for batch in log.batches() if not batch.header.is_control for record in batch.records]


def newest(log: DiskLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records_of(log)}


def file_names(world: World, key: TopicPartition = KEY) -> list[str]:
    return [entry.name for entry in world.files.entries(world.root / str(key))]


def test_a_round_leaves_the_newest_of_each_key_and_fewer_segments(world: World) -> None:
    log = world.open()
    fill(log, 5)
    before, end = newest(log), log.end_offset
    active = log.segments[-1]
    report = world.cleaner().run_once(START_MS)
    assert report is not None
    assert (report.first_dirty_offset, report.end_offset) == (0, active.base_offset)
    assert report.segments_before == 5
    closed = [record for record in records_of(log) if record.offset < active.base_offset]
    assert len(closed) == len({record.key for record in closed}) == 10
    assert newest(log) == before
    assert (log.start_offset, log.end_offset) == (0, end)
    assert report.counted.records_kept == 10
    assert not [name for name in file_names(world) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_the_next_round_begins_where_the_last_one_ended(world: World) -> None:
    log = world.open()
    cleaner = world.cleaner()
    fill(log, 3)
    first = cleaner.run_once(START_MS)
    assert first is not None
    assert cleaner.run_once(START_MS) is None  # nothing is dirty
    fill(log, 6)
    second = cleaner.run_once(START_MS)
    assert second is not None
    assert second.first_dirty_offset == first.end_offset
    assert read_offsets(world.files, ROOT / CLEANER_OFFSETS) == {KEY: second.end_offset}
    again = world.cleaner()  # as after a restart
    assert again.run_once(START_MS) is None


def test_the_dirtiest_log_is_first_and_all_come_to_their_turn(world: World) -> None:
    small, large = TopicPartition("t", 1), TopicPartition("t", 2)
    for key in (small, large):
        fill(world.open(key), 2)
    cleaner = world.cleaner()
    for _ in range(2):
        assert cleaner.run_once(START_MS) is not None
    fill(world.logs[small], 3)
    fill(world.logs[large], 9)
    names = [report.name for _ in range(3) if (report := cleaner.run_once(START_MS)) is not None]
    assert names == ["t-2", "t-1"]


def test_a_log_that_is_not_compacted_is_left_alone(world: World) -> None:
    log = world.open()
    fill(log, 3)
    before = log.size_bytes
    cleaner = LogCleaner(ROOT, world.logs, lambda key: None, files=world.files)
    assert cleaner.run_once(START_MS) is None
    assert log.size_bytes == before


def test_transactions_go_through_a_round_and_a_restart(world: World) -> None:
    log = world.open()
    log.append([(b"a", b"1"), (b"b", b"1")], START_MS)
    log.append([(b"a", b"2")], START_MS, 7, 0)
    log.append([(b"b", b"aborted")], START_MS, 8, 0)
    log.append_marker(8, 0, START_MS, commit=False)
    log.append_marker(7, 0, START_MS, commit=True)
    log.flush()
    log.roll()
    log.append([(b"c", b"open")], START_MS, 9, 0)
    fill(log, 4)
    cleaner = world.cleaner()
    report = cleaner.run_once(START_MS)
    assert report is not None
    assert report.end_offset == log.segments[1].base_offset  # the segment with the open transaction is not touched
    below = [
        (record.offset, record.key, record.value) for record in records_of(log) if record.offset < report.end_offset
    ]
    assert below == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert [one.producer_id for one in log.aborted_transactions(0, log.end_offset)] == [8]
    stable, found = log.last_stable_offset, newest(log)
    assert log.close()
    reopened = world.open(clean=True)
    assert (reopened.last_stable_offset, newest(reopened)) == (stable, found)
    after_crash = DiskLog.open(ROOT / str(KEY), CONFIG, files=world.files)
    assert (after_crash.last_stable_offset, len(after_crash.producers)) == (stable, 3)


def test_a_damaged_segment_is_given_up_and_nothing_of_it_changed(world: World) -> None:
    log = world.open()
    fill(log, 3)
    cleaner = world.cleaner()
    file = world.files.open(log.segments[1].path(LOG), write=True)
    file.pwrite(b"?", 300)
    before = {name: world.files.open(ROOT / str(KEY) / name).pread(1 << 20, 0) for name in file_names(world)}
    assert cleaner.run_once(START_MS) is None
    assert {name: world.files.open(ROOT / str(KEY) / name).pread(1 << 20, 0) for name in file_names(world)} == before
    assert "says CRC" in cleaner.uncleanable[KEY]
    assert list(cleaner.notes) == [f"t-0 is not compacted any more: {cleaner.uncleanable[KEY]}"]
    assert cleaner.run_once(START_MS) is None  # and not tried again


def test_a_segment_that_breaks_off_is_given_up(world: World) -> None:
    log = world.open()
    fill(log, 3)
    segment = log.segments[1]
    world.files.open(segment.path(LOG), write=True).truncate(segment.size_bytes - 10)
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS) is None
    assert "breaks off" in cleaner.uncleanable[KEY]


def test_a_full_disk_leaves_the_old_segments_and_no_half_new_one(world: World) -> None:
    files = world.files
    assert isinstance(files, FaultyFiles)
    log = world.open()
    fill(log, 3, keys=1000)
    before = newest(log)
    files.room_bytes = files.used_bytes() + 100
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS) is None
    assert "No space left" in cleaner.notes[0]
    assert not [name for name in file_names(world) if name.endswith(".cleaned")]
    files.room_bytes = None
    assert newest(log) == before
    assert log.append([(b"k", b"goes on")], START_MS) == log.end_offset - 1


def test_a_log_that_found_no_room_is_compacted_when_there_is_some(world: World) -> None:
    files = world.files
    assert isinstance(files, FaultyFiles)
    log = world.open()
    fill(log, 3, keys=1000)
    before = newest(log)
    cleaner = world.cleaner()
    files.room_bytes = files.used_bytes() + 100
    tries_s = []
    for now_s in range(0, 4000, 5):
        world.now_s = float(now_s)
        job = cleaner.next_job(START_MS)
        if job is not None:
            tries_s.append(now_s)
            with pytest.raises(OSError, match="No space left") as full:
                clean(job, cleaner.swap)
            cleaner.failed(full.value)
    assert tries_s == [0, 15, 45, 105, 225, 465, 945, 1845, 2745, 3645]
    assert len(cleaner.notes) == 1, "told once"
    assert not cleaner.uncleanable
    files.room_bytes = None
    world.now_s = 10_000.0
    assert cleaner.run_once(START_MS) is not None
    assert not cleaner.paused
    assert newest(log) == before


def test_a_round_that_ends_in_an_unexpected_error_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(world.open(), 3)
    fill(world.open(TopicPartition("t", 1)), 3)
    cleaner = world.cleaner()

    def mistaken(*parts: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr("muster.log.compaction.compactor.Compactor", mistaken)
        assert cleaner.run_once(START_MS) is None
        assert cleaner.in_progress is None
        assert cleaner.run_once(START_MS) is None
    assert [note.split(". ")[0] for note in cleaner.notes] == [
        f"t-{number} could not be compacted: ZeroDivisionError: a mistake of ours" for number in (0, 1)
    ]
    assert cleaner.run_once(START_MS) is None, "not before the pause is over"
    world.now_s += 15
    assert cleaner.run_once(START_MS) is not None
    assert cleaner.run_once(START_MS) is not None


def test_a_log_that_is_on_loan_is_neither_compacted_nor_cut_by_retention(world: World) -> None:
    fill(world.open(), 3)
    on_loan = {KEY}
    cleaner = LogCleaner(ROOT, world.logs, lambda key: world.config, files=world.files, on_loan=on_loan)
    everything = RetentionConfig(retention_ms=0)
    assert cleaner.next_job(START_MS) is None
    assert cleaner.delete_old_segments(START_MS + DAY_MS, lambda key: everything) == 0
    on_loan.clear()
    assert cleaner.next_job(START_MS) is not None


# Removal of what was replaced.


def deleted_names(world: World) -> list[str]:
    return [name for name in file_names(world) if name.endswith(".deleted")]


def test_replaced_segments_stay_for_a_while_named_deleted(world: World) -> None:
    log = world.open()
    world.config = CompactionConfig(file_delete_delay_ms=60_000)
    fill(log, 3)
    old = [segment.path(LOG).name for segment in log.segments[:-1]]
    before = newest(log)
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS) is not None
    assert [name for name in deleted_names(world) if ".log" in name] == [f"{name}.deleted" for name in old]
    assert newest(log) == before
    world.now_s += 59.9
    assert cleaner.take_replaced() == []
    world.now_s += 0.1
    cleaner.delete(cleaner.take_replaced())
    assert deleted_names(world) == []


def test_what_a_kill_leaves_of_replaced_segments_goes_when_the_log_is_opened(world: World) -> None:
    log = world.open()
    world.config = CompactionConfig(file_delete_delay_ms=60_000)
    fill(log, 3)
    before = newest(log)
    assert world.cleaner().run_once(START_MS) is not None
    assert deleted_names(world)
    files = world.files
    assert isinstance(files, FaultyFiles)
    world.files = files.killed()
    assert newest(world.open()) == before
    assert deleted_names(world) == []


def test_a_segment_that_is_replaced_again_stays_as_long_as_the_last_time_says(world: World) -> None:
    log = world.open()
    world.config = CompactionConfig(min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=60_000)
    cleaner = world.cleaner()
    for _ in range(2):
        fill(log, 2)
        assert cleaner.run_once(START_MS) is not None
        world.now_s += 50
    assert all(segment.base_offset > 0 for segment in cleaner.take_replaced())
    world.now_s += 10
    assert 0 in [segment.base_offset for segment in cleaner.take_replaced()]


def test_a_replaced_segment_that_cannot_be_removed_is_told_and_left(world: World) -> None:
    files = world.files
    assert isinstance(files, FaultyFiles)
    log = world.open()
    fill(log, 3)
    files.fail = lambda operation, path: errno.EIO if operation == "unlink" and path.suffix == ".deleted" else None
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS) is not None
    assert "could not be removed" in cleaner.notes[0]
    assert log.failure is None


def test_a_checkpoint_that_cannot_be_read_costs_work_and_no_more(world: World) -> None:
    log = world.open()
    fill(log, 3)
    file = world.files.open(ROOT / CLEANER_OFFSETS, create=True)
    file.pwrite(b"0\nnonsense\n", 0)
    cleaner = world.cleaner()
    assert "compacted from their start" in cleaner.notes[0]
    report = cleaner.run_once(START_MS)
    assert report is not None
    assert report.first_dirty_offset == 0


def test_a_log_that_was_cut_before_its_checkpoint_is_all_dirty(world: World) -> None:
    log = world.open()
    fill(log, 5)
    cleaner = world.cleaner()
    report = cleaner.run_once(START_MS)
    assert report is not None
    log.truncate_to(report.end_offset - 5)
    assert cleaner.cleanable(START_MS)[KEY][0].lost_checkpoint
    log.roll()
    again = cleaner.run_once(START_MS)
    assert again is not None
    assert again.first_dirty_offset == 0
    assert f"was clean up to {report.end_offset}, which it does not reach" in cleaner.notes[0]


def test_what_is_written_behind_a_cut_is_dirty(world: World) -> None:
    log = world.open()
    fill(log, 5)
    cleaner = world.cleaner()
    report = cleaner.run_once(START_MS)
    assert report is not None
    cut = report.end_offset - 15
    log.truncate_to(cut)
    cleaner.truncated(KEY, cut)
    fill(log, 5)
    assert log.end_offset > report.end_offset
    assert cleaner.cleanable(START_MS)[KEY][0].first_dirty_offset == cut
    assert read_offsets(world.files, ROOT / CLEANER_OFFSETS) == {KEY: cut}


def test_a_log_that_changes_meanwhile_keeps_what_it_has(world: World) -> None:
    log = world.open()
    fill(log, 4)
    cleaner = world.cleaner()
    job = cleaner.next_job(START_MS)
    assert job is not None
    assert cleaner.next_job(START_MS) is None  # one round at a time
    log.truncate_to(log.segments[1].base_offset)
    before = records_of(log)
    with pytest.raises(LogDamaged, match="breaks off") as failure:
        clean(job, cleaner.swap)
    cleaner.failed(failure.value)
    assert records_of(log) == before
    assert not cleaner.uncleanable
    assert not [name for name in file_names(world) if name.endswith(".cleaned")]


def test_a_log_that_changes_before_the_swap_keeps_what_it_has(world: World) -> None:
    log = world.open()
    fill(log, 4)
    cleaner = world.cleaner()
    job = cleaner.next_job(START_MS)
    assert job is not None

    def swap(old: Sequence[Segment], new: Segment) -> None:
        log.truncate_to(log.segments[1].base_offset)
        cleaner.swap(old, new)

    with pytest.raises(CleaningCancelled, match="t-0 was changed while"):
        clean(job, swap)
    assert not [name for name in file_names(world) if name.endswith(".cleaned")]


def test_a_round_is_cancelled_between_two_chunks(world: World) -> None:
    log = world.open()
    fill(log, 4)
    before = records_of(log)
    pace = Pace()
    pace.cancel()
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS, pace) is None
    assert records_of(log) == before
    assert cleaner.run_once(START_MS) is not None


def test_tombstones_go_with_time(world: World) -> None:
    log = world.open()
    world.config = CompactionConfig(min_cleanable_dirty_ratio=0.0)
    log.append([(b"gone", b"1")], START_MS)
    log.append([(b"gone", None)], START_MS)
    fill(log, 1)
    cleaner = world.cleaner()
    assert cleaner.run_once(START_MS) is not None
    assert newest(log)[b"gone"][1] is None
    for later_ms, is_there in ((DAY_MS - 1, True), (DAY_MS, False)):
        fill(log, 1)
        assert cleaner.run_once(START_MS + later_ms) is not None
        assert (b"gone" in newest(log)) == is_there


def test_appends_go_on_while_a_round_runs_in_another_thread(tmp_path: Path) -> None:
    """The owner appends, flushes and rolls all the while; only swaps come back to it."""
    world = World(REAL_FILES, tmp_path / "data")
    log = world.open()
    fill(log, 40)
    cleaner = world.cleaner()
    calls: queue.Queue[tuple[Callable[[], None], threading.Event] | None] = queue.Queue()

    def swap(old: Sequence[Segment], new: Segment) -> None:
        done = threading.Event()
        calls.put((lambda: cleaner.swap(old, new), done))
        assert done.wait(20)

    reports = []
    job = cleaner.next_job(START_MS)
    assert job is not None

    def work() -> None:
        reports.append(clean(job, swap, Pace(2_000_000)))
        calls.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    appended = swaps = 0
    while True:
        log.append([(b"k%d" % (appended % 10), b"%60d" % appended)], START_MS)
        log.flush()
        appended += 1
        try:
            call = calls.get_nowait()
        except queue.Empty:
            continue
        if call is None:
            break
        call[0]()
        swaps += 1
        call[1].set()
    thread.join()
    cleaner.finished(reports[0])
    assert swaps == reports[0].segments_after
    assert appended > swaps
    end, found = log.end_offset, newest(log)
    assert log.close()
    assert newest(DiskLog.open(log.directory, CONFIG, clean=True)) == found
    assert newest(DiskLog.open(log.directory, CONFIG, recovery_point=0)) == found
    assert found[b"k%d" % ((appended - 1) % 10)] == (end - 1, b"%60d" % (appended - 1))
    data = b"".join(segment.path(LOG).read_bytes() for segment in log.segments)
    assert all(batch.problem is None for batch in iter_batches(data))


# Retention.


def test_old_segments_are_deleted_and_the_log_starts_behind_them(world: World) -> None:
    log = world.open()
    fill(log, 3)
    third = log.segments[2]
    now_ms = log.segments[1].largest_timestamp.timestamp_ms + 1001
    found = apply_retention(log, RetentionConfig(retention_ms=1000), now_ms)
    assert found.reasons == (Reason.TIME, Reason.TIME)
    assert (log.start_offset, log.segments[0].base_offset) == (third.base_offset, third.base_offset)
    assert records_of(log)[0].offset == third.base_offset
    reopened = DiskLog.open(ROOT / str(KEY), CONFIG, files=world.files)
    assert reopened.start_offset == third.base_offset


def test_what_is_staged_beside_an_old_segment_stays(world: World) -> None:
    """A batch that comes in the same turn of the loop, and is acknowledged at its end."""
    log = world.open()
    fill(log, 1)
    end = log.append([(b"young", b"v")], START_MS + DAY_MS)
    apply_retention(log, RetentionConfig(retention_ms=1000), START_MS + DAY_MS)
    log.flush()
    assert records_of(log)[-1].offset == end


def test_a_log_that_is_all_old_is_empty_afterwards_and_goes_on(world: World) -> None:
    log = world.open()
    fill(log, 3)
    end = log.end_offset
    found = apply_retention(log, RetentionConfig(retention_ms=1000), START_MS + DAY_MS)
    assert found.rolls_active
    assert (log.start_offset, log.end_offset, len(log.segments), log.size_bytes) == (end, end, 1, 0)
    assert log.append([(b"k", b"v")], START_MS) == end
    log.flush()
    assert [record.offset for record in records_of(log)] == [end]


def test_retention_steps_over_the_log_that_is_being_compacted(world: World) -> None:
    log = world.open()
    fill(log, 3)
    cleaner = world.cleaner()
    job = cleaner.next_job(START_MS)
    assert job is not None
    everything = RetentionConfig(retention_ms=0)
    assert cleaner.delete_old_segments(START_MS + DAY_MS, lambda key: everything) == 0
    cleaner.failed(CleaningCancelled("for the test"))
    assert cleaner.delete_old_segments(START_MS + DAY_MS, lambda key: everything) == 4


# The kernels, and their judge.

A_ROUND = """
import sys
from pathlib import Path
from muster.segments.checkpoints import TopicPartition
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.partition import DiskLog
from muster.log.config import LogConfig

root, key = Path(sys.argv[1]), TopicPartition("t", 0)
log = DiskLog.open(root / str(key), LogConfig(segment_bytes=1000))
cleaner = LogCleaner(root, {key: log}, lambda key: CompactionConfig())
assert cleaner.run_once(1) is None
print(sorted({"numpy", "numba", "pyarrow"} & set(sys.modules)))
for number in range(100):
    log.append([(b"k", b"%d" % number)], 1)
    log.write()
report = cleaner.run_once(1)
assert report is not None and report.counted.records_kept == 1
print(sorted({"numpy", "numba", "pyarrow"} & set(sys.modules)))
"""


def test_the_large_libraries_are_imported_by_the_first_round_and_not_before(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", A_ROUND, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['numba', 'numpy']\n"


def test_a_round_over_files_ends_as_row_by_row_where_numba_is_not_installed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [world.open(TopicPartition("t", 1)), world.open(TopicPartition("t", 2))]
    for log in logs:
        fill(log, 6)
        log.append([(b"k1", None)], START_MS)
        log.roll()
    cleaner = world.cleaner()
    made: list[str] = []
    for kind in (RowCompactor, Compactor):
        monkeypatch.setattr(kind, "take_aborted", _noting(made, kind.take_aborted))
    for missing in ({"numba"}, set()):
        with monkeypatch.context() as patch:
            for name in missing:
                patch.setitem(sys.modules, name, None)
            job = cleaner.next_job(START_MS)
            assert job is not None
            report = clean(job, cleaner.swap)
        assert report.counted.records_read > report.counted.records_kept
        cleaner.finished(report)
    assert list(dict.fromkeys(made)) == ["RowCompactor", "Compactor"]
    for one, other in zip(logs[0].segments, logs[1].segments, strict=True):
        for kind in (LOG, ".index", ".timeindex"):
            with one.opened(kind) as first, other.opened(kind) as second:
                assert first.pread(1 << 20, 0) == second.pread(1 << 20, 0)


def _noting(made: list[str], take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def noted(compactor: Any) -> Any:
        made.append(type(compactor).__name__)
        return take(compactor)

    return noted
