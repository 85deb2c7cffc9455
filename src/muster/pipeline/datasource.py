"""`spark.read.format("muster")`: an offsets topic as a DataFrame, for notebooks and for jobs of one's own.

    spark.read.format("muster").load("/var/lib/kafka/data")                           every record, all columns
    ....option("table", "commits").load(path)                                         rows of a table of history
    ....option("mode", "latest").load(path)                                           the newest record of each key
    ....option("kafka.bootstrap.servers", "broker:9092").load()                       a live cluster
    spark.readStream.format("muster").load(path)                                      what is written from now on, too

Several directories are separated by commas. The columns of `records` are the codec's (`docs/pipeline.md`); `commits`,
`group_records` and `markers` have those of the published tables of these names, and `muster.pipeline.frames` makes
state of them. One Spark partition is one partition of the offsets topic.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from muster.codec.columns.schema import RECORDS
from muster.errors import BadInput
from muster.pipeline.frames import struct_of
from muster.pipeline.model import PartitionWork
from muster.pipeline.plan import PartitionState
from muster.pipeline.sources import LIVE, open_source
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MARKERS, published_form

SHAPES = {
    "records": RECORDS,
    "commits": published_form(COMMITS),
    "group_records": published_form(GROUP_RECORDS),
    "markers": published_form(MARKERS),
}
KAFKA = "kafka."
SERVERS = f"{KAFKA}bootstrap.servers"
NAMES = ("path", "table", "mode")
"""Options of this source, beside a client's own that begin with `kafka.`."""
MODES = ("history", "latest")


class OffsetsTopic(DataSource):
    """The data source; register it with `register`, or let Spark find the module `pyspark_muster`."""

    @classmethod
    def name(cls) -> str:
        return "muster"

    def schema(self) -> StructType:
        return struct_of(SHAPES[_table(self.options)])

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(dict(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(dict(self.options))


def register(spark: Any) -> None:
    """Make `format("muster")` known to a session that does not find it by itself."""
    spark.dataSource.register(OffsetsTopic)


def _check_names(options: Mapping[str, str]) -> None:
    """An option that nobody reads is a mistake: without it the answer would be to another question."""
    for name in options:
        if name.lower() not in NAMES and not name.lower().startswith(KAFKA):
            near = get_close_matches(name.lower(), [*NAMES, SERVERS], n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(NAMES)}, {KAFKA}*."
            raise BadInput(f"there is no option '{name}'. {hint}")
    if any(name.lower().startswith(KAFKA) for name in options) and SERVERS not in options:
        raise BadInput(f"the option {SERVERS} is missing: options that begin with {KAFKA} are about a live cluster.")


def _table(options: Mapping[str, str]) -> str:
    _check_names(options)
    table = options.get("table", "records")
    if table not in SHAPES:
        raise BadInput(f"the option table={table} is none of {', '.join(SHAPES)}.")
    return table


def _mode(options: Mapping[str, str]) -> str:
    mode = options.get("mode", MODES[0])
    if mode not in MODES:
        raise BadInput(f"the option mode={mode} is none of {', '.join(MODES)}.")
    return mode


def _states(options: Mapping[str, str]) -> tuple[list[PartitionState], dict[str, str]]:
    """The partitions there are, and names of topics by id."""
    kafka = {name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)}
    servers = kafka.pop("bootstrap.servers", None)
    paths = (
        [LIVE + servers] if servers else [path.strip() for path in options.get("path", "").split(",") if path.strip()]
    )
    source = open_source(paths, kafka, {})
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
    def __init__(self, options: Mapping[str, str]) -> None:
        self._table, self._mode = _table(options), _mode(options)
        self._states, self._names = _states(options)

    def partitions(self) -> Sequence[Range]:
        return [_range(state, state.log_start_offset, state.log_end_offset, self._names) for state in self._states]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_range(partition.work, self._table, self._mode, partition.topic_names)


class StreamReader(DataSourceStreamReader):
    """Offsets are a JSON object: partition to the first log offset that was not read yet.

    A transaction that a batch does not see the end of is `open` in it, and stays so: rows are never given twice. So an
    offset never falls, nor is a partition forgotten, when a log is shorter or not there for a while.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options, self._table = dict(options), _table(options)
        if _mode(options) != MODES[0]:
            raise BadInput("a stream has every record: leave the option mode out.")

    def initialOffset(self) -> dict[str, int]:
        return {str(state.offsets_partition): state.log_start_offset for state in _states(self._options)[0]}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, int]:
        read = _offsets(start or {})
        ends = {str(state.offsets_partition): state.log_end_offset for state in _states(self._options)[0]}
        return {**read, **{number: max(end, read.get(number, end)) for number, end in ends.items()}}

    def partitions(self, start: Any, end: Any) -> Sequence[Range]:
        begin, stop = _offsets(start), _offsets(end)
        states, names = _states(self._options)
        return [
            _range(state, begin.get(number, state.log_start_offset), stop[number], names)
            for state in states
            if (number := str(state.offsets_partition)) in stop
            and stop[number] > begin.get(number, state.log_start_offset)
        ]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_range(partition.work, self._table, MODES[0], partition.topic_names)


def _offsets(given: Any) -> dict[str, int]:
    """Offsets as Spark hands them over: it may have kept them as text."""
    offsets: dict[str, int] = json.loads(given) if isinstance(given, str) else given
    return offsets


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
                yield from _shaped(
                    piece.chunk, work, None if piece.is_whole else piece.rows, table, found.markers, topic_names
                )
        if newest is not None:
            for chunk in newest.survivors():
                yield from _shaped(chunk, work, None, table, found.markers, topic_names)


def _shaped(
    chunk: Any, work: PartitionWork, rows: Any, table: str, markers: Any, topic_names: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
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
