"""One partition on several brokers: which copy leads, and which records of the others belong to the same log.

Every leader writes under an epoch of its own, and the row of (epoch, first offset) is the log's lineage. Two replicas
that have a record at the same offset under the same epoch have the same record. One that has another epoch there than
the lineage says kept what was never acknowledged: a leader that failed wrote it, and its successor did not have it.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.codec.batches import computed_crc, decode_records, read_header
from muster.codec.columns import scan
from muster.codec.records import Record
from muster.errors import BadInput, CodecError, Malformed, SourceMissing
from muster.pipeline.model import SegmentFiles
from muster.pipeline.plan import Landmark, Parting
from muster.pipeline.sources.data_log import LARGEST_DECODED_BYTES
from muster.segments.checkpoints import read_epochs
from muster.segments.files import RealFiles
from muster.segments.reader import read_headers
from muster.segments.sources import SegmentFile, segments_of

Longs = NDArray[np.int64]
Lineage = tuple[tuple[int, int], ...]
"""(leader epoch, its first offset), both rising."""
ANY_OFFSET = 1 << 62


class DescribedPartition(NamedTuple):
    source: SegmentFiles
    log_start_offset: int
    end_offset: int
    last_epoch: int
    """The newest leader epoch that the leading replica knows, with or without records; -1 for a log without epochs."""


class Replica(NamedTuple):
    """One copy, as far as its newest segment and its checkpoint tell."""

    directory: str
    lineage: Lineage
    log_start_offset: int
    end_offset: int
    last_epoch: int


def lineage_of(pairs: Iterable[Longs]) -> Lineage:
    """From tables of (epoch, offset) in log order: the epochs that rise. What stays or falls back adds nothing."""
    lineage: list[tuple[int, int]] = []
    for table in pairs:
        for epoch, offset in table.tolist():
            if epoch >= 0 and (not lineage or (epoch > lineage[-1][0] and offset > lineage[-1][1])):
                lineage.append((epoch, offset))
    return tuple(lineage)


def epochs_at(lineage: Lineage, offsets: Longs) -> Longs:
    """The epoch that the log has at each offset; -1 before the first."""
    epochs, starts = np.array(lineage, np.int64).reshape(-1, 2).T
    places = np.searchsorted(starts, offsets, "right") - 1
    return np.where(places >= 0, epochs[np.maximum(places, 0)], -1) if len(epochs) else np.full(len(offsets), -1)


def agreeing(lineage: Lineage, offsets: Longs, epochs: Longs) -> NDArray[np.bool_]:
    """Which of these offsets, written under these epochs, are the lineage's. What has no epoch contradicts nothing."""
    if not lineage:
        return np.ones(len(offsets), np.bool_)
    flags: NDArray[np.bool_] = (epochs < 0) | (epochs == epochs_at(lineage, offsets))
    return flags


def parting(directory: str, landmarks: Sequence[Landmark]) -> Parting | None:
    """Where a log differs from what was read of it, if it does. Landmarks rise; a log is compared from its end."""
    found: Parting | None = None
    segments = segments_of(Path(directory))
    for offset, timestamp_ms in reversed(landmarks):
        there = _timestamp_at(segments, offset)
        if there == timestamp_ms:
            return None if found is None else found._replace(agreed_until=offset + 1)
        if there is not None:
            found = Parting(offset, 0)
    return found


def _timestamp_at(segments: Sequence[SegmentFile], offset: int) -> int | None:
    """The time of the record at exactly this offset; None where there is none (any more) or it cannot be read."""
    place = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if place < 0:
        return None
    try:
        records = _records_around(segments[place], offset)
    except (CodecError, OSError):
        return None
    return next((record.timestamp_ms for record in records if record.offset == offset), None)


def _records_around(segment: SegmentFile, offset: int) -> Sequence[Record]:
    """Those of the batch that an offset is in. Without an index it is found by all headers before it, so by kernels."""
    for buffer, batches in read_headers(segment, offset, may_grow=True):
        behind = np.flatnonzero(batches[:, scan.B_LAST_OFFSET] >= offset)
        if len(behind):
            first, size = batches[behind[0], [scan.B_POSITION, scan.B_SIZE]].tolist()
            if size > LARGEST_DECODED_BYTES:
                break
            data = buffer[first : first + size].tobytes()
            header = read_header(data, 0, size)
            return (
                ()
                if header.is_control or computed_crc(data, 0, header) != header.crc
                else decode_records(data, 0, header)
            )
    return ()


def describe_replica(directory: str) -> Replica:
    """One directory, by the headers of its newest segment. `BadInput` where there is no segment in it."""
    path = Path(directory)
    segments = segments_of(path)
    if not segments:
        raise SourceMissing(f"{directory} has no segment in it: no file named by twenty digits and `.log`.")
    try:
        lineage = tuple((epoch, offset) for epoch, offset in read_epochs(RealFiles(), path).entries)
    except (Malformed, OSError):
        lineage = ()  # none of these small files is worth a log
    end_offset, last_epoch = segments[-1].base_offset, -1
    # A segment that was rolled a moment ago is empty: the one before it has the last batch.
    for segment in reversed(segments[-2:]):
        last = _last_batch(segment)
        if last is not None:
            end_offset, last_epoch = max(end_offset, last[0] + 1), last[1]
            break
    if lineage:
        last_epoch = max(last_epoch, lineage[-1][0])
    return Replica(directory, lineage, segments[0].base_offset, end_offset, last_epoch)


def _last_batch(segment: SegmentFile) -> tuple[int, int] | None:
    """Last offset and leader epoch of the last whole batch of a segment; its index shortens the way there."""
    found = None
    try:
        for _, batches in read_headers(segment, ANY_OFFSET, may_grow=True):
            if len(batches):
                found = int(batches[-1, scan.B_LAST_OFFSET]), int(batches[-1, scan.B_LEADER_EPOCH])
    except FileNotFoundError:  # replaced a moment ago; what was found there holds
        return found
    return found


def describe_partition(directories: Sequence[str | os.PathLike[str]]) -> DescribedPartition:
    """The replica that leads, with the others behind it: that of the newest leader epoch and then of the highest end.

    Cheap enough for planning. A replica without any segment does not count, unless no other has one (`BadInput`).
    """
    replicas: list[Replica] = []
    problem: BadInput | None = None
    for directory in directories:
        try:
            replicas.append(describe_replica(os.fspath(directory)))
        except BadInput as error:
            problem = error
    if not replicas:
        raise problem or BadInput("no directory was given for a partition.")
    replicas.sort(key=lambda one: (one.last_epoch, one.end_offset), reverse=True)
    leader = replicas[0]
    source = SegmentFiles(tuple(one.directory for one in replicas), leader.lineage)
    return DescribedPartition(source, leader.log_start_offset, leader.end_offset, leader.last_epoch)
