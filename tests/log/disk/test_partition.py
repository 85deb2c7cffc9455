"""A partition on disk: what is staged, written, durable and readable, and how batches and segments come about."""

import os
from pathlib import Path

import pytest

from muster.codec.batches import decode_records, encode_batch, iter_batches, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import Record
from muster.errors import LogDamaged
from muster.log.config import OFFSETS_TOPIC_CONFIG, Flush, LogConfig
from muster.log.partition import DiskLog
from muster.log.producers import ProducerStates
from muster.log.reads import ReadRefused
from muster.log.validation import AppendRefused
from muster.segments.files import read_file
from muster.segments.indexes import TimeIndex
from tests.kit.memory_log import MemoryLog, PartitionLog
from tests.log.disk.faults import FaultyFiles

DIRECTORY = Path("/t-0")
START_MS = 1_800_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100, flush=Flush.OS)


def opened(config: LogConfig | None = None, files: FaultyFiles | None = None, **how: object) -> DiskLog:
    return DiskLog.open(DIRECTORY, config, files=files or FaultyFiles(), **how)  # type: ignore[arg-type]


def offsets(log: DiskLog) -> list[list[int]]:
    return [[record.offset for record in batch.records] for batch in log.batches()]


def test_both_logs_are_what_a_server_knows() -> None:
    logs: list[PartitionLog] = [opened(), MemoryLog()]
    for log in logs:
        assert log.append([(b"k", b"v")], START_MS) == 0
        log.flush()
        assert (log.start_offset, log.end_offset, log.flushed_offset) == (0, 1, 1)
        assert (log.high_watermark, log.last_stable_offset) == (1, 1)
        assert [record.value for batch in iter_batches(log.read(0, 1000)) for record in batch.records] == [b"v"]
        assert log.offset_for_timestamp(START_MS) == (0, START_MS, 0)
        assert log.aborted_transactions(0, 9) == []
        log.truncate_to(0)
        assert log.end_offset == 0
        assert log.close()


class TestStages:
    def test_what_is_staged_has_offsets_and_is_nowhere(self) -> None:
        log = opened()
        assert [log.append([(b"k", b"v")] * count, START_MS) for count in (2, 1, 3)] == [0, 2, 3]
        assert (log.end_offset, log.written_offset, log.flushed_offset) == (6, 0, 0)
        assert len(log.read(0, 1000)) == 0
        assert list(log.batches()) == []
        assert log.size_bytes == 0

    def test_what_is_written_can_be_read(self) -> None:
        log = opened()
        log.append([(b"k", b"v")], START_MS)
        log.write()
        assert (log.written_offset, log.flushed_offset, log.high_watermark) == (1, 0, 1)
        assert len(log.read(0, 1000)) == log.size_bytes

    def test_under_always_only_what_is_durable_is_shown(self) -> None:
        log = opened(OFFSETS_TOPIC_CONFIG)
        log.append([(b"k", b"v")], START_MS)
        log.write()
        assert log.high_watermark == 0
        assert len(log.read(0, 1000)) == 0
        assert len(log.read(0, 1000, up_to=log.end_offset)) > 0  # a coordinator that loads reads to the end
        log.flush()
        assert log.high_watermark == 1
        assert len(log.read(0, 1000)) > 0

    def test_one_write_for_all_of_a_turn(self) -> None:
        files = FaultyFiles()
        log = opened(files=files)
        for number in range(50):
            log.append([(b"k%d" % number, b"v")], START_MS)
        log.append([(b"t", b"v")], START_MS, producer_id=7, producer_epoch=0)
        log.append_marker(7, 0, START_MS, commit=True)
        files.operations.clear()
        log.write()
        assert [one for one in files.operations if one.endswith(".log")] == ["pwrite 00000000000000000000.log"]

    def test_nothing_appended_is_nothing_written(self) -> None:
        files = FaultyFiles()
        log = opened(files=files)
        files.operations.clear()
        assert log.append([], START_MS) == 0
        log.write()
        log.flush()
        log.flush()
        assert [one for one in files.operations if "pwrite" in one] == []


class TestBatches:
    def test_plain_records_of_a_turn_share_a_batch(self) -> None:
        log = opened()
        log.append([(b"a", b"1"), (b"b", None)], START_MS)
        log.append([(b"c", b"")], START_MS + 5)
        log.append([(b"d", b"4")], START_MS - 2)
        log.write()
        log.append([(b"e", b"5")], START_MS)
        log.write()
        first, second = log.batches()
        assert first.records == [
            Record(0, START_MS, b"a", b"1"),
            Record(1, START_MS, b"b", None),
            Record(2, START_MS + 5, b"c", b""),
            Record(3, START_MS - 2, b"d", b"4"),
        ]
        header = first.header
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (START_MS, START_MS + 5)
        assert (header.producer_id, header.producer_epoch, header.base_sequence, header.attributes) == (-1, -1, 0, 0)
        assert second.records == [Record(4, START_MS, b"e", b"5")]

    def test_the_bytes_are_those_of_the_readable_codec(self) -> None:
        log = opened(leader_epoch=3)
        records = [
            (b"k" * size, None if size % 3 == 0 else b"v" * (size * 100))
            for size in (1, 63, 64, 65, 128, 8191, 8192, 9000)
        ]
        for number, record in enumerate(records):
            log.append([record], START_MS + number * 700)
            log.write()
            expected = encode_batch([Record(number, START_MS + number * 700, *record)], leader_epoch=3, base_sequence=0)
            assert bytes(log.read(number, 1)) == expected

    def test_transactions_have_batches_of_their_own(self) -> None:
        log = opened()
        log.append([(b"a", b"1")], START_MS)
        log.append([(b"b", b"2"), (b"c", b"3")], START_MS, producer_id=7, producer_epoch=2)
        log.append([(b"d", b"4")], START_MS)
        log.append_marker(7, 2, START_MS, commit=True, coordinator_epoch=5)
        log.append([(b"e", b"5")], START_MS)
        log.write()
        assert offsets(log) == [[0], [1, 2], [3], [4], [5]]
        headers = [batch.header for batch in log.batches()]
        assert [header.is_transactional for header in headers] == [False, True, False, True, False]
        assert [header.is_control for header in headers] == [False, False, False, True, False]
        assert [header.base_sequence for header in headers] == [0, 0, 0, -1, 0]
        assert [header.producer_epoch for header in headers] == [-1, 2, -1, 2, -1]

    def test_a_batch_that_would_be_too_large_is_two(self) -> None:
        log = opened(LogConfig(max_message_bytes=300))
        for _ in range(6):
            log.append([(b"k", b"v" * 80)], START_MS)
        log.write()
        assert offsets(log) == [[0, 1], [2, 3], [4, 5]]
        assert all(batch.header.size_bytes <= 300 for batch in log.batches())

    def test_compressed(self) -> None:
        log = opened(LogConfig(codec=4))
        log.append([(b"k", b"v" * 5000)], START_MS)
        log.append([(b"k", b"w" * 5000)], START_MS)
        log.write()
        [batch] = log.batches()
        assert batch.header.codec == 4
        assert batch.header.size_bytes < 500
        assert [record.value for record in batch.records] == [b"v" * 5000, b"w" * 5000]

    def test_a_record_without_a_key(self) -> None:
        log = opened()
        log.append([(None, b"v")], START_MS)  # type: ignore[list-item]
        log.write()
        [batch] = log.batches()
        assert batch.records == [Record(0, START_MS, None, b"v")]

    def test_something_that_is_no_record_leaves_nothing_behind(self) -> None:
        log = opened()
        with pytest.raises(TypeError):
            log.append([(b"k", b"v"), ("text", "text")], START_MS)  # type: ignore[list-item]
        log.append_marker(7, 0, START_MS, commit=True)
        log.append([(b"k", b"v")], START_MS)
        with pytest.raises(TypeError):
            log.append([("text", "text")], START_MS)  # type: ignore[list-item]
        log.write()
        assert offsets(log) == [[0], [1]]

    def test_a_write_that_fails_in_a_way_nobody_thought_of(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody knows what is on the disk then: the log is done for, as if the disk had failed."""
        log = opened()
        log.append([(b"k", b"v")], START_MS)

        def mistaken(*_: object) -> None:
            raise ZeroDivisionError("a mistake")

        monkeypatch.setattr(DiskLog, "_write", mistaken)
        with pytest.raises(LogDamaged, match=r"a write failed: ZeroDivisionError: a mistake"):
            log.write()
        monkeypatch.undo()
        assert log.failure is not None
        assert log.end_offset == log.written_offset == 0
        with pytest.raises(LogDamaged):
            log.write()

    def test_a_batch_that_cannot_be_compressed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log = opened(LogConfig(codec=4))
        log.append([(b"k", b"v")], START_MS)

        def mistaken(*_: object) -> bytes:
            raise MemoryError

        monkeypatch.setattr("muster.codec.compression.compress", mistaken)
        with pytest.raises(MemoryError):
            log.append([(b"k", b"v")], START_MS, producer_id=7, producer_epoch=0)
        monkeypatch.undo()
        log.write()
        assert offsets(log) == [[0]]


class TestRefusals:
    def test_too_large_for_a_batch(self) -> None:
        log = opened(LogConfig(max_message_bytes=300))
        log.append([(b"k", b"v")], START_MS)
        with pytest.raises(AppendRefused) as refused:
            log.append([(b"k", b"v" * 300)], START_MS)
        assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(AppendRefused) as refused:
            log.append([(b"k", b"v" * 300)], START_MS, producer_id=7, producer_epoch=0)
        assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE
        assert log.append([(b"k", b"w")], START_MS) == 1
        log.write()
        assert offsets(log) == [[0], [1]]
        assert len(log.producers) == 0

    def test_too_large_for_a_segment(self) -> None:
        log = opened(LogConfig(segment_bytes=300))
        with pytest.raises(AppendRefused) as refused:
            log.append([(b"k", b"v" * 300)], START_MS)
        assert refused.value.error is ErrorCode.RECORD_LIST_TOO_LARGE
        assert "segment.bytes is 300" in str(refused.value)

    def test_an_old_epoch(self) -> None:
        log = opened()
        log.append([(b"k", b"v")], START_MS, producer_id=7, producer_epoch=3)
        with pytest.raises(AppendRefused) as refused:
            log.append([(b"k", b"v")], START_MS, producer_id=7, producer_epoch=2)
        assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(AppendRefused) as refused:
            log.append_marker(7, 2, START_MS, commit=True)
        assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.end_offset == 1

    def test_a_marker_of_an_old_coordinator(self) -> None:
        log = opened()
        log.append_marker(7, 0, START_MS, commit=True, coordinator_epoch=5)
        with pytest.raises(AppendRefused) as refused:
            log.append_marker(7, 0, START_MS, commit=True, coordinator_epoch=4)
        assert refused.value.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    @pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
    def test_reading_outside_the_log(self, offset: int) -> None:
        log = opened()
        log.append([(b"k", b"v")] * 3, START_MS)
        log.flush()
        with pytest.raises(ReadRefused) as refused:
            log.read(offset, 100)
        assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


class TestSegments:
    def test_rolled_by_size(self) -> None:
        log = opened(SMALL)
        for _ in range(10):
            log.append([(b"k", b"v" * 100)], START_MS)
            log.write()
        sizes = [segment.size_bytes for segment in log.segments]
        assert all(size <= 500 for size in sizes)
        assert len(sizes) == 5
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
        assert offsets(log) == [[number] for number in range(10)]

    def test_rolled_by_size_within_one_write(self) -> None:
        files = FaultyFiles()
        log = opened(SMALL, files)
        for number in range(6):
            log.append([(b"k", b"v" * 150)], START_MS, producer_id=number, producer_epoch=0)
        files.operations.clear()
        log.write()
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
        written = [one for one in files.operations if one.startswith("pwrite") and one.endswith(".log")]
        assert len(written) == 3

    def test_rolled_by_time(self) -> None:
        log = opened(LogConfig(segment_ms=1000))
        for step in (0, 1000, 1001, 1500, 2002):
            log.append([(b"k", b"v")], START_MS + step)
            log.write()
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4]

    def test_files_of_rolled_segments_do_not_stay_open(self, tmp_path: Path) -> None:
        """A client chooses its timestamps, and can have every batch begin a segment, many of them in one write."""
        log = DiskLog.open(tmp_path / "t-0", LogConfig(segment_ms=1000, flush=Flush.ALWAYS))
        before = len(os.listdir("/proc/self/fd"))
        for number in range(100):
            batch = encode_batch([Record(0, START_MS - 5_000_000 + 2_000 * number, b"k", b"v")])
            log.append_batch(batch, START_MS)
        log.write()
        assert len(log.segments) == 100
        assert len(os.listdir("/proc/self/fd")) - before <= 30
        log.flush()
        assert offsets(log) == [[number] for number in range(100)]
        assert log.close()

    def test_rolled_when_an_index_is_full(self) -> None:
        log = opened(LogConfig(index_interval_bytes=1, segment_index_bytes=48))
        for number in range(12):
            log.append([(b"k", b"v")], START_MS + number)
            log.write()
        assert len(log.segments) == 3
        assert all(segment.files.open(segment.path(".timeindex")).size() <= 48 for segment in log.segments)

    def test_rolled_when_offsets_do_not_fit_an_int32(self) -> None:
        log = opened(start_offset=5)
        log.append([(b"k", b"v")], START_MS)
        log.write()
        log._appends.end_offset = 5 + (1 << 31)  # as compaction can leave it
        log.append([(b"k", b"v")], START_MS)
        log.write()
        assert [segment.base_offset for segment in log.segments] == [5, 5 + (1 << 31)]

    def test_a_snapshot_is_exactly_as_of_its_segment(self) -> None:
        """Of what is staged behind the roll it must know nothing, else an abort behind it is not found again."""
        files = FaultyFiles()
        log = opened(SMALL, files)
        log.append([(b"k", b"v" * 350)], START_MS, producer_id=7, producer_epoch=0)
        log.append([(b"k", b"v" * 400)], START_MS, producer_id=8, producer_epoch=0)
        log.append_marker(7, 0, START_MS, commit=False)
        log.write()
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
        log.flush()
        for segment in log.segments[1:]:
            snapshot = read_file(files, DIRECTORY / f"{segment.base_offset:020}.snapshot")
            producers = ProducerStates.from_snapshot(snapshot, segment.base_offset).producers.values()
            assert [one.batches[-1].last_offset for one in producers] == list(range(segment.base_offset))
        files.unlink(log.segments[2].path(".txnindex"))
        again = opened(SMALL, files.killed(), recovery_point=2)
        assert [one[:3] for one in again.aborted_transactions(0, 9)] == [(7, 0, 2)]

    def test_roll_on_request(self) -> None:
        log = opened()
        log.roll()
        assert len(log.segments) == 1  # nothing in it yet
        log.append([(b"k", b"v")], START_MS)
        log.roll()
        log.roll()
        assert [segment.base_offset for segment in log.segments] == [0, 1]

    def test_the_front_is_deleted(self) -> None:
        log = opened(SMALL)
        for _ in range(10):
            log.append([(b"k", b"v" * 100)], START_MS)
            log.write()
        log.delete_segments(2)
        assert log.start_offset == 4
        assert [record.offset for batch in log.batches() for record in batch.records] == list(range(4, 10))
        with pytest.raises(ReadRefused):
            log.read(3, 100)
        log.delete_segments(99)
        assert len(log.segments) == 1
        log.flush()
        assert log.close()


class TestTransactions:
    def test_the_last_stable_offset(self) -> None:
        log = opened(OFFSETS_TOPIC_CONFIG)
        log.append([(b"k", b"v")], START_MS)
        log.append([(b"k", b"v")], START_MS, producer_id=7, producer_epoch=0)
        log.append([(b"k", b"v")], START_MS, producer_id=8, producer_epoch=0)
        log.flush()
        assert (log.high_watermark, log.last_stable_offset) == (3, 1)
        log.append_marker(7, 0, START_MS, commit=True)
        log.write()
        assert log.last_stable_offset == 1  # decided, and not yet durable
        log.flush()
        assert log.last_stable_offset == 2
        log.append_marker(8, 0, START_MS, commit=False)
        log.flush()
        assert log.last_stable_offset == 5
        assert [one[:3] for one in log.aborted_transactions(0, 5)] == [(8, 2, 4)]
        assert log.aborted_transactions(0, 2) == []

    def test_an_abort_knows_what_was_stable_then(self) -> None:
        """A reader of the transaction index stops looking where it says that everything is decided."""
        log = opened()
        for producer_id in (7, 8, 9):
            log.append([(b"k", b"v")], START_MS, producer_id, 0)
        for producer_id in (7, 9, 8):
            log.append_marker(producer_id, 0, START_MS, commit=False)
        log.write()
        assert log.aborted_transactions(0, 9) == [(7, 0, 3, 1), (9, 2, 4, 1), (8, 1, 5, 6)]

    def test_a_marker_without_a_transaction_is_no_abort(self) -> None:
        log = opened()
        log.append_marker(7, 0, START_MS, commit=False)
        log.flush()
        assert log.aborted_transactions(0, 9) == []
        assert not log.files.exists(log.segments[0].path(".txnindex"))

    def test_an_abort_is_found_from_every_segment_it_spans(self) -> None:
        log = opened(SMALL)
        log.append([(b"k", b"v")], START_MS, producer_id=7, producer_epoch=0)
        for _ in range(6):
            log.append([(b"k", b"v" * 200)], START_MS)
            log.write()
        log.append_marker(7, 0, START_MS, commit=False)
        log.write()
        assert len(log.segments) > 2
        for offset in range(8):
            assert [one[:3] for one in log.aborted_transactions(offset, 8)] == [(7, 0, 7)]


class TestReads:
    def test_whole_batches_within_a_size(self) -> None:
        log = opened(LogConfig(index_interval_bytes=150))
        for number in range(40):
            log.append([(b"k", b"v" * (number % 7 * 10))], START_MS + number)
            log.write()
        batches = list(log.batches())
        for number, batch in enumerate(batches):
            for max_bytes in (0, 1, batch.header.size_bytes, 500, 1 << 20):
                got = log.read(number, max_bytes)
                found = list(iter_batches(got))
                assert found[0].header == batch.header
                assert len(got) <= max_bytes or len(found) == 1
                following = batches[number + len(found)].header.size_bytes if number + len(found) < 40 else 0
                assert len(got) + following > max_bytes or not following

    def test_up_to_an_offset(self) -> None:
        log = opened(LogConfig(index_interval_bytes=150))
        for number in range(20):
            log.append([(b"k", b"v" * 10)] * 3, START_MS + number)
            log.write()
        for up_to in range(61):
            got = log.read(6, 1 << 20, up_to=up_to)
            last = [batch.header.last_offset for batch in iter_batches(got)]
            assert last == [offset for offset in range(8, 60, 3) if offset < up_to]

    def test_the_batch_that_holds_an_offset(self) -> None:
        log = opened()
        log.append([(b"k", b"v")] * 5, START_MS)
        log.write()
        assert read_header(log.read(3, 1)).base_offset == 0

    def test_it_is_a_view_of_what_was_read(self) -> None:
        log = opened()
        log.append([(b"k", b"v")], START_MS)
        log.write()
        got = log.read(0, 1 << 20)
        assert isinstance(got, memoryview)
        assert got.readonly
        assert decode_records(got, 0, read_header(got)) == [Record(0, START_MS, b"k", b"v")]

    def test_by_time(self) -> None:
        log = opened(LogConfig(segment_bytes=400, index_interval_bytes=100))
        times = [0, 50, 20, 90, 70, 90, 130, 10, 200, 150, 199, 300]
        for time in times:
            log.append([(b"k", b"v" * 30)], START_MS + time)
            log.write()
        assert len(log.segments) > 2
        for wanted in range(-1, 310):
            first = next((offset for offset, time in enumerate(times) if time >= wanted), None)
            found = log.offset_for_timestamp(START_MS + wanted)
            assert (None if found is None else found.offset) == first
        largest = log.offset_of_largest_timestamp()
        assert largest is not None
        assert largest[:2] == (11, START_MS + 300)

    def test_by_time_no_further_than_readers_may_see(self) -> None:
        log = opened(OFFSETS_TOPIC_CONFIG)
        log.append([(b"k", b"v")], START_MS)
        log.write()
        assert log.offset_for_timestamp(START_MS) is None
        log.flush()
        assert log.offset_for_timestamp(START_MS) is not None

    def test_by_time_after_a_cut(self) -> None:
        log = opened()
        for number in range(5):
            log.append([(b"k", b"v")], START_MS + number)
            log.write()
        log.truncate_to(3)
        found = log.offset_for_timestamp(START_MS + 2)
        assert found is not None
        assert found.offset == 2
        assert log.offset_for_timestamp(START_MS + 3) is None

    def test_the_time_index_rises(self) -> None:
        log = opened(LogConfig(index_interval_bytes=1))
        for time in (0, 5, 5, 5, 2, 9, 9):
            log.append([(b"k", b"v")], START_MS + time)
            log.write()
        log.roll()
        with log.segments[0].opened(".timeindex") as file:
            index = TimeIndex(file, 0)
            entries = [index.entry(number) for number in range(index.count)]
        assert entries == [(START_MS + 5, 1), (START_MS + 9, 5)]

    def test_progress_and_small_buffers(self) -> None:
        log = opened(SMALL)
        for number in range(20):
            log.append([(b"k", b"v" * number * 10)], START_MS)
            log.write()
        steps: list[int] = []
        found = [batch.header.base_offset for batch in log.batches(buffer_bytes=1, progress=steps.append)]
        assert found == list(range(20))
        assert sum(steps) == log.size_bytes
        assert [batch.header.base_offset for batch in log.batches(from_offset=13)] == list(range(13, 20))

    def test_reading_while_the_log_goes_on(self) -> None:
        """Rolled, synced, closed under the reader: it reads on, to the new end."""
        log = opened(SMALL)
        for _ in range(4):
            log.append([(b"k", b"v" * 100)], START_MS)
            log.write()
        reading = log.batches()
        found = [next(reading).header.base_offset]
        for _ in range(6):
            log.append([(b"k", b"v" * 100)], START_MS)
            log.flush()
        found += [batch.header.base_offset for batch in reading]
        assert found == list(range(10))

    def test_a_damaged_batch_is_told(self) -> None:
        files = FaultyFiles()
        log = opened(files=files)
        for _ in range(3):
            log.append([(b"k", b"v")], START_MS)
            log.write()
        size = log.size_bytes // 3
        files.open(log.segments[0].path(".log"), write=True).pwrite(b"X", size + 65)
        problems = [batch.problem is not None for batch in log.batches()]
        assert problems == [False, True, False]
        files.open(log.segments[0].path(".log"), write=True).pwrite(b"\0\0\0\0", size + 8)
        with pytest.raises(LogDamaged, match=r"t-0/00000000000000000000\.log"):
            list(log.batches())


def test_leader_epochs() -> None:
    files = FaultyFiles()
    log = opened(files=files)
    for epoch in (0, 0, 3, 3, 7):
        log.leader_epoch = epoch
        log.append([(b"k", b"v")], START_MS)
        log.write()
    assert log.epochs.entries == [(0, 0), (3, 2), (7, 4)]
    assert [batch.header.leader_epoch for batch in log.batches()] == [0, 0, 3, 3, 7]
    assert log.epochs.end_offset_of(0, log.end_offset) == (0, 2)
    assert log.epochs.end_offset_of(5, log.end_offset) == (3, 4)
    assert log.epochs.end_offset_of(7, log.end_offset) == (7, 5)
    assert log.epochs.end_offset_of(8, log.end_offset) is None
    log.truncate_to(3)
    assert log.epochs.entries == [(0, 0), (3, 2), (7, 3)]
    assert log.close()
    again = opened(files=files, clean=True, leader_epoch=9)
    assert again.epochs.entries == [(0, 0), (3, 2), (9, 3)]  # nobody wrote anything as leader 7
    assert again.close()
    assert opened(files=files, clean=True).leader_epoch == 3  # nor as leader 9
