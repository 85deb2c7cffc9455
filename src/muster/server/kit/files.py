"""Real files that can be told that the disk is full, and that know how far each of them was synced.

When the power goes (`power_off`, `lose_unsynced`), nothing is written any more, and a file is cut to where it ended at
its last sync. Names are kept, renames too: that is one of the outcomes that a power cut may have.
"""

import errno
import os
import threading
from pathlib import Path

from muster.segments.files import Buffer, File, RealFile, RealFiles


class KitFiles(RealFiles):
    def __init__(self) -> None:
        self.is_full = False
        self._is_off = False
        self._durable: dict[tuple[int, int], int] = {}
        """By device and number of a file: its size at its last sync."""
        self._lock = threading.Lock()

    def check(self, path: Path, *, grows: bool = True) -> None:
        """Raise the error that the disk has now."""
        if self._is_off:
            raise OSError(errno.EIO, "the power is off", str(path))
        if self.is_full and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        self.check(path, grows=create and not path.exists())
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        fd = os.open(path, flags, 0o644)
        about = os.fstat(fd)
        with self._lock:  # what was there before is durable, a new file is empty
            self._durable.setdefault((about.st_dev, about.st_ino), about.st_size)
        return KitFile(path, fd, self)

    def mkdir(self, directory: Path) -> None:
        self.check(directory, grows=not directory.exists())
        super().mkdir(directory)

    def unlink(self, path: Path) -> None:
        """The number of a file that is gone may be given to another."""
        self.check(path, grows=False)
        try:
            about = os.stat(path)
        except FileNotFoundError:
            return
        super().unlink(path)
        with self._lock:
            self._durable.pop((about.st_dev, about.st_ino), None)

    def rename(self, source: Path, target: Path) -> None:
        self.check(source, grows=False)
        super().rename(source, target)

    def synced(self, identity: tuple[int, int], size_bytes: int) -> None:
        with self._lock:
            if not self._is_off:
                self._durable[identity] = size_bytes

    def power_off(self) -> None:
        """Nothing is written or synced any more."""
        self._is_off = True

    def lose_unsynced(self, directory: Path) -> int:
        """Cut every file below a directory to what was synced, and turn the power on. Returns the bytes lost."""
        lost = 0
        with self._lock:
            for path in directory.rglob("*"):
                about = os.lstat(path)
                durable = self._durable.get((about.st_dev, about.st_ino))
                if durable is not None and path.is_file() and about.st_size > durable:
                    os.truncate(path, durable)
                    lost += about.st_size - durable
            self._durable.clear()
        self._is_off = self.is_full = False
        return lost


class KitFile(RealFile):
    __slots__ = ("_files", "_identity")

    def __init__(self, path: Path, fd: int, files: KitFiles) -> None:
        super().__init__(path, fd)
        self._files = files
        about = os.fstat(fd)
        self._identity = about.st_dev, about.st_ino

    def pwrite(self, data: Buffer, position: int) -> None:
        self._files.check(self.path)
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._files.check(self.path, grows=False)
        super().truncate(size)

    def sync(self, point: str) -> None:
        self._files.check(self.path, grows=False)
        size = os.fstat(self._fd).st_size if self._fd >= 0 else -1
        super().sync(point)
        if size >= 0:
            self._files.synced(self._identity, size)
