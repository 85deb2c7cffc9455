"""A live cluster as a source: raw batches by Fetch, ends and times by asking the leaders."""

import time
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from muster.errors import ClusterError
from muster.live.cluster import Cluster, LogEnds
from muster.live.messages import TopicPartition
from muster.live.times import data_ends, timestamps_at
from muster.log.sources import OFFSETS_TOPIC
from muster.pipeline.landmarks import Parting
from muster.pipeline.log_ends import times_table
from muster.pipeline.model import LiveLog
from muster.pipeline.plan import PartitionState
from muster.pipeline.sources import Times, Wanted
from muster.tables.manifest import PartitionProgress
from muster.tables.schemas import LOG_ENDS

RECORD_BYTES = 110
"""About what a commit takes: a guess for the progress bar, since a cluster tells offsets and not bytes."""


class LiveTimes(NamedTuple):
    """Timestamps from the leaders of the data."""

    config: tuple[tuple[str, str], ...]

    def __call__(self, wanted: Wanted) -> pa.Table:
        places = [(topic, partition, offset) for (topic, partition), each in wanted.items() for offset in each]
        return times_table(timestamps_at(dict(self.config), places))


class LiveSource:
    """A cluster that runs; what it wrote since the run was planned is left for the next one."""

    kind = "live cluster"

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = tuple(sorted(config.items()))
        self._cluster = Cluster(config)
        try:
            self._offsets = self._cluster.topic(OFFSETS_TOPIC)
            self.cluster_id = self._cluster.metadata([OFFSETS_TOPIC]).cluster_id
        except BaseException:
            self._cluster.close()
            raise

    def partitions(self, known: Mapping[int, PartitionProgress]) -> list[PartitionState]:
        wanted = [(OFFSETS_TOPIC, number) for number in sorted(self._offsets.partitions)]
        ends = self._cluster.log_ends(wanted)
        left = self._cluster.epoch_ends(
            {
                (OFFSETS_TOPIC, number): before.leader_epoch
                for number, before in known.items()
                if before.leader_epoch >= 0 and number in self._offsets.partitions
            }
        )
        states = []
        for (_, number), found in ends.items():
            if found.problem is not None:
                raise found.problem
            start, end = _known(found)
            lineage: tuple[tuple[int, int], ...] = ()
            over = left.get((OFFSETS_TOPIC, number))
            if isinstance(over, ClusterError):
                raise over
            parting = None
            if over is not None:
                next_offset, epoch = known[number].next_offset, known[number].leader_epoch
                if found.leader_epoch > epoch or over.end_offset < end:
                    # Whatever epoch comes next in the log, it begins where the one that was read last has ended.
                    lineage = ((over.leader_epoch, start), (epoch + 1, over.end_offset))
                elif 0 <= found.leader_epoch < epoch and end >= next_offset:
                    parting = Parting(next_offset - 1, 0)  # that was read under an epoch this log has not come to yet
            states.append(
                PartitionState(
                    number,
                    LiveLog(self._config, OFFSETS_TOPIC),
                    start,
                    end,
                    lineage,
                    (end - start) * RECORD_BYTES,
                    parting,
                )
            )
        return states

    def topic_names(self) -> dict[str, str]:
        return self._cluster.topic_names()

    def log_ends(self, newest_ms: int | None) -> pa.Table:
        observed_at_ms = time.time_ns() // 1_000_000
        names = {name: topic_id for topic_id, name in self.topic_names().items()}
        found = {where: ends for where, ends in self._cluster.log_ends().items() if where[0] != OFFSETS_TOPIC}
        data = data_ends(dict(self._config), found)
        return pa.Table.from_pylist(
            [
                _row(where, ends, data.get(where), names.get(where[0]), observed_at_ms)
                for where, ends in sorted(found.items())
            ],
            LOG_ENDS,
        )

    def times(self) -> Times:
        return LiveTimes(self._config).__call__

    def close(self) -> None:
        self._cluster.close()


def _known(ends: LogEnds) -> tuple[int, int]:
    assert ends.log_start_offset is not None
    assert ends.high_watermark is not None
    return ends.log_start_offset, ends.high_watermark


def _row(
    where: TopicPartition, ends: LogEnds, data_end: int | None, topic_id: str | None, observed_at_ms: int
) -> dict[str, object]:
    return {
        "topic": where[0],
        "partition": where[1],
        "observed_at_ms": observed_at_ms,
        "log_start_offset": ends.log_start_offset,
        "log_end_offset": ends.high_watermark,
        "last_stable_offset": ends.last_stable_offset,
        "data_end_offset": data_end,
        "newest_timestamp_ms": None,
        "topic_id": topic_id,
    }
