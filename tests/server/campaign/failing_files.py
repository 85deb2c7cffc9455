"""Real files that fail when they are told to: a full disk, a broken one, a slow one, and well again.

An order names an operation, which paths it is about, and the error. Orders come from outside while the server runs, so
everything here may be called from several threads.
"""

import errno
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.segments.files import REAL_FILES, Buffer, Entry, File, Lock

CHANGES = ("write", "truncate", "create", "mkdir", "rename")
"""Operations that need room on a disk."""


@dataclass
class Order:
    """What is to fail. With `error` 0 nothing fails, but every operation takes `slow_s` longer."""

    operations: tuple[str, ...]
    path: str
    """A regular expression that is looked for in the path."""
    error: int
    room_bytes: int = 0
    """Of a full disk: so many bytes still fit."""
    times: int = 1 << 30
    """How often, before it is well again by itself."""
    slow_s: float = 0.0

    def __str__(self) -> str:
        what = f"{os.strerror(self.error)}" if self.error else f"{self.slow_s} s late"
        room = f" after {self.room_bytes} bytes" if self.room_bytes else ""
        times = f" {self.times} times" if self.times < 1 << 30 else ""
        return f"{what}{room}{times}: {'/'.join(self.operations)} of {self.path}"

    def concerns(self, operation: str, path: Path) -> bool:
        return self.times > 0 and operation in self.operations and re.search(self.path, str(path)) is not None


class FailingFiles:
    """The operating system's files, under orders."""

    concurrent = True

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._guard = threading.Lock()
        self.failed = 0
        """Operations that failed, or were slow, by order."""

    def order(self, order: Order) -> None:
        with self._guard:
            self._orders.append(order)

    def heal(self) -> int:
        """Forget all orders; returns how often one was carried out since the last time."""
        with self._guard:
            self._orders.clear()
            failed, self.failed = self.failed, 0
            return failed

    def meet(self, operation: str, path: Path, size_bytes: int = 0) -> int:
        """Fail if that is ordered; else how many of the bytes still fit, which may be fewer than there are."""
        slow_s = 0.0
        with self._guard:
            for order in self._orders:
                if not order.concerns(operation, path):
                    continue
                if order.error == errno.ENOSPC and size_bytes <= order.room_bytes and operation == "write":
                    order.room_bytes -= size_bytes
                    continue
                self.failed += 1
                order.times -= 1
                if not order.error:
                    slow_s = max(slow_s, order.slow_s)
                    continue
                if order.error == errno.ENOSPC and operation == "write" and order.room_bytes:
                    fits, order.room_bytes = order.room_bytes, 0
                    return fits
                raise OSError(order.error, os.strerror(order.error), str(path))
        if slow_s:
            time.sleep(slow_s)
        return size_bytes

    # The operations.

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        self.meet("open", path)
        if create and not path.exists():
            self.meet("create", path)
        return FailingFile(self, REAL_FILES.open(path, write=write, create=create))

    def entries(self, directory: Path) -> list[Entry]:
        self.meet("entries", directory)
        return REAL_FILES.entries(directory)

    def exists(self, path: Path) -> bool:
        return REAL_FILES.exists(path)

    def mkdir(self, directory: Path) -> None:
        self.meet("mkdir", directory)
        REAL_FILES.mkdir(directory)

    def rename(self, source: Path, target: Path) -> None:
        self.meet("rename", target)
        REAL_FILES.rename(source, target)

    def unlink(self, path: Path) -> None:
        self.meet("unlink", path)
        REAL_FILES.unlink(path)

    def rmdir(self, directory: Path) -> None:
        self.meet("unlink", directory)
        REAL_FILES.rmdir(directory)

    def sync_directory(self, directory: Path, point: str) -> None:
        self.meet("sync", directory)
        REAL_FILES.sync_directory(directory, point)

    def lock(self, path: Path) -> Lock:
        return REAL_FILES.lock(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_FILES, name)


class FailingFile:
    """One file of theirs. A sync that failed once fails for ever, as a real file's does."""

    def __init__(self, files: FailingFiles, file: File) -> None:
        self.path = file.path
        self._files = files
        self._file = file
        self._sync_error: OSError | None = None

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, position: int) -> bytes:
        self._files.meet("read", self.path)
        return self._file.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        fits = self._files.meet("write", self.path, len(data))
        if fits == len(data):
            self._file.pwrite(data, position)
            return
        self._file.pwrite(memoryview(data)[:fits], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def truncate(self, size: int) -> None:
        self._files.meet("truncate", self.path)
        self._file.truncate(size)

    def sync(self, point: str) -> None:
        if self._sync_error is not None:
            raise self._sync_error
        try:
            self._files.meet("sync", self.path)
        except OSError as error:
            self._sync_error = error
            raise
        self._file.sync(point)

    def close(self) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
