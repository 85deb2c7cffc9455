"""The power cut at every point of a round: the log opens, and nobody has lost a value.

The disk is the model of `tests/log/disk/faults.py`: of what was not synced, any part may be there, names included.
"""

from functools import cache
from pathlib import Path
from typing import cast

import pytest

from muster.codec.records import Record
from muster.log.compaction.manager import LogCleaner, apply_retention
from muster.log.compaction.plan import CompactionConfig, RetentionConfig
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.log.segment import INDEX, TIMEINDEX
from muster.segments.checkpoints import TopicPartition
from muster.segments.indexes import AbortedTransaction
from tests.log.compaction import DAY_MS, START_MS
from tests.log.disk.changes import checkpoint_log
from tests.log.disk.crashes import Journal, LossFound, Scenario, cut_everywhere, cuts
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import fingerprint

ROOT = Path("/data")
KEY = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=1100, index_interval_bytes=150)
LATER_MS = START_MS + 2 * DAY_MS


def written(files: FaultyFiles) -> DiskLog:
    """A log in several segments, all of it durable: replaced keys, tombstones, transactions that end in either way."""
    files.mkdir(ROOT)
    files.sync_directory(Path("/"), "test")
    log = DiskLog.open(ROOT / str(KEY), CONFIG, files=files)
    files.sync_directory(ROOT, "test")
    for turn in range(3):
        log.append([(b"a", b"%60d" % turn), (b"only%d" % turn, b"1")], START_MS + turn)
        log.append([(b"t", b"%20d" % turn)], START_MS + turn, 7, 0)
        log.append([(b"a", b"aborted"), (b"x%d" % turn, b"aborted")], START_MS + turn, 8, 0)
        log.append_marker(8, 0, START_MS + turn, commit=False)
        log.append_marker(7, 0, START_MS + turn, commit=True)
        log.append([(b"only%d" % turn, None), (b"b", b"%50d" % turn)], START_MS + turn)
        log.roll()
    log.append([(b"a", b"in the active segment")], START_MS + 9)
    checkpoint_log(log)
    return log


def reader_state(log: DiskLog) -> dict[bytes | None, bytes | None]:
    """The last committed value of each key, tombstones applied."""
    aborted = log.aborted_transactions(log.start_offset, log.end_offset)
    state = {record.key: record.value for record in committed(log, aborted)}
    return {key: value for key, value in state.items() if value is not None}


def committed(log: DiskLog, aborted: list[AbortedTransaction]) -> list[Record]:
    """What a consumer under read_committed sees."""
    found = []
    for batch in log.batches():
        header = batch.header
        assert batch.problem is None
        is_aborted = header.is_transactional and any(
            one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.last_offset
            for one in aborted
        )
        if not header.is_control and not is_aborted:
            found += batch.records
    return found


def rounds(count: int) -> Scenario:
    """So many rounds with time passing in between: in the third one tombstones and markers go as well.

    What is appended between the first two is not synced, and neither is the directory: a round relies on nobody else.
    """

    def run(files: FaultyFiles, journal: Journal) -> None:
        log = DiskLog.open(ROOT / str(KEY), CONFIG, files=files, clean=True)
        cleaner = LogCleaner(ROOT, {KEY: log}, lambda key: CompactionConfig(0.0), files=files)
        journal.note((reader_state(log), log.recovery_point))
        for number in range(count):
            assert cleaner.run_once(LATER_MS + number * 2 * DAY_MS) is not None, list(cleaner.notes)
            log.append([(b"again", b"%60d" % number)], LATER_MS)
            log.roll()
            if number > 0:
                checkpoint_log(log)
                journal.note((reader_state(log), log.recovery_point))

    return run


def opens_as_it_was(files: FaultyFiles, facts: list[object], goes_on: bool = True) -> None:
    """After a cut: no leftovers, the same values for every reader, indexes that fit, and a cleaner that goes on."""
    if not facts:
        return
    state, recovery_point = cast(tuple[dict[bytes, bytes], int], facts[-1])
    log = DiskLog.open(ROOT / str(KEY), CONFIG, files=files, recovery_point=recovery_point)
    names = [entry.name for entry in files.entries(ROOT / str(KEY))]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))], names
    assert log.end_offset >= recovery_point
    found = reader_state(log)
    assert {key: found.get(key) for key in state if key != b"again"} == {
        key: value for key, value in state.items() if key != b"again"
    }
    assert log.last_stable_offset == log.high_watermark  # no transaction has lost its marker
    assert_sealed(log)
    if not goes_on:
        return
    log.roll()
    cleaner = LogCleaner(ROOT, {KEY: log}, lambda key: CompactionConfig(0.0), files=files)
    cleaner.run_once(LATER_MS + 100 * DAY_MS)
    assert not cleaner.uncleanable
    assert reader_state(log) == found


def assert_sealed(log: DiskLog) -> None:
    """A closed segment is found and aged by its time index, and searched by its offset index."""
    bases: list[int] = []
    for segment in log.segments[:-1]:
        with segment.opened() as file:
            batches = list(segment._walk(file, 0))
        bases += [header.base_offset for _, header in batches]
        largest = max((header.max_timestamp_ms for _, header in batches), default=-1)
        assert segment.largest_timestamp.timestamp_ms == largest, (segment, "has lost its time index")
        for position, header in batches:
            assert segment.start_of(header.last_offset) <= position
        for kind in (INDEX, TIMEINDEX):
            with segment.opened(kind) as file:
                assert file.size() % (8 if kind == INDEX else 12) == 0
        segment.aborted_transactions()
    assert bases == sorted(set(bases)), "segments that overlap"


@cache
def written_disk() -> FaultyFiles:
    """The disk before the first round, closed in peace."""
    files = FaultyFiles()
    assert written(files).close()
    return files


def cut_rounds(count: int, chances: int, without: frozenset[str] = frozenset()) -> int:
    """Cut the power after every operation of some rounds; how many different disks that left."""
    seen: set[tuple[bytes, int]] = set()
    for cut in cuts(rounds(count), written_disk().killed(), without):
        for survivors, disk in cut.disks(chances):
            known = fingerprint(disk.root), len(cut.facts)
            if known in seen:
                continue
            seen.add(known)
            try:
                opens_as_it_was(disk, cut.facts, goes_on=not without)
            except Exception as error:
                raise LossFound(f"after {cut.number} ({cut.operation}), survivors {survivors!r}: {error!r}") from error
    return len(seen)


def test_a_power_cut_at_any_point_of_a_round_loses_nothing() -> None:
    assert cut_rounds(3, chances=1) > 300


@pytest.mark.long
def test_a_power_cut_at_any_point_loses_nothing_whatever_survives() -> None:
    assert cut_rounds(4, chances=30) > 3000


SYNC_POINTS = (
    "cleaned.settled",
    "cleaned.directory",
    "cleaned.log",
    "cleaned.index",
    "cleaned.timeindex",
    "cleaned.txnindex",
    "swap.prepared",
    "swap.removed",
)


@pytest.mark.parametrize("point", SYNC_POINTS)
def test_without_any_one_of_the_syncs_something_is_lost(point: str) -> None:
    with pytest.raises(LossFound):
        cut_rounds(2, chances=6, without=frozenset([point]))


def test_a_power_cut_at_any_point_of_retention_loses_nothing_that_should_stay() -> None:
    def work(files: FaultyFiles, journal: Journal) -> None:
        log = written(files)
        journal.note(None)
        keep = [record for record in committed(log, []) if record.offset >= log.segments[2].base_offset]
        journal.note(keep)
        apply_retention(log, RetentionConfig(retention_bytes=log.size_bytes - 1400, retention_ms=-1), LATER_MS)
        assert log.start_offset > 0
        log.flush()

    def check(files: FaultyFiles, facts: list[object]) -> None:
        if len(facts) < 2:
            return
        log = DiskLog.open(ROOT / str(KEY), CONFIG, files=files, recovery_point=1 << 40)
        found = [record for batch in log.batches() if not batch.header.is_control for record in batch.records]
        assert found[-len(facts[-1]) :] == facts[-1]  # type: ignore[arg-type]
        offsets = [record.offset for record in found]
        assert offsets == sorted(offsets)

    assert cut_everywhere(work, check) > 50
