"""Real files whose syncs do nothing: for tests about bytes, on machines whose disk is slow."""

import os
from pathlib import Path

from muster.segments.files import File, RealFile, RealFiles


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self, point: str) -> None:
        pass


class UnsyncedFiles(RealFiles):
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return UnsyncedFile(path, os.open(path, flags, 0o644))

    def sync_directory(self, directory: Path, point: str) -> None:
        pass


UNSYNCED = UnsyncedFiles()
