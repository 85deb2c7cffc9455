"""The cluster as this node knows it: itself, the topics, the settings, and where each partition's log begins and ends.

Every handler is given a `Cluster`. It finds the log of a partition as `PartitionOffsets`: as far as Fetch, ListOffsets
and OffsetForLeaderEpoch need it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from muster.codec.error_codes import ErrorCode
from muster.config.broker import BrokerConfig
from muster.core.config import GroupConfig
from muster.log.partition import DiskLog
from muster.log.reads import Extent
from muster.segments.indexes import AbortedTransaction
from muster.server.cluster.topics import Plan, Topic, Topics

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
    """A partition as far as Fetch, ListOffsets and OffsetForLeaderEpoch need it."""

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

    def find(self, offset: int, max_bytes: int, up_to: int) -> Extent | None:
        """Whole batches from the one that holds an offset on, one at least if there is any; `LogDamaged`."""

    def aborted_transactions(self, from_offset: int, to_offset: int) -> Sequence[AbortedTransaction]:
        """Those with records in a range."""


class EmptyPartition:
    """A partition without records."""

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

    def find(self, offset: int, max_bytes: int, up_to: int) -> Extent | None:
        return None

    def aborted_transactions(self, from_offset: int, to_offset: int) -> Sequence[AbortedTransaction]:
        return ()


EMPTY_PARTITION = EmptyPartition()
MISSING_PARTITION = EmptyPartition()
"""A partition whose log is not there: its topic is being deleted. Clients are told to look for its leader."""


def epoch_problem(log: PartitionOffsets, known_epoch: int) -> ErrorCode:
    """Whether a client that has heard of this leader epoch may ask here; `NO_EPOCH` if it has heard of none."""
    if log is MISSING_PARTITION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if known_epoch in (NO_EPOCH, log.leader_epoch):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known_epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


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

    def find(self, offset: int, max_bytes: int, up_to: int) -> Extent | None:
        return self._log.find(offset, max_bytes, up_to)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> Sequence[AbortedTransaction]:
        return self._log.aborted_transactions(from_offset, to_offset)


NO_TOPIC_ID = bytes(16)
NOT_ASKED = -(2**31)
"""Authorized operations where the request did not ask for them."""
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096
"""A bit for each operation that Kafka has for a topic, for a cluster; without an authorizer all of them are allowed."""


class Node(NamedTuple):
    """A broker, as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class Cluster:
    """One node leads every partition and is the controller too.

    `fresh_topic_id` gives sixteen random bytes that are no topic's id yet. `partition_of` finds the log of a partition;
    without it they are all empty.
    """

    cluster_id: str
    node: Node
    topics: Topics
    fresh_topic_id: Callable[[], bytes]
    config: BrokerConfig = field(default_factory=BrokerConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    partition_of: Callable[[Topic, int], PartitionOffsets] = lambda topic, partition: EMPTY_PARTITION


class ClusterApi(NamedTuple):
    """One API: how it is decoded, answered and encoded. It has `answer`, or, if it may change topics, `plan`."""

    decode: Callable[..., Any]
    encode: Callable[..., bytes]
    answer: Callable[[Any, Cluster], Any] | None = None
    plan: Callable[[Any, Cluster], Plan] | None = None
    elements: Callable[[Any], int] | None = None
    """How many an answer has, where a small request may have a large one."""
