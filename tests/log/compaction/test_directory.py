"""The cleaner beside a whole directory: topics that go and come back, logs that are cut, disks that fail."""

import errno
from pathlib import Path

import pytest

from muster.errors import LogDamaged
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.config import LogConfig
from muster.log.directory import LogDirectory
from muster.segments.checkpoints import CLEANER_OFFSETS, TopicPartition, read_offsets
from tests.log.compaction import START_MS
from tests.log.compaction.test_manager import fill
from tests.log.disk.changes import create_topic, delete_topic
from tests.log.disk.faults import FaultyFiles

ROOT = Path("/data")
KEY, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, compacted=True)


def opened(files: FaultyFiles) -> tuple[LogDirectory, LogCleaner]:
    directory = LogDirectory.open(ROOT, lambda topic: CONFIG, files=files)
    cleaner = LogCleaner(ROOT, directory.logs, lambda key: CompactionConfig(), files=files)
    directory.was_truncated = cleaner.truncated
    return directory, cleaner


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


def clean_up_to(files: FaultyFiles) -> dict[TopicPartition, int]:
    return read_offsets(files, ROOT / CLEANER_OFFSETS)


def filled_and_cleaned(directory: LogDirectory, cleaner: LogCleaner, *keys: TopicPartition) -> None:
    for key in keys:
        create_topic(directory, key.topic, 1)
        fill(directory.logs[key], 4)
        assert cleaner.run_once(START_MS) is not None


def test_a_deleted_topic_is_not_remembered_as_clean(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    filled_and_cleaned(directory, cleaner, KEY, OTHER)
    assert set(clean_up_to(files)) == {KEY, OTHER}
    cleaner.uncleanable[KEY] = "of the old one"
    delete_topic(directory, "t")
    cleaner.topic_deleted("t")
    assert set(clean_up_to(files)) == {OTHER}
    create_topic(directory, "t", 1)
    fill(directory.logs[KEY], 4)
    assert cleaner.cleanable(START_MS)[KEY][0].first_dirty_offset == 0


def test_a_deletion_that_a_crash_broke_off_forgets_it_too(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    filled_and_cleaned(directory, cleaner, KEY, OTHER)

    def fail(operation: str, path: Path) -> int | None:
        return errno.EIO if operation == "rename" and path.name.startswith("t-0") else None

    files.fail = fail
    delete_topic(directory, "t")
    assert "not all files could be removed" in directory.notes[-1]
    assert set(clean_up_to(files)) == {KEY, OTHER}
    opened(files.killed())
    again = files.killed()
    opened(again)
    assert set(clean_up_to(again)) == {OTHER}


def test_a_damaged_checkpoint_does_not_keep_a_topic_from_being_deleted(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    filled_and_cleaned(directory, cleaner, KEY)
    files.open(ROOT / CLEANER_OFFSETS, write=True).pwrite(b"nonsense", 0)
    delete_topic(directory, "t")
    assert KEY not in directory.logs


def test_a_round_over_a_topic_that_was_made_anew_meanwhile_says_nothing_of_the_new_one(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    create_topic(directory, "t", 1)
    fill(directory.logs[KEY], 4)
    job = cleaner.next_job(START_MS)
    assert job is not None
    from muster.log.compaction.cleaner import clean

    report = clean(job, cleaner.swap)
    delete_topic(directory, "t")
    cleaner.topic_deleted("t")
    create_topic(directory, "t", 1)
    fill(directory.logs[KEY], 8)
    cleaner.finished(report)
    assert cleaner.cleanable(START_MS)[KEY][0].first_dirty_offset == 0


def test_a_log_that_is_cut_is_dirty_from_there(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    filled_and_cleaned(directory, cleaner, KEY)
    clean = clean_up_to(files)[KEY]
    directory.truncate(KEY, clean - 7)
    cut = directory.logs[KEY].end_offset
    assert cut <= clean - 7, "the batch that holds it goes too"
    fill(directory.logs[KEY], 4)
    assert directory.logs[KEY].end_offset > clean
    assert cleaner.cleanable(START_MS)[KEY][0].first_dirty_offset == cut
    assert clean_up_to(files) == {KEY: cut}


def test_a_log_that_lost_its_end_is_all_dirty_even_when_it_has_grown_again(files: FaultyFiles) -> None:
    """What is appended before the first round must not hide that the checkpoint was of other records."""
    directory, cleaner = opened(files)
    filled_and_cleaned(directory, cleaner, KEY)
    clean = clean_up_to(files)[KEY]
    directory.was_truncated = lambda key, offset: None  # the power went in between
    directory.truncate(KEY, clean - 7)
    directory, cleaner = opened(files.killed())
    assert f"was clean up to {clean}, which it does not reach" in cleaner.notes[0]
    fill(directory.logs[KEY], 4)
    assert cleaner.cleanable(START_MS)[KEY][0].first_dirty_offset == 0


def test_a_log_that_is_opened_again_takes_the_place_of_the_failed_one(files: FaultyFiles) -> None:
    directory, cleaner = opened(files)
    create_topic(directory, "t", 1)
    log = directory.logs[KEY]
    log.append([(b"k", b"v")], START_MS)
    log.flush()
    files.fail = lambda operation, path: errno.EIO if operation == "pwrite" else None
    log.append([(b"k", b"lost")], START_MS)
    with pytest.raises(LogDamaged):
        log.flush()
    cleaner.uncleanable[KEY] = "its disk failed"
    files.fail = lambda operation, path: None
    again = directory.open_again(KEY)
    directory.replace_log(KEY, again).abandon()
    cleaner.reopened(KEY)
    assert directory.logs[KEY] is again
    assert again.failure is None
    again.append([(b"k", b"w")], START_MS)
    assert KEY in cleaner.cleanable(START_MS)
    assert directory.close(), "the log that failed is nobody's any more"
    directory, _ = opened(files)
    assert directory.was_clean
    assert [record.value for batch in directory.logs[KEY].batches() for record in batch.records] == [b"v", b"w"]
