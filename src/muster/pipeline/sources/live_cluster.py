"""A live cluster as a source: raw batches by Fetch, ends and times by asking the leaders."""

import time
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from muster.errors import ClusterError
from muster.live.cluster import Asked, Cluster, LogEnds, printed_id
from muster.live.requests import NO_TOPIC_ID, EpochEnd, ListedOffset, TopicPartition
from muster.live.times import data_ends, timestamps_at
from muster.pipeline.model import LiveLog
from muster.pipeline.plan import Look, Parting, PartitionState, Times, Wanted
from muster.pipeline.sources.log_ends import times_table
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.schemas import LOG_ENDS
from muster.tables.storage.manifest import LIVE, PartitionProgress

RECORD_BYTES = 110
"""About what a commit takes: a guess for the progress bar, since a cluster tells offsets and not bytes."""

LATE_S = 5.0
"""An end that takes longer than this is not of the same moment as the others any more: it is unknown."""


class LiveTimes(NamedTuple):
    """Timestamps from the leaders of the data."""

    config: tuple[tuple[str, str], ...]

    def __call__(self, wanted: Wanted) -> pa.Table:
        places = [(topic, partition, offset) for (topic, partition), each in wanted.items() for offset in each]
        return times_table(timestamps_at(dict(self.config), places))


class LiveSource:
    """A cluster that runs; what it wrote since the run was planned is left for the next one."""

    kind = LIVE

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = tuple(sorted(config.items()))
        self._cluster = Cluster(config)
        try:
            self._offsets = self._cluster.topic(OFFSETS_TOPIC)
            self.cluster_id = self._cluster.metadata([OFFSETS_TOPIC]).cluster_id
            self._cluster.check_hands_out(OFFSETS_TOPIC)  # before Spark takes its seconds to start
        except BaseException:
            self._cluster.close()
            raise

    def partitions(self, known: Mapping[int, PartitionProgress]) -> list[PartitionState]:
        wanted = self._offsets_partitions()
        return self._states(self._cluster.log_starts(wanted), self._cluster.high_watermarks(wanted), known)

    def look(self, known: Mapping[int, PartitionProgress]) -> Look:
        """Starts are asked for first: then every leader is connected, and the ends come in one breath."""
        topics = self._cluster.metadata().topics
        names = {topic.name: printed_id(topic.topic_id) for topic in topics.values() if topic.topic_id != NO_TOPIC_ID}
        offsets = self._offsets_partitions()
        data = [(name, number) for name in topics for number in topics[name].partitions if name != OFFSETS_TOPIC]
        starts = self._cluster.log_starts([*offsets, *data])
        ends = self._cluster.high_watermarks(offsets)
        looked_at_ms = time.time_ns() // 1_000_000
        high = self._cluster.high_watermarks([where for where in data if where in starts.answers], LATE_S)
        stable = self._cluster.last_stable_offsets(high.answers, LATE_S)
        states = self._states(starts, ends, known)
        found = {where: _log_ends(where, starts, high, stable) for where in data}
        data_end = data_ends(dict(self._config), found)
        rows = [_row(where, found[where], data_end[where], names.get(where[0])) for where in sorted(data)]
        log_ends = pa.Table.from_pylist(rows, LOG_ENDS)
        return Look(states, log_ends, looked_at_ms, is_live=True, offsets_retention_ms=self._offsets_retention_ms())

    def _offsets_retention_ms(self) -> int | None:
        """None where the broker does not tell: it asks for the right to describe its settings."""
        try:
            minutes = self._cluster.broker_setting("offsets.retention.minutes")
        except ClusterError:
            return None
        return int(minutes) * 60_000 if minutes and minutes.isdigit() else None

    def _offsets_partitions(self) -> list[TopicPartition]:
        return [(OFFSETS_TOPIC, number) for number in sorted(self._offsets.partitions)]

    def _states(
        self, starts: Asked[ListedOffset], ends: Asked[ListedOffset], known: Mapping[int, PartitionProgress]
    ) -> list[PartitionState]:
        wanted = self._offsets_partitions()
        epochs = {where: known[where[1]].leader_epoch for where in wanted if where[1] in known}
        over = self._cluster.epoch_ends({where: epoch for where, epoch in epochs.items() if epoch >= 0})
        states = []
        for where in wanted:
            if where not in starts.answers or where not in ends.answers:
                raise (starts.problems | ends.problems)[where]
            start, end = starts.answers[where].offset, ends.answers[where].offset
            source, size_bytes = LiveLog(self._config, OFFSETS_TOPIC), (end - start) * RECORD_BYTES
            state = PartitionState(where[1], source, start, end, (), size_bytes)
            states.append(self._compared(state, known[where[1]], over[where]) if where in over else state)
        return states

    def _compared(
        self, state: PartitionState, known: PartitionProgress, over: EpochEnd | ClusterError
    ) -> PartitionState:
        """With where the epoch that was read last has ended, if the leader of today is a newer one."""
        where = (OFFSETS_TOPIC, state.offsets_partition)
        current = self._cluster.leader_epoch(where)
        if isinstance(over, ClusterError):
            if not 0 <= current < known.leader_epoch:
                raise over
            # What was read under an epoch that this log has not come to yet is not in it.
            is_there = state.log_end_offset >= known.next_offset
            return state._replace(parting=Parting(known.next_offset - 1, 0)) if is_there else state
        if current == known.leader_epoch:
            return state
        # Whatever epoch comes next in the log, it begins where the one that was read last has ended.
        newer = (known.leader_epoch + 1, over.end_offset)
        return state._replace(epochs=((over.leader_epoch, state.log_start_offset), newer))

    def last_stable_offsets(self) -> dict[int, int]:
        """Of each partition of the offsets topic, where its first transaction begins that has not ended."""
        asked = self._cluster.last_stable_offsets(self._offsets_partitions())
        for where in asked.problems:
            raise asked.problems[where]
        return {where[1]: answer.offset for where, answer in asked.answers.items()}

    def topic_names(self) -> dict[str, str]:
        return self._cluster.topic_names()

    def times(self) -> Times:
        return LiveTimes(self._config).__call__

    def close(self) -> None:
        self._cluster.close()


def _log_ends(
    where: TopicPartition, starts: Asked[ListedOffset], high: Asked[ListedOffset], stable: Asked[ListedOffset]
) -> LogEnds:
    """The stable end was asked last: it may have passed the end meanwhile."""
    if where not in stable.answers:
        return LogEnds(None, None, None, -1, (starts.problems | high.problems | stable.problems).get(where))
    end = high.answers[where]
    return LogEnds(
        starts.answers[where].offset, min(stable.answers[where].offset, end.offset), end.offset, end.leader_epoch
    )


def _row(where: TopicPartition, ends: LogEnds, data_end: int | None, topic_id: str | None) -> dict[str, object]:
    return {
        "topic": where[0],
        "partition": where[1],
        "log_start_offset": ends.log_start_offset,
        "log_end_offset": ends.high_watermark,
        "last_stable_offset": ends.last_stable_offset,
        "data_end_offset": data_end,
        "topic_id": topic_id,
    }
