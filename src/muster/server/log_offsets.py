"""A partition's log as the cluster's handlers see it: where it begins and ends, and whose epochs it has."""

from muster.log.partition import DiskLog
from muster.server.cluster.partitions import UNKNOWN_EPOCH_END, EpochEnd, FoundRecord


class LogOffsets:
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
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, self.end_offset)
        found = self._log.epochs.end_offset_of(epoch, self.end_offset)
        return UNKNOWN_EPOCH_END if found is None else EpochEnd(*found)

    def epoch_at(self, offset: int) -> int:
        before = [epoch for epoch, start_offset in self._log.epochs.entries if start_offset <= offset]
        return before[-1] if before else self.leader_epoch

    def first_since(self, timestamp_ms: int) -> FoundRecord | None:
        found = self._log.offset_for_timestamp(timestamp_ms)
        return None if found is None else FoundRecord(*found)

    def youngest(self) -> FoundRecord | None:
        found = self._log.offset_of_largest_timestamp()
        return None if found is None else FoundRecord(*found)
