"""One Delta table: its versions, and commits that land on the next version or not at all.

Files are Parquet and lie in the table's directory before they are committed; a commit only names them. deltalake would
repeat a commit that met another's on a later version, and so mix two writers: here it is told not to.

Clearing up stands at the end: files that no kept manifest names, entries of Delta's log that no kept version needs, old
staging.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import fs

from muster.errors import BadInput, MusterError
from muster.tables.addresses import is_local
from muster.tables.disk import sync

ONE_ATTEMPT = CommitProperties(max_commit_retries=0)
HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Old log entries are removed by `vacuum` alone, which knows what the manifests still name."""

CONFIGURATION: dict[str, str | None] = {"delta.enableExpiredLogCleanup": "false"}
DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
ENTRY_DIGITS = 20
WITH_BOUNDS = ("offsets_partition", "log_offset", "timestamp", "observed_at", "at")
"""Columns whose smallest and largest value are told with each file, so that readers can leave files out."""


class TableMoved(MusterError):
    """A table is not in the version this run left it in: somebody else writes to it."""


class WrittenFile(Protocol):
    """A Parquet file that is there already; `path` is relative to the table's directory."""

    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...


class OneTable:
    """A Delta table by name; it need not exist yet. Its version is what this process last saw or made."""

    def __init__(
        self,
        name: str,
        uri: str,
        storage_options: Mapping[str, str],
        filesystem: fs.FileSystem,
        path: str,
        description: str | None = None,
    ) -> None:
        self.name = name
        self._description = description
        self._uri = uri
        self._options = dict(storage_options)
        self._filesystem = filesystem
        self._path = path
        self._table: DeltaTable | None = None

    def open(self, version: int | None = None) -> bool:
        """Look at the newest version, or at one; False if there is no such table."""
        try:
            with self._told():
                self._table = DeltaTable(self._uri, version=version, storage_options=self._options)
        except TableNotFoundError:
            self._table = None
        return self._table is not None

    @property
    def version(self) -> int:
        """-1 for a table that does not exist."""
        return -1 if self._table is None else self._table.version()

    def columns(self) -> list[str]:
        """Names of the columns of the version in sight."""
        return [] if self._table is None else [field.name for field in self._table.schema().fields]

    def files(self) -> list[str]:
        """Paths or addresses of the files of the version in sight.

        All lie side by side in the table's directory. deltalake's own addresses are percent-encoded, and paths are not.
        """
        if self._table is None:
            return []
        return sorted(f"{self._uri}/{uri.rsplit('/', 1)[1]}" for uri in self._table.file_uris())

    def append(self, schema: pa.Schema, files: Sequence[WrittenFile]) -> None:
        self._commit(schema, files, "append")

    def replace(self, schema: pa.Schema, files: Sequence[WrittenFile]) -> None:
        """Make these files the whole table."""
        self._commit(schema, files, "overwrite")

    def rewrite(self, schema: pa.Schema, files: Sequence[WrittenFile]) -> None:
        """Make these files the whole table, with these columns and no others from this version on."""
        assert self._table is not None, "nothing to rewrite"
        before = self._table.version()
        with self._told():
            actions = [self._add_action(file) for file in files]
            self._table.create_write_transaction(
                [*actions], "overwrite", Schema.from_arrow(schema), commit_properties=ONE_ATTEMPT,
                post_commithook_properties=HOOKS,
            )  # fmt: skip
        self._look_at(before + 1)
        if self._description is not None:
            with self._told():
                self._table.alter.set_table_description(
                    self._description, commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS
                )
            self._look_at(before + 2)

    def delete(self, predicate: str) -> int:
        """Delete the rows that match an SQL predicate; how many they were."""
        if self._table is None:
            return 0
        before = set(self.files())
        with self._told():
            counts = self._table.delete(predicate, commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS)
        if is_local(self._uri):
            for file in set(self.files()) - before:  # what is left of files that had such rows
                sync(file)
        return int(counts.get("num_deleted_rows") or 0)

    def restore(self, version: int) -> None:
        """Make an earlier version's content the newest again, as a version of its own; -1 stands for no rows."""
        assert self._table is not None, "nothing to restore"
        before = self._table.version()
        if version < 0:
            with self._told():
                self._table.create_write_transaction(
                    [], "overwrite", self._table.schema(), commit_properties=ONE_ATTEMPT,
                    post_commithook_properties=HOOKS,
                )  # fmt: skip
        else:
            with self._told():
                self._table.restore(version, commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS)
        self._look_at(before + 1)

    def sync(self, since: int) -> None:
        """Wait until the log entries behind a version, and the names of all files, are on the disk, if there is one."""
        if not is_local(self._uri):
            return
        log = Path(self._path) / DELTA_LOG
        for entry in log.iterdir():
            number = entry.name[:ENTRY_DIGITS]
            if entry.name == LAST_CHECKPOINT or (number.isdigit() and int(number) > since):
                sync(entry)
        for directory in (log, log.parent, log.parent.parent):
            sync(directory)

    def _commit(self, schema: pa.Schema, files: Sequence[WrittenFile], mode: str) -> None:
        with self._told():
            actions = [self._add_action(file) for file in files]
            if self._table is None:
                create_table_with_add_actions(
                    self._uri, Schema.from_arrow(schema), actions, "error", description=self._description,
                    configuration=CONFIGURATION, storage_options=self._options, post_commithook_properties=HOOKS,
                )  # fmt: skip
                self._table = DeltaTable(self._uri, version=0, storage_options=self._options)
                return
            self._add_missing_columns(schema)
            before = self._table.version()
            self._table.create_write_transaction(
                [*actions], mode, self._table.schema(), commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS
            )
        self._look_at(before + 1)

    def _add_missing_columns(self, schema: pa.Schema) -> None:
        """A newer muster knows more columns than the one that made the table; files without them stay as they are."""
        assert self._table is not None
        known = self.columns()
        missing = [field for field in schema if field.name not in known]
        if missing:
            added = list(Schema.from_arrow(pa.schema([field.with_nullable(True) for field in missing])).fields)
            self._table.alter.add_columns(added, commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS)

    def _look_at(self, version: int) -> None:
        """See the version that a commit just made, and not what another may have put on top of it."""
        with self._told():
            self._table = DeltaTable(self._uri, version=version, storage_options=self._options)

    def _add_action(self, file: WrittenFile) -> AddAction:
        with self._filesystem.open_input_file(f"{self._path}/{file.path}") as opened:
            footer = pq.read_metadata(opened)
        if footer.num_rows != file.rows:
            raise MusterError(
                f"{self.name}/{file.path} has {footer.num_rows} rows where {file.rows} were written. "
                "Nothing was committed; run again."
            )
        now_ms = time.time_ns() // 1_000_000
        return AddAction(file.path, file.size_bytes, {}, now_ms, True, json.dumps(statistics(footer)))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What deltalake says, in our families of errors."""
        try:
            yield
        except TableNotFoundError:
            raise
        except CommitFailedError as error:
            raise self._moved() from error
        except DeltaError as error:
            if "already exists" in str(error):  # created by another since we looked
                raise self._moved() from error
            raise self._failed(error) from error
        except OSError as error:
            if error.errno is not None:  # it says itself what happened: no space, no rights
                raise
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BadInput:
        return BadInput(
            f"the table {self.name} at {self._uri} cannot be read or written: {_first_line(error)}. "
            "Check the address, the rights on it and the storage options; what was published before still holds."
        )

    def _moved(self) -> TableMoved:
        return TableMoved(
            f"somebody else has written to the table {self.name} at {self._uri} since this run began. Nothing of this "
            "run was published; run again when the other has ended."
        )


def statistics(footer: Any) -> dict[str, Any]:
    """Delta's statistics of one file, from the footer that its writer made."""
    smallest: dict[str, int | str] = {}
    largest: dict[str, int | str] = {}
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for name in WITH_BOUNDS:
        if name not in places:
            continue
        found = [footer.row_group(group).column(places[name]).statistics for group in range(footer.num_row_groups)]
        if found and all(each is not None and each.has_min_max for each in found):
            smallest[name] = _told_bound(min(each.min for each in found))
            largest[name] = _told_bound(max(each.max for each in found))
    return {"numRecords": footer.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": {}}


def _told_bound(value: int | datetime) -> int | str:
    """A bound as Delta's log has it: a moment is text, in milliseconds."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


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
