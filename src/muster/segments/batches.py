"""The row of batches in an open `.log` file, walked in bounded memory.

Two walks. `walk_headers` looks at headers only and steps over everything else: good for finding a place. `walk_batches`
brings every batch whole: good for reading them all. Both raise `Truncated` where the file ends inside a batch and
`Malformed` where none can begin: nothing behind such a place can be found.
"""

from collections.abc import Iterator

from crc32c import crc32c

from muster.codec.batches import HEADER_SIZE, computed_crc, read_header
from muster.codec.records import BatchHeader
from muster.errors import Malformed, Truncated
from muster.segments.files import File

WINDOW_BYTES = 16 * 1024
LARGE_BATCH_BYTES = 16 * 1024 * 1024
"""Above this, a batch is not brought into memory to compute its checksum: its length may be damage."""

_LONGEST_HEADER = HEADER_SIZE


def walk_headers(
    file: File, position: int, end: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch from a position on: where it begins, and its header."""
    window, window_position = b"", position
    while position < end:
        inside = position - window_position
        if inside + _LONGEST_HEADER > len(window):
            window, window_position, inside = file.pread(min(window_bytes, end - position), position), position, 0
            if len(window) < min(_LONGEST_HEADER, end - position):
                raise Truncated(f"the log ends {end - position - len(window)} bytes early")
        header = read_header(window, inside, end - position)
        yield position, header
        position += header.size_bytes


def walk_batches(
    file: File, position: int, end: int, buffer_bytes: int, whole_up_to_bytes: int | None = None
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch from a position on: where it begins, its header, and all its bytes.

    Reads `buffer_bytes` at a time, more only for a batch that is larger than that; of one above `whole_up_to_bytes` it
    hands out the header's bytes alone. The bytes stay valid: each read has a buffer of its own.
    """
    buffer_bytes = max(buffer_bytes, _LONGEST_HEADER)
    while position < end:
        window = memoryview(file.pread(min(buffer_bytes, end - position), position))
        if len(window) < min(_LONGEST_HEADER, end - position):
            raise Truncated(f"the log ends {end - position - len(window)} bytes early")
        inside = 0
        while inside < len(window):
            left = end - position
            if len(window) - inside < min(_LONGEST_HEADER, left) and inside:
                break
            header = read_header(window, inside, left)
            size = header.size_bytes
            if size > len(window) - inside:
                if inside:
                    break
                held = size if whole_up_to_bytes is None or size <= whole_up_to_bytes else _LONGEST_HEADER
                window = memoryview(file.pread(held, position))
                if len(window) < held:
                    raise Truncated(f"a batch of {size} bytes, of which the log has {len(window)}")
            yield position, header, window[inside : inside + size]
            position += size
            inside += size


def checked_batches(
    file: File, position: int, end: int, buffer_bytes: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """`walk_batches`, with every checksum computed: a wrong one raises `Malformed`, and no later batch is looked for.

    Of a batch above `LARGE_BATCH_BYTES` only the header's bytes are handed out.
    """
    for place, header, data in walk_batches(file, position, end, buffer_bytes, LARGE_BATCH_BYTES):
        whole = len(data) == header.size_bytes
        if not whole and header.magic < 2:
            raise Malformed(f"a message of {header.size_bytes} bytes, more than any of its time")
        crc = computed_crc(data, 0, header) if whole else _crc_in_pieces(file, place, header, buffer_bytes)
        if crc != header.crc:
            raise Malformed(f"batch {header.base_offset} says CRC {header.crc:08x}, its bytes give {crc:08x}")
        yield place, header, data


def _crc_in_pieces(file: File, position: int, header: BatchHeader, piece_bytes: int) -> int:
    crc, place, end = 0, position + 21, position + header.size_bytes
    while place < end:
        piece = file.pread(min(piece_bytes, end - place), place)
        if not piece:
            raise Truncated(f"a batch of {header.size_bytes} bytes ends {end - place} bytes early")
        crc = crc32c(piece, crc)
        place += len(piece)
    return crc
