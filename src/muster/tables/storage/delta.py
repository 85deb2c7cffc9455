"""One Delta table: its versions, and commits that land on the next version or not at all.

Files are Parquet and lie in the table's directory before they are committed; a commit only names them. deltalake would
repeat a commit that met another's on a later version, and so mix two writers: here it is told not to.

deltalake makes no checkpoints and removes nothing by itself: `changes` decides when (see `upkeep`).
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyarrow import fs

from muster.errors import BadInput, MusterError, StoreAway, StoreRefused
from muster.tables.storage.addresses import is_local
from muster.tables.storage.disk import sync

ONE_ATTEMPT = CommitProperties(max_commit_retries=0)
HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Old log entries are removed by muster alone, which knows what the manifests still name."""

CONFIGURATION: dict[str, str | None] = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",  # else a checkpoint has every file of the last week
}
DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
ENTRY_DIGITS = 20
WITH_BOUNDS = (
    "offsets_partition",
    "log_offset",
    "timestamp",
    "commit_timestamp",
    "previous_commit_timestamp",
    "observed_at",
    "at",
    "first_commit_after",
    "group_id",
    "interval_start",
    "hour",
)
"""Columns whose smallest and largest value are told with each file, so that readers can leave files out."""

NO_RIGHTS = "The operation lacked"
"""How every kind of object store begins where a login or its rights are not enough."""


class TableMoved(MusterError):
    """A table is not in the version this run left it in: another process writes to it."""


class NamedFile(Protocol):
    """A Parquet file that is there already and can be committed: of a task (`files.WrittenFile`), or of the run itself
    (`changes.RowsFile`). `path` is relative to the table's directory."""

    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def statistics(self) -> str | None:
        """Delta's statistics of it, as `described` tells them; None has the footer read."""


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
        self.dropped: set[str] = set()
        """Names of files that were in this table and are no more, since it was opened."""

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
        return sorted(f"{self._uri}/{name}" for name in self.names())

    def names(self) -> list[str]:
        """Names of these files in the table's directory."""
        return [] if self._table is None else [uri.rsplit("/", 1)[1] for uri in self._table.file_uris()]

    def facts(self) -> pa.Table:
        """Of each file `path`, `size_bytes`, `num_records`, and bounds of columns as `min.NAME` and `max.NAME`."""
        assert self._table is not None, "no such table"
        return pa.table(self._table.get_add_actions(flatten=True))

    def made_at_ms(self) -> int:
        """When the version in sight was committed, by the clock of its writer."""
        assert self._table is not None, "no such table"
        return int(self._table.history(1)[0].get("timestamp") or 0)

    def files_since(self, columns: Sequence[str], moment_ms: int) -> list[str]:
        """The same, without files whose bounds say that all rows are earlier.

        A row's moment is in the first of the columns that is not NULL. In a single column NULL may be any moment.
        """
        if self._table is None:
            return []
        facts = pa.table(self._table.get_add_actions(flatten=True))
        told = [column for column in columns if {f"max.{column}", f"null_count.{column}"} <= set(facts.column_names)]
        if moment_ms <= 0 or columns[0] not in told:
            return self.files()
        moment = pa.scalar(moment_ms, pa.timestamp("ms", "UTC"))

        def is_earlier(column: str) -> Any:
            latest = facts[f"max.{column}"].cast(pa.timestamp("us", "UTC"))
            is_empty = pc.equal(facts[f"null_count.{column}"], facts["num_records"])
            return pc.fill_null(pc.or_kleene(pc.less(latest, moment), is_empty), False)

        leaves_out = pc.fill_null(pc.equal(facts[f"null_count.{columns[0]}"], 0), False)
        if len(columns) > 1 and len(told) == len(columns):
            others = is_earlier(columns[1])
            for column in columns[2:]:
                others = pc.and_(others, is_earlier(column))
            leaves_out = pc.or_(leaves_out, others)
        leaves_out = pc.and_(leaves_out, is_earlier(columns[0]))
        return sorted(f"{self._uri}/{path}" for path in facts["path"].filter(pc.invert(leaves_out)).to_pylist())

    def append(self, schema: pa.Schema, files: Sequence[NamedFile]) -> None:
        self._commit(schema, files, "append")

    def replace(self, schema: pa.Schema, files: Sequence[NamedFile]) -> None:
        """Make these files the whole table."""
        self._commit(schema, files, "overwrite")

    def rewrite(self, schema: pa.Schema, files: Sequence[NamedFile]) -> None:
        """Make these files the whole table, with these columns and no others from this version on."""
        assert self._table is not None, "nothing to rewrite"
        before = self._table.version()
        with self._told():
            actions = [self._add_action(file, False) for file in files]
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

    def swap(self, schema: pa.Schema, names: Iterable[str], files: Sequence[NamedFile], *, same_rows: bool) -> None:
        """Put files in the place of some, and leave the others. `same_rows` tells readers of changes that none came."""
        now_ms = time.time_ns() // 1_000_000
        out = [RemoveAction(name, not same_rows, now_ms) for name in names]
        self._commit(schema, files, "append", out, same_rows)

    def delete(self, predicate: str) -> int:
        """Delete the rows that match an SQL predicate; how many they were."""
        if self._table is None:
            return 0
        before = set(self.files())
        with self._told():
            counts = self._table.delete(predicate, commit_properties=ONE_ATTEMPT, post_commithook_properties=HOOKS)
        left = set(self.files())
        self.dropped |= {file.rsplit("/", 1)[1] for file in before - left}
        if is_local(self._uri):
            for file in left - before:  # what is left of files that had such rows
                sync(file)
        return int(counts.get("num_deleted_rows") or 0)

    def restore(self, version: int) -> None:
        """Make an earlier version's content the newest again, as a version of its own; -1 stands for no rows."""
        assert self._table is not None, "nothing to restore"
        before, held = self._table.version(), set(self.names())
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
        self.dropped |= held.difference(self.names())

    def checkpoint(self) -> None:
        """Write down what the version in sight is made of, so that nothing before it need be read."""
        assert self._table is not None, "no such table"
        with self._told():
            self._table.create_checkpoint()
        if is_local(self._uri):
            for name in (checkpoint_name(self.version), LAST_CHECKPOINT):
                sync(Path(self._path) / DELTA_LOG / name)

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

    def _commit(
        self,
        schema: pa.Schema,
        files: Sequence[NamedFile],
        mode: str,
        out: Sequence[RemoveAction] = (),
        same_rows: bool = False,
    ) -> None:
        with self._told():
            actions = [self._add_action(file, same_rows) for file in files]
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
                [*out, *actions], mode, self._table.schema(), commit_properties=ONE_ATTEMPT,
                post_commithook_properties=HOOKS,
            )  # fmt: skip
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
        assert self._table is not None
        before = set(self.names())
        with self._told():
            self._table.load_as_version(version)
        self.dropped |= before.difference(self.names())

    def _add_action(self, file: NamedFile, same_rows: bool) -> AddAction:
        statistics = self._read_statistics(file) if file.statistics is None else file.statistics
        rows = json.loads(statistics)["numRecords"]
        if rows != file.rows:
            raise MusterError(
                f"{self.name}/{file.path} has {rows} rows where {file.rows} were written. "
                "Nothing was committed; run again."
            )
        now_ms = time.time_ns() // 1_000_000
        return AddAction(file.path, file.size_bytes, {}, now_ms, not same_rows, statistics)

    def _read_statistics(self, file: NamedFile) -> str:
        with self._filesystem.open_input_file(f"{self._path}/{file.path}") as opened:
            return described(pq.read_metadata(opened))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What deltalake says, in our families of errors."""
        try:
            yield
        except TableNotFoundError:
            raise
        except CommitFailedError as error:
            raise self.moved() from error
        except DeltaError as error:
            if "already exists" in str(error):  # created by another since we looked
                raise self.moved() from error
            raise self._failed(error) from error
        except OSError as error:
            if error.errno is not None:  # it says itself what happened: no space, no rights
                raise
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BadInput:
        kind = BadInput
        if isinstance(error, OSError) and not is_local(self._uri):
            kind = StoreRefused if NO_RIGHTS in str(error) else StoreAway
        return kind(
            f"the table {self.name} at {self._uri} cannot be read or written: {_first_line(error)}. "
            "Check the address, the rights on it and the storage options; what was published before still holds."
        )

    def moved(self) -> TableMoved:
        return TableMoved(
            f"somebody else has written to the table {self.name} at {self._uri} since this run began. Nothing of this "
            "run was published; run again when the other has ended."
        )


def described(footer: Any) -> str:
    """Delta's statistics of one file, from the footer that its writer made."""
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for name in WITH_BOUNDS:
        if name not in places:
            continue
        found = [footer.row_group(group).column(places[name]).statistics for group in range(footer.num_row_groups)]
        having = [each for each in found if each is None or each.num_values > 0]  # a row group may have NULL only
        if having and all(each is not None and each.has_min_max for each in having):
            smallest[name] = _told_bound(min(each.min for each in having))
            largest[name] = _told_bound(max(each.max for each in having))
        if found and all(each is not None and each.has_null_count for each in found):
            nulls[name] = sum(each.null_count for each in found)
    told = {"numRecords": footer.num_rows, "minValues": smallest, "maxValues": largest, "nullCount": nulls}
    return json.dumps(told)


def entry_name(version: int) -> str:
    """The name of the entry of Delta's log that made a version."""
    return f"{version:0{ENTRY_DIGITS}}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:0{ENTRY_DIGITS}}.checkpoint.parquet"


def _told_bound(value: int | datetime) -> int | str:
    """A bound as Delta's log has it: a moment is text, in milliseconds."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
