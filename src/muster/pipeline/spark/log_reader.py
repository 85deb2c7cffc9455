"""What `spark.read` and `spark.readStream` have in common: options, the log that they name, and ranges of it."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from muster.codec.columns.schema import RECORDS
from muster.errors import BadInput, SourceMissing
from muster.pipeline.model import PartitionWork
from muster.pipeline.plan import PartitionState, Source
from muster.pipeline.sources.offsets_topic import LIVE, open_source
from muster.pipeline.spark.published import are_tables
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.reading import ORDERS
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MARKERS, published_form
from muster.tables.storage.files import is_local, local_path

SHAPES = {
    "records": RECORDS,
    "commits": published_form(COMMITS),
    "group_records": published_form(GROUP_RECORDS),
    "markers": published_form(MARKERS),
}
KAFKA, STORAGE = "kafka.", "storage."
SERVERS = f"{KAFKA}bootstrap.servers"
OF_TABLES = ("asOf", "run")
OF_A_LOG = ("mode",)
OF_A_STREAM = ("startingOffsets", "failOnDataLoss", "maxOffsetsPerTrigger")
NAMES = ("path", "table", *OF_TABLES, *OF_A_LOG, *OF_A_STREAM)
"""Options of this source, beside a client's own that begin with `kafka.` and an object store's with `storage.`."""
MODES = ("history", "latest")

Options = Mapping[str, str]


def checked_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options by the names they have here, whatever their case.

    An option that is not known is refused: without it the answer would be to another question.
    """
    names = {name.lower(): name for name in NAMES}
    options = {}
    for name, value in sorted(given.items(), key=lambda pair: pair[0].lower() != "provider"):
        if name.lower() in names:
            options[names[name.lower()]] = value
        elif name.lower().startswith((KAFKA, STORAGE)):
            options[name] = value
        elif name.lower() == "provider":
            raise BadInput(
                "a table of a catalog (CREATE TABLE … USING muster) is not read by Spark: it keeps the options of "
                "such a table to itself. muster.pipeline.views makes temporary views."
            )
        else:
            near = get_close_matches(name.lower(), [*names, SERVERS], n=1)
            there = f"There are: {', '.join(NAMES)}, {KAFKA}*, {STORAGE}*."
            hint = f"Did you mean '{names.get(near[0], near[0])}'?" if near else there
            raise BadInput(f"there is no option '{name}'. {hint}")
    if beginning(options, KAFKA) and SERVERS not in options:
        raise BadInput(f"the option {SERVERS} is missing: options that begin with {KAFKA} are about a live cluster.")
    return options


def refuse(options: Options, names: Sequence[str], why: str) -> None:
    for name in names:
        if name in options:
            raise BadInput(f"the option {name} {why}.")


def beginning(options: Options, prefix: str) -> dict[str, str]:
    """Options whose names begin like this, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in options.items() if name.lower().startswith(prefix)}


def address_of_tables(options: Options) -> str | None:
    """Where the published tables are; None where the path is a log, or there is none."""
    path = options.get("path", "").strip()
    if not path or SERVERS in options:
        return None
    storage = beginning(options, STORAGE)
    is_here = "://" not in path or path.startswith("file://")
    if is_here and not Path(unquote(path.removeprefix("file://")) if "://" in path else path).is_dir():
        return None
    return path if are_tables(path, storage) else None


def table_of_log(options: Options) -> str:
    refuse(options, OF_TABLES, f"is about published tables, and {options.get('path', 'a live cluster')} is none")
    table = options.get("table", "records")
    if table in SHAPES:
        return table
    if table in ORDERS:
        if "path" not in options and SERVERS not in options:
            raise BadInput("no path is given: load the directory that `muster pipeline run --out` wrote to.")
        where = options.get("path") or LIVE + options[SERVERS]
        if "path" in options and is_local(where) and local_path(where).is_file():
            raise BadInput(f"{where} is a file. Tables are kept in a directory of their own: load that.")
        if "path" in options and is_local(where) and not local_path(where).exists():
            raise BadInput(f"{where} does not exist: load the directory that `muster pipeline run --out` wrote to.")
        source_of(options).close()
        raise BadInput(
            f"the table {table} is made by the pipeline, and {where} is no directory of published tables: it has no "
            f"_manifest. `muster pipeline run --source {where} --out tables` makes them; then load 'tables'."
        )
    raise BadInput(f"the option table={table} is none of {', '.join(SHAPES)}.")


def _mode(options: Options) -> str:
    mode = options.get("mode", MODES[0])
    if mode not in MODES:
        raise BadInput(f"the option mode={mode} is none of {', '.join(MODES)}.")
    return mode


def source_of(options: Options) -> Source:
    """The log that the options name."""
    kafka = beginning(options, KAFKA)
    servers = kafka.pop("bootstrap.servers", None)
    paths = [path.strip() for path in options.get("path", "").split(",") if path.strip()]
    if not servers and not paths:
        raise BadInput(
            "there is nothing to read: load a directory of published tables, or a broker's log directory, or give the "
            f"option {SERVERS}."
        )
    try:
        return open_source([LIVE + servers] if servers else paths, kafka, beginning(options, STORAGE))
    except SourceMissing as error:
        if not all(Path(path).is_dir() for path in paths):
            raise
        raise BadInput(
            f"{', '.join(paths)} is neither a directory of published tables (it has no _manifest) nor a log (it has no "
            f"{OFFSETS_TOPIC}-N). Load what `muster pipeline run --out` wrote, or a broker's log directory."
        ) from error


def _states(options: Options) -> tuple[list[PartitionState], dict[str, str]]:
    """The partitions there are, and names of topics by id."""
    source = source_of(options)
    try:
        return source.partitions({}), source.topic_names()
    finally:
        source.close()


class Range(InputPartition):
    """A range of one partition's log, with all that a worker must know: a stream's reader is another there."""

    def __init__(self, work: PartitionWork, topic_names: Mapping[str, str]) -> None:
        super().__init__(work.offsets_partition)
        self.work, self.topic_names = work, topic_names


def _range(state: PartitionState, from_offset: int, to_offset: int, topic_names: Mapping[str, str]) -> Range:
    work = PartitionWork(state.offsets_partition, state.source, from_offset, to_offset, False, state.size_bytes)
    return Range(work, topic_names)


class BatchReader(DataSourceReader):
    def __init__(self, given: Options) -> None:
        options = checked_options(given)
        self._table, self._mode = table_of_log(options), _mode(options)
        self._states, self._names = _states(options)

    def partitions(self) -> Sequence[Range]:
        return [_range(state, state.log_start_offset, state.log_end_offset, self._names) for state in self._states]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_range(partition.work, self._table, self._mode, partition.topic_names)


def read_range(work: PartitionWork, table: str, mode: str, topic_names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches, transactions resolved as far as the range goes."""
    from muster.codec.columns.chunks import Scratch
    from muster.codec.columns.latest import LatestTable
    from muster.codec.columns.select import in_force
    from muster.pipeline.extract.fetch import fetch_to_segments
    from muster.pipeline.extract.ranges import RangeReader, survey

    with tempfile.TemporaryDirectory() as folder:
        directory = Path(fetch_to_segments(work, Path(folder)).directories[0])
        found = survey(directory, work.from_offset, work.to_offset)
        reader = RangeReader(directory, work.from_offset, found.next_offset, Scratch())
        newest = LatestTable() if mode == "latest" else None
        for piece in reader.chunks(found.markers):
            if newest is not None:
                newest.update(in_force(piece.chunk, None if piece.is_whole else piece.rows))
            else:
                yield from shaped(
                    piece.chunk, work, None if piece.is_whole else piece.rows, table, found.markers, topic_names
                )
        if newest is not None:
            for chunk in newest.survivors():
                yield from shaped(chunk, work, None, table, found.markers, topic_names)


def shaped(
    chunk: Any, work: PartitionWork, rows: Any, table: str, markers: Any, topic_names: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Records of a chunk, all or those of some rows, in the columns of a table."""
    from muster.codec.columns.arrow import to_arrow
    from muster.pipeline.extract.shape import shape
    from muster.tables.times import published

    batch = to_arrow(chunk, work.offsets_partition, rows)
    if table == "records":
        yield batch
        return
    shaped = shape(batch, markers, topic_names)
    rows_of: pa.Table = getattr(shaped, table)
    yield from published(rows_of, SHAPES[table]).combine_chunks().to_batches()
