import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.primitives import Reader, Writer, java_text
from muster.errors import CodecError, Malformed, Truncated
from tests.codec.strategies import BLOB, INT32, TEXT, UUIDS, bounded

ZIGZAG = {0: "00", -1: "01", 1: "02", 63: "7e", 64: "8001", -64: "7f", -65: "8101", 300: "d804"}

READS = [
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "boolean",
    "uvarint",
    "varint",
    "varlong",
    "uuid",
    "string",
    "nullable_string",
    "compact_string",
    "compact_nullable_string",
    "bytes_",
    "nullable_bytes",
    "compact_bytes",
    "compact_nullable_bytes",
    "array_count",
    "nullable_array_count",
    "compact_array_count",
    "compact_nullable_array_count",
    "int32_array",
    "compact_int32_array",
    "tagged_fields",
]

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uvarint": (0, 2**32 - 1),
    "varint": (-(2**31), 2**31 - 1),
    "varlong": (-(2**63), 2**63 - 1),
}

INT32S = st.lists(INT32, max_size=20).map(tuple)
TAGS = st.lists(st.tuples(st.integers(0, 2**32 - 1), BLOB), max_size=5).map(lambda fields: tuple(sorted(fields)))
VALUES = {
    "boolean": st.booleans(),
    "uuid": UUIDS,
    "string": TEXT,
    "nullable_string": st.none() | TEXT,
    "compact_string": TEXT,
    "compact_nullable_string": st.none() | TEXT,
    "bytes_": BLOB,
    "nullable_bytes": st.none() | BLOB,
    "compact_bytes": BLOB,
    "compact_nullable_bytes": st.none() | BLOB,
    "int32_array": INT32S,
    "compact_int32_array": INT32S,
    "tagged_fields": TAGS,
    **{kind: st.integers(low, high) for kind, (low, high) in INTEGERS.items()},
}


def written(kind: str, value: object) -> bytes:
    writer = Writer()
    getattr(writer, kind)(value)
    return writer.finish()


@pytest.mark.parametrize(("value", "encoded"), ZIGZAG.items())
def test_zigzag_of_the_specification(value: int, encoded: str) -> None:
    for kind in ("varint", "varlong"):
        assert written(kind, value).hex() == encoded
        assert getattr(Reader(bytes.fromhex(encoded)), kind)() == value


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_keep_their_extremes_and_nothing_beyond(kind: str) -> None:
    for value in INTEGERS[kind]:
        assert getattr(Reader(written(kind, value)), kind)() == value
    if "var" not in kind:
        with pytest.raises(struct.error):
            written(kind, INTEGERS[kind][1] + 1)


@bounded
@given(st.data())
def test_what_was_written_is_read_back_and_every_cut_is_truncated(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(VALUES[kind])
    encoded = written(kind, value)
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        reader = Reader(buffer)
        assert getattr(reader, kind)() == value
        assert (reader.position, reader.remaining) == (len(encoded), 0)
    for cut in range(len(encoded)):
        with pytest.raises(Truncated):
            getattr(Reader(encoded[:cut]), kind)()
        with pytest.raises(Truncated):  # the end is the reader's, not the buffer's
            getattr(Reader(encoded, end=cut), kind)()


@bounded
@given(st.sampled_from(READS), st.binary(max_size=30))
def test_arbitrary_bytes_raise_nothing_but_codec_errors(kind: str, data: bytes) -> None:
    reader = Reader(data)
    with contextlib.suppress(CodecError):
        getattr(reader, kind)()
    assert 0 <= reader.position <= len(data)


@pytest.mark.parametrize("kind", ["compact_string", "compact_nullable_string"])
def test_a_compact_text_has_32767_bytes_at_the_most(kind: str) -> None:
    writer = Writer()
    writer.compact_bytes(b"x" * 0x7FFF)
    assert len(getattr(Reader(writer.finish()), kind)()) == 0x7FFF
    writer = Writer()
    writer.compact_bytes(b"x" * 0x8000)
    with pytest.raises(Malformed, match="32768"):
        getattr(Reader(writer.finish()), kind)()
    with pytest.raises(Malformed, match="32768"):
        getattr(writer, kind)("x" * 0x8000)


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [
        ("string", "7fff"),
        ("bytes_", "7fffffff 0000"),
        ("nullable_bytes", "7fffffff 0000"),
        ("compact_string", "808002"),
        ("compact_bytes", "ffffffff0f 00"),
        ("array_count", "7fffffff 0000"),
        ("compact_array_count", "ffffffff0f 00"),
        ("int32_array", "7fffffff 0000"),
        ("tagged_fields", "ffffffff0f 0000"),
        ("tagged_fields", "01 00 ffffffff0f 00"),
    ],
)
def test_a_length_of_two_gigabytes_allocates_nothing(kind: str, encoded: str) -> None:
    reader = Reader(bytes.fromhex(encoded))
    tracemalloc.start()
    try:
        with pytest.raises(Truncated):
            getattr(reader, kind)()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [
        ("string", "ffff"),  # null where null is not allowed
        ("string", "fffe"),
        ("nullable_string", "fffe"),
        ("compact_string", "00"),
        ("bytes_", "ffffffff"),
        ("nullable_bytes", "fffffffe"),
        ("compact_bytes", "00"),
        ("array_count", "ffffffff"),
        ("nullable_array_count", "80000000"),
        ("compact_array_count", "00"),
        ("uvarint", "8080808080 00"),
        ("uvarint", "ffffffff10"),  # bit 33
        ("varint", "ffffffffff 01"),
        ("varlong", "ffffffffffffffffffff 00"),
        ("varlong", "ffffffffffffffffff 02"),  # bit 65
    ],
)
def test_lengths_and_varints_that_mean_nothing_are_malformed(kind: str, encoded: str) -> None:
    with pytest.raises(Malformed):
        getattr(Reader(bytes.fromhex(encoded)), kind)()


def test_a_count_is_checked_before_its_elements_are_read() -> None:
    with pytest.raises(Truncated, match="3 tagged fields"):
        Reader(bytes.fromhex("03 00 00 00 00 00")).tagged_fields()
    with pytest.raises(Truncated, match="an array of 5"):
        Reader(bytes.fromhex("06 00 00 00 00")).compact_array_count()
    assert Reader(bytes.fromhex("06 00 00 00 00 00")).compact_array_count() == 5


def test_a_padded_varint_is_read_as_kafka_reads_it() -> None:
    assert Reader(bytes.fromhex("8100")).uvarint() == 1


def test_null_reads_as_none() -> None:
    assert Reader(b"\xff\xff").nullable_string() is None
    assert Reader(b"\x00").compact_nullable_string() is None
    assert Reader(b"\xff\xff\xff\xff").nullable_bytes() is None
    assert Reader(b"\x00").compact_nullable_bytes() is None
    assert Reader(b"\xff\xff\xff\xff").nullable_array_count() is None
    assert Reader(b"\x00").compact_nullable_array_count() is None


def test_a_string_too_long_for_its_length_field_is_refused_when_written() -> None:
    assert len(written("string", "x" * 32767)) == 32769
    with pytest.raises(Malformed, match="32768 bytes"):
        written("string", "x" * 32768)


def test_tagged_fields_are_written_in_order_of_tag() -> None:
    assert written("tagged_fields", ((300, b"b"), (1, b"a"))).hex() == "02 01 01 61 ac02 01 62".replace(" ", "")


# What new String(bytes, UTF_8) gives in Java 17, by the number of U+FFFD and what follows.
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
        (b"\xf0\x90\x80", "\ufffd"),
        (b"\xf0\x90\x80A", "\ufffdA"),
        (b"\xe1\x80", "\ufffd"),
        (b"\xf5\x80\x80\x80", "\ufffd" * 4),
        (b"\xc0\x80", "\ufffd" * 2),
        (b"\xf0\x80\x80\x80", "\ufffd" * 4),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xe0\x80\x80", "\ufffd" * 3),
        ("é消😀".encode(), "é消😀"),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_broken_text_survives_a_round_trip_and_shows_as_in_java(data: bytes, text: str) -> None:
    read = Reader(len(data).to_bytes(2, "big") + data).string()
    assert written("string", read)[2:] == data
    assert java_text(read) == text
