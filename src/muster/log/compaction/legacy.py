"""Writing message sets of magic 0 and 1, for one purpose: what compaction leaves of a compressed wrapper.

A message on its own stays or goes as it is. A wrapper that loses some of its messages is packed anew, with the same
codec and in the same format; only lz4 in magic 0, whose frames nobody ought to write again (their checksum is wrong by
design), becomes a row of plain messages.
"""

import struct
import zlib
from collections.abc import Sequence

from muster.codec import compression
from muster.codec.records import LOG_APPEND_TIME, BatchHeader, Record


def encode_entry(header: BatchHeader, records: Sequence[Record]) -> bytes:
    """The entry with only these records, of which there is at least one."""
    stamp = header.attributes & LOG_APPEND_TIME
    if header.codec == compression.LZ4 and header.magic == 0:
        return b"".join(_message(record, record.offset, header.magic, stamp) for record in records)
    # Offsets inside a wrapper are absolute in magic 0; in magic 1 they count from the first, gaps included.
    first = 0 if header.magic == 0 else records[0].offset
    inner = b"".join(_message(record, record.offset - first, header.magic, stamp) for record in records)
    newest_ms = max(record.timestamp_ms for record in records)
    packed = Record(records[-1].offset, newest_ms, None, compression.compress(header.codec, inner))
    return _message(packed, packed.offset, header.magic, stamp | header.codec)


def _message(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    covered = struct.pack(">bB", magic, attributes)
    if magic == 1:
        covered += struct.pack(">q", record.timestamp_ms)
    for part in (record.key, record.value):
        covered += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered
