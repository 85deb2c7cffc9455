"""A large partition is read in pieces, by different tasks. Pure: sizes in, works out; reports in, one report out.

A piece is a range of offsets; the pieces of a partition tile what is new of it. The tables are the same as from one
reading, wherever it is cut. What a piece cannot know, since it stands before it or behind it, comes from three places:

    how a transaction ended         the piece reads headers on, behind its end, until the last marker it needs
    what was committed before it    a deletion, or a group's record, is sent to the merge unfinished (`late_rows`)
    how the log is as a whole       the reports of the pieces, joined: gaps, progress, the newest time, damage

Files are cut where a segment begins, a live log at any offset: a record belongs to the piece that has its offset, even
if the piece before has others of the same batch. A log on several replicas is not cut, because what one replica lacks
is looked for in the others; nor is one that was truncated, whose deletions need the log from its beginning.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise

from muster.pipeline.model import LiveLog, PartitionReport, PartitionWork
from muster.pipeline.plan import PartitionState, thinned
from muster.tables.clocks import is_ahead

MOST_DAMAGE_TOLD = 100


def in_pieces(
    works: Iterable[PartitionWork], states: Iterable[PartitionState], piece_bytes: int
) -> list[PartitionWork]:
    """The works, those of large partitions cut into pieces of about so many bytes."""
    segments = {state.offsets_partition: state.segments for state in states}
    return [piece for work in works for piece in _pieces(work, segments.get(work.offsets_partition, ()), piece_bytes)]


def _pieces(work: PartitionWork, segments: Sequence[tuple[int, int]], piece_bytes: int) -> list[PartitionWork]:
    end = work.to_offset
    if end is None or end <= work.from_offset or work.state_from_scratch or 2 * work.size_bytes < 3 * piece_bytes:
        return [work]
    if isinstance(work.source, LiveLog):
        sizes = _even(work.from_offset, end, work.size_bytes, piece_bytes)
    elif len(work.source.directories) == 1:
        sizes = _at_segments(work.from_offset, end, segments, piece_bytes)
    else:
        return [work]
    return cut(work, end, sizes)


def cut(work: PartitionWork, end: int, sizes: Mapping[int, int]) -> list[PartitionWork]:
    """Pieces of a work that ends there, by the offsets that they begin at, rising from its own on, and their bytes."""
    return [
        work._replace(
            from_offset=first,
            to_offset=last,
            size_bytes=sizes[first],
            is_first=first == work.from_offset,
            range_end=None if last == end else end,
            landmarks=work.landmarks if first == work.from_offset else (),
        )
        for first, last in pairwise([*sizes, end])
    ]


def _even(from_offset: int, end: int, size_bytes: int, piece_bytes: int) -> dict[int, int]:
    """Where pieces begin, and their bytes: a cluster tells offsets, and not where the bytes are."""
    count = max(1, min(round(size_bytes / piece_bytes), end - from_offset))
    return {from_offset + (end - from_offset) * number // count: size_bytes // count for number in range(count)}


def _at_segments(from_offset: int, end: int, segments: Sequence[tuple[int, int]], piece_bytes: int) -> dict[int, int]:
    """Where pieces begin, and their bytes. A rest of less than half a piece goes with the piece before it."""
    sizes = {from_offset: 0}
    newest, ends = from_offset, [*(base for base, _ in segments[1:]), end]
    for (base, size), following in zip(segments, ends, strict=True):
        if following <= from_offset or base >= end:
            continue
        if base < from_offset:
            size = size * (following - from_offset) // (following - base)
        if base > from_offset and 2 * sizes[newest] + size >= 2 * piece_bytes:  # nearer to it than with this one
            newest = base
            sizes[newest] = 0
        sizes[newest] += size
    if len(sizes) > 1 and 2 * sizes[newest] < piece_bytes:
        rest = sizes.pop(newest)
        sizes[max(sizes)] += rest
    return sizes


def joined(reports: Iterable[PartitionReport]) -> list[PartitionReport]:
    """One report for each partition, as if it had been read in one piece."""
    by_partition = defaultdict[int, list[PartitionReport]](list)
    for report in reports:
        by_partition[report.offsets_partition].append(report)
    return [reduce(_then, sorted(some, key=lambda one: one.from_offset)) for _, some in sorted(by_partition.items())]


def _then(one: PartitionReport, next_: PartitionReport) -> PartitionReport:
    """A piece, and the one behind it; between the last batch of the one and the other there may be a hole."""
    damage = (*one.damage, *next_.damage)
    newest_ms, ahead_ms = _newest(one, next_)
    told = one._replace(
        records=one.records + next_.records,
        unread=one.unread + next_.unread,
        size_bytes=one.size_bytes + next_.size_bytes,
        landmarks=thinned([*one.landmarks, *next_.landmarks]),
        damage=damage[:MOST_DAMAGE_TOLD],
        untold_damage=one.untold_damage + next_.untold_damage + len(damage[MOST_DAMAGE_TOLD:]),
        newest_timestamp_ms=newest_ms,
        dated_ahead=ahead_ms,
        last_timestamp_ms=next_.last_timestamp_ms if next_.records else one.last_timestamp_ms,
    )
    if next_.has_batches or not one.has_batches:
        told = told._replace(leader_epoch=next_.leader_epoch, has_batches=next_.has_batches)
    if next_.next_offset == next_.from_offset:  # nothing is there, and what is missing shows by what comes behind
        return told
    hole = next_.from_offset - one.next_offset
    told = told._replace(next_offset=next_.next_offset, gaps=one.gaps + hole + next_.gaps)
    if hole or next_.gaps or one.complete_since_offset == one.next_offset:
        told = told._replace(
            complete_since_offset=next_.complete_since_offset, complete_since_ms=next_.complete_since_ms
        )
    return told


def _newest(one: PartitionReport, next_: PartitionReport) -> tuple[int | None, int | None]:
    """The newest time that what stands behind it does not contradict, and the latest that cannot be."""
    known = [time for time in (one.newest_timestamp_ms, next_.newest_timestamp_ms) if time is not None]
    ahead = [time for time in (one.dated_ahead, next_.dated_ahead) if time is not None]
    newest = max(known, default=None)
    behind = next_.last_timestamp_ms
    if newest is not None and behind is not None and is_ahead(newest, behind):
        ahead.append(newest)
        newest = next_.newest_timestamp_ms
    return newest, max(ahead, default=None)
