"""A disk that is full, fails, or is read-only: the log stops instead of lying, and what was acknowledged stays.

The full disk is that of the fault layer, not a real file system.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.codec.error_codes import ErrorCode
from muster.errors import ConfigError, LogDamaged
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.log.segment import WritableSegment
from muster.log.validation import AppendRefused
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import File, RealFiles
from tests.log.disk.changes import create_topic, delete_topic
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import ALL, NOTHING, Survivors

DIRECTORY = Path("/t-0")
START_MS = 1_800_000_000_000
ROOM_FOR_ONE_MORE = 110
"""Bytes of a batch with one of the records that fill a disk here."""
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, flush=Flush.ALWAYS)


def opened(files: FaultyFiles, **how: object) -> DiskLog:
    files.mkdir(DIRECTORY)
    files.root.sync()
    return DiskLog.open(DIRECTORY, CONFIG, files=files, **how)  # type: ignore[arg-type]


def fail_once(kind: str, ending: str, number: int = errno.EIO) -> Callable[[str, Path], int | None]:
    left = [1]

    def fail(operation: str, path: Path) -> int | None:
        if operation == kind and path.name.endswith(ending) and left:
            left.pop()
            return number
        return None

    return fail


def values(log: DiskLog) -> list[bytes | None]:
    return [record.value for batch in log.batches() for record in batch.records]


def refused(log: DiskLog) -> str:
    """Why the log takes nothing; everything that adds to it says the same."""
    with pytest.raises(AppendRefused) as refusal:
        log.append([(b"k", b"v")], START_MS)
    with pytest.raises(AppendRefused) as of_marker:
        log.append_marker(7, 0, START_MS, commit=True)
    with pytest.raises(AppendRefused) as of_batch:
        log.append_batch(b"", START_MS)
    with pytest.raises(LogDamaged):
        log.flush()
    assert refusal.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert str(refusal.value) == str(of_marker.value) == str(of_batch.value)
    return str(refusal.value)


class TestAFullDisk:
    @pytest.mark.parametrize("room", range(0, 700, 23))
    def test_the_log_stops_and_keeps_what_it_has(self, room: int) -> None:
        files = FaultyFiles()
        log = opened(files)
        log.append([(b"k", b"first")], START_MS)
        log.flush()
        files.room_bytes = files.used_bytes() + room
        kept: list[bytes | None] = [b"first"]
        number = 0
        while log.failure is None:
            number += 1
            log.append([(b"k", b"%d" % number * 30)], START_MS)
            try:
                log.flush()
            except LogDamaged:
                assert log.failure is not None
            else:
                kept.append(b"%d" % number * 30)
        assert (len(kept) > 1) == (room >= ROOM_FOR_ONE_MORE), "some disks have room for another record, some have not"
        assert "No space left on device" in refused(log)
        assert values(log) == kept
        assert log.end_offset == log.flushed_offset == len(kept)
        assert log.close() is False

        files.room_bytes = None
        again = opened(files.killed())
        assert values(again) == kept
        assert again.append([(b"k", b"more")], START_MS) == len(kept)
        again.flush()
        assert again.close()

    def test_topics_on_a_full_disk(self) -> None:
        files = FaultyFiles()
        directory = LogDirectory.open(Path("/data"), lambda topic: CONFIG, files=files)
        create_topic(directory, "a", 1)
        ended = Counter[str]()
        for room in range(0, 1_200, 37):
            files.room_bytes = files.used_bytes() + room
            what = "making"
            try:
                create_topic(directory, "b", 2)
                what = "deleting"
                delete_topic(directory, "b")
                what = "well"
            except LogDamaged as error:
                ended["for want of room"] += "No space left on device" in str(error)
            ended[what] += 1
            files.room_bytes = None
            directory.close()
            directory = LogDirectory.open(Path("/data"), lambda topic: CONFIG, files=files)
            assert TopicPartition("a", 0) in directory.logs
            made = directory.registry.get("b")
            assert made is None or what != "well"
            if made is not None:
                assert made.partitions == 2
                delete_topic(directory, "b")
        assert min(ended["making"], ended["deleting"], ended["well"]) > 0, ended
        assert ended["for want of room"] == ended["making"] + ended["deleting"]


class TestErrors:
    @pytest.mark.parametrize("ending", [".log", ".index", ".timeindex"])
    def test_a_write_that_fails(self, ending: str) -> None:
        files = FaultyFiles()
        log = opened(files)
        for number in range(4):
            log.append([(b"k", b"%d" % number * 20)], START_MS + number)
            log.flush()
        before = values(log)
        files.fail = fail_once("pwrite", ending)
        log.append([(b"k", b"lost" * 20)], START_MS + 9)
        with pytest.raises(LogDamaged, match=r"t-0: a write failed: Input/output error\. Whole up to offset 3"):
            log.write()
        assert "Input/output error" in refused(log)
        assert values(log) == before
        assert len(log.read(0, 1 << 20)) > 0
        assert values(opened(files.killed())) in (before, [*before, b"lost" * 20])
        assert values(opened(files.cut(NOTHING))) == before

    @pytest.mark.parametrize("survivors", [ALL, NOTHING], ids=repr)
    def test_a_sync_that_fails_is_never_tried_again(self, survivors: Survivors) -> None:
        """The operating system drops what it could not save. Nobody was told that it is safe, and nobody will be."""
        files = FaultyFiles()
        log = opened(files)
        log.append([(b"k", b"safe")], START_MS)
        log.flush()
        files.fail = fail_once("sync", ".log")
        log.append([(b"k", b"doubtful")], START_MS)
        with pytest.raises(LogDamaged, match=r"durable up to offset 0\."):
            log.flush()
        assert log.flushed_offset == log.high_watermark == 1
        assert "a sync failed" in refused(log)
        assert values(opened(files.cut(survivors))) == [b"safe"]

    def test_after_a_failed_sync_what_is_shown_again_is_safe(self) -> None:
        """Opened again, the log finds the record in the page cache. It must reach the disk before others follow it."""
        files = FaultyFiles()
        log = opened(files)
        log.append([(b"k", b"safe")], START_MS)
        log.flush()
        files.fail = fail_once("sync", ".log")
        log.append([(b"k", b"doubtful")], START_MS)
        with pytest.raises(LogDamaged):
            log.flush()
        log.close()
        again = opened(files.killed())
        assert values(again) == [b"safe", b"doubtful"]
        again.append([(b"k", b"new")], START_MS)
        again.flush()
        assert isinstance(again.files, FaultyFiles)
        assert values(opened(again.files.cut(NOTHING))) == [b"safe", b"doubtful", b"new"]

    @pytest.mark.parametrize("kind", ["create", "sync", "pwrite", "sync_directory", "rename"])
    @pytest.mark.parametrize("skip", range(8))
    def test_any_operation_that_fails_during_work(self, kind: str, skip: int) -> None:
        """Appends and rolls, one operation of which fails: whatever was acknowledged is there."""
        files = FaultyFiles()
        log = opened(files)
        left = [skip]

        def fail(operation: str, path: Path) -> int | None:
            if operation != kind:
                return None
            left[0] -= 1
            return errno.EIO if left[0] == -1 else None

        files.fail = fail
        acknowledged: list[bytes | None] = []
        failed = False
        try:
            for number in range(12):
                log.append([(b"k", b"%d" % number * 40)], START_MS, *((7, 0) if number % 3 == 0 else (-1, -1)))
                log.flush()
                acknowledged.append(b"%d" % number * 40)
        except LogDamaged:
            failed = True
            assert refused(log)
        assert failed == (left[0] < 0)
        files.fail = lambda operation, path: None
        for disk in (files.killed(), files.cut(ALL), files.cut(NOTHING)):
            if disk.exists(DIRECTORY):
                assert values(opened(disk))[: len(acknowledged)] == acknowledged
            else:
                assert acknowledged == []

    def test_reading_that_fails(self) -> None:
        files = FaultyFiles()
        log = opened(files)
        log.append([(b"k", b"v")], START_MS)
        log.flush()
        files.fail = lambda operation, path: errno.EIO if operation == "pread" else None
        with pytest.raises(LogDamaged, match="cannot be read at offset 0"):
            log.read(0, 100)
        with pytest.raises(LogDamaged):
            list(log.batches())
        with pytest.raises(LogDamaged):
            log.offset_for_timestamp(START_MS)
        files.fail = lambda operation, path: None
        assert len(log.read(0, 100)) > 0

    def test_closing_that_fails_leaves_no_mark(self) -> None:
        files = FaultyFiles()
        directory = LogDirectory.open(Path("/data"), lambda topic: CONFIG, files=files)
        create_topic(directory, "t", 1)
        log = directory.logs[TopicPartition("t", 0)]
        log.append([(b"k", b"v")], START_MS)
        files.fail = fail_once("sync", ".timeindex")
        assert directory.close() is False
        again = LogDirectory.open(Path("/data"), lambda topic: CONFIG, files=files)
        assert not again.was_clean
        assert values(again.logs[TopicPartition("t", 0)]) == [b"v"]


class TestAReadOnlyDisk:
    def test_a_directory(self) -> None:
        files = FaultyFiles()
        LogDirectory.open(Path("/data"), files=files).close()
        files.read_only = True
        with pytest.raises(ConfigError, match=r"/data cannot be used .*: Read-only file system.* may write to"):
            LogDirectory.open(Path("/data"), files=files)

    def test_a_disk_that_turns_read_only(self) -> None:
        files = FaultyFiles()
        log = opened(files)
        log.append([(b"k", b"v")], START_MS)
        log.flush()
        files.read_only = True
        log.append([(b"k", b"w")], START_MS)
        with pytest.raises(LogDamaged, match="Read-only file system"):
            log.flush()
        assert "Read-only file system" in refused(log)
        assert values(log) == [b"v"]

    def test_a_real_one(self, tmp_path: Path) -> None:
        """Root may write anywhere, so a path through a file stands in for a directory that may not be used."""
        (tmp_path / "file").write_text("")
        with pytest.raises(ConfigError, match="cannot be used as a data directory"):
            LogDirectory.open(tmp_path / "file")
        with pytest.raises(ConfigError, match="cannot be used as a data directory"):
            LogDirectory.open(tmp_path / "no" / "such" / "parent")


class NoRoomForTimes(RealFiles):
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if path.name.endswith(".timeindex"):
            raise OSError(errno.EMFILE, "no more files", str(path))
        return super().open(path, write=write, create=create)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks /proc what is open")
def test_of_a_segment_that_cannot_be_opened_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="no more files"):
            WritableSegment(NoRoomForTimes(), tmp_path, 0)
    assert len(os.listdir("/proc/self/fd")) == before
