"""Everything the page tells, as rows: groups with their partitions, each with lag, owner and verdict. No I/O.

None is what is not known, and is not shown. Sums and maxima are of what is known; `without_lag` says how much is not.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.exporter.groups import Group, Member
from muster.exporter.log_ends import LogEnd, LogEnds
from muster.live.requests import ListedGroup
from muster.verdicts import Verdict, evaluate, is_losing, of_group

TopicPartition = tuple[str, int]

INTERPOLATED, READ = "interpolated", "read"
"""How it is known when a record was written: from the ends of its log, or from the record itself."""


class Owner(NamedTuple):
    consumer_id: str = ""
    host: str = ""
    client_id: str = ""


NO_OWNER = Owner()


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    offset: int
    lag: int | None
    """As kafka-consumer-groups has it: negative if more was committed than the log has."""
    lag_s: float | None
    owner: Owner
    verdict: Verdict | None
    """With LOSING."""
    burrow: Verdict | None
    """By Burrow's rules alone."""


class TablesRun(NamedTuple):
    """What the last published run of the tables says. None: it has no such table."""

    observed_at_ms: int
    """When it looked at the cluster."""
    findings: Mapping[tuple[str, str], int] | None
    """By severity and kind; 0 of kinds that were looked for and not found."""
    expires_ms: Mapping[str, int] | None
    """By group, when the first of its offsets, or it itself, is going to be deleted."""


@dataclass(slots=True)
class GroupRow:
    group_id: str
    type: str | None
    state: str | None
    coordinator: int | None
    protocol_type: str
    protocol: str
    members: int
    commits: int
    rebalances: Mapping[str, int]
    last_commit_ms: int | None
    partitions: list[PartitionRow] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict | None:
        return of_group(row.verdict for row in self.partitions if row.verdict is not None)

    @property
    def burrow(self) -> Verdict | None:
        return of_group(row.burrow for row in self.partitions if row.burrow is not None)

    @property
    def lags(self) -> list[int]:
        return [max(0, row.lag) for row in self.partitions if row.lag is not None]

    @property
    def lags_s(self) -> list[float]:
        return [row.lag_s for row in self.partitions if row.lag_s is not None]

    @property
    def without_lag(self) -> int:
        return sum(row.lag is None for row in self.partitions)

    def topic_lags(self) -> dict[str, int]:
        lags: dict[str, int] = {}
        for row in self.partitions:
            if row.lag is not None:
                lags[row.topic] = lags.get(row.topic, 0) + max(0, row.lag)
        return lags


@dataclass(frozen=True, slots=True)
class View:
    """As of one round of questions."""

    cluster_name: str
    groups: list[GroupRow]
    ends: LogEnds
    tables: TablesRun | None = None
    read_at: Mapping[str, float] = field(default_factory=dict)
    """By group, when its commits were last read, by the monotonic clock."""


class Known(NamedTuple):
    """What rows are made of, beside the groups."""

    ends: LogEnds
    written_ms: Mapping[tuple[str, int, int], int | None]
    """When records were written, by topic, partition and offset, of those that were read."""
    listed: Mapping[str, tuple[int, ListedGroup]]
    """Groups that coordinators list, with the coordinator's number."""
    topic_names: Mapping[bytes, str]
    now_ms: int
    read_ms: Mapping[str, int] = {}
    """By group, when its commits were last read; those that are not here were read now."""


def group_rows(groups: Mapping[str, Group], known: Known) -> tuple[list[GroupRow], Mapping[str, int]]:
    """A row for each group, and how lags in time came to be known."""
    methods = Counter({INTERPOLATED: 0, READ: 0})
    return [_group_row(group_id, group, known, methods) for group_id, group in sorted(groups.items())], methods


def _group_row(group_id: str, group: Group, known: Known, methods: Counter[str]) -> GroupRow:
    coordinator, listed = known.listed.get(group_id, (None, ListedGroup(None, None)))
    owners = _owners(group.members, known.topic_names)
    commit_times_ms = [at_ms for position in group.positions.values() if (at_ms := position.window[-1].at_ms) >= 0]
    row = GroupRow(
        group_id,
        listed.type or group.type,
        listed.state,
        coordinator,
        group.protocol_type,
        group.protocol,
        len(group.members),
        group.commits,
        dict(group.rebalances.by_cause) if group.rebalances is not None else {},
        max(commit_times_ms, default=None),
    )
    read_ms = known.read_ms.get(group_id, known.now_ms)  # later it is we who do not know, not the group that is silent
    for where, position in sorted(group.positions.items()):
        end, last = known.ends.get(where), position.window[-1]
        evaluated = None if end is None else evaluate(position.window, end.last_ends, read_ms, end_at=end.end_at)
        burrow = None if evaluated is None else evaluated.verdict
        is_lost = end is not None and is_losing(last.offset, end.start)
        row.partitions.append(
            PartitionRow(
                *where,
                last.offset,
                None if end is None else end.end - last.offset,
                None if end is None else _lag_s(where, last.offset, end, known, methods),
                owners.get(where, NO_OWNER),
                Verdict.LOSING if is_lost else burrow,
                burrow,
            )
        )
    return row


def _owners(members: Mapping[str, Member], topic_names: Mapping[bytes, str]) -> dict[TopicPartition, Owner]:
    owners: dict[TopicPartition, Owner] = {}
    for member_id, member in members.items():
        owner = Owner(member_id, member.host, member.client_id)
        owners |= dict.fromkeys(member.owned, owner)
        for topic_id, partitions in member.owned_by_id:
            if topic_id in topic_names:
                owners |= dict.fromkeys([(topic_names[topic_id], partition) for partition in partitions], owner)
    return owners


def _lag_s(where: TopicPartition, offset: int, end: LogEnd, known: Known, methods: Counter[str]) -> float | None:
    """Since when the next record has been waiting; 0 if there is none."""
    if offset >= end.end:
        return 0.0
    at_ms: float | None = end.written_at_ms(offset)
    method = INTERPOLATED
    if at_ms is None:
        at_ms, method = known.written_ms.get((*where, offset)), READ
    if at_ms is None:
        return None
    methods[method] += 1
    return max(0.0, (end.at_ms - at_ms) / 1000)


def unknown_times(groups: Iterable[Group], ends: LogEnds) -> set[tuple[str, int, int]]:
    """Offsets of which only the record itself can tell when it was written."""
    return {
        (*where, position.window[-1].offset)
        for group in groups
        for where, position in group.positions.items()
        if (end := ends.get(where)) is not None
        and position.window[-1].offset < end.end
        and end.written_at_ms(position.window[-1].offset) is None
    }
