"""Opening a log that somebody has left in a bad state: what is cut, what is rebuilt, and what is said about it."""

import tracemalloc
from pathlib import Path

import pytest

from muster.codec.batches import encode_batch
from muster.codec.records import Record
from muster.log.config import Flush, LogConfig
from muster.log.partition import DiskLog
from muster.log.recovery import finish_interrupted_changes
from muster.log.segment import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX
from muster.segments.files import read_file
from tests.log.disk.changes import checkpoint_log
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.unsynced import UNSYNCED

DIRECTORY = Path("/t-0")
START_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, flush=Flush.OS)


def opened(files: FaultyFiles, **how: object) -> DiskLog:
    return DiskLog.open(DIRECTORY, CONFIG, files=files, **how)  # type: ignore[arg-type]


def filled(count: int = 20) -> tuple[FaultyFiles, DiskLog]:
    files = FaultyFiles()
    log = opened(files)
    for number in range(count):
        log.append([(b"k", b"%d" % number * 10)], START_MS + number)
        if number % 5 == 1:
            log.append([(b"t", b"")], START_MS + number, producer_id=7, producer_epoch=0)
        if number % 5 == 3:
            log.append_marker(7, 0, START_MS + number, commit=False)
        log.write()
    return files, log


def patch(files: FaultyFiles, path: Path, position: int, data: bytes) -> None:
    file = files.open(path, write=True)
    file.pwrite(data, position)
    file.close()


def offsets(log: DiskLog) -> list[int]:
    return [record.offset for batch in log.batches() for record in batch.records]


def facts(log: DiskLog) -> tuple[object, ...]:
    """All that a log says of itself."""
    indexes = [read_file(log.files, segment.path(kind)) for segment in log.segments for kind in (INDEX, TIMEINDEX)]
    return offsets(log), log.aborted_transactions(0, 1 << 60), log.last_stable_offset, indexes, log.producers.snapshot()


def copy_of(files: FaultyFiles) -> FaultyFiles:
    return files.killed()


class TestTheEnd:
    def test_torn_at_any_byte(self) -> None:
        files, log = filled(9)
        active = log.segments[-1]
        last = active.batch_at(log.end_offset - 1)
        assert last is not None
        whole = active.size_bytes
        for size in range(last[0] + 1, whole):
            torn = copy_of(files)
            torn.open(active.path(LOG), write=True).truncate(size)
            again = opened(torn)
            assert again.end_offset == log.end_offset - 1
            assert again.report.truncated_bytes == size - last[0]
            [note] = again.report.notes
            assert note.startswith(f"t-0/{active.path(LOG).name}: at byte {last[0]}: ")
            assert note.endswith(
                f"Whole up to offset {log.end_offset - 2}; the {size - last[0]} bytes behind it are cut off"
            )
            assert torn.open(active.path(LOG)).size() == last[0]

    @pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff" * 30, b"\0" * 16 + b"\x07" + b"\0" * 50])
    def test_garbage_behind_it(self, tail: bytes) -> None:
        files, log = filled(9)
        before = facts(log)
        patch(files, log.segments[-1].path(LOG), log.segments[-1].size_bytes, tail)
        again = opened(files.killed())
        assert facts(again)[0] == before[0]
        assert again.report.truncated_bytes == len(tail)

    def test_a_flipped_bit_anywhere(self) -> None:
        """Everything behind the recovery point is looked at. Offset and leader epoch have no checksum, in Kafka too."""
        files, log = filled(4)
        segment = log.segments[0]
        places = {batch.position: batch.header for batch in log.batches()}
        for position in range(segment.size_bytes):
            start = max(place for place in places if place <= position)
            if position - start < 8 or 12 <= position - start < 16:
                continue
            flipped = copy_of(files)
            patch(flipped, segment.path(LOG), position, bytes([read_file(files, segment.path(LOG))[position] ^ 1]))
            again = opened(flipped)
            assert again.end_offset <= places[start].base_offset
            assert again.report.notes

    def test_below_the_recovery_point_nobody_looks(self) -> None:
        files, log = filled()
        log.flush(indexes=True)
        point = log.recovery_point
        patch(files, log.segments[0].path(LOG), 70, b"X")
        again = opened(files.killed(), recovery_point=point)
        assert again.report.notes == []
        assert again.end_offset == log.end_offset
        assert [batch.header.base_offset for batch in again.batches() if batch.problem] == [0]

    def test_offsets_that_go_back(self) -> None:
        files, log = filled(3)
        batch = encode_batch([Record(1, START_MS, b"k", b"again")])
        end_offset = log.end_offset
        patch(files, log.segments[0].path(LOG), log.segments[0].size_bytes, batch)
        again = opened(files.killed())
        assert again.end_offset == end_offset
        assert "behind one that ends at" in again.report.notes[0]

    def test_what_follows_a_damaged_segment_goes_too(self) -> None:
        files, log = filled(40)
        assert len(log.segments) > 3
        patch(files, log.segments[1].path(LOG), 200, b"XXXX")
        again = opened(files.killed())
        assert again.end_offset < log.segments[2].base_offset
        assert len(again.segments) == 2
        assert offsets(again) == list(range(again.end_offset))
        assert len(again.report.notes) == len(log.segments) - 1
        names = {entry.name for entry in again.files.entries(DIRECTORY)}
        assert not any(name.startswith(f"{log.segments[2].base_offset:020}") for name in names)

    def test_a_length_that_cannot_be_costs_no_memory(self, tmp_path: Path) -> None:
        log = DiskLog.open(tmp_path / "t-0", CONFIG, files=UNSYNCED)
        log.append([(b"k", b"v")], START_MS)
        log.write()
        log.abandon()
        path = tmp_path / "t-0" / f"{0:020}.log"
        header = bytearray(path.read_bytes()[:61])
        header[7] = 1  # the next offset
        header[8:12] = (150_000_000).to_bytes(4, "big")
        with path.open("r+b") as file:
            file.seek(0, 2)
            file.write(header)
            file.truncate(200_000_000)
        tracemalloc.start()
        again = DiskLog.open(tmp_path / "t-0", CONFIG, files=UNSYNCED)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert again.end_offset == 1
        assert "says CRC" in again.report.notes[0]
        assert peak < 20_000_000


class TestIndexes:
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("kinds", [(INDEX,), (TIMEINDEX,), (INDEX, TIMEINDEX)])
    def test_missing_ones_are_rebuilt(self, kinds: tuple[str, ...], clean: bool) -> None:
        files, log = filled()
        log.close()
        before = facts(opened(copy_of(files), clean=True))
        for entry in files.entries(DIRECTORY):
            if entry.name.endswith(tuple(f"0{kind}" for kind in kinds)) or entry.name.endswith(kinds):
                files.unlink(DIRECTORY / entry.name)
        again = opened(files, clean=clean)
        assert facts(again) == before
        assert any("rebuilt" in note for note in again.report.notes)

    def test_missing_transaction_indexes_come_back_where_it_is_looked(self) -> None:
        files, log = filled()
        before = facts(log)
        for entry in files.entries(DIRECTORY):
            if entry.name.endswith(TXNINDEX):
                files.unlink(DIRECTORY / entry.name)
        assert facts(opened(files.killed()))[1] == before[1] != []

    @pytest.mark.parametrize("kind", [INDEX, TIMEINDEX, TXNINDEX])
    @pytest.mark.parametrize("damage", [b"\xff" * 24, b"\0" * 24, b"\x01", bytes(range(200))])
    def test_wrong_ones_do_no_harm(self, kind: str, damage: bytes) -> None:
        """In the active segment they are rebuilt; in a closed one, that nobody looks at, they are not believed."""
        files, log = filled()
        log.flush(indexes=True)
        point = log.recovery_point
        expected = facts(log)
        for segment in log.segments:
            if kind == TXNINDEX and segment is not log.segments[-1]:
                continue
            path = segment.path(kind)
            if files.exists(path):
                patch(files, path, files.open(path).size(), damage)
        again = opened(files.killed(), recovery_point=point)
        assert offsets(again) == expected[0]
        assert again.aborted_transactions(0, 1 << 60) == expected[1]
        for offset in range(again.end_offset):
            assert again.read(offset, 1)[:8] == log.read(offset, 1)[:8]
        rebuilt = read_file(again.files, again.segments[-1].path(INDEX))
        assert rebuilt == read_file(files, log.segments[-1].path(INDEX))[: len(rebuilt)]

    def test_an_entry_that_points_elsewhere(self) -> None:
        """It could be right by its looks; the batch it points to says another thing."""
        files, log = filled()
        closed = log.segments[0]
        last = closed.batch_at(log.segments[1].base_offset - 1)
        assert last is not None
        patch(files, closed.path(INDEX), 0, (1).to_bytes(4, "big") + last[0].to_bytes(4, "big"))
        for offset in range(log.segments[1].base_offset):
            assert int.from_bytes(log.read(offset, 1)[:8], "big") <= offset

    def test_kafkas_zeros(self) -> None:
        """Its indexes are allocated ahead, and a crash leaves them with their zeros."""
        files, log = filled()
        log.flush(indexes=True)
        before = facts(log)
        active = log.segments[-1]
        for kind in (INDEX, TIMEINDEX):
            file = files.open(active.path(kind), write=True)
            file.truncate(10_485_756 // 12 * 12 if kind == TIMEINDEX else 10_485_760)
        again = opened(files.killed(), recovery_point=log.recovery_point)
        assert again.report.checked_bytes < active.size_bytes
        assert facts(again)[:3] == before[:3]
        assert all(entry.size_bytes < 1000 for entry in again.files.entries(DIRECTORY))
        from_the_front = opened(files.killed())
        assert facts(from_the_front) == facts(again)

    def test_an_index_that_lies_after_a_clean_stop(self) -> None:
        files, log = filled()
        log.close()
        expected = facts(opened(copy_of(files), clean=True))
        patch(files, log.segments[-1].path(INDEX), 0, b"\0\0\0\1\0\0\0\1")
        patch(files, log.segments[-1].path(INDEX), files.open(log.segments[-1].path(INDEX)).size(), b"\0\0\0\1\0\0\0\7")
        again = opened(files, clean=True)
        assert facts(again) == expected
        assert "its indexes do not fit it" in again.report.notes[0]


class TestSnapshots:
    def test_torn_and_stray_ones(self) -> None:
        files, log = filled()
        checkpoint_log(log)
        before = log.producers.snapshot()
        spare = DIRECTORY / f"{log.end_offset:020}{SNAPSHOT}"
        assert files.exists(spare)
        stray = DIRECTORY / f"{log.segments[1].base_offset + 1:020}{SNAPSHOT}"
        files.open(stray, create=True).pwrite(before, 0)
        beyond = DIRECTORY / f"{log.end_offset + 5:020}{SNAPSHOT}"
        files.open(beyond, create=True).pwrite(before, 0)
        patch(files, spare, 8, b"X")
        again = opened(files.killed(), recovery_point=log.recovery_point)
        assert again.producers.snapshot() == before
        assert again.report.replayed_bytes > 0
        assert not again.files.exists(stray)
        assert not again.files.exists(beyond)

    def test_one_in_the_middle_of_what_an_index_skips(self) -> None:
        """The walk to the end of a snapshot begins before it; what lies there has been counted already."""
        files, config = FaultyFiles(), LogConfig(index_interval_bytes=300)
        log = DiskLog.open(DIRECTORY, config, files=files)
        for _ in range(2):
            log.append([(b"k", b"v" * 80)], START_MS)
            log.append([(b"t", b"")], START_MS, producer_id=7, producer_epoch=0)
            log.append_marker(7, 0, START_MS, commit=False)
            log.write()
        log.take_snapshot()
        for _ in range(5):
            log.append([(b"k", b"v" * 80)], START_MS)
            log.write()
        log.flush(indexes=True)
        aborted = log.aborted_transactions(0, 99)
        assert len(aborted) == 2
        again = DiskLog.open(DIRECTORY, config, files=files.killed(), recovery_point=log.recovery_point)
        assert again.report.replayed_bytes > 0
        assert again.aborted_transactions(0, 99) == aborted

    def test_none_at_all(self) -> None:
        files, log = filled()
        before = log.producers.snapshot()
        log.abandon()
        for entry in files.entries(DIRECTORY):
            if entry.name.endswith(SNAPSHOT):
                files.unlink(DIRECTORY / entry.name)
        assert opened(copy_of(files), recovery_point=log.end_offset).producers.snapshot() == before
        assert len(opened(files, clean=True).producers) == 0  # as in Kafka: a log from before there were any


def test_a_log_that_ends_before_it_starts() -> None:
    files, log = filled()
    log.close()
    again = opened(files, clean=True, start_offset=1000)
    assert (again.start_offset, again.end_offset) == (1000, 1000)
    assert offsets(again) == []
    assert "so files are missing" in again.report.notes[0]
    assert again.append([(b"k", b"v")], START_MS) == 1000
    again.flush()
    assert again.close()
    assert offsets(opened(files, clean=True, start_offset=1000)) == [1000]


def test_a_start_within_the_log() -> None:
    files, log = filled()
    log.close()
    again = opened(files, clean=True, start_offset=7)
    assert again.start_offset == 7
    assert again.offset_for_timestamp(0) is not None
    assert again.offset_for_timestamp(0)[0] == 7  # type: ignore[index]


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["0.log", "0.index", "0.timeindex", "4.log.deleted", "4.index.deleted", "9.snapshot.deleted"],
         ["0.index", "0.log", "0.timeindex"]),
        (["0.log", "4.log.cleaned", "4.index.cleaned", "leader-epoch-checkpoint.tmp"], ["0.log"]),
        # A whole swap replaces what lies in its range (here 0 to 7), and nothing else.
        (["0.log", "4.log", "4.index", "8.log", "0.log.swap", "0.index.swap"], ["0.index", "0.log", "8.log"]),
        # The log has its name already, an index not yet.
        (["0.log", "0.timeindex.swap", "8.log"], ["0.log", "0.timeindex", "8.log"]),
        # `.cleaned` at or before a `.swap`: the change was not complete, the old segments are the log.
        (["0.log", "4.log", "4.log.swap", "0.log.cleaned"], ["0.log", "4.log"]),
        (["0.log", "4.log", "0.log.swap", "0.index.cleaned"], ["0.log", "4.log"]),
        (["0.log", "4.log", "0.log.swap", "4.log.cleaned"], ["0.log"]),
        (["0.log", "4.index", "4.timeindex", "4.txnindex"], ["0.log"]),
        (["0.log", "5-2.checkpoint.deleted", "partition.metadata"],
         ["0.log", "5-2.checkpoint.deleted", "partition.metadata"]),
    ],
)  # fmt: skip
def test_leftovers_of_interrupted_changes(names: list[str], left: list[str]) -> None:
    """The rules of Kafka's LogLoader."""
    files = FaultyFiles()
    files.mkdir(DIRECTORY)
    for name in names:
        path = DIRECTORY / long_name(name)
        file = files.open(path, create=True)
        if ".log" in name:
            last = 7 if name == "0.log.swap" else int(name[0]) + 3
            file.pwrite(encode_batch([Record(int(name[0]), START_MS, b"k", name.encode())], last_offset=last), 0)
    notes: list[str] = []
    changed = finish_interrupted_changes(files, DIRECTORY, notes)
    assert [entry.name for entry in files.entries(DIRECTORY)] == sorted(map(long_name, left))
    assert changed == bool(notes) == (sorted(names) != sorted(left))
    if "0.log.swap" in names and "0.log" in left and "0.index.swap" in names:
        assert b"0.log.swap" in read_file(files, DIRECTORY / long_name("0.log"))
    assert finish_interrupted_changes(files, DIRECTORY, notes) is False


def long_name(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"{int(first):020}.{rest}" if first.isdecimal() else name
