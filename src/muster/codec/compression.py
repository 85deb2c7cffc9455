"""The four compressions of record batches, with a bound on what comes out.

A few hundred bytes can claim to unpack to gigabytes, so every decompressor here writes into a buffer that starts small
and grows no further than `limit`.
"""

import struct
import zlib
from collections.abc import Callable

import cramjam

from muster.errors import Malformed, TooLarge

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Of one batch: sixty times the largest that a broker accepts by default. A bomb costs a few times this memory.

A log takes no batch beyond it, so that whatever it has can be read again."""

_MOST_MEMBERS = 1_000
"""Of gzip; each costs in proportion to all that is behind it."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"


def codec_name(codec: int) -> str:
    """The name Kafka's tools print for a codec number."""
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"unknown({codec})"


def decompress(codec: int, data: bytes | memoryview, limit: int = DEFAULT_LIMIT) -> bytes:
    """Unpack what a batch carries; `Malformed` if it is damaged or of an unknown codec, `TooLarge` beyond the limit."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            return _gunzip(data, limit)
        case 2:
            return _unsnap(bytes(data), limit)
        case 3:
            return _into_growing_buffer(cramjam.lz4.decompress_into, data, limit, "lz4")
        case 4:
            return _into_growing_buffer(cramjam.zstd.decompress_into, data, limit, "zstd")
        case _:
            raise Malformed(f"compression codec {codec} does not exist")


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Pack bytes the way a broker would; snappy has no levels."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
            return packer.compress(data) + packer.flush()
        case 2:
            block = bytes(cramjam.snappy.compress_raw(data))
            return _XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(block)) + block
        case 3:
            # Kafka refuses frames whose blocks depend on one another, which are the default here.
            lz4_packer = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
            lz4_packer.compress(bytes(data))
            return bytes(lz4_packer.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data, level))
        case _:
            raise ValueError(f"compression codec {codec} does not exist")


def _too_large(name: str, limit: int) -> TooLarge:
    return TooLarge(f"{name} data unpacks to more than {limit} bytes")


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    rest: bytes | memoryview = data
    try:
        while rest:  # members may follow one another
            if len(parts) >= _MOST_MEMBERS:
                raise Malformed(f"gzip data of more than {_MOST_MEMBERS} members")
            unpacker = zlib.decompressobj(wbits=31)
            part = unpacker.decompress(rest, room + 1)
            if len(part) > room:
                raise _too_large("gzip", limit)
            if not unpacker.eof:
                raise Malformed("gzip data ends early")
            parts.append(part)
            room -= len(part)
            rest = unpacker.unused_data
    except zlib.error as error:
        raise Malformed(f"gzip data is damaged: {error}") from None
    return b"".join(parts)


def _unsnap(data: bytes, limit: int) -> bytes:
    """Snappy blocks in Xerial's framing, as Java writes them, or one bare block, as some clients do."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, limit)
    parts: list[bytes] = []
    position = len(_XERIAL_MAGIC) + 8
    if len(data) < position:
        raise Malformed("snappy data ends inside its header")
    while position < len(data):
        if position + 4 > len(data):
            raise Malformed("snappy data ends inside a block length")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise Malformed(f"snappy block of {length} bytes in {len(data) - position}")
        parts.append(_unsnap_block(data[position : position + length], limit))
        limit -= len(parts[-1])
        position += length
    return b"".join(parts)


def _unsnap_block(block: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large("snappy", limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Malformed(f"snappy data is damaged: {error}") from None


def _into_growing_buffer(
    unpack: Callable[[bytes | memoryview, bytearray], int], data: bytes | memoryview, limit: int, name: str
) -> bytes:
    room = min(max(4 * len(data), 4096), limit)
    while True:
        target = bytearray(room)
        try:
            return bytes(memoryview(target)[: unpack(data, target)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):  # its way to say that the target is too small
                raise Malformed(f"{name} data is damaged: {error}") from None
        if room >= limit:
            raise _too_large(name, limit)
        room = min(8 * room, limit)


def repair_lz4_header(data: bytes) -> bytes:
    """Give an lz4 frame the header checksum that its standard asks for.

    Kafka's writers of the oldest format took the checksum over the wrong bytes, and readers had to live with it.
    """
    if len(data) < 7 or data[:4] != b"\x04\x22\x4d\x18":
        return data
    end = 6 + (8 if data[4] & 0x08 else 0)
    if len(data) <= end:
        return data
    checksum = (_xxh32(data[4:end]) >> 8) & 0xFF
    return data[:end] + bytes([checksum]) + data[end + 1 :]


def _xxh32(data: bytes) -> int:
    """xxHash32 with seed 0, for the fewer than 16 bytes of a frame header."""
    mask = 0xFFFFFFFF
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = prime5 + len(data)
    position = 0
    while position + 4 <= len(data):
        value = (value + int.from_bytes(data[position : position + 4], "little") * prime3) & mask
        value = (((value << 17) | (value >> 15)) & mask) * prime4 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * prime5) & mask
        value = (((value << 11) | (value >> 21)) & mask) * prime1 & mask
    value = ((value ^ (value >> 15)) * prime2) & mask
    value = ((value ^ (value >> 13)) * prime3) & mask
    return value ^ (value >> 16)
