"""The newest-per-key table against a plain model: dictionaries over the row-wise codec."""

import csv
import gzip
import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.batches import ReadBatch, decode_control, encode_batch, encode_marker, iter_batches
from muster.codec.columns import latest, scan
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk, with_slack
from muster.codec.columns.commits import C_KIND, C_TYPE, C_VERSION, K_CONTROL, T_COMMITS
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.latest import LatestTable, batch_offsets
from muster.codec.offsets_topic import OffsetKey, OffsetValue, decode_key, decode_value, encode_key, encode_offset_value
from muster.codec.records import TRANSACTIONAL, Record
from muster.codec.transaction_outcomes import ABORTED, COMMITTED, NO_TRANSACTION, OPEN, Markers
from muster.errors import CodecError
from muster.segments.reader import read_partition
from muster.segments.sources import Sources
from tests.codec.corpus_records import NAMES
from tests.codec.strategies import bounded

CORPORA = Path(__file__).parent.parent / "corpus"
MAKE_LARGE = Path(__file__).parent.parent.parent / "bench" / "make_large.py"


class Survivor(NamedTuple):
    log_offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    batch_offset: int
    producer_id: int
    producer_epoch: int
    outcome: int


class Marker(NamedTuple):
    producer_id: int
    offset: int
    commits: bool


class Expected(NamedTuple):
    survivors: list[Survivor]
    distinct_keys: int
    control_records: int
    null_keys: int


def batches_of(pieces: Iterable[bytes]) -> Iterator[ReadBatch]:
    """What can be read of each piece, up to where its row of batches breaks off."""
    for data in pieces:
        try:
            yield from iter_batches(data)
        except CodecError:
            continue


def markers_of(batches: Sequence[ReadBatch]) -> list[Marker]:
    return [
        Marker(batch.header.producer_id, batch.header.base_offset, bool(decode_control(record).type))
        for batch in batches
        if batch.header.is_control
        for record in batch.records
    ]


def outcome_of(batch: ReadBatch, markers: Sequence[Marker]) -> int:
    if not batch.header.is_transactional:
        return NO_TRANSACTION
    for marker in markers:
        if marker.producer_id == batch.header.producer_id and marker.offset > batch.header.base_offset:
            return COMMITTED if marker.commits else ABORTED
    return OPEN


def identity_of(key: bytes | None) -> object:
    try:
        decoded = decode_key(key) if key is not None else None
    except CodecError:
        return key
    return decoded._replace(record_type=1) if isinstance(decoded, OffsetKey) else key


def expected_of(pieces: Iterable[bytes]) -> Expected:
    batches = list(batches_of(pieces))
    markers = markers_of(batches)
    newest: dict[object, Survivor] = {}
    transactional: list[Survivor] = []
    control_records = null_keys = 0
    for batch in batches:
        header = batch.header
        if header.is_control:
            control_records += len(batch.records)
            continue
        outcome = outcome_of(batch, markers)
        for record in batch.records:
            null_keys += record.key is None
            survivor = Survivor(
                record.offset, record.timestamp_ms, record.key, record.value, batch.records[0].offset,
                header.producer_id, header.producer_epoch, outcome,
            )  # fmt: skip
            if header.is_transactional:
                transactional.append(survivor)
            else:
                newest[identity_of(record.key)] = survivor
    return Expected(sorted([*newest.values(), *transactional]), len(newest), control_records, null_keys)


def field(chunk: Chunk, position: int, length: int) -> bytes | None:
    return None if length < 0 else chunk.buffer[position : position + length].tobytes()


def survivors_in(chunk: Chunk) -> list[Survivor]:
    rows = []
    for record, batch_offset in zip(chunk.records.tolist(), batch_offsets(chunk).tolist(), strict=True):
        batch = chunk.batches[record[scan.R_BATCH]].tolist()
        rows.append(
            Survivor(
                record[scan.R_OFFSET],
                record[scan.R_TIMESTAMP],
                field(chunk, record[scan.R_KEY], record[scan.R_KEY_LENGTH]),
                field(chunk, record[scan.R_VALUE], record[scan.R_VALUE_LENGTH]),
                batch_offset,
                batch[scan.B_PRODUCER_ID],
                batch[scan.B_PRODUCER_EPOCH],
                batch[scan.B_OUTCOME],
            )
        )
    return rows


def survivors_of(table: LatestTable) -> list[Survivor]:
    return [survivor for chunk in table.survivors() for survivor in survivors_in(chunk)]


def assert_as_expected(table: LatestTable, expected: Expected) -> None:
    assert survivors_of(table) == expected.survivors
    assert len(table) == len(expected.survivors)
    assert table.distinct_keys == expected.distinct_keys
    assert len(table) - table.distinct_keys == len(expected.survivors) - expected.distinct_keys
    assert table.control_records == expected.control_records
    assert table.null_keys == expected.null_keys


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that begin so small that everything has to grow, and is handed out in many pieces."""
    make_cramped(monkeypatch)


def make_cramped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(latest, "SMALLEST_ARENA", 64 + 128)
    patch.setattr(latest, "SMALLEST_INDEX", 4)
    patch.setattr(latest, "PIECE_RECORDS", 7)
    patch.setattr(latest, "PIECE_BYTES", 300)


CORPUS_NAMES = sorted(path.parent.name for path in CORPORA.glob("*/*.tar.zst"))
Kinds = dict[int, list[int]]


def kinds_of(chunk: Chunk) -> Kinds:
    """What each record is, by its offset."""
    classes = chunk.classes[:, [C_KIND, C_TYPE, C_VERSION]].tolist()
    return dict(zip(chunk.records[:, scan.R_OFFSET].tolist(), classes, strict=True))


@pytest.mark.parametrize("name", CORPUS_NAMES)
def test_the_survivors_of_a_real_log_are_those_of_the_model(name: str, cramped: None) -> None:
    survivors = 0
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            table, kinds = LatestTable(), Kinds()
            for part in read_partition(partition, Scratch(), []):
                table.update(part.chunk)
                kinds |= kinds_of(part.chunk)
            assert_as_expected(table, expected_of(segment.path.read_bytes() for segment in partition.segments))
            for chunk in table.survivors():
                assert kinds_of(chunk).items() <= kinds.items()
                survivors += len(chunk.records)
    assert survivors


def test_survivors_come_as_chunks_for_the_same_consumers() -> None:
    with Sources([CORPORA / "k43-full" / "k43-full.tar.zst"]) as sources:
        table = LatestTable()
        for part in read_partition(sources.partitions[0], Scratch(), []):
            table.update(part.chunk)
    (chunk,) = table.survivors()
    rows = np.arange(len(table))
    assert (chunk.records[:, scan.R_BATCH] == rows).all()
    assert (chunk.batches[:, scan.B_FIRST_RECORD] == rows).all()
    assert (chunk.batches[:, [scan.B_COUNT, scan.B_RECORDS]] == 1).all()
    assert (chunk.batches[:, scan.B_STATE] == scan.GOOD).all()
    assert (np.diff(chunk.records[:, scan.R_OFFSET]) > 0).all()
    assert (chunk.classes[:, C_KIND] != K_CONTROL).all()
    transactional = (chunk.batches[:, scan.B_ATTRIBUTES] & TRANSACTIONAL) != 0
    assert (transactional == (chunk.batches[:, scan.B_OUTCOME] != NO_TRANSACTION)).all()
    assert chunk.totals[T_COMMITS] == (chunk.classes[:, C_TYPE] == 1).sum()
    ends = chunk.records[:, scan.R_VALUE] + chunk.records[:, scan.R_VALUE_LENGTH]
    assert ends.max() + SLACK <= len(chunk.buffer)


# Random logs: few keys, all of them awkward neighbours of one another.

COMMIT = encode_key(OffsetKey("g", "t", 0))
KEYS: list[bytes | None] = [
    COMMIT,
    encode_key(OffsetKey("g", "t", 0, record_type=0)),  # the same key
    COMMIT + b"\x07",  # and so is this: what follows the partition is not read
    COMMIT + b"\x08",
    COMMIT[2:],  # not a commit, though its bytes are those that are compared in one
    encode_key(OffsetKey("g", "t", 1)),
    encode_key(OffsetKey("g" * 40, "t" * 30, 0)),
    encode_key(OffsetKey("g" * 40, "t" * 30, 1)),
    b"\0\2\0\1g",
    b"\0\3\0\1g",
    b"\0\5\0\1g\0\1m",
    b"\0\x63of a later release",
    b"\0\1\0\5ab",  # too short for what it says
    b"\0\1\0\1g\0\1t\0\0\0",
    b"\0",
    b"",
    None,
]
VALUES = st.one_of(
    st.none(),
    st.builds(
        lambda offset, size, version: encode_offset_value(OffsetValue(offset, metadata="m" * size), version),
        st.integers(0, 2**40),
        st.sampled_from([0, 1, 3, 4, 20, 90]),
        st.sampled_from([1, 3, 4]),
    ),
    st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 255), st.sampled_from([0, 1, 7, 8, 9, 33, 500])),
)
Content = tuple[bytes | None, bytes | None]
BatchPlan = tuple[str, list[Content], int]
"""What kind of batch, what is in it, and whose."""

CONTENTS = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=30)
PRODUCERS = st.sampled_from([1, 2])
BATCHES: st.SearchStrategy[BatchPlan] = st.one_of(
    st.tuples(st.just("plain"), CONTENTS, st.just(-1)),
    st.tuples(st.just("plain"), CONTENTS, st.just(-1)),
    st.tuples(st.just("transactional"), CONTENTS, PRODUCERS),
    st.tuples(st.sampled_from(["commit", "abort"]), st.just([]), PRODUCERS),
)
LOGS = st.lists(st.tuples(BATCHES, st.integers(0, 2), st.booleans()), max_size=25)
"""Batches, each with the offsets missing before it, and whether a new chunk begins with it."""


def encoded(log: list[tuple[BatchPlan, int, bool]]) -> list[bytes]:
    chunks, offset = [b""], 10
    for (kind, contents, producer_id), gap, new_chunk in log:
        if new_chunk:
            chunks.append(b"")
        offset += gap
        if kind in ("commit", "abort"):
            batch = encode_marker(offset, 5000 + offset, producer_id, 3, commit=kind == "commit", coordinator_epoch=1)
        else:
            records = [Record(offset + n, 5000 + offset, key, value) for n, (key, value) in enumerate(contents)]
            batch = encode_batch(
                records,
                base_offset=offset - gap,  # the offsets missing are those of records that compaction took
                attributes=TRANSACTIONAL if kind == "transactional" else 0,
                producer_id=producer_id,
                producer_epoch=3 if producer_id >= 0 else -1,
            )
        chunks[-1] += batch
        offset += max(len(contents), 1)
    return chunks


def chunks_from(pieces: list[bytes]) -> Iterator[Chunk]:
    rows = [(m.producer_id, m.offset, int(m.commits)) for m in markers_of(list(batches_of(pieces)))]
    markers = Markers.of(np.array(rows, np.int64).reshape(-1, 3))
    scratch = Scratch()
    for data in pieces:
        yield decode_chunk(with_slack(data), 0, len(data), scratch, markers)


@bounded
@given(LOGS, st.booleans())
def test_the_survivors_of_any_log_are_those_of_the_model(
    log: list[tuple[BatchPlan, int, bool]], all_hashes_collide: bool
) -> None:
    pieces = encoded(log)
    with pytest.MonkeyPatch.context() as patch:
        make_cramped(patch)
        if all_hashes_collide:
            patch.setattr(latest, "_random_word", lambda: np.uint64(0))  # the last factor: every hash is 0 then
        table = LatestTable()
        for piece, chunk in zip(pieces, chunks_from(pieces), strict=True):
            first_offsets = [batch.records[0].offset for batch in batches_of([piece]) for _ in batch.records]
            assert batch_offsets(chunk).tolist() == first_offsets
            table.update(chunk)
        assert_as_expected(table, expected_of(pieces))
        assert_as_expected(table, expected_of(pieces))  # reading changes nothing


def one_chunk(contents: list[Content]) -> Chunk:
    (chunk,) = chunks_from(encoded([(("plain", contents, -1), 0, False)]))
    return chunk


def test_a_batch_begins_at_the_first_record_that_is_left_of_it() -> None:
    log = encoded([(("plain", [(b"\0\2\0\1g", None)] * 3, -1), 5, False), (("plain", [(None, b"")], -1), 0, False)])
    (chunk,) = chunks_from(log)
    assert chunk.batches[:, scan.B_BASE_OFFSET].tolist() == [10, 18]
    assert batch_offsets(chunk).tolist() == [15, 15, 15, 18]
    table = LatestTable()
    table.update(chunk)
    assert [survivor.batch_offset for survivor in survivors_of(table)] == [15, 18]


def test_a_tombstone_of_type_1_takes_the_place_of_a_type_0_commit() -> None:
    table = LatestTable()
    table.update(one_chunk([(KEYS[1], b"\0\0 of long ago"), (KEYS[0], None)]))
    (survivor,) = survivors_of(table)
    assert (survivor.key, survivor.value) == (COMMIT, None)


@pytest.mark.parametrize("endings", [(b"\7", b"\x08"), (b"\7", b""), (b"", b"\7")])
def test_bytes_behind_the_partition_are_kept_but_make_no_other_key(endings: tuple[bytes, bytes]) -> None:
    table = LatestTable()
    table.update(one_chunk([(COMMIT + ending, b"value") for ending in endings]))
    (survivor,) = survivors_of(table)
    assert (survivor.key, survivor.value) == (COMMIT + endings[1], b"value")


@pytest.mark.parametrize(
    "size_of",
    [lambda turn, number: 100, lambda turn, number: (turn * 37 + number * 11) % 900, lambda turn, number: turn],
    ids=["same", "mixed", "growing"],
)
def test_memory_follows_the_newest_values_and_not_the_log(size_of: Callable[[int, int], int]) -> None:
    """100 turns over 400 keys: a hundred times as many bytes as are alive at any time."""
    keys = [b"\0\x63key %d" % number for number in range(400)]
    table = LatestTable()
    for turn in range(0, 900, 9):
        table.update(one_chunk([(key, b"v" * size_of(turn, number)) for number, key in enumerate(keys)]))
    assert table.distinct_keys == 400
    largest = 400 * (900 + 24)
    empty = LatestTable().size_bytes
    assert table.size_bytes <= empty + 3 * largest
    assert [len(survivor.value or b"") for survivor in survivors_of(table)] == [size_of(891, n) for n in range(400)]


def test_many_keys_that_look_alike_stay_apart() -> None:
    table = LatestTable()
    total = 30_000
    for first in range(0, total, 1000):
        keys = [encode_key(OffsetKey("app", "orders", first + number)) for number in range(1000)]
        table.update(one_chunk([(key, key) for key in keys]))
        table.update(one_chunk([(key, key[::-1]) for key in keys]))
    kept = survivors_of(table)
    assert len({survivor.key for survivor in kept}) == table.distinct_keys == total
    assert all(survivor.key and survivor.value == survivor.key[::-1] for survivor in kept)


def resolved(partition: int, kept: list[Survivor]) -> Iterator[list[str]]:
    """The offset in force for each key, as rows of the generator's own account."""
    newest = {identity_of(row.key): row for row in kept if row.outcome in (NO_TRANSACTION, COMMITTED)}
    for key, row in newest.items():
        if isinstance(key, OffsetKey) and row.value is not None:
            _, value = decode_value(1, row.value)
            assert isinstance(value, OffsetValue)
            fields = (partition, *key[:3], value.committed_offset, value.commit_timestamp_ms)
            yield [str(part) for part in fields]


def test_resolving_the_survivors_gives_the_state_that_the_generator_meant(tmp_path: Path) -> None:
    arguments = ["--records", "200000", "--jobs", "1", "--gap-pct", "5", "--seed", "11", "--segment-bytes", "4000000"]
    subprocess.run(
        [sys.executable, str(MAKE_LARGE), *arguments, "--out", str(tmp_path)], check=True, capture_output=True
    )
    rows: list[list[str]] = []
    seen = 0
    scratch = Scratch()
    with Sources([tmp_path]) as sources:
        for partition in sources.partitions:
            table = LatestTable()
            for part in read_partition(partition, scratch, []):
                table.update(part.chunk)
                seen += len(part.chunk.records)
            assert partition.partition is not None
            rows.extend(resolved(partition.partition, survivors_of(table)))
    assert seen == 200_000
    account = gzip.decompress((tmp_path / "state.tsv.gz").read_bytes()).decode()
    meant = list(csv.reader(io.StringIO(account), delimiter="\t"))[1:]
    assert len(meant) > 1000
    assert sorted(rows) == sorted(meant)


@pytest.mark.parametrize("name", NAMES)
def test_the_columns_of_survivors_are_those_of_the_log(name: str) -> None:
    compared = 0
    for partition, rows in _columns_of_survivors(name):
        whole = {row["log_offset"]: row for row in partition}
        assert rows == [whole[row["log_offset"]] for row in rows]
        assert [row["log_offset"] for row in rows] == sorted(row["log_offset"] for row in rows)
        compared += len(rows)
    assert compared


def _columns_of_survivors(name: str) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    from muster.segments.reader import record_batches

    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            whole = [row for batch in record_batches(partition.directory) for row in batch.to_pylist()]
            newest = [row for batch in record_batches(partition.directory, latest=True) for row in batch.to_pylist()]
            yield whole, newest
