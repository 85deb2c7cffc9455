"""Where the data's logs end, and what time it was there: from a broker's directories, without the broker.

Several directories may hold replicas of the same partition, or partitions of several brokers; of replicas the one that
reaches furthest counts. There is no high watermark here: what a leader has, and no follower yet, is counted.

Whatever cannot be read is NULL, or left out, and a sentence in `problems`.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from muster.codec.records import Record
from muster.errors import LogDamaged, Malformed
from muster.pipeline.sources.data_log import DataLog, Problems, Tail
from muster.segments.checkpoints import LOG_STARTS, TopicPartition, read_offsets, read_partition_metadata
from muster.segments.files import REAL_FILES, Files
from muster.segments.sources import OFFSETS_TOPIC, PARTITION_NAME
from muster.tables.clocks import is_ahead, shown
from muster.tables.schemas import LOG_ENDS, TIMES

Key = tuple[str, int]


class _Replica(NamedTuple):
    log: DataLog
    tail: Tail
    problems: tuple[str, ...]


def log_ends(
    log_dirs: Sequence[str | Path],
    observed_at_ms: int | None,
    wanted: Collection[Key] | None = None,
    problems: Problems | None = None,
    files: Files = REAL_FILES,
) -> pa.Table:
    """`log_ends` of all partitions in these directories, or of the wanted ones, by topic and partition.

    A directory that its topic's deletion has renamed (`-delete`) is none of them. A row is there as soon as the end is
    known; `last_stable_offset`, `data_end_offset` and `newest_timestamp_ms` are NULL where the files do not tell.
    """
    notes: Problems = [] if problems is None else problems
    rows = []
    for key, directories in sorted(_directories(log_dirs, wanted, notes, files).items()):
        replica = _furthest(directories, notes, files)
        if replica is not None:
            rows.append(
                {"topic": key[0], "partition": key[1], "observed_at_ms": observed_at_ms} | _ends(replica, notes)
            )
    return pa.Table.from_pylist(rows, LOG_ENDS)


def moment_of(ends: pa.Table, looked_at_ms: int, newest_ms: int | None) -> tuple[int | None, list[str]]:
    """Of which moment directories are: that of the newest record anywhere. And which records have times that cannot be.

    So a copy of yesterday's disk is not a day behind. `newest_ms` is the offsets topic's. A time far ahead of the look
    is not believed, whichever client wrote it; unless all are, and it is this machine's clock that is wrong.
    """
    rows = ends.select(["topic", "partition", "newest_timestamp_ms"]).to_pylist()
    times = {f"{row['topic']}-{row['partition']}": row["newest_timestamp_ms"] for row in rows}
    known = {name: time_ms for name, time_ms in [(OFFSETS_TOPIC, newest_ms), *times.items()] if time_ms is not None}
    ahead = {name: time_ms for name, time_ms in known.items() if is_ahead(time_ms, looked_at_ms)}
    if len(ahead) == len(known):
        return max(known.values(), default=None), []
    moment = max(time_ms for name, time_ms in known.items() if name not in ahead)
    notes = [
        f"{name} has a record dated {shown(time_ms)}, later than now: that time counts for nothing."
        for name, time_ms in ahead.items()
    ]
    return min(moment, looked_at_ms), notes


def numbered(ends: pa.Table, run_number: int, observed_at_ms: int | None) -> pa.Table:
    """The observations of one run, all of one moment."""
    for name, value in (("run_number", run_number), ("observed_at_ms", observed_at_ms)):
        place = ends.schema.get_field_index(name)
        ends = ends.set_column(place, ends.schema.field(place), pa.array([value] * len(ends), pa.int64()))
    return ends


def ends_digest(ends: pa.Table) -> str:
    """The same for observations that differ in nothing but their moment."""
    rows = ends.drop_columns(["run_number", "observed_at_ms"]).sort_by(
        [("topic", "ascending"), ("partition", "ascending")]
    )
    return hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest()


def timestamps_at(
    log_dirs: Sequence[str | Path],
    wanted: Mapping[Key, Collection[int]],
    problems: Problems | None = None,
    files: Files = REAL_FILES,
) -> dict[tuple[str, int, int], int | None]:
    """The timestamp of the first record of data at or after each offset.

    None where there is none yet, where records had no timestamps (before 0.10), and where the batch cannot be read. One
    batch is opened for all offsets that lie in it. Partitions that are not in these directories are not in the answer.
    """
    notes: Problems = [] if problems is None else problems
    found: dict[tuple[str, int, int], int | None] = {}
    for key, directories in sorted(_directories(log_dirs, wanted.keys(), notes, files).items()):
        replica = _furthest(directories, notes, files)
        if replica is not None:
            for offset, timestamp_ms in _timestamps(replica.log, sorted(set(wanted[key])), notes):
                found[*key, offset] = timestamp_ms
    return found


def times_table(found: Mapping[tuple[str, int, int], int | None]) -> pa.Table:
    """What `timestamps_at` found, as rows of TIMES."""
    rows = [(*key, timestamp_ms) for key, timestamp_ms in sorted(found.items())]
    return pa.Table.from_pylist([dict(zip(TIMES.names, row, strict=True)) for row in rows], TIMES)


def _directories(
    log_dirs: Sequence[str | Path], wanted: Collection[Key] | None, notes: Problems, files: Files
) -> dict[Key, list[tuple[Path, int | None]]]:
    """The directories of each partition, each with the start that its broker's checkpoint has for it."""
    found: dict[Key, list[tuple[Path, int | None]]] = {}
    for log_dir in map(Path, log_dirs):
        starts: Mapping[TopicPartition, int] = {}
        try:
            starts = read_offsets(files, log_dir / LOG_STARTS)
        except (Malformed, OSError) as error:
            notes.append(f"{log_dir.name}/{LOG_STARTS}: {error}. Logs are taken to start with their first segments.")
        try:
            entries = files.entries(log_dir)
        except OSError as error:
            notes.append(f"{log_dir} cannot be listed: {error.strerror}.")
            continue
        for entry in entries:
            match = PARTITION_NAME.match(entry.name) if entry.is_directory else None
            if match is None:
                continue
            key = match["topic"], int(match["partition"])
            if wanted is None or key in wanted:
                found.setdefault(key, []).append((log_dir / entry.name, starts.get(TopicPartition(*key))))
    return found


def _furthest(directories: list[tuple[Path, int | None]], notes: Problems, files: Files) -> _Replica | None:
    """The replica whose log ends last. Problems of the others are not reported."""
    best: _Replica | None = None
    failed: Problems = []
    for directory, start in directories:
        said: Problems = []
        try:
            log = DataLog(files, directory, start)
            if not log.segments:
                failed.append(f"{directory.name} has no segments.")
                continue
            tail = log.tail(said)
        except OSError as error:
            failed.append(f"{directory.name} cannot be read: {error.strerror}.")
            continue
        if best is None or tail.end_offset > best.tail.end_offset:
            best = _Replica(log, tail, tuple(said))
    notes.extend(failed if best is None else best.problems)
    return best


def _ends(replica: _Replica, notes: Problems) -> dict[str, Any]:
    log, tail, _ = replica
    end = max(tail.end_offset, log.start_offset)
    row: dict[str, Any] = {"log_start_offset": log.start_offset, "log_end_offset": end}
    asked: dict[str, Callable[[], Any]] = {
        "last_stable_offset": lambda: log.last_stable_offset(end),
        "data_end_offset": lambda: min(log.data_end_offset(tail), end),
        "newest_timestamp_ms": lambda: log.newest_timestamp_ms(tail),
        "topic_id": lambda: read_partition_metadata(log.files, log.directory),
    }
    for name, ask in asked.items():
        try:
            row[name] = ask()
        except (Malformed, OSError) as error:
            notes.append(f"{log.directory.name}: {name} is unknown: {error}.")
    return row


def _timestamps(log: DataLog, offsets: list[int], notes: Problems) -> Iterator[tuple[int, int | None]]:
    held: list[Record] = []  # of the first batch with anything at or after the offset it was looked for, and so on up
    for offset in offsets:
        first = max(offset, log.start_offset)
        if not held or held[-1].offset < first:
            try:
                held = next(
                    (records for records in log.data_from(first) if records and records[-1].offset >= first), []
                )
            except (LogDamaged, OSError) as error:
                notes.append(f"the time of {log.directory.name} at offset {offset} is unknown: {error}.")
                held = []
        record = next((one for one in held if one.offset >= first), None)
        yield offset, None if record is None or record.timestamp_ms < 0 else record.timestamp_ms
