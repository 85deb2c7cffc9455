"""Message sets of magic 0 and 1: what real brokers of 0.8 to 0.11 wrote, and damage."""

import contextlib
import gzip
import json
import struct
import zlib
from pathlib import Path

import pytest

from muster.codec import compression, legacy
from muster.codec.batches import iter_batches, read_header
from muster.errors import CodecError, Malformed
from muster.segments.sources import Sources

CORPORA = Path(__file__).parent.parent / "corpus"


def message(
    magic: int, key: bytes | None, value: bytes | None, *, offset: int = 0, codec: int = 0, ms: int = 5
) -> bytes:
    body = struct.pack(">bB", magic, codec) + (struct.pack(">q", ms) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("name", ["k08-to-26", "k26-formats"])
def test_old_formats_of_real_brokers(name: str) -> None:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt") as lines:
        expected = [json.loads(line) for line in lines]
    wanted = [
        (record["partition"], record["offset"], record["timestamp"], record["keyHex"], record["valueHex"])
        for record in expected
        if record["batch"]["magic"] < 2
    ]
    assert {record["batch"]["magic"] for record in expected} >= {0, 1}
    found = []
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            for segment in partition.segments:
                for batch in iter_batches(segment.path.read_bytes()):
                    assert batch.problem is None
                    if batch.header.magic < 2:
                        found += [
                            (partition.partition, record.offset, record.timestamp_ms, (record.key or b"").hex(),
                             None if record.value is None else record.value.hex())
                            for record in batch.records
                        ]  # fmt: skip
    assert found == wanted


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_wrappers_give_absolute_offsets(magic: int, codec: int) -> None:
    inner = b"".join(
        message(magic, b"k", bytes([number]), offset=number if magic else 40 + number, ms=number) for number in range(3)
    )
    packed = compression.compress(codec, inner)
    data = message(magic, None, packed, offset=42, codec=codec, ms=77)
    (batch,) = iter_batches(data)
    assert [record.offset for record in batch.records] == [40, 41, 42]
    assert [record.timestamp_ms for record in batch.records] == ([0, 1, 2] if magic else [-1, -1, -1])
    assert legacy.inner_crcs(data, 0, read_header(data))[0][1]


def test_a_wrapper_stamped_by_the_broker_speaks_for_its_messages() -> None:
    packed = compression.compress(1, message(1, b"k", b"v", ms=3))
    (batch,) = iter_batches(message(1, None, packed, offset=9, codec=1 | 0x08, ms=77))
    assert [(record.offset, record.timestamp_ms) for record in batch.records] == [(9, 77)]


@pytest.mark.parametrize("magic", [0, 1])
def test_null_and_empty_fields(magic: int) -> None:
    (batch,) = iter_batches(message(magic, b"", None))
    assert [(record.key, record.value) for record in batch.records] == [(b"", None)]


@pytest.mark.parametrize("inside", [b"", b"\0" * 30, message(1, b"k", b"v")[:-1], message(1, None, b"x", codec=1)])
def test_damaged_wrappers_are_reported(inside: bytes) -> None:
    data = message(1, None, compression.compress(1, inside), codec=1)
    (batch,) = iter_batches(data)
    assert isinstance(batch.problem, CodecError)
    assert batch.records == []


def test_a_flipped_bit_is_noticed() -> None:
    data = bytearray(message(0, b"key", b"value"))
    data[-1] ^= 1
    (batch,) = iter_batches(bytes(data))
    assert isinstance(batch.problem, Malformed)
    assert "says CRC" in str(batch.problem)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_cut_short_at_every_byte(magic: int) -> None:
    data = message(magic, b"key", b"value")
    for cut in range(1, len(data)):
        with pytest.raises(CodecError):
            list(iter_batches(data[:cut]))
    for cut in range(26, len(data) - 12):  # a length that lies, with a checksum that agrees with it
        body = data[16:][: cut - 16]
        lying = data[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body
        with contextlib.suppress(CodecError):
            assert next(iter_batches(lying)).problem is not None
