"""Where an offsets topic is read from: log directories of one cluster here or in an object store, or a live cluster."""

import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from muster.config.properties import parse_properties
from muster.errors import BadInput, Malformed
from muster.pipeline.model import SegmentFiles
from muster.pipeline.plan import Look, PartitionState, Source, Times, Wanted
from muster.segments.archives import DEFAULT_LIMIT, UnpackLimit, is_archive, unpack
from muster.segments.checkpoints import LEADER_EPOCHS, decode_epochs, read_partition_metadata
from muster.segments.files import REAL_FILES
from muster.segments.sources import OFFSETS_TOPIC, PARTITION_NAME, SEGMENT_NAME, Sources, segments_of
from muster.tables.schemas import LOG_ENDS, TIMES
from muster.tables.storage.files import open_store
from muster.tables.storage.manifest import PartitionProgress

LIVE = "kafka://"


def open_source(
    sources: Sequence[str],
    kafka_config: Mapping[str, str],
    storage_options: Mapping[str, str],
    unpack_limit: UnpackLimit = DEFAULT_LIMIT,
) -> Source:
    """What `--source` names. Several are log directories of brokers of one cluster."""
    if not sources:
        raise BadInput("--source is missing: a broker's log directory, or kafka://host:port.")
    live = [source for source in sources if source.startswith(LIVE)]
    if live and len(sources) > 1:
        raise BadInput("a live cluster is one source: give one kafka://host:port,host:port and no directories with it.")
    if live:
        from muster.pipeline.sources.live_cluster import LiveSource

        return LiveSource({**kafka_config, "bootstrap.servers": live[0].removeprefix(LIVE).rstrip("/")})
    if any("://" in source and not source.startswith("file://") for source in sources):
        return RemoteDirectories(sources, storage_options)
    return LogDirectories([Path(source.removeprefix("file://")) for source in sources], unpack_limit)


class SegmentTimes(NamedTuple):
    """Timestamps from the data's own segments."""

    log_dirs: tuple[str, ...]

    def __call__(self, wanted: Wanted) -> pa.Table:
        from muster.pipeline.sources.log_ends import times_table, timestamps_at

        return times_table(timestamps_at(self.log_dirs, wanted))


class LogDirectories:
    """Log directories: of one broker, of several brokers of one cluster, of muster; or an archive of one."""

    kind = "log directory"

    def __init__(self, paths: Sequence[Path], unpack_limit: UnpackLimit = DEFAULT_LIMIT) -> None:
        self._stack = ExitStack()
        self._archives: dict[Path, Path] = {}
        """By the folder that each was unpacked into."""
        try:
            self._roots = [self._unpacked(path, unpack_limit) for path in paths]
            with Sources(self._roots) as found:
                self._found = found.partitions
            if any(partition.partition is None for partition in self._found):
                raise BadInput(
                    "a segment on its own does not say which partition it is of. Point at its directory, "
                    f"{OFFSETS_TOPIC}-N, or at the log directory above it; `muster dump` reads single segments."
                )
            self.cluster_id: str | None = one_cluster(self._log_dirs())
        except BadInput as error:
            self._stack.close()
            raise type(error)(self._as_given(str(error))) from error
        except BaseException:
            self._stack.close()
            raise

    def _as_given(self, text: str) -> str:
        """A sentence with archives by the names that the user gave, not by the folders that they were unpacked into."""
        for folder, archive in self._archives.items():
            text = text.replace(str(folder), str(archive))
        return text

    def _unpacked(self, path: Path, limit: UnpackLimit) -> Path:
        if not is_archive(path):
            return path
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-")))
        self._archives[folder.resolve()] = self._archives[folder] = path
        unpack(path, folder, limit=limit)
        return folder

    def _log_dirs(self) -> list[Path]:
        return sorted({partition.directory.resolve().parent for partition in self._found})

    def partitions(self, known: Mapping[int, PartitionProgress]) -> list[PartitionState]:
        from muster.pipeline.extract.ranges import survey
        from muster.pipeline.sources.replicas import describe_partition, parting

        by_number: dict[int, list[Path]] = {}
        for partition in self._found:
            assert partition.partition is not None
            by_number.setdefault(partition.partition, []).append(partition.directory.resolve())
        states = []
        for number, directories in sorted(by_number.items()):
            source, start, end, last_epoch = describe_partition(directories)
            leader, epochs, before = source.directories[0], source.epochs, known.get(number)
            if before is not None and not epochs and last_epoch > before.leader_epoch:
                epochs = survey(Path(leader), start, None).lineage  # without a checkpoint the batches tell
            segments = tuple((each.base_offset, each.size_bytes) for each in segments_of(Path(leader)))
            size = sum(size for _, size in segments)
            differs = None if before is None else parting(leader, before.landmarks)
            states.append(PartitionState(number, source, start, end, epochs, size, differs, segments))
        return states

    def topic_names(self) -> dict[str, str]:
        names = {}
        for directory in self._log_dirs():
            for entry in os.scandir(directory):
                match = PARTITION_NAME.match(entry.name)
                topic_id = _topic_id(Path(entry.path)) if match else None
                if match and topic_id:
                    names[topic_id] = match["topic"]
        return names

    def look(self, known: Mapping[int, PartitionProgress]) -> Look:
        from muster.pipeline.sources.log_ends import log_ends

        data = [
            (match["topic"], int(match["partition"]))
            for match in self._partition_names()
            if match["topic"] != OFFSETS_TOPIC
        ]
        partitions = self.partitions(known)
        looked_at_ms = time.time_ns() // 1_000_000
        problems: list[str] = []
        ends = log_ends(self._log_dirs(), None, data, problems)
        found = zip(ends["topic"].to_pylist(), ends["partition"].to_pylist(), strict=True)
        lost = tuple(f"{topic}-{partition} " for topic, partition in sorted(set(data).difference(found)))
        unread = tuple(problem for problem in problems if lost and problem.startswith(lost))
        return Look(partitions, ends, looked_at_ms, unread=unread)

    def _partition_names(self) -> list[re.Match[str]]:
        names = {entry.name for directory in self._log_dirs() for entry in os.scandir(directory) if entry.is_dir()}
        return [match for name in sorted(names) if (match := PARTITION_NAME.match(name)) is not None]

    def times(self) -> "Times":
        return SegmentTimes(tuple(str(directory) for directory in self._log_dirs())).__call__

    def close(self) -> None:
        self._stack.close()


def one_cluster(log_dirs: Iterable[Path]) -> str | None:
    """The cluster these directories belong to, by their meta.properties; refuses a mixture."""
    found: dict[str, Path] = {}
    for directory in log_dirs:
        cluster = _properties(directory / "meta.properties").get("cluster.id")
        if cluster:
            found.setdefault(cluster, directory)
    if len(found) > 1:
        named = " and ".join(f"{directory} of cluster {cluster}" for cluster, directory in sorted(found.items()))
        raise BadInput(
            f"these log directories are not of one cluster: {named}. Run once for each, with tables of its own."
        )
    return next(iter(found), None)


def _properties(path: Path) -> dict[str, str]:
    try:
        return dict(parse_properties(path.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _topic_id(directory: Path) -> str | None:
    try:
        return read_partition_metadata(REAL_FILES, directory)
    except (Malformed, OSError):
        return None


UNKNOWN_END = 1 << 62


class RemoteDirectories:
    """Log directories of one cluster, by address."""

    kind = "log directory"

    def __init__(self, addresses: Sequence[str], options: Mapping[str, str]) -> None:
        self._options = tuple(sorted(options.items()))
        self._found: dict[int, str] = {}
        self._segments: dict[int, list[tuple[int, int]]] = {}
        self.cluster_id: str | None = None
        for address in addresses:
            self._look(address.rstrip("/"))
        if not self._found:
            raise BadInput(f"no segments of {OFFSETS_TOPIC} in {' or '.join(addresses)}: no `{OFFSETS_TOPIC}-N` there.")

    def _look(self, address: str) -> None:
        system, path = open_store(address, self._options)
        try:
            entries = system.get_file_info(fs.FileSelector(path, recursive=True))
        except OSError as error:
            raise BadInput(f"{address} cannot be listed: {error}. Check the address and the storage options.") from None
        for entry in entries:
            directory, _, name = entry.path.rpartition("/")
            if name == "meta.properties":
                self._check_cluster(address, _text(system, entry.path))
            match = PARTITION_NAME.match(directory.rpartition("/")[2])
            segment = SEGMENT_NAME.match(name)
            if match and segment and match["topic"] == OFFSETS_TOPIC:
                number = int(match["partition"])
                place = address + directory.removeprefix(path)
                known = self._found.setdefault(number, place)
                if known != place:
                    raise BadInput(
                        f"partition {number} is in {known} and in {place}. Replicas are compared only on a disk: "
                        "copy them, or point at one broker's directory."
                    )
                self._segments.setdefault(number, []).append((int(segment[1]), entry.size))

    def _check_cluster(self, address: str, text: str) -> None:
        cluster = dict(parse_properties(text)).get("cluster.id")
        if cluster and self.cluster_id and cluster != self.cluster_id:
            raise BadInput(
                f"{address} is of cluster {cluster}, the others are of {self.cluster_id}. Run once for each."
            )
        self.cluster_id = self.cluster_id or cluster

    def partitions(self, known: Mapping[int, PartitionProgress]) -> list[PartitionState]:
        """Ends are not known before the segments are read; a truncation shows by the checkpoint of leader epochs."""
        states = []
        for number, place in sorted(self._found.items()):
            segments = tuple(sorted(self._segments[number]))
            start, size = segments[0][0], sum(size for _, size in segments)
            system, path = open_store(place, self._options)
            lineage = _epochs(_text(system, f"{path}/{LEADER_EPOCHS}"))
            source = SegmentFiles((place,), lineage, self._options)
            states.append(PartitionState(number, source, start, UNKNOWN_END, lineage, size, segments=segments))
        return states

    def topic_names(self) -> dict[str, str]:
        return {}

    def look(self, known: Mapping[int, PartitionProgress]) -> Look:
        return Look(self.partitions(known), LOG_ENDS.empty_table(), time.time_ns() // 1_000_000)

    def times(self) -> Times:
        return no_times

    def close(self) -> None:
        pass


def no_times(wanted: Wanted) -> pa.Table:
    return TIMES.empty_table()


def _text(system: Any, path: str) -> str:
    try:
        with system.open_input_stream(path) as file:
            text: str = file.read().decode("utf-8", "replace")
            return text
    except OSError:
        return ""


def _epochs(checkpoint: str) -> tuple[tuple[int, int], ...]:
    try:
        return tuple(decode_epochs(checkpoint.encode(), LEADER_EPOCHS))
    except Malformed:
        return ()  # as of a log on a disk: none of these small files is worth one
