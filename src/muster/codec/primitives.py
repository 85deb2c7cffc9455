"""Kafka's primitive encodings: one cursor that reads them, one buffer that writes them.

All integers are big-endian. "Compact" forms carry an unsigned varint of length + 1, 0 being null; the older forms carry
a signed length, -1 being null. A length is checked against the bytes that are left before anything is allocated for
it, so a damaged length costs an exception and not two gigabytes. The same goes for array counts: every element that
Kafka can put into an array takes at least one byte, so a count above the bytes left cannot be honest.

Text. Java decodes whatever it gets and puts U+FFFD where the bytes are not UTF-8, so a broker accepts such names. Here
they are decoded with `surrogateescape`: the odd bytes survive a round trip, and two names that differ only in them
stay two names. `java_text` gives the text as Java would show it.

Reading raises `Truncated` when the bytes end too early and `Malformed` when they cannot mean anything. Writing a number
that does not fit its field is a mistake of the caller's and raises `struct.error`.
"""

import re
from struct import Struct

from muster.errors import Malformed, Truncated

Buffer = bytes | bytearray | memoryview
TaggedFields = tuple[tuple[int, bytes], ...]

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT64 = Struct(">q")

MAX_STRING_BYTES = 0x7FFF
"""The longest text Kafka reads or writes, in the compact form too, whose length would allow more."""
_ESCAPED = re.compile("[\udc80-\udcff]")
# Java replaces an encoded surrogate as one thing; Python counts each of its bytes.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(text: str) -> str:
    """The text as Java shows it: U+FFFD where the bytes were not UTF-8."""
    if text.isascii() or not _ESCAPED.search(text):
        return text
    data = text.encode("utf-8", "surrogateescape")
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _text_bytes(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MAX_STRING_BYTES:
        raise Malformed(f"a string of {len(data)} bytes does not fit where {MAX_STRING_BYTES} is the most")
    return data


class Reader:
    """A cursor over bytes. It never reads past `end`, even where the buffer goes on."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: Buffer, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self.end = len(data) if end is None else end
        self.position = position
        assert 0 <= position <= self.end <= len(data)

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def _take(self, size: int) -> int:
        """Move over `size` bytes and say where they begin."""
        position = self.position
        if size > self.end - position:
            raise Truncated(f"{size} bytes wanted at byte {position}, {self.end - position} are left")
        self.position = position + size
        return position

    def int8(self) -> int:
        return _INT8.unpack_from(self._data, self._take(1))[0]  # type: ignore[no-any-return]

    def int16(self) -> int:
        return _INT16.unpack_from(self._data, self._take(2))[0]  # type: ignore[no-any-return]

    def uint16(self) -> int:
        return _UINT16.unpack_from(self._data, self._take(2))[0]  # type: ignore[no-any-return]

    def int32(self) -> int:
        return _INT32.unpack_from(self._data, self._take(4))[0]  # type: ignore[no-any-return]

    def uint32(self) -> int:
        return _UINT32.unpack_from(self._data, self._take(4))[0]  # type: ignore[no-any-return]

    def int64(self) -> int:
        return _INT64.unpack_from(self._data, self._take(8))[0]  # type: ignore[no-any-return]

    def boolean(self) -> bool:
        """Any byte but zero is true, as in Java."""
        return self._data[self._take(1)] != 0

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits. Needless leading zeros ("padding") are accepted, as in Kafka."""
        return self._varint(max_bits=32)

    def varint(self) -> int:
        raw = self._varint(max_bits=32)
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        raw = self._varint(max_bits=64)
        return (raw >> 1) ^ -(raw & 1)

    def _varint(self, max_bits: int) -> int:
        data, end, start = self._data, self.end, self.position
        position, shift, value = start, 0, 0
        while position < end:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> max_bits:
                    raise Malformed(f"the varint at byte {start} does not fit {max_bits} bits")
                self.position = position
                return value
            shift += 7
            if shift >= max_bits:
                raise Malformed(f"the varint at byte {start} does not fit {max_bits} bits")
        raise Truncated(f"the bytes end inside the varint at byte {start}")

    def uuid(self) -> bytes:
        return self.raw(16)

    def raw(self, size: int) -> bytes:
        position = self._take(size)
        return bytes(self._data[position : position + size])

    def _text(self, size: int) -> str:
        position = self._take(size)
        return str(self._data[position : position + size], "utf-8", "surrogateescape")

    def _size(self, size: int, what: str) -> int | None:
        """A signed length as read: None for -1."""
        if size < -1:
            raise Malformed(f"{what} of length {size} ends at byte {self.position}")
        return None if size == -1 else size

    def _present(self, size: int | None, what: str) -> int:
        if size is None:
            raise Malformed(f"{what} before byte {self.position} is null and may not be")
        return size

    def _compact_size(self) -> int | None:
        size = self.uvarint()
        return None if size == 0 else size - 1

    def string(self) -> str:
        return self._text(self._present(self._size(self.int16(), "a string"), "the string"))

    def nullable_string(self) -> str | None:
        size = self._size(self.int16(), "a string")
        return None if size is None else self._text(size)

    def compact_string(self) -> str:
        return self._text(self._present(self._compact_text_size(), "the string"))

    def compact_nullable_string(self) -> str | None:
        size = self._compact_text_size()
        return None if size is None else self._text(size)

    def _compact_text_size(self) -> int | None:
        size = self._compact_size()
        if size is not None and size > MAX_STRING_BYTES:
            raise Malformed(f"a string of {size} bytes at byte {self.position}; {MAX_STRING_BYTES} are allowed")
        return size

    def bytes_(self) -> bytes:
        return self.raw(self._present(self._size(self.int32(), "a byte array"), "the byte array"))

    def nullable_bytes(self) -> bytes | None:
        size = self._size(self.int32(), "a byte array")
        return None if size is None else self.raw(size)

    def compact_bytes(self) -> bytes:
        return self.raw(self._present(self._compact_size(), "the byte array"))

    def compact_nullable_bytes(self) -> bytes | None:
        size = self._compact_size()
        return None if size is None else self.raw(size)

    def nullable_records(self) -> bytes | slice | None:
        size = self._size(self.int32(), "records")
        return None if size is None else self._records(size)

    def compact_nullable_records(self) -> bytes | slice | None:
        size = self._compact_size()
        return None if size is None else self._records(size)

    def _records(self, size: int) -> bytes | slice:
        return self.raw(size)

    def _count(self, count: int | None) -> int | None:
        if count is not None and count > self.remaining:
            raise Truncated(f"an array of {count} at byte {self.position}, {self.remaining} bytes are left")
        return count

    def array_count(self) -> int:
        return self._present(self.nullable_array_count(), "the array")

    def nullable_array_count(self) -> int | None:
        return self._count(self._size(self.int32(), "an array"))

    def compact_array_count(self) -> int:
        return self._present(self.compact_nullable_array_count(), "the array")

    def compact_nullable_array_count(self) -> int | None:
        return self._count(self._compact_size())

    def int32_array(self) -> tuple[int, ...]:
        """A whole array of int32 at once: the commonest array there is."""
        return self._int32s(self.array_count())

    def compact_int32_array(self) -> tuple[int, ...]:
        return self._int32s(self.compact_array_count())

    def _int32s(self, count: int) -> tuple[int, ...]:
        position = self._take(4 * count)
        return Struct(f">{count}i").unpack_from(self._data, position)

    def skip(self, size: int) -> None:
        self._take(size)

    def tagged_field_count(self) -> int:
        """How many tagged fields follow: for those who read them one by one."""
        return self.uvarint()

    def tagged_fields(self) -> TaggedFields:
        """The tagged-field section of a flexible struct, as (tag, payload) in the order written."""
        count = self.uvarint()
        if count == 0:
            return ()
        if 2 * count > self.remaining:
            raise Truncated(f"{count} tagged fields at byte {self.position}, {self.remaining} bytes are left")
        return tuple([(self.uvarint(), self.raw(self.uvarint())) for _ in range(count)])


def varint(number: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class Writer:
    """A growing buffer; the mirror image of `Reader`."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def position(self) -> int:
        return len(self._data)

    def finish(self) -> bytes:
        return bytes(self._data)

    def finish_uncopied(self) -> bytearray:
        """For a caller who puts it behind something else; the writer is not used any more."""
        return self._data

    def int8(self, value: int) -> None:
        self._data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._data += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self._data += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self._data += _INT32.pack(value)

    def uint32(self, value: int) -> None:
        self._data += _UINT32.pack(value)

    def int64(self, value: int) -> None:
        self._data += _INT64.pack(value)

    def boolean(self, value: bool) -> None:
        self._data.append(1 if value else 0)

    def uvarint(self, value: int) -> None:
        assert value >= 0
        while value > 0x7F:
            self._data.append((value & 0x7F) | 0x80)
            value >>= 7
        self._data.append(value)

    def varint(self, value: int) -> None:
        self.uvarint((value << 1) ^ (value >> 31))

    def varlong(self, value: int) -> None:
        self.uvarint((value << 1) ^ (value >> 63))

    def uuid(self, value: bytes) -> None:
        assert len(value) == 16
        self._data += value

    def raw(self, value: Buffer) -> None:
        self._data += value

    def string(self, value: str) -> None:
        data = _text_bytes(value)
        self.int16(len(data))
        self._data += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        self.compact_bytes(_text_bytes(value))

    def compact_nullable_string(self, value: str | None) -> None:
        self.compact_nullable_bytes(None if value is None else _text_bytes(value))

    def bytes_(self, value: bytes) -> None:
        self.int32(len(value))
        self._data += value

    def nullable_bytes(self, value: bytes | None) -> None:
        if value is None:
            self.int32(-1)
        else:
            self.bytes_(value)

    def compact_bytes(self, value: bytes) -> None:
        self.uvarint(len(value) + 1)
        self._data += value

    def compact_nullable_bytes(self, value: bytes | None) -> None:
        if value is None:
            self.uvarint(0)
        else:
            self.compact_bytes(value)

    def array_count(self, count: int) -> None:
        self.int32(count)

    def nullable_array_count(self, count: int | None) -> None:
        self.int32(-1 if count is None else count)

    def compact_array_count(self, count: int) -> None:
        self.uvarint(count + 1)

    def compact_nullable_array_count(self, count: int | None) -> None:
        self.uvarint(0 if count is None else count + 1)

    def int32_array(self, values: tuple[int, ...]) -> None:
        self.int32(len(values))
        self._data += Struct(f">{len(values)}i").pack(*values)

    def compact_int32_array(self, values: tuple[int, ...]) -> None:
        self.uvarint(len(values) + 1)
        self._data += Struct(f">{len(values)}i").pack(*values)

    def tagged_fields(self, fields: TaggedFields) -> None:
        """A tagged-field section; put in ascending order of tag here, as the format asks."""
        self.uvarint(len(fields))
        for tag, payload in sorted(fields):
            self.uvarint(tag)
            self.uvarint(len(payload))
            self._data += payload
