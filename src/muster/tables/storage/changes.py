"""One run's changes to the tables: it commits to each in turn, and one swap of the manifest shows it all to readers.

A run begins where the manifest is: a table that has moved on since holds what a killed run left, and is rolled back
first. Nothing is ever published twice; a run that ends without `publish` changes nothing for readers. A table is opened
when the run first needs it.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import link
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyarrow import fs

from muster.errors import BadInput, MusterError
from muster.errors import described as described_error
from muster.tables.schemas import PUBLISHED, without_comments
from muster.tables.storage.addresses import is_local
from muster.tables.storage.delta import NamedFile, OneTable, TableMoved, described
from muster.tables.storage.disk import locked, sync
from muster.tables.storage.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    MANIFEST_TABLE,
    Dropped,
    Manifest,
    PartitionProgress,
    Upkeep,
)
from muster.tables.storage.store import PROBE, TableStore, check_ours, has_manifest_or_nothing
from muster.tables.storage.upkeep import (
    CHECKPOINT_EVERY,
    DAY_MS,
    LEFTOVERS_MS,
    LONGEST_RUN_MS,
    STAGING,
    Vacuumed,
    is_checkpoint_due,
    is_over,
    paths,
    remove,
    sweep,
)
from muster.tables.times import published

COMPRESSION = "zstd"
MOST_OF_A_FIRST_RUN = 5
"""Versions of a table: a first run that was killed leaves fewer. A disk has a lock that tells, a store has none."""


class RowsFile(NamedTuple):
    """A Parquet file that the run itself has written, on the driver."""

    path: str
    size_bytes: int
    rows: int
    statistics: str | None = None


@contextmanager
def begin_run(
    store: TableStore, run_id: str | None = None, now_ms: int | None = None, layout: int = FORMAT_VERSION
) -> Iterator["Run"]:
    """Begin a run; what a killed run left is rolled back first. Without `publish` readers notice nothing.

    A `layout` before today's is for the run that rewrites it (`muster.pipeline.migrate`).
    """
    now_ms = wall_ms() if now_ms is None else now_ms
    run_id = run_id or f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    with _alone(store, now_ms) as was_cut_short:
        if is_local(store.address):
            _remove_folder(store, STAGING)
        run = Run(store, run_id, now_ms, layout, was_cut_short)
        if was_cut_short and layout == FORMAT_VERSION:  # what an earlier muster reads stays until it is rewritten
            run.make_room()
        yield run


def vacuum(store: TableStore, keep_runs: int = 10, leftovers_after_ms: int | None = None) -> Vacuumed:
    """Remove at once the files that none of the last `keep_runs` manifests names, and what killed runs left.

    Runs clear up by themselves, a little at a time (`upkeep`). This is refused while a run is under way. An object
    store cannot tell: there nothing younger than `leftovers_after_ms` is touched (three days unless told).
    """
    if keep_runs < 1:
        raise BadInput("at least one run must be kept. Delete the directory to be rid of all tables.")
    now_ms = wall_ms()
    with _alone(store, now_ms):
        if leftovers_after_ms is None and not is_local(store.address):
            leftovers_after_ms = LEFTOVERS_MS
        before_ms = None if leftovers_after_ms is None else now_ms - leftovers_after_ms
        run = Run(store, "vacuum", now_ms)
        return run.sweep(run.number - keep_runs, before_ms, rolls_back=is_local(store.address))


class Run:
    """One run's changes, on top of what the manifest named when it began."""

    def __init__(
        self,
        store: TableStore,
        run_id: str,
        now_ms: int,
        layout: int = FORMAT_VERSION,
        was_cut_short: bool = False,
    ) -> None:
        self.store = store
        self._layout = layout
        self.run_id = run_id
        self.started_at_ms = now_ms
        self._manifest_table = store.table(MANIFEST_TABLE)
        found = self._manifest_table.open()
        self.manifest = store.manifest_in(self._manifest_table, layout) if found else None
        """What the last published run left; None for the first."""
        self.number = self._manifest_table.version + 1
        """Higher than that of every run published before."""
        self._upkeep = self.manifest.upkeep if self.manifest else Upkeep()
        self._buckets = {table: dict(buckets) for table, buckets in self._upkeep.buckets.items()}
        self._buckets_version = self._upkeep.buckets_version
        self._tables: dict[str, OneTable] = {}
        self._opened_at_ms = wall_ms()
        self._was_cut_short = was_cut_short
        self._written = 0
        self._published = False
        self.notes: list[str] = []
        """What could not be cleared up, in sentences."""

    def files(self, table: str) -> list[str]:
        """Files of the table as this run sees it: the manifest's version, and what the run did since."""
        return self._table(table).files()

    def files_since(self, table: str, columns: Sequence[str], moment_ms: int) -> list[str]:
        """The same, without the files of which bounds say that all their rows are of earlier moments.

        A row's moment is in the first of some columns that is not NULL.
        """
        return self._table(table).files_since(columns, moment_ms)

    def append(self, table: str, files: Sequence[NamedFile]) -> None:
        """Commit Parquet files that tasks have written into the table's directory; no files, no commit."""
        self._assert_open()
        if files:
            self._table(table).append(PUBLISHED[table], files)

    def append_rows(self, table: str, rows: pa.Table) -> None:
        """Write inner rows and commit them; no rows, no commit."""
        if rows.num_rows:
            self.append(table, [self._write(table, rows)])

    def replace(self, table: str, content: Sequence[NamedFile] | pa.Table) -> None:
        """Make these files, or these inner rows, the whole table."""
        self._assert_open()
        files = [self._write(table, content)] if isinstance(content, pa.Table) else content
        self._table(table).replace(PUBLISHED[table], files)
        self._buckets.pop(table, None)

    def rewrite(self, table: str, files: Sequence[NamedFile]) -> None:
        """Make these files the whole table, and today's columns its columns: earlier versions keep theirs."""
        self._assert_open()
        self._table(table).rewrite(PUBLISHED[table], files)
        self._buckets.pop(table, None)

    def bucket_files(self, table: str, version: int = 0) -> dict[int, list[str]] | None:
        """Files of a table by bucket, as this run sees it; None where it was last replaced as a whole, was made by
        definitions of another version, or lacks a column: then all buckets are to be made anew.
        """
        held = self._held_buckets(table)
        if held is None or version != self._buckets_version:
            return None
        directory = f"{self.store.address}/{table}"
        return {int(number): [f"{directory}/{name}" for name in names] for number, names in held.items()}

    def replace_buckets(
        self, table: str, files: Mapping[int, Sequence[NamedFile]], count: int, version: int = 0
    ) -> None:
        """Make these files the content of some of a table's buckets, and leave its others as they are.

        A bucket is a part of the table that is only ever replaced as a whole, in one commit with the others; they have
        the numbers below `count`. Where there were others before, or none, what the table had is replaced altogether.
        `version` is of the definitions that they were made by.
        """
        self._assert_open()
        held = self._held_buckets(table)
        added = [file for some in files.values() for file in some]
        if held is None or len(held) != count:
            self._table(table).replace(PUBLISHED[table], added)
            held = {str(number): [] for number in range(count)}
        else:
            out = [name for number in files for name in held[str(number)]]
            if out or added:
                self._table(table).swap(PUBLISHED[table], out, added, same_rows=False)
        self._buckets_version = version
        self._buckets[table] = held | {str(number): [file.path for file in some] for number, some in files.items()}

    def _held_buckets(self, table: str) -> dict[str, list[str]] | None:
        """As the manifest tells them, if the table is made of these files and no others, and has all columns."""
        held = self._buckets.get(table)
        if held is None or set(PUBLISHED[table].names) - set(self._table(table).columns()):
            return None
        if {name for names in held.values() for name in names} != set(self._table(table).names()):
            return None
        return held

    def swap(self, table: str, names: Sequence[str], files: Sequence[NamedFile], *, same_rows: bool) -> None:
        """Put files in the place of some of the table's, by name; with the same rows, or with fewer."""
        self._assert_open()
        self._table(table).swap(PUBLISHED[table], names, files, same_rows=same_rows)

    def facts(self, table: str) -> pa.Table:
        """What is known of each file of a table (`OneTable.facts`)."""
        return self._table(table).facts()

    def has_opened(self, table: str) -> bool:
        """Whether this run has looked at the table yet."""
        return table in self._tables

    def has(self, table: str) -> bool:
        """Whether there is such a table yet."""
        return self._table(table).version >= 0

    def withdraw(self, table: str, predicate: str) -> int:
        """Delete rows by an SQL predicate (what a truncation of the log cut off); how many there were."""
        self._assert_open()
        return self._table(table).delete(predicate)

    def publish(
        self, progress: Mapping[int, PartitionProgress], source: Mapping[str, Any], now_ms: int | None = None
    ) -> Manifest:
        """Show readers everything at once; the run is then over. On a disk all of it is durable before it is shown."""
        self._assert_open()
        now_ms = wall_ms() if now_ms is None else now_ms
        self._check_duration()
        upkeep = self._keep_up(now_ms)
        self._sync()
        manifest = Manifest(self.run_id, now_ms, self._versions(), dict(progress), dict(source), upkeep)
        file = self._write_file(MANIFEST_TABLE, manifest.as_row())
        before = self._manifest_table.version
        if is_local(self.store.address):
            sync(f"{self.store.root}/{MANIFEST_TABLE}")  # the name of the file that the commit is going to tell
        self._manifest_table.replace(MANIFEST, [file])
        self._manifest_table.sync(before)
        self._published = True
        return manifest

    def _versions(self) -> dict[str, int]:
        held = dict(self.manifest.tables) if self.manifest else {}
        return held | {name: table.version for name, table in self._tables.items() if table.version >= 0}

    def _check_duration(self) -> None:
        if not is_local(self.store.address) and wall_ms() - self._opened_at_ms > LONGEST_RUN_MS:
            raise BadInput(
                f"this run took more than {LONGEST_RUN_MS // DAY_MS} days, and on an object store its first files may "
                "have been cleared away meanwhile. Nothing was published; run again, with more cores."
            )

    def _keep_up(self, now_ms: int) -> Upkeep:
        """Make checkpoints that are due, remove what earlier runs dropped if its time is over, sweep now and then."""
        keep = self.store.keep
        checkpoints, entries = dict(self._upkeep.checkpoints), dict[str, tuple[int, int]]()
        for name, table in [*self._tables.items(), (MANIFEST_TABLE, self._manifest_table)]:
            if table.version >= 0 and is_checkpoint_due(name, table.version, checkpoints.get(name, 0)):
                table.checkpoint()
                if name in checkpoints or table.version <= 2 * CHECKPOINT_EVERY:  # else a sweep finds what there is
                    entries[name] = (checkpoints.get(name, 0), table.version)
                checkpoints[name] = table.version
        over = [each for each in self._upkeep.dropped if is_over(each, self.number - keep.runs, now_ms - keep.grace_ms)]
        with self._no_matter_what():
            remove(self.store.place, [path for each in over for path in paths(each)])
        swept_at_ms = self._upkeep.swept_at_ms
        if self._was_cut_short or (swept_at_ms is not None and abs(now_ms - swept_at_ms) >= DAY_MS):  # clocks step back
            before_ms = None if is_local(self.store.address) else now_ms - LEFTOVERS_MS
            with self._no_matter_what():
                self.sweep(self.number - keep.runs, before_ms, dropped_before_ms=now_ms - keep.grace_ms)
            swept_at_ms = now_ms
        files = {name: sorted(table.dropped) for name, table in self._tables.items() if table.dropped}
        files[MANIFEST_TABLE] = self._manifest_table.names()
        dropped = Dropped(self.number, now_ms, files, entries)
        left = tuple(each for each in self._upkeep.dropped if each not in over)
        return Upkeep(checkpoints, (*left, dropped), swept_at_ms or now_ms, self._buckets, self._buckets_version)

    def make_room(self) -> None:
        """Remove the files that a run has left which did not get to its end, as far as it named none of them. They may
        be what fills the disk, and this run would not get to its end either.
        """
        keep = self.store.keep
        with self._no_matter_what():
            dropped_before_ms = self.started_at_ms - keep.grace_ms
            self.sweep(self.number - keep.runs, None, dropped_before_ms=dropped_before_ms, rolls_back=False)

    @contextmanager
    def _no_matter_what(self) -> Iterator[None]:
        """What cannot be removed takes room and does no harm: it is no reason to lose a run. A sweep finds it again."""
        try:
            yield
        except (OSError, DeltaError) as error:
            self.notes.append(
                f"files that no run needs any more could not be removed: {described_error(error)}. They take room and "
                "do no harm; a later run tries again."
            )

    def sweep(
        self,
        oldest_run: int,
        before_ms: int | None,
        *,
        dropped_before_ms: int | None = None,
        rolls_back: bool = True,
    ) -> Vacuumed:
        """Remove what no run from the oldest kept one on names; what a killed run committed is rolled back first."""
        named: dict[str, set[str]] = {MANIFEST_TABLE: set(self._manifest_table.names())}
        for name in PUBLISHED:
            newest = self._table(name) if rolls_back else self._newest(name)
            if newest.version >= 0:
                named[name] = set(newest.names())
                published = -1 if self.manifest is None else self.manifest.tables.get(name, -1)
                if 0 <= published < newest.version:
                    named[name].update(file.rsplit("/", 1)[1] for file in self.store.files(name, published))
        return sweep(self.store.place, named, self._upkeep, oldest_run, before_ms, dropped_before_ms)

    def _newest(self, name: str) -> OneTable:
        table = self.store.table(name)
        table.open()
        return table

    def _table(self, name: str) -> OneTable:
        """A table as this run sees it; at first as the manifest has it."""
        if name not in self._tables:
            self._tables[name] = self._begin(name)
        return self._tables[name]

    def _sync(self) -> None:
        """Wait for the names and the log entries of everything that came since the last published run."""
        for name, table in self._tables.items():
            published = -1 if self.manifest is None else self.manifest.tables.get(name, -1)
            if table.version > published:
                table.sync(published)

    def _begin(self, name: str) -> OneTable:
        """The table at the manifest's version; anything on top of it was left by a run that never published."""
        table = self.store.table(name)
        version = -1 if self.manifest is None else self.manifest.tables.get(name, -1)
        if not table.open():
            if version >= 0:
                raise BadInput(
                    f"{self.store.address} has lost its table {name}, which its manifest names. "
                    "Restore it, or build the tables again in another place."
                )
            return table
        if self._layout == FORMAT_VERSION:
            self._check_columns(table)
        if table.version < version:
            raise TableMoved(f"the table {name} at {self.store.address} is older than its manifest says. Restore it.")
        if table.version > version:
            self._check_manifest(table)
            if table.made_at_ms() > self._opened_at_ms:  # no lock tells on an object store
                raise table.moved()
            table.restore(version)
        return table

    def _check_manifest(self, table: OneTable) -> None:
        """Tables of many runs without a manifest have lost it; those of a killed first run had none."""
        if self.manifest is None and table.version >= MOST_OF_A_FIRST_RUN and not is_local(self.store.address):
            raise BadInput(
                f"{self.store.address} has tables of many runs, but not their {MANIFEST_TABLE}, which says what is in "
                f"them; a run would begin them anew. Put {MANIFEST_TABLE} back, or name another place, or delete the "
                "tables."
            )

    def _check_columns(self, table: OneTable) -> None:
        """Refuse a table with columns of a newer muster: rows written here would lack what readers had."""
        unknown = [name for name in table.columns() if name not in PUBLISHED[table.name].names]
        if unknown:
            raise BadInput(
                f"the table {table.name} at {self.store.address} has columns that this muster does not know "
                f"({', '.join(unknown)}): a newer muster wrote it. Use that one; nothing was changed."
            )

    def new_name(self) -> str:
        """A name for a file, or a folder of files, that no other has."""
        self._written += 1
        return f"{self.run_id}-{self._written}"

    def _write(self, table: str, rows: pa.Table) -> RowsFile:
        return self._write_file(table, published(rows, without_comments(PUBLISHED[table])))

    def _write_file(self, table: str, rows: pa.Table) -> RowsFile:
        name = f"{self.new_name()}.parquet"
        directory = f"{self.store.root}/{table}"
        files = self.store.filesystem
        if is_local(self.store.address):
            files.create_dir(directory)
        with files.open_output_stream(f"{directory}/{name}") as out:
            writer = pq.ParquetWriter(out, rows.schema, compression=COMPRESSION)
            writer.write_table(rows)
            writer.close()
            size_bytes = out.tell()
        if is_local(self.store.address):
            sync(f"{directory}/{name}")
        return RowsFile(name, size_bytes, rows.num_rows, described(writer.writer.metadata))

    def _assert_open(self) -> None:
        if self._published:
            raise MusterError(f"the run {self.run_id} is over: it has been published.")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _alone(store: TableStore, now_ms: int) -> Iterator[bool]:
    """The lock, where there is such a thing; and a check that files can be committed here at all.

    Gives whether the run before did not get to its end, as far as that can be told.
    """
    if not is_local(store.address):
        yield False
        return
    root = Path(store.address)
    check_ours(root)
    root.mkdir(parents=True, exist_ok=True)
    with locked(root, now_ms, lambda: has_manifest_or_nothing(root)) as was_cut_short:
        _check_links(root)
        yield was_cut_short


def _remove_folder(store: TableStore, folder: str) -> None:
    directory = f"{store.root}/{folder}"
    if store.filesystem.get_file_info(directory).type == fs.FileType.Directory:
        store.filesystem.delete_dir(directory)


def _check_links(root: Path) -> None:
    """A commit is a hard link: it fails if the name is taken. Some mounts have none, and there nothing is atomic."""
    probe, linked = root / f"{PROBE}{uuid.uuid4().hex}", root / f"{PROBE}{uuid.uuid4().hex}"
    probe.touch()
    try:
        link(probe, linked)
    except OSError as error:
        raise BadInput(
            f"tables cannot be kept in {root}: its file system knows no hard links ({error.strerror}), so a commit "
            "could overwrite another. Name a directory on a local disk, or the object store itself (s3://, gs://, az://)."
        ) from None
    finally:
        probe.unlink(missing_ok=True)
        linked.unlink(missing_ok=True)
