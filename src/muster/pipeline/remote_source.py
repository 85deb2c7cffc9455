"""Log directories that are not on this machine but that `pyarrow.fs` opens: a copy in an object store, say.

Tasks copy the segments they need. What the data's own logs would tell (their ends, times of records) is not looked at.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from muster.config.properties import parse_properties
from muster.errors import BadInput
from muster.pipeline.extract.files import open_store
from muster.pipeline.model import SegmentFiles
from muster.pipeline.plan import Look, PartitionState, Times, Wanted
from muster.segments.sources import OFFSETS_TOPIC, PARTITION_NAME, SEGMENT_NAME
from muster.tables.manifest import PartitionProgress
from muster.tables.schemas import LOG_ENDS, TIMES

UNKNOWN_END = 1 << 62
CHECKPOINT = "leader-epoch-checkpoint"


class RemoteDirectories:
    """Log directories of one cluster, by address."""

    kind = "log directory"

    def __init__(self, addresses: Sequence[str], options: Mapping[str, str]) -> None:
        self._options = tuple(sorted(options.items()))
        self._found: dict[int, tuple[str, int, int]] = {}
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
                known = self._found.get(number, (place, int(segment[1]), 0))
                if known[0] != place:
                    raise BadInput(
                        f"partition {number} is in {known[0]} and in {place}. Replicas are compared only on a disk: "
                        "copy them, or point at one broker's directory."
                    )
                self._found[number] = (place, min(known[1], int(segment[1])), known[2] + entry.size)

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
        for number, (place, start, size) in sorted(self._found.items()):
            system, path = open_store(place, self._options)
            lineage = _epochs(_text(system, f"{path}/{CHECKPOINT}"))
            source = SegmentFiles((place,), lineage, self._options)
            states.append(PartitionState(number, source, start, UNKNOWN_END, lineage, size))
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
    pairs = [line.split() for line in checkpoint.splitlines()[2:]]
    return tuple(
        (int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(part.isdigit() for part in pair)
    )
