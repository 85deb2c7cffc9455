"""A log on disk, as Fetch, ListOffsets and OffsetForLeaderEpoch ask for it (`PartitionOffsets`)."""

from muster.log.partition import DiskLog
from muster.server.cluster.partitions import NO_EPOCH, UNKNOWN_EPOCH_END, EpochEnd, FoundRecord


class DiskPartition:
    """What `Cluster.partition_of` gives for a log that is open."""

    __slots__ = ("_log",)

    def __init__(self, log: DiskLog) -> None:
        self._log = log

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.written_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self._log.last_stable_offset

    def epoch_end(self, epoch: int) -> EpochEnd:
        if epoch == NO_EPOCH or epoch > self.leader_epoch:
            return UNKNOWN_EPOCH_END
        # The current epoch is only written down with its first record; until then the one before it ends here.
        written = self._log.epochs.latest
        if written is None or epoch == self.leader_epoch:
            return EpochEnd(epoch, self.end_offset)
        known = self._log.epochs.end_offset_of(min(epoch, written), self.end_offset)
        assert known is not None, "only epochs behind the last one have no end"
        return EpochEnd(*known)

    def epoch_at(self, offset: int) -> int:
        begun = [epoch for epoch, start_offset in self._log.epochs.entries if start_offset <= offset]
        return begun[-1] if begun else self.leader_epoch

    def first_since(self, timestamp_ms: int) -> FoundRecord | None:
        found = self._log.offset_for_timestamp(timestamp_ms)
        return None if found is None else FoundRecord(*found)

    def youngest(self) -> FoundRecord | None:
        found = self._log.offset_of_largest_timestamp()
        return None if found is None else FoundRecord(*found)
