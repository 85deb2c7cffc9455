"""A client's batch packed again, where the topic's `compression.type` asks for another codec than it has.

That may be much work, by codec and level: `takes_long` says so before anything is done, so that a server can have it
done in a thread (`repacked` touches nothing but the batch, and the codecs let go of the interpreter).
"""

from muster.codec import compression
from muster.codec.batches import assembled, read_header
from muster.codec.primitives import varint
from muster.codec.records import CODEC_MASK
from muster.log.config import LogConfig
from muster.log.validation import LONG_BITS, ClientBatch, TooCostly, UnpackBudget, read_varint

LONG_MS = 2.0
"""What a loop does itself; it checks a batch of a megabyte in as much."""
UNPACKS_TO = 5
"""Times its size, of a batch that is packed; what it is really is not known before it is unpacked."""
_ATTRIBUTES = 22
"""Where they are in a batch, the byte that matters."""


def is_repacked(data: memoryview, config: LogConfig) -> bool:
    """Whether a batch has another codec than its topic asks for; of bytes that are no batch, anything."""
    return config.recompress_to is not None and data[_ATTRIBUTES] & CODEC_MASK != config.recompress_to


def takes_long(data: memoryview, config: LogConfig) -> bool:
    """Whether a batch is to be packed again, and a loop should not do it."""
    if not is_repacked(data, config):
        return False
    size_bytes = len(data) * (UNPACKS_TO if data[_ATTRIBUTES] & CODEC_MASK else 1)
    return size_bytes / (1 << 20) * _ms_for_a_megabyte(config) > LONG_MS


def _ms_for_a_megabyte(config: LogConfig) -> float:
    """Of text of words; rounded up."""
    level = config.compression_level
    match config.recompress_to:
        case compression.GZIP:
            return 25
        case compression.SNAPPY:
            return 2
        case compression.LZ4:
            return 4 if level is None or level < 3 else 40
        case compression.ZSTD:
            return 10 if level is None or level <= 3 else 65 if level <= 12 else 450
        case _:
            return 0


def repacked(batch: ClientBatch, config: LogConfig, budget: UnpackBudget) -> ClientBatch:
    """The batch with its records packed as the topic asks; in any thread.

    Kafka makes a new batch of the records, whose times are counted from that of the first one. Clients count like that
    anyway. Where one does not, and it would be too much work, or times so far apart that 64 bits do not hold what is
    between them, they are counted as the client did: readers see the same times.
    """
    header, body = batch.header, batch.body
    codec = config.recompress_to
    assert codec is not None
    base_ms = header.base_timestamp_ms
    _, position = read_varint(body, 0, len(body))
    delta_ms, _ = read_varint(body, position + 1, len(body), LONG_BITS)
    if delta_ms and header.record_count <= budget.rows_left:
        budget.rows_left -= header.record_count
        moved = _counted_later(memoryview(body), header.record_count, delta_ms)
        if moved is not None:
            base_ms, body = base_ms + delta_ms, moved
    if len(body) > compression.DEFAULT_LIMIT:
        raise TooCostly(f"a batch of {len(body)} bytes to be packed; readers unpack {compression.DEFAULT_LIMIT}")
    attributes = header.attributes & ~CODEC_MASK | codec
    data = assembled(
        header, attributes, base_ms, header.max_timestamp_ms, header.record_count,
        compression.compress(codec, body, config.compression_level),
    )  # fmt: skip
    return batch._replace(header=read_header(data), data=memoryview(data), body=body)


def _counted_later(body: memoryview, count: int, by_ms: int) -> bytes | None:
    """Records whose times are counted from another time; what is behind a time is not looked at."""
    parts: list[bytes | memoryview] = []
    position = 0
    for _ in range(count):
        length, position = read_varint(body, position, len(body))
        end = position + length
        delta_ms, position = read_varint(body, position + 1, end, LONG_BITS)
        if not -(1 << 63) <= delta_ms - by_ms < 1 << 63:
            return None
        time = b"\0" + varint(delta_ms - by_ms)
        parts += (varint(len(time) + end - position), time, body[position:end])
        position = end
    return b"".join(parts)
