"""What handlers ask of a partition's log: where it begins and ends. Nothing here reads records."""

from typing import NamedTuple, Protocol

from muster.codec.error_codes import ErrorCode

NO_EPOCH = -1
NO_OFFSET = -1


class FoundRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and the offset behind its last record."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class PartitionOffsets(Protocol):
    """A partition as far as Fetch without records, ListOffsets and OffsetForLeaderEpoch need it."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def epoch_end(self, epoch: int) -> EpochEnd:
        """`UNKNOWN_EPOCH_END` for an epoch above the current one."""

    def epoch_at(self, offset: int) -> int:
        """The epoch in force at an offset."""

    def first_since(self, timestamp_ms: int) -> FoundRecord | None:
        """The first record that is at least so young."""

    def youngest(self) -> FoundRecord | None:
        """The first record with the largest timestamp."""


class EmptyPartition:
    """A partition nobody ever wrote to, or whose records are not kept yet."""

    leader_epoch = 0
    start_offset = 0
    end_offset = 0
    high_watermark = 0
    last_stable_offset = 0

    def __init__(self, leader_epoch: int = 0) -> None:
        self.leader_epoch = leader_epoch

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, 0) if epoch <= self.leader_epoch and epoch != NO_EPOCH else UNKNOWN_EPOCH_END

    def epoch_at(self, offset: int) -> int:
        return self.leader_epoch

    def first_since(self, timestamp_ms: int) -> FoundRecord | None:
        return None

    def youngest(self) -> FoundRecord | None:
        return None


EMPTY_PARTITION = EmptyPartition()


def epoch_problem(log: PartitionOffsets, known_epoch: int) -> ErrorCode:
    """Whether a client that has heard of this leader epoch may ask here; `NO_EPOCH` if it has heard of none."""
    if known_epoch in (NO_EPOCH, log.leader_epoch):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known_epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
