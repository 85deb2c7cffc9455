"""A disk in memory that can be cut off, fill up, and fail; `model.py` says what a power cut leaves of it.

`crashes.py` cuts the power after every operation of a scenario.
"""

import copy
import errno
import os
from collections.abc import Callable
from pathlib import Path

from muster.segments.files import Buffer, DirectoryLocked, Entry, File, Lock
from tests.log.disk.model import Change, Directory, Image, Inode, NameChange, Node, Survivors, apply_write


class FaultyFile:
    def __init__(self, files: "FaultyFiles", path: Path, inode: Inode, writable: bool) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._writable = writable
        self._closed = False

    def _check(self, writing: bool = False) -> None:
        if self._closed or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def pread(self, size: int, position: int) -> bytes:
        self._check()
        self._files.operation("pread", self.path, changes=False)
        return bytes(self._inode.data[position : position + size])

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check(writing=True)
        self._files.before("pwrite", self.path)
        written = bytes(data)
        room = self._files.room_bytes
        if room is not None:
            fits = room - self._files.used_bytes() + max(0, min(len(self._inode.data) - position, len(written)))
            if fits < len(written):
                self._change((position, written[: max(0, fits)]))
                self._files.after("pwrite", self.path)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._change((position, written))
        self._files.after("pwrite", self.path)

    def _change(self, change: Change) -> None:
        apply_write(self._inode.data, change)
        self._inode.pending.append(change)

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        self._files.before("truncate", self.path)
        if size != len(self._inode.data):
            self._change(size)
        self._files.after("truncate", self.path)

    def sync(self, point: str) -> None:
        self._files.points.add(point)
        if self._closed or point in self._files.without:
            return
        try:
            self._files.before("sync", self.path)
        except OSError:
            self._inode.pending = []  # the kernel reports a failed write once, and takes the pages for clean afterwards
            raise
        self._inode.sync()
        self._files.after("sync", self.path)

    def close(self) -> None:
        self._closed = True


class FaultyLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class FaultyFiles:
    """A whole disk. `without` names the syncs to leave out, `room_bytes` makes it full, `fail` breaks operations."""

    concurrent = False  # operations are counted, in order

    def __init__(self, root: Directory | None = None, without: frozenset[str] = frozenset()) -> None:
        self.root = root or Directory()
        self.without = without
        self.points: set[str] = set()
        """All sync points met."""
        self.room_bytes: int | None = None
        self.read_only = False
        self.operations: list[str] = []
        self.fail: Callable[[str, Path], int | None] = lambda operation, path: None
        """Says of an operation and its path with which errno it fails, before it has done anything."""
        self.watch: Callable[[str], None] = lambda operation: None
        self._locks: set[Path] = set()

    def before(self, operation: str, path: Path) -> None:
        if self.read_only and operation not in ("pread", "sync", "sync_directory"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        number = self.fail(operation, path)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))

    def after(self, operation: str, path: Path) -> None:
        name = f"{operation} {path.name}"
        self.operations.append(name)
        self.watch(name)

    def operation(self, operation: str, path: Path, changes: bool = True) -> None:
        self.before(operation, path)
        if changes:
            self.after(operation, path)

    def used_bytes(self) -> int:
        def used(node: Node) -> int:
            return len(node.data) if isinstance(node, Inode) else sum(map(used, node.names.values()))

        return used(self.root)

    def _directory(self, path: Path) -> Directory:
        node: Node = self.root
        for part in path.parts[1:] if path.is_absolute() else path.parts:
            if not isinstance(node, Directory) or part not in node.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = node.names[part]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        parent = self._directory(path.parent)
        node = parent.names.get(path.name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if node is None and not create:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if self.read_only and (write or create):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        if node is None:
            self.before("create", path)
            node = Inode()
            parent.change(NameChange("", path.name, node))
            self.after("create", path)
        return FaultyFile(self, path, node, write or create)

    def entries(self, directory: Path) -> list[Entry]:
        return sorted(
            Entry(name, isinstance(node, Directory), len(node.data) if isinstance(node, Inode) else 0)
            for name, node in self._directory(directory).names.items()
        )

    def exists(self, path: Path) -> bool:
        try:
            return path.name in self._directory(path.parent).names
        except (FileNotFoundError, NotADirectoryError):
            return False

    def mkdir(self, directory: Path) -> None:
        parent = self._directory(directory.parent)
        if directory.name in parent.names:
            self._directory(directory)
            return
        self.before("mkdir", directory)
        parent.change(NameChange("", directory.name, Directory()))
        self.after("mkdir", directory)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "the log renames within a directory only"
        parent = self._directory(source.parent)
        if source.name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        self.before("rename", target)
        parent.change(NameChange(source.name, target.name, parent.names[source.name]))
        self.after("rename", target)

    def unlink(self, path: Path) -> None:
        parent = self._directory(path.parent)
        if path.name not in parent.names:
            return
        self.before("unlink", path)
        parent.change(NameChange(path.name, "", None))
        self.after("unlink", path)

    def rmdir(self, directory: Path) -> None:
        if self._directory(directory).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(directory))
        self.before("rmdir", directory)
        self._directory(directory.parent).change(NameChange(directory.name, "", None))
        self.after("rmdir", directory)

    def sync_directory(self, directory: Path, point: str) -> None:
        self.points.add(point)
        if point in self.without:
            return
        self.before("sync_directory", directory)
        self._directory(directory).sync()
        self.after("sync_directory", directory)

    def lock(self, path: Path) -> Lock:
        if path in self._locks:
            raise DirectoryLocked(f"{path} is held by another process")
        self.open(path, create=True)
        self._locks.add(path)
        return FaultyLock(self._locks, path)

    def image(self) -> "Image":
        return Image.of(self.root)

    def killed(self) -> "FaultyFiles":
        """What the next process finds after a SIGKILL: the page cache is still there, locks are not."""
        return FaultyFiles(copy.deepcopy(self.root), self.without)

    def cut(self, survivors: "Survivors") -> "FaultyFiles":
        """What is left after a power cut now."""
        return FaultyFiles(self.image().root(survivors), self.without)
