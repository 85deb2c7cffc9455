"""What a cluster says about its groups, as plain values: no client library, no output.

None stands for what nobody knows: a partition without a commit, a topic whose end could not be read.
"""

from enum import StrEnum
from typing import NamedTuple

MANY_GROUPS = 20
"""From here on it is worth asking about all groups at once."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class State(StrEnum):
    """Kafka's names. The client library does not know the two that only groups of the newer protocol pass through
    (Assigning and Reconciling), and reports them as Unknown."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"

    @property
    def is_inactive(self) -> bool:
        """Whether offsets may be reset: nobody is there to overwrite them. A group that does not exist is Dead."""
        return self in (State.EMPTY, State.DEAD)


class GroupType(StrEnum):
    UNKNOWN = "Unknown"
    CONSUMER = "Consumer"
    CLASSIC = "Classic"


class Committed(NamedTuple):
    offset: int
    leader_epoch: int | None = None


class Node(NamedTuple):
    id: int
    host: str
    port: int


class Member(NamedTuple):
    """`target` is what a member of the newer protocol will have once it has given up the rest; None in classic ones."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None


class GroupListing(NamedTuple):
    group_id: str
    type: GroupType
    state: State


class Group(NamedTuple):
    group_id: str
    type: GroupType
    state: State
    assignor: str = ""
    coordinator: Node | None = None
    members: tuple[Member, ...] = ()


class Refusal(NamedTuple):
    """What the cluster would not do: Kafka's name of the error, and its text."""

    code: str
    text: str


class LogOffsets(NamedTuple):
    """Offsets of partitions, and of the others why they could not be had."""

    known: dict[TopicPartition, int]
    refused: dict[TopicPartition, Refusal]
