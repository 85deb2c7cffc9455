"""The disk of `tests/log/disk/faults.py` under the threads of a server: one operation at a time, images in between."""

import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from muster.segments.files import File
from tests.log.disk.faults import FaultyFile, FaultyFiles
from tests.log.disk.model import Directory

Method = TypeVar("Method", bound=Callable[..., Any])


def _one_at_a_time(cls: Any, names: tuple[str, ...], lock_of: Callable[[Any], Any]) -> None:
    for name in names:

        def locked(method: Any) -> Any:
            @wraps(method)
            def call(self: Any, *arguments: Any, **named: Any) -> Any:
                with lock_of(self):
                    return method(self, *arguments, **named)

            return call

        setattr(cls, name, locked(getattr(cls, name)))


class SharedFile(FaultyFile):
    _files: "SharedFiles"


class SharedFiles(FaultyFiles):
    """Under `path`, whose parents are there for good."""

    def __init__(self, path: Path, root: Directory | None = None, without: frozenset[str] = frozenset()) -> None:
        super().__init__(root, without)
        self.lock_of_all = threading.RLock()
        parents = [] if root is not None else list(reversed(path.parents))[1:]
        for parent in parents:
            super().mkdir(parent)
            super().sync_directory(parent.parent, "made.directory")

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        with self.lock_of_all:
            file = super().open(path, write=write, create=create)
            assert isinstance(file, FaultyFile)
            return SharedFile(self, path, file._inode, write or create)


_one_at_a_time(
    SharedFiles,
    ("entries", "exists", "mkdir", "rename", "unlink", "rmdir", "sync_directory", "lock", "image"),
    lambda files: files.lock_of_all,
)
_one_at_a_time(
    SharedFile, ("size", "pread", "pwrite", "truncate", "sync", "close"), lambda file: file._files.lock_of_all
)
