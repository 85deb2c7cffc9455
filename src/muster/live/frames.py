"""What all requests and answers share: the APIs we speak, headers, and fields that are compact in later versions."""

from enum import IntEnum

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer, Reader, TaggedFields, Writer


class Api(IntEnum):
    """Kafka's names and numbers."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    SASL_AUTHENTICATE = 36


SPOKEN: dict[Api, tuple[int, int]] = {
    Api.FETCH: (4, 17),
    Api.LIST_OFFSETS: (2, 11),
    Api.METADATA: (4, 13),
    Api.SASL_HANDSHAKE: (1, 1),
    Api.API_VERSIONS: (0, 0),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
}
_FLEXIBLE_FROM = {
    Api.FETCH: 12,
    Api.LIST_OFFSETS: 6,
    Api.METADATA: 9,
    Api.OFFSET_FOR_LEADER_EPOCH: 4,
    Api.SASL_AUTHENTICATE: 2,
}


def is_flexible(api: Api, version: int) -> bool:
    return version >= _FLEXIBLE_FROM.get(api, 1 << 15)


def error_name(code: int) -> str:
    """Kafka's name of an error, or its number where we have no name for it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class In:
    """What is read of an answer, compact or not."""

    def __init__(self, api: Api, version: int, body: Buffer, position: int) -> None:
        self.reader = Reader(body, position)
        self.flexible = is_flexible(api, version)

    def string(self) -> str:
        return self.reader.compact_string() if self.flexible else self.reader.string()

    def nullable_string(self) -> str | None:
        return self.reader.compact_nullable_string() if self.flexible else self.reader.nullable_string()

    def count(self) -> int:
        """Of an array; null is empty."""
        reader = self.reader
        return (reader.compact_nullable_array_count() if self.flexible else reader.nullable_array_count()) or 0

    def bytes_(self) -> bytes:
        return self.reader.compact_bytes() if self.flexible else self.reader.bytes_()

    def skip_int32s(self) -> None:
        for _ in range(self.count()):
            self.reader.int32()

    def skip_records(self) -> tuple[int, int]:
        """Where the records are; they stay there."""
        reader = self.reader
        size = reader.uvarint() - 1 if self.flexible else reader.int32()
        size = max(size, 0)
        start = reader.position
        if size > reader.remaining:
            reader.raw(size)  # says what is wrong
        reader.position = start + size
        return start, start + size

    def tags(self) -> TaggedFields:
        """Payloads by tag; most callers step over them."""
        return self.reader.tagged_fields() if self.flexible else ()


class Out:
    """What a request is written to, compact or not."""

    def __init__(self, api: Api, version: int) -> None:
        self.writer = Writer()
        self.flexible = is_flexible(api, version)

    def string(self, value: str) -> None:
        (self.writer.compact_string if self.flexible else self.writer.string)(value)

    def bytes_(self, value: bytes) -> None:
        (self.writer.compact_bytes if self.flexible else self.writer.bytes_)(value)

    def count(self, count: int | None) -> None:
        writer = self.writer
        (writer.compact_nullable_array_count if self.flexible else writer.nullable_array_count)(count)

    def tags(self) -> None:
        if self.flexible:
            self.writer.tagged_fields(())


def encode_frame(api: Api, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """A request with its header and its length in front."""
    header = Writer()
    header.int16(api)
    header.int16(version)
    header.int32(correlation_id)
    header.nullable_string(client_id)
    if is_flexible(api, version):
        header.tagged_fields(())
    head = header.finish()
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def decode_frame_header(api: Api, version: int, frame: Buffer) -> tuple[int, int]:
    """Correlation id of an answer, and where its body begins."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    if is_flexible(api, version):
        reader.tagged_fields()
    return correlation_id, reader.position
