"""Ends and times of data logs: against what live brokers answered of the corpora, and against made-up logs."""

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from muster.codec.batches import encode_batch, encode_marker, read_header
from muster.codec.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from muster.codec.records import TRANSACTIONAL, Record
from muster.log.producers import ProducerStates
from muster.pipeline.sources import data_log
from muster.pipeline.sources.log_ends import log_ends, times_table, timestamps_at
from muster.segments.checkpoints import LOG_STARTS, PARTITION_METADATA, TopicPartition, write_offsets
from muster.segments.files import REAL_FILES
from muster.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from muster.tables.schemas import LOG_ENDS, TIMES
from tests.codec.corpus_records import CORPORA, NAMES

Row = dict[str, Any]
START_MS = 1_800_000_000_000
UNDAMAGED = [name for name in NAMES if not name.startswith("damaged")]
PRODUCED = re.compile(r'^\{"do": "produce".*\}', re.MULTILINE)


@pytest.fixture
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The log directory of a corpus."""
    name = request.param
    with (
        pa.input_stream(str(CORPORA / name / f"{name}.tar.zst"), compression="zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "logs"


def ends(*log_dirs: Path, wanted: set[tuple[str, int]] | None = None) -> dict[tuple[str, int], Row]:
    """Rows by partition; nothing may be wrong."""
    problems: list[str] = []
    table = log_ends(log_dirs, START_MS, wanted, problems)
    assert problems == []
    assert table.schema == LOG_ENDS
    return {(row["topic"], row["partition"]): row for row in table.to_pylist()}


def split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


@pytest.mark.parametrize(("logs", "name"), [(name, name) for name in UNDAMAGED], indirect=["logs"])
def test_ends_are_what_the_live_broker_answered(logs: Path, name: str) -> None:
    answers = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    found, compared = ends(logs), 0
    for topic, facts in answers["topics"].items():
        if topic == "__consumer_offsets" and answers["offsetsTopicEnd"] != answers["logEndAtStop"]:
            continue  # the broker wrote on after it was asked
        for place, asked in facts.get("endReadUncommitted", {}).items():
            row = found.get(split(place))
            if row is None:
                assert not (logs / place).exists()
                continue
            assert row["log_start_offset"] == facts["earliest"][place]["offset"], place
            assert row["log_end_offset"] == asked["offset"], place
            assert row["last_stable_offset"] == facts["endReadCommitted"][place]["offset"], place
            assert row["topic_id"] in (facts.get("topicId"), None), place
            newest = (facts.get("maxTimestamp") or {}).get(place)
            if newest is not None:
                assert row["newest_timestamp_ms"] == (None if newest["timestamp"] < 0 else newest["timestamp"]), place
                if 0 <= newest["offset"] < row["data_end_offset"]:  # else it is a marker's
                    found_ms = timestamps_at([logs], {split(place): [newest["offset"]]})
                    assert list(found_ms.values()) == [newest["timestamp"]], place
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("logs", ["k26", "k43-full"], indirect=True)
def test_the_marker_behind_the_last_record_is_no_lag(logs: Path) -> None:
    row = ends(logs, wanted={("ledger", 0)})["ledger", 0]
    assert (row["data_end_offset"], row["log_end_offset"]) == (302, 303)
    committed = 302  # by nightly-report-ledger: "one before the marker"
    assert row["log_end_offset"] - committed == 1
    assert row["data_end_offset"] - committed == 0


def produced(name: str) -> dict[tuple[str, int], list[int]]:
    """The timestamps of the records of each partition, as the story has them."""
    found: dict[tuple[str, int], list[int]] = {}
    for line in PRODUCED.findall((CORPORA / name / "expected" / "story.md").read_text(encoding="utf-8")):
        step = json.loads(line)
        times = found.setdefault((step["topic"], step["partition"]), [])
        times += [step["t0"] + number * step["step"] for number in range(step["count"])]
    return found


@pytest.mark.parametrize(
    ("logs", "name"), [(name, name) for name in UNDAMAGED if name != "k08-to-26"], indirect=["logs"]
)
def test_times_are_those_that_were_produced(logs: Path, name: str) -> None:
    random = Random(name)
    here = ends(logs)
    times = {key: some for key, some in produced(name).items() if key in here and "profiles" not in key[0]}
    assert sum(len(some) for some in times.values()) > 100
    wanted = {
        key: {0, len(some) - 1, len(some), *(random.randrange(len(some)) for _ in range(20))}
        for key, some in times.items()
    }
    problems: list[str] = []
    found = timestamps_at([logs], wanted, problems)
    assert problems == []
    assert len(found) == sum(map(len, wanted.values()))
    for (topic, partition, offset), timestamp_ms in found.items():
        known = times[topic, partition]
        if name == "k26-formats" and "." not in topic:  # its first round was written in magic 0
            known = []
        assert timestamp_ms == (known[offset] if offset < len(known) else None), (topic, partition, offset)


@pytest.mark.parametrize("logs", ["k08-to-26"], indirect=True)
def test_a_log_that_grew_from_magic_0_to_2(logs: Path) -> None:
    found = timestamps_at([logs], {("clicks", 0): [0, 380, 381, 500, 716, 1040, 1041]})
    times = list(found.values())
    assert times[:2] == [None, None]  # there were no timestamps yet
    assert None not in times[2:6]
    assert times[5] == ends(logs)["clicks", 0]["newest_timestamp_ms"]
    assert times[6] is None


COMPACTED = ["k26", "k39", "k43-all"]


@pytest.mark.parametrize(("logs", "name"), [(name, name) for name in COMPACTED], indirect=["logs"])
def test_of_a_compacted_topic_the_next_record_that_is_left_counts(logs: Path, name: str) -> None:
    key = ("customer.profiles", 0)
    known = produced(name)[key]
    found = timestamps_at([logs], {key: range(len(known))})
    offsets = [known.index(found[*key, offset]) for offset in range(len(known))]  # of the record that was found
    assert all(offset <= at for offset, at in enumerate(offsets))
    assert all(offsets[at] == at for at in offsets)
    assert len(set(offsets)) < len(known)


# Made-up logs.


def data(first: int, count: int = 1, codec: int = NONE, producer: int = -1, value: bytes = b"v") -> bytes:
    records = [Record(offset, START_MS + 1000 * offset, None, value) for offset in range(first, first + count)]
    attributes, epoch = (TRANSACTIONAL, 0) if producer >= 0 else (0, -1)
    return encode_batch(records, codec=codec, attributes=attributes, producer_id=producer, producer_epoch=epoch)


def marker(offset: int, producer: int, *, commit: bool = True) -> bytes:
    return encode_marker(offset, START_MS + 1000 * offset, producer, 0, commit=commit, coordinator_epoch=0)


def write(folder: Path, batches: list[bytes], name: str = "orders-0", base: int = 0, interval_bytes: int = 0) -> Path:
    """A segment with both indexes, an entry behind every so many bytes, zeros behind the last: as if being written."""
    directory = folder / name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base:020}.log"
    path.write_bytes(b"".join(batches))
    index, times = bytearray(), bytearray()
    position = since = largest = 0
    for batch in batches:
        header = read_header(batch)
        largest = max(largest, header.max_timestamp_ms)
        if position and since > interval_bytes:
            index += OFFSET_ENTRY.pack(header.last_offset - base, position)
            times += TIME_ENTRY.pack(largest, header.last_offset - base)
            since = 0
        position, since = position + len(batch), since + len(batch)
    path.with_suffix(".index").write_bytes(index + bytes(8 * 20))
    path.with_suffix(".timeindex").write_bytes(times + bytes(12 * 20))
    return path


def one(*log_dirs: Path) -> tuple[Row, list[str]]:
    problems: list[str] = []
    (row,) = log_ends(log_dirs, START_MS, None, problems).to_pylist()
    return row, problems


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_every_codec(tmp_path: Path, codec: int) -> None:
    write(tmp_path, [data(0, 10, codec), data(10, 10, codec)])
    assert one(tmp_path)[0]["log_end_offset"] == 20
    found = timestamps_at([tmp_path], {("orders", 0): [3, 13, 20]})
    assert list(found.values()) == [START_MS + 3000, START_MS + 13000, None]
    table = times_table(found)
    assert table.schema == TIMES
    assert table.to_pylist()[1] == {"topic": "orders", "partition": 0, "offset": 13, "timestamp_ms": START_MS + 13000}


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_a_torn_tail_is_not_counted(tmp_path: Path, lost: int) -> None:
    path = write(tmp_path, [data(0, 5), data(5, 5)])
    path.write_bytes(path.read_bytes()[:-lost])
    row, problems = one(tmp_path)
    assert (row["log_end_offset"], row["last_stable_offset"], row["data_end_offset"]) == (5, 5, 5)
    assert "orders-0/00000000000000000000.log" in problems[0]
    assert "end at offset 5" in problems[0]


def test_zeros_behind_the_last_batch(tmp_path: Path) -> None:
    path = write(tmp_path, [data(0, 5)])
    path.write_bytes(path.read_bytes() + bytes(4096))
    row, problems = one(tmp_path)
    assert row["log_end_offset"] == 5
    assert len(problems) == 1


def test_a_flipped_bit_in_the_last_batch_and_in_one_that_is_asked_for(tmp_path: Path) -> None:
    batches = [data(0, 5), data(5, 5), data(10, 5)]
    path = write(tmp_path, batches)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 16
    damaged[len(batches[0]) - 2] ^= 16  # a value: only the checksum can tell
    path.write_bytes(damaged)
    row, problems = one(tmp_path)
    assert (row["log_end_offset"], row["newest_timestamp_ms"]) == (10, START_MS + 9000)
    assert "CRC" in problems[0]
    found = timestamps_at([tmp_path], {("orders", 0): [2, 7]}, problems)
    assert list(found.values()) == [None, START_MS + 7000]
    assert "orders-0 at offset 2 is unknown" in problems[-1]


@pytest.mark.parametrize("what", ["missing", "empty", "noise", "wrong", "shifted"])
def test_indexes_are_hints(tmp_path: Path, what: str) -> None:
    path = write(tmp_path, [data(5 * number, 5) for number in range(40)])
    for suffix in (".index", ".timeindex"):
        file = path.with_suffix(suffix)
        if what == "missing":
            file.unlink()
        elif what == "empty":
            file.write_bytes(b"")
        elif what == "noise":
            file.write_bytes(Random(suffix).randbytes(480))
        else:  # bytes where no batch begins, or where another one does
            position = 100 if what == "wrong" else 20 * len(data(0, 5))
            entry = OFFSET_ENTRY.pack(9, position) if suffix == ".index" else TIME_ENTRY.pack(START_MS * 2, 9)
            file.write_bytes(entry * 20)
    row, problems = one(tmp_path)
    assert (row["log_end_offset"], row["newest_timestamp_ms"], problems) == (200, START_MS + 199_000, [])
    found = timestamps_at([tmp_path], {("orders", 0): range(0, 200, 7)})
    assert found == {("orders", 0, offset): START_MS + 1000 * offset for offset in range(0, 200, 7)}


def test_many_markers_at_the_end(tmp_path: Path) -> None:
    write(tmp_path, [data(0, 5), *(marker(offset, 7) for offset in range(5, 60))])
    write(tmp_path, [marker(offset, 7) for offset in range(60, 90)], base=60)
    assert one(tmp_path)[0]["data_end_offset"] == 5
    write(tmp_path, [], base=90)  # just rolled
    row, problems = one(tmp_path)
    assert (row["log_end_offset"], row["data_end_offset"], problems) == (90, 5, [])


def test_nothing_but_markers_is_no_data(tmp_path: Path) -> None:
    write(tmp_path, [marker(offset, 7) for offset in range(40, 60)], base=40)
    row, _ = one(tmp_path)
    assert (row["log_start_offset"], row["data_end_offset"], row["log_end_offset"]) == (40, 40, 60)
    assert timestamps_at([tmp_path], {("orders", 0): [0]}) == {("orders", 0, 0): None}


def test_records_that_were_deleted_below_the_start(tmp_path: Path) -> None:
    write(tmp_path, [data(0, 10), data(10, 10)])
    write_offsets(REAL_FILES, tmp_path / LOG_STARTS, {TopicPartition("orders", 0): 4})
    assert one(tmp_path)[0]["log_start_offset"] == 4
    assert timestamps_at([tmp_path], {("orders", 0): [0]}) == {("orders", 0, 0): START_MS + 4000}


def test_of_replicas_the_one_that_reaches_furthest(tmp_path: Path) -> None:
    for broker, count in ("a", 2), ("b", 3), ("c", 1):
        write(tmp_path / broker, [data(offset) for offset in range(count)])
    (tmp_path / "b" / "orders-0" / PARTITION_METADATA).write_text("version: 0\ntopic_id: XMO6U_G7TWuNubZD6ebY1w")
    write(tmp_path / "c", [data(0)], "payments-1")
    (tmp_path / "c" / "payments-2").mkdir()
    problems: list[str] = []
    rows = log_ends([tmp_path / broker for broker in "abc"], START_MS, None, problems).to_pylist()
    assert [(row["topic"], row["partition"], row["log_end_offset"], row["topic_id"]) for row in rows] == [
        ("orders", 0, 3, "XMO6U_G7TWuNubZD6ebY1w"),
        ("payments", 1, 1, None),
    ]
    assert problems == ["payments-2 has no segments."]
    found = timestamps_at([tmp_path / broker for broker in "abc"], {("orders", 0): [2], ("nowhere", 0): [1]})
    assert found == {("orders", 0, 2): START_MS + 2000}


def test_a_deleted_topic_is_gone(tmp_path: Path) -> None:
    write(tmp_path, [data(0)], "doomed-0.0c9e3d5b0c9e3d5b0c9e3d5b0c9e3d5b-delete")
    write(tmp_path, [data(0)], "moved-0.0c9e3d5b0c9e3d5b0c9e3d5b0c9e3d5b-future")
    write(tmp_path, [data(0)])
    shutil.copy(tmp_path / "orders-0" / f"{0:020}.log", tmp_path / "orders-0" / f"{5:020}.log.deleted")
    assert ends(tmp_path).keys() == {("orders", 0)}


def test_small_files_that_are_damaged_cost_only_what_they_say(tmp_path: Path) -> None:
    write(tmp_path, [data(0, 5, producer=1)])
    (tmp_path / LOG_STARTS).write_text("0\n9\nnonsense\n")
    (tmp_path / "orders-0" / PARTITION_METADATA).write_text("version: 0\ntopic_id: no")
    (tmp_path / "orders-0" / f"{3:020}.snapshot").write_bytes(b"\0\1nonsense")
    row, problems = one(tmp_path)
    assert (row["log_start_offset"], row["log_end_offset"], row["last_stable_offset"]) == (0, 5, 0)
    assert row["topic_id"] is None
    assert [LOG_STARTS in problems[0], "topic_id is unknown" in problems[1], len(problems)] == [True, True, 2]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    problems: list[str] = []
    assert log_ends([tmp_path / "no"], START_MS, None, problems).num_rows == 0
    assert "cannot be listed" in problems[-1]


# Transactions at random, against a scan of everything.


def transactions(random: Random, count: int) -> Iterator[tuple[bytes, int, int, bool]]:
    """Batches of some producers: the bytes, producer, last offset, and whether it is a marker."""
    offset = 0
    for _ in range(count):
        producer = random.randrange(-1, 4)
        if producer >= 0 and random.random() < 0.4:
            yield marker(offset, producer, commit=random.random() < 0.5), producer, offset, True
            offset += 1
        else:
            size = random.randrange(1, 4)
            yield data(offset, size, random.choice([NONE, ZSTD]), producer), producer, offset + size - 1, False
            offset += size


@pytest.mark.parametrize("seed", range(30))
def test_random_transactions(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(data_log, "WINDOW_BYTES", random.choice([64, 90, 1000, 1 << 20]))  # less than some batches
    monkeypatch.setattr(data_log, "BATCHES_AT_ONCE", random.choice([1, 3, 1000]))
    batches = list(transactions(random, random.randrange(1, 60)))
    opened: dict[int, int] = {}
    first = data_end = 0
    producers = ProducerStates()
    rolls = sorted({0, *(random.randrange(len(batches)) for _ in range(random.randrange(3))), len(batches)})
    for start, end in pairwise(rolls):
        base = first
        if start and random.random() < 0.7:
            (tmp_path / "orders-0" / f"{base:020}.snapshot").write_bytes(producers.snapshot())
        for batch, producer, last_offset, is_marker in batches[start:end]:
            producers.replay(read_header(batch), batch)
            if is_marker:
                opened.pop(producer, None)
            else:
                data_end = last_offset + 1
                if producer >= 0:
                    opened.setdefault(producer, first)
            first = last_offset + 1
        write(tmp_path, [batch for batch, *_ in batches[start:end]], base=base, interval_bytes=random.choice([0, 500]))
    row, problems = one(tmp_path)
    assert problems == []
    assert row["log_end_offset"] == first
    assert row["last_stable_offset"] == min(opened.values(), default=first)
    assert row["data_end_offset"] == data_end
