"""The summary of every corpus against what Kafka's own tools said of it, and the cases that are easy to get wrong."""

import gzip
import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.columns import tally
from muster.codec.columns.chunks import Scratch
from muster.codec.records import TRANSACTIONAL, Record
from muster.segments.reader import Damage, read_partition
from muster.segments.sources import Sources
from muster.segments.summary import Summary, SummaryResult
from tests.segments import CORPORA, START_MS, batch, commit, tombstone, write_segment

NAMES = sorted(path.parent.name for path in CORPORA.glob("*/expected"))


def summary_of(path: Path) -> SummaryResult:
    summary, damage = Summary(), list[Damage]()
    with Sources([path]) as sources:
        for partition in sources.partitions:
            for piece in read_partition(partition, Scratch(), damage):
                summary.add(piece)
    return summary.result(damage)


@cache
def summary_of_corpus(name: str) -> SummaryResult:
    return summary_of(CORPORA / name / f"{name}.tar.zst")


@cache
def story(name: str) -> str:
    return (CORPORA / name / "expected" / "story.md").read_text()


@cache
def expected_lines(name: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt") as lines:
        return tuple(map(json.loads, lines))


def table_of(text: str, columns: int) -> list[tuple[str, ...]]:
    """The rows of a Markdown table with this many columns."""
    pattern = r"^\|" + r"([^|\n]*)\|" * columns + "$"
    rows = [tuple(cell.strip() for cell in match.groups()) for match in re.finditer(pattern, text, re.MULTILINE)]
    return [row for row in rows if set(row[0]) != {"-"}][1:]


@pytest.mark.parametrize("name", NAMES)
def test_records_as_the_story_counts_them(name: str) -> None:
    section = story(name).split("## Records and batches")[1].split("##")[0]
    expected = {row[:4]: int(row[4]) for row in table_of(section, 5)}
    found: Counter[tuple[str, ...]] = Counter()
    for count in summary_of_corpus(name).record_counts:
        tombstone = "yes" if count.is_tombstone else "no"
        if count.marker is not None:
            found["control", count.marker, "-", tombstone] += count.records
        else:
            version = "-" if count.value_version is None else f"v{count.value_version}"
            found[f"{count.record_type:02} {count.name}", version, str(count.magic), tombstone] += count.records
    assert found == expected


@pytest.mark.parametrize("name", NAMES)
def test_batches_as_the_story_counts_them(name: str) -> None:
    section = story(name).split("## Records and batches")[1].split("##")[0]
    expected: Counter[str] = Counter()
    for kind, count in table_of(section, 2):
        expected[re.sub(r", (baseSequence|delete-horizon)( -?\d+)?", "", kind)] += int(count)
    found: Counter[str] = Counter()
    for batches in summary_of_corpus(name).batch_counts:
        words = [f"magic {batches.magic}", batches.codec]
        words += ["transactional"] * batches.is_transactional + ["control"] * batches.is_control
        words += ["empty"] * batches.is_empty + ["BAD CRC"] * batches.is_damaged
        found[", ".join(words)] += batches.batches
    assert found == expected


@pytest.mark.parametrize("name", NAMES)
def test_partitions_as_the_story_counts_them(name: str) -> None:
    pattern = r"- partition (\d+): (\d+) segments, (\d+) records, \d+ offset gaps between batches, next offset (\d+)"
    expected = [tuple(map(int, match)) for match in re.findall(pattern, story(name))]
    found = [
        (int(partition.name.rpartition("-")[2]), partition.segments, partition.records, partition.next_offset)
        for partition in summary_of_corpus(name).partitions
    ]
    assert found == expected


@pytest.mark.parametrize("name", NAMES)
def test_offsets_and_times_as_the_records_have_them(name: str) -> None:
    """Gaps are counted here and not taken from the story, which looks for them in magic 2 alone."""
    records = [line for line in expected_lines(name) if "offset" in line]
    result = summary_of_corpus(name)
    times = [line["timestamp"] for line in records if line["timestamp"] >= 0]
    assert (result.first_timestamp_ms, result.last_timestamp_ms) == (min(times), max(times))
    for number, partition in enumerate(result.partitions):
        headers = [line["batch"] for line in expected_lines(name) if line["partition"] == number and "batch" in line]
        batches = list({header["baseOffset"]: header for header in headers}.values())
        steps = [
            after["baseOffset"] - before["lastOffset"] - 1
            for before, after in pairwise(batches)
            if before["crcValid"] and after["crcValid"]
        ]
        assert partition.gaps == sum(step > 0 for step in steps)
        assert partition.missing_between_batches == sum(steps)
        assert partition.batches == len(batches)
        good = [header for header in batches if header["crcValid"]]
        covered = sum(header["lastOffset"] - header["baseOffset"] + 1 for header in good)
        assert partition.missing_inside_batches == covered - partition.records


@pytest.mark.parametrize("name", NAMES)
def test_groups_as_the_keys_name_them(name: str) -> None:
    groups: Counter[str] = Counter()
    for line in expected_lines(name):
        if line.get("keyHex"):
            key = bytes.fromhex(line["keyHex"])
            groups[key[4 : 4 + int.from_bytes(key[2:4], "big")].decode()] += 1
    result = summary_of_corpus(name)
    assert result.distinct_groups == len(groups)
    assert [records for _, records in result.busiest_groups] == sorted(groups.values(), reverse=True)[:5]
    assert all(groups[group] == records for group, records in result.busiest_groups)


@pytest.mark.parametrize("name", NAMES)
def test_transactions_as_the_markers_end_them(name: str) -> None:
    lines = expected_lines(name)
    result = summary_of_corpus(name)
    assert result.committed_transactions == sum(line.get("control") == "COMMIT" for line in lines)
    assert result.aborted_transactions == sum(line.get("control") == "ABORT" for line in lines)
    open_ones: dict[tuple[int, int], int] = {}
    for line in lines:
        header = line.get("batch", {})
        if header.get("isTransactional") and "offset" in line:
            producer = line["partition"], header["producerId"]
            if "control" in line:
                open_ones.pop(producer, None)
            else:
                open_ones.setdefault(producer, header["baseOffset"])
    found = {
        (int(one.partition.rpartition("-")[2]), one.producer_id): one.first_offset for one in result.open_transactions
    }
    assert found == open_ones


def test_a_summary_says_the_same_as_json() -> None:
    result = summary_of_corpus("damaged-flip")
    told = json.loads(json.dumps(result.as_json()))
    assert told["records"] == sum(count["records"] for count in told["record_counts"]) == 5066
    assert told["batches"] == sum(count["batches"] for count in told["batch_counts"]) == 1366
    assert (told["partitions"], told["segments"], told["damaged_batches"]) == (3, 28, 2)
    assert [damage["byte_position"] for damage in told["damage"]] == [328, 7933]
    assert told["damage"][0]["sentence"].startswith("__consumer_offsets-0/00000000000000002372.log at byte 328")
    assert told["transactions"]["open"][0]["groups"] == ["exactly-once", "exactly-once-only-open"]


def test_an_emptied_batch_is_no_open_transaction(tmp_path: Path) -> None:
    """The cleaner keeps the last batch of each producer for its sequence, long after the marker is gone."""
    emptied = encode_batch([], base_offset=0, last_offset=2, attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0)
    write_segment(tmp_path, emptied + batch(3, 2))
    result = summary_of(tmp_path)
    assert result.open_transactions == []
    assert result.totals["emptied_batches"] == 1
    assert result.totals["missing_inside_batches"] == 3


def test_an_open_transaction_over_several_batches(tmp_path: Path) -> None:
    def transactional(offset: int, group: str, producer_id: int = 5) -> bytes:
        records = [commit(offset, group), commit(offset + 1, group)]
        return encode_batch(records, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=3)

    ended = encode_marker(4, 1, 6, 0, commit=True, coordinator_epoch=0)
    write_segment(tmp_path, transactional(0, "a") + transactional(2, "gone", 6) + ended, 0)
    write_segment(tmp_path, transactional(5, "b") + transactional(7, "a"), 5)
    (one,) = summary_of(tmp_path).open_transactions
    assert (one.producer_id, one.producer_epoch, one.first_offset, one.since_ms) == (5, 3, 0, START_MS)
    assert (one.batches, one.records, one.groups) == (3, 6, ["a", "b"])


def test_next_to_a_damaged_batch_a_gap_is_not_compaction(tmp_path: Path) -> None:
    data = bytearray(batch(0, 2) + batch(2, 2) + batch(4, 2) + batch(9, 1))
    data[len(batch(0, 2)) + 4] ^= 1  # the base offset of the second batch, which no checksum covers
    data[len(batch(0, 2)) + 70] ^= 1
    write_segment(tmp_path, bytes(data))
    (partition,) = summary_of(tmp_path).partitions
    assert (partition.gaps, partition.missing_between_batches, partition.damaged_batches) == (1, 3, 1)
    assert (partition.records, partition.next_offset) == (5, 10)


def test_gaps_between_segments_count(tmp_path: Path) -> None:
    write_segment(tmp_path, batch(0, 2), 0)
    write_segment(tmp_path, batch(12, 2), 10)
    (partition,) = summary_of(tmp_path).partitions
    assert (partition.gaps, partition.missing_between_batches, partition.first_offset) == (1, 10, 0)


def test_what_nobody_understands_is_counted_apart(tmp_path: Path) -> None:
    records = [
        commit(0),
        tombstone(1),
        commit(2)._replace(value=b"\x00\x03short"),
        Record(3, START_MS, b"\x00\x63strange", b"\x00\x07"),
        Record(4, START_MS, None, b"no key"),
        Record(5, -1, b"\x7f\xff", None),
    ]
    write_segment(tmp_path, encode_batch(records))
    result = summary_of(tmp_path)
    assert (result.unknown_records, result.unreadable_records) == (2, 2)
    assert result.tombstones == 2
    found = {(count.record_type, count.name, count.value_version) for count in result.record_counts}
    assert found == {
        (None, "Unknown", None),
        (1, "OffsetCommit", None),
        (1, "OffsetCommit", 3),
        (99, "Unknown", 7),
        (32767, "Unknown", None),
    }


def test_an_empty_log(tmp_path: Path) -> None:
    write_segment(tmp_path, b"")
    result = summary_of(tmp_path)
    assert (result.totals["segments"], result.totals["records"], result.first_timestamp_ms) == (1, 0, None)
    assert json.dumps(result.as_json())


def test_more_groups_and_kinds_than_the_tables_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMALLEST_KINDS", "SMALLEST_GROUPS"):
        monkeypatch.setattr(tally, name, 2)
    monkeypatch.setattr(tally, "SMALLEST_ARENA", 80)
    names = [f"g{number}" * (number % 7 + 1) for number in range(3000)]
    records = [commit(offset, names[offset * 7 % 3000]) for offset in range(6000)]
    records += [Record(6000 + kind, START_MS, kind.to_bytes(2, "big") + b"\0\0", b"\0\0") for kind in range(30, 330)]
    write_segment(tmp_path, encode_batch(records[:2000]) + encode_batch(records[2000:]))
    result = summary_of(tmp_path)
    assert result.distinct_groups == len(set(names))
    assert [records for _, records in result.busiest_groups] == [2] * 5
    assert len(result.record_counts) == 301
    assert sum(count.records for count in result.record_counts) == 6300


def test_names_that_differ_in_their_last_byte_or_their_length_alone(tmp_path: Path) -> None:
    names = ["", "a", "aa", "aaaaaaa", "aaaaaaaa", "aaaaaaaaa", "aaaaaaab", "aaaaaaaab", "b" * 300, "b" * 299 + "c"]
    write_segment(tmp_path, encode_batch([commit(offset, names[offset % 10]) for offset in range(30)]))
    result = summary_of(tmp_path)
    assert result.distinct_groups == 10
    assert [records for _, records in result.busiest_groups] == [3] * 5
