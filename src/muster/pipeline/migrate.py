"""Tables of an earlier layout rewritten in today's: every row once, file by file, published in one swap at the end.

Layout 1 is the inner form of today's tables (`tables/schemas.py`): moments are int64 under names that end in `_ms`.
Each table gets one more Delta version, with today's columns and files of its own; its earlier versions keep theirs.
Until the manifest names the new versions, readers, and the muster that wrote the tables, see what they saw before. A
rewrite that is killed leaves versions that no manifest names, and can be repeated.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from muster.errors import BadInput
from muster.pipeline.progress import Advance
from muster.tables.schemas import TABLES
from muster.tables.storage.changes import Run, begin_run
from muster.tables.storage.files import TableWriter
from muster.tables.storage.manifest import FORMAT_VERSION
from muster.tables.storage.store import TableStore

BEFORE = 1
BATCH_ROWS = 1 << 16


@dataclass(slots=True)
class Migrated:
    """How it went. No rows: there was nothing to do."""

    tables: str
    layout_before: int
    layout: int = FORMAT_VERSION
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    size_bytes: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def migrate(address: str, storage_options: Mapping[str, str], advance: Advance | None = None) -> Migrated:
    """Rewrite the tables at an address, unless they have today's layout already."""
    began = time.monotonic()
    store = TableStore(address, storage_options)
    layout = store.layout()
    if layout is None:
        raise BadInput(
            f"there are no tables at {store.address}: nothing to migrate. Name the directory that "
            "`muster pipeline run --out` wrote to."
        )
    done = Migrated(store.address, layout)
    if layout == FORMAT_VERSION:
        return done
    with begin_run(store, layout=BEFORE) as changes:
        assert changes.manifest is not None
        files = {table: changes.files(table) for table in changes.manifest.tables}
        tell = _Progress(store, files, advance)
        for table, paths in files.items():
            done.rows[table] = _rewrite(changes, table, paths, tell)
        changes.publish(changes.manifest.progress, changes.manifest.source, changes.manifest.created_at_ms)
    done.size_bytes, done.seconds = tell.total_bytes, round(time.monotonic() - began, 3)
    return done


class _Progress:
    def __init__(self, store: TableStore, files: Mapping[str, list[str]], advance: Advance | None) -> None:
        self._store, self._advance, self._read = store, advance, 0
        paths = [self.path(file) for some in files.values() for file in some]
        self.total_bytes = sum(info.size or 0 for info in store.filesystem.get_file_info(paths))

    def path(self, file: str) -> str:
        """The address of a file as a path in the store's file system."""
        return self._store.root + file.removeprefix(self._store.address)

    def add(self, size_bytes: int) -> None:
        self._read += size_bytes
        if self._advance is not None:
            self._advance(self._read, self.total_bytes)


def _rewrite(changes: Run, table: str, files: list[str], tell: _Progress) -> int:
    store, schema = changes.store, TABLES[table]
    options = tuple(store.storage_options.items())
    writer = TableWriter(table, schema, f"{store.address}/{table}", options, changes.run_id)
    try:
        for file in files:
            with store.filesystem.open_input_file(tell.path(file)) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(BATCH_ROWS):
                    writer.append(_inner_rows(batch, schema))
                tell.add(opened.size())
        writer.close()
    except pa.ArrowInvalid as error:
        writer.abandon()
        raise BadInput(
            f"the table {table} at {store.address} cannot be rewritten: {error}. "
            "Nothing was changed; build the tables anew in another place."
        ) from error
    changes.rewrite(table, writer.files)
    return sum(file.rows for file in writer.files)


def _inner_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Rows of an earlier release: NULL in the columns that it did not have."""
    found = batch.schema.names
    arrays = [
        batch.column(field.name).cast(field.type) if field.name in found else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
