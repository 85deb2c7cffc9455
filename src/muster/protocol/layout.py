"""One version of a message, ready to read and write: what `schema` says, turned into a row of functions.

A struct is a dict with Kafka's field names. Reading gives every field of the message, whatever the version: those it
does not have hold their default. Writing takes any part of them: what is missing is written as its default, and what
the version does not have is left out, so the caller need not know versions. A name that no version knows is a mistake
of the caller's and a `TypeError`.

Arrays are lists, uuids 16 bytes, times plain numbers, text as `muster.codec.primitives` has it. Tagged fields that are
not known are skipped, known ones at their default are not written: both as Kafka does it.
"""

from collections.abc import Callable
from typing import Any

from muster.codec.primitives import Buffer, Reader, Writer
from muster.errors import Malformed
from muster.protocol.errors import MAX_ELEMENTS
from muster.protocol.schema import Field, Message

StructData = dict[str, Any]
Read = Callable[[Reader], Any]
Write = Callable[[Writer, Any], None]

_NULL_STRUCT, _PRESENT_STRUCT = -1, 1
_VARINT_BITS = 35
_JAVA_MAX, _ALL_ONES, _JAVA_WRAPS = (1 << 31) - 1, (1 << 32) - 1, 1 << 32
_FIXED: dict[str, tuple[Read, Write]] = {
    "bool": (Reader.boolean, Writer.boolean),
    "int8": (Reader.int8, Writer.int8),
    "int16": (Reader.int16, Writer.int16),
    "int32": (Reader.int32, Writer.int32),
    "int64": (Reader.int64, Writer.int64),
    "uuid": (Reader.uuid, Writer.uuid),
}
# By (is flexible, may be null).
_STRINGS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.string, Writer.string),
    (False, True): (Reader.nullable_string, Writer.nullable_string),
    (True, False): (Reader.compact_string, Writer.compact_string),
    (True, True): (Reader.compact_nullable_string, Writer.compact_nullable_string),
}
_BYTES: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.bytes_, Writer.bytes_),
    (False, True): (Reader.nullable_bytes, Writer.nullable_bytes),
    (True, False): (Reader.compact_bytes, Writer.compact_bytes),
    (True, True): (Reader.compact_nullable_bytes, Writer.compact_nullable_bytes),
}
_COUNTS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, False): (Reader.array_count, Writer.array_count),
    (False, True): (Reader.nullable_array_count, Writer.nullable_array_count),
    (True, False): (Reader.compact_array_count, Writer.compact_array_count),
    (True, True): (Reader.compact_nullable_array_count, Writer.compact_nullable_array_count),
}


class Repeated(StructData):
    """A struct that a message has several times in the same version: it is encoded once."""

    __slots__ = ("encoded",)

    def __init__(self, data: StructData) -> None:
        super().__init__(data)
        self.encoded: bytes | None = None


class WireReader(Reader):
    """A reader for one message of a stranger's: there is a limit on the elements of all its arrays together.

    Lengths are Java's, so that what Kafka makes of an odd one is made of it here: 32 bits with a sign, and null if that
    is negative, where null may be.
    """

    __slots__ = ("_leaves_records", "elements_left")

    def __init__(
        self,
        data: Buffer,
        position: int = 0,
        end: int | None = None,
        max_elements: int = MAX_ELEMENTS,
        leaves_records: bool = False,
    ) -> None:
        """`leaves_records`: a field of records becomes a `slice` that says where in `data` they are."""
        super().__init__(data, position, end)
        self.elements_left = max_elements
        self._leaves_records = leaves_records

    def _count(self, count: int | None) -> int | None:
        if count is not None:
            if count > self.elements_left:
                raise Malformed(f"an array of {count} at byte {self.position} passes the limit for one message")
            self.elements_left -= count
        return super()._count(count)

    def uvarint(self) -> int:
        """As Java has it: of five bytes the bits beyond 32 are lost, and the topmost that is left is the sign."""
        position = self.position
        if position < self.end and self._data[position] < 0x80:
            self.position = position + 1
            return self._data[position]
        value = self._varint(max_bits=_VARINT_BITS) & _ALL_ONES
        return value - _JAVA_WRAPS if value > _JAVA_MAX else value

    def _size(self, size: int, what: str) -> int | None:
        return None if size < 0 else size

    def _compact_size(self) -> int | None:
        size = self.uvarint() - 1
        if size < -_JAVA_MAX - 1:
            return size + _JAVA_WRAPS
        return None if size < 0 else size

    def nullable_records(self) -> bytes | slice | None:
        size = self._size(self.int32(), "records")
        return None if size is None else self._records(size)

    def compact_nullable_records(self) -> bytes | slice | None:
        size = self._compact_size()
        return None if size is None else self._records(size)

    def _records(self, size: int) -> bytes | slice:
        if not self._leaves_records:
            return self.raw(size)
        position = self._take(size)
        return slice(position, position + size)

    def skip(self, size: int) -> None:
        if size < 0:
            raise Malformed(f"{size} bytes to step over at byte {self.position}")
        self._take(size)

    def tagged_field_count(self) -> int:
        """How many tagged fields follow. They count as elements, since each has to be stepped over."""
        count = self.uvarint()
        if count > 0:
            self._count(count)
        return count

    def skip_tagged_fields(self) -> None:
        """Step over a section of tagged fields without keeping any."""
        for _ in range(self.tagged_field_count()):
            self.uvarint()
            self.skip(self.uvarint())


# Kafka has no field of records that may not be null.
_RECORDS: dict[tuple[bool, bool], tuple[Read, Write]] = {
    (False, True): (WireReader.nullable_records, Writer.nullable_bytes),  # type: ignore[dict-item]
    (True, True): (WireReader.compact_nullable_records, Writer.compact_nullable_bytes),  # type: ignore[dict-item]
}
_VARIABLE = {"string": _STRINGS, "bytes": _BYTES, "records": _RECORDS}


class Layout:
    """A whole message in one version."""

    __slots__ = ("_read", "_write", "is_flexible", "name", "version")

    def __init__(self, message: Message, version: int) -> None:
        assert version in message.versions
        self.name = message.name
        self.version = version
        self.is_flexible = version in message.flexible
        self._read, self._write = _struct(message.fields, version, self.is_flexible)

    def read(self, reader: WireReader) -> StructData:
        return self._read(reader)  # type: ignore[no-any-return]

    def write(self, writer: Writer, body: StructData) -> None:
        self._write(writer, body)


def _struct(fields: tuple[Field, ...], version: int, is_flexible: bool) -> tuple[Read, Write]:
    present = [field for field in fields if version in field.versions]
    absent = [field for field in fields if version not in field.versions]
    reads: list[tuple[str, Read]] = []
    writes: list[tuple[str, Any, Write]] = []
    tagged: dict[int, tuple[Field, Read, Write]] = {}
    for field in present:
        read, write = _field(field, version, is_flexible)
        if field.tag is None:
            reads.append((field.name, read))
            writes.append((field.name, field.default, write))
        else:
            tagged[field.tag] = (field, read, write)
    by_tag = dict(sorted(tagged.items()))
    defaulted = absent + [field for field, _, _ in by_tag.values()]
    names = frozenset(field.name for field in fields)

    def read_struct(reader: WireReader) -> StructData:
        data = {name: read(reader) for name, read in reads}
        for field in defaulted:
            data[field.name] = _fresh(field.default)
        if is_flexible:
            for _ in range(reader.tagged_field_count()):
                tag, end = reader.uvarint(), reader.uvarint() + reader.position
                if tag in by_tag:
                    field, read, _ = by_tag[tag]
                    data[field.name] = read(reader)
                    if reader.position != end:
                        raise Malformed(f"{field.name}, tagged {tag}, should end at byte {end}, not {reader.position}")
                else:
                    reader.skip(end - reader.position)
        return data

    def write_struct(writer: Writer, body: StructData) -> None:
        if type(body) is Repeated:
            if body.encoded is None:
                once = Writer()
                write_struct(once, dict(body))
                body.encoded = once.finish()
            writer.raw(body.encoded)
            return
        if not body.keys() <= names:
            raise TypeError(f"no such field: {', '.join(sorted(body.keys() - names))}")
        for name, default, write in writes:
            write(writer, body.get(name, default))
        if is_flexible:
            _write_tagged(writer, body)

    def _write_tagged(writer: Writer, body: StructData) -> None:
        payloads = []
        for tag, (field, _, write) in by_tag.items():
            value = _completed(body.get(field.name, field.default), field.default)
            if value != field.default:
                payload = Writer()
                write(payload, value)
                payloads.append((tag, payload.finish()))
        writer.tagged_fields(tuple(payloads))

    return read_struct, write_struct  # type: ignore[return-value]


def _fresh(default: Any) -> Any:
    """A default of the reader's own, which it may change."""
    if type(default) is list:
        return []
    if type(default) is dict:
        return {name: _fresh(value) for name, value in default.items()}
    return default


def _completed(value: Any, default: Any) -> Any:
    """A struct with what is missing in it, so that one which says no more than the default is seen to be one."""
    return {**default, **value} if type(value) is dict and type(default) is dict else value


def _field(field: Field, version: int, is_flexible: bool) -> tuple[Read, Write]:
    is_nullable = version in field.nullable
    if not field.is_array:
        return _single(field, version, is_flexible, is_nullable)
    return _array(_single(field, version, is_flexible, is_nullable=False), _COUNTS[is_flexible, is_nullable])


def _single(field: Field, version: int, is_flexible: bool, is_nullable: bool) -> tuple[Read, Write]:
    if field.kind == "struct":
        struct = _struct(field.fields, version, is_flexible)
        return _nullable_struct(struct) if is_nullable else struct
    if field.kind in _FIXED:
        return _FIXED[field.kind]
    return _VARIABLE[field.kind][is_flexible, is_nullable]


def _array(element: tuple[Read, Write], count: tuple[Read, Write]) -> tuple[Read, Write]:
    read, write = element
    read_count, write_count = count

    def read_array(reader: Reader) -> list[Any] | None:
        size = read_count(reader)
        return None if size is None else [read(reader) for _ in range(size)]

    def write_array(writer: Writer, values: list[Any] | None) -> None:
        if values is None:
            write_count(writer, None)
            return
        write_count(writer, len(values))
        for value in values:
            write(writer, value)

    return read_array, write_array


def _nullable_struct(struct: tuple[Read, Write]) -> tuple[Read, Write]:
    """A byte before it says whether it is there: KIP-893."""
    read, write = struct

    def read_nullable(reader: Reader) -> StructData | None:
        return None if reader.int8() < 0 else read(reader)

    def write_nullable(writer: Writer, value: StructData | None) -> None:
        if value is None:
            writer.int8(_NULL_STRUCT)
            return
        writer.int8(_PRESENT_STRUCT)
        write(writer, value)

    return read_nullable, write_nullable
