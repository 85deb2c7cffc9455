"""Small made-up logs for the tests of reading: batches of offset commits, and segments in partition directories."""

from pathlib import Path

from muster.codec.batches import encode_batch
from muster.codec.columns.chunks import Scratch
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.codec.transaction_outcomes import Markers
from muster.segments.reader import CHUNK_BYTES, Damage, read_segment
from muster.segments.sources import SegmentFile

CORPORA = Path(__file__).parent.parent / "corpus"
START_MS = 1_800_000_000_000


def commit(
    log_offset: int, group: str = "orders-app", topic: str = "orders", partition: int = 0, metadata: str = ""
) -> Record:
    """A commit of its own log offset, one second after the record before it."""
    key = encode_key(offset_key(group, topic, partition))
    value = encode_offset_value(OffsetValue(log_offset, 0, metadata, START_MS + 1000 * log_offset), 3)
    return Record(log_offset, START_MS + 1000 * log_offset, key, value)


def tombstone(log_offset: int, group: str = "orders-app", topic: str = "orders", partition: int = 0) -> Record:
    return commit(log_offset, group, topic, partition)._replace(value=None)


def batch(first_offset: int, count: int = 1, group: str = "orders-app", metadata: str = "") -> bytes:
    return encode_batch([commit(first_offset + number, group, metadata=metadata) for number in range(count)])


def write_segment(folder: Path, data: bytes, base_offset: int = 0, partition: int = 0) -> Path:
    """A segment in the directory of a partition."""
    directory = folder / f"__consumer_offsets-{partition}"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020}.log"
    path.write_bytes(data)
    return path


def read_offsets(
    path: Path, chunk_bytes: int = CHUNK_BYTES, markers: Markers | None = None
) -> tuple[list[int], list[Damage]]:
    """The offsets of all records that can be read of a segment, and the damage."""
    damage: list[Damage] = []
    segment = SegmentFile(path, f"{path.parent.name}/{path.name}", int(path.stem), path.stat().st_size)
    offsets: list[int] = []
    for piece in read_segment(segment, Scratch(), damage, markers, chunk_bytes=chunk_bytes):
        offsets += piece.chunk.records[:, 0].tolist()
    return offsets, damage
