"""Reading in bounded chunks: damage told by byte and batch, large batches, and files that change under the reader."""

import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.columns.chunks import Scratch
from muster.codec.records import TRANSACTIONAL
from muster.codec.transaction_outcomes import ABORTED, COMMITTED, OPEN
from muster.segments import reader
from muster.segments.reader import Damage, read_markers, read_partition, read_segment
from muster.segments.sources import SegmentFile, Sources
from tests.segments import CORPORA, batch, commit, read_offsets, write_segment

BATCHES = [batch(0, 3), batch(3, 1), batch(4, 5), batch(9, 2)]
WHOLE = b"".join(BATCHES)
STARTS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


def damage_of(name: str) -> list[Damage]:
    found: list[Damage] = []
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            for _ in read_partition(partition, Scratch(), found):
                pass
    return found


def places(found: list[Damage]) -> list[tuple[str, int, int | None, int, int]]:
    return [(d.segment, d.byte_position, d.base_offset, d.batch_number, d.skipped_bytes) for d in found]


class TestTheDamagedCorpora:
    """Byte, batch and offset as their story.md says."""

    def test_a_flipped_bit_costs_one_batch(self) -> None:
        found = damage_of("damaged-flip")
        assert places(found) == [
            ("__consumer_offsets-0/00000000000000002372.log", 328, 2376, 2, 328),
            ("__consumer_offsets-1/00000000000000000000.log", 7933, 101, 37, 223),
        ]
        assert str(found[0]) == (
            "__consumer_offsets-0/00000000000000002372.log at byte 328: batch 2 (base offset 2376) "
            "says CRC d5c0a9c9, its bytes give e552bc9d. The batches before and after it are whole."
        )  # stored 3586173385 and computed 3847404701 in the broker's own log

    def test_a_wild_length_and_a_tail_of_zeros_cost_the_rest_of_the_segment(self) -> None:
        found = damage_of("damaged-length")
        assert places(found) == [
            ("__consumer_offsets-0/00000000000000002372.log", 328, 2376, 2, 656),
            ("__consumer_offsets-2/00000000000000001124.log", 1968, None, 7, 4096),
        ]
        assert "says it has 2147483644 bytes, and the file ends after 656. Whole up to offset 2375." in str(found[0])
        assert "is missing: 4096 zero bytes to the end" in str(found[1])
        assert str(found[1]).endswith("Whole up to offset 1147.")

    def test_torn_tails(self) -> None:
        found = damage_of("damaged-torn")
        assert places(found) == [
            ("__consumer_offsets-0/00000000000000002372.log", 656, 2380, 3, 194),
            ("__consumer_offsets-1/00000000000000001397.log", 11480, 1537, 36, 14),
        ]
        assert "says it has 328 bytes, and the file ends after 194. Whole up to offset 2379." in str(found[0])
        assert "breaks off after 14 bytes. Whole up to offset 1536." in str(found[1])


class TestChunks:
    @pytest.mark.parametrize("chunk_bytes", [1, 17, 100, 200, 333, len(WHOLE) - 1, len(WHOLE), 1 << 20])
    def test_a_file_of_any_size_in_chunks_of_any_size(self, chunk_bytes: int, tmp_path: Path) -> None:
        assert read_offsets(write_segment(tmp_path, WHOLE), chunk_bytes) == (list(range(11)), [])

    @pytest.mark.parametrize("name", ["k26-formats", "mini-zstd-43"])
    def test_chunks_do_not_show_in_what_is_read(self, name: str) -> None:
        with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
            for segment in sources.segments:
                assert read_offsets(segment.path, 2000) == read_offsets(segment.path)

    def test_a_batch_larger_than_the_chunk(self, tmp_path: Path) -> None:
        large = batch(1, 20, metadata="m" * 4000)
        assert read_offsets(write_segment(tmp_path, batch(0) + large + batch(21)), 1000) == (list(range(22)), [])

    def test_byte_positions_are_those_of_the_file(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE)
        segment = SegmentFile(path, path.name, 0, path.stat().st_size)
        found = []
        for piece in read_segment(segment, Scratch(), [], chunk_bytes=300):
            found += [piece.file_position + int(position) for position in piece.chunk.batches[:, 0]]
        assert found == STARTS

    def test_only_the_first_chunk_is_the_first(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE)
        segment = SegmentFile(path, path.name, 0, path.stat().st_size)
        firsts = [piece.is_first for piece in read_segment(segment, Scratch(), [], chunk_bytes=100)]
        assert firsts == [True] + [False] * (len(firsts) - 1)
        assert len(firsts) > 1

    def test_an_empty_segment_is_one_empty_chunk(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, b"")
        pieces = list(read_segment(SegmentFile(path, path.name, 0, 0), Scratch(), []))
        assert [(len(piece.chunk.batches), piece.is_first) for piece in pieces] == [(0, True)]
        assert read_offsets(path) == ([], [])

    def test_progress_adds_up_to_the_file(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE + b"torn")
        moved: list[int] = []
        segment = SegmentFile(path, path.name, 0, path.stat().st_size)
        for _ in read_segment(segment, Scratch(), [], chunk_bytes=200, progress=moved.append):
            pass
        assert sum(moved) == len(WHOLE) + 4


class TestDamage:
    @pytest.mark.parametrize(
        "chunk_bytes", [64, pytest.param(250, marks=pytest.mark.long), pytest.param(1 << 20, marks=pytest.mark.long)]
    )
    def test_cut_at_every_byte(self, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader.time, "sleep", lambda seconds: None)
        path = write_segment(tmp_path, WHOLE)
        for cut in range(len(WHOLE)):
            path.write_bytes(WHOLE[:cut])
            offsets, damage = read_offsets(path, chunk_bytes)
            number = max(place for place, start in enumerate(STARTS) if start <= cut)
            assert offsets == list(range([0, 3, 4, 9][number]))
            expected = [] if cut in STARTS else [(STARTS[number], number + 1, cut - STARTS[number])]
            assert [(d.byte_position, d.batch_number, d.skipped_bytes) for d in damage] == expected

    def test_a_bad_batch_in_a_later_chunk_has_its_number_in_the_file(self, tmp_path: Path) -> None:
        data = bytearray(WHOLE)
        data[STARTS[2] + 70] ^= 1
        offsets, damage = read_offsets(write_segment(tmp_path, bytes(data)), 150)
        assert offsets == [0, 1, 2, 3, 9, 10]
        assert [(d.byte_position, d.base_offset, d.batch_number) for d in damage] == [(STARTS[2], 4, 3)]

    def test_a_magic_that_does_not_exist(self, tmp_path: Path) -> None:
        data = bytearray(WHOLE)
        data[STARTS[1] + 16] = 7
        offsets, damage = read_offsets(write_segment(tmp_path, bytes(data)))
        assert offsets == [0, 1, 2]
        assert "batch 2 (base offset 3) has magic 7, and 0, 1 and 2 exist. Whole up to offset 2." in str(damage[0])

    def test_a_length_that_no_batch_has(self, tmp_path: Path) -> None:
        data = bytearray(WHOLE)
        data[STARTS[1] + 8 : STARTS[1] + 12] = (-5).to_bytes(4, "big", signed=True)
        _, damage = read_offsets(write_segment(tmp_path, bytes(data)))
        assert "has length -5, which no batch can have" in str(damage[0])

    def test_a_length_above_the_limit_is_damage_even_in_a_file_that_is_long_enough(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        large = batch(1, 20, metadata="m" * 4000)
        path = write_segment(tmp_path, batch(0) + large + batch(21))
        monkeypatch.setattr(reader, "LARGEST_BATCH_BYTES", len(large))
        assert read_offsets(path, 1000) == (list(range(22)), [])
        monkeypatch.setattr(reader, "LARGEST_BATCH_BYTES", len(large) - 1)
        offsets, damage = read_offsets(path, 1000)
        assert offsets == [0]
        assert f"says it has {len(large)} bytes, more than any batch may have" in str(damage[0])

    def test_the_next_segment_is_read_all_the_same(self, tmp_path: Path) -> None:
        write_segment(tmp_path, WHOLE[:-3], 0)
        write_segment(tmp_path, batch(11, 2), 11)
        with Sources([tmp_path]) as sources:
            damage: list[Damage] = []
            offsets = [
                offset
                for piece in read_partition(sources.partitions[0], Scratch(), damage)
                for offset in piece.chunk.records[:, 0].tolist()
            ]
        assert offsets == [*range(9), 11, 12]
        assert len(damage) == 1


class TestFilesThatChange:
    def test_a_segment_that_the_broker_has_removed_meanwhile(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE)
        segment = SegmentFile(path, "gone.log", 0, len(WHOLE))
        path.unlink()
        damage: list[Damage] = []
        assert list(read_segment(segment, Scratch(), damage)) == []
        assert str(damage[0]) == "gone.log is gone. A broker may have replaced it."
        assert len(read_markers([segment]).offsets) == 0

    def test_a_file_cut_while_it_is_read(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE)
        damage: list[Damage] = []
        offsets: list[int] = []
        for piece in read_segment(SegmentFile(path, path.name, 0, len(WHOLE)), Scratch(), damage, chunk_bytes=220):
            offsets += piece.chunk.records[:, 0].tolist()
            with path.open("r+b") as file:
                file.truncate(STARTS[2] + 20)
        assert offsets == [0, 1, 2, 3]
        assert [(d.byte_position, d.skipped_bytes) for d in damage] == [(STARTS[2], 20)]

    def test_what_is_appended_after_the_start_is_left_for_the_next_time(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, WHOLE)
        offsets: list[int] = []
        damage: list[Damage] = []
        for piece in read_segment(SegmentFile(path, path.name, 0, len(WHOLE)), Scratch(), damage, chunk_bytes=220):
            offsets += piece.chunk.records[:, 0].tolist()
            with path.open("ab") as file:
                file.write(batch(11))
        assert (offsets, damage) == (list(range(11)), [])

    def test_a_batch_caught_half_written_is_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_segment(tmp_path, WHOLE[:-30])

        def the_writer_goes_on(seconds: float) -> None:
            if path.stat().st_size < len(WHOLE):
                with path.open("ab") as file:
                    file.write(WHOLE[-30:] + batch(11)[:40])  # and the next is half written by now

        monkeypatch.setattr(reader.time, "sleep", the_writer_goes_on)
        assert read_offsets(path) == (list(range(11)), [])

    def test_reading_beside_a_writer_never_shows_damage(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, b"")
        batches = [batch(offset, 1) for offset in range(3000)]
        started = threading.Event()

        def write() -> None:
            with path.open("ab", buffering=0) as file:
                for number, data in enumerate(batches):
                    middle = number % len(data)
                    file.write(data[:middle])
                    file.write(data[middle:])
                    started.set()

        writer = threading.Thread(target=write)
        writer.start()
        started.wait()
        seen = 0
        while writer.is_alive():
            offsets, damage = read_offsets(path, 4096)
            assert damage == []
            assert offsets == list(range(len(offsets)))
            assert len(offsets) >= seen
            seen = len(offsets)
        writer.join()
        assert read_offsets(path) == (list(range(3000)), [])


def test_transactions_are_resolved_across_segments(tmp_path: Path) -> None:
    def transactional(offset: int, producer_id: int) -> bytes:
        return encode_batch([commit(offset)], attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)

    def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
        return encode_marker(offset, 1, producer_id, 0, commit=is_commit, coordinator_epoch=0)

    write_segment(tmp_path, transactional(0, 7) + transactional(1, 8) + transactional(2, 9), 0)
    write_segment(tmp_path, marker(3, 8, is_commit=False) + marker(4, 7, is_commit=True) + transactional(5, 7), 3)
    with Sources([tmp_path]) as sources:
        outcomes = [
            piece.chunk.batches[:, reader.scan.B_OUTCOME].tolist()
            for piece in read_partition(sources.partitions[0], Scratch(), [])
        ]
    assert outcomes == [[COMMITTED, ABORTED, OPEN], [ABORTED, COMMITTED, OPEN]]


def test_markers_are_found_in_windows_of_any_fill(tmp_path: Path) -> None:
    data = b"".join(
        encode_marker(offset, 1, offset % 5, 0, commit=True, coordinator_epoch=0) for offset in range(40_000)
    )
    write_segment(tmp_path, data)  # more batches than one table, less bytes than one window
    with Sources([tmp_path]) as sources:
        markers = read_markers(sources.segments)
    assert np.array_equal(np.sort(markers.offsets), np.arange(40_000))


class TestFromAnOffset:
    """A segment read from the middle on, by its index where that can be believed."""

    INDEXED = b"".join(struct.pack(">ii", last, start) for last, start in ((3, STARTS[1]), (8, STARTS[2])))

    def first_byte(self, folder: Path, offset: int, index: bytes | None, data: bytes = WHOLE) -> int:
        path = write_segment(folder, data)
        if index is not None:
            path.with_suffix(".index").write_bytes(index)
        segment = SegmentFile(path, path.name, 0, path.stat().st_size)
        damage: list[Damage] = []
        first = next(iter(read_segment(segment, Scratch(), damage, from_offset=offset)))
        assert first.chunk.records[-1, 0] == 10
        assert not damage
        return first.file_position

    @pytest.mark.parametrize(
        ("offset", "batch_number"), [(0, 0), (2, 0), (3, 1), (4, 1), (7, 1), (8, 2), (10, 2), (99, 2)]
    )
    def test_the_index_says_where_to_begin(self, offset: int, batch_number: int, tmp_path: Path) -> None:
        assert self.first_byte(tmp_path, offset, self.INDEXED) == STARTS[batch_number]
        assert self.first_byte(tmp_path, offset, self.INDEXED + bytes(80)) == STARTS[batch_number]  # allocated ahead

    @pytest.mark.parametrize("index", [
        None,
        b"",
        b"\x00\x00",
        bytes(80),
        struct.pack(">ii", 3, STARTS[1] + 1),  # no batch begins there
        struct.pack(">ii", 3, STARTS[2]),  # another one does
        struct.pack(">ii", 3, 1 << 30),
        struct.pack(">ii", 3, -5),
        struct.pack(">ii", 3, len(WHOLE) - 3),
    ])  # fmt: skip
    def test_an_index_that_is_wrong_is_not_believed(self, index: bytes | None, tmp_path: Path) -> None:
        assert self.first_byte(tmp_path, 5, index) == 0

    def test_damage_in_a_segment_that_was_not_read_from_its_beginning(self, tmp_path: Path) -> None:
        damaged = bytearray(WHOLE)
        damaged[STARTS[3] + 70] ^= 1
        path = write_segment(tmp_path, bytes(damaged))
        path.with_suffix(".index").write_bytes(self.INDEXED)
        damage: list[Damage] = []
        list(read_segment(SegmentFile(path, "s", 0, len(damaged)), Scratch(), damage, from_offset=8))
        assert f"s at byte {STARTS[3]}: a batch (base offset 9) says CRC" in str(damage[0])

    def test_an_unfinished_end_is_damage_only_where_nobody_writes(self, tmp_path: Path) -> None:
        for end in (WHOLE[:-3], WHOLE + bytes(4096), WHOLE + bytes(5)):
            path = write_segment(tmp_path, end)
            segment = SegmentFile(path, "s", 0, len(end))
            for may_grow in (True, False):
                damage: list[Damage] = []
                list(read_segment(segment, Scratch(), damage, may_grow=may_grow))
                assert bool(damage) != may_grow
        wild = WHOLE + batch(11)[:8] + b"\x7f\xff\xff\x00" + batch(11)[12:]
        path = write_segment(tmp_path, wild)
        damage = []
        list(read_segment(SegmentFile(path, "s", 0, len(wild)), Scratch(), damage, may_grow=True))
        assert "2147483404 bytes" in str(damage[0])

    def test_a_segment_that_must_exist(self, tmp_path: Path) -> None:
        gone = SegmentFile(tmp_path / "00000000000000000000.log", "s", 0, 5)
        with pytest.raises(FileNotFoundError):
            list(read_segment(gone, Scratch(), [], must_exist=True))
