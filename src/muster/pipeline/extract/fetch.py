"""Logs that are not on this machine, as segments that are: downloaded for a task, and gone with it."""

import tempfile
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pyarrow import fs

from muster.pipeline.model import LiveLog, PartitionWork, SegmentFiles
from muster.segments.sources import SEGMENT_NAME
from muster.tables.storage.files import is_local, local_path, open_store

OFFSETS_AT_ONCE = 100_000
"""Of a live log, where only markers are looked for: some ten megabytes."""


class Stretch(NamedTuple):
    """A directory with segments, and the range of offsets that they are of."""

    directory: Path
    from_offset: int
    to_offset: int


def is_here(source: SegmentFiles | LiveLog) -> bool:
    """Whether a task can open the segments as they are."""
    return isinstance(source, SegmentFiles) and all(is_local(directory) for directory in source.directories)


def fetch_to_segments(work: PartitionWork, directory: Path) -> SegmentFiles:
    """The range of a partition as segments below a directory; the same source where it is here already."""
    source = work.source
    from_offset = 0 if work.state_from_scratch else work.from_offset
    if isinstance(source, LiveLog):
        from muster.live.download import download  # its libraries are needed for live clusters only

        target = directory / f"{source.topic}-{work.offsets_partition}"
        target.mkdir(parents=True)
        download(dict(source.config), source.topic, work.offsets_partition, from_offset, work.to_offset, target)
        return SegmentFiles((str(target),), ())
    if is_here(source):
        return source._replace(directories=tuple(str(local_path(one)) for one in source.directories))
    copies = []
    if work.landmarks:  # the segment of the newest record that was read before may be another one
        from_offset = min(from_offset, work.landmarks[-1][0])
    for number, address in enumerate(source.directories):
        target = directory / str(number) / PurePosixPath(address).name
        target.mkdir(parents=True)
        copy_segments(address, source.storage_options, from_offset, work.to_offset, target)
        copies.append(str(target))
    return SegmentFiles(tuple(copies), source.epochs)


def fetch_behind(work: PartitionWork, directory: Path) -> Generator[Stretch]:
    """What comes behind a piece, stretch by stretch as it is asked for; each is gone when the next one is."""
    source, begin, end = work.source, work.to_offset, work.range_end
    if begin is None or end is None:  # it is no piece, or the last one
        return
    if isinstance(source, SegmentFiles) and is_here(source):
        yield Stretch(local_path(source.directories[0]), begin, end)
        return
    for first, last in _stretches(work, begin, end):
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            wanted = work._replace(from_offset=first, to_offset=last, landmarks=())
            fetched = fetch_to_segments(wanted, Path(folder))
            yield Stretch(Path(fetched.directories[0]), first, last)


def _stretches(work: PartitionWork, from_offset: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges that are worth fetching at once: a segment each, or so many offsets of a live log."""
    if isinstance(work.source, LiveLog):
        cuts: Sequence[int] = range(from_offset, end, OFFSETS_AT_ONCE)
    else:
        store, path = open_store(work.source.directories[0], work.source.storage_options)
        found = store.get_file_info(fs.FileSelector(path))
        names = sorted(one.base_name for one in found if SEGMENT_NAME.match(one.base_name))
        cuts = [from_offset, *(base for base in map(_base_offset, names) if from_offset < base < end)]
    yield from pairwise([*cuts, end])


def copy_segments(
    address: str, options: tuple[tuple[str, str], ...], from_offset: int, to_offset: int | None, target: Path
) -> None:
    """Copy the segments that may have something of a range, out of anything that `pyarrow.fs` opens."""
    store, path = open_store(address, options)
    found = store.get_file_info(fs.FileSelector(path))
    names = sorted(one.base_name for one in found if SEGMENT_NAME.match(one.base_name))
    for name, following in zip(names, [*names[1:], None], strict=True):
        if following is not None and _base_offset(following) <= from_offset:
            continue
        if to_offset is not None and _base_offset(name) >= to_offset:
            break
        _copy(store, f"{path}/{name}", target / name)


def _copy(store: Any, path: str, target: Path) -> None:
    with store.open_input_stream(path) as source, target.open("wb") as copy:
        while data := source.read(8 * 1024 * 1024):
            copy.write(data)


def _base_offset(name: str) -> int:
    return int(name.split(".")[0])
