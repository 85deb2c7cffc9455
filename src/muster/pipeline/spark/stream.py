"""`spark.readStream.format("muster")`: an offsets topic as it is written, each record once.

Offsets are a JSON object: partition of the topic to the first log offset that was not read yet.

A batch ends at the last stable offset of each partition, before the first transaction that has not ended: so every row
says how its transaction ended, and none stays `open`. The marker may stand behind the end of the batch: it is looked
for further down the log. Which transactions are open is followed header by header in a log on a disk; a live cluster's
leaders know it.

What the log has lost since the batch before (it begins later, ends earlier, or a partition is gone) fails the query,
unless the option failOnDataLoss is false. An offset never falls, so nothing is given twice.

Spark 4.0 and 4.1 ask for the end of a batch without saying where it begins, so there is no rate limit there.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import __version__ as spark_version
from pyspark.sql.datasource import DataSourceStreamReader

from muster.codec.columns import scan
from muster.codec.transaction_outcomes import Markers
from muster.errors import BadInput, DataLost
from muster.pipeline.extract.ranges import NO_END, PlacedSegment, RangeReader, follow, survey
from muster.pipeline.model import LiveLog, PartitionWork
from muster.pipeline.plan import PartitionState
from muster.pipeline.spark.log_reader import (
    OF_A_LOG,
    Options,
    Range,
    checked_options,
    refuse,
    shaped,
    source_of,
    table_of_log,
)
from muster.segments.reader import read_headers
from muster.segments.sources import OFFSETS_TOPIC

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

        HAS_LIMITS = True
    except ImportError:
        ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = object
        HAS_LIMITS = False

EARLIEST, LATEST = "earliest", "latest"
NUMBERS = {-2: EARLIEST, -1: LATEST}
"""As Spark's Kafka source writes them among offsets."""
FARTHER = 4096
"""Offsets, at least, that are looked through at once for markers behind a batch."""

Offsets = dict[str, int]


class OpenTransactions:
    """The transactions of one log that have begun and not ended, followed from an offset on."""

    def __init__(self, directory: Path, from_offset: int) -> None:
        self._directory = directory
        self._began: dict[int, int] = {}
        self.next_offset = from_offset

    def follow(self, to_offset: int = NO_END) -> None:
        """Read on: the headers of what was written since."""

        def read(placed: PlacedSegment) -> Iterator[None]:
            for _, batches in read_headers(placed.segment, self.next_offset, may_grow=placed.is_last):
                last = batches[:, scan.B_LAST_OFFSET]
                wanted = batches[placed.believable(batches) & (last >= self.next_offset) & (last < to_offset)]
                if len(wanted):
                    self._meet(wanted)
            yield None

        for _ in follow(self._directory, lambda: self.next_offset, to_offset, read):
            pass

    def _meet(self, batches: Any) -> None:
        is_transactional = batches[:, scan.B_ATTRIBUTES] & scan.TRANSACTIONAL_BIT != 0
        for batch in batches[is_transactional & (batches[:, scan.B_MAGIC] == 2)]:
            producer_id = int(batch[scan.B_PRODUCER_ID])
            if batch[scan.B_ATTRIBUTES] & scan.CONTROL_BIT:
                self._began.pop(producer_id, None)
            else:
                self._began.setdefault(producer_id, max(int(batch[scan.B_BASE_OFFSET]), self.next_offset))
        self.next_offset = int(batches[:, scan.B_LAST_OFFSET].max()) + 1

    @property
    def stable_offset(self) -> int:
        """Everything before it is decided."""
        return min(self._began.values(), default=self.next_offset)


class Seen(NamedTuple):
    """One partition, as it is now."""

    state: PartitionState
    stable_offset: int


class StreamRange(Range):
    """A range, and how far its log goes on: markers may stand there."""

    def __init__(self, work: PartitionWork, topic_names: Mapping[str, str], log_end_offset: int) -> None:
        super().__init__(work, topic_names)
        self.log_end_offset = log_end_offset


class Refused(DataSourceStreamReader):
    """In the place of a reader that cannot be. Spark tells what the methods of a reader raise; of what is raised before
    there is one it tells a mistake of its own.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def initialOffset(self) -> Any:
        raise BadInput(self._why)

    def latestOffset(self, *_: Any) -> Any:
        raise BadInput(self._why)

    def partitions(self, start: Any, end: Any) -> Any:
        raise BadInput(self._why)

    def read(self, partition: Any) -> Any:
        raise BadInput(self._why)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives as long as its query, beside the driver; tasks make others, which only `read`."""

    def __init__(self, given: Options) -> None:
        self._options = options = checked_options(given)
        refuse(options, OF_A_LOG, "is not for a stream, which has every record. Leave it out")
        self._table = table_of_log(options)
        if "://" in options.get("path", "").replace("file://", ""):
            raise BadInput(
                "a stream follows a live cluster or a log directory, and not a copy in an object store. "
                "`muster pipeline run --follow` reads those."
            )
        self._starting = _starting_offsets(options.get("startingOffsets", EARLIEST))
        self._fails = _flag(options, "failOnDataLoss", "true")
        self._limit = _limit(options.get("maxOffsetsPerTrigger"))
        self._followed: dict[str, OpenTransactions] = {}
        self._target: Offsets | None = None
        self._told: set[str] = set()

    # What Spark asks.

    def initialOffset(self) -> Offsets:
        if self._starting == EARLIEST:
            states = self._states()[0]
            return {number: state.log_start_offset for number, state in states.items()}
        seen = self._look({})
        if self._starting == LATEST:
            return {number: each.stable_offset for number, each in seen.items()}
        assert isinstance(self._starting, dict)
        return _named_offsets(self._starting, seen)

    def getDefaultReadLimit(self) -> Any:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is written from here on is for the next query."""
        self._target = {number: state.log_end_offset for number, state in self._states()[0].items()}

    def latestOffset(self, start: Any = None, limit: Any = None) -> Offsets:
        read = _offsets(start or {})
        seen = self._look(read)
        self._check(read, {number: each.state for number, each in seen.items()})
        begins = {number: each.state.log_start_offset for number, each in seen.items()} | read
        ends = begins | {number: max(each.stable_offset, begins[number]) for number, each in seen.items()}
        if self._target is not None:  # a partition that was not there then has to wait
            targets = {number: self._target.get(number, begins[number]) for number in ends}
            ends = {number: max(min(end, targets[number]), begins[number]) for number, end in ends.items()}
        if HAS_LIMITS and isinstance(limit, ReadMaxRows):
            ends = limited(begins, ends, limit.max_rows)
        return ends

    def partitions(self, start: Any, end: Any) -> Sequence[Range]:
        begins, ends = _offsets(start), _offsets(end)
        states, names = self._states()
        self._check(begins, states)
        self._check(ends, states)
        ranges = []
        for number, state in states.items():
            begin = max(begins.get(number, state.log_start_offset), state.log_start_offset)
            stop = min(ends.get(number, begin), state.log_end_offset)
            if stop > begin:
                work = PartitionWork(state.offsets_partition, state.source, begin, stop, False, state.size_bytes)
                ranges.append(StreamRange(work, names, state.log_end_offset))
        return ranges

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_decided(partition.work, partition.log_end_offset, self._table, partition.topic_names)

    # What there is.

    def _states(self) -> tuple[dict[str, PartitionState], dict[str, str]]:
        source = source_of(self._options)
        try:
            return {str(state.offsets_partition): state for state in source.partitions({})}, source.topic_names()
        finally:
            source.close()

    def _look(self, read: Mapping[str, int]) -> dict[str, Seen]:
        source = source_of(self._options)
        try:
            states = source.partitions({})
            if states and isinstance(states[0].source, LiveLog):
                stable = source.last_stable_offsets()  # type: ignore[attr-defined]
                return {str(one.offsets_partition): Seen(one, stable[one.offsets_partition]) for one in states}
            found = {}
            for state in states:
                number = str(state.offsets_partition)
                found[number] = Seen(state, self._stable(number, state, read.get(number, state.log_start_offset)))
            return found
        finally:
            source.close()

    def _stable(self, number: str, state: PartitionState, from_offset: int) -> int:
        assert not isinstance(state.source, LiveLog)
        known = self._followed.get(number)
        if known is None or known.next_offset > state.log_end_offset or known.stable_offset < from_offset:
            known = self._followed[number] = OpenTransactions(Path(state.source.directories[0]), from_offset)
        known.follow()
        return known.stable_offset

    def _check(self, read: Mapping[str, int], states: Mapping[str, PartitionState]) -> None:
        """Whether the log still has everything from where it was read to."""
        for number, offset in read.items():
            state, log = states.get(number), f"{OFFSETS_TOPIC}-{number}"
            if state is None:
                self._lose(f"{log} was read up to offset {offset}, and is not there any more")
            elif state.log_start_offset > offset:
                self._lose(
                    f"{log} was read up to offset {offset}, and begins at {state.log_start_offset} now: the records in "
                    "between are gone"
                )
            elif state.log_end_offset < offset:
                self._lose(
                    f"{log} was read up to offset {offset}, and ends at {state.log_end_offset} now: it was "
                    "truncated, or is an older copy"
                )

    def _lose(self, sentence: str) -> None:
        if self._fails:
            raise DataLost(
                f"{sentence}. To go on with what is there, set the option failOnDataLoss to false; to read all anew, "
                "use another checkpointLocation."
            )
        if sentence not in self._told:
            self._told.add(sentence)
            print(f"muster: {sentence}. The stream goes on with what is there.", file=sys.stderr, flush=True)


def limited(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> Offsets:
    """Ends that are `most` offsets away at most, in all. Each partition has an equal share, and what one does not need
    goes to the others.
    """
    left = most
    given = dict(begins)
    waiting = sorted((end - begins[number], number) for number, end in ends.items() if end > begins[number])
    for place, (size, number) in enumerate(waiting):  # the smallest first: what it leaves is there for larger ones
        share = min(size, left // (len(waiting) - place))
        given[number] += share
        left -= share
    return given


def read_decided(
    work: PartitionWork, log_end_offset: int, table: str, topic_names: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """The records of a range in which every transaction has ended, its marker in the range or behind it."""
    from muster.codec.columns.chunks import Scratch

    assert work.to_offset is not None
    with tempfile.TemporaryDirectory() as folder:
        directory, markers, reach = _with_markers(work, log_end_offset, Path(folder))
        reader = RangeReader(directory, work.from_offset, reach, Scratch())
        for piece in reader.chunks(markers):
            rows = piece.rows[piece.offsets < work.to_offset]
            if len(rows):
                yield from shaped(piece.chunk, work, rows, table, markers, topic_names)
            if reader.next_offset >= work.to_offset:
                return


def _with_markers(work: PartitionWork, log_end_offset: int, folder: Path) -> tuple[Path, Markers, int]:
    """The log's directory, the markers of the range, and where its last batch ends, which may be behind the range."""
    from muster.pipeline.extract.fetch import fetch_to_segments

    assert work.to_offset is not None
    reach = work.to_offset
    while True:
        target = folder / str(reach)
        target.mkdir()
        fetched = fetch_to_segments(work._replace(to_offset=reach), target)
        directory = Path(fetched.directories[0])
        transactions = OpenTransactions(directory, work.from_offset)
        transactions.follow(reach)
        is_whole = transactions.next_offset >= work.to_offset and transactions.stable_offset >= work.to_offset
        if is_whole or reach >= log_end_offset:
            return directory, survey(directory, work.from_offset, reach).markers, transactions.next_offset
        reach = min(log_end_offset, reach + max(reach - work.from_offset, FARTHER))


# Options.


def _starting_offsets(text: str) -> str | dict[str, int]:
    """`earliest`, `latest`, or offsets by partition, as Spark's Kafka source has them."""
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    example = f'{{"{OFFSETS_TOPIC}": {{"0": 23, "1": -2}}}}'
    try:
        named = json.loads(text)[OFFSETS_TOPIC]
        offsets = {str(int(number)): int(offset) for number, offset in named.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"the option startingOffsets={text} is none of earliest, latest and JSON like {example}, where -2 is "
            "earliest and -1 latest."
        ) from None
    if any(offset < min(NUMBERS) for offset in offsets.values()):
        raise BadInput(f"the option startingOffsets={text} has an offset below -2, which is earliest.")
    return offsets


def _named_offsets(named: Mapping[str, int], seen: Mapping[str, Seen]) -> Offsets:
    missing, unknown = sorted(seen.keys() - named.keys(), key=int), sorted(named.keys() - seen.keys(), key=int)
    if unknown:
        raise BadInput(f"the option startingOffsets names partition {unknown[0]}, and {OFFSETS_TOPIC} has none.")
    if missing:
        raise BadInput(
            f"the option startingOffsets does not name partition {', '.join(missing)} of {OFFSETS_TOPIC}. Name all; -2 "
            "is earliest, -1 latest."
        )
    places = {-2: lambda one: one.state.log_start_offset, -1: lambda one: one.stable_offset}
    return {number: places[offset](seen[number]) if offset in places else offset for number, offset in named.items()}


def _flag(options: Options, name: str, default: str) -> bool:
    value = options.get(name, default).lower()
    if value not in ("true", "false"):
        raise BadInput(f"the option {name}={value} is neither true nor false.")
    return value == "true"


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadInput(f"the option maxOffsetsPerTrigger={text} is no number above 0.")
    if not HAS_LIMITS:
        raise BadInput(
            f"the option maxOffsetsPerTrigger needs Spark 4.2 or newer, and this is {spark_version}: leave it out."
        )
    return int(text)


def _offsets(given: Any) -> Offsets:
    """Offsets as Spark hands them over: it may have kept them as text."""
    offsets: Offsets = json.loads(given) if isinstance(given, str) else dict(given)
    return offsets
