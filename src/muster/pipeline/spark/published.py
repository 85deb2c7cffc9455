"""Published tables for `spark.read.format("muster")`: the rows of one run, or the state as of a moment.

Most tables are Parquet files, which tasks read in groups of about 64 MB. What must be derived (a moment in the past,
and open commits without those that were deleted) is asked of duckdb in one task, as `muster table` asks it.

The run is chosen when a query is planned: the last that was published, or the one that the option `run` names. Columns
are those of the schema that Spark hands over: what a query does not want need not be read.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from muster.errors import BadInput
from muster.tables.clocks import parse_time
from muster.tables.reading import NOT_SHOWN, ORDERS, Tables
from muster.tables.schemas import PUBLISHED, TABLES, published_form
from muster.tables.storage.addresses import checked, filesystem, is_local
from muster.tables.storage.manifest import MANIFEST_TABLE, Manifest
from muster.tables.storage.store import TableStore

GROUP_BYTES = 64 * 1024 * 1024
"""About how much of a table one task reads."""
BATCH_ROWS = 65_536
MOST_RUNS = 1000
"""How many runs are looked through for the one that was named; clean-up keeps far fewer."""


def are_tables(address: str, storage_options: Mapping[str, str]) -> bool:
    """Whether a run was ever published at an address."""
    system, root = filesystem(checked(address, storage_options), storage_options)
    found: Any = system.get_file_info(f"{root}/{MANIFEST_TABLE}")
    return bool(found.type == fs.FileType.Directory)


def known_table(name: str | None) -> str:
    """The name of a table, or a sentence about which there are."""
    there = ", ".join(sorted(ORDERS))
    if name is None:
        raise BadInput(f"the option table is missing: which table is to be read? There are: {there}.")
    wanted = NOT_SHOWN.get(name.lower(), name.lower())
    if wanted in ORDERS:
        return wanted
    near = get_close_matches(wanted, ORDERS, n=1)
    raise BadInput(f"there is no table '{name}'. " + (f"Did you mean '{near[0]}'?" if near else f"There are: {there}."))


def struct_of_table(table: str) -> StructType:
    """A published table's columns in Spark's words, with their comments.

    None is NOT NULL: Spark compares that with the batches of tasks, where any column may be NULL.
    """
    comments = {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in PUBLISHED[table]}
    return StructType(
        [
            StructField(field.name, field.dataType, True, {"comment": comments[field.name]})
            for field in from_arrow_schema(published_form(TABLES[table]))
        ]
    )


def manifest_of_run(store: TableStore, run: str | None) -> Manifest:
    """The manifest of a run; of the last one that was published where none is named."""
    manifest = store.published()
    if run is None or manifest.run_id == run:
        return manifest
    kept = store.manifests(MOST_RUNS)
    for each in kept:
        if each.run_id == run:
            return each
    raise BadInput(
        f"the tables at {store.address} have no run {run}, or it was cleaned up. "
        f"The oldest of the {len(kept)} that are kept is {kept[-1].run_id}, the newest {manifest.run_id}."
    )


class Files(InputPartition):
    """Parquet files for one task. `only_with`: a column that says, by being NULL, that a row is none."""

    def __init__(self, files: Sequence[str], only_with: str | None = None) -> None:
        super().__init__(None)
        self.files, self.only_with = tuple(files), only_with


class Derived(InputPartition):
    """Rows that duckdb derives."""

    def __init__(self, manifest: Manifest, as_of_ms: int | None) -> None:
        super().__init__(None)
        self.manifest, self.as_of_ms = manifest, as_of_ms


class TableReader(DataSourceReader):
    """Options are checked when it is made. It travels to tasks, so it holds nothing but names."""

    def __init__(
        self,
        address: str,
        storage_options: Mapping[str, str],
        table: str,
        schema: StructType,
        as_of: str | None = None,
        run: str | None = None,
    ) -> None:
        self._address, self._storage_options = checked(address, storage_options), dict(storage_options)
        self._table, self._columns = table, _columns(table, schema)
        self._partitions = self._plan(_moment(as_of), run)

    def _plan(self, as_of_ms: int | None, run: str | None) -> list[InputPartition]:
        store = TableStore(self._address, self._storage_options)
        manifest = manifest_of_run(store, run)
        if as_of_ms is not None:
            with _in_sparks_words(), Tables(store, manifest) as tables:
                tables.check_moment(as_of_ms)
        if as_of_ms is not None or self._table == "open_commits":
            return [Derived(manifest, as_of_ms)]
        groups: list[InputPartition] = [Files(each) for each in file_groups(store, manifest, self._table)]
        if self._table == "rebalances":  # the newest of each group may still change, and is kept apart
            groups += [Files(each, "at") for each in file_groups(store, manifest, "latest_rebalances")]
        return groups or [Files(())]

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Derived):
            return self._derived(partition)
        return self._of_files(partition)

    def _derived(self, asked: Derived) -> Iterator[pa.RecordBatch]:
        store = TableStore(self._address, self._storage_options)
        with _in_sparks_words(), Tables(store, asked.manifest) as tables:
            for batch in tables.read(self._table, asked.as_of_ms).rows:
                yield batch.select(self._columns.names)

    def _of_files(self, group: Files) -> Iterator[pa.RecordBatch]:
        system, root = filesystem(self._address, self._storage_options)
        for file in group.files:
            yield from read_file(system, root + file.removeprefix(self._address), self._columns, group.only_with)


def read_file(system: Any, path: str, columns: pa.Schema, only_with: str | None = None) -> Iterator[pa.RecordBatch]:
    """Some columns of a file; NULL in those that came later than the file."""
    try:
        with system.open_input_file(path) as opened:
            file = pq.ParquetFile(opened)
            there = set(file.schema_arrow.names)
            wanted = {name for name in columns.names if name in there} | ({only_with} if only_with else set())
            if not wanted:
                wanted = {file.schema_arrow.names[0]}  # rows are counted, whatever their columns
            for batch in file.iter_batches(BATCH_ROWS, columns=sorted(wanted)):
                kept = batch if only_with is None else batch.filter(pc.is_valid(batch.column(only_with)))
                yield _in_columns(kept, columns)
    except FileNotFoundError:
        raise BadInput(
            f"{path} is gone: the run that is being read was cleaned up meanwhile. Load the tables again, or keep more "
            "runs (--keep-runs of `muster pipeline run`)."
        ) from None


def _in_columns(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    there = batch.schema.names
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def file_groups(store: TableStore, manifest: Manifest, table: str) -> list[list[str]]:
    """The files of a table, in groups of about `GROUP_BYTES`."""
    version = manifest.tables.get(table)
    files = [] if version is None else store.files(table, version)
    infos: Any = store.filesystem.get_file_info([store.root + file.removeprefix(store.address) for file in files])
    groups, filled = list[list[str]](), 0
    for file, info in zip(files, infos, strict=True):
        size = info.size or 0
        if not groups or filled + size > GROUP_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += size
    return groups


def _columns(table: str, schema: StructType) -> pa.Schema:
    """The columns that Spark wants, as Arrow has them."""
    form, kinds = published_form(TABLES[table]), {field.name: field.dataType for field in struct_of_table(table)}
    for field in schema:
        if field.name not in kinds:
            near = get_close_matches(field.name, form.names, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"It has: {', '.join(form.names)}."
            raise BadInput(f"the table {table} has no column '{field.name}'. {hint}")
        if field.dataType != kinds[field.name]:
            raise BadInput(
                f"the column {field.name} of {table} is {kinds[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}. Load it as it is, and cast it."
            )
    return pa.schema([form.field(field.name) for field in schema])


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else parse_time(text, time.time_ns() // 1_000_000, UTC)
    except ValueError as error:
        raise BadInput(f"the option asOf: {error}.") from None


@contextmanager
def _in_sparks_words() -> Iterator[None]:
    """What is refused is told by the name of the option here."""
    try:
        yield
    except BadInput as error:
        raise BadInput(str(error).replace("--as-of", "the option asOf")) from None


def is_on_disk(address: str) -> bool:
    """Whether Spark can open the files of these tables itself: in a directory, and with a name that is no pattern."""
    return is_local(address) and not set("*?{}[]\\") & set(address)
