"""Ranges followed by offset while a broker appends, rolls and compacts."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.codec.batches import encode_batch
from muster.codec.columns.chunks import Scratch
from muster.codec.transaction_outcomes import Markers
from muster.errors import LogDamaged
from muster.pipeline.extract import ranges
from muster.pipeline.extract.partition import Gaps
from muster.pipeline.extract.ranges import RangeReader, survey
from muster.segments import sources
from muster.segments.sources import segments_of
from tests.pipeline.extracting import context_in, run, works_of
from tests.segments import batch, commit, write_segment

Change = Callable[[], None]


def read_while(directory: Path, changes: list[Change], from_offset: int = 0, end: int = 12) -> RangeReader:
    """Read a range; behind each chunk the next change happens. The offsets come out as `reader.found`."""
    reader = RangeReader(directory, from_offset, end, Scratch())
    found: list[int] = []
    for piece in reader.chunks(Markers.none()):
        found += piece.offsets.tolist()
        if changes:
            changes.pop(0)()
    reader.found = found  # type: ignore[attr-defined]
    return reader


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three segments of four records each."""
    for base in (0, 4, 8):
        write_segment(tmp_path, batch(base, 2) + batch(base + 2, 2), base)
    return tmp_path / "__consumer_offsets-0"


def replace(directory: Path, base_offset: int, data: bytes, *gone: int) -> Change:
    """As a cleaner does: the new segment takes the name of the first it replaces, the others go."""

    def change() -> None:
        new = directory / f"{base_offset:020}.log.swap"
        new.write_bytes(data)
        for base in (base_offset, *gone):
            (directory / f"{base:020}.log").rename(directory / f"{base:020}.log.deleted")
        new.rename(directory / f"{base_offset:020}.log")

    return change


class TestACompactionMeanwhile:
    def test_segments_merged_into_the_one_being_read(self, directory: Path) -> None:
        merged = encode_batch([commit(1), commit(3), commit(5), commit(7)])
        reader = read_while(directory, [replace(directory, 0, merged, 4)])
        assert reader.found == [0, 1, 2, 3, 5, 7, 8, 9, 10, 11]  # type: ignore[attr-defined]
        assert (reader.next_offset, reader.damage) == (12, [])

    def test_segments_merged_ahead(self, directory: Path) -> None:
        merged = encode_batch([commit(6), commit(9), commit(11)])
        reader = read_while(directory, [replace(directory, 4, merged, 8)])
        assert reader.found == [0, 1, 2, 3, 6, 9, 11]  # type: ignore[attr-defined]

    def test_everything_merged_behind_us(self, directory: Path) -> None:
        merged = encode_batch([commit(3), commit(7), commit(10)])
        reader = read_while(directory, [lambda: None, replace(directory, 0, merged, 4, 8)])
        assert reader.found == [0, 1, 2, 3, 4, 5, 6, 7, 10]  # type: ignore[attr-defined]

    def test_damage_that_is_met_twice_is_told_once(self, directory: Path) -> None:
        flipped = bytearray(batch(2, 2))
        flipped[-1] ^= 1
        damaged = batch(0, 2) + bytes(flipped) + batch(4, 1)
        (directory / f"{0:020}.log").write_bytes(batch(0, 2) + bytes(flipped))
        reader = read_while(directory, [replace(directory, 0, damaged + batch(5, 3), 4)])
        assert reader.found == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11]  # type: ignore[attr-defined]
        assert len(reader.damage) == 1

    def test_a_compaction_between_the_passes_of_a_task(
        self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        works = works_of(tmp_path)
        change = replace(directory, 0, encode_batch([commit(3), commit(7)]), 4)

        def survey_then_change(*arguments: object) -> ranges.Survey:
            found = survey(*arguments)  # type: ignore[arg-type]
            change()
            return found

        monkeypatch.setattr("muster.pipeline.extract.partition.survey", survey_then_change)
        found = run(works, context_in(tmp_path / "out"))
        assert found.offsets("commits") == [3, 7, 8, 9, 10, 11]
        assert (found.report.gaps, found.report.complete_since_offset) == (6, 7)

    def test_a_compaction_between_two_runs(self, directory: Path, tmp_path: Path) -> None:
        (work,) = works_of(tmp_path)
        first = run([work._replace(to_offset=6)], context_in(tmp_path / "out"))
        replace(directory, 0, encode_batch([commit(5), commit(7)], base_offset=0), 4)()
        second = run([work._replace(from_offset=first.report.next_offset)], context_in(tmp_path / "out"))
        assert first.offsets("commits") + second.offsets("commits") == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
        assert second.report.gaps == 1

    def test_segments_that_are_always_gone(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        listed = segments_of(directory)
        monkeypatch.setattr(ranges, "segments_of", lambda _: listed)
        monkeypatch.setattr(ranges, "MOST_LISTINGS", 3)
        for segment in listed:
            segment.path.unlink()
        with pytest.raises(LogDamaged, match="are gone whenever"):
            read_while(directory, [])

    def test_a_segment_that_vanishes_while_it_is_listed(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [segment.path.name for segment in segments_of(directory)]
        monkeypatch.setattr(sources, "_segment_files", lambda _: [*names, f"{99:020}.log"])
        assert [segment.base_offset for segment in segments_of(directory)] == [0, 4, 8]


class TestASegmentBeingWritten:
    def test_appended_and_rolled_meanwhile(self, directory: Path) -> None:
        path = directory / f"{8:020}.log"

        def append() -> None:
            path.write_bytes(path.read_bytes() + batch(12, 2))
            (directory / f"{14:020}.log").write_bytes(batch(14, 1))

        reader = read_while(directory, [append], end=12)
        assert reader.found == list(range(12))  # type: ignore[attr-defined]
        assert reader.next_offset == 12
        assert survey(directory, 0, None).next_offset == 15

    def test_cut_short_at_every_byte(self, directory: Path) -> None:
        whole = batch(8, 2) + batch(10, 2)
        first = len(batch(8, 2))
        for cut in range(len(whole)):
            (directory / f"{8:020}.log").write_bytes(whole[:cut])
            seen = survey(directory, 0, None)
            reader = read_while(directory, [], end=seen.next_offset)
            assert (reader.next_offset, reader.damage) == (10 if cut >= first else 8, [])


class TestGaps:
    def test_filled_by_others_equals_having_had_everything(self) -> None:
        chance = random.Random(3)
        for _ in range(200):
            end = chance.randint(1, 30)
            offsets = sorted(chance.sample(range(end), chance.randint(0, end)))
            others = [offset for offset in range(end) if offset not in offsets and chance.random() < 0.6]
            from_offset = chance.randint(0, end)
            found, expected = Gaps(from_offset, keeps_all=True), Gaps(from_offset)
            take(found, [offset for offset in offsets if offset >= from_offset])
            found.finish(end)
            missing = found.has(np.array(others, np.int64))
            assert missing.tolist() == [offset >= from_offset for offset in others]
            later = np.array(others, np.int64)[missing]
            found.fill(later, 100 + later)
            take(expected, sorted({*offsets, *others} & set(range(from_offset, end))))
            expected.finish(end)
            assert (found.missing, found.since_offset, found.since_ms) == (
                expected.missing,
                expected.since_offset,
                expected.since_ms,
            )


def take(gaps: Gaps, offsets: list[int]) -> None:
    """In two pieces."""
    for some in (offsets[: len(offsets) // 2], offsets[len(offsets) // 2 :]):
        gaps.take(np.array(some, np.int64), 100 + np.array(some, np.int64))
