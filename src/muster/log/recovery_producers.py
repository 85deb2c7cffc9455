"""Producers as of some offset: the newest snapshot before it, and a look at the batches in between."""

from collections.abc import Sequence
from pathlib import Path

from muster.errors import CodecError, LogDamaged, Malformed
from muster.log.producers import ProducerStates
from muster.log.segment import SNAPSHOT, Segment, offset_in_name
from muster.segments.batches import walk_headers
from muster.segments.files import Files, read_file
from muster.segments.txn_index import AbortedTransaction


def snapshot_offsets(files: Files, directory: Path) -> list[int]:
    """The offsets of all snapshots, whole or not, rising."""
    return sorted(
        offset for entry in files.entries(directory) if (offset := offset_in_name(entry.name, SNAPSHOT)) is not None
    )


def newest_snapshot(files: Files, directory: Path, up_to_offset: int) -> ProducerStates:
    """The newest whole snapshot at or before an offset; nothing known at all where there is none.

    One that is torn (snapshots between rolls are not synced) is passed over.
    """
    for offset in reversed(snapshot_offsets(files, directory)):
        if offset <= up_to_offset:
            try:
                return ProducerStates.from_snapshot(read_file(files, directory / f"{offset:020}{SNAPSHOT}"), offset)
            except Malformed:
                continue
    return ProducerStates()


def replay(
    producers: ProducerStates, segments: Sequence[Segment], end_offset: int
) -> tuple[list[tuple[Segment, AbortedTransaction]], int]:
    """Bring producers forward to an offset; the aborted transactions that ended on the way, and the bytes stepped over.

    Only headers are read, and the few bytes of markers. Where the row of batches breaks off (damage below the recovery
    point, which nobody looks for) the rest of that segment is left out.
    """
    aborted: list[tuple[Segment, AbortedTransaction]] = []
    stepped_over = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        try:
            found, size = _replay_segment(producers, segment, end_offset)
        except (CodecError, LogDamaged):
            continue
        aborted += [(segment, one) for one in found]
        stepped_over += size
    producers.end_offset = max(producers.end_offset, end_offset)
    return aborted, stepped_over


def _replay_segment(
    producers: ProducerStates, segment: Segment, end_offset: int
) -> tuple[list[AbortedTransaction], int]:
    aborted: list[AbortedTransaction] = []
    start = position = segment.start_of(producers.end_offset)
    with segment.opened() as log:
        for position, header in walk_headers(log, start, segment.size_bytes):
            if header.base_offset >= end_offset:
                break
            if header.last_offset >= producers.end_offset:
                data = log.pread(header.size_bytes, position) if header.is_control else b""
                found = producers.replay(header, data)
                if found is not None:
                    aborted.append(found)
    return aborted, position - start
