"""Files that an interrupted change left in a partition: finished, or removed, as Kafka does.

A swap of compacted segments goes through three names. `.cleaned` is being written: worth nothing. `.swap` is whole and
durable, and the segments it replaces are about to go: the swap is finished. `.deleted` is what was replaced: removed.
Where a `.cleaned` file exists, `.swap` files at or behind its offset belong to the same unfinished change and go too.
"""

from pathlib import Path

from muster.log.segment import CLEANED, DELETED, INDEX, LOG, SEGMENT_SUFFIXES, SWAP, TIMEINDEX, TXNINDEX, Segment
from muster.log.segment import offset_in_name as offset_in_plain_name
from muster.segments.files import Files

KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"
"""A snapshot of Kafka's metadata, not one of our business."""


def _offset_in_name(name: str, suffix: str) -> int | None:
    for kind in SEGMENT_SUFFIXES:
        offset = offset_in_plain_name(name, kind + suffix)
        if offset is not None:
            return offset
    return None


def finish_interrupted_changes(files: Files, directory: Path, notes: list[str]) -> bool:
    """Leave only plain segment files; says in `notes` what was done. True if any name changed.

    Every step may be interrupted and done again: what is removed goes before what takes its place gets its name.
    """
    names = [entry.name for entry in files.entries(directory) if not entry.is_directory]
    gone = [name for name in names if name.endswith(DELETED) and not name.endswith(KRAFT_SNAPSHOT_DELETED)]
    cleaned = {name: offset for name in names if (offset := _offset_in_name(name, CLEANED)) is not None}
    swaps = {name: offset for name in names if (offset := _offset_in_name(name, SWAP)) is not None}
    first_cleaned = min(cleaned.values(), default=None)
    unfinished = [name for name, offset in swaps.items() if first_cleaned is not None and offset >= first_cleaned]
    gone += [name for name in names if name.endswith(".tmp")]
    _remove(files, directory, [*gone, *unfinished], notes)
    if unfinished and cleaned:
        # While the `.cleaned` files are there, whoever comes next knows that the `.swap` files are not whole.
        files.sync_directory(directory, "leftovers.unfinished")
    _remove(files, directory, list(cleaned), notes)
    left = [name for name in swaps if name not in unfinished]
    if left:
        _finish_swap(files, directory, left, notes)
    orphans = _orphaned_indexes(files, directory)
    _remove(files, directory, orphans, notes)
    return bool(gone or cleaned or swaps or orphans)


def _remove(files: Files, directory: Path, names: list[str], notes: list[str]) -> None:
    for name in names:
        files.unlink(directory / name)
    if names:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes.append(f"{directory.name}: removed {min(names)}{more}, left over from an interrupted change")


def _finish_swap(files: Files, directory: Path, swaps: list[str], notes: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(LOG + SWAP)]
    if logs:
        replaced = range(min(map(_offset, logs)), max(_next_offset(files, directory, name) for name in logs))
        old = [
            entry.name
            for entry in files.entries(directory)
            if (offset := _offset_in_name(entry.name, "")) is not None and offset in replaced
        ]
        _remove(files, directory, old, notes)
        files.sync_directory(directory, "leftovers.replaced")
    for name in swaps:
        files.rename(directory / name, directory / name.removesuffix(SWAP))
    notes.append(f"{directory.name}: swapped in {', '.join(sorted(swaps))}, as compaction had begun to")


def _offset(name: str) -> int:
    return int(name[:20])


def _next_offset(files: Files, directory: Path, log_name: str) -> int:
    size = next(entry.size_bytes for entry in files.entries(directory) if entry.name == log_name)
    segment = Segment(files, directory, _offset(log_name), size, SWAP)
    if not files.exists(segment.path(INDEX)):
        return _walked_end(segment)
    return segment.next_offset()


def _walked_end(segment: Segment) -> int:
    end = segment.base_offset
    with segment.opened() as log:
        for _, header in segment._walk(log, 0):
            end = header.last_offset + 1
    return end


def _orphaned_indexes(files: Files, directory: Path) -> list[str]:
    names = {entry.name for entry in files.entries(directory)}
    return [
        name
        for name in sorted(names)
        for kind in (INDEX, TIMEINDEX, TXNINDEX)
        if offset_in_plain_name(name, kind) is not None and f"{name[:20]}{LOG}" not in names
    ]
