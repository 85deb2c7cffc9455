"""What a cluster says about its groups, as plain values, and the rows with kafka-consumer-groups' columns made of them.

No client library, no output: formulas live here, and nothing is asked. None stands for what is not known: a partition
without a commit, a topic whose end could not be read. A cell keeps its value (a number, a list of partitions, None)
until it is written as text, JSON or CSV.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from muster.cli.tabular import SUCCESSFUL, Column, Kind, Row, Shown, Table

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
        """Whether offsets may be reset: no member would overwrite them. A group that does not exist is Dead."""
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


GROUP = Column("GROUP", "group_id")
TOPIC = Column("TOPIC", "topic")
PARTITION = Column("PARTITION", "partition", Kind.NUMBER, short="PART")
CURRENT_OFFSET = Column("CURRENT-OFFSET", "committed_offset", Kind.NUMBER, short="CURRENT")
LOG_END_OFFSET = Column("LOG-END-OFFSET", "log_end_offset", Kind.NUMBER, short="END")
NEW_OFFSET = Column("NEW-OFFSET", "new_offset", Kind.NUMBER, short="NEW")
LEADER_EPOCH = Column("LEADER-EPOCH", "leader_epoch", Kind.NUMBER, short="EPOCH", spare=1)
LAG = Column("LAG", "lag", Kind.LAG)
CONSUMER_ID = Column("CONSUMER-ID", "member_id", Kind.MEMBER, short="CONSUMER")
INSTANCE_ID = Column("GROUP-INSTANCE-ID", "instance_id", shown=Shown.IF_ANY, short="INSTANCE")
HOST = Column("HOST", "client_host", spare=2)
CLIENT_ID = Column("CLIENT-ID", "client_id", short="CLIENT", spare=3)
PARTITIONS = Column("#PARTITIONS", "partitions_assigned", Kind.NUMBER, short="#PART")
CURRENT_ASSIGNMENT = Column("CURRENT-ASSIGNMENT", "assignment", Kind.ASSIGNMENT, short="ASSIGNMENT")
TARGET_ASSIGNMENT = Column("TARGET-ASSIGNMENT", "target_assignment", Kind.ASSIGNMENT, Shown.IF_ANY)
COORDINATOR = Column("COORDINATOR (ID)", "coordinator", Kind.NODE, spare=2)
ASSIGNMENT_STRATEGY = Column("ASSIGNMENT-STRATEGY", "protocol", short="STRATEGY", spare=1)
TYPE = Column("TYPE", "type", Kind.GROUP_TYPE)
STATE = Column("STATE", "state", Kind.STATE)
MEMBERS = Column("#MEMBERS", "members", Kind.NUMBER)
COMMITTED = Column("COMMITTED-PARTITIONS", "committed_partitions", Kind.NUMBER, short="COMMITTED")
STATUS = Column("STATUS", "status", Kind.STATUS)
ERROR_CODE = Column("ERROR-CODE", "error_code", shown=Shown.TO_PROGRAMS)


def lag(committed_offset: int | None, log_end_offset: int | None) -> int | None:
    """How far behind, in offsets; negative when more was committed than the log has. Unknown is not zero."""
    if committed_offset is None or log_end_offset is None:
        return None
    return log_end_offset - committed_offset


def list_table(listings: Iterable[GroupListing]) -> Table:
    rows = sorted((each.group_id, each.type.value, each.state.value) for each in listings)
    return Table((GROUP, TYPE, STATE), rows)


def offsets_table(
    groups: Iterable[Group],
    committed: Mapping[str, Mapping[TopicPartition, Committed]],
    log_end_offsets: Mapping[TopicPartition, int],
    verbose: bool = False,
) -> Table:
    """A row for each partition that a member has, and for each that was committed and no member has."""
    epoch = (LEADER_EPOCH,) if verbose else ()
    columns = (
        GROUP, TOPIC, PARTITION, *epoch, CURRENT_OFFSET, LOG_END_OFFSET, LAG, CONSUMER_ID, HOST, CLIENT_ID,
    )  # fmt: skip
    rows: list[Row] = []
    for group in sorted(groups, key=lambda group: group.group_id):
        rows += _offset_rows(group, committed.get(group.group_id, {}), log_end_offsets, verbose)
    return Table(columns, rows)


def _offset_rows(
    group: Group,
    committed: Mapping[TopicPartition, Committed],
    log_end_offsets: Mapping[TopicPartition, int],
    verbose: bool,
) -> list[Row]:
    owned: list[tuple[TopicPartition, Row]] = [
        (partition, (member.member_id, member.host, member.client_id))
        for member in group.members
        for partition in member.assignment
    ]
    taken = {partition for partition, _ in owned}
    free: list[tuple[TopicPartition, Row]] = [(each, (None, None, None)) for each in committed if each not in taken]
    rows: list[Row] = []
    for partition, owner in sorted(owned + free, key=lambda one: one[0]):
        commit = committed.get(partition)
        offset, end = (None if commit is None else commit.offset), log_end_offsets.get(partition)
        epoch = (None if commit is None else commit.leader_epoch,) if verbose else ()
        rows.append((group.group_id, *partition, *epoch, offset, end, lag(offset, end), *owner))
    return rows


def members_table(groups: Iterable[Group], verbose: bool = False) -> Table:
    assignments = (CURRENT_ASSIGNMENT, TARGET_ASSIGNMENT) if verbose else ()
    columns = (GROUP, CONSUMER_ID, INSTANCE_ID, HOST, CLIENT_ID, PARTITIONS, *assignments)
    rows: list[Row] = []
    for group in sorted(groups, key=lambda group: group.group_id):
        for member in sorted(group.members, key=lambda member: member.member_id):
            assigned = (member.assignment, member.target) if verbose else ()
            rows.append(
                (
                    group.group_id,
                    member.member_id,
                    member.instance_id,
                    member.host,
                    member.client_id,
                    len(member.assignment),
                    *assigned,
                )
            )
    return Table(columns, rows)


def state_table(groups: Iterable[Group]) -> Table:
    rows = [
        (group.group_id, group.coordinator, group.assignor or None, group.state.value, len(group.members))
        for group in sorted(groups, key=lambda group: group.group_id)
    ]
    return Table((GROUP, COORDINATOR, ASSIGNMENT_STRATEGY, STATE, MEMBERS), rows)


def reset_table(
    new_offsets: Mapping[str, Mapping[TopicPartition, int]],
    committed: Mapping[str, Mapping[TopicPartition, Committed]] | None = None,
) -> Table:
    """`committed`, where given, stands beside the new offsets."""
    columns = (GROUP, TOPIC, PARTITION, *((CURRENT_OFFSET,) if committed is not None else ()), NEW_OFFSET)
    rows: list[Row] = []
    for group_id, offsets in sorted(new_offsets.items()):
        for partition, offset in sorted(offsets.items()):
            before: Row = ()
            if committed is not None:
                commit = committed.get(group_id, {}).get(partition)
                before = (None if commit is None else commit.offset,)
            rows.append((group_id, *partition, *before, offset))
    return Table(columns, rows)


def deletable_groups_table(committed_partitions: Mapping[str, int]) -> Table:
    """Groups that would be deleted, with how many offsets each would take along."""
    return Table((GROUP, COMMITTED), sorted(committed_partitions.items()))


def deleted_groups_table(outcomes: Mapping[str, Refusal | None]) -> Table:
    rows = [(group_id, *_status(refusal)) for group_id, refusal in sorted(outcomes.items())]
    return Table((GROUP, STATUS, ERROR_CODE), rows)


def deleted_offsets_table(
    group_id: str, outcomes: Mapping[TopicPartition, Refusal | None], unknown_topics: Mapping[str, Refusal]
) -> Table:
    columns = (GROUP._replace(shown=Shown.TO_PROGRAMS), TOPIC, PARTITION, STATUS, ERROR_CODE)
    rows: list[Row] = [(group_id, *partition, *_status(refusal)) for partition, refusal in sorted(outcomes.items())]
    rows += [(group_id, topic, None, *_status(refusal)) for topic, refusal in sorted(unknown_topics.items())]
    return Table(columns, rows)


def _status(refusal: Refusal | None) -> tuple[str, str | None]:
    return (SUCCESSFUL, None) if refusal is None else (f"Error: {refusal.text}", refusal.code)
