"""Every file operation of the log goes through here, so that tests can put a disk of their own underneath.

The operations are the ones whose order decides what a crash leaves behind, and no more: positioned reads and writes,
`fdatasync`, truncation, renames, directory entries. `RealFiles` is the operating system; the tests have a model of a
disk with a page cache that can be cut off after any operation (`tests/log/disk/faults.py`).

What POSIX promises, and what the log is built on:

    a write is durable only after `File.sync`; until then any part of it may survive a power cut, later parts
    without earlier ones, and a file may be longer than what was written to it (zeros);
    a name (a new file, a rename, a removal) is durable only after `sync_directory` of the directory it is in;
    a rename replaces its target whole or not at all;
    after a sync that failed, it is not known what is on the disk: it is never tried again.

Every sync has a name, its *point* ("flush.log", ...). Real files ignore it; the tests leave out one after the other
and watch a power cut lose something. A sync whose absence no test notices has no business here.
"""

import fcntl
import mmap
import os
import stat
import threading
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from muster.errors import MusterError

Buffer = bytes | bytearray | memoryview | mmap.mmap


class DirectoryLocked(MusterError):
    """Another process holds the lock of a directory."""


class Entry(NamedTuple):
    """A name in a directory. `size_bytes` is 0 for a directory."""

    name: str
    is_directory: bool
    size_bytes: int


class File(Protocol):
    """An open file. All errors are `OSError`. One thread at a time, but `sync` may run beside everything else."""

    path: Path

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from a position; fewer only where the file ends."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """All of `data` at a position. An error leaves any part of it written."""

    def truncate(self, size: int) -> None: ...

    def sync(self, point: str) -> None:
        """Make everything written and truncated before this call durable (but not the file's name).

        Of a closed file it does nothing: it was synced before, or is not needed any more.
        """

    def close(self) -> None:
        """Waits for a sync that is under way. Closing twice is harmless."""


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A file system. All errors are `OSError`, with the usual numbers, unless said otherwise."""

    concurrent: bool
    """Whether several threads may work on different directories at once: syncs are mostly waiting."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """An existing file, for reading only unless `write`; `create` makes an empty one where there is none."""

    def entries(self, directory: Path) -> list[Entry]:
        """All names in a directory, sorted."""

    def exists(self, path: Path) -> bool: ...

    def mkdir(self, directory: Path) -> None:
        """Make one directory, whose parent must exist; nothing happens where it is there already."""

    def rename(self, source: Path, target: Path) -> None:
        """Also for directories. Replaces a file of that name."""

    def unlink(self, path: Path) -> None:
        """Remove a file. Nothing happens where there is none: a process that crashed may have removed it."""

    def rmdir(self, directory: Path) -> None: ...

    def sync_directory(self, directory: Path, point: str) -> None:
        """Make the names in this directory durable: files made, renamed and removed in it before this call."""

    def lock(self, path: Path) -> Lock:
        """Hold this file (made where it is missing) against other processes, Kafka brokers included.

        Raises `DirectoryLocked` where another holds it, in this process or another.
        """


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_sync_error", "_syncing", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._syncing = threading.Lock()  # a descriptor closed under a sync may by then be another file's
        self._sync_error: OSError | None = None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):
            written += os.pwrite(self._fd, memoryview(data)[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self, point: str) -> None:
        with self._syncing:
            if self._sync_error is not None:
                # The kernel reports a failed write once; a second sync would report that all is well.
                raise self._sync_error
            if self._fd >= 0:
                try:
                    os.fdatasync(self._fd)
                except OSError as error:
                    self._sync_error = error
                    raise

    def close(self) -> None:
        with self._syncing:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class RealLock:
    """A POSIX record lock, which is what Java's `FileLock` is too: so a broker and muster keep each other out.

    Two traps of such locks are stepped around here: they do not exclude their own process, and closing *any*
    descriptor of the file gives the lock up. So the files held are remembered, and looked at before one is opened.
    """

    _held: ClassVar[set[tuple[int, int]]] = set()
    _guard = threading.Lock()

    def __init__(self, path: Path) -> None:
        with RealLock._guard:
            if path.exists() and _identity(os.stat(path)) in RealLock._held:
                raise DirectoryLocked(f"{path} is held by this very process")
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                os.close(self._fd)
                raise DirectoryLocked(f"{path} is held by another process") from error
            self._key = _identity(os.fstat(self._fd))
            RealLock._held.add(self._key)

    def release(self) -> None:
        with RealLock._guard:
            if self._fd >= 0:
                RealLock._held.discard(self._key)
                os.close(self._fd)
                self._fd = -1


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


class RealFiles:
    """The operating system's files."""

    concurrent = True

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return RealFile(path, os.open(path, flags, 0o644))

    def entries(self, directory: Path) -> list[Entry]:
        with os.scandir(directory) as entries:
            return sorted(
                Entry(entry.name, entry.is_dir(), 0 if entry.is_dir() else entry.stat().st_size) for entry in entries
            )

    def exists(self, path: Path) -> bool:
        return path.exists()

    def mkdir(self, directory: Path) -> None:
        try:
            os.mkdir(directory, 0o755)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(directory).st_mode):
                raise

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rmdir(self, directory: Path) -> None:
        os.rmdir(directory)

    def sync_directory(self, directory: Path, point: str) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Lock:
        return RealLock(path)


REAL_FILES = RealFiles()


def read_file(files: Files, path: Path, limit: int | None = None) -> bytes:
    """A whole (small) file, or its first `limit` bytes."""
    file = files.open(path)
    try:
        size = file.size()
        return file.pread(size if limit is None else min(size, limit), 0)
    finally:
        file.close()


def write_file(files: Files, path: Path, data: bytes, point: str) -> None:
    """A small file replaced whole, its bytes durable before its name: a reader finds the old one or the new.

    Which of the two a power cut leaves is open until the directory is synced; `replace_file` does that too.
    """
    files.rename(write_beside(files, path, data, point), path)


def write_beside(files: Files, path: Path, data: bytes, point: str) -> Path:
    """The first half of `write_file`: the bytes are durable under another name, and the file is as it was."""
    temporary = path.with_name(path.name + ".tmp")
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync(f"{point}.data")
    finally:
        file.close()
    return temporary


def write_hint(files: Files, path: Path, data: bytes) -> None:
    """A small file that may be lost, or torn, in a crash: its reader can do without it."""
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
    finally:
        file.close()


def replace_file(files: Files, path: Path, data: bytes, point: str) -> None:
    """A small file replaced whole, for good: once this returns, a power cut leaves the new one."""
    write_file(files, path, data, point)
    files.sync_directory(path.parent, f"{point}.directory")
