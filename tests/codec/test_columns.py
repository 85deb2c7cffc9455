"""The columnar door against the row-wise codec: on what real brokers wrote, on made-up logs, and on damage."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.columns import arrow, chunks, kernels, schema
from muster.codec.columns.arrow import decode, to_arrow
from muster.codec.columns.chunks import Scratch, decode_chunk, with_slack
from muster.codec.columns.scan import SCAN_FULL
from muster.codec.offsets_topic import GroupKey, OffsetKey, encode_key
from muster.codec.primitives import Writer
from muster.codec.records import TRANSACTIONAL, Record
from muster.segments.sources import Sources
from tests.codec.corpus_records import CORPORA, NAMES, one_of_each_kind, records
from tests.codec.rowwise import rows_of
from tests.codec.strategies import BLOB, bounded


@pytest.mark.parametrize("name", NAMES)
def test_columns_of_a_real_log_equal_the_rows(name: str) -> None:
    compared = 0
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            data = b"".join(segment.path.read_bytes() for segment in partition.segments)
            if name.startswith("damaged"):  # the row of batches breaks off: compare segment by segment
                data = max((segment.path.read_bytes() for segment in partition.segments), key=len)
            table = decode(data, partition=partition.partition)
            table.validate(full=True)
            assert table.schema == schema.RECORDS
            assert table.to_pylist() == rows_of(data, partition.partition)
            compared += table.num_rows
    assert compared >= (1 if name.startswith("damaged") else len(records(name))) > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("damaged")])
def test_columns_of_every_damaged_segment_equal_the_rows(name: str) -> None:
    compared = 0
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for segment in sources.segments:
            data = segment.path.read_bytes()
            found = decode(data).to_pylist()
            assert found == rows_of(data)
            compared += len(found)
    assert compared


def test_columns_do_not_depend_on_where_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _corpus_bytes("k26-formats") + _corpus_bytes("mini-zstd-43")
    whole = decode(data).to_pylist()
    monkeypatch.setattr(chunks, "RECORD_ROOM", 7)
    monkeypatch.setattr(chunks, "UNPACKED_ROOM", 500)
    assert decode(data).to_pylist() == whole
    assert whole == rows_of(data)


def _corpus_bytes(name: str) -> bytes:
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        return b"".join(segment.path.read_bytes() for segment in sources.partitions[0].segments)


def test_chosen_rows_are_those_rows() -> None:
    data = _corpus_bytes("k43-all")
    chunk = decode_chunk(with_slack(data), 0, len(data), Scratch(), arrow.markers_in(with_slack(data), len(data)))
    rows = np.arange(0, len(chunk.records), 3)
    assert to_arrow(chunk, None, rows).to_pylist() == rows_of(data)[::3]
    assert to_arrow(chunk, None, rows[:0]).num_rows == 0


def test_nothing_at_all() -> None:
    assert decode(b"").num_rows == 0


T = 1_700_000_000_000


@st.composite
def awkward(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    """A real key and value of any kind, perhaps with a few bytes changed, cut, or added; or anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.none() | BLOB), draw(st.none() | BLOB)
    kinds = [(record.key, record.value) for record in one_of_each_kind().values()]
    key, value = draw(st.sampled_from(kinds))
    return draw(mangled(key)), draw(st.none() | mangled(value or b""))


def mangled(data: bytes) -> st.SearchStrategy[bytes]:
    changed = st.builds(
        lambda place, byte: data[: place % (len(data) or 1)] + bytes([byte]) + data[place % (len(data) or 1) + 1 :],
        st.integers(0, 2000),
        st.integers(0, 255),
    )
    return st.one_of(
        st.just(data),
        changed,
        st.integers(0, len(data)).map(lambda cut: data[:cut]),
        BLOB.map(lambda more: data + more),
    )


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of awkward records: plain, packed, transactional, with markers in between, and a torn end."""
    parts: list[bytes] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        producer = draw(st.sampled_from([-1, -1, 5, 6]))
        if producer >= 0 and draw(st.booleans()):
            parts.append(encode_marker(offset, T, producer, 0, commit=draw(st.booleans()), coordinator_epoch=3))
            offset += 1
            continue
        pairs = draw(st.lists(awkward(), min_size=0, max_size=4))
        records = [Record(offset + n, T + n, key, value) for n, (key, value) in enumerate(pairs)]
        batch = encode_batch(
            records,
            base_offset=offset,
            last_offset=offset + len(records),
            codec=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
            attributes=TRANSACTIONAL if producer >= 0 else 0,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
        )
        if draw(st.integers(0, 7)) == 0:
            batch = _with_a_flipped_bit(batch, draw(st.integers(16 * 8, len(batch) * 8 - 1)))
        parts.append(batch)
        offset += len(records) + 1 + draw(st.integers(0, 3))
    data = b"".join(parts)
    return data[: len(data) - draw(st.sampled_from([0, 0, 1, 30]))]


def _with_a_flipped_bit(batch: bytes, bit: int) -> bytes:
    broken = bytearray(batch)
    broken[bit // 8] ^= 1 << (bit % 8)
    return bytes(broken)


@bounded
@given(logs())
def test_columns_of_any_log_equal_the_rows(data: bytes) -> None:
    table = decode(data)
    table.validate(full=True)
    assert table.to_pylist() == rows_of(data)


@bounded
@given(st.lists(st.tuples(awkward(), st.booleans()), max_size=6))
def test_every_truncation_of_a_log_is_read(pairs: Sequence[tuple[tuple[bytes | None, bytes | None], bool]]) -> None:
    data = b"".join(encode_batch([Record(n, T, *pair)], codec=int(packed)) for n, (pair, packed) in enumerate(pairs))
    for cut in range(0, len(data), max(1, len(data) // 25)):
        assert decode(data[:cut]).num_rows <= len(pairs)


@bounded
@given(st.binary(max_size=300))
def test_any_bytes_are_survived(data: bytes) -> None:
    assert decode(data).to_pylist() == rows_of(data)


@pytest.mark.parametrize(
    "name", [b"\xff", b"ok\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", "😀é".encode(), b"a" * 40 + b"\x80"]
)
def test_names_that_are_not_utf8_read_as_in_java(name: bytes) -> None:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(2, "big") + data

    key = b"\0\x01" + text(b"g" + name) + text(name) + bytes(4)
    value = b"\0\x03" + bytes(12) + text(name) + bytes(8)
    plain = b"\0\x01" + text(b"g") + text(b"t") + bytes(4)
    data = encode_batch([Record(0, T, plain, value), Record(1, T, key, value), Record(2, T, key, None)])
    table = decode(data)
    table.validate(full=True)
    assert table.to_pylist() == rows_of(data)


@pytest.mark.parametrize(("size", "is_readable"), [(0x7FFF, True), (0x8000, False)])
def test_a_compact_text_longer_than_kafka_reads_it_is_a_bad_record(size: int, is_readable: bool) -> None:
    text = Writer()
    text.compact_bytes(b"x" * size)
    commit = b"\x00\x04" + bytes(12) + text.finish() + bytes(8) + b"\x00"
    group = b"\x00\x04" + text.finish() + bytes(4) + b"\x00\x00" + bytes(8) + b"\x01\x00"
    records = [
        Record(0, 0, encode_key(OffsetKey("g", "t", 0)), commit),
        Record(1, 0, encode_key(GroupKey("g")), group),
    ]
    data = encode_batch(records)
    rows = decode(data).to_pylist()
    assert rows == rows_of(data)
    assert [row["unread"] is None for row in rows] == [is_readable] * 2


def test_crc_of_both_implementations() -> None:
    import crc32c

    data = with_slack(bytes(range(256)) * 3)
    for start, end in ((0, 0), (0, 1), (3, 19), (0, 768), (5, 700)):
        assert _crc(data, start, end) == crc32c.crc32c(data[start:end].tobytes())
        assert _crc_by_tables(data, start, end) == crc32c.crc32c(data[start:end].tobytes())


def _crc(data: chunks.Bytes, start: int, end: int) -> int:
    return int(kernels.crc32c(data, start, end))


def _crc_by_tables(data: chunks.Bytes, start: int, end: int) -> int:
    """What a CPU without the instruction runs."""
    crc = np.uint64(0xFFFFFFFF)
    while start + 8 <= end:
        crc = kernels._crc_step_tables(crc, np.uint64(int.from_bytes(data[start : start + 8].tobytes(), "little")))
        start += 8
    for byte in data[start:end].tolist():
        crc = np.uint64(kernels.CRC_TABLES[0, (int(crc) ^ byte) & 0xFF]) ^ (crc >> np.uint64(8))
    return int(crc) ^ 0xFFFFFFFF


def test_a_length_of_two_gigabytes_costs_nothing() -> None:
    data = bytearray(encode_batch([Record(0, T, b"\0\x02\0\x01g", None)]))
    data[57:61] = (0x7FFFFFFF).to_bytes(4, "big")  # two billion records in a few bytes
    buffer = with_slack(bytes(data))
    chunk = decode_chunk(buffer, 0, len(data), Scratch())
    assert len(chunk.records) == 0
    assert len(chunk.problems) == 1


def test_reading_commits_imports_no_pandas() -> None:
    """It would cost 40 MB and 0.3 s, and a record batch needs none of it."""
    code = (
        "import sys; from muster.codec.columns.arrow import decode; from muster.codec.batches import encode_batch; "
        "from muster.codec.records import Record; "
        "decode(encode_batch([Record(0, 1, bytes.fromhex('0001000267310002743100000003'), None)])); "
        "import json; print(json.dumps([name for name in ('pandas', 'pyspark') if name in sys.modules]))"
    )
    assert json.loads(subprocess.check_output([sys.executable, "-c", code], text=True)) == []


@pytest.mark.long
def test_a_cpu_without_the_crc_instruction_compiles_its_own_code(tmp_path: Path) -> None:
    """The cache of another machine is not run blindly, and the slow way gives the same columns."""
    code = (
        "import sys; from muster.codec.columns.arrow import decode; print(decode(sys.stdin.buffer.read()).to_pylist())"
    )
    data = _corpus_bytes("k26")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    answers = [
        subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, check=True, env=environment | more
        ).stdout
        for more in ({}, {"NUMBA_CPU_NAME": "generic"})
    ]
    assert answers[0] == answers[1] == repr(rows_of(data)).encode() + b"\n"


def test_the_scan_resumes_where_it_stopped() -> None:
    data = b"".join(encode_batch([Record(n, T, b"\0\x02\0\x01g", None)]) for n in range(10))
    buffer, scratch = with_slack(data), Scratch(batches=np.empty((3, 20), np.int64))
    position, seen = 0, []
    while True:
        chunk = decode_chunk(buffer, position, len(data), scratch)
        seen += chunk.records[:, 0].tolist()
        if chunk.stop != SCAN_FULL:
            break
        position = chunk.next_position
    assert seen == list(range(10))


def test_a_forgiving_reader_shows_old_messages_with_a_bad_checksum() -> None:
    from tests.codec.test_legacy import message

    data = bytearray(message(1, b"\0\x02\0\x01g", None))
    data[-1] ^= 1  # the value's length is -2 now, which reads as null
    buffer = with_slack(bytes(data))
    assert len(decode_chunk(buffer, 0, len(data), Scratch()).records) == 0
    chunk = decode_chunk(buffer, 0, len(data), Scratch(), forgiving=True)
    assert len(chunk.records) == 1
    assert [problem.reason[:8] for problem in chunk.problems] == ["says CRC"]
