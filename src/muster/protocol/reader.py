"""A reader for the messages of a peer that may be hostile: limits on what one message may hold, and Java's integers."""

from muster.codec.primitives import Buffer, Reader
from muster.errors import Malformed

MAX_ELEMENTS = 50_000
"""Elements of arrays in one request, all together. Two bytes on the wire can become half a kilobyte here, a frame may
be a hundred megabytes, and an element takes 5 to 15 microseconds of the one loop that serves all clients. The largest
that clients really ask is a consumer of every partition, each in a topic of its own, that leaves as many others:
four times `muster.max.partitions`. (Kafka has no such limit, and a thread for each of such requests.)"""

MAX_RESPONSE_ELEMENTS = 10_000_000
"""The same for a response that a client reads: the metadata of a large cluster has millions of elements."""

_VARINT_BITS = 35
_JAVA_MAX, _ALL_ONES, _JAVA_WRAPS = (1 << 31) - 1, (1 << 32) - 1, 1 << 32


class WireReader(Reader):
    """A reader for one message, with a limit on the elements of all its arrays together.

    Lengths are Java's, so that an odd one means here what it means to Kafka: 32 bits with a sign, and null if that is
    negative, where null may be.
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

    def _records(self, size: int) -> bytes | slice:
        if not self._leaves_records:
            return super()._records(size)
        position = self._take(size)
        return slice(position, position + size)

    def skip(self, size: int) -> None:
        if size < 0:
            raise Malformed(f"{size} bytes to step over at byte {self.position}")
        super().skip(size)

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
