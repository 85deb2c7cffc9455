"""Logs that are not on this machine, as segments that are: downloaded for a task, and gone with it."""

from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs

from muster.pipeline.model import LiveLog, PartitionWork, SegmentFiles
from muster.segments.checkpoints import LEADER_EPOCHS
from muster.segments.sources import SEGMENT_NAME
from muster.tables.files import is_local, local_path, open_store


def is_here(source: SegmentFiles | LiveLog) -> bool:
    """Whether a task can open the segments as they are."""
    return isinstance(source, SegmentFiles) and all(is_local(directory) for directory in source.directories)


def fetch_to_segments(work: PartitionWork, directory: Path) -> SegmentFiles:
    """The range of a partition as segments below a directory; the same source where it is here already."""
    source = work.source
    from_offset = 0 if work.state_from_scratch else work.from_offset
    if isinstance(source, LiveLog):
        from muster.live.download import download  # clusters are not everybody's, nor are its libraries

        target = directory / f"{source.topic}-{work.offsets_partition}"
        target.mkdir(parents=True)
        download(dict(source.config), source.topic, work.offsets_partition, from_offset, work.to_offset, target)
        return SegmentFiles((str(target),), ())
    if is_here(source):
        return source._replace(directories=tuple(str(local_path(one)) for one in source.directories))
    copies = []
    for number, address in enumerate(source.directories):
        target = directory / str(number) / PurePosixPath(address).name
        target.mkdir(parents=True)
        copy_segments(address, source.storage_options, from_offset, work.to_offset, target)
        copies.append(str(target))
    return SegmentFiles(tuple(copies), source.epochs)


def peek(address: str, options: tuple[tuple[str, str], ...], target: Path) -> None:
    """What planning looks at, of a partition elsewhere: its newest segments and its lineage. The others are names only:
    their files are empty.
    """
    store, path = open_store(address, options)
    found = store.get_file_info(fs.FileSelector(path))
    names = sorted(one.base_name for one in found if SEGMENT_NAME.match(one.base_name))
    for name in names[:-2]:
        (target / name).touch()
    for name in [*names[-2:], *(one.base_name for one in found if one.base_name == LEADER_EPOCHS)]:
        _copy(store, f"{path}/{name}", target / name)


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
