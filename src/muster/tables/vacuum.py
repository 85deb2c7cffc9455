"""Clearing up: files that no kept manifest names, entries of Delta's log that no kept version needs, old staging."""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple, Protocol

from pyarrow import fs

from muster.tables.delta import DELTA_LOG

STAGING = "_staging"
ENTRY = re.compile(r"(\d{20})\.(?:json|crc|checkpoint(?:\.\d{10}\.\d{10})?\.parquet)")


class Vacuumed(NamedTuple):
    """What was removed."""

    files: int
    size_bytes: int


class Store(Protocol):
    """What of a `TableStore` is needed here."""

    @property
    def filesystem(self) -> fs.FileSystem: ...
    @property
    def root(self) -> str: ...
    @property
    def address(self) -> str: ...
    def files(self, table: str, version: int) -> list[str]: ...
    def newest_version(self, table: str) -> int: ...


def vacuum(store: Store, kept: Mapping[str, Set[int]], before_ms: int | None) -> Vacuumed:
    """Remove what the kept versions do not need and what is older than a moment (None: of any age).

    The newest version of a table always counts as kept: another engine may be reading it.
    """
    removed: list[fs.FileInfo] = []
    for table in _directories(store, store.root):
        if table == STAGING:
            removed += _listed(store, f"{store.root}/{STAGING}", before_ms)
        elif store.newest_version(table) >= 0:
            versions = set(kept.get(table, ())) | {store.newest_version(table)}
            removed += _unnamed(store, table, versions, before_ms)
            removed += _old_entries(store, table, min(versions), before_ms)
    for info in removed:
        store.filesystem.delete_file(info.path)
    _remove_empty_staging(store)
    return Vacuumed(len(removed), sum(info.size for info in removed))


def _unnamed(store: Store, table: str, versions: Set[int], before_ms: int | None) -> list[fs.FileInfo]:
    directory = f"{store.root}/{table}"
    prefix = f"{store.address}/{table}/"
    named = {uri.removeprefix(prefix) for version in versions for uri in store.files(table, version)}
    found = {info.path[len(directory) + 1 :]: info for info in _listed(store, directory, before_ms)}
    return [
        info
        for name, info in found.items()
        if name.endswith(".parquet") and not name.startswith(f"{DELTA_LOG}/") and name not in named
    ]


def _old_entries(store: Store, table: str, oldest: int, before_ms: int | None) -> list[fs.FileInfo]:
    """Entries before the newest checkpoint that the oldest kept version can be read from."""
    entries = {
        info: int(match[1])
        for info in _listed(store, f"{store.root}/{table}/{DELTA_LOG}", before_ms)
        if (match := ENTRY.fullmatch(info.base_name))
    }
    checkpoints = [version for info, version in entries.items() if ".checkpoint." in info.base_name]
    first_needed = max((version for version in checkpoints if version <= oldest), default=0)
    return [info for info, version in entries.items() if version < first_needed]


def _listed(store: Store, directory: str, before_ms: int | None) -> list[fs.FileInfo]:
    found = store.filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True))
    return [
        info
        for info in found
        if info.type == fs.FileType.File and (before_ms is None or (info.mtime_ns or 0) <= before_ms * 1_000_000)
    ]


def _directories(store: Store, root: str) -> list[str]:
    found = store.filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True))
    return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)


def _remove_empty_staging(store: Store) -> None:
    staging = f"{store.root}/{STAGING}"
    for run in _directories(store, staging):
        left = store.filesystem.get_file_info(fs.FileSelector(f"{staging}/{run}", allow_not_found=True, recursive=True))
        if not any(info.type == fs.FileType.File for info in left):
            store.filesystem.delete_dir(f"{staging}/{run}")
