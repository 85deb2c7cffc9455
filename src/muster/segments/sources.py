"""From what the user points at to the segments of an offsets topic.

A path may be a broker's log directory, one partition's directory, a single segment, or a tar archive of any of these.
Only `NNN.log` counts: brokers leave `.deleted`, `.cleaned` and `.swap` files behind, whose records are in the log
already (or not yet), and reading them would count history twice.
"""

import errno
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from muster.errors import BadInput, SourceMissing
from muster.segments.archives import DEFAULT_LIMIT, UnpackLimit, is_archive, unpack

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SEGMENT_NAME = re.compile(r"^(\d{20})\.log$")
ADDRESS = re.compile(r"[\w.\[\]:-]+:\d{2,5}")
PARTITION_NAME = re.compile(r"^(?P<topic>.+)-(?P<partition>\d+)$")
COMPANION_SUFFIXES = {
    ".index": "an offset index",
    ".timeindex": "a time index",
    ".txnindex": "a transaction index",
    ".snapshot": "a producer snapshot",
    ".deleted": "a file that the broker has already replaced",
    ".cleaned": "an unfinished compaction",
    ".swap": "an unfinished compaction",
}
UNNAMED = "segments"
"""Directory of segments that an archive has in no directory at all."""
DEEPEST_SEARCH = 4
LISTINGS = 3
"""How often a directory is listed whose files go while we look."""


class SegmentFile(NamedTuple):
    """One `.log` file; `name` is how people know it: partition directory and file name."""

    path: Path
    name: str
    base_offset: int
    size_bytes: int


class SourcePartition(NamedTuple):
    """The segments of one partition, in log order. `partition` is None for a segment that lies about on its own."""

    directory: Path
    partition: int | None
    segments: tuple[SegmentFile, ...]


class Sources:
    """Everything found under some paths. A context manager, because archives are unpacked into a temporary folder."""

    def __init__(
        self, paths: list[Path], topic: str = OFFSETS_TOPIC, unpack_limit: UnpackLimit = DEFAULT_LIMIT
    ) -> None:
        self._stack = ExitStack()
        self._unpack_limit = unpack_limit
        self.partitions: list[SourcePartition] = []
        try:
            for path in paths:
                self.partitions.extend(self._find(path, topic))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> "Sources":
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    @property
    def segments(self) -> list[SegmentFile]:
        return [segment for partition in self.partitions for segment in partition.segments]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def _find(self, path: Path, topic: str) -> list[SourcePartition]:
        try:
            is_directory = _is_directory(path)
            if is_archive(path):
                folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-")))
                unpack_segments(path, folder, topic, self._unpack_limit)
                return _unpacked_partitions(folder, topic, path)
            return partitions_under(path, topic) if is_directory else [_single_segment(path)]
        except FileNotFoundError as error:
            raise SourceMissing(f"{error.filename or path} went away while it was looked at.") from None
        except PermissionError as error:
            raise BadInput(
                f"no permission to read {error.filename or path}. Run as the broker's user, or copy the files first."
            ) from None


def _is_directory(path: Path) -> bool:
    """Asked once: a directory that is moved meanwhile is one that went away, not a file with an odd name."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        raise
    except (OSError, ValueError):  # a link in a circle, a name that no file can have
        if ADDRESS.fullmatch(path.name):
            raise SourceMissing(
                f"{path.name} is no directory here. A live cluster is written kafka://HOST:PORT."
            ) from None
        raise SourceMissing(
            f"{path} does not exist. Point at a broker's log directory (`log.dirs` in its server.properties), "
            "a partition's directory in it, a .log file, or a .tar.zst/.tar.gz of one."
        ) from None


def partitions_under(folder: Path, topic: str = OFFSETS_TOPIC) -> list[SourcePartition]:
    """All partitions of a topic in a folder: the folder itself, or directories below it."""
    if _segment_files(folder):
        return [_partition(folder)]
    return _sorted(_walk_to_partitions(folder, topic, DEEPEST_SEARCH), topic, folder)


def _unpacked_partitions(folder: Path, topic: str, archive: Path) -> list[SourcePartition]:
    """What `unpack_segments` left; directories with another name count only where none is a partition's."""
    named = list(_walk_to_partitions(folder, topic, DEEPEST_SEARCH))
    return _sorted(named or folder.glob("*/*"), topic, archive)


def _sorted(directories: Iterable[Path], topic: str, shown_as: Path) -> list[SourcePartition]:
    found = [_partition(directory) for directory in directories]
    if not found:
        raise SourceMissing(
            f"no segments of {topic} in {shown_as}: no `{topic}-N` directory with a .log file, and no .log file of its "
            "own. A broker keeps them in `log.dirs`."
        )
    return sorted(found, key=lambda partition: (str(partition.directory.parent), partition.partition or 0))


def _walk_to_partitions(folder: Path, topic: str, depth: int) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if not entry.is_dir():
            continue
        match = PARTITION_NAME.match(entry.name)
        if match and match["topic"] == topic:
            if _segment_files(Path(entry.path)):
                yield Path(entry.path)
        elif depth > 1 and not match:
            yield from _walk_to_partitions(Path(entry.path), topic, depth - 1)


def _segment_files(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if SEGMENT_NAME.match(entry.name))


def segments_of(directory: Path) -> list[SegmentFile]:
    """The segments of one partition's directory in log order, as they are now: a broker may be at work there, and a
    segment that vanishes while we look is not among them.
    """
    segments = []
    for name in _segment_files(directory):
        with suppress(FileNotFoundError):
            size_bytes = (directory / name).stat().st_size
            segments.append(
                SegmentFile(directory / name, f"{directory.name}/{name}", int(name.split(".")[0]), size_bytes)
            )
    return segments


def _partition(directory: Path) -> SourcePartition:
    match = PARTITION_NAME.match(directory.resolve().name)
    return SourcePartition(directory, int(match["partition"]) if match else None, _segments(directory))


def _segments(directory: Path) -> tuple[SegmentFile, ...]:
    """What is there at one moment: listed again when a file went meanwhile, as the broker's cleaner does with them."""
    for _ in range(LISTINGS - 1):
        with suppress(FileNotFoundError):
            return _segments_listed_once(directory)
    return _segments_listed_once(directory)


def _segments_listed_once(directory: Path) -> tuple[SegmentFile, ...]:
    return tuple(_segment(directory / name, directory.resolve().name) for name in _segment_files(directory))


def _segment(path: Path, directory_name: str) -> SegmentFile:
    if not os.access(path, os.R_OK):  # say now, not in the middle, that it cannot be read
        path.stat()  # a file that has just gone is no matter of permission
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    match = SEGMENT_NAME.match(path.name)
    name = f"{directory_name}/{path.name}" if directory_name else path.name
    return SegmentFile(path, name, int(match[1]) if match else 0, path.stat().st_size)


def _single_segment(path: Path) -> SourcePartition:
    kind = COMPANION_SUFFIXES.get(path.suffix)
    if kind is not None:
        log = path.with_name(path.name.split(".")[0] + ".log")
        raise BadInput(f"{path} is {kind}, not a log. The records are in {log.name} beside it.")
    if not SEGMENT_NAME.match(path.name):
        raise BadInput(
            f"{path} is not a segment: those are named by twenty digits, like 00000000000000000000.log. "
            "Rename a copy if it really is one."
        )
    if not _looks_like_segment(path):
        raise BadInput(
            f"{path} does not look like a Kafka segment: it begins with {_first_bytes(path)!r}, and no record batch "
            "does. Take the file from a broker's log directory, and unpack it first if it is compressed."
        )
    match = PARTITION_NAME.match(path.resolve().parent.name)
    segment = _segment(path, path.resolve().parent.name if match else "")
    return SourcePartition(path.parent, int(match["partition"]) if match else None, (segment,))


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(17)


def _looks_like_segment(path: Path) -> bool:
    """Whether a batch could begin here, however damaged. Nothing at all, and zeros, are what a broker may leave too."""
    start = _first_bytes(path)
    match = SEGMENT_NAME.match(path.name)
    first_offset = int(match[1]) if match else 0
    if len(start) < 17 or not any(start):
        return not any(start) or struct.pack(">q", first_offset).startswith(start[:4])
    base_offset, length, magic = struct.unpack(">qi4xB", start)
    # Of random bytes one in four billion passes: offsets in a segment are an int32 away from its name.
    return bool(magic <= 2 and length >= 14 and 0 <= base_offset - first_offset < 1 << 31)


def unpack_segments(
    archive: Path, folder: Path, topic: str = OFFSETS_TOPIC, limit: UnpackLimit = DEFAULT_LIMIT
) -> None:
    """Take the `.log` files of a topic out of an archive into a folder; nothing else in it is looked at.

    Segments in a directory that is no partition's at all are taken too. Of the names in the archive only that of the
    directory is kept, so that none can lead out of the folder; what was above it becomes a number.
    """
    parents: dict[PurePosixPath, str] = {}

    def wanted(name: PurePosixPath) -> PurePosixPath | None:
        partition = PARTITION_NAME.match(name.parent.name)
        if not SEGMENT_NAME.match(name.name) or (partition and partition["topic"] != topic):
            return None
        above = parents.setdefault(name.parent.parent, f"{len(parents):04}")
        return PurePosixPath(above, name.parent.name.strip(".") or UNNAMED, name.name)

    unpack(archive, folder, wanted, limit)
