"""`TableStore`: the tables at one address.

Readers ask the manifest for the version of each table, so they see the last run that was published and nothing of one
that is under way or was killed. `changes` has what a run does.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import fs

from muster.errors import BadInput
from muster.references import resolved
from muster.tables.about import ABOUT
from muster.tables.storage.addresses import checked, filesystem, is_local
from muster.tables.storage.delta import DELTA_LOG, OneTable
from muster.tables.storage.disk import LOCK_FILE, was_cut_short
from muster.tables.storage.manifest import FORMAT_VERSION, MANIFEST_TABLE, Manifest, manifest_of
from muster.tables.storage.upkeep import KEEP, STAGING, Keep, Place

PROBE = "_probe-"


class TableStore:
    """The tables at one address. Opening it reads and makes nothing."""

    def __init__(
        self, address: str | Path, storage_options: Mapping[str, str] | None = None, keep: Keep = KEEP
    ) -> None:
        self.storage_options = resolved(storage_options or {})
        self.keep = keep
        self.address = checked(address, self.storage_options)
        self._opened: tuple[fs.FileSystem, str] | None = None

    @property
    def filesystem(self) -> fs.FileSystem:
        return self._files_at[0]

    @property
    def root(self) -> str:
        """The address as a path in `filesystem`."""
        return self._files_at[1]

    @property
    def _files_at(self) -> tuple[fs.FileSystem, str]:
        if self._opened is None:
            self._opened = filesystem(self.address, self.storage_options)
        return self._opened

    def manifest(self) -> Manifest | None:
        """What the last published run left; None where there are no tables yet."""
        table = self.table(MANIFEST_TABLE)
        return self.manifest_in(table) if table.open() else None

    def published(self) -> Manifest:
        """The same where there must be one: `BadInput` says what is there instead, and how tables are made."""
        manifest = self.manifest()
        if manifest is not None:
            return manifest
        strange = strangers(Path(self.address)) if is_local(self.address) else ""
        if not strange and is_local(self.address):
            check_ours(Path(self.address))
        place = f"{self.address}/tables" if strange else self.address
        there = f", which has other things in it ({strange}). Name the directory that has them;" if strange else "."
        command = f"`muster pipeline run --source SOURCE --out {place}`"
        raise BadInput(f"there are no tables at {self.address}{there} {command} makes them.")

    def layout(self) -> int | None:
        """The layout of the tables, whichever it is; None where there are none yet."""
        table = self.table(MANIFEST_TABLE)
        return self._stored_manifest(table)["format_version"] if table.open() else None

    def manifests(self, newest: int) -> list[Manifest]:
        """The last few manifests, newest first; fewer where older ones have been cleaned away."""
        table, found = self.table(MANIFEST_TABLE), list[Manifest]()
        if not table.open():
            return []
        for version in range(table.version, max(-1, table.version - newest), -1):
            try:
                table.open(version)
                found.append(self.manifest_in(table))
            except (BadInput, FileNotFoundError):
                if not found:
                    raise
                break
        return found

    def files(self, table: str, version: int) -> list[str]:
        """Absolute paths, or addresses, of the Parquet files of one version of a table."""
        one = self.table(table)
        if not one.open(version):
            raise BadInput(f"{self.address} has no table {table}. Was it removed by hand? Build the tables again.")
        return one.files()

    def newest_version(self, table: str) -> int:
        """The newest version of a table, published or not; -1 where there is none."""
        one = self.table(table)
        one.open()
        return one.version

    def check_place(self) -> None:
        """Refuse a place where no run could write, as far as that can be told without making anything.

        Raises `OSError` where rights are missing, `BadInput` where something else is kept. An object store tells when
        it is written to.
        """
        if not is_local(self.address):
            return
        root = Path(self.address)
        check_ours(root)
        lock = root / LOCK_FILE
        there = next(each for each in (lock, *lock.parents) if each.exists())
        wanted = os.R_OK | os.W_OK | (os.X_OK if there.is_dir() else 0)
        if there != lock and not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.address)
        if not os.access(there, wanted, effective_ids=os.access in os.supports_effective_ids):
            number = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(number, os.strerror(number), str(lock if root.exists() else root))

    @property
    def place(self) -> Place:
        return Place(self.address, self.storage_options, self.filesystem, self.root)

    def table(self, name: str) -> OneTable:
        """A table by name; it is not opened yet."""
        return OneTable(
            name,
            f"{self.address}/{name}",
            self.storage_options,
            self.filesystem,
            f"{self.root}/{name}",
            ABOUT.get(name),
        )

    def manifest_in(self, table: OneTable, layout: int = FORMAT_VERSION) -> Manifest:
        """The manifest that an opened version of its table has."""
        return manifest_of(self._stored_manifest(table), self.address, layout)

    def _stored_manifest(self, table: OneTable) -> Mapping[str, Any]:
        files = table.files()
        if len(files) != 1:
            raise BadInput(f"{self.address}/{MANIFEST_TABLE} is no manifest of muster: it has {len(files)} files.")
        name = files[0].rsplit("/", 1)[1]
        with self.filesystem.open_input_file(f"{self.root}/{MANIFEST_TABLE}/{name}") as opened:
            row: Mapping[str, Any] = pq.ParquetFile(opened).read().to_pylist()[0]  # read_table would import pandas
        return row


def check_ours(root: Path) -> None:
    """Refuse a directory with other things in it, which would be mixed with ours, and tables whose manifest is gone."""
    strange = strangers(root)
    if strange:
        raise BadInput(
            f"{root} is not empty and has no tables of muster: {strange}. Name a directory for them, {root}-tables say."
        )
    if root.is_dir() and not has_manifest_or_nothing(root) and not was_cut_short(root):
        raise BadInput(
            f"{root} has tables of muster, but not their {MANIFEST_TABLE}, which says what is in them; a run would "
            f"begin them anew. Put {MANIFEST_TABLE} back, or name another directory, or delete the tables."
        )


def strangers(root: Path) -> str:
    """What a directory without tables has in it that is not ours, in words; empty where there is nothing."""
    if not root.is_dir() or (root / MANIFEST_TABLE).exists():
        return ""
    foreign = sorted(_names(root) - {*ABOUT, LOCK_FILE, STAGING, "lost+found"})  # a killed run has left some of these
    return ", ".join(foreign[:3]) + (f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else "")


def has_manifest_or_nothing(root: Path) -> bool:
    """Whether a run was ever published where there are tables: a directory without a log says nothing about them."""
    log = root / MANIFEST_TABLE / DELTA_LOG
    return (log.is_dir() and any(log.iterdir())) or not _names(root) & ABOUT.keys()


def _names(root: Path) -> set[str]:
    return {each.name for each in root.iterdir() if not each.name.startswith((".", PROBE))}
